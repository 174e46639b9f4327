"""Heads and cells from memory: never older than what any reader has seen."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from perdure.engines.contract import Answer, Cell, CellOf, CellWrite, HeadOf, Hold, Question, Receipt, Write
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit import caches
from perdure.engines.sqlite.commit.file_lock import FileLock
from perdure.errors import Forgotten, PerdureError
from perdure.model.digest import Kind, Object
from perdure.model.head import Head
from perdure.testing.engines.builders import SPACE, START, made, moved, write
from tests.crash.spying import Crowd, spied

MILK, EGGS = made("milk"), made("eggs")
SEAT = CellWrite(name="seat", expected=0, value=b"1")
AFTER_MILK = Head("main", 1, MILK.digest)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    """A store with one commit."""
    engine = SqliteEngine(path)
    engine.apply(write("milk", MILK, moved(START, MILK)))
    yield engine
    engine.close()


@pytest.fixture
def other(path: Path, engine: SqliteEngine) -> Iterator[SqliteEngine]:
    """Another opening of the same store, as another process has it."""
    other = SqliteEngine(path)
    yield other
    other.close()


def reads(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is looked up in the database from now on."""
    found: list[str] = []
    take = engine._connections.take

    def told() -> object:
        found.append("read")
        return take()

    monkeypatch.setattr(engine._connections, "take", told)
    return found


def head(engine: SqliteEngine) -> Head:
    """Where main stands."""
    hold = engine.hold(SPACE, "main")
    assert hold is not None
    return hold.head


