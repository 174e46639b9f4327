"""An approval is accepted, and the process dies before it is applied: it is applied once after restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.model.ticket import Verdict
from tests.runtime.runs.approving import (
    VALUES,
    ask,
    decide,
    decide_and_die,
    die_while_deciding,
    go_on,
    resume_and_die,
)
from tests.runtime.runs.nursery import Died, Nursery, nursery
from tests.runtime.runs.world import World

COMES_TO: dict[Verdict, tuple[str, dict[str, int]]] = {
    "approve": ("succeeded", {"ann": 1}),
    "edit": ("succeeded", {"bob": 1}),
    "answer": ("succeeded", {}),
    "deny": ("denied", {}),
}
DURABLY_STARTED = ("after COMMIT, before the answer", "after_started", "after_effect", "while_recording")
WHILE_APPLYING = (
    "before BEGIN",
    "before COMMIT",
    *DURABLY_STARTED,
    "after_turn",
    "before_intent",
    "before_finish",
    "after_finish",
)


def begin(nest: Nursery, path: Path) -> str:
    """A store in which a letter waits for its approval."""
    store = str(path / "s.db")
    assert nest.lives(ask, store) == "waiting"
    return store


@pytest.mark.parametrize("verdict", VALUES)
def test_a_decision_survives_whoever_took_it(memory_path: Path, verdict: Verdict) -> None:
    """Acknowledged is durable: the next process applies it, once, and another one finds nothing to do."""
    with nursery() as nest:
        path = begin(nest, memory_path)
        nest.dies(decide_and_die, path, verdict)

        told = nest.lives(go_on, path, False)
        again = nest.lives(go_on, path, False)

    state, sent = COMES_TO[verdict]
    assert (told.status, told.calls[0].state, told.faults) == ("succeeded", state, [])
    assert World(f"{path}.world").counted() == sent
    assert again.talk == told.talk


@pytest.mark.parametrize("point", ["before COMMIT", "after COMMIT, before the answer"])
def test_a_decision_that_was_not_acknowledged_can_be_made_again(memory_path: Path, point: str) -> None:
    """Whether it became durable or not, saying it again leads to one letter."""
    with nursery() as nest:
        path = begin(nest, memory_path)
        nest.dies(die_while_deciding, path, "approve", point)

        assert nest.lives(decide, path, "approve") == "approved"
        told = nest.lives(go_on, path, False)

    assert told.status == "succeeded"
    assert World(f"{path}.world").counted() == {"ann": 1}


@pytest.mark.parametrize("point", WHILE_APPLYING)
@pytest.mark.parametrize("hook", [False, True])
def test_whoever_dies_while_applying_it_applies_it_no_more_than_once(
    memory_path: Path, point: str, hook: bool
) -> None:
    """The approval covers the attempts of its call; with a hook it is applied exactly once."""
    with nursery() as nest:
        path = begin(nest, memory_path)
        nest.lives(decide, path, "approve")
        nest.dies(resume_and_die, path, point)

        told = nest.lives(go_on, path, hook)

    sent = World(f"{path}.world").counted()["ann"]
    assert (told.status, told.faults, len(told.calls)) == ("succeeded", [], 1)
    assert sent <= 1
    if hook or point not in DURABLY_STARTED:
        assert (told.calls[0].state, sent) == ("succeeded", 1)
    else:
        assert told.calls[0].state == "unknown"


def test_whoever_simply_runs_it_again_applies_it_twice(memory_path: Path) -> None:
    """Control: an approval that is applied whenever its call is found open."""
    with nursery() as nest:
        path = begin(nest, memory_path)
        nest.lives(decide, path, "approve")
        assert isinstance(nest.child(resume_and_die, path, "after_effect"), Died)

        nest.lives(go_on, path, False, True)

    assert World(f"{path}.world").repeated() == ["ann"]
