"""Lists of frameworks' messages: each thing they hold is in the thread, or a loss with its place."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, FunctionMessage, HumanMessage, ToolMessage
from pydantic_ai import messages as pm

import perdure
from perdure import File, Image, Thread, errors

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


def roles(thread: Thread) -> list[str]:
    """Who speaks in a thread."""
    return [entry.role for entry in thread.transcript()]


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


# ---- pydantic-ai

HISTORY: list[pm.ModelMessage] = [
    pm.ModelRequest(
        [
            pm.UserPromptPart(["See:", pm.BinaryContent(b"%PDF-1.4 x", media_type="application/pdf")]),
        ],
        instructions="Be brief.",
    ),
    pm.ModelResponse(
        [
            pm.ThinkingPart("Hm", signature="c2ln"),
            pm.TextPart("I look."),
            pm.ToolCallPart("look", {"city": "Oslo"}, "c1"),
            pm.ToolCallPart("look", '{"city": "Bergen"}', "c2"),
            pm.ToolCallPart("look", {}, "c3"),
        ]
    ),
    pm.ModelRequest(
        [
            pm.ToolReturnPart("look", {"rain": True}, "c1"),
            pm.ToolReturnPart("look", "no such city", "c2", outcome="failed"),
            pm.UserPromptPart("Well?"),
        ],
        instructions="Be brief.",
    ),
    pm.ModelResponse([pm.TextPart("Rain.")]),
]


@pytest.mark.parametrize("form", ["json", "objects", "body"])
def test_a_history_of_pydantic_ai_is_read(thread: Thread, form: str) -> None:
    """As its adapter writes it and as it has it; each party's words are a message, and a call has its outcome."""
    dumped = json.loads(pm.ModelMessagesTypeAdapter.dump_json(HISTORY))
    given: Any = {"json": dumped, "objects": HISTORY, "body": {"messages": dumped}}[form]

    losses = thread.add(given, once=True)
    thread.add(given, once=True)

    assert roles(thread) == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]
    assert states(thread) == ["succeeded", "failed", "unknown"]
    assert results(thread) == ['{"rain": true}', "no such city"]
    assert thread.transcript()[1].message.content[1].mime_type == "application/pdf"  # pyright: ignore[reportAttributeAccessIssue]
    assert named(losses) == [
        ("messages[1].parts[0].signature", "signature"),
        ("messages[2].instructions", "instructions"),
    ]


def test_files_in_a_result_and_parts_without_a_place(thread: Thread) -> None:
    """A file that a tool gave back is in its result; what a provider ran itself is a loss."""
    picture = pm.BinaryContent(base64.b64decode(PNG), media_type="image/png")
    losses = thread.add(
        [
            pm.ModelRequest([pm.SystemPromptPart("Draw."), pm.UserPromptPart("A cat")]),
            pm.ModelResponse(
                [pm.NativeToolCallPart("web_search", {"q": "cat"}), pm.ToolCallPart("draw", {}, "c1")]
            ),
            pm.ModelRequest([pm.ToolReturnPart("draw", ["Here:", picture], "c1")]),
            pm.ModelResponse([pm.FilePart(picture)]),
        ]
    )

    (result,) = thread.transcript()[3].message.tool_results
    assert [type(block).__name__ for block in result.content] == ["Text", "Image"]
    assert isinstance(thread.transcript()[-1].message.content[0], Image)
    assert named(losses) == [("messages[1].parts[0]", "builtin-tool-call")]


# ---- useChat

UI: list[dict[str, Any]] = [
    {
        "id": "m1",
        "role": "user",
        "parts": [
            {"type": "text", "text": "Oslo?"},
            {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}"},
        ],
    },
    {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "Hm", "providerMetadata": {"anthropic": {"signature": "c2ln"}}},
            {"type": "text", "text": "I look."},
            {
                "type": "tool-look",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"city": "Oslo"},
                "output": {"rain": True},
            },
            {
                "type": "tool-look",
                "toolCallId": "c2",
                "state": "output-error",
                "input": {},
                "errorText": "no such city",
            },
            {"type": "step-start"},
            {
                "type": "dynamic-tool",
                "toolName": "book",
                "toolCallId": "c3",
                "state": "approval-requested",
                "input": {},
            },
            {"type": "tool-book", "toolCallId": "c4", "state": "output-denied", "input": {}},
            {"type": "text", "text": "Rain."},
            {"type": "source-url", "sourceId": "s1", "url": "https://a.example"},
        ],
    },
]


@pytest.mark.parametrize("form", ["list", "body"])
def test_messages_of_use_chat_are_read(thread: Thread, form: str) -> None:
    """The steps of an answer are messages, with their results; each is added once, by the message's id."""
    given: Any = UI if form == "list" else {"id": "chat-1", "messages": UI, "trigger": "submit-message"}

    losses = thread.add(given)
    before = thread.head
    thread.add(given)

    assert thread.head == before
    assert roles(thread) == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert [(call.tool, call.state) for call in thread.calls()] == [
        ("look", "succeeded"),
        ("look", "failed"),
        ("book", "unknown"),
        ("book", "failed"),
    ]
    assert results(thread)[:2] == ['{"rain": true}', "no such city"]
    assert isinstance(thread.transcript()[0].message.content[1], Image)
    assert named(losses) == [
        ("messages[1].parts[1].providerMetadata", "providerMetadata"),
        ("messages[1].parts[9]", "source-url"),
    ]


def test_a_call_of_use_chat_is_settled_when_its_output_has_come(thread: Thread) -> None:
    """The message grows under its id; control: the words that were there are not added again."""
    call = {"type": "tool-look", "toolCallId": "c1", "state": "input-available", "input": {}}
    asked = {"id": "m2", "role": "assistant", "parts": [call]}
    thread.add([UI[0], asked])

    thread.add(
        [UI[0], {**asked, "parts": [{**call, "state": "output-available", "output": "rain"}]}],
    )

    assert (states(thread), roles(thread)) == (["succeeded"], ["user", "assistant", "tool"])


def test_a_call_whose_arguments_still_come_is_a_loss(thread: Thread) -> None:
    """It was never made."""
    part = {"type": "tool-look", "toolCallId": "c1", "state": "input-streaming", "input": {"ci": 1}}

    losses = thread.add([UI[0], {"id": "m2", "role": "assistant", "parts": [part]}])

    assert (states(thread), named(losses)) == ([], [("messages[1].parts[0]", "tool call")])


# ---- parts of nobody


@pytest.mark.parametrize("role", ["user", "model"])
def test_parts_that_are_not_geminis_are_not_taken_for_them(thread: Thread, role: str) -> None:
    """The error names the message; control: Gemini's own parts are read."""
    with pytest.raises(errors.Invalid) as refused:
        thread.add([{"role": role, "parts": [{"kind": "note", "note": "hi"}]}])
    thread.add([{"role": role, "parts": [{"text": "hi"}]}])

    assert refused.value.facts["where"] == "messages[0]"
    assert [entry.text for entry in thread.transcript()] == ["hi"]