def test_a_head_that_has_not_moved_since_is_not_looked_up(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wrote it knows where it stands."""
    found = reads(engine, monkeypatch)

    assert head(engine) == AFTER_MILK
    assert found == []


def test_what_another_process_wrote_is_seen_at_once(engine: SqliteEngine, other: SqliteEngine) -> None:
    """Heads and cells alike, each time one of the two has written."""
    seat = CellWrite(name="seat", expected=0, value=b"1")
    assert (head(other), other.cell(SPACE, "seat")) == (AFTER_MILK, None)

    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS), seat))

    assert head(other) == Head("main", 2, EGGS.digest)
    cell = other.cell(SPACE, "seat")
    assert cell is not None
    assert cell.revision == 1


def answered(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """The questions that are answered from the database from now on."""
    found: list[Question] = []
    read = engine._answers

    def told(questions: Sequence[Question]) -> Sequence[Answer]:
        found.extend(questions)
        return read(questions)

    monkeypatch.setattr(engine, "_answers", told)
    return found


@pytest.mark.parametrize("asked_by", ["a reader", "a writer"])
def test_what_another_process_has_not_changed_is_not_looked_up_again(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch, asked_by: str
) -> None:
    """Its rows name the spaces that it wrote to; what was seen of any other space stays."""
    assert engine.cell(SPACE, "seat") is None
    assert engine.cell("elsewhere", "seat") is None
    engine.apply(write("plan", CellWrite(name="plan", expected=0, value=b"1")))
    other.apply(write("there", SEAT, space="elsewhere"))
    found = answered(engine, monkeypatch)

    if asked_by == "a writer":
        engine.apply(write("plan again", CellWrite(name="plan", expected=1, value=b"2")))

    assert (head(engine), engine.cell(SPACE, "seat")) == (AFTER_MILK, None)
    assert found == []
    assert engine.cell("elsewhere", "seat") == Cell("elsewhere", "seat", 1, b"1")
    assert found == [CellOf("elsewhere", "seat")]


@pytest.mark.parametrize("asked_by", ["a reader", "a writer"])
def test_after_a_write_of_another_process_to_another_space_nothing_is_read(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch, asked_by: str
) -> None:
    """The lock file names the space; its name is read once, so the second such write costs no statement."""
    assert other.cell("elsewhere", "seat") is None
    for number in range(3):
        seat = CellWrite(name="seat", expected=number, value=b"%d" % number)
        other.apply(write(f"there {number}", seat, space="elsewhere"))
        assert head(engine) == AFTER_MILK
    other.apply(write("there again", CellWrite(name="seat", expected=3, value=b"3"), space="elsewhere"))
    found = reads(engine, monkeypatch)

    if asked_by == "a writer":
        engine.apply(write("plan", CellWrite(name="plan", expected=0, value=b"1")))

    assert head(engine) == AFTER_MILK
    assert found == []


def test_a_group_names_all_spaces_that_it_wrote_to(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process has seen of either is dropped; what it has seen of a third stays."""
    places = [*map("place {}".format, range(3))]
    for place in places:
        other.apply(write(place, SEAT, space=place))
    crowd = Crowd(engine, monkeypatch, lambda: None)
    again = CellWrite(name="seat", expected=1, value=b"2")
    crowd.come(write("first", SEAT))
    for place in places[:2]:
        crowd.come(write(f"{place} again", again, space=place))
    crowd.answers()
    found = answered(other, monkeypatch)

    cells = [other.cell(place, "seat") for place in places]

    assert [cell and cell.revision for cell in cells] == [2, 2, 1]
    assert found == [CellOf(place, "seat") for place in places[:2]]


def test_what_a_dead_holder_wrote_is_seen_by_a_third_process(
    path: Path, engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that settles what it left may write elsewhere: the lock file then says that any space may have changed."""
    third = SqliteEngine(path)
    third.apply(write("elsewhere", SEAT, space="elsewhere"))
    assert head(engine) == AFTER_MILK
    with monkeypatch.context() as patched:
        patched.setattr(FileLock, "release", killed)
        other.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    third.apply(write("there", CellWrite(name="seat", expected=1, value=b"2"), space="elsewhere"))

    assert head(engine) == Head("main", 2, EGGS.digest)
    third.close()


def killed(self: FileLock, *, settled: bool, spaces: Collection[int]) -> None:
    """Let go of the lock as the kernel does it: the file stays as the holder left it."""
    self.count, self.is_held = -1, False
    fcntl.flock(self._file, fcntl.LOCK_UN)


def test_only_what_is_not_known_is_looked_up(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that this process has moved is not read again because a cell beside it is."""
    asked = (HeadOf(SPACE, "main"), CellOf(SPACE, "seat"))
    found = answered(engine, monkeypatch)

    hold, seat = engine.answers(asked)

    assert (hold.head, seat) == (AFTER_MILK, None)
    assert found == [CellOf(SPACE, "seat")]


def test_what_is_known_and_what_is_looked_up_are_from_one_moment(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another process writes while the rest is looked up, all of it is looked up again."""
    look_up, writes = engine._answers, [write("eggs", EGGS, moved(AFTER_MILK, EGGS), SEAT)]

    def written_before(questions: Sequence[Question]) -> Sequence[Answer]:
        while writes:
            other.apply(writes.pop())
        return look_up(questions)

    monkeypatch.setattr(engine, "_answers", written_before)

    hold, seat = engine.answers((HeadOf(SPACE, "main"), CellOf(SPACE, "seat")))

    assert (hold.head.version, seat.revision) == (2, 1)


def test_while_this_process_writes_elsewhere_only_what_is_not_known_is_looked_up_and_once(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a hundred runs share a store some thread always writes, and the others' answers were all read again."""
    asked = (HeadOf(SPACE, "main"), CellOf(SPACE, "seat"))
    found = answered(engine, monkeypatch)
    answers: list[Sequence[Answer]] = []

    def ask(statement: str) -> None:
        if statement.startswith("COMMIT"):
            answers.append(engine.answers(asked))

    spied(engine, before=ask, after=ask)
    engine.apply(write("there", SEAT, space="elsewhere"))

    assert [(hold.head, seat) for hold, seat in answers] == [(AFTER_MILK, None)] * 2
    assert found == [CellOf(SPACE, "seat")]


def test_what_is_read_in_the_middle_of_a_write_that_changes_it_is_not_remembered(
    engine: SqliteEngine,
) -> None:
    """It is old as soon as COMMIT is through."""
    asked = (HeadOf(SPACE, "main"), CellOf(SPACE, "seat"))
    answers: list[Sequence[Answer]] = []

    def ask(statement: str) -> None:
        if statement.startswith("COMMIT"):
            answers.append(engine.answers(asked))

    spied(engine, before=ask, after=ask)
    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS), SEAT))

    seen = [(hold.head.version, seat and seat.revision) for hold, seat in (*answers, engine.answers(asked))]
    assert seen == [(1, None), (2, 1), (2, 1)]


