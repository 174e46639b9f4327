"""The laws of a store's life: opened, closed, opened again, copied.

The laws of races: threads that write at once queue up, and each gets the true outcome of its own write.

The laws of processes: two of them on one store are as safe as two threads, and one that is killed loses nothing.

The laws of presence: a clock that only goes forward, and names that are gone when their process is, and not before.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier, Event
from typing import TypeVar

import pytest

from perdure.engines.contract import CellWrite, Engine, HeadOf, Receipt, Write
from perdure.errors import Conflict, Forgotten, Sealed, StaleHead, Unavailable, Unsupported
from perdure.model.commit import Act
from perdure.model.head import Head
from perdure.testing.engines.builders import SPACE, START, Made, Pen, made, moved, portrait, value, write
from perdure.testing.engines.child import WRITERS, ChildReply, child, turn_of
from perdure.testing.engines.subject import EngineSubject, raises

__all__ = ["LifeLaws", "RaceLaws", "ProcessLaws", "PresenceLaws"]


FIRST = made("milk", run="run-1", messages=["m-1"])
DONE = write(
    "done", FIRST, moved(START, FIRST), value("milk"), CellWrite(name="a", expected=0, value=b"1"), b"{}"
)

CALLS: dict[str, Callable[[Engine], object]] = {
    "apply": lambda engine: engine.apply(DONE),
    "recorded": lambda engine: engine.recorded(SPACE, "done"),
    "answers": lambda engine: engine.answers([HeadOf(SPACE, "main")]),
    "objects": lambda engine: engine.objects(SPACE, [FIRST.digest]),
    "missing": lambda engine: engine.missing(SPACE, [FIRST.digest]),
    "steps": lambda engine: engine.steps(SPACE, FIRST.digest, limit=1),
    "events": lambda engine: engine.events(SPACE, FIRST.digest, limit=1),
    "turn": lambda engine: engine.turn(SPACE, FIRST.digest, 1),
    "labelled": lambda engine: engine.labelled(SPACE, "m-1"),
    "commits": lambda engine: engine.commits(SPACE, "", limit=1),
    "hold": lambda engine: engine.hold(SPACE, "main"),
    "holds": lambda engine: engine.holds(SPACE, limit=1),
    "moves": lambda engine: engine.moves(SPACE, "main", limit=1),
    "cell": lambda engine: engine.cell(SPACE, "a"),
    "cells": lambda engine: engine.cells(SPACE, limit=1),
    "cells_of": lambda engine: engine.cells_of([SPACE], "a"),
    "listed": lambda engine: engine.listed(prefix="", limit=1),
    "entries": lambda engine: engine.entries(SPACE, limit=1),
    "spaces": lambda engine: engine.spaces(limit=1),
    "scan": lambda engine: engine.scan(SPACE, limit=1),
    "forget": lambda engine: engine.forget(SPACE, [FIRST.digest], why="too old", standing=1),
    "standing": lambda engine: engine.standing(SPACE),
    "wait": lambda engine: engine.wait({SPACE: -1}, 1),
    "instant": lambda engine: engine.instant(),
    "holder": lambda engine: engine.holder(),
    "gone": lambda engine: engine.gone("0" * 32),
    "drop": lambda engine: engine.drop(SPACE, why="too old"),
    "facts": lambda engine: engine.facts(),
}


class LifeLaws(EngineSubject):
    """What `close`, `backup` and `facts` promise, and what opening again shows."""

    @pytest.mark.parametrize("call", CALLS)
    def test_a_closed_engine_does_nothing(self, engine: Engine, call: str) -> None:
        """Every method says that the store is closed, and none of them touches it."""
        engine.apply(DONE)
        engine.close()

        with raises(Unavailable, code="store_closed"):
            CALLS[call](engine)

    def test_closing_again_is_no_error(self, engine: Engine) -> None:
        """A program that cleans up need not know whether another did so before."""
        engine.close()

        engine.close()

    def test_opening_again_shows_what_was_written(self, tmp_path: Path) -> None:
        """Everything is there if the engine is persistent, and nothing at all if it is not."""
        with closing(self.open(tmp_path)) as engine:
            receipt = engine.apply(DONE)
            Pen(engine, head=receipt.heads[0], tip=FIRST).commit("eggs")
            before = portrait(engine)

        with closing(self.open(tmp_path)) as again:
            assert (portrait(again) == before) is self.persistent
            assert (again.recorded(SPACE, "done") is not None) is self.persistent
            assert again.apply(DONE) == receipt

    def test_what_was_forgotten_stays_forgotten(self, tmp_path: Path) -> None:
        """Opening again brings nothing back: neither objects nor the writes of a dropped space."""
        with closing(self.open(tmp_path)) as engine:
            engine.apply(DONE)
            engine.apply(write("op", value("eggs"), space="theirs"))
            engine.forget(SPACE, [value("milk").digest], why="user asked", standing=engine.standing(SPACE))
            engine.drop("theirs", why="user asked")

        with closing(self.open(tmp_path)) as again:
            if self.persistent:
                with raises(Forgotten, why="user asked"):
                    again.objects(SPACE, [value("milk").digest])
                with raises(Forgotten, why="user asked"):
                    again.apply(write("op", value("eggs"), space="theirs"))
            assert list(again.spaces(limit=9)) == (["theirs", SPACE] if self.persistent else [])

    def test_two_openings_are_one_store_if_it_is_shared(self, engine: Engine, tmp_path: Path) -> None:
        """What one writes the other sees at once; an engine that cannot share shows nothing."""
        with closing(self.open(tmp_path)) as other:
            assert list(other.spaces(limit=9)) == []

            engine.apply(DONE)

            seen = other.hold(SPACE, "main") == engine.hold(SPACE, "main")
            assert seen is self.shared_between_processes
            assert (portrait(other) == portrait(engine)) is self.shared_between_processes

    def test_a_backup_is_a_store_of_its_own(self, engine: Engine, tmp_path: Path) -> None:
        """It holds what was true when it was made; an engine without files refuses."""
        engine.apply(DONE)
        before = portrait(engine)
        (tmp_path / "copy").mkdir()
        if self.file is None:
            with pytest.raises(Unsupported):
                engine.backup(tmp_path / "copy" / "store")
            assert list((tmp_path / "copy").iterdir()) == []
            return

        engine.backup(tmp_path / "copy" / self.file)
        engine.apply(write("later", value("eggs")))

        with closing(self.open(tmp_path / "copy")) as copy:
            assert portrait(copy) == before
            assert copy.recorded(SPACE, "later") is None

    def test_a_backup_overwrites_nothing(self, engine: Engine, tmp_path: Path) -> None:
        """A file that exists is left as it is."""
        target = tmp_path / "precious"
        target.write_bytes(b"precious")
        engine.apply(DONE)

        with pytest.raises(Unsupported if self.file is None else Conflict):
            engine.backup(target)

        assert target.read_bytes() == b"precious"

    def test_facts_say_what_kind_of_store_it_is(self, engine: Engine) -> None:
        """`doctor` shows them, so they are short texts and numbers."""
        facts = engine.facts()

        assert facts["engine"]
        assert {type(each) for each in facts.values()} <= {str, int}


_Answer = TypeVar("_Answer")

THREADS = 8
ROUNDS = 12


def at_once(work: Callable[[int], _Answer], threads: int = THREADS) -> list[_Answer]:
    """Return what `work` gives for 0, 1, 2 …, each in a thread of its own, all let go together."""
    barrier = Barrier(threads)

    def started(number: int) -> _Answer:
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(started, range(threads)))


def answered(engine: Engine, wanted: Write) -> Receipt | StaleHead:
    """Return the receipt of a write, or the refusal because its head is stale."""
    try:
        return engine.apply(wanted)
    except StaleHead as refused:
        return refused


class RaceLaws(EngineSubject):
    """What `apply` promises to threads of one process."""

    def test_of_many_writers_with_one_head_exactly_one_wins(self, engine: Engine) -> None:
        """The errors of the others name the head of the winner, and they leave nothing behind."""
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
        """Every acknowledged commit is in the history exactly once, in the order of versions."""

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
        """Commit on whatever the head is, reading it again until no other writer is in between."""
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
        """A writer that is alone in its space is never refused."""
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
        """Each write's entries are consecutive, at the position its receipt says."""

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

    def test_a_refusal_in_a_crowd_refuses_no_other(self, engine: Engine) -> None:
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


