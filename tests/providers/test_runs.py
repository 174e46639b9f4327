"""Whole runs over HTTP: a thread, an agent, a backend, and what is in the store afterwards."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Backend, aio
from perdure.errors import Invalid, NotFound, PerdureWarning, RunFailed
from perdure.model.context import Context
from perdure.model.message import Message, Text
from perdure.providers import adapter
from perdure.providers.transport.errors import AccessRefused, RateLimited
from perdure.runtime.agent.agent import model_of
from perdure.testing import Script, say
from tests.coded import raises
from tests.providers.playing import playing, streamed, whole
from tests.providers.vendors import KEY, TEXT, VENDORS, Vendor
from tests.surfaces.shell import Shell

CHAT_ADAPTER = adapter("openai-chat")
CHAT = next(vendor for vendor in VENDORS if vendor.api == "openai-chat")
RESPONSES = next(vendor for vendor in VENDORS if vendor.api == "openai-responses")

each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.api)


@each_vendor
def test_a_run_goes_through_every_transport(vendor: Vendor, tmp_path: Path) -> None:
    """The words are in the store, the key is not."""
    path = tmp_path / "agents.db"
    with playing(vendor.streamed()) as place, perdure.open(path) as store:
        thread = store.thread("trip", agent=Agent("planner", backend=vendor.at(place)))
        result = thread.run("Hi")
        backends = [turn.backend for turn in thread.turns()]

    assert (result.status, result.text) == ("succeeded", TEXT)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (7, 3)
    assert backends == [vendor.backend]
    assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.iterdir())


@each_vendor
def test_what_a_step_could_not_carry_over_is_in_the_history(vendor: Vendor, tmp_path: Path) -> None:
    """With the words that the model said in it, verified with the rest; a step that lost nothing names nothing."""
    asked = {"an-option-of-nobody": True}
    with playing(vendor.streamed(), vendor.streamed()) as place, perdure.open(tmp_path / "a.db") as store:
        losing = store.thread("one", agent=Agent("planner", backend=vendor.at(place), options=asked))
        whole = store.thread("other", agent=Agent("walker", backend=vendor.at(place)))
        losing.run("Hi")
        whole.run("Hi")
        lost = [[loss.where for loss in losing.losses(entry)] for entry in losing.transcript()]
        named = [entry.losses for entry in whole.transcript()]
        verified = store.verify()

    assert lost == [[], ["options.an-option-of-nobody"]]
    assert named == [None, None]
    assert verified.ok


def calling(name: str) -> Any:
    """A Chat answer that calls a tool by that name."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    delta = {"role": "assistant", "tool_calls": [call]}
    chunks = [
        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]},
        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return streamed("".join([*lines, "data: [DONE]\n\n"]).encode())


@pytest.mark.parametrize("name", ["garden.look", "garden_look", "a" * 100])
def test_a_tool_is_called_by_its_own_name_whatever_the_vendor_was_told(name: str) -> None:
    """One with a dot, one whose name the first would get, and one that is too long for the format."""
    done: list[str] = []

    def acting(called: str) -> Any:
        def act() -> str:
            done.append(called)
            return "ok"

        return perdure.tool(name=called, effect="read_only")(act)

    tools = [acting(each) for each in ("garden.look", "garden_look", "a" * 100)]
    told = CHAT_ADAPTER.render(
        Context(messages=[Message("user", (Text("Hi"),))], tools=[each.spec for each in tools]), model="m"
    )
    theirs = {ours: here for here, ours in told.names.items()}.get(name, name)

    with playing(calling(theirs), CHAT.streamed()) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=Agent("planner", backend=CHAT.at(place), tools=tools))
        thread.run("Hi")
        calls = [call.tool for call in thread.calls()]

    assert done == [name]
    assert calls == [name]


@each_vendor
def test_what_was_said_is_known_to_be_of_its_model(vendor: Vendor) -> None:
    """Also where the answer does not say which model gave it: signatures are good for that one alone."""
    with playing(vendor.streamed()) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=Agent("planner", backend=vendor.at(place)))
        thread.run("Hi")
        kept = json.loads(thread.transcript()[-1].message.vendor_metadata or "{}")

    ((_, facts),) = kept.items()
    assert facts["model"] in ("m", vendor.backend.partition(":")[2])


def test_the_command_line_tells_what_a_run_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`perdure runs show`, for people and for programs, step by step."""
    shell = Shell(tmp_path, capsys, monkeypatch)
    with playing(CHAT.streamed()) as place, perdure.open(shell.store) as store:
        agent = Agent("planner", backend=CHAT.at(place), options={"an-option-of-nobody": True})
        thread = store.thread("trip", agent=agent)
        thread.run("Hi")
        said = thread.transcript()[-1].id

    shown = shell.ok("runs", "show", "trip", "--store", str(shell.store)).out
    told = shell.ok("runs", "show", "trip", "--json", "--store", str(shell.store)).json["losses"]

    assert "1 thing could not be carried over unchanged" in shown
    assert [(each["message"], each["where"]) for each in told] == [(said, "options.an-option-of-nobody")]


@each_vendor
def test_a_failed_run_keeps_no_key(vendor: Vendor, tmp_path: Path) -> None:
    """Neither in what it says nor in the store."""
    body = {"message": f"bad key {KEY}", "error": {"code": 401, "message": f"Incorrect API key: {KEY}"}}
    with playing(whole(body, status=401)) as place, perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("trip", agent=Agent("planner", backend=vendor.at(place)))
        with pytest.raises(RunFailed) as caught:
            thread.run("Hi")

    assert isinstance(caught.value.__cause__, AccessRefused)
    assert KEY not in str(caught.value)
    assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.iterdir())


def test_the_awaitable_face_runs_the_same_way() -> None:
    """On the user's own loop."""

    async def go(backend: Backend) -> str:
        async with aio.open("memory:") as store:
            thread = await store.thread("trip", agent=Agent("planner", backend=backend))
            return (await thread.run("Hi")).text

    with playing(CHAT.streamed()) as place:
        assert asyncio.run(go(CHAT.at(place))) == TEXT


