"""Faults, interrupts, decisions, undos and visitors in any order: every run ends, and nothing is sent twice."""

from __future__ import annotations

import os

import pytest

from perdure import Agent, errors
from perdure.model.context import Context
from perdure.model.run import ENDED
from perdure.testing import Script, say
from perdure.testing.script import ScriptStep
from tests.runtime.runs.adversity import Adversity, check_well_formed

SEEDS = 400 if os.environ.get("PERDURE_DEEP") else 10
OPEN = ("awaiting_approval", "approved")


def fine(context: Context) -> ScriptStep:
    """Say so, if what is shown is in order."""
    check_well_formed(context)
    return say("Fine.")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_every_run_ends_and_nothing_is_sent_twice(store_url: str, seed: int) -> None:
    """The conversation stays well-formed, the store verifies, nothing is left aside, and the next run works."""
    world = Adversity(store_url, seed)
    with world.store:
        for turn in range(6):
            world.act(turn)
        world.settle()

        model = Script(*[fine] * 9, backend=Adversity.backend)
        last = world.store.thread("trip", agent=Agent("planner", backend=model))
        assert last.run("And now?").text == "Fine."

        assert all(run.state in ENDED for run in last.runs())
        assert max(world.sent.values(), default=0) <= 1
        assert world.store.verify().ok
        aside = [path for path in last.paths("/") if path.startswith("/__tool_call_scope")]
        assert not aside or any(call.state in OPEN for call in last.calls())


def test_the_campaign_meets_faults(store_url: str) -> None:
    """A control: in a world like this runs do fail and are cut off."""
    world = Adversity(store_url, 3)
    seen: set[str] = set()
    with world.store:
        for turn in range(40):
            world.act(turn)
            with_runs = [run.state for run in world.thread.runs()] if _readable(world) else []
            seen |= {*with_runs}

    assert {"failed", "succeeded", "running"} <= seen


def _readable(world: Adversity) -> bool:
    world.injecting.wire.disarm()
    try:
        world.thread.runs()
    except errors.PerdureError:
        return False
    return True
