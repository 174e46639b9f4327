"""Two openings of one store: what one has read or written must not make it blind to what the other does.

An opening keeps unpacked rows, keys and recent objects in memory.  Others write, forget and
drop in that time; two openings in one process represent two processes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import apsw
import pytest

from perdure.engines.contract import Receipt
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.format.index import Index, op_keys
from perdure.engines.sqlite.format.rows import Rows
from perdure.errors import Forgotten, NotFound, Unavailable
from perdure.model.digest import Digest, Object
from perdure.testing.engines.builders import SPACE, Pen, value, write
from tests.coded import raises
from tests.crash.campaign import SEED, sized
from tests.crash.on_disk import group_of
from tests.crash.spying import Crowd, spied

LONG = "a document that changes a little " * 30


@pytest.fixture
def one(path: Path) -> Iterator[SqliteEngine]:
    """The store, opened."""
    with closing(SqliteEngine(path)) as engine:
        yield engine


@pytest.fixture
def other(one: SqliteEngine, path: Path) -> Iterator[SqliteEngine]:
    """The same store, in another opening."""
    with closing(SqliteEngine(path)) as engine:
        yield engine


def read(engine: SqliteEngine, wanted: Object) -> bytes:
    """The bytes of an object as `engine` gives them."""
    return engine.objects(SPACE, [wanted.digest])[0].body


class TestForgetting:
    def test_what_resembles_a_forgotten_object_is_stored_so_that_it_can_be_read(
        self, one: SqliteEngine, other: SqliteEngine
    ) -> None:
        """An acknowledged value is whole, although its base was forgotten by another process before."""
        first = value(LONG + "1")
        second = value(LONG + "2", base=first)
        one.apply(write("first", first))
        other.forget(SPACE, [first.digest], why="asked", standing=other.standing(SPACE))

        one.apply(write("second", second))

        assert read(one, second) == read(other, second) == second.body

    def test_nor_does_a_look_in_between_hide_that_it_was_forgotten(
        self, one: SqliteEngine, other: SqliteEngine
    ) -> None:
        """What a reader of the same process has noticed, its writer notices as well."""
        first = value(LONG + "1")
        second = value(LONG + "2", base=first)
        one.apply(write("first", first))
        other.forget(SPACE, [first.digest], why="asked", standing=other.standing(SPACE))
        with pytest.raises(Forgotten):
            read(one, first)

        one.apply(write("second", second))

        assert read(one, second) == read(other, second) == second.body

    def test_it_is_forgotten_for_those_who_had_read_it(self, one: SqliteEngine, other: SqliteEngine) -> None:
        """No memory of a process gives it back."""
        secret = value(LONG)
        one.apply(write("op", secret))
        assert read(one, secret) == secret.body

        other.forget(SPACE, [secret.digest], why="asked", standing=other.standing(SPACE))

        with raises(Forgotten, "forgotten", why="asked"):
            read(one, secret)

    def test_nor_for_those_who_had_read_it_from_a_file_without_its_counters(
        self, one: SqliteEngine, other: SqliteEngine, path: Path
    ) -> None:
        """An edit that removes the row of the generation cannot hide from a process what another one forgets."""
        secret = value(LONG)
        one.apply(write("op", secret))
        with closing(apsw.Connection(str(path))) as editor:
            editor.execute("DELETE FROM meta WHERE name='generation'")
        assert read(one, secret) == secret.body

        other.forget(SPACE, [secret.digest], why="asked", standing=other.standing(SPACE))

        with raises(Forgotten, "forgotten", why="asked"):
            read(one, secret)

    @pytest.mark.parametrize("before", [0, 1, 3])
    def test_nor_does_a_row_that_was_read_from_the_index(self, path: Path, before: int) -> None:
        """Objects in sorted rows are found by one statement, the row read last without any; both look first."""
        objects = [value(f"note {number}") for number in range(3_000)]
        with closing(SqliteEngine(path)) as engine:
            for start in range(0, len(objects), 1_000):
                engine.apply(write(f"op {start}", *objects[start : start + 1_000]))
        secret = objects[7]
        with closing(SqliteEngine(path)) as one, closing(SqliteEngine(path)) as other:
            assert read(one, secret) == secret.body
            for near in objects[8 : 8 + 1_000 * before : 1_000]:  # of other rows
                assert read(one, near) == near.body

            other.forget(SPACE, [secret.digest], why="asked", standing=other.standing(SPACE))

            with raises(Forgotten, "forgotten", why="asked"):
                read(one, secret)

    def test_what_is_written_again_is_there_for_those_who_met_it_forgotten(
        self, one: SqliteEngine, other: SqliteEngine
    ) -> None:
        """The newest row counts, whichever opening wrote it."""
        wanted = value(LONG)
        one.apply(write("op", wanted))
        one.forget(SPACE, [wanted.digest], why="asked", standing=one.standing(SPACE))
        with pytest.raises(Forgotten):
            read(other, wanted)

        one.apply(write("again", wanted))

        assert read(other, wanted) == wanted.body

    def test_the_writes_of_a_space_dropped_by_another_are_forgotten(
        self, one: SqliteEngine, other: SqliteEngine
    ) -> None:
        """Repeating one is refused, and looking it up as well, by an opening that remembers its receipt."""
        wanted = write("op", value(LONG))
        one.apply(wanted)
        assert one.recorded(SPACE, "op") is not None

        other.drop(SPACE, why="asked")

        with pytest.raises(Forgotten):
            one.recorded(SPACE, "op")
        with pytest.raises(Forgotten):
            one.apply(wanted)

    def test_control_an_opening_that_does_not_look_writes_what_cannot_be_read(
        self, one: SqliteEngine, other: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without the generation that forgetting counts up, an acknowledged value builds on what is gone."""
        monkeypatch.setattr(Rows, "refresh", lambda self, connection: 0)
        first = value(LONG + "1")
        second = value(LONG + "2", base=first)
        one.apply(write("first", first))
        other.forget(SPACE, [first.digest], why="asked", standing=other.standing(SPACE))

        one.apply(write("second", second))

        with pytest.raises(Forgotten):
            read(other, second)

    def test_any_course_of_writing_and_forgetting_leaves_what_the_last_word_says(
        self, one: SqliteEngine, other: SqliteEngine
    ) -> None:
        """Two processes write, forget, write again and read at random; a dictionary knows what must be there."""
        for seed in range(SEED, SEED + sized(4, 100)):
            faults = Course(seed, (one, other)).run(sized(60, 120))

            assert faults == [], f"seed {seed}"