def test_a_reader_that_asks_when_the_lock_was_just_taken_sees_what_others_wrote_before(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that took the lock has not yet compared the count, and what this process saw may be old."""
    assert head(engine) == AFTER_MILK
    other.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))
    acquire, seen = FileLock.acquire, list[Head]()

    def asked_at_once(self: FileLock, seconds: float) -> bool:
        was_left = acquire(self, seconds)
        seen.append(head(engine))
        return was_left

    monkeypatch.setattr(FileLock, "acquire", asked_at_once)
    engine.apply(write("there", SEAT, space="elsewhere"))

    assert seen == [Head("main", 2, EGGS.digest)]


def test_an_answer_that_need_not_be_fresh_is_what_this_process_last_saw(
    engine: SqliteEngine, other: SqliteEngine
) -> None:
    """It is not compared with what others wrote, until something is asked for afresh."""
    asked = (HeadOf(SPACE, "main"),)
    assert head(engine) == AFTER_MILK
    other.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    remembered = engine.answers(asked, fresh=False)[0]
    fresh = engine.answers(asked)[0]

    assert (remembered.head.version, fresh.head.version) == (1, 2)
    assert engine.answers(asked, fresh=False)[0] == fresh


def test_what_was_never_seen_is_looked_up_also_if_it_need_not_be_fresh(engine: SqliteEngine) -> None:
    """Control: nothing is answered from nowhere."""
    assert engine.answers((CellOf(SPACE, "seat"),), fresh=False) == [None]


def test_rows_that_were_read_while_others_wrote_do_not_hide_what_they_changed(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the lock is free, another process writes and a thread of this one learns its rows, before the write is noted."""
    assert head(engine) == AFTER_MILK
    release = FileLock.release

    def overtaken(self: FileLock, *, settled: bool, spaces: Collection[int]) -> None:
        release(self, settled=settled, spaces=spaces)
        if self is engine._lock:
            other.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))
            assert engine.missing(SPACE, [EGGS.digest]) == []

    with monkeypatch.context() as patched:
        patched.setattr(FileLock, "release", overtaken)
        engine.apply(write("there", SEAT, space="elsewhere"))

    assert head(engine) == Head("main", 2, EGGS.digest)


