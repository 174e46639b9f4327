"""Lists of frameworks' messages: each thing they hold is in the thread, or a loss with its place."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from langchain_core.messages import AIMessage, FunctionMessage, HumanMessage, ToolMessage

import perdure
from perdure import File, Image, Thread

PDF = base64.b64encode(b"%PDF-1.4 x").decode()
WAV = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt ").decode()
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def thread() -> Thread:
    """A thread without messages."""
    return perdure.open("memory:").thread("trip", agent="planner")


def states(thread: Thread) -> list[str]:
    """The states of the calls of a thread."""
    return [call.state for call in thread.calls()]


def named(losses: Any) -> list[tuple[str, str]]:
    """The places of losses, and what they are."""
    return [(loss.where, loss.what) for loss in losses]


def results(thread: Thread) -> list[str]:
    """The words of the results in a thread."""
    messages = [entry.message for entry in thread.transcript()]
    return [getattr(block, "text", "") for m in messages for each in m.tool_results for block in each.content]


# ---- LangChain

CALL = {"name": "look", "args": {"city": "Oslo"}, "id": "c1"}
ASKED = AIMessage("", tool_calls=[CALL])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("status", "state"), [("error", "failed"), ("success", "succeeded")])
def test_a_failed_tool_of_langchain_has_failed(thread: Thread, status: Any, state: str) -> None:
    """Its message says so, and no loss is needed."""
    losses = thread.add([HumanMessage("Oslo?"), ASKED, ToolMessage("boom", tool_call_id="c1", status=status)])

    assert (states(thread), losses) == ([state], ())


@pytest.mark.parametrize(
    ("block", "where", "what"),
    [
        ({"type": "thinking", "thinking": "Hm", "signature": "c2ln"}, "signature", "signature"),
        ({"type": "reasoning", "reasoning": "Hm", "extras": {"sig": "x"}}, "extras.sig", "sig"),
        ({"type": "text", "text": "Rain", "citations": [{"url": "u"}]}, "citations", "citations"),
        ({"type": "text", "text": "Rain", "annotations": [{"url": "u"}]}, "annotations", "citations"),
    ],
)
def test_what_only_a_vendor_reads_of_a_block_is_a_named_loss(
    thread: Thread, block: Any, where: str, what: str
) -> None:
    """The words are kept, as thoughts or as text."""
    losses = thread.add([HumanMessage("Oslo?"), AIMessage([block])])

    (kept,) = thread.transcript()[-1].message.content
    assert getattr(kept, "text", "") in ("Hm", "Rain")
    assert named(losses) == [(f"messages[1].content[0].{where}", what)]


@pytest.mark.parametrize(
    ("block", "kind", "media_type"),
    [
        ({"type": "file", "base64": PDF, "mime_type": "application/pdf"}, File, "application/pdf"),
        ({"type": "audio", "base64": WAV, "mime_type": "audio/wav"}, File, "audio/wav"),
        ({"type": "image", "base64": PNG, "mime_type": "image/png"}, Image, "image/png"),
        (
            {"type": "audio", "source_type": "base64", "data": WAV, "mime_type": "audio/wav"},
            File,
            "audio/wav",
        ),
        ({"type": "media", "data": PDF, "mime_type": "application/pdf"}, File, "application/pdf"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            Image,
            "image/png",
        ),
        ({"type": "video", "url": "https://a/b", "mime_type": "video/mp4"}, File, "video/mp4"),
        ({"type": "file", "url": "https://a/b", "mime_type": "application/pdf"}, File, "application/pdf"),
    ],
)
def test_media_of_langchain_are_media(thread: Thread, block: Any, kind: type, media_type: str) -> None:
    """Bytes and addresses in each of its forms, with their types; nothing is lost."""
    losses = thread.add([HumanMessage([{"type": "text", "text": "See:"}, block])])

    words, media = thread.transcript()[0].message.content
    assert (type(media), media.mime_type) == (kind, media_type)  # pyright: ignore[reportAttributeAccessIssue]
    assert (getattr(words, "text", ""), losses) == ("See:", ())


def test_text_in_a_document_is_text(thread: Thread) -> None:
    """A document of Anthropic's that holds its text, and a block of plain text."""
    source = {"type": "text", "media_type": "text/plain", "data": "Rain."}
    blocks: Any = [{"type": "document", "source": source}, {"type": "text-plain", "text": "Sun."}]
    thread.add([HumanMessage(blocks)])

    assert thread.transcript()[0].text == "Rain.Sun."


def test_calls_in_the_older_forms_of_langchain_are_calls(thread: Thread) -> None:
    """A call of a function, and the result by the function's name; further data of the vendor is a loss."""
    asked = AIMessage(
        "", additional_kwargs={"function_call": {"name": "look", "arguments": "{}"}, "trace": "x"}
    )

    rain: Any = FunctionMessage(content="rain", name="look")
    losses = thread.add([HumanMessage("Oslo?"), asked, rain])

    assert (states(thread), results(thread)) == (["succeeded"], ["rain"])
    assert named(losses) == [("messages[1].additional_kwargs.trace", "trace")]
