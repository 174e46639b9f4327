"""Random histories, copied from SQLite to memory and back: all three stores are equal, and go on equally."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Store, Thread
from perdure.errors import PerdureError
from tests.crash import day
from tests.crash.campaign import sized
from tests.store.copies import engine_of, equal

Act: TypeAlias = Callable[[Store, str, int], object]

THREADS, LINES = ("trip", "house"), ("main", "one", "two")

_names = count()


def _thread(store: Store, line: str) -> Thread:
    return store.thread("house") if line == "two" else store.thread("trip", timeline=line)


def _change(store: Store, line: str, number: int) -> None:
    with _thread(store, line).change("several") as change:
        change.say("user", f"number {number}")
        change.put(f"/notes/{number}.json", "x" * number * 700)
        change.agent.put("/seen.json", number)


def _forget(store: Store, line: str, number: int) -> None:
    engine, thread = engine_of(store), _thread(store, line)
    space = thread._record.space
    entry = thread.entry(f"/a/{number}")
    engine.forget(space, [entry.value], why="asked", standing=engine.standing(space))


def _remove(store: Store, line: str, number: int) -> None:
    gone = store.thread(f"draft-{number}", agent="planner")
    gone.put("/x.json", number)
    space = gone._record.space
    gone.rm()
    if number % 2:
        engine_of(store).drop(space, why="the thread was removed")


ACTS: dict[str, Act] = {
    "put": lambda store, line, number: _thread(store, line).put(f"/a/{number}", {"value": number}),
    "same": lambda store, line, number: _thread(store, line).put("/same.json", 0),
    "named": lambda store, line, number: _thread(store, line).put("/b", number, op_id=f"op-{number}"),
    "delete": lambda store, line, number: _thread(store, line).delete(f"/a/{number}"),
    "change": _change,
    "fork": lambda store, line, number: store.thread("trip").fork(f"other-{number}"),
    "undo": lambda store, line, number: _thread(store, line).undo(),
    "redo": lambda store, line, number: _thread(store, line).redo(),
    "merge": lambda store, line, number: store.thread("trip").merge("one"),
    "promote": lambda store, line, number: store.thread("trip").promote("one"),
    "seal": lambda store, line, number: _thread(store, "one").seal(),
    "artifact": lambda store, line, number: _thread(store, line).artifacts.put(b"\0\xff" * number * 9_000),
    "memory": lambda store, line, number: store.memory("ann").add(f"likes {number}"),
    "forget": _forget,
    "remove": _remove,
}

histories = st.lists(
    st.tuples(st.sampled_from(sorted(ACTS)), st.sampled_from(LINES), st.integers(1, 3)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=sized(6, 300), deadline=None)
@given(history=histories)
def test_a_copy_of_a_copy_equals_the_original(history: list[tuple[str, str, int]]) -> None:
    """Whatever was done; then the same change makes the same head in each of them."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as directory:
        path = Path(directory)
        store = perdure.open(path / "a.db", clock=day.clock(), ids=day.ids(), durability="process_crash")
        middle = perdure.open(f"memory:property-{next(_names)}", clock=day.clock(), ids=day.ids("other"))
        with store, middle:
            for id in THREADS:
                thread = store.thread(id, agent="planner", owner="ann")
                for number in range(1, 4):
                    thread.put(f"/a/{number}", {"value": number, "thread": id})
            store.thread("trip").fork("one")
            for name, line, number in history:
                with suppress(PerdureError):
                    ACTS[name](store, line, number)

            there = store.copy_to(middle)
            back = middle.copy_to(path / "b.db")

            assert there.verified is not None
            assert back.verified is not None
            assert there.verified.ok
            assert back.verified.ok
            with perdure.open(path / "b.db", clock=day.clock(), ids=day.ids("third")) as last:
                assert equal(engine_of(store), engine_of(middle))
                assert equal(engine_of(store), engine_of(last))
                heads = {
                    each.thread("trip").put("/next.json", 1, op_id="next").version
                    for each in (store, middle, last)
                }
                assert len(heads) == 1
                assert last.verify().ok


def test_control_a_store_with_one_more_write_is_not_equal(tmp_path: Path) -> None:
    """The comparison sees a single cell, or a single commit."""
    with perdure.open(tmp_path / "a.db") as store, perdure.open("memory:") as middle:
        store.thread("trip", agent="planner").put("/a.json", 1)
        store.copy_to(middle)
        assert equal(engine_of(store), engine_of(middle))

        middle.thread("fresh", agent="planner")

        assert not equal(engine_of(store), engine_of(middle))
