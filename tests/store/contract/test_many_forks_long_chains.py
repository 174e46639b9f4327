"""100,000 forks, and a chain of 200,000 commits; some thousands of both unless the campaign is the long one.

Nothing recurses over a history.  A fork costs the same whatever is there already, and the
last 50 commits cost what 50 commits cost: counted in steps of the database and in calls of
the program, not in seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest

from perdure import Store, Thread
from perdure.engines.contract import Engine, Move
from perdure.engines.memory import MemoryEngine
from perdure.engines.sqlite import SqliteEngine
from perdure.history import writer
from perdure.history.tree import EMPTY
from perdure.history.writer import Proposal
from perdure.model.commit import Act
from perdure.store.plumbing.handles import StoreResources
from perdure.testing.engines.builders import write
from tests.crash import day
from tests.crash.campaign import DEEP, sized

COMMITS, FORKS = 200_000, 100_000
SOME_COMMITS, SOME_FORKS = (
    sized(6_000, COMMITS),
    sized(4_000, FORKS),
)  # where the full number adds only time
SMALL = 300
BATCH = 2_000


@dataclass
class Spent:
    """What some work took."""

    calls: int = 0  # of Python functions
    steps: int = 0  # of SQLite's virtual machine

    def exceeds(self, other: Spent, times: float) -> bool:
        """Whether this is more than so many times the other, and not by a trifle."""
        return self.calls > times * other.calls + 50 or self.steps > times * other.steps + 200


@contextmanager
def opened(kind: str, directory: Path) -> Generator[tuple[Store, Engine]]:
    """An empty store of either kind."""
    directory.mkdir(exist_ok=True)
    sqlite = kind == "sqlite"
    engine = SqliteEngine(directory / "store.db", durable=False) if sqlite else MemoryEngine()
    resources = StoreResources(engine=engine, clock=day.clock(), ids=day.ids())
    with Store(resources, kind, read_only=False) as store:
        yield store, engine


def chained(store: Store, commits: int) -> Thread:
    """A thread with so many commits, many in one write; each is an edit of its own."""
    thread = store.thread("trip-42", agent="planner")
    left, number = commits, 0
    while left:
        some = min(left, BATCH)
        proposals = [Proposal(reason=f"step {number + at}", root=EMPTY) for at in range(some)]
        writer.commit(thread._space, thread.head, *proposals, op_id=f"chain {left}")
        left, number = left - some, number + some
    return thread


def forked(thread: Thread, forks: int) -> None:
    """So many timelines at the thread's head, many in one write."""
    space, head = thread._space, thread.head
    assert head.commit is not None
    for first in range(0, forks, BATCH):
        names = [f"line-{number}" for number in range(first, min(first + BATCH, forks))]
        moves = [Move(act=Act.FORK, timeline=name, expected=None, to=head.commit) for name in names]
        space.engine.apply(write(f"forks {first}", *moves, space=space.name))


