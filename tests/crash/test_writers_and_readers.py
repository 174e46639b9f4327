"""Two processes of eight threads each write and read for a while; an independent checker goes through it.

Nothing is lost, nothing is doubled, every reader sees a beginning of the final history, and
no process ever meets a locked database.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

import perdure
from perdure.engines.contract import CellOf, CellWrite
from perdure.engines.sqlite import SqliteEngine
from perdure.testing.engines.builders import SPACE, write
from tests.crash import jobs
from tests.crash.campaign import SEED, sized
from tests.crash.historian import Line, Seen, Wrote, faults
from tests.crash.jobs import Log
from tests.crash.processes import context, running

PROCESSES, THREADS = 2, 8
SECONDS = sized(1.5, 60.0)


def written(path: Path, seconds: float, how: str = "") -> list[Log]:
    """What each process says after it wrote and read for so long."""
    with perdure.open(path) as store, ExitStack() as stack:
        for id in ("hot", "side"):
            store.thread(id, agent="planner")
        others = [
            stack.enter_context(running(jobs.write_and_read, str(path), str(number), THREADS, seconds, how))
            for number in range(PROCESSES)
        ]
        return [other.answer() for other in others]


def line_of(path: Path) -> Line:
    """The final history: the chain of commits as stock SQLite reads it, the tokens as the store does."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        parents = dict(database.execute("SELECT hash, parent_hash FROM state_commits"))
        (at,) = database.execute(
            "SELECT head FROM timelines WHERE conversation_id = 'hot' AND timeline = 'main'"
        ).fetchone()
    commits: list[str] = []
    while at:
        commits.append(at)
        at = parents[at]
    with perdure.open(path, read_only=True) as store:
        view = store.thread("hot").at()
        tokens = [str(view.get(f"/tokens/{number}", default="")) for number in range(1, len(commits) + 1)]
    return Line(commits[::-1], tokens)


def test_nothing_is_lost_doubled_or_read_out_of_order(tmp_path: Path) -> None:
    """The checker finds no fault, no process met an error, and there was something to check."""
    path = tmp_path / "store.db"
    logs = written(path, SECONDS)
    line = line_of(path)

    assert faults((w for log in logs for w in log.wrote), (s for log in logs for s in log.seen), line) == []
    assert [error for log in logs for error in log.errors] == []
    assert sum(log.stale for log in logs) > 20
    assert all([len(log.wrote) > 20 and len(log.seen) > 20 for log in logs])
    assert len(line.commits) == sum(len(log.wrote) for log in logs)
    with perdure.open(path, read_only=True) as store:
        check_own_counts(store, logs)
        assert store.verify().faults == ()


def test_no_read_is_older_than_what_another_process_had_written_before(tmp_path: Path) -> None:
    """Threads of the reader's process take the lock and write elsewhere meanwhile.

    `tests/engines/sqlite/test_caches.py` has the two moments at which a read was once too old, one by one.
    """
    path, ended = tmp_path / "store.db", Event()
    written, times = context.Value("q", 0), sized(300, 20_000)
    cells = CellOf(SPACE, "a"), CellOf(SPACE, "b")
    faults: list[tuple[int, ...]] = []

    def write_elsewhere(engine: SqliteEngine) -> None:
        for number in count():
            if ended.is_set():
                return
            cell = CellWrite(name="c", expected=number, value=b"1")
            engine.apply(write(f"elsewhere {number}", cell, space="elsewhere"))

    def read(engine: SqliteEngine) -> None:
        while not ended.is_set():
            before = written.value
            found = [0 if cell is None else cell.revision for cell in engine.answers(cells)]
            if min(found) < before or found[0] != found[1]:
                faults.append((before, *found))

    with closing(SqliteEngine(path)) as engine:
        crowd = [Thread(target=work, args=[engine]) for work in (write_elsewhere, read, read)]
        with running(jobs.write_two_cells, str(path), times, written) as other:
            for each in crowd:
                each.start()
            answer = other.answer()
            ended.set()
        for each in crowd:
            each.join()

    assert (answer, written.value) == ("done", times)
    assert faults == []