def test_a_failed_run_says_how_long_to_wait() -> None:
    """The cause carries it as a number."""
    with playing(CHAT.limited("3600")) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=Agent("planner", backend=CHAT.at(place)))
        with pytest.raises(RunFailed) as caught:
            thread.run("Hi")

    assert isinstance(caught.value.__cause__, RateLimited)
    assert caught.value.__cause__.retry_after == 3600


class Booking(msgspec.Struct):
    """What the last words are to be."""

    flight: str
    price: int


def test_the_shape_of_the_output_is_sent_and_read() -> None:
    """`output=` becomes a strict schema of the wire format."""
    said = json.dumps({"flight": "SK1", "price": 100})
    answer = streamed(CHAT.stream.replace(b'"Hello "', json.dumps(said).encode()).replace(b'"there"', b'""'))
    with playing(answer) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=Agent("planner", backend=CHAT.at(place)))
        result = thread.run("Book it", output=Booking)

    asked: dict[str, Any] = place.requests[0].body["response_format"]["json_schema"]
    assert result.output == Booking(flight="SK1", price=100)
    assert asked["strict"] is True
    assert "flight" in json.dumps(asked["schema"])


def test_options_of_a_backend_go_over_those_of_the_agent() -> None:
    """What is known of the backend is known better."""
    with playing(CHAT.streamed()) as place, perdure.open("memory:") as store:
        backend = CHAT.at(place, options={"temperature": 0.5})
        agent = Agent("planner", backend=backend, options={"temperature": 1.0, "seed": 7})
        store.thread("trip", agent=agent).run("Hi")

    body = place.requests[0].body
    assert (body["temperature"], body["seed"]) == (0.5, 7)


def test_a_name_is_a_backend() -> None:
    """Nothing is imported or opened before a step."""
    assert model_of(Agent("planner", backend="anthropic:claude-sonnet-5-5")).backend == (
        "anthropic:claude-sonnet-5-5"
    )


def test_an_object_that_takes_steps_is_used_as_it_is() -> None:
    """No adapter stands between."""
    script = Script(say("Done."))

    assert model_of(Agent("planner", backend=script)) is script


def test_an_agent_without_a_backend_does_not_run() -> None:
    """The error says what to give."""
    with raises(Invalid, "backend_missing", agent="planner"):
        model_of(Agent("planner"))


def test_an_unknown_provider_is_not_found() -> None:
    """Before anything is written."""
    with raises(NotFound, "provider_not_found", provider="nobody"):
        model_of(Agent("planner", backend="nobody:model"))


@pytest.mark.parametrize("stream", [True, False])
@each_vendor
def test_the_rebuilt_request_is_the_one_that_was_sent(vendor: Vendor, stream: bool) -> None:
    """With all that sending added, such as that a stream is to tell what was used."""
    answer = vendor.streamed() if stream else vendor.whole()
    with playing(answer) as place, perdure.open("memory:") as store:
        backend = vendor.at(place, options={"stream": stream})
        thread = store.thread("t", agent=Agent("planner", backend=backend, instructions="Be brief."))
        thread.run("Hi")
        rebuilt = thread.shown().request

    assert rebuilt is not None
    assert place.requests[0].body == rebuilt.body


def clock_of(day: str) -> int:
    """Noon of a day, in µs."""
    return int(datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp() * 1_000_000)


@pytest.mark.parametrize("day", ["2026-11-16", "2026-12-12"])
def test_a_run_on_a_model_that_ends_warns_once(day: str) -> None:
    """It names the day; the second run, and a model that stays, warn of nothing."""
    ending, staying = "openai:gpt-5", "openai:gpt-6.1-sol"

    def run_on(*names: str) -> None:
        for name in names:
            backend = Backend(name, base_url=f"{place.url}/v1", provider="openai", api_key=KEY)
            store.thread(f"t {name}", agent=Agent("planner", backend=backend)).run("Hi")

    with (
        playing(RESPONSES.streamed()) as place,
        perdure.open("memory:", clock=lambda: clock_of(day)) as store,
        pytest.warns(PerdureWarning) as warned,
    ):
        run_on(ending, ending, staying)

    (warning,) = (each.message for each in warned)
    assert isinstance(warning, PerdureWarning)
    assert (warning.code, warning.facts) == ("model_ends", {"backend": ending, "ends": "2026-12-11"})


@each_vendor
def test_connections_are_closed_when_the_thread_that_opened_them_ends(vendor: Vendor, tmp_path: Path) -> None:
    """A program that runs agents on short-lived threads keeps no sockets of theirs."""
    gc.freeze()  # what was there before is not searched for garbage below
    with (
        playing(vendor.streamed(), vendor.streamed()) as place,
        perdure.open(tmp_path / "agents.db") as store,
    ):
        agent = Agent("planner", backend=vendor.at(place))
        worker = threading.Thread(target=lambda: store.thread("one", agent=agent).run("Hi"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            worker.start()
            worker.join()
            store.thread("other", agent=agent).run("Hi")  # closes what the worker left
            gc.collect()

        assert len(place.requests) == 2
    assert [each.message for each in caught if issubclass(each.category, ResourceWarning)] == []
