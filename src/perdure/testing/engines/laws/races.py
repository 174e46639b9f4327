"""The laws of races: threads that write at once queue up, and each is told the truth about its own write."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import TypeVar

from perdure.engines.contract import CellWrite, Engine, Receipt, Write
from perdure.errors import Conflict, Sealed, StaleHead
from perdure.model.commit import Act
from perdure.model.head import Head
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import SPACE, START, Made, Pen, made, moved, value, write

__all__ = ["RaceLaws"]

_Answer = TypeVar("_Answer")

THREADS = 8
ROUNDS = 12


def at_once(work: Callable[[int], _Answer], threads: int = THREADS) -> list[_Answer]:
    """What `work` gives for 0, 1, 2 …, each in a thread of its own, all let go together."""
    barrier = Barrier(threads)

    def started(number: int) -> _Answer:
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(started, range(threads)))


def answered(engine: Engine, wanted: Write) -> Receipt | StaleHead:
    """The receipt of a write, or the refusal because its head is stale."""
    try:
        return engine.apply(wanted)
    except StaleHead as refused:
        return refused


class RaceLaws(Ground):
    """What `apply` promises to threads of one process."""

    def test_of_many_writers_with_one_head_exactly_one_wins(self, engine: Engine) -> None:
        """The others are told where the winner left the head, and leave nothing behind."""
        read = START
        for turn in range(ROUNDS):
            # Commits without parents, so that no writer needs to know what the others made.
            news = [made(f"turn {turn} of writer {number}") for number in range(THREADS)]
            writes = [write(f"{turn} {n}", new, moved(read, new)) for n, new in enumerate(news)]

            answers = at_once(lambda number, writes=writes: answered(engine, writes[number]))

            won = [answer for answer in answers if isinstance(answer, Receipt)]
            lost = [answer for answer in answers if isinstance(answer, StaleHead)]
            assert (len(won), len(lost)) == (1, THREADS - 1)
            head = won[0].heads[0]
            assert head.version == turn + 1
            assert {(refused.expected, refused.actual) for refused in lost} == {(read, head)}
            read = head
        assert len(engine.commits(SPACE, "", limit=999)) == ROUNDS

    def test_writers_who_read_again_all_get_through(self, engine: Engine) -> None:
        """Every acknowledged commit stands in the history exactly once, in the order of versions."""

        def persist(number: int) -> list[Head]:
            return [self._insist(engine, f"{number} {turn}") for turn in range(ROUNDS)]

        heads = [head for each in at_once(persist) for head in each]

        by_version = sorted(heads, key=lambda head: head.version)
        assert [head.version for head in by_version] == list(range(1, THREADS * ROUNDS + 1))
        last = by_version[-1].commit
        assert last is not None
        line = [step.digest for step in engine.steps(SPACE, last, limit=999)]
        assert line == [head.commit for head in reversed(by_version)]

    def _insist(self, engine: Engine, text: str) -> Head:
        """Commit on whatever the head is, reading it again until nobody is in between."""
        while True:
            hold = engine.hold(SPACE, "main")
            assert hold is not None
            at = hold.head.commit
            steps = engine.steps(SPACE, at, limit=1) if at is not None else ()
            tip = Made(steps[0].digest, steps[0].commit, steps[0].changeset, ()) if steps else None
            new = made(text, tip)
            try:
                return engine.apply(
                    write(f"{text} on {hold.head.version}", new, moved(hold.head, new))
                ).heads[0]
            except StaleHead:
                continue

    def test_writers_on_their_own_timelines_do_not_disturb_each_other(self, engine: Engine) -> None:
        """Nobody is refused who wrote where nobody else did."""
        pens = [Pen(engine).fork(f"line-{number}") for number in range(THREADS)]

        def go_on(number: int) -> Head:
            for turn in range(ROUNDS):
                pens[number].commit(f"{number} {turn}")
            return pens[number].head

        heads = at_once(go_on)

        assert [head.version for head in heads] == [ROUNDS] * THREADS
        assert [hold.head for hold in engine.holds(SPACE, limit=99)] == heads

    def test_writers_in_their_own_spaces_do_not_disturb_each_other(self, engine: Engine) -> None:
        """The first write of a space is as safe as any other."""

        def go_on(number: int) -> list[int]:
            pen = Pen(engine, space=f"space-{number}")
            return [pen.commit(f"{number} {turn}").commit.depth for turn in range(ROUNDS)]

        assert at_once(go_on) == [list(range(ROUNDS))] * THREADS
        assert len(engine.spaces(limit=99)) == THREADS

    def test_one_write_from_many_threads_is_made_once(self, engine: Engine) -> None:
        """All who repeat an op_id get the one receipt."""
        first = made("milk")
        same = write("op", first, moved(START, first), CellWrite(name="a", expected=0, value=b"1"), b"{}")

        receipts = at_once(lambda _: engine.apply(same))

        assert receipts == [receipts[0]] * THREADS
        assert len(engine.entries(SPACE, limit=99)) == 1
        assert len(engine.moves(SPACE, "main", limit=99)) == 1

    def test_a_counter_in_a_cell_loses_no_increment(self, engine: Engine) -> None:
        """Compare-and-set from many threads adds up."""

        def count(number: int) -> int:
            done = 0
            while done < ROUNDS:
                cell = engine.cell(SPACE, "counter")
                revision, total = (cell.revision, int(cell.value or b"0")) if cell else (0, 0)
                time.sleep(0.0002)  # so that others come in between
                wanted = CellWrite(name="counter", expected=revision, value=b"%d" % (total + 1))
                try:
                    engine.apply(write(f"{number} {done} {revision}", wanted))
                except Conflict:
                    continue
                done += 1
            return done

        total = sum(at_once(count))

        cell = engine.cell(SPACE, "counter")
        assert cell is not None
        assert (cell.revision, cell.value) == (total, b"%d" % total)

    def test_entries_from_many_threads_leave_no_gap(self, engine: Engine) -> None:
        """Each write's entries stand together, at the position its receipt says."""

        def log(number: int) -> list[Receipt]:
            bodies = [
                (b'"%d %d a"' % (number, turn), b'"%d %d b"' % (number, turn)) for turn in range(ROUNDS)
            ]
            return [engine.apply(write(f"{number} {turn}", *pair)) for turn, pair in enumerate(bodies)]

        receipts = at_once(log)

        entries = engine.entries(SPACE, limit=999)
        assert [entry.position for entry in entries] == list(range(1, 2 * THREADS * ROUNDS + 1))
        for number, mine in enumerate(receipts):
            for turn, receipt in enumerate(mine):
                last = entries[receipt.position - 1]
                assert (last.chain, last.body) == (receipt.chain, b'"%d %d b"' % (number, turn))
                assert entries[receipt.position - 2].body == b'"%d %d a"' % (number, turn)

    def test_a_refusal_in_a_crowd_refuses_nobody_else(self, engine: Engine) -> None:
        """Good and bad writes that are committed together are each judged alone."""
        pen = Pen(engine)
        pen.commit("milk")
        pen.engine.apply(write("seal", moved(pen.fork("sealed").head, None, act=Act.SEAL, seal=True)))
        sealed = Head("sealed", 1, None)

        def mixed(number: int) -> list[str]:
            answers: list[str] = []
            for turn in range(ROUNDS):
                bad = moved(sealed, None) if number % 4 == 1 else moved(START, None)
                parts = (bad,) if number % 2 else ()
                try:
                    engine.apply(write(f"{number} {turn}", value(f"{number} {turn}"), *parts))
                    answers.append("made")
                except (Sealed, StaleHead) as refused:
                    answers.append(type(refused).__name__)
            return answers

        answers = at_once(mixed)

        expected = ["made", "Sealed", "made", "StaleHead"] * 2
        assert answers == [[answer] * ROUNDS for answer in expected]
        digests = [value(f"{number} {turn}").digest for number in range(THREADS) for turn in range(ROUNDS)]
        assert len(engine.missing(SPACE, digests)) == THREADS * ROUNDS // 2

    def test_a_reader_never_sees_half_a_write(self, engine: Engine) -> None:
        """While others write, whatever head is read can be read whole, and versions never fall."""
        stop, pen = Event(), Pen(engine)

        def look(number: int) -> list[int]:
            versions: list[int] = []
            if number == 0:
                for turn in range(8 * ROUNDS):
                    pen.commit(f"item {turn}", messages=[f"m-{turn}"])
                stop.set()
            while not stop.is_set():
                hold = engine.hold(SPACE, "main")
                assert hold is not None
                versions.append(hold.head.version)
                if hold.head.commit is not None:
                    steps = engine.steps(SPACE, hold.head.commit, limit=3)
                    assert steps[0].place.depth == hold.head.version - 1
                    engine.objects(SPACE, [step.commit.changeset for step in steps])
            return versions

        seen = at_once(look, threads=4)

        assert all([versions == sorted(versions) for versions in seen])
