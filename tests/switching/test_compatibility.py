"""Compatibility: each thing that a conversation has, on backends that do it, do it otherwise, or do not."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall
from perdure.providers import adapter, catalog
from perdure.providers.capabilities import Capability, Level
from perdure.providers.profile import BackendProfile, backend_profile
from perdure.providers.wire.server_tools import account
from perdure.switching.compatibility import ShownToTarget, check, losses, sealed
from perdure.switching.policy import Topic

HELLO = Message("user", (Text("Hello."),))
TOOL = ToolSpec(name="look", parameters={"type": "object"})


def target(window: int | None = 200_000, *, lacks: str = "") -> BackendProfile:
    """A backend that does everything but that, of no format that is known."""
    known: dict[Capability, Level] = {each: "none" if each == lacks else "full" for each in Capability}
    return BackendProfile(name="a:b", levels=known, window=window)


def graded(shown: ShownToTarget, to: BackendProfile) -> dict[str, str]:
    """The lines of a check by topic."""
    return {item.topic: item.line for item in check(shown, to, losses(shown, to))}


def shown(*messages: Message, **given: Any) -> ShownToTarget:
    """A conversation."""
    options = given.pop("options", {})
    tools = given.pop("tools", ())
    said = messages or (HELLO,)
    return ShownToTarget(context=Context(messages=said, options=options, tools=tools), history=said, **given)


def test_of_a_plain_conversation_only_words_and_size_are_graded() -> None:
    """What it does not have nobody asks about."""
    assert graded(shown(), target()) == {
        "text": "✓ Text conversation supported",
        "context": "✓ 200k context sufficient",
    }


@pytest.mark.parametrize(
    ("given", "lacks", "topic", "line"),
    [
        (
            {"tools": [TOOL]},
            "tools",
            "tools",
            "✗ Tools unavailable; tools will be removed for this conversation",
        ),
        (
            {"tools": [TOOL], "mcp": frozenset({"look"})},
            "tools",
            "mcp_tools",
            "✗ MCP tools unavailable; tools will be removed for this conversation",
        ),
        (
            {"options": {"tool_choice": "required"}},
            "tool_choice",
            "tool_choice",
            "✗ Tool choice unavailable; it will be left out",
        ),
        (
            {"tools": [TOOL], "options": {"parallel_tool_calls": True}},
            "parallel_tools",
            "parallel_tools",
            "✗ Parallel tool calls unavailable; it will be left out",
        ),
        (
            {"options": {"output": "json"}},
            "json_mode",
            "strict_json",
            "⚠ JSON mode differs (loose-parse fallback)",
        ),
        (
            {"options": {"output": {"schema": {}}}},
            "structured_output",
            "strict_json",
            "⚠ JSON schema strict mode differs (loose-parse fallback)",
        ),
        (
            {"tools": [ToolSpec(name="look", strict=True)]},
            "strict_tools",
            "strict_tools",
            "⚠ Strict tool arguments differ (validation fallback)",
        ),
        (
            {"options": {"reasoning": {"effort": "high"}}},
            "reasoning",
            "reasoning",
            "✗ Reasoning unavailable; the model answers without it",
        ),
    ],
)
def test_what_a_backend_lacks_is_said_in_a_line(
    given: dict[str, Any], lacks: str, topic: Topic, line: str
) -> None:
    """And on one that has it the line says that it is kept."""
    there, missing = target(), target(lacks=lacks)

    assert graded(shown(**given), missing)[topic] == line
    assert graded(shown(**given), there)[topic].startswith("✓ ")


@pytest.mark.parametrize(
    ("block", "topic", "word"),
    [
        (Image("https://x/a.png", "image/png"), "images", "image"),
        (File("https://x/a.pdf", "application/pdf"), "documents", "document"),
        (File("https://x/a.mp3", "audio/mpeg"), "audio", "audio"),
        (File("https://x/a.mp4", "video/mp4"), "video", "video"),
    ],
)
def test_media_are_kept_transformed_or_named_in_words(block: Image | File, topic: Topic, word: str) -> None:
    """By what the backend takes, and whether the wire format is the same."""
    talk = shown(Message("user", (block,)), from_api="openai-chat")
    anthropic = backend_profile("anthropic:claude-sonnet-5-5", catalog.shipped())
    same = BackendProfile(name="a:b", target=None, levels=target().levels)

    assert graded(talk, same)[topic].startswith("✓ ")
    assert f"{word} input unavailable" in graded(talk, target(lacks=topic))[topic]
    if topic == "images":
        assert "will be transformed" in graded(talk, anthropic)[topic]


def test_a_file_that_a_vendor_keeps_is_read_by_that_vendor_alone() -> None:
    """Elsewhere it is named in words."""
    talk = shown(Message("user", (File("file-id://openai/file-1", "application/pdf"),)))
    models = catalog.shipped()

    assert graded(talk, backend_profile("openai:gpt-5.6", models))["files"].startswith("✓ ")
    assert graded(talk, backend_profile("anthropic:claude-sonnet-5-5", models))["files"].startswith(
        "✗ 1 file kept by openai"
    )


def test_an_image_by_a_file_id_is_graded_as_what_happens_to_it() -> None:
    """OpenAI's Responses take an image by its id, its Chat format does not, although the file is OpenAI's."""
    talk = shown(Message("user", (Image("file-id://openai/file-1", "image/png"),)))
    models = catalog.shipped()

    assert graded(talk, backend_profile("openai:gpt-5.6", models))["files"].startswith("✓ ")
    assert graded(talk, backend_profile("openai-chat:gpt-5.4", models))["files"].startswith(
        "✗ 1 file kept by openai"
    )


def test_what_a_server_tool_did_is_told_elsewhere() -> None:
    """Its vendor gets its own blocks back."""
    talk = shown(Message("assistant", (account("web_search", "web_search"),)), from_api="anthropic-messages")
    models = catalog.shipped()

    assert "server_tools" not in graded(talk, backend_profile("anthropic:claude-sonnet-5-5", models))
    assert "told in words" in graded(talk, backend_profile("openai:gpt-5.6", models))["server_tools"]


def test_a_vendor_s_own_tool_is_removed_elsewhere() -> None:
    """Its declaration means nothing to another format, whatever the other model can do."""
    options = {"vendor": {"openai-responses": {"tools": [{"type": "web_search"}]}}}
    models = catalog.shipped()

    assert graded(shown(options=options), backend_profile("openai:gpt-5.6", models))[
        "server_tools"
    ].startswith("✓ ")
    assert (
        graded(shown(options=options), backend_profile("anthropic:claude-sonnet-5-5", models))["server_tools"]
        == "✗ Server tool web_search unavailable; tool will be removed for this conversation"
    )


def test_reasoning_stays_with_its_issuer() -> None:
    """It is converted, not removed: it is in the history still."""
    talk = shown(*thinking(summary="Hm."), from_api="openai-responses")
    models = catalog.shipped()

    assert graded(talk, backend_profile("anthropic:claude-sonnet-5-5", models))["reasoning"].startswith("⚠ ")
    assert graded(talk, backend_profile("openai:gpt-5.6", models))["reasoning"] == "✓ Reasoning supported"


def test_encrypted_reasoning_without_a_summary_is_graded_too() -> None:
    """No canonical block tells of it; the request that leaves it out does."""
    talk = shown(*thinking(), from_api="openai-responses")
    models = catalog.shipped()

    assert graded(talk, backend_profile("anthropic:claude-sonnet-5-5", models))["reasoning"].startswith("⚠ ")
    assert "reasoning" not in graded(talk, backend_profile("openai:gpt-5.6", models))


def test_reasoning_that_does_not_go_back_is_not_called_supported() -> None:
    """An imported message has words of reasoning alone; its own format takes none without the sealed form."""
    talk = shown(
        HELLO, Message("assistant", (ReasoningSummary("Hm."), Text("Hi."))), from_api="openai-responses"
    )

    assert graded(talk, backend_profile("openai:gpt-5.6", catalog.shipped()))["reasoning"].startswith("⚠ ")


def thinking(summary: str = "") -> list[Message]:
    """A conversation in which OpenAI's model thought."""
    parts = [{"type": "summary_text", "text": summary}] if summary else []
    thought = {"type": "reasoning", "id": "rs_1", "summary": parts, "encrypted_content": "gAAAAAB"}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    content = [{"type": "output_text", "text": "Hi.", "annotations": []}]
    asked: dict[str, Any] = {"role": "user", "content": "Hello."}
    body = {"input": [asked, thought, {**said, "content": content}, asked]}
    return list(adapter("openai-responses").read_request(body).messages)


