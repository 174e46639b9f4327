"""Steps of Gemini's Interactions API: read, kept for Google, and told to others."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import File, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers import adapter
from perdure.providers.contract import (
    PendingReply,
    Rendered,
    Reply,
    stop_reason,
)
from perdure.providers.gemini_interactions.adapter import ADAPTER
from perdure.providers.gemini_interactions.parse import SERVER_STEPS

MODEL = "gemini-3-pro"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HI = Message(role="user", content=(Text("hi"),))
SAID = {"type": "model_output", "content": [{"type": "text", "text": "Rain."}]}
CALL = {"type": "function_call", "id": "c1", "name": "look", "arguments": {"city": "Oslo"}}
CITED = {"type": "url_citation", "url": "https://example.org/", "start_index": 0, "end_index": 4}


def answer(*steps: dict[str, Any], status: str = "completed", **more: Any) -> Reply:
    """The reply that an interaction of these steps is."""
    body = {"id": "v1_1", "model": MODEL, "status": status, "steps": list(steps), **more}
    return ADAPTER.parse(body, provider="google")


def rendered(*messages: Message, model: str = MODEL, **more: Any) -> Rendered:
    """The request for these messages."""
    return ADAPTER.render(Context(messages=messages or (HI,), **more), model=model, provider="google")


def streamed(*events: dict[str, Any]) -> Reply:
    """The reply that a stream of these events is."""
    return ADAPTER.parse_stream([f"data: {json.dumps(event)}\n\n".encode() for event in events])


def delta(at: int, **fields: Any) -> dict[str, Any]:
    """An event that adds to a step."""
    return {"event_type": "step.delta", "index": at, "delta": fields}


def start(at: int, **step: Any) -> dict[str, Any]:
    """An event that begins a step."""
    return {"event_type": "step.start", "index": at, "step": step}


DONE = {"event_type": "interaction.completed", "interaction": {"status": "completed", "model": MODEL}}


def test_every_step_of_the_sdk_is_known() -> None:
    """Each kind that Google's SDK has a type for is read without a report of an unknown kind."""
    step = pytest.importorskip("google.genai._gaos.types.interactions.step")
    ours = {"user_input", "model_output", "thought", "function_call", "function_result"}

    assert set(step._STEP_VARIANTS) == ours | SERVER_STEPS


@pytest.mark.parametrize("kind", sorted(SERVER_STEPS))
def test_a_step_of_googles_own_tool_goes_back_to_google_alone(kind: str) -> None:
    """Google is sent the step as it came; another vendor is told of it in words, and the report says so."""
    own = {"id": "s1", "arguments": {"queries": ["Oslo"]}} if kind.endswith("_call") else {"call_id": "s1"}
    step = {"type": kind, "signature": "c2lnbmVk" * 20, **own, "result": [{"url": "https://example.org/"}]}
    reply = answer(step, SAID)

    back = rendered(HI, reply.message, HI)
    other = adapter("openai-chat").render(Context(messages=[HI, reply.message, HI]), model="gpt-5.6")

    assert reply.losses == ()
    assert back.body["input"][1:-1] == [step, SAID]
    assert not [loss for loss in back.losses if loss.where.startswith("messages[1]")]
    assert ("messages[1].content[0]", "converted") in {(loss.where, loss.kind) for loss in other.losses}
    assert "c2lnbmVk" not in json.dumps(other.body)


def test_a_step_of_an_unknown_kind_is_reported_and_goes_back() -> None:
    """What Google adds later is neither refused nor left out."""
    strange = {"type": "dream", "mood": "glad"}

    reply = answer(strange, SAID)

    assert [(loss.kind, loss.what) for loss in reply.losses] == [("converted", "dream")]
    assert rendered(HI, reply.message, HI).body["input"][1:-1] == [strange, SAID]


def test_a_call_that_googles_agent_answered_is_no_call_of_ours() -> None:
    """The agent carried it out itself: call and result go back as they came."""
    result = {"type": "function_result", "call_id": "c1", "result": "rain"}

    reply = answer(CALL, result, SAID)

    assert reply.message.tool_calls == ()
    assert rendered(HI, reply.message, HI).body["input"][1:-1] == [CALL, result, SAID]


def test_a_request_that_an_answer_repeats_is_left_out() -> None:
    """The conversation holds what was asked already."""
    asked = {"type": "user_input", "content": [{"type": "text", "text": "hi"}]}

    reply = answer(asked, SAID)

    assert reply.message.text == "Rain."
    assert [(loss.where, loss.what) for loss in reply.losses] == [("steps[0]", "user_input")]


def test_a_thought_goes_back_to_the_model_that_made_it() -> None:
    """Another model of Google's gets neither the thought nor the signature of a call."""
    thought = {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]}
    reply = answer(thought, {**CALL, "signature": "b3RoZXI="}, status="requires_action")
    result = Message("tool", (), (), (ToolResult("c1", "success", (Text("rain"),)),))

    same, other = (rendered(HI, reply.message, result, model=model) for model in (MODEL, "gemini-2.5-flash"))

    assert same.body["input"][1:3] == [thought, {**CALL, "signature": "b3RoZXI="}]
    assert other.body["input"][1] == CALL
    assert {loss.where for loss in other.losses} >= {"messages[1].content[0]", "messages[1].signature"}


