"""A process is killed at every step of a switch: the thread is switched or it is not, never between.

By hand, and inside a run that goes over to the next backend of its route.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Agent, Route, Thread
from perdure.model.event import BackendSwitched, CheckpointCreated
from perdure.runtime import failpoints
from perdure.runtime.failpoints import Point
from perdure.testing import Script, fail, say, use
from tests.crash.campaign import SEED, sized
from tests.runtime.runs.nursery import Died, nursery
from tests.runtime.runs.world import World

A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"
THREAD = "trip-42"
POINTS: tuple[Point, ...] = (
    "switch_begun",
    "switch_settled",
    "switch_checkpointed",
    "switch_checked",
    "switch_written",
)
INSIDE: tuple[Point, ...] = ("switch_checkpointed", "switch_checked", "switch_written")
ROUNDS = sized(6, 400)


class Found(msgspec.Struct, frozen=True):
    """What a process finds that comes after."""

    backend: str | None
    switches: int
    checkpoints: int
    ok: bool  # the store is intact
    said: str  # of the next turn
    versions: int


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def begin(path: str) -> None:
    """A thread on A, with a turn."""
    with perdure.open(path) as store:
        store.thread(THREAD, agent=Agent("planner", backend=Script(say("Hello."), backend=A))).run("Hello")


def timed(path: str) -> float:
    """How long a switch takes here that nobody kills, in seconds."""
    begun = time.perf_counter()
    switch(path, None)
    return time.perf_counter() - begun


def switch(path: str, point: Point | None, after: float | None = None) -> str | None:
    """Switch the thread to B, and be killed at that point, or so many seconds after the beginning."""
    if after is not None:
        killer = threading.Timer(after, _kill)
        killer.daemon = True
        killer.start()
    with perdure.open(path) as store:
        thread = store.thread(THREAD, agent=Agent("planner", backend=Script(backend=A)))
        if point is not None:
            failpoints.arm(point, _kill)
        thread.switch(Script(backend=B), op_id="switch-1")
        return thread.backend


def reported(path: str) -> str:
    """All of the report that the switch to B gives, checkpoint included."""
    with perdure.open(path) as store:
        thread = store.thread(THREAD, agent=Agent("planner", backend=Script(backend=A)))
        return repr(thread.switch(Script(backend=B), op_id="switch-1", reason="B is cheaper"))


def look(path: str) -> Found:
    """What is there, and whether a turn can be taken by whoever has it now."""
    with perdure.open(path) as store:
        bare = store.thread(THREAD)
        events = [event for commit in bare.log() for event in commit.events]
        backend, version = bare.backend, bare.head.version
        agent = Agent("planner", backend=Script(say(f"I am {backend}."), backend=backend or ""))
        said = store.thread(THREAD, agent=agent).run("Who are you?").text
        return Found(
            backend=backend,
            switches=sum(isinstance(event, BackendSwitched) for event in events),
            checkpoints=sum(isinstance(event, CheckpointCreated) for event in events),
            ok=store.verify().ok,
            said=said,
            versions=version,
        )


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_step_it_is_switched_or_it_is_not(lasting_url: str, point: Point) -> None:
    """Before the write nothing of it is there; after it, all of it is."""
    with nursery() as nest:
        nest.lives(begin, lasting_url)

        nest.dies(switch, lasting_url, point)
        found = nest.lives(look, lasting_url)

    made = point == "switch_written"
    assert found == Found(
        backend=B if made else A,
        switches=int(made),
        checkpoints=int(made),
        ok=True,
        said=f"I am {B if made else A}.",
        versions=found.versions,
    )


@pytest.mark.parametrize("point", POINTS)
def test_repeated_after_a_kill_it_is_made_once(lasting_url: str, point: Point) -> None:
    """With the same op_id the next process finishes it, or finds it made."""
    with nursery() as nest:
        nest.lives(begin, lasting_url)
        nest.dies(switch, lasting_url, point)

        assert nest.lives(switch, lasting_url, None) == B
        found = nest.lives(look, lasting_url)

    assert (found.backend, found.switches, found.ok) == (B, 1, True)


def test_another_process_is_given_the_same_report(lasting_url: str) -> None:
    """The same op_id gives it whole: what was graded, lost and noted, the checkpoint and the commit."""
    with nursery() as nest:
        nest.lives(begin, lasting_url)

        first = nest.lives(reported, lasting_url)
        again = nest.lives(reported, lasting_url)

    assert again == first
    assert "checkpoint=Checkpoint(" in again


def test_killed_at_any_moment_it_is_never_between(lasting_url: str) -> None:
    """Also in the middle of the write: switches and checkpoints are there together, and the next turn agrees."""
    chance = random.Random(SEED)
    deaths, seen = 0, set[int]()
    with nursery() as nest:
        nest.lives(begin, lasting_url)
        usual = nest.lives(timed, lasting_url)
        for number in range(ROUNDS):
            each = f"{lasting_url}-{number}"  # another file, or another tenant
            nest.lives(begin, each)
            died = isinstance(nest.child(switch, each, None, chance.uniform(0.3, 1.2) * usual), Died)
            usual *= 1.1 if died else 0.7  # however busy the machine is, some die and some do not
            deaths += died
            found = nest.lives(look, each)
            seen.add(found.switches)
            assert found.ok
            assert found.switches == found.checkpoints
            assert found.backend == (B if found.switches else A)

    assert deaths > ROUNDS / 10


def test_in_two_writes_there_would_be_a_moment_between(lasting_url: str) -> None:
    """Control: a switch in two commits, killed between them, leaves a checkpoint without its switch."""
    with nursery() as nest:
        nest.lives(begin, lasting_url)

        nest.dies(_switch_in_two, lasting_url)
        found = nest.lives(look, lasting_url)

    assert (found.checkpoints, found.switches) == (1, 0)


def _switch_in_two(path: str) -> None:
    from perdure.history import reader, writer
    from perdure.history.writer import Proposal
    from perdure.switching.checkpoint.derive import derive
    from perdure.switching.commit import switched
    from perdure.switching.report import Report

    with perdure.open(path) as store:
        space = store.thread(THREAD)._space  # pyright: ignore[reportPrivateUsage]
        report = Report(thread=THREAD, timeline="main", from_backend=A, to_backend=B)
        head = reader.head_of(space, "main")
        holds = switched(report, derive(space, head.commit), space.ids)
        for event in holds.events:
            head = reader.head_of(space, "main")
            proposal = Proposal(
                reason="half", root=space.root_at(head.commit), events=(event,), objects=holds.objects
            )
            writer.commit(space, head, proposal, op_id=space.ids())
            _kill()


def pay(path: str, outside: str, point: Point | None) -> str:
    """A run that pays on A, which then fails, and goes over to B; killed at that point, or resumed."""
    world = World(outside)

    @perdure.tool(effect="financial")
    def transfer(to: str) -> str:
        """Pay somebody."""
        world.do(to, "key")
        return f"paid {to}"

    primary = Script(use("transfer", to="ann"), fail(), backend=A)
    spare = Script(say("Ann has her rent."), backend=B)
    agent = Agent("payer", backend=primary, tools=[transfer], route=Route([spare]))
    with perdure.open(path) as store:
        thread: Thread = store.thread(THREAD, agent=agent)
        if point is not None:
            failpoints.arm(point, _kill)
            return thread.run("Pay Ann").text
        return thread.resume().text


def recorded(path: str) -> tuple[str | None, int]:
    """The backend that the run's record names, and how often its line was switched."""
    with perdure.open(path) as store:
        thread = store.thread(THREAD)
        return thread.runs()[0].backend, len(thread.switches())


@pytest.mark.parametrize(("point", "backend"), [("switch_checked", A), ("switch_written", B)])
def test_a_run_killed_while_it_goes_over_is_on_record_where_its_history_is(
    lasting_url: str, tmp_path: Path, point: Point, backend: str
) -> None:
    """The record is part of the write that switches: before it the one, after it the other."""
    outside = str(tmp_path / "world")
    with nursery() as nest:
        nest.dies(pay, lasting_url, outside, point)

        found = nest.lives(recorded, lasting_url)

    assert found == (backend, int(backend == B))


@pytest.mark.parametrize("point", INSIDE)
def test_a_run_killed_while_it_goes_over_is_finished_and_pays_once(
    lasting_url: str, tmp_path: Path, point: Point
) -> None:
    """Whoever resumes it goes on where it stood, on the backend that the history names."""
    outside = str(tmp_path / "world")
    with nursery() as nest:
        nest.dies(pay, lasting_url, outside, point)

        text = nest.lives(pay, lasting_url, outside, None)

    assert text == "Ann has her rent."
    assert World(outside).counted() == {"ann": 1}
