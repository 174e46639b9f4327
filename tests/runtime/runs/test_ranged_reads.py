"""What is asked of one line, or of the last few, is not answered by reading everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.engines.contract import Cell, CellWrite, Write
from perdure.engines.memory import MemoryEngine
from perdure.errors import Invalid
from perdure.ledger import decisions
from perdure.model.digest import Kind, digest_of
from perdure.model.run import RunRecord
from perdure.testing import Script, say, use
from tests.runtime.runs.injecting import Wire, opened

MANY = 80
FEW = 25  # cells; what is looked for, and some to find it


class Counting(Wire):
    """A wire that counts the cells that are read."""

    read = 0

    def cell(self, space: str, name: str) -> Cell | None:
        """One cell."""
        self.read += 1
        return self.inner.cell(space, name)

    def cells(self, space: str, **how: Any) -> Sequence[Cell]:
        """Several."""
        found = self.inner.cells(space, **how)
        self.read += len(found)
        return found

    def listed(self, **how: Any) -> Sequence[Cell]:
        """Those of all threads."""
        found = self.inner.listed(**how)
        self.read += len(found)
        return found


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay, if somebody agrees."""
    return f"paid {amount}"


def paying(*, turns: int = 1) -> Agent:
    """An agent that asks to pay, turn by turn."""
    items = [each for amount in range(turns) for each in (use("pay", amount=amount), say("Done."))]
    return Agent("planner", backend=Script(*items), tools=[pay])


@pytest.fixture
def wire() -> Counting:
    """The way to an empty engine."""
    return Counting(MemoryEngine())


@pytest.fixture
def store(wire: Counting) -> Iterator[Store]:
    """A store whose reading is counted."""
    with opened(wire, "memory:") as store:
        yield store


def paid(thread: Thread, times: int) -> None:
    """Let the agent pay so often, each time approved."""
    for turn in range(times):
        thread.decide(thread.run(f"pay {turn}").approvals[0].call, "approve")
        thread.resume()


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[Thread, Counting]]:
    """A thread with many runs behind it and one that waits, in a store where others wait too, and the way to its engine."""
    wire = Counting(MemoryEngine())
    with opened(wire, "memory:") as store:
        thread = store.thread("trip", agent=paying(turns=MANY + 1))
        paid(thread, MANY)
        thread.run("and once more")
        for number in range(MANY):
            store.thread(f"other-{number}", agent=paying()).run("pay")
        yield thread, wire


def test_what_waits_on_a_line_is_found_among_many(busy: tuple[Thread, Counting]) -> None:
    """Neither what was decided, nor runs that have ended, nor other threads are read."""
    thread, wire = busy
    wire.read = 0
    (ticket,) = thread.approvals()
    assert wire.read < FEW
    thread.decide(ticket.call, "approve")
    assert wire.read < 2 * FEW

    result = thread.resume()

    assert (result.status, wire.read < 4 * FEW) == ("succeeded", True)


def test_the_last_few_are_read_without_the_rest(busy: tuple[Thread, Counting]) -> None:
    """They are those that a whole reading ends with."""
    thread, _ = busy
    runs, calls = thread.runs(), thread.calls()

    last = thread.runs(limit=3), thread.calls(limit=3)

    assert last == (runs[-3:], calls[-3:])
    assert (len(runs), len(calls)) == (MANY + 1, MANY + 1)  # a control: there was more to read
    assert (thread.runs(limit=0), thread.calls(limit=0)) == ([], [])