@pytest.mark.parametrize(
    ("first", "second"),
    [("gemini-generate", "gemini-interactions"), ("gemini-interactions", "gemini-generate")],
)
def test_neither_api_of_google_is_given_what_the_other_signed(first: str, second: str) -> None:
    """The signatures stand in other places, so each API is told what any other vendor is."""
    parts = [{"text": "Rain.", "thoughtSignature": "c2lnbmVk"}]
    bodies: dict[str, dict[str, Any]] = {
        "gemini-generate": {"candidates": [{"content": {"parts": parts}}], "modelVersion": MODEL},
        "gemini-interactions": {
            "status": "completed",
            "model": MODEL,
            "steps": [{"type": "thought", "signature": "c2lnbmVk"}, SAID],
        },
    }
    message = adapter(first).parse(bodies[first], provider="google").message

    made = adapter(second).render(Context(messages=[HI, message, HI]), model=MODEL, provider="google")

    assert "Rain." in json.dumps(made.body)
    assert "c2lnbmVk" not in json.dumps(made.body)
    assert "thought signature" in {loss.what for loss in made.losses}


@pytest.mark.parametrize(
    ("result", "text"),
    [("rain", "rain"), ({"sky": "grey"}, '{"sky":"grey"}'), ([{"type": "text", "text": "rain"}], "rain")],
    ids=["text", "object", "contents"],
)
@pytest.mark.parametrize("status", ["success", "error"])
def test_a_result_comes_back_in_its_form(result: object, text: str, status: str) -> None:
    """Text, an object or contents, and the mark that the call failed."""
    failed = {"is_error": True} if status == "error" else {}
    step = {"type": "function_result", "call_id": "c1", "name": "look", "result": result, **failed}
    asked = {"type": "user_input", "content": [{"type": "text", "text": "hi"}]}

    context = ADAPTER.read_request({"model": MODEL, "input": [asked, CALL, step]})
    (given,) = context.messages[-1].tool_results

    assert (given.status, given.content) == (status, (Text(text),))
    assert ADAPTER.render(context, model=MODEL).body["input"] == [asked, CALL, step]


def test_a_result_may_hold_a_picture() -> None:
    """It stands among the contents of the result."""
    shown = {"type": "image", "data": PNG, "mime_type": "image/png"}
    reply = answer(CALL, status="requires_action")
    step = {"type": "function_result", "call_id": "c1", "result": [{"type": "text", "text": "a"}, shown]}
    given = ADAPTER.read_request({"model": MODEL, "input": [CALL, step]}).messages[-1].tool_results

    made = rendered(HI, reply.message, Message("tool", (), (), given))

    assert made.body["input"][-1]["result"] == [{"type": "text", "text": "a"}, shown]
    assert made.losses == ()


def test_a_result_whose_call_the_server_has_is_sent() -> None:
    """A request that continues a stored interaction answers its calls; without one the result has no call."""
    step = {"type": "function_result", "call_id": "c9", "result": "rain"}
    continuing = {"model": MODEL, "input": [step], "previous_interaction_id": "v1_0"}

    context = ADAPTER.read_request(continuing)
    alone = rendered(*context.messages)

    assert ADAPTER.render(context, model=MODEL).body == continuing
    assert "tool result" in {loss.what for loss in alone.losses}


@pytest.mark.parametrize("first", [Message("assistant", (), (ToolCall("c1", "look", "{}"),)), None])
def test_a_request_begins_and_ends_with_the_user(first: Message | None) -> None:
    """Steps of the user's are put before a call that nothing precedes and behind the model's last words."""
    messages = [] if first is None else [first, Message("assistant", (Text("Rain."),))]

    made = ADAPTER.render(Context(messages=messages), model=MODEL)

    kinds = [step["type"] for step in made.body["input"]]
    assert (kinds[0], kinds[-1]) == ("user_input", "user_input")
    assert {loss.what for loss in made.losses if loss.where == "messages"} == {"turn"}


def test_a_file_of_plain_text_is_told_as_text() -> None:
    """The API takes no such document, and the report says that it is one no longer."""
    data = base64.b64encode(b"milk, bread").decode()
    shopping = File(f"data:text/plain;base64,{data}", "text/plain")

    made = rendered(Message("user", (shopping,)))

    assert made.body["input"] == [
        {"type": "user_input", "content": [{"type": "text", "text": "milk, bread"}]}
    ]
    assert [(loss.kind, loss.where) for loss in made.losses] == [("converted", "messages[0].content[0]")]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("completed", "completed"),
        ("incomplete", "truncated"),
        ("budget_exceeded", "truncated"),
        ("requires_continuation", "paused"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("in_progress", "pending"),
        ("queued", "pending"),
    ],
)
def test_the_status_is_the_word_for_the_end(status: str, kind: str) -> None:
    """Each status of an interaction has a meaning, and only one that is being worked on is fetched later."""
    reply = answer(SAID, status=status)

    assert stop_reason(reply.stop, reply.stop_kind, has_calls=False).reason == kind
    assert reply.stop == status
    assert reply.pending == ("v1_1" if kind == "pending" else None)


