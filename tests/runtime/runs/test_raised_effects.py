"""A tool that is declared anew to reach further: the higher of the two declarations governs a cut-off call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Agent, Store
from perdure.model.effect import Effect
from perdure.testing import Script, say, use
from tests.runtime.runs.cut_off import Place

_sent: list[str] = []


def sending(effect: Effect, *, idempotent: bool = False, ask: bool = False) -> Callable[..., Any]:
    """The same tool as one release or another declares it."""

    @perdure.tool(effect=effect, idempotent=idempotent, ask=ask)
    def send(to: str) -> str:
        _sent.append(to)
        return f"sent to {to}"

    return send


@pytest.fixture
def place() -> Place:
    """A store, and nothing sent."""
    _sent.clear()
    return Place()


HARMLESS = (("none", False), ("read_only", False), ("external_write", True))


@pytest.mark.parametrize(("before", "idempotent"), HARMLESS)
def test_a_call_that_was_cut_off_is_not_repeated_once_its_tool_says_that_it_writes(
    place: Place, before: Effect, *, idempotent: bool
) -> None:
    """Nobody knows whether it was done; an equal call under another id asks."""
    place.cut_off(sending(before, idempotent=idempotent), {"to": "ann"}, id="c1", after=1)
    assert _sent == ["ann"]

    result = place.call(sending("external_write"), {"to": "ann"}, id="c1")

    assert (result.state, _sent) == ("unknown", ["ann"])
    assert place.call(sending("external_write"), {"to": "ann"}, id="c2").state == "awaiting_approval"
    record = place.thread.calls()[0]
    assert (record.effect, record.idempotent) == ("external_write", False)
    assert place.store.verify().ok


@pytest.mark.parametrize(("before", "idempotent"), HARMLESS)
def test_a_call_whose_tool_is_as_it_was_is_repeated(
    place: Place, before: Effect, *, idempotent: bool
) -> None:
    """A control: it is the new declaration that stops it."""
    tool = sending(before, idempotent=idempotent)
    place.cut_off(tool, {"to": "ann"}, id="c1", after=1)

    result = place.call(tool, {"to": "ann"}, id="c1")

    assert (result.state, _sent) == ("succeeded", ["ann", "ann"])


def test_a_lower_declaration_lowers_nothing(place: Place) -> None:
    """What was recorded as an external write stays one."""
    place.cut_off(sending("external_write"), {"to": "ann"}, id="c1", after=1)

    result = place.call(sending("none"), {"to": "ann"}, id="c1")

    assert (result.state, _sent) == ("unknown", ["ann"])


def test_a_call_that_waited_has_not_run_and_runs(store: Store) -> None:
    """A run that waited had nothing under way: what was approved meanwhile starts, as what it now is."""
    _sent.clear()
    script = Script(use("send", to="ann"), say("Done."))
    before = store.thread(
        "trip", agent=Agent("planner", backend=script, tools=[sending("read_only", ask=True)])
    )
    call = before.run("go").approvals[0].call
    before.decide(call, "approve")
    agent = Agent("planner", backend=script, tools=[sending("external_write", ask=True)])

    result = store.thread("trip", agent=agent).resume()

    assert (result.status, _sent) == ("succeeded", ["ann"])
    assert before.calls()[0].effect == "external_write"


def test_a_line_that_allows_no_more_than_reading_refuses_what_now_writes(store: Store) -> None:
    """The bound holds for what the tool says now, though the call was approved as something less."""
    _sent.clear()
    script = Script(use("send", to="ann"), say("Done."))
    store.thread("trip", agent="planner").fork("aside", effect_max="read_only")
    before = store.thread(
        "trip",
        agent=Agent("planner", backend=script, tools=[sending("read_only", ask=True)]),
        timeline="aside",
    )
    before.decide(before.run("go").approvals[0].call, "approve")
    agent = Agent("planner", backend=script, tools=[sending("external_write", ask=True)])

    store.thread("trip", agent=agent, timeline="aside").resume()

    assert ([call.state for call in before.calls()], _sent) == (["denied"], [])