def test_runs_are_read_back_from_one_of_them(busy: tuple[Thread, Counting]) -> None:
    """Page after page they are those that a whole reading has, and a page reads no others."""
    thread, wire = busy
    runs = thread.runs()
    middle = runs[len(runs) // 2]
    pages, before = list[RunRecord](), None
    while page := thread.runs(limit=3, before=before):
        pages, before = [*page, *pages], page[0].id
    wire.read = 0

    three = thread.runs(limit=3, before=middle.id)

    assert wire.read < FEW
    assert pages == runs
    assert three == runs[len(runs) // 2 - 3 : len(runs) // 2]
    assert thread.runs(before=middle.id) == runs[: len(runs) // 2]
    assert thread.runs(before=runs[0].id) == thread.runs(limit=5, before=runs[0].id) == []
    with pytest.raises(Invalid):
        thread.runs(before="")


def test_the_last_few_are_found_long_afterwards() -> None:
    """The clock went on for years; what came last is what is given, and the older half is not read."""
    now = [10**15]
    wire = Counting(MemoryEngine())
    with opened(wire, "memory:", clock=lambda: now[0]) as store:
        thread = store.thread("trip", agent=paying(turns=MANY))
        paid(thread, MANY // 2)
        now[0] += 10**14
        paid(thread, MANY // 2)
        now[0] += 10**12
        runs = thread.runs()
        wire.read = 0

        last = thread.runs(limit=3)

        assert last == runs[-3:]
        assert wire.read < MANY * 3 // 4


def test_ids_of_another_kind_are_listed_all_the_same() -> None:
    """A program may make its own: then all are read, and the last are given."""
    numbers = count(1)
    with opened(Counting(MemoryEngine()), "memory:", ids=lambda: f"id-{next(numbers):06d}") as store:
        thread = store.thread("trip", agent=paying(turns=9))
        paid(thread, 9)

        assert [each.id for each in thread.runs(limit=2)] == [each.id for each in thread.runs()[-2:]]
        assert thread.calls(limit=2) == thread.calls()[-2:]


@pytest.mark.parametrize("line", ["main", "1st", "main-2", "main/x", "mainx", "a"])
def test_what_waits_on_one_line_is_told_from_the_others(store: Store, line: str) -> None:
    """Whatever their names sort like: each ticket is decided where it was asked, the others see it as theirs to copy."""
    lines = ["1st", "a", "main-2", "main/x", "mainx"]
    thread = store.thread("trip", agent=paying(turns=9))
    for name in lines:
        thread.fork(name)
    for name in ("main", *lines):
        store.thread("trip", agent=paying(), timeline=name).run("pay")

    asked = store.thread("trip", timeline=line).approvals()

    assert [ticket.timeline for ticket in asked] == [line]
    assert len(store.approvals()) == len(lines) + 1


def test_every_open_ticket_is_closed_when_its_time_is_up(store: Store) -> None:
    """On whatever line it was asked."""
    thread = store.thread("trip", agent="planner")
    thread.fork("1st")
    thread.fork("a")

    @perdure.tool(effect="read_only")
    def ask(call: perdure.Call) -> str:
        call.suspend("May I?", expires_in=60)

    for name in ("main", "1st", "a"):
        store.thread("trip", timeline=name).call(ask, {}, id=f"call-{name}")
    space = thread._space  # pyright: ignore[reportPrivateUsage]

    closed = decisions.expire_due(space, now=space.clock() + 61_000_000)

    assert sorted(each.ticket.timeline for each in closed) == ["1st", "a", "main"]
    assert {call.state for call in thread.calls()} == {"expired"}
    assert store.verify().ok


@pytest.mark.parametrize("mark", ["asks/main:", "asked/main:"])
def test_a_mark_that_was_taken_away_is_found_by_verify(store: Store, wire: Counting, mark: str) -> None:
    """Without it nobody would find the ticket; the log knows better."""
    thread = store.thread("trip", agent=paying(turns=2))
    paid(thread, 1)
    thread.run("once more")
    assert store.verify().ok
    space = thread._space.name  # pyright: ignore[reportPrivateUsage]
    (cell,) = wire.cells(space, prefix=mark, limit=9)
    gone = CellWrite(name=cell.name, expected=cell.revision, value=None)

    wire.apply(Write(space=space, op_id="x", intent=digest_of(Kind.BODY, b"x"), cells=(gone,)))

    assert [cell.name in str(fault) for fault in store.verify().faults] == [True]
