"""Every transport through its real SDK, against a server that speaks the vendor's wire format."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.errors import Invalid, NotFound, PerdureError, RunFailed
from perdure.providers.contract import TextChunk
from perdure.providers.transport.errors import (
    AccessRefused,
    BackendUnavailable,
    ContextTooLong,
    CutOff,
    RateLimited,
    RequestRejected,
)
from tests.coded import raises
from tests.providers.asking import ask, asked, finished, question
from tests.providers.playing import SSE, Answer, broken, playing, silence, whole
from tests.providers.vendors import KEY, TEXT, VENDORS, Vendor

each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.api)


@each_vendor
def test_a_stream_is_told_as_it_comes(vendor: Vendor) -> None:
    """Words come in pieces, the last event has all of them, and what was used."""
    with playing(vendor.streamed()) as place:
        events = ask(vendor.at(place))

    last = finished(events)
    assert "".join(event.text for event in events if isinstance(event, TextChunk)) == TEXT
    assert last.message.text == TEXT
    assert (last.usage.input_tokens, last.usage.output_tokens) == (7, 3)
    assert len(events) == 3


@each_vendor
def test_a_whole_answer_is_read_where_no_stream_is_wanted(vendor: Vendor) -> None:
    """The option decides."""
    with playing(vendor.whole()) as place:
        last = finished(ask(vendor.at(place, options={"stream": False})))

    assert last.message.text == TEXT
    assert (last.usage.input_tokens, last.usage.output_tokens) == (7, 3)


@each_vendor
def test_the_request_goes_where_the_vendor_expects_it(vendor: Vendor) -> None:
    """Path, key and words are there."""
    with playing(vendor.streamed()) as place:
        ask(vendor.at(place), question("Good morning"))

    (request,) = place.requests
    assert request.path == vendor.path.partition("#")[0]
    assert "Good morning" in str(request.body)
    assert vendor.api == "bedrock-converse" or any(KEY in value for value in request.headers.values())


@each_vendor
def test_a_limited_rate_is_waited_for(vendor: Vendor) -> None:
    """After the wait that the vendor named it is asked again, and answers."""
    with playing(vendor.limited("0"), vendor.streamed()) as place:
        last = finished(ask(vendor.at(place)))

    assert last.message.text == TEXT
    assert len(place.requests) == 2


@each_vendor
def test_a_wait_that_is_too_long_is_told_at_once(vendor: Vendor) -> None:
    """A step does not wait an hour; the error says how long it would be."""
    with playing(vendor.limited("3600")) as place, raises(RateLimited, "rate_limited", retry_after=3600):
        ask(vendor.at(place))

    assert len(place.requests) == 1


@each_vendor
def test_an_overloaded_backend_is_asked_again(vendor: Vendor) -> None:
    """As often as was said, and then it is unavailable."""
    status, body = vendor.overloaded
    with (
        playing(whole(body, status=status)) as place,
        raises(BackendUnavailable, "backend_unavailable", status=status),
    ):
        ask(vendor.at(place, retries=1))

    assert len(place.requests) == 2


@each_vendor
def test_half_an_answer_is_no_answer(vendor: Vendor) -> None:
    """A stream that breaks off is an error, and is not asked for again: some of it has come."""
    with playing(vendor.cut(), vendor.streamed()) as place, pytest.raises(CutOff):
        ask(vendor.at(place))

    assert len(place.requests) == 1


@each_vendor
def test_what_is_no_json_is_invalid(vendor: Vendor) -> None:
    """A malformed whole answer."""
    with playing(broken()) as place, pytest.raises(Invalid):
        ask(vendor.at(place, options={"stream": False}, retries=0))


@pytest.mark.parametrize(
    "vendor", [each for each in VENDORS if each.kind == SSE], ids=lambda vendor: vendor.api
)
def test_an_event_that_is_no_json_is_invalid(vendor: Vendor) -> None:
    """A malformed event of a stream."""
    with playing(broken(SSE)) as place, pytest.raises(Invalid):
        ask(vendor.at(place, retries=0))


@each_vendor
def test_a_conversation_that_is_too_long_is_told_apart(vendor: Vendor) -> None:
    """Shortening helps, asking again does not."""
    status, body = vendor.too_long
    with playing(whole(body, status=status)) as place, pytest.raises(ContextTooLong):
        ask(vendor.at(place))

    assert len(place.requests) == 1


@each_vendor
def test_a_rejected_request_is_not_sent_again(vendor: Vendor) -> None:
    """It would be rejected again."""
    refusal = whole({"message": "no such field", "error": {"message": "no such field"}}, status=400)
    with playing(refusal) as place, raises(RequestRejected, "request_rejected", status=400):
        ask(vendor.at(place))

    assert len(place.requests) == 1


@each_vendor
def test_an_unknown_model_is_not_found(vendor: Vendor) -> None:
    """The model or the address is wrong."""
    answer = whole(
        {"message": "no such model", "error": {"code": 404, "message": "no such model"}}, status=404
    )
    with playing(answer) as place, raises(NotFound, "model_not_found", status=404):
        ask(vendor.at(place))


@each_vendor
def test_a_wrong_key_is_refused_and_never_shown(vendor: Vendor) -> None:
    """Even where the vendor repeats it."""
    body = {"message": f"bad key {KEY}", "error": {"code": 401, "message": f"Incorrect API key: {KEY}"}}
    with playing(whole(body, status=401)) as place, pytest.raises(AccessRefused) as caught:
        ask(vendor.at(place))

    assert KEY not in str(caught.value)
    assert KEY not in repr(vendor.at(place))


@each_vendor
def test_a_key_in_the_words_of_a_vendor_is_left_out(vendor: Vendor) -> None:
    """Of whichever error."""
    body = {"message": f"I saw {KEY}", "error": {"code": 500, "message": f"I saw {KEY}"}}
    with playing(whole(body, status=500)) as place, pytest.raises(BackendUnavailable) as caught:
        ask(vendor.at(place, retries=0))

    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is not None
    assert KEY not in "".join(traceback.format_exception_only(caught.value))


@each_vendor
def test_silence_is_given_up(vendor: Vendor) -> None:
    """After the time-out, without waiting for the answer that comes too late."""
    with playing(silence(1.0)) as place, pytest.raises(BackendUnavailable):
        ask(vendor.at(place, timeout=0.1, retries=0))


@each_vendor
def test_a_backend_that_is_not_there_is_unavailable(vendor: Vendor) -> None:
    """The connection is refused, and the error names the address that was tried."""
    with playing(vendor.streamed()) as place:
        pass

    with raises(BackendUnavailable, "backend_unreachable") as refused:
        ask(vendor.at(place, retries=0))

    assert str(refused.value.facts["server"]).startswith(place.url)


@each_vendor
def test_connections_are_used_again_on_one_loop_and_not_across_loops(vendor: Vendor) -> None:
    """A client is kept as long as its loop."""

    async def twice() -> list[str]:
        return [finished(await asked(backend)).message.text for _ in range(2)]

    with playing(vendor.streamed()) as place:
        backend = vendor.at(place)
        assert asyncio.run(twice()) == [TEXT, TEXT]
        assert asyncio.run(twice()) == [TEXT, TEXT]

    assert len(place.requests) == 4


@each_vendor
def test_an_error_in_the_place_of_a_whole_answer_shows_no_key(vendor: Vendor, tmp_path: Path) -> None:
    """Its words are the server's, and may repeat what it was sent; they are stored as the end of the run."""
    answer = whole({"error": {"code": 500, "message": f"no such key: {KEY}"}})
    with playing(answer) as place, perdure.open(tmp_path / "a.db") as store:
        agent = Agent("planner", backend=vendor.at(place, retries=0), options={"stream": False})
        with pytest.raises(RunFailed) as failed:
            store.thread("trip", agent=agent).run("Hi")

    assert KEY not in str(failed.value)
    assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.iterdir())


