"""Why an answer ended decides how a run goes on: over HTTP, through the real SDKs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Backend, Stop, aio
from perdure.errors import Invalid, RunFailed
from perdure.model.run import StopReason
from perdure.providers.transport.errors import CutOff
from tests.forked import ForkedProcess, own
from tests.providers.endings import calling, ended, pausing, response, sse, vendor_of
from tests.providers.playing import cut, playing, streamed, whole
from tests.providers.vendors import TEXT, VENDORS, Vendor
from tests.surfaces.shell import Shell

CHAT, RESPONSES = vendor_of("openai-chat"), vendor_of("openai-responses")
ANTHROPIC, GEMINI = vendor_of("anthropic-messages"), vendor_of("gemini-generate")
BEDROCK, MISTRAL = vendor_of("bedrock-converse"), vendor_of("mistral-chat")
OLLAMA, INTERACTIONS = vendor_of("ollama-chat"), vendor_of("gemini-interactions")

each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.api)
either_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

ENDS: list[tuple[Vendor, str, str]] = [
    (ANTHROPIC, "max_tokens", "truncated"),
    (ANTHROPIC, "model_context_window_exceeded", "truncated"),
    (ANTHROPIC, "refusal", "refused"),
    (CHAT, "length", "truncated"),
    (CHAT, "content_filter", "refused"),
    (RESPONSES, "max_output_tokens", "truncated"),
    (RESPONSES, "content_filter", "refused"),
    (GEMINI, "MAX_TOKENS", "truncated"),
    *((GEMINI, word, "refused") for word in ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "SPII")),
    *((GEMINI, word, "refused") for word in ("PROHIBITED_CONTENT", "IMAGE_SAFETY")),
    *((GEMINI, word, "malformed") for word in ("MALFORMED_FUNCTION_CALL", "TOO_MANY_TOOL_CALLS")),
    *((GEMINI, word, "malformed") for word in ("UNEXPECTED_TOOL_CALL", "NO_IMAGE")),
    (GEMINI, "OTHER", "unknown"),
    (BEDROCK, "max_tokens", "truncated"),
    (BEDROCK, "guardrail_intervened", "refused"),
    (BEDROCK, "content_filtered", "refused"),
    (BEDROCK, "malformed_model_output", "malformed"),
    (MISTRAL, "length", "truncated"),
    (MISTRAL, "model_length", "truncated"),
    (OLLAMA, "length", "truncated"),
    (INTERACTIONS, "incomplete", "truncated"),
    (INTERACTIONS, "budget_exceeded", "truncated"),
    (INTERACTIONS, "cancelled", "cancelled"),
    *((vendor, "out_of_steam", "unknown") for vendor in VENDORS),
]
GOOD = [(ANTHROPIC, "stop_sequence"), (BEDROCK, "stop_sequence"), (CHAT, "eos"), (CHAT, "STOP")]
TRUNCATED = {
    "openai-responses": "max_output_tokens",
    "gemini-generate": "MAX_TOKENS",
    "anthropic-messages": "max_tokens",
    "bedrock-converse": "max_tokens",
    "gemini-interactions": "incomplete",
}


def ran(vendor: Vendor, *answers: Any, stream: bool = False, **more: Any) -> tuple[Any, Any, Any]:
    """The result of one run against these answers, its record, and what was asked."""
    with playing(*answers) as place, perdure.open("memory:") as store:
        agent = Agent("planner", backend=vendor.at(place, options={"stream": stream}), **more)
        thread = store.thread("trip", agent=agent)
        result = thread.run("Hi")
        return result, thread.runs()[-1], place.requests


@either_way
@pytest.mark.parametrize(("vendor", "word", "kind"), ENDS, ids=lambda each: getattr(each, "api", each))
def test_an_answer_that_is_not_complete_stops_the_run(
    vendor: Vendor, word: str, kind: Any, stream: bool
) -> None:
    """The words stay, the run says that they are not all, and both the result and the record say why."""
    result, record, requests = ran(vendor, ended(vendor, word, stream=stream), stream=stream)

    assert (result.status, result.text) == ("stopped", TEXT)
    assert result.stop == record.stop == StopReason(kind, word)
    assert word in result.why
    assert len(requests) == 1


@either_way
@pytest.mark.parametrize(("vendor", "word"), GOOD, ids=lambda each: getattr(each, "api", each))
def test_an_answer_that_is_complete_succeeds(vendor: Vendor, word: str, stream: bool) -> None:
    """Whatever a server calls that; the control of the test above."""
    result, record, _ = ran(vendor, ended(vendor, word, stream=stream), stream=stream)

    assert (result.status, result.why) == ("succeeded", None)
    assert result.stop == record.stop == StopReason("completed", word)


@pytest.mark.parametrize("word", ["length", "content_filter", "out_of_steam"])
def test_a_policy_may_accept_an_answer_that_is_not_complete(word: str) -> None:
    """The run succeeds then, and still says how the answer ended."""
    accepting = Stop(accept=("truncated", "refused", "unknown"))

    result, _, _ = ran(CHAT, ended(CHAT, word, stream=True), stream=True, stop=accepting)

    assert (result.status, result.stop.word) == ("succeeded", word)
    assert result.stop.reason != "completed"


@pytest.mark.parametrize("accept", ["truncated", ("limit",), ("paused",), ("max_tokens",)])
def test_a_policy_that_means_nothing_is_refused(accept: Any) -> None:
    """Only ends of answers can be accepted, by their own words."""
    with pytest.raises(Invalid):
        Stop(accept=accept)


def test_a_refusal_in_words_is_a_refusal_in_chat() -> None:
    """The finish reason is `stop` there, as that of any answer."""
    choice = {"index": 0, "message": {"role": "assistant", "refusal": "I won't."}, "finish_reason": "stop"}

    result, _, _ = ran(CHAT, whole({**CHAT.body, "choices": [choice]}))

    assert (result.status, result.text) == ("stopped", "I won't.")
    assert result.stop == StopReason("refused", "stop")


@either_way
def test_a_refusal_in_words_is_a_refusal_in_responses(stream: bool) -> None:
    """The status is `completed` there, as that of any answer."""
    part = {"type": "refusal", "refusal": "I won't."}
    body = response("completed", {"type": "message", "id": "m1", "role": "assistant", "content": [part]})
    played = streamed(sse({"type": "response.completed", "response": body})) if stream else whole(body)

    result, _, _ = ran(RESPONSES, played, stream=stream)

    assert (result.status, result.text) == ("stopped", "I won't.")
    assert result.stop == StopReason("refused", "completed")


def test_a_prompt_that_gemini_blocks_is_refused() -> None:
    """There is no candidate then; whatever the reason is called, nothing was answered."""
    result, _, _ = ran(GEMINI, whole({"promptFeedback": {"blockReason": "OTHER"}}))

    assert (result.status, result.stop) == ("stopped", StopReason("refused", "OTHER"))


@pytest.mark.parametrize(("vendor", "word"), [(MISTRAL, "error"), (CHAT, "network_error")])
@either_way
def test_an_answer_that_ended_in_an_error_fails_the_run(vendor: Vendor, word: str, stream: bool) -> None:
    """Nothing of it is kept: half an answer is none."""
    with pytest.raises(RunFailed) as failed:
        ran(vendor, ended(vendor, word, stream=stream), stream=stream)

    assert isinstance(failed.value.__cause__, CutOff)


def test_a_response_that_failed_fails_the_run() -> None:
    """It came with status 200, and says itself that it failed."""
    error = {"code": "server_error", "message": "the model broke"}

    with pytest.raises(RunFailed) as failed:
        ran(RESPONSES, whole(response("failed", error=error)), stream=False)

    assert "the model broke" in str(failed.value)


@each_vendor
@pytest.mark.parametrize("arguments", ['{"amount": 5}', '{"amount": 5', ""], ids=["whole", "cut", "none"])
def test_a_call_in_a_truncated_answer_is_never_run(vendor: Vendor, arguments: str) -> None:
    """Also where its arguments look complete; the conversation stays in order for the next turn."""
    paid: list[int] = []

    @perdure.tool(effect="financial")
    def pay(amount: int = 1) -> str:
        paid.append(amount)
        return "paid"

    word = TRUNCATED.get(vendor.api, "length")
    first = calling(vendor, word, arguments=arguments)
    with playing(first, vendor.whole()) as place, perdure.open("memory:") as store:
        agent = Agent("clerk", backend=vendor.at(place, options={"stream": False}), tools=[pay])
        thread = store.thread("trip", agent=agent)
        result = thread.run("Pay")
        calls = [call.state for call in thread.calls()]
        again = thread.run("And now?")

    assert (result.status, result.stop) == ("stopped", StopReason("truncated", word))
    assert (paid, calls) == ([], ["failed"])
    assert again.status == "succeeded"


@pytest.mark.parametrize("accepted", [False, True])
def test_a_call_in_a_streamed_answer_that_was_cut_off_is_never_run(accepted: bool) -> None:
    """Not even if the policy accepts truncated answers."""
    paid: list[int] = []

    @perdure.tool(effect="financial")
    def pay(amount: int) -> None:
        paid.append(amount)

    call = {"index": 0, "id": "c1", "function": {"name": "pay", "arguments": '{"amount": 5}'}}
    chunks = [{"delta": {"tool_calls": [call]}}, {"delta": {}, "finish_reason": "length"}]
    body = sse(*({"id": "c", "model": "m", "choices": [{"index": 0, **each}]} for each in chunks), done=True)
    stop = Stop(accept=("truncated",) if accepted else ())

    result, _, requests = ran(CHAT, streamed(body), stream=True, tools=[pay], stop=stop)

    assert result.status == ("succeeded" if accepted else "stopped")
    assert (paid, len(requests)) == ([], 1)


@each_vendor
def test_a_call_in_a_complete_answer_is_run(vendor: Vendor) -> None:
    """The control: the same answers, ended as the vendor ends them."""
    paid: list[int] = []

    @perdure.tool(effect="financial")
    def pay(amount: int = 1) -> str:
        paid.append(amount)
        return "paid"

    usual = {"openai-responses": "completed", "gemini-generate": "STOP", "ollama-chat": "stop"}
    usual |= {"gemini-interactions": "requires_action"}
    word = usual.get(vendor.api, "tool_calls" if "chat" in vendor.api else "tool_use")
    result, _, _ = ran(vendor, calling(vendor, word), vendor.whole(), tools=[pay])

    assert (result.status, paid) == ("succeeded", [5])


def test_a_call_that_gemini_did_not_expect_is_answered_in_words() -> None:
    """The model called what it was not given; it is told, and goes on."""
    result, _, requests = ran(GEMINI, calling(GEMINI, "UNEXPECTED_TOOL_CALL"), GEMINI.whole())

    assert (result.status, result.text) == ("succeeded", TEXT)
    assert "no tool named pay" in str(requests[1].body)


@pytest.mark.parametrize("word", ["pause_turn", "compaction"])
@pytest.mark.parametrize(
    "last",
    [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "text", "text": "Let me look further."},
    ],
    ids=["tool", "text"],
)
def test_a_paused_turn_is_sent_back_as_it_is_and_goes_on(word: str, last: dict[str, Any]) -> None:
    """Nothing is put between it and its continuation, whatever it ends with."""
    blocks = [{"type": "text", "text": "I'll search."}, last]

    result, record, requests = ran(ANTHROPIC, whole(pausing(*blocks, stop=word)), ANTHROPIC.whole())

    assert (result.status, result.text, result.steps) == ("succeeded", TEXT, 2)
    assert requests[1].body["messages"][1:] == [{"role": "assistant", "content": blocks}]
    assert record.stop == StopReason("completed", "end_turn")


def test_going_on_counts_against_the_stop_policies() -> None:
    """A turn that is paused for ever is stopped."""
    paused = whole(pausing({"type": "text", "text": "Still looking."}))

    result, _, requests = ran(ANTHROPIC, paused, stop=Stop(steps=3))

    assert (result.status, result.stop) == ("stopped", StopReason("limit", "steps"))
    assert len(requests) == 3


ASKING = """
import sys, perdure
backend = perdure.Backend("openai:m", base_url=sys.argv[2] + "/v1", api_key="sk-x", options={"stream": False})
with perdure.open(sys.argv[1]) as store:
    store.thread("trip", agent=perdure.Agent("planner", backend=backend)).run("Hi")
