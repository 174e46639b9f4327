"""Streams that begin well and end badly, told inside the stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

import perdure
from perdure.errors import RunFailed
from perdure.providers.transport.errors import BackendUnavailable, ContentRefused, CutOff, RateLimited
from tests.coded import raises
from tests.providers.asking import ask, finished
from tests.providers.playing import Answer, cut, playing, streamed, whole
from tests.providers.vendors import TEXT, VENDORS, Vendor

BY_API = {vendor.api: vendor for vendor in VENDORS}
CHAT, RESPONSES, MESSAGES = (BY_API[api] for api in ("openai-chat", "openai-responses", "anthropic-messages"))

OLLAMA, INTERACTIONS = BY_API["ollama-chat"], BY_API["gemini-interactions"]


def sse(*events: dict[str, Any]) -> Answer:
    """A stream of these events."""
    return streamed(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
FAILED = {
    "type": "response.failed",
    "response": {
        "id": "resp_1",
        "model": "m",
        "status": "failed",
        "output": [],
        "error": {"code": "rate_limit_exceeded", "message": "slow down"},
    },
}


def test_an_overload_before_the_first_word_is_asked_again() -> None:
    """The caller has received no event, so a repeat shows nothing twice."""
    with playing(sse(OVERLOADED), MESSAGES.streamed()) as place:
        last = finished(ask(MESSAGES.at(place)))

    assert last.message.text == TEXT
    assert len(place.requests) == 2


def test_an_overload_after_the_first_word_is_not_asked_again() -> None:
    """The words that were told are half an answer."""
    begun = MESSAGES.stream[: MESSAGES.stream.index(b"event: content_block_stop")]
    answer = streamed(begun + b"data: " + json.dumps(OVERLOADED).encode() + b"\n\n")
    with playing(answer) as place, raises(BackendUnavailable, "backend_unavailable"):
        ask(MESSAGES.at(place))

    assert len(place.requests) == 1


def test_an_error_in_a_line_of_ollamas_is_no_answer() -> None:
    """It is told in the server's own words, though its stream has lines in the place of events."""
    begun, line = OLLAMA.stream.splitlines(keepends=True)[0], b'{"error": "model runner has stopped"}\n'

    with (
        playing(streamed(begun + line, kind=OLLAMA.kind)) as place,
        pytest.raises(BackendUnavailable) as told,
    ):
        ask(OLLAMA.at(place, retries=0))

    assert "model runner has stopped" in str(told.value)
    assert len(place.requests) == 1


def test_a_failed_response_is_no_answer() -> None:
    """The Responses API says so in its last event."""
    with playing(sse(FAILED)) as place, raises(RateLimited, "rate_limited"):
        ask(RESPONSES.at(place, retries=0))


def test_an_error_of_a_compatible_server_is_told() -> None:
    """They send it in the place of a chunk."""
    error = {"error": {"message": "blocked by the content_filter", "code": 400}}
    with playing(sse(error)) as place, raises(ContentRefused, "content_refused"):
        ask(CHAT.at(place))


@pytest.mark.parametrize("vendor", [CHAT, MESSAGES, BY_API["gemini-generate"]], ids=lambda each: each.api)
def test_a_stream_that_ends_without_its_end_is_cut_off(vendor: Vendor) -> None:
    """Even where the connection was closed in good order."""
    half = vendor.stream[: vendor.stream.index(b"\n\n", vendor.stream.index(b"Hello")) + 2]
    with playing(streamed(half)) as place, raises(CutOff, "cut_off"):
        ask(vendor.at(place))


@pytest.mark.parametrize("vendor", [CHAT, RESPONSES, MESSAGES, INTERACTIONS], ids=lambda each: each.api)
@pytest.mark.parametrize("is_whole", [True, False], ids=["after its first event", "inside an event"])
def test_a_stream_that_ends_before_anything_is_whole_is_cut_off(vendor: Vendor, is_whole: bool) -> None:
    """A repeat may work, so it is no error of the request."""
    half = vendor.stream[: vendor.stream.index(b"\n\n") + 2]
    with playing(streamed(half if is_whole else half[:-20])) as place, raises(CutOff, "cut_off"):
        ask(vendor.at(place))


def test_a_server_that_says_done_is_believed() -> None:
    """Some compatible servers never say why they stopped."""
    stream = CHAT.stream.replace(b'"finish_reason": "stop"', b'"finish_reason": null')
    with playing(streamed(stream)) as place:
        last = finished(ask(CHAT.at(place)))

    assert (last.message.text, last.stop) == (TEXT, None)


def ended_after(vendor: Vendor, error: bytes) -> Answer:
    """The vendor's stream with an error before the event that ends it."""
    sep = b"\n" if vendor is OLLAMA else b"\n\n"
    events = [each + sep for each in vendor.stream.split(sep) if each]
    at = max(number for number, event in enumerate(events) if b"there" in event and b"delta" in event)
    return streamed(b"".join([*events[: at + 1], error, *events[at + 1 :]]), kind=vendor.kind)


@pytest.mark.parametrize("vendor", [CHAT, RESPONSES, MESSAGES, INTERACTIONS], ids=lambda each: each.api)
def test_an_error_before_an_ordinary_end_is_no_answer(vendor: Vendor) -> None:
    """What the error has cost is not known, whatever the stream says after it."""
    error = b"data: " + json.dumps(OVERLOADED).encode() + b"\n\n"

    with playing(ended_after(vendor, error)) as place, raises(BackendUnavailable, "backend_unavailable"):
        ask(vendor.at(place))

    assert len(place.requests) == 1


