"""One write of a group is refused because of another, and the group's COMMIT fails.

The refusal would name a head that never existed.  So refusals, like receipts, go out only
after the COMMIT; if that fails, everybody is told that nothing was written, behind a
barrier, or that it is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.engines.contract import CellWrite, Engine, Receipt, Write
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit.group import QueuedWrite, WriteGroup
from perdure.errors import Conflict, Corrupt, InDoubt, Moved, OpReused, PerdureError, StaleHead, Unavailable
from perdure.model.digest import Kind, Object
from perdure.testing.disk import Disk, DiskCall
from perdure.testing.engines.builders import SPACE, START, made, moved, value, write
from tests.crash.campaign import SEED
from tests.crash.on_disk import engine_on
from tests.crash.spying import Crowd

SYNC = frozenset({DiskCall.SYNC})
MILK, EGGS = made("milk"), made("eggs")
LEADER = write("leader", value("leader"), space="elsewhere")

Answer = Receipt | PerdureError

# Each: a write that becomes true, and one that is refused because of it.
REFUSED: dict[str, tuple[Write, Write]] = {
    "stale head": (write("a", MILK, moved(START, MILK)), write("b", EGGS, moved(START, EGGS))),
    "cell taken": (
        write("a", CellWrite(name="seat", expected=0, value=b"ann")),
        write("b", CellWrite(name="seat", expected=0, value=b"bob")),
    ),
    "op_id reused": (write("a", value("one")), write("a", value("two"), intent="another")),
}


@pytest.fixture
def disk() -> Disk:
    """A disk whose next syncs can be made to fail."""
    return Disk(seed=SEED)


@pytest.fixture
def engine(disk: Disk, lock: Path) -> Iterator[SqliteEngine]:
    """A store on that disk."""
    with engine_on(disk, lock) as engine:
        yield engine
        disk.kill()


@pytest.fixture(params=REFUSED)
def pair(request: pytest.FixtureRequest) -> tuple[Write, Write]:
    """A write, and another that is refused because of it."""
    return REFUSED[request.param]


def grouped(
    engine: SqliteEngine, disk: Disk, monkeypatch: pytest.MonkeyPatch, *writes: Write, failing: int | None
) -> list[Answer]:
    """What the writes of one group are told, if `failing` syncs fail from its COMMIT on (None: all)."""

    def fail() -> None:
        disk.fail(at=disk.calls, calls=SYNC, times=failing)

    crowd = Crowd(engine, monkeypatch, then=fail)
    for wanted in (LEADER, *writes):
        crowd.come(wanted)
    return crowd.answers()[1:]


def lies(answers: list[Answer], engine: Engine) -> list[str]:
    """Refusals that rest on what the store does not have."""
    hold = engine.hold(SPACE, "main")
    assert hold is not None
    stale = [answer for answer in answers if isinstance(answer, StaleHead) and answer.actual != hold.head]
    taken = [answer for answer in answers if isinstance(answer, Moved) and engine.cell(SPACE, "seat") is None]
    reused = [
        answer for answer in answers if isinstance(answer, OpReused) and not engine.recorded(SPACE, "a")
    ]
    return [str(answer) for answer in (*stale, *taken, *reused)]


def test_a_refusal_is_told_when_the_group_is_durable(
    engine: SqliteEngine, disk: Disk, monkeypatch: pytest.MonkeyPatch, pair: tuple[Write, Write]
) -> None:
    """The first gets its receipt, the second the reason, and the reason is true."""
    first, second = grouped(engine, disk, monkeypatch, *pair, failing=0)

    assert isinstance(first, Receipt)
    assert isinstance(second, Conflict)
    assert lies([first, second], engine) == []


def test_if_the_commit_fails_no_write_is_refused_because_of_the_other(
    engine: SqliteEngine, disk: Disk, monkeypatch: pytest.MonkeyPatch, pair: tuple[Write, Write]
) -> None:
    """Behind the barrier both are told that nothing was written, which is so."""
    answers = grouped(engine, disk, monkeypatch, *pair, failing=1)

    assert [type(answer) for answer in answers] == [Unavailable, Unavailable]
    assert all(["nothing was written" in str(answer) for answer in answers])
    assert [engine.recorded(SPACE, wanted.op_id) for wanted in pair] == [None, None]


def test_it_is_so_for_the_next_process(
    engine: SqliteEngine, disk: Disk, lock: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[Write, Write]
) -> None:
    """After a kill both are still absent; then the first becomes true and the second is refused in earnest."""
    grouped(engine, disk, monkeypatch, *pair, failing=1)
    disk.kill()

    with engine_on(disk, lock) as reopened:
        assert [reopened.recorded(SPACE, wanted.op_id) for wanted in pair] == [None, None]
        receipt = reopened.apply(pair[0])
        with pytest.raises(Conflict) as refused:
            reopened.apply(pair[1])
        assert lies([receipt, refused.value], reopened) == []


def test_if_the_barrier_fails_too_both_are_in_doubt(
    engine: SqliteEngine, disk: Disk, monkeypatch: pytest.MonkeyPatch, pair: tuple[Write, Write]
) -> None:
    """Neither is told that it is true, refused or absent, and each is told its own op_id."""
    answers = grouped(engine, disk, monkeypatch, *pair, failing=None)

    assert [type(answer) for answer in answers] == [InDoubt, InDoubt]
    assert [answer.op_id for answer in answers if isinstance(answer, InDoubt)] == [
        wanted.op_id for wanted in pair
    ]


def test_what_was_in_doubt_is_settled_after_reopening(
    engine: SqliteEngine, disk: Disk, lock: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[Write, Write]
) -> None:
    """Repeating both makes the first true once and refuses the second."""
    grouped(engine, disk, monkeypatch, *pair, failing=None)
    disk.kill()
    disk.heal()

    with engine_on(disk, lock) as reopened:
        receipt = reopened.apply(pair[0])
        with pytest.raises(Conflict) as refused:
            reopened.apply(pair[1])
        assert reopened.apply(pair[0]) == receipt
        assert lies([receipt, refused.value], reopened) == []


@pytest.mark.parametrize("failing", [1, 2, None])
def test_a_whole_crowd_is_told_nothing_that_is_not_so(
    engine: SqliteEngine, disk: Disk, lock: Path, monkeypatch: pytest.MonkeyPatch, failing: int | None
) -> None:
    """Eight writers on one head and one cell: whatever they are told holds after a kill."""
    heads = [made(f"writer {number}") for number in range(6)]
    crowd = [write(f"head {n}", each, moved(START, each)) for n, each in enumerate(heads)]
    crowd += REFUSED["cell taken"]
    answers = grouped(engine, disk, monkeypatch, *crowd, failing=failing)
    disk.kill()
    disk.heal()

    with engine_on(disk, lock) as reopened:
        absent = [
            wanted.op_id
            for wanted, answer in zip(crowd, answers, strict=True)
            if isinstance(answer, PerdureError) and not isinstance(answer, InDoubt)
        ]
        assert not any([reopened.recorded(SPACE, op_id) for op_id in absent])
        assert lies(answers, reopened) == []


def test_control_refusals_that_do_not_wait_for_the_commit_are_lies(
    engine: SqliteEngine, disk: Disk, lock: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[Write, Write]
) -> None:
    """A group that sends refusals out first tells of a head, a cell or a write that never existed."""
    settle = WriteGroup._settle

    def hasty(self: WriteGroup, ticket: QueuedWrite, error: BaseException) -> None:
        if not isinstance(ticket.error, Conflict):
            settle(self, ticket, error)

    monkeypatch.setattr(WriteGroup, "_settle", hasty)
    answers = grouped(engine, disk, monkeypatch, *pair, failing=1)
    disk.kill()

    with engine_on(disk, lock) as reopened:
        assert len(lies(answers, reopened)) == 1


def test_a_write_that_fails_in_the_middle_takes_no_other_along(
    engine: SqliteEngine, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has begun to change things, so the others of its group are applied again without it."""
    engine.apply(write("true", value("milk")))
    forged = Object(Kind.VALUE, value("milk").digest, b"eggs")
    seats = [
        write(f"seat {at}", CellWrite(name="seat", expected=expected, value=b"1"))
        for at, expected in enumerate((0, 0, 1))
    ]

    first, refused, spoilt, last = grouped(
        engine, disk, monkeypatch, *seats[:2], write("bad", forged, b"{}"), seats[2], failing=0
    )

    assert isinstance(spoilt, Corrupt)
    assert isinstance(refused, Moved)
    assert isinstance(first, Receipt)
    assert isinstance(last, Receipt)
    assert (engine.recorded(SPACE, "bad"), engine.entries(SPACE, limit=1)) == (None, [])
    assert (first.revisions, last.revisions) == ((1,), (2,))
