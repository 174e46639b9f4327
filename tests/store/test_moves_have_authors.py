"""Who moved a head, and when: the record of the move says it, and not the commit that it led to."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Store, Thread
from perdure.errors import Invalid
from perdure.model.commit import Act, MoveRecord, decode_move, encode_move
from tests.engines.postgres.stores import new_store
from tests.selection import engines


class Ticks:
    """A clock that is a second later at each reading."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now


@pytest.fixture
def clock() -> Ticks:
    """The clock of the store."""
    return Ticks()


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Ticks) -> Generator[Store]:
    """An empty store on each engine."""
    url = {"memory:": lambda: "memory:", "file": lambda: str(tmp_path / "store.db")}
    with perdure.open(url.get(request.param, lambda: new_store(request))(), clock=clock) as opened:
        yield opened


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread with two commits on main, and one on the fork `idea`."""
    thread = store.thread("t", agent="planner")
    thread.put("/a.json", 1)
    thread.put("/a.json", 2)
    thread.fork("idea").put("/a.json", 3)
    return thread


ACTS: dict[Act, Callable[[Thread], object]] = {
    Act.UNDO: lambda thread: thread.undo(author="ann"),
    Act.REDO: lambda thread: (thread.undo(), thread.redo(author="ann")),
    Act.PROMOTE: lambda thread: thread.promote("idea", author="ann"),
    Act.KEEP: lambda thread: thread.promote("idea", author="ann"),
    Act.FORK: lambda thread: thread.fork("new", at="HEAD~1", author="ann"),
    Act.SEAL: lambda thread: thread.drop("idea", author="ann"),
}
LINES = {Act.KEEP: "main.v2", Act.FORK: "new", Act.SEAL: "idea"}


@pytest.mark.parametrize("act", ACTS)
def test_a_move_says_who_made_it_and_when(store: Store, thread: Thread, clock: Ticks, act: Act) -> None:
    """Its time is that of the move; the commit that it leads to, the control, is older.  The store verifies."""
    before = clock.now

    ACTS[act](thread)

    line = thread.on(LINES.get(act, "main"))
    (last,) = line.moves(limit=1)
    assert last.at is not None
    assert (last.act, last.author, before < last.at <= clock.now) == (act, "ann", True)
    assert line.log(limit=1)[0].at <= before  # control
    assert store.verify().ok


def test_a_commit_has_its_time_and_author_itself(thread: Thread) -> None:
    """So its move has neither; without an author a move has a time alone."""
    thread.undo()

    assert [(each.act, each.at is None, each.author) for each in thread.moves()] == [
        (Act.UNDO, False, None),
        (Act.COMMIT, True, None),
        (Act.COMMIT, True, None),
    ]


def test_a_move_that_is_repeated_has_its_first_author(thread: Thread) -> None:
    """With an op_id the undo was made once, and the record of who made it stays."""
    first = thread.undo(op_id="once", author="ann")
    again = thread.undo(op_id="once", author="bob")

    assert (first, [each.author for each in thread.moves(limit=1)]) == (again, ["ann"])


def test_a_copy_has_the_authors_of_moves(store: Store, thread: Thread, tmp_path: Path) -> None:
    """Their digests, too, or the chain of moves of the copy would not be that of its source."""
    thread.undo(author="ann")
    target = tmp_path / "copied.db"

    store.copy_to(str(target))

    with perdure.open(target) as copied:
        assert copied.thread("t").moves() == thread.moves()


def test_an_author_is_a_name_on_one_line(thread: Thread) -> None:
    """A text with a line break is refused, and nothing is moved."""
    head = thread.head
    with pytest.raises(Invalid):
        thread.undo(author="ann\nbob")

    assert thread.head == head


def test_moves_of_older_stores_keep_their_digests() -> None:
    """A record without time and author has the bytes that it had before there were any; control: with one it has others."""
    old = b'{"act":"undo","op_id":"u","previous":"%b","timeline":"main","version":3}' % (b"ab" * 32)

    read = decode_move(old)

    assert isinstance(read, MoveRecord)
    assert (read.at, read.author, encode_move(read)) == (None, None, old)
    assert encode_move(msgspec.structs.replace(read, author="ann")) != old  # control