class Course:
    """Random work of two openings on versions of one document, in a space of its own."""

    def __init__(self, seed: int, engines: tuple[SqliteEngine, SqliteEngine]) -> None:
        self._chance, self._engines, self._space = random.Random(seed), engines, f"course {seed}"
        self._versions: list[Object] = []
        self._there: dict[Digest, bool] = {}  # whether it was forgotten after it was last written

    def run(self, steps: int) -> list[str]:
        """What was found otherwise than it must be."""
        return [fault for number in range(steps) for fault in self._step(number)]

    def _step(self, number: int) -> Iterator[str]:
        engine = self._chance.choice(self._engines)
        match self._chance.randrange(5):
            case 0 | 1:
                self._write(engine, number, self._new(number))
            case 2 if self._versions:
                self._write(engine, number, self._chance.choice(self._versions))
            case 3 if self._versions:
                gone = self._chance.choice(self._versions).digest
                engine.forget(self._space, [gone], why="asked", standing=engine.standing(self._space))
                self._there[gone] = False
            case _:
                for found in self._versions:
                    if self._is_there(engine, found) != self._there[found.digest]:
                        yield f"step {number}: {found.body[-4:]!r} must be there: {self._there[found.digest]}"

    def _new(self, number: int) -> Object:
        base = self._chance.choice(self._versions) if self._versions else None
        self._versions.append(value(f"{LONG}{number}", base=base))
        return self._versions[-1]

    def _write(self, engine: SqliteEngine, number: int, wanted: Object) -> None:
        engine.apply(write(f"op {number}", wanted, space=self._space))
        self._there[wanted.digest] = True

    def _is_there(self, engine: SqliteEngine, wanted: Object) -> bool:
        try:
            return engine.objects(self._space, [wanted.digest])[0].body == wanted.body
        except Forgotten:
            return False


class TestKeys:
    """Keys of forty bits are hints: two things can have the same one, and both must be found."""

    def test_two_values_with_one_key_are_told_apart(self, one: SqliteEngine) -> None:
        """Having one of them is not having the other."""
        here, elsewhere = value("307260"), value("1606372")
        assert here.digest[:10] == elsewhere.digest[:10]

        one.apply(write("op", here))

        assert list(one.missing(SPACE, [here.digest, elsewhere.digest])) == [elsewhere.digest]
        with raises(NotFound, "object_not_found"):
            read(one, elsewhere)

    def test_forgetting_one_of_them_leaves_the_other(self, one: SqliteEngine) -> None:
        """What was forgotten, what is there and what never was are three things."""
        gone, kept = value("307260"), value("1606372")
        one.apply(write("op", gone))
        one.forget(SPACE, [gone.digest], why="asked", standing=one.standing(SPACE))
        with raises(NotFound, "object_not_found"):
            read(one, kept)

        one.apply(write("other", kept))

        assert read(one, kept) == b"1606372"
        with pytest.raises(Forgotten):
            read(one, gone)

    def test_both_can_be_kept_and_read(self, one: SqliteEngine, other: SqliteEngine) -> None:
        """Also by an opening that has seen only the first of them so far."""
        first, second = value("307260"), value("1606372")
        one.apply(write("first", first))
        assert read(other, first) == b"307260"

        one.apply(write("second", second))

        assert (read(other, first), read(other, second)) == (b"307260", b"1606372")

    def test_two_writes_with_one_key_are_told_apart(self, one: SqliteEngine, other: SqliteEngine) -> None:
        """A write by another process is not overlooked because one of the same key is known: it would be made twice."""
        first, second = write("op-1290924", value("one")), write("op-1483501", value("two"), b"{}")
        assert op_keys(first.op_id)[0] == op_keys(second.op_id)[0]
        other.apply(first)
        assert one.recorded(SPACE, first.op_id) is not None

        receipt = other.apply(second)

        found = one.recorded(SPACE, second.op_id)
        assert found is not None
        assert found.receipt == one.apply(second) == receipt
        assert len(one.entries(SPACE, limit=9)) == 1

    def test_a_message_added_by_another_is_found_by_its_id(
        self, one: SqliteEngine, other: SqliteEngine
    ) -> None:
        """Also by who knows of another commit with the same message id."""
        pen = Pen(one)
        first = pen.commit("milk", messages=["m-1"])
        assert list(one.labelled(SPACE, "m-1")) == [first.digest]

        second = Pen(other, head=pen.head, tip=first).commit("eggs", messages=["m-1"])

        assert list(one.labelled(SPACE, "m-1")) == [first.digest, second.digest]