def test_an_error_between_two_lines_of_ollamas_is_no_answer() -> None:
    """The line that ends the answer does not make it whole."""
    first, *rest = OLLAMA.stream.splitlines(keepends=True)
    answer = streamed(b"".join([first, b'{"error": "model runner has stopped"}\n', *rest]), kind=OLLAMA.kind)

    with playing(answer) as place, raises(BackendUnavailable, "backend_unavailable"):
        ask(OLLAMA.at(place))


def test_an_error_after_the_end_takes_nothing_away() -> None:
    """Routers report the limit that ended an answer once more, as an error."""
    limit = {"error": {"code": 400, "message": "Token limit reached"}}
    end = CHAT.stream.replace(b"data: [DONE]", b"data: " + json.dumps(limit).encode() + b"\n\ndata: [DONE]")
    with playing(streamed(end)) as place:
        last = finished(ask(CHAT.at(place)))

    assert (last.message.text, last.stop) == (TEXT, "stop")


def test_a_usage_report_behind_an_error_after_the_end_takes_nothing_away() -> None:
    """The answer is whole, and was paid for."""
    limit = {"error": {"code": 400, "message": "Token limit reached"}}
    report = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
    after = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in (limit, report))
    with playing(streamed(CHAT.stream.replace(b"data: [DONE]", after + b"data: [DONE]"))) as place:
        last = finished(ask(CHAT.at(place)))

    assert (last.message.text, last.stop) == (TEXT, "stop")


@pytest.mark.parametrize(
    "error", [{"code": 0, "message": ""}, {"message": None}, "none", "", None, {}], ids=str
)
def test_an_error_that_did_not_happen_is_none(error: object) -> None:
    """Some servers send the field with every event; an answer beside it is whole."""
    with playing(ended_after(CHAT, sse({"choices": [], "error": error}).body)) as place:
        last = finished(ask(CHAT.at(place)))

    assert (last.message.text, last.stop) == (TEXT, "stop")


@pytest.mark.parametrize("error", [{"code": 500, "message": ""}, {"type": "overloaded"}, "gone"], ids=str)
def test_an_error_with_a_status_or_with_words_is_one(error: object) -> None:
    """Control: the answer beside it is not kept."""
    answer = ended_after(CHAT, sse({"choices": [], "error": error}).body)
    with playing(answer) as place, raises(BackendUnavailable, "backend_unavailable"):
        ask(CHAT.at(place))


def test_calls_beside_an_error_are_not_carried_out() -> None:
    """One call is whole; what was to follow it is not known."""
    head = MESSAGES.stream[: MESSAGES.stream.index(b"event: content_block_start")]
    block = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}}
    events = (
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        OVERLOADED,
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )
    paid: list[str] = []

    @perdure.tool(effect="external_write")
    def pay() -> str:
        paid.append("paid")
        return "ok"

    with playing(streamed(head + sse(*events).body)) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=perdure.Agent("payer", backend=MESSAGES.at(place), tools=[pay]))
        with pytest.raises(RunFailed):
            thread.run("Pay.")
        turns = [entry.message.role for entry in thread.transcript()]

    assert (paid, turns) == ([], ["user"])


@pytest.mark.parametrize(
    "vendor", [CHAT, RESPONSES, MESSAGES, OLLAMA, INTERACTIONS], ids=lambda each: each.api
)
def test_a_whole_body_with_an_error_in_the_place_of_a_stream_is_told(vendor: Vendor) -> None:
    """Gateways answer so, with a status of 200, in as many lines as they like."""
    error = {"error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    answer = Answer(json.dumps(error, indent=2).encode())

    with playing(answer) as place, raises(RateLimited, "rate_limited"):
        ask(vendor.at(place, retries=0))


def test_an_error_without_the_formats_own_shape_is_told() -> None:
    """A gateway in front of Anthropic puts its own error into the stream."""
    error = b'data: {"error": {"type": "rate_limit_error", "message": "slow down"}}\n\n'
    begun = MESSAGES.stream[: MESSAGES.stream.index(b"event: content_block_stop")]

    with playing(streamed(begun + error)) as place, raises(RateLimited, "rate_limited"):
        ask(MESSAGES.at(place))


@pytest.mark.parametrize(
    "tools",
    [{"tools": [{"type": "mcp", "server_url": "https://bank.example"}]}, {"mcp_servers": [{"name": "bank"}]}],
    ids=["declared among the tools", "declared beside them"],
)
def test_a_request_with_an_mcp_server_is_not_repeated_after_it_may_have_been_called(
    tools: dict[str, Any],
) -> None:
    """The vendor may have made a payment through it before its answer failed."""
    vendor = RESPONSES if "tools" in tools else MESSAGES
    failed = [sse(OVERLOADED), whole({"error": {"message": "busy"}}, status=500), cut(b"")]
    asked: list[int] = []

    for answer in failed:
        with playing(answer, vendor.streamed()) as place:
            with pytest.raises(BackendUnavailable):
                ask(vendor.at(place, options={"vendor": {vendor.api: tools}}))
            asked.append(len(place.requests))
    with playing(vendor.limited("0"), vendor.streamed()) as place:
        ask(vendor.at(place, options={"vendor": {vendor.api: tools}}))
        asked.append(len(place.requests))

    assert asked == [1, 1, 1, 2]