def test_no_grade_depends_on_what_only_a_vendor_can_read() -> None:
    """It is told, where it stays behind, and that is all."""
    spoke = Message("assistant", (Text("Hi."),), vendor_metadata='{"openai":{"encrypted_content":"abc"}}')
    bare = Message("assistant", (Text("Hi."),))
    models = catalog.shipped()
    to, home = (
        backend_profile("anthropic:claude-sonnet-5-5", models),
        backend_profile("openai:gpt-5.6", models),
    )
    kept, without = (shown(HELLO, each, from_api="openai-responses") for each in (spoke, bare))

    assert graded(kept, to) == graded(without, to)
    assert [sealed(kept, to), sealed(without, to), sealed(kept, home)] == [True, False, False]


def test_the_context_says_its_number_and_what_is_short() -> None:
    """Sufficient, holding the recent turns, or not even the least."""
    assert graded(shown(), target(1_048_576))["context"] == "✓ 1M context sufficient"
    assert graded(shown(), target(131_072))["context"] == "✓ 131k context sufficient"
    assert graded(shown(turns=3), target(8_192))["context"] == (
        "⚠ 8k context holds the last 3 turns, older ones will be left out (checkpoint fallback)"
    )
    assert graded(shown(fits=False, tokens=9_000, budget=6_000), target(8_192))["context"] == (
        "✗ 8k context insufficient"
    )
    assert "context" not in graded(shown(), target(None))


def test_options_that_a_format_has_not_are_removed_by_name() -> None:
    """As its render says."""
    talk = shown(options={"seed": 1, "temperature": 0.5})

    lines = graded(talk, backend_profile("anthropic:claude-sonnet-5-5", catalog.shipped()))

    assert lines["options"] == "✗ Option seed unavailable; it will be left out"


def test_parallel_calls_of_the_history_count() -> None:
    """Two calls in one turn are asked about, one is not."""
    two = Message("assistant", (), (ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}")))
    one = Message("assistant", (), (ToolCall("1", "look", "{}"),))

    assert "parallel_tools" in graded(shown(HELLO, two, tools=[TOOL]), target())
    assert "parallel_tools" not in graded(shown(HELLO, one, tools=[TOOL]), target())