class Interrupted:
    """A reading connection that lets something happen each time after it has looked into the index."""

    def __init__(self, database: Any, happens: Callable[[], object]) -> None:
        self._database, self._happens = database, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, sql: str, *bindings: Any) -> Any:
        """Run SQL."""
        cursor = self._database.execute(sql, *bindings)
        if "places" not in sql and "stretches" not in sql:
            return cursor
        found = Found(cursor.fetchall())
        self._happens()
        return found


class Found(list[Any]):
    """Rows that were read before something happened."""

    def fetchall(self) -> list[Any]:
        """All of them."""
        return self


class TestSortingIn:
    """Keys move from memory into the index now and then; a look-up at that moment must find them in one or the other."""

    @pytest.fixture
    def reader(self, one: SqliteEngine, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Interrupted]:
        """A connection whose every look into the index is followed by the sorting-in of all keys."""
        one.apply(write("wanted", value("wanted")))
        monkeypatch.setattr(Index, "is_due", lambda self: True)
        numbers = count()
        with closing(apsw.Connection(str(path))) as database:
            yield Interrupted(
                database, lambda: one.apply(write(f"due {next(numbers)}", value("x"), space="else"))
            )

    def test_a_look_up_finds_what_is_being_sorted_in(self, one: SqliteEngine, reader: Interrupted) -> None:
        """By its key."""
        found = one._rows.index.rows(reader, 1, op_keys("wanted")[0])  # pyright: ignore[reportArgumentType]

        assert found == [1]

    def test_a_listing_finds_what_is_being_sorted_in(self, one: SqliteEngine, reader: Interrupted) -> None:
        """In its order."""
        found = one._rows.index.rows_of(reader, 1, 0, 9)  # pyright: ignore[reportArgumentType]

        assert found == [1]


class TestReaders:
    def test_a_reader_is_told_of_a_write_only_once_it_is_durable(
        self, one: SqliteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two equal writes stand in one group, so the second looks at the first; a reader must not see that."""
        seen: list[object] = []

        def ask(sql: str) -> None:
            if sql == "COMMIT" and asking.is_set() and not seen:
                seen.append(one.recorded(SPACE, "op"))

        asking = Event()
        spied(one, before=ask)
        crowd = Crowd(one, monkeypatch, then=asking.set)
        for wanted in (write("leader", value("l")), write("op", value(LONG)), write("op", value(LONG))):
            crowd.come(wanted)

        answers = crowd.answers()

        assert seen == [None]
        assert isinstance(answers[1], Receipt)
        assert answers[1] == answers[2]

    def test_closing_waits_for_the_write_under_way_and_refuses_the_rest(
        self, one: SqliteEngine, monkeypatch: pytest.MonkeyPatch, path: Path
    ) -> None:
        """No caller waits for ever, and a caller with a receipt finds its write afterwards."""
        crowd = Crowd(one, monkeypatch, then=lambda: None)
        crowd.come(write("op 0", value("0")))
        closer = Thread(target=one.close)
        closer.start()
        while not group_of(one)._queue:
            closer.join(0.001)
        crowd.come(write("op 1", value("1")), behind=1)
        crowd.come(write("op 2", value("2")), behind=1)

        answers = crowd.answers()
        closer.join()

        with raises(Unavailable, "store_closed"):
            one.apply(write("late", value("late")))
        with closing(SqliteEngine(path)) as again:
            assert [type(answer) for answer in answers] == [Receipt, Unavailable, Unavailable]
            assert [again.recorded(SPACE, f"op {number}") is not None for number in range(3)] == [
                True,
                False,
                False,
            ]