def test_what_was_read_before_a_write_is_not_remembered_after_it(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread writes while another reads for the first time, and lets go of the lock just before that one remembers."""
    look_up, release = other._answers, FileLock.release
    released, remembered = threading.Event(), threading.Event()
    eggs = write("eggs", EGGS, moved(AFTER_MILK, EGGS))
    writer = threading.Thread(target=other.apply, args=[eggs])

    def written_after(questions: Sequence[Question]) -> Sequence[Answer]:
        found = look_up(questions)
        writer.start()
        assert released.wait(60)
        return found

    def paused(self: FileLock, *, settled: bool, spaces: Collection[int]) -> None:
        release(self, settled=settled, spaces=spaces)
        released.set()
        assert remembered.wait(60)

    with monkeypatch.context() as patched:
        patched.setattr(FileLock, "release", paused)
        patched.setattr(other, "_answers", written_after)
        before = head(other)
        remembered.set()
        writer.join()

    assert (before, head(other)) == (AFTER_MILK, Head("main", 2, EGGS.digest))


def test_what_was_changed_in_place_is_looked_up_again(engine: SqliteEngine, other: SqliteEngine) -> None:
    """A space that was dropped or sealed again has no new row."""
    engine.apply(write("seat", SEAT))
    assert engine.cell(SPACE, "seat") == Cell(SPACE, "seat", 1, b"1")

    other.drop(SPACE, why="a policy")

    assert engine.cell(SPACE, "seat") == Cell(SPACE, "seat", 2, None)


def generations_read(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list to which `asked` is added whenever a reader asks whether rows were changed in place."""
    found: list[str] = []
    refresh = engine._rows.refresh
    monkeypatch.setattr(engine._rows, "refresh", lambda db: found.append("asked") or refresh(db))  # pyright: ignore[reportUnknownLambdaType]
    return found


def test_own_writes_change_no_row_in_place_and_are_not_asked_about(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only after another process has written does a reader ask, once."""
    engine.objects(SPACE, [MILK.digest])
    engine.missing(SPACE, [MILK.digest])
    asked = generations_read(engine, monkeypatch)

    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))
    engine.missing(SPACE, [MILK.digest])
    after_own = len(asked)
    other.apply(write("seat", SEAT))
    engine.missing(SPACE, [MILK.digest])

    assert (after_own, len(asked)) == (0, 1)


@pytest.mark.parametrize("writer", ["engine", "other"])
def test_a_row_that_was_changed_in_place_is_read_again_after_own_writes(
    engine: SqliteEngine, other: SqliteEngine, writer: str
) -> None:
    """What this process has of the row is dropped, whichever opening forgets its content, and whatever follows."""
    engine.apply(write("words", words := Object.of(Kind.BODY, b'"buy milk"')))
    assert engine.objects(SPACE, [words.digest]) == [words]
    changing = engine if writer == "engine" else other

    changing.forget(SPACE, [words.digest], why="a policy", standing=changing.standing(SPACE))
    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    with pytest.raises(Forgotten):
        engine.objects(SPACE, [words.digest])


def test_control_a_lock_file_that_does_not_count_leaves_others_behind(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number in the file is all that tells them."""
    assert head(other) == AFTER_MILK
    lock = engine._lock
    assert lock is not None
    release = FileLock.release

    def uncounted(self: FileLock, *, settled: bool, spaces: Collection[int]) -> None:
        self.count -= 1
        release(self, settled=settled, spaces=spaces)

    monkeypatch.setattr(FileLock, "release", uncounted)
    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    assert head(other) == AFTER_MILK


def test_where_the_lock_file_was_removed_the_database_is_asked(
    path: Path, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opens the store then counts in a file of its own."""
    os.unlink(path.with_name(path.name + "-lock"))
    other = SqliteEngine(path)

    other.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    assert head(engine) == Head("main", 2, EGGS.digest)
    other.close()


def test_a_reader_during_a_write_does_not_believe_a_removed_lock_file(
    path: Path, engine: SqliteEngine
) -> None:
    """While this process wrote, its other threads were given what it had seen before others counted elsewhere."""
    assert head(engine) == AFTER_MILK
    os.unlink(path.with_name(path.name + "-lock"))
    other = SqliteEngine(path)
    other.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))
    other.close()
    seen: list[Head] = []

    def ask(statement: str) -> None:
        if statement.startswith("COMMIT"):
            seen.append(head(engine))

    spied(engine, before=ask, after=ask)
    engine.apply(write("seat", SEAT))

    assert seen == [Head("main", 2, EGGS.digest)] * 2


def test_what_a_holder_wrote_that_died_before_it_counted_is_seen(
    engine: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between COMMIT and the release of the lock, it left the count as it was, and caches looked valid."""
    assert head(engine) == AFTER_MILK

    with monkeypatch.context() as patched:
        patched.setattr(FileLock, "release", killed)
        other.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))
    engine.apply(write("seat", SEAT))

    assert head(engine) == Head("main", 2, EGGS.digest)


def test_answers_are_from_one_moment_also_within_a_process(engine: SqliteEngine) -> None:
    """A write of another thread between two looks into the cache once gave one answer from before and one from after."""

    def both(number: int) -> Write:
        value = b"%d" % number
        cells = (CellWrite(name=name, expected=number, value=value) for name in ("a", "b"))
        return write(f"both {number}", *cells)

    engine.apply(both(0))
    questions = CellOf(SPACE, "a"), CellOf(SPACE, "b")
    engine.answers(questions)

    class Paused(tuple[Question, ...]):
        """Between the first and the second look at them, another thread writes."""

        __slots__ = ()

        def __iter__(self) -> Iterator[Question]:
            """Yield both."""
            yield self[0]
            writer = threading.Thread(target=engine.apply, args=[both(1)])
            writer.start()
            writer.join()
            yield self[1]

    first, second = engine.answers(Paused(questions))

    now = engine.cell(SPACE, "a")
    assert isinstance(first, Cell)
    assert isinstance(second, Cell)
    assert first.revision == second.revision
    assert now is not None
    assert now.revision == 2  # the other thread has written


def test_no_reader_sees_a_head_that_is_not_durable(engine: SqliteEngine) -> None:
    """Asked in the middle of a write, the store answers what stood before it, until COMMIT is through."""
    seen: list[Hold | None] = []

    def ask(statement: str) -> None:
        if statement.startswith(("BEGIN", "COMMIT")):
            seen.append(engine.hold(SPACE, "main"))

    spied(engine, before=ask, after=ask)
    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    assert [hold.head.version for hold in seen if hold] == [1, 1, 1, 2]


def test_no_reader_sees_a_replaced_head_because_room_was_made_before_it_was_dropped(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader empties a full memory and remembers the head just before the writer drops it."""
    monkeypatch.setattr(caches, "_HELD_MAX", 0)
    recent, seen = engine._recent, list[Head]()
    assert recent is not None

    class Overtaken:
        """The lock of the memory; a reader gets it first."""

        def __init__(self) -> None:
            self.lock, self.is_overtaken = threading.Lock(), True

        def __enter__(self) -> None:
            if not self.is_overtaken:
                self.is_overtaken = True
                engine.cell(SPACE, "seat")
                head(engine)
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    lock = Overtaken()
    monkeypatch.setattr(recent, "_mutex", lock)

    def after(statement: str) -> None:
        if statement.startswith("BEGIN"):
            lock.is_overtaken = False
        if statement.startswith("COMMIT"):
            seen.append(head(engine))

    spied(engine, after=after)
    engine.apply(write("eggs", EGGS, moved(AFTER_MILK, EGGS)))

    assert lock.is_overtaken
    assert seen == [Head("main", 2, EGGS.digest)]


def test_a_refused_or_failed_write_leaves_the_head_as_it_was(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not written is not remembered."""

    def failing(statement: str) -> None:
        if statement.startswith("COMMIT"):
            raise apsw.IOError("the disk is gone")

    answers: list[Receipt | PerdureError] = []
    for number in range(2):
        if number:
            spied(engine, before=failing)
        try:
            stale = Head("main", 7, MILK.digest) if not number else AFTER_MILK
            answers.append(engine.apply(write(f"eggs {number}", EGGS, moved(stale, EGGS))))
        except PerdureError as error:
            answers.append(error)

        assert head(engine) == AFTER_MILK
    assert all(isinstance(answer, PerdureError) for answer in answers)


def test_what_was_seen_is_bounded_also_in_a_process_that_only_reads(engine: SqliteEngine) -> None:
    """Names that no thread has are answers too, and a client may guess any number of them."""
    for number in range(10_000):
        engine.cell(SPACE, f"guess {number}")

    assert engine._recent is not None
    assert len(engine._recent._seen) < 5_000
    assert head(engine) == AFTER_MILK