@each_vendor
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    "body",
    [b"<html>sign in</html>", b'{"error": {"code": "no_number"}}', b"[1]"],
    ids=["page", "error", "list"],
)
def test_an_answer_of_another_format_is_an_error_of_ours(vendor: Vendor, stream: bool, body: bytes) -> None:
    """Some vendors' SDKs fail on it in their own way."""
    with playing(Answer(body)) as place, pytest.raises(PerdureError):
        ask(vendor.at(place, retries=0), question(stream=stream))


@pytest.mark.parametrize(
    ("api", "is_streamed", "body", "error"),
    [
        ("bedrock-converse", False, b"[1]", "AttributeError: "),
        ("gemini-generate", True, b'{"error": {"code": "no_number"}}', "TypeError: "),
    ],
)
def test_an_answer_that_an_sdk_fails_on_names_its_failure(
    api: str, is_streamed: bool, body: bytes, error: str
) -> None:
    """Whether the answer or the request is at fault can be seen in it."""
    (vendor,) = (each for each in VENDORS if each.api == api)
    with playing(Answer(body)) as place, raises(Invalid, "not_an_answer") as refused:
        ask(vendor.at(place, retries=0), question(stream=is_streamed))

    found = refused.value.facts["error"]
    assert isinstance(found, str)
    assert found.startswith(error)
    assert found in str(refused.value)