class ProcessLaws(EngineSubject):
    """What an engine promises across processes; one that is not shared promises to show nothing."""

    def test_of_two_processes_with_one_head_exactly_one_wins(self, tmp_path: Path) -> None:
        """The error of the other names both heads, and nothing of its write is there."""
        writes = [write(f"op-{name}", made(name), moved(START, made(name))) for name in ("one", "two")]

        with (
            child(type(self), tmp_path, "apply_received") as one,
            child(type(self), tmp_path, "apply_received") as two,
        ):
            for each in (one, two):
                each.answer()
            for each, sent in zip((one, two), writes, strict=True):
                each.tell(sent)
            answers = [one.answer(), two.answer()]

        won = [answer.receipt for answer in answers if answer.receipt]
        assert len(won) == (1 if self.shared_between_processes else 2)
        if self.shared_between_processes:
            lost = next(answer for answer in answers if not answer.receipt)
            assert (lost.expected, lost.actual) == (START, won[0].heads[0])
            with closing(self.open(tmp_path)) as engine:
                assert list(engine.commits(SPACE, "", limit=9)) == [won[0].heads[0].commit]

    def test_a_repeated_write_from_another_process_gives_the_first_receipt(self, tmp_path: Path) -> None:
        """A caller that does not know the outcome of its write can ask from any process, after others wrote too."""
        first = made("milk")
        repeated = write("op", first, moved(START, first), b"2")
        with closing(self.open(tmp_path)) as engine:
            engine.apply(write("before", b"1"))
            receipt = engine.apply(repeated)
            Pen(engine, head=receipt.heads[0], tip=first).commit("eggs")
            before = portrait(engine)

            with child(type(self), tmp_path, "apply_received") as other:
                other.answer()
                other.tell(repeated)
                answer = other.answer()

            assert (answer.receipt == receipt) is self.shared_between_processes
            assert portrait(engine) == before

    def test_another_process_sees_what_was_written(self, tmp_path: Path) -> None:
        """A write on the head that this process left is made; an engine that is not shared finds it stale."""
        with closing(self.open(tmp_path)) as engine:
            pen = Pen(engine)
            pen.commit("milk")
            second = made("eggs", pen.tip)

            with child(type(self), tmp_path, "apply_received") as other:
                other.answer()
                other.tell(write("op", second, moved(pen.head, second)))
                answer = other.answer()

            hold = engine.hold(SPACE, "main")
        assert hold is not None
        if self.shared_between_processes:
            assert (
                (answer.receipt and answer.receipt.heads) == (hold.head,) == (Head("main", 2, second.digest),)
            )
        else:
            assert (hold.head.version, answer.actual) == (1, START)

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_goes_on_with_the_store(self, engine: Engine) -> None:
        """Parent and child can both use an engine that was open at the fork; what is not shared is then a copy."""
        pen = Pen(engine)
        pen.commit("milk")

        depth = forked(lambda: pen.commit("in the child").commit.depth)

        assert depth == 1
        hold = engine.hold(SPACE, "main")
        assert hold is not None
        assert hold.head.version == (2 if self.shared_between_processes else 1)
        Pen(engine, space="another").commit("in the parent")

    def test_a_killed_process_loses_nothing_that_it_acknowledged(self, tmp_path: Path) -> None:
        """After SIGKILL at any moment every write is there whole or not at all, and all acknowledged ones are."""
        draw = random.Random(f"{type(self).__name__} kills")
        for kill in range(self.kills if self.persistent else 1):
            path = tmp_path / str(kill)
            path.mkdir()
            with child(type(self), path, "go_on") as other:
                said = [other.answer()]
                time.sleep(draw.uniform(0, 0.25))
                said += other.kill()

            with closing(self.open(path)) as engine:
                if self.persistent:
                    check_survivors(engine, said)
                    Pen(engine, space="another").commit("after the kill")
                else:
                    assert list(engine.spaces(limit=9)) == []