def test_words_that_ended_in_an_error_have_failed() -> None:
    """A step says so itself, whatever the status is."""
    reply = answer({**SAID, "error": {"code": 13, "message": "the model broke"}})

    assert reply.stop_kind == "failed"


def test_steps_are_put_together_from_their_deltas() -> None:
    """Words with citations, a picture, a search with what it found: as if the answer had come whole."""
    shown = {"type": "image", "data": PNG, "mime_type": "image/png"}
    queries, found = {"queries": ["Oslo"]}, [{"search_suggestions": "<b>Oslo</b>"}]
    steps = [
        {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]},
        {
            "type": "model_output",
            "content": [{"type": "text", "text": "Rain.", "annotations": [CITED]}, shown],
        },
        {"type": "google_search_call", "id": "s1", "signature": "", "arguments": queries},
        {"type": "google_search_result", "call_id": "s1", "signature": "", "result": found},
    ]

    reply = streamed(
        start(0, type="thought"),
        delta(0, type="thought_summary", content={"type": "text", "text": "Hm."}),
        delta(0, type="thought_signature", signature=""),
        delta(0, type="thought_signature", signature="c2ln"),
        start(1, type="model_output"),
        delta(1, type="text", text="Ra"),
        delta(1, type="text", text="in."),
        delta(1, type="text_annotation_delta", annotations=[CITED]),
        delta(1, **shown),
        start(2, type="google_search_call", id="s1", signature=""),
        delta(2, type="google_search_call", arguments=queries),
        start(3, type="google_search_result", call_id="s1", signature=""),
        delta(3, type="google_search_result", result=found),
        DONE,
    )

    assert reply.message == ADAPTER.parse({"status": "completed", "model": MODEL, "steps": steps}).message
    assert rendered(HI, reply.message, HI).body["input"][1:-1] == steps


def test_a_call_whose_arguments_were_cut_off_is_left_out() -> None:
    """What stood before it stays, and the report names it."""
    reply = streamed(
        start(0, type="model_output"),
        delta(0, type="text", text="Let me look."),
        start(1, type="function_call", id="c1", name="look", arguments={}),
        delta(1, type="arguments_delta", arguments='{"city": "Os'),
    )

    assert (reply.message.text, reply.message.tool_calls, reply.stop) == ("Let me look.", (), None)
    assert [loss.what for loss in reply.losses] == ["function_call"]


def test_arguments_that_are_no_json_stay_as_they_came() -> None:
    """A call that ended so is shown to the caller, who refuses it; nothing is made up."""
    reply = streamed(
        start(0, type="function_call", id="c1", name="look", arguments={}),
        delta(0, type="arguments_delta", arguments='{"city": '),
        {"event_type": "step.stop", "index": 0},
        DONE,
    )

    assert [call.args for call in reply.message.tool_calls] == ['{"city": ']


def test_a_stream_of_an_agent_tells_the_id_by_which_it_is_fetched() -> None:
    """Agents work in the background; a stream of a model ends with its connection."""
    begun = {"id": "v1_1", "status": "in_progress"}
    created = {"event_type": "interaction.created", "interaction": {**begun, "agent": "deep-research"}}
    plain = {"event_type": "interaction.created", "interaction": {**begun, "model": MODEL}}
    ended = {"event_type": "interaction.completed", "interaction": {"status": "completed"}}

    agent, model = (streamed(each, start(0, **SAID), ended) for each in (created, plain))

    assert [event for event in agent.events if isinstance(event, PendingReply)] == [PendingReply("v1_1")]
    assert not any(isinstance(event, PendingReply) for event in model.events)


def test_a_stream_that_is_an_error_alone_is_refused() -> None:
    """Nothing was answered."""
    with pytest.raises(Invalid):
        streamed({"event_type": "error", "error": {"code": "unavailable", "message": "busy"}})


def test_an_event_of_an_unknown_kind_is_reported() -> None:
    """Nothing of a stream is left out in silence."""
    reply = streamed(start(0, **SAID), {"event_type": "step.dream", "index": 0}, DONE)

    assert [(loss.kind, loss.what) for loss in reply.losses] == [("dropped", "step.dream")]


def test_thoughts_of_another_vendor_are_left_out_and_reported() -> None:
    """Only the model that made them can use them."""
    thinking = Message("assistant", (ReasoningSummary("Hm."), Text("Rain.")))

    made = rendered(HI, thinking, HI)

    assert made.body["input"][1] == SAID
    assert [(loss.where, loss.what) for loss in made.losses] == [("messages[1].content[0]", "reasoning")]