def spent(engine: Engine, work: Callable[[], object]) -> Spent:
    """What `work` takes, the second time: the first fills what is kept in memory."""
    work()
    found = Spent()

    def call(frame: FrameType, event: str, argument: object) -> None:
        found.calls += event == "call"

    def profile(traced: dict[str, Any]) -> None:
        found.steps += traced["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    connections = _connections(engine)
    for connection in connections:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
    sys.setprofile(call)
    try:
        work()
    finally:
        sys.setprofile(None)
        for connection in connections:
            connection.trace_v2(0, None)
    return found


def _connections(engine: Engine) -> list[Any]:
    if not isinstance(engine, SqliteEngine):
        return []
    return [engine._connections.writer, *engine._connections._idle]


KINDS = ["memory", "sqlite"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_50_commits_of_a_long_chain_cost_what_50_commits_cost(kind: str, tmp_path: Path) -> None:
    """Reading the end of the log, the last turns and the state there."""
    found: list[dict[str, Spent]] = []
    for commits in (SMALL, SOME_COMMITS):
        with opened(kind, tmp_path / str(commits)) as (store, engine):
            thread = chained(store, commits)

            assert [entry.reason for entry in thread.log(limit=50)] == [
                f"step {number}" for number in range(commits - 1, commits - 51, -1)
            ]
            found.append(
                {
                    "log": spent(engine, lambda thread=thread: thread.log(limit=50)),
                    "turns": spent(engine, lambda thread=thread: thread.turns(limit=50)),
                    "paths": spent(engine, lambda thread=thread: thread.paths()),
                }
            )

    small, large = found
    for what, cost in large.items():
        assert not cost.exceeds(small[what], 1.3), f"{what}: {cost} against {small[what]}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_far_commit_is_reached_in_a_logarithmic_number_of_steps(kind: str, tmp_path: Path) -> None:
    """The first commit of a long chain, by `HEAD~n` and by undoing everything; a message after many edits, by its number."""
    found: list[Spent] = []
    numbered: list[Spent] = []
    for commits in (SMALL, SOME_COMMITS):
        with opened(kind, tmp_path / str(commits)) as (store, engine):
            thread = chained(store, commits)
            first = thread.at(f"HEAD~{commits - 1}")

            assert [entry.reason for entry in first.log()] == ["step 0"]
            found.append(spent(engine, lambda t=thread, n=commits: t.at(f"HEAD~{n - 1}").digest))
            with thread.change("say") as change:
                change.say("user", "Hello.")
            said = thread.put("/after.json", 1)
            numbered.append(spent(engine, lambda t=thread: t.at("turn:1").digest))
            assert thread.at("turn:1").head.commit == said.commit
            assert thread.at("turn:1").log(limit=1)[0].reason == "say"
            assert thread.undo(commits + 2).commit is None

    assert not found[1].exceeds(found[0], 4), f"{found[1]} against {found[0]}"
    assert not numbered[1].exceeds(numbered[0], 8), f"{numbered[1]} against {numbered[0]}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_costs_the_same_whatever_is_there(kind: str, tmp_path: Path) -> None:
    """After many forks, and at the end of a long chain, one more takes what the first took."""
    found: list[Spent] = []
    for commits, forks in ((SMALL, 10), (SMALL, SOME_FORKS), (SOME_COMMITS // 4, 10)):
        with opened(kind, tmp_path / f"{commits} {forks}") as (store, engine):
            thread = chained(store, commits)
            forked(thread, forks)
            names = iter(["first", "second"])

            found.append(spent(engine, lambda thread=thread, names=names: thread.fork(next(names))))
            assert thread.on(f"line-{forks - 1}").head.commit == thread.head.commit
            assert thread.on("second").log(limit=1) == thread.log(limit=1)

    first, *others = found
    for other in others:
        assert not other.exceeds(first, 1.3), f"{other} against {first}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_fork_is_listed_and_can_be_written(kind: str, tmp_path: Path) -> None:
    """All of them, sorted, `main` first; the last takes a commit like any other."""
    with opened(kind, tmp_path) as (store, _):
        thread = chained(store, 3)
        forked(thread, SOME_FORKS)

        names = [hold.head.timeline for hold in thread.timelines()]
        assert names == ["main", *sorted(f"line-{number}" for number in range(SOME_FORKS))]
        head = thread.on(f"line-{SOME_FORKS - 1}").put("/a.json", 1)
        assert (head.version, thread.head.version) == (1, 1)


@pytest.mark.skipif(not DEEP, reason="verifying the whole chain takes long: make deep")
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_chain_verifies(kind: str, tmp_path: Path) -> None:
    """Nothing in the verification recurses over the history either."""
    with opened(kind, tmp_path) as (store, _):
        chained(store, COMMITS)

        report = store.verify()

        assert report.faults == ()
        assert report.checked["commit"] == COMMITS


def test_control_walking_the_whole_chain_is_found_dear(tmp_path: Path) -> None:
    """The same count for a reader that goes through everything: it grows with the chain."""
    found: list[Spent] = []
    for commits in (SMALL, 10 * SMALL):
        with opened("sqlite", tmp_path / str(commits)) as (store, engine):
            thread = chained(store, commits)
            found.append(spent(engine, lambda thread=thread: thread.log()))

    assert found[1].calls > 5 * found[0].calls
    assert found[1].steps > 5 * found[0].steps