def forked(work: Callable[[], int]) -> int:
    """Return what `work` gives in a forked child, where it must not raise."""
    pid = os.fork()
    if pid == 0:
        result = 99
        try:
            result = work()
        finally:
            os._exit(result)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def check_survivors(engine: Engine, said: list[ChildReply]) -> None:
    """Check that all acknowledged writes of `go_on` are there, at most one more of each writer, and all whole."""
    assert said
    for writer in range(WRITERS):
        space = f"space-{writer}"
        receipts = [answer.receipt for answer in said if answer.space == space and answer.receipt]
        hold = engine.hold(space, "main")
        assert hold is not None
        assert len(receipts) <= hold.head.version <= len(receipts) + 1
        for receipt in receipts:
            recorded = engine.recorded(space, receipt.op_id)
            assert recorded is not None
            assert recorded.receipt == receipt
        check_whole(engine, writer, hold.head)


def check_whole(engine: Engine, writer: int, head: Head) -> None:
    """Check that the writes up to `head` are there with all their parts, and nothing of any other."""
    tip, at, space = None, START, f"space-{writer}"
    for turn in range(head.version):
        tip, wanted = turn_of(writer, turn, tip, at)
        at = Head("main", turn + 1, tip.digest)
        engine.objects(space, [each.digest for each in wanted.objects])
    cell = engine.cell(space, "turn")
    assert head == at
    assert (cell.revision if cell else 0) == head.version
    assert [entry.body for entry in engine.entries(space, limit=99_999)] == [
        b'"%d"' % turn for turn in range(head.version)
    ]
    assert len(engine.moves(space, "main", limit=99_999)) == head.version
    assert len(engine.commits(space, "", limit=99_999)) == head.version