def check_own_counts(store: perdure.Store, logs: list[Log]) -> None:
    """Each writer's own number counts exactly its acknowledged writes, however they were rebased."""
    side = store.thread("side")
    counted = {each.removeprefix("/own/"): side.get(each) for each in side.paths("/own/")}
    assert counted == {name: count for log in logs for name, count in log.added.items()}
    assert side.head.version == sum(counted.values())


def test_control_writers_who_ignore_stale_heads_are_found(tmp_path: Path) -> None:
    """The same run without the comparison of heads loses updates, and the checker says so."""
    path = tmp_path / "store.db"
    logs = written(path, 1.5, "blind")

    found = faults((w for log in logs for w in log.wrote), (), line_of(path))

    assert sum(fault.startswith("lost") for fault in found) > 10


def test_control_a_register_where_the_last_writer_wins_is_found() -> None:
    """Threads that read, think and write back to a dictionary overwrite each other, and the checker says so."""
    register: dict[str, list[str]] = {"line": []}
    wrote: list[Wrote] = []

    def count(name: str) -> None:
        chance = random.Random(f"{name} {SEED}")
        for turn in range(200):
            line = [*register["line"], f"{name}:{turn}"]
            if chance.random() < 0.3:
                _yield()
            register["line"] = line
            wrote.append(Wrote(len(line), line[-1], line[-1]))

    _run_all([lambda name=name: count(name) for name in "abcd"])
    line = Line(register["line"], register["line"])

    assert any([fault.startswith("lost") for fault in faults(wrote, (), line)])


def _yield() -> None:
    """Let another thread go first."""
    Thread(target=int).start()


def _run_all(works: list[Callable[[], None]]) -> None:
    threads = [Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


GOOD = Line(["c1", "c2", "c3"], ["a", "b", "c"])
WROTE = [Wrote(number + 1, commit, GOOD.tokens[number]) for number, commit in enumerate(GOOD.commits)]
LOOK = Seen("reader", 2, "c2", ("c2", "c1"), ((1, "a"), (3, None)))


def test_control_the_checker_accepts_what_is_right() -> None:
    """A run in which all is well has no faults."""
    assert faults(WROTE, [replace(LOOK, version=0, commit=None, last=(), tokens=()), LOOK, LOOK], GOOD) == []


@pytest.mark.parametrize(
    ("wrote", "seen", "line", "fault"),
    [
        (WROTE, [], Line(["c1", "c2"], ["a", "b"]), "lost"),
        ([*WROTE[:2], Wrote(3, "c3", "x")], [], GOOD, "lost"),
        (WROTE[:2], [], GOOD, "duplicate"),
        ([*WROTE, WROTE[0]], [], GOOD, "duplicate"),
        ([*WROTE[:2], Wrote(3, "c3", "a")], [], Line(GOOD.commits, ["a", "b", "a"]), "duplicate"),
        (WROTE, [replace(LOOK, commit="c3")], GOOD, "no prefix"),
        (WROTE, [replace(LOOK, version=9, commit="c9")], GOOD, "no prefix"),
        (WROTE, [replace(LOOK, last=("c2", "x"))], GOOD, "no prefix"),
        (WROTE, [replace(LOOK, tokens=((3, "c"),))], GOOD, "no prefix"),
        (WROTE, [replace(LOOK, tokens=((2, None),))], GOOD, "no prefix"),
        (WROTE, [LOOK, Seen("reader", 1, "c1", (), ())], GOOD, "no prefix"),
    ],
)
def test_control_the_checker_finds(wrote: list[Wrote], seen: list[Seen], line: Line, fault: str) -> None:
    """Each kind of fault, made by hand, is named."""
    assert {each.partition(":")[0] for each in faults(wrote, seen, line)} == {fault}