"""


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until, "it never became so"
        time.sleep(0.02)


QUEUED = response("queued", background=True)
WORKING = response("in_progress", background=True)


def test_a_queued_response_is_fetched_by_its_id() -> None:
    """One request asks, the others fetch; the answer counts as one step."""
    result, record, requests = ran(RESPONSES, whole(QUEUED), whole(WORKING), RESPONSES.whole())

    assert (result.status, result.text, result.steps) == ("succeeded", TEXT, 1)
    assert [(each.method, each.path) for each in requests] == [
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1"),
    ]
    assert record.pending is None


def test_a_stream_in_the_background_that_breaks_off_is_fetched_by_its_id() -> None:
    """What was streamed before is not told twice."""
    begun = sse({"type": "response.created", "response": QUEUED}) + RESPONSES.stream.partition(b"\n\n")[2]

    async def go(backend: Backend) -> list[Any]:
        async with aio.open("memory:") as store:
            thread = await store.thread("trip", agent=Agent("planner", backend=backend))
            return [event async for event in thread.stream("Hi")]

    with playing(cut(begun), RESPONSES.whole()) as place:
        told = asyncio.run(go(RESPONSES.at(place)))

    assert [each.method for each in place.requests] == ["POST", "GET"]
    assert told[-1].result.status == "succeeded"
    assert "".join(each.text for each in told if each.type == "text.delta") in (TEXT, "Hello ")


def test_waiting_for_a_response_counts_against_the_seconds_of_a_run() -> None:
    """A response that is queued for ever does not hold the run for ever."""
    result, _, requests = ran(RESPONSES, whole(QUEUED), stop=Stop(seconds=1.0))

    assert (result.status, result.stop) == ("stopped", StopReason("limit", "seconds"))
    assert [each.method for each in requests].count("POST") <= 1


def test_another_process_fetches_a_queued_response_instead_of_asking_again(tmp_path: Path) -> None:
    """The first is killed while it waits; its id was durable before."""
    path = tmp_path / "agents.db"
    with playing(whole(QUEUED), *[whole(WORKING)] * 2, RESPONSES.whole()) as place:
        with ForkedProcess(own(), ["-c", ASKING, str(path), place.url]) as child:
            wait_until(lambda: len(place.requests) >= 2)
            child.kill()
        with perdure.open(path) as store:
            agent = Agent("planner", backend=RESPONSES.at(place, options={"stream": False}))
            result = store.thread("trip", agent=agent).resume()

    assert result is not None
    assert (result.status, result.text, result.steps) == ("succeeded", TEXT, 1)
    assert [each.method for each in place.requests].count("POST") == 1


def test_a_response_that_was_cancelled_at_its_server_stops_the_run() -> None:
    """It was cancelled on the server."""
    result, _, _ = ran(RESPONSES, whole(QUEUED), whole(response("cancelled", background=True)))

    assert (result.status, result.stop) == ("stopped", StopReason("cancelled", "cancelled"))


def test_the_command_line_tells_why_a_run_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For people and for programs."""
    shell = Shell(tmp_path, capsys, monkeypatch)
    with playing(ended(CHAT, "length", stream=True)) as place, perdure.open(shell.store) as store:
        store.thread("trip", agent=Agent("planner", backend=CHAT.at(place))).run("Hi")

    shown = shell.ok("runs", "show", "trip", "--store", str(shell.store)).out
    told = shell.ok("runs", "show", "trip", "--json", "--store", str(shell.store)).json

    assert "stopped" in shown
    assert "length" in shown
    assert told["run"]["stop"] == {"reason": "truncated", "word": "length"}