NO_NAMES = [
    "",
    ".",
    "..",
    "/etc/passwd",
    "../../store.db",
    "a/b",
    "a\0b",
    "*",
    "ä" * 32,
    "F" * 32,
    "x" * 9_999,
]


class PresenceLaws(EngineSubject):
    """What `instant`, `holder` and `gone` promise."""

    def test_the_clock_never_goes_back(self, engine: Engine) -> None:
        """All instants are of one clock, and none is before the one read earlier."""
        read = [engine.instant() for _ in range(1_000)]

        assert len({instant.clock for instant in read}) == 1
        assert [instant.at for instant in read] == sorted(instant.at for instant in read)

    def test_the_clock_counts_microseconds(self, engine: Engine) -> None:
        """A wait of two hundredths of a second shows as such."""
        before = engine.instant()

        time.sleep(0.02)

        assert 20_000 <= engine.instant().at - before.at < 10_000_000

    def test_all_who_share_a_store_read_one_clock(self, engine: Engine, tmp_path: Path) -> None:
        """What one process dates another can read; a store that is not shared needs no such thing."""
        before = engine.instant()
        with child(type(self), tmp_path, "hold_on") as other:
            theirs = other.answer().instant
        after = engine.instant()

        assert theirs is not None
        if self.shared_between_processes:
            assert before.clock == theirs.clock == after.clock
            assert before.at <= theirs.at + theirs.error
            assert theirs.at <= after.at + after.error

    def test_two_openings_agree_within_the_error_that_they_state(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """Each answers with a time that the clock has reached, and with how far it may be ahead: never a second."""
        with closing(self.open(tmp_path)) as other:
            read = [each.instant() for _ in range(100) for each in (engine, other)]

        assert all(0 <= instant.error < 1_000_000 for instant in read)
        if self.shared_between_processes:
            assert len({instant.clock for instant in read}) == 1
            reached = 0
            for instant in read:
                assert instant.at + instant.error >= reached
                reached = max(reached, instant.at)

    def test_a_holder_has_one_name(self, engine: Engine) -> None:
        """However often it is asked for, and it is text that fits into a cell."""
        names = {engine.holder() for _ in range(3)}

        assert len(names) == 1
        assert names.pop().isprintable()

    def test_every_opening_has_a_name_of_its_own(self, engine: Engine, tmp_path: Path) -> None:
        """Two in one process have different names, and neither is gone while it is open."""
        with closing(self.open(tmp_path)) as other:
            assert other.holder() != engine.holder()
            assert not engine.gone(engine.holder())
            assert not engine.gone(other.holder())

    def test_an_opening_that_was_closed_is_gone(self, engine: Engine, tmp_path: Path) -> None:
        """The name is free at once, and never given again."""
        with closing(self.open(tmp_path)) as other:
            name = other.holder()

        assert engine.gone(name) is self.shared_between_processes
        assert engine.gone(name) is self.shared_between_processes  # asking leaves nothing behind
        with closing(self.open(tmp_path)) as again:
            assert again.holder() != name

    def test_a_use_of_which_nothing_is_known_is_not_gone(self, engine: Engine, tmp_path: Path) -> None:
        """Its name alone is no proof: it may live in another container, on another host, or in another store."""
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        with closing(self.open(elsewhere)) as other:
            name = other.holder()
            assert not engine.gone(name)

        engine.holder()
        assert not engine.gone(name)

    @pytest.mark.parametrize("name", NO_NAMES)
    def test_what_cannot_be_a_name_is_not_proven_gone(self, engine: Engine, name: str) -> None:
        """Names come from data: nothing in them is a path, and no damage to one is taken for an ending."""
        assert not engine.gone(name)

    def test_holding_and_asking_write_nothing(self, engine: Engine) -> None:
        """The store holds no trace of either."""
        before = portrait(engine)

        engine.gone(engine.holder())
        engine.instant()

        assert portrait(engine) == before
        assert list(engine.spaces(limit=9)) == []

    def test_a_killed_holder_is_gone_at_once(self, engine: Engine, tmp_path: Path) -> None:
        """Nothing has to be waited for: its mark ended with it."""
        with child(type(self), tmp_path, "hold_on") as other:
            name = other.answer().holder
            assert not engine.gone(name)

            other.kill()

            assert engine.gone(name) is self.shared_between_processes
            assert engine.gone(name) is self.shared_between_processes

    def test_a_stopped_holder_is_not_gone(self, engine: Engine, tmp_path: Path) -> None:
        """It may wake up and go on, however long it is stopped."""
        with child(type(self), tmp_path, "hold_on") as other:
            name = other.answer().holder
            other.process.send_signal(signal.SIGSTOP)

            assert not engine.gone(name)

            other.process.send_signal(signal.SIGCONT)
            assert not engine.gone(name)

    def test_a_forked_child_does_not_keep_its_parent_alive(self, engine: Engine, tmp_path: Path) -> None:
        """It lives on under a name of its own when the parent is killed."""
        with child(type(self), tmp_path, "hold_and_fork") as other:
            parents, childs = other.answer().holder, other.answer().holder
            assert parents != childs

            other.process.kill()
            other.process.wait()

            assert engine.gone(parents) is self.shared_between_processes
            assert not engine.gone(childs)

    def test_a_forked_child_that_ends_takes_nothing_from_its_parent(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """Whatever a child does with what it inherited, the parent is still there."""
        with child(type(self), tmp_path, "hold_while_children_end") as other:
            answers = [other.answer().holder for _ in range(4)]

            assert answers == answers[:1] * 4
            assert not engine.gone(answers[0])
