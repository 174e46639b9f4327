"""What only this engine promises: round trips, quiet refusals, any text, the pool, the clock and who is gone."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import perdure
from perdure.engines.contract import (
    Cell,
    CellOf,
    CellWrite,
    Engine,
    Fence,
    HeadOf,
    LabelOf,
    LedgerOf,
    OpOf,
)
from perdure.errors import Corrupt, PerdureError, Unavailable
from perdure.model.commit import LedgerRead
from perdure.model.digest import Kind, Object
from perdure.testing.engines.builders import SPACE, START, Pen, begun, made, moved, value, write
from perdure.testing.engines.child import child
from perdure.testing.engines.laws.history import HOSTILE_NAMES
from tests.coded import raises
from tests.conformance.test_postgres import TestPostgresEngine as PostgresSubject
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url, url_in

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import connections
    from perdure.engines.postgres.connections import Connection
    from perdure.engines.postgres.engine import PostgresEngine
    from perdure.engines.postgres.errors import ConnectionLost
    from perdure.engines.postgres.pack import bytes_of

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

SURROGATES = ("\ud83d", "a\udfffb")
# NUL, lone surrogates, and text that looks like an escape: `text`, `json` and `jsonb` refuse the first two.
HOSTILE = (*HOSTILE_NAMES, *SURROGATES, "a\0b", "\0", "\\000", "\\x00", "\\u0000", "\x01\x1f", "\U0010ffff")


class Trips:
    """Counts the waits for an answer of the server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, answer = 0, Connection._answer

        def counted(connection: Connection) -> object:
            self.count += 1
            return answer(connection)

        monkeypatch.setattr(Connection, "_answer", counted)


def test_a_write_is_one_round_trip_and_so_is_a_refusal(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write to a space, a later one, a repeated one and a refused one."""
    engine = open_engine()
    for number in range(9):  # statements are prepared after some uses
        engine.apply(write(f"warm {number}", space="warm"))
    trips, first = Trips(monkeypatch), made("milk")
    second = made("eggs", first)
    writes = [
        write(
            "op-1",
            first,
            moved(START, first),
            CellWrite(name="a", expected=0, value=b"1"),
            b"{}",
            value("x" * 9_999),
        ),
        write("op-2", second, moved(START, second)),
        write("op-1", first, moved(START, first)),
        write("op-3", Fence("a", 7)),
    ]
    counts: list[int] = []

    for each in writes:
        before = trips.count
        with suppress(PerdureError):
            engine.apply(each)
        counts.append(trips.count - before)

    assert counts == [1, 1, 1, 1]


def test_each_read_is_one_round_trip(open_engine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the history is and however much is returned."""
    engine, pen = open_engine(), Pen(open_engine())
    line = [
        pen.commit(f"item {number}", run=f"r{number // 3}", messages=[f"m-{number}"]) for number in range(40)
    ]
    tip = line[-1].digest
    reads = [
        lambda: engine.hold(SPACE, "main"),
        lambda: engine.holds(SPACE, limit=9),
        lambda: engine.moves(SPACE, "main", limit=30),
        lambda: engine.steps(SPACE, tip, skip=17, limit=20),
        lambda: engine.turn(SPACE, tip, 3),
        lambda: engine.labelled(SPACE, "m-7"),
        lambda: engine.commits(SPACE, tip[:7], limit=9),
        lambda: engine.objects(SPACE, [each.digest for each in line]),
        lambda: engine.recorded(SPACE, "main 7"),
        lambda: engine.entries(SPACE, limit=9),
        lambda: engine.cells(SPACE, limit=9),
        lambda: engine.writes(SPACE, limit=9),
        lambda: engine.steps(SPACE, tip, limit=20, bodies=True),
        lambda: engine.cells_of([SPACE, "never written"], "a"),
    ]
    trips = Trips(monkeypatch)

    for read in reads:
        read()

    assert trips.count == len(reads)


def test_many_questions_are_one_round_trip(open_engine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are sent before the first answer is awaited, as new statements and as prepared ones."""
    engine = open_engine()
    Pen(engine).commit("milk", messages=["m-1"])
    questions = [
        HeadOf(SPACE, "main"),
        CellOf(SPACE, "a"),
        LedgerOf(SPACE),
        OpOf(SPACE, "main 1"),
        LabelOf(SPACE, "m-1"),
        HeadOf("never written", "main"),
    ]
    waits: list[str] = []
    monkeypatch.setattr(Connection, "_send", noted(waits, "sent", Connection._send))
    monkeypatch.setattr(Connection, "_answer", noted(waits, "awaited", Connection._answer))
    sent = len(questions) + 2  # and the begin and the end of the transaction

    for _ in range(9):
        waits.clear()
        engine.answers(questions)

    assert waits == ["sent"] * sent + ["awaited"] * sent


class TestWhatIsReadBesideAHead:
    HEAD, BESIDE = (HeadOf(SPACE, "main"),), (CellOf(SPACE, "a"), LedgerOf(SPACE))

    def test_it_is_read_with_the_next_head(
        self, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Once it was asked for after a head; the answers are those of that head's moment."""
        engine, other = self._asked(open_engine), open_engine()
        trips = Trips(monkeypatch)
        engine.answers(self.HEAD)
        count = trips.count
        other.apply(write("of another", CellWrite(name="a", expected=1, value=b"2")))
        after = trips.count

        cell, _ = engine.answers(self.BESIDE, fresh=False)

        assert isinstance(cell, Cell)
        assert (count, trips.count - after, cell.revision) == (1, 0, 1)
        assert engine.cell(SPACE, "a") == Cell(SPACE, "a", 2, b"2", 0)

    def test_a_write_of_this_process_is_seen(self, open_engine: Opener) -> None:
        """What was read before it is not used."""
        engine = self._asked(open_engine)
        engine.answers(self.HEAD)
        engine.apply(write("own", CellWrite(name="a", expected=1, value=b"2"), b"{}"))

        cell, ledger = engine.answers(self.BESIDE, fresh=False)

        assert isinstance(cell, Cell)
        assert isinstance(ledger, LedgerRead)
        assert (cell.revision, ledger.position) == (2, 1)

    def test_what_is_asked_afresh_is_read(self, open_engine: Opener) -> None:
        """Only a caller that says so gets an earlier moment."""
        engine, other = self._asked(open_engine), open_engine()
        engine.answers(self.HEAD)
        other.apply(write("of another", CellWrite(name="a", expected=1, value=b"2")))

        cell, _ = engine.answers(self.BESIDE)

        assert isinstance(cell, Cell)
        assert cell.revision == 2

    def test_a_damaged_cell_is_no_fault_of_the_head(self, postgres: Server, open_engine: Opener) -> None:
        """The head is returned; who asks for the cell gets the error."""
        engine = self._asked(open_engine)
        postgres.sql(f"UPDATE perdure.cells SET value = 'edited' WHERE tenant = '{engine.facts()['tenant']}'")
        engine.apply(write("own", b"{}"))  # what was read before it is not used

        assert engine.answers(self.HEAD)

        with raises(Corrupt, "cell_damaged"):
            engine.answers(self.BESIDE, fresh=False)

    def _asked(self, open_engine: Opener) -> PostgresEngine:
        """An engine that was asked for a head and then for something beside it."""
        engine = open_engine()
        Pen(engine).commit("milk")
        engine.apply(write("cell", CellWrite(name="a", expected=0, value=b"1")))
        for _ in range(2):
            engine.answers(self.HEAD)
            engine.answers(self.BESIDE, fresh=False)
        return engine


def noted(notes: list[str], what: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method`, which then notes each of its calls."""

    def noting(*arguments: Any) -> Any:
        notes.append(what)
        return method(*arguments)

    return noting


def test_a_refused_question_leaves_no_transaction_open(open_engine: Opener) -> None:
    """Nor is the session used again: the statements after the refused one were never run."""
    engine = open_engine()
    with pytest.raises(Unavailable):
        engine._read(lambda connection: connection.ask_all([("SELECT 1", ()), ("SELECT nothing", ())]))

    assert engine.answers([HeadOf(SPACE, "side"), LedgerOf(SPACE)])[0] is None
    engine.apply(write("op"))


def test_a_refusal_leaves_no_error_in_the_servers_log(postgres: Server, open_engine: Opener) -> None:
    """An operator who looks for errors finds none that is everyday business."""
    engine, first = open_engine(f"{new_url()}&application_name=refused"), made("milk")
    engine.apply(write("op", first, moved(START, first), CellWrite(name="a", expected=0, value=b"1")))

    for number, part in enumerate(
        [Fence("a", 7), moved(START, first), begun("main", first), made("orphan", made("nowhere")), b"{}"]
    ):
        try:
            engine.apply(write("op" if part == b"{}" else f"op-{number}", part, intent="another"))
        except PerdureError:
            continue

    assert "refused:ERROR" not in postgres.log()
    with pytest.raises(Unavailable):
        engine._read(lambda connection: connection.ask("SELECT nothing"))
    assert "refused:ERROR" in postgres.log()


def check_names(
    names: Iterable[str], store: Callable[[str], object], listed: Callable[[], list[str]]
) -> None:
    """Check that a store takes each of these names, and lists all of them ordered by their bytes."""
    for name in names:
        store(name)

    assert listed() == sorted(names, key=bytes_of)


def test_any_text_is_stored_and_listed_in_order(open_engine: Opener) -> None:
    """NUL, lone surrogates and every hostile name: as spaces, timelines, cells, op_ids and bodies.

    A record of a move is JSON in UTF-8, so no engine takes a lone surrogate in the name of a timeline.
    """
    engine = open_engine()

    def store(name: str) -> None:
        cell = CellWrite(name=name, expected=0, value=b'"\\u0000 \0 \\ud83d"', listed=True)
        body = Object.of(Kind.BODY, name.encode("utf-8", "surrogatepass"))
        moves = [] if name in SURROGATES else [begun(name, None)]
        engine.apply(write(name, body, *moves, cell, b'"\0 \\u0000"', space=name, intent="any"))
        assert engine.recorded(name, name) is not None
        assert engine.objects(name, [body.digest])[0].body == body.body
        assert [hold.head.timeline for hold in engine.holds(name, limit=9)] == [name] * len(moves)
        assert [record.op_id for record in engine.moves(name, name, limit=9)] == [name] * len(moves)

    check_names(HOSTILE, store, lambda: list(engine.spaces(limit=99)))
    assert [cell.name for cell in engine.listed(prefix="", limit=99)] == sorted(HOSTILE, key=bytes_of)
    assert all(cell.name == cell.space for cell in engine.listed(prefix="", limit=99))


TAKEN_AS_TEXT = [name for name in HOSTILE if "\0" not in name and name not in SURROGATES]


@pytest.mark.parametrize(
    ("names", "order", "finds"),
    [
        (TAKEN_AS_TEXT, 'name COLLATE "C"', None),
        ([*TAKEN_AS_TEXT, "a\0b"], 'name COLLATE "C"', "DataError"),
        ([*TAKEN_AS_TEXT, *SURROGATES], 'name COLLATE "C"', "UnicodeEncodeError"),
        (TAKEN_AS_TEXT, "lower(name), name", "AssertionError"),
    ],
    ids=["what text takes", "NUL", "surrogates", "another order"],
)
def test_a_column_of_text_does_not_keep_every_name_in_order(
    names: list[str], order: str, finds: str | None, postgres: Server
) -> None:
    """Control: the same check finds what `text` refuses, and an order as in the collation of a language.

    A server need not have such a collation; what they share is that `a` is before `B`.
    """
    import psycopg

    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute("CREATE TEMP TABLE plain (name text)")

        def listed() -> list[str]:
            return [name for (name,) in db.execute(f"SELECT name FROM plain ORDER BY {order}".encode())]

        found: str | None = None
        try:
            check_names(names, lambda name: db.execute("INSERT INTO plain VALUES (%s)", (name,)), listed)
        except (AssertionError, UnicodeEncodeError, psycopg.DataError) as error:
            found = type(error).__name__

    assert found == finds


def check_views(engine: Engine, ask: Callable[[str], list[tuple[object, ...]]]) -> None:
    """Write every hostile text, and check that each row of each view can be read."""
    for name in HOSTILE:
        first = made("milk", messages=["m"])
        cell = CellWrite(name=name, expected=0, value=b'"\0 \\u0000 \\ud83d"')
        timeline = "plain" if name in SURROGATES else name
        engine.apply(write("op", first, begun(timeline, first), cell, b'"\0 \\ud83d"', space=name))

    where = f"WHERE tenant = '{engine.facts()['tenant']}'"
    for view, column in [
        ("timelines", "timeline"),
        ("records", "name"),
        ("ledger", "body"),
        ("state_commits", "space"),
    ]:
        rows = ask(f"SELECT {column} FROM perdure.{view} {where}")
        assert len(rows) == len(HOSTILE)
        assert all(isinstance(shown, str) for (shown,) in rows)
    shown = {str(name) for (name,) in ask(f"SELECT timeline FROM perdure.timelines {where}")}
    assert {"plain", "日本語", "𝄞", "a␀b", "\\x00"} <= shown


def test_no_view_fails_on_any_text(postgres: Server, open_engine: Opener) -> None:
    """Each row of each view can be read, whatever its names and values are."""
    check_views(open_engine(), postgres.sql)


def test_views_that_take_names_for_text_fail(postgres: Server, database: str, open_engine: Opener) -> None:
    """Control: the same check finds a view that reads bytes as UTF-8."""
    import psycopg

    engine = open_engine(postgres.url(database))
    postgres.sql(
        "CREATE OR REPLACE FUNCTION perdure.shown(value bytea) RETURNS text LANGUAGE sql IMMUTABLE "
        "AS $$ SELECT convert_from(value, 'UTF8') $$",
        database=database,
    )

    with pytest.raises(psycopg.DataError):
        check_views(engine, lambda sql: postgres.sql(sql, database=database))


def test_the_view_of_commits_has_the_turns_that_people_see(postgres: Server) -> None:
    """A turn without a message shares the number of the message before it, as in `log`."""
    url = new_url()
    with perdure.open(url) as store:
        thread = store.thread("trip", agent="planner")
        for number in range(4):
            thread.put("/n.json", number)
            with thread.change("said") as change:
                change.say("user", f"Hello {number}.")
        thread.fork("b", at="turn:2").put("/b.json", 1)
        thread.merge("b")
        expected = {commit.digest: commit.turn for commit in thread.log(limit=99)}

    rows = postgres.sql(
        f"SELECT hash, turn FROM perdure.state_commits WHERE tenant = '{url.rpartition('=')[2]}'"
    )

    found = {str(digest): turn for digest, turn in rows}
    assert {digest: found[digest] for digest in expected} == expected
    assert set(expected.values()) == {0, 1, 2, 3, 4}


def test_tenants_see_nothing_of_each_other(open_engine: Opener) -> None:
    """The same names in two tenants are two stores."""
    ours, theirs = open_engine(), open_engine(new_url())
    pen = Pen(theirs)
    tip = pen.commit("secret", messages=["m-1"])
    theirs.apply(write("op", CellWrite(name="a", expected=0, value=b"1", listed=True), b"{}"))

    assert list(ours.spaces(limit=9)) == []
    assert list(ours.listed(prefix="", limit=9)) == []
    assert ours.cell(SPACE, "a") is None
    assert ours.recorded(SPACE, "op") is None
    assert list(ours.missing(SPACE, [tip.digest])) == [tip.digest]
    assert list(ours.labelled(SPACE, "m-1")) == []
    assert list(ours.commits(SPACE, "", limit=9)) == []
    assert not ours.gone(theirs.holder())


def check_exhausted_pool(engine: PostgresEngine) -> None:
    """Check that a caller that waits too long for a connection is told so, and that the next one is served."""
    with ThreadPoolExecutor(1) as pool, engine._pool.connection():
        refused = pool.submit(engine.spaces, limit=9)
        with raises(Unavailable, "pool_exhausted", connections=1):
            refused.result()

    assert list(engine.spaces(limit=9)) == []


def test_an_exhausted_pool_is_named(open_engine: Opener) -> None:
    """The error has the number of connections, and the next caller is served."""
    check_exhausted_pool(open_engine(f"{new_url()}&pool_max=1", wait_seconds=0.2))


def test_an_exhausted_pool_that_looks_like_a_lost_server_is_found(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the same check finds an error that does not say what there is none of."""
    monkeypatch.setattr(connections, "Unavailable", lambda *_, **__: ConnectionLost("no connection"))

    with pytest.raises(AssertionError):
        check_exhausted_pool(open_engine(f"{new_url()}&pool_max=1", wait_seconds=0.2))


def test_a_read_only_server_is_named(postgres: Server, open_engine: Opener) -> None:
    """A standby answers questions and refuses writes; the error says why."""
    url = new_url()
    open_engine(url).apply(write("op"))
    role = f"standby_{url.rpartition('=')[2][:12]}"
    postgres.sql(
        f"CREATE ROLE {role} LOGIN SUPERUSER", f"ALTER ROLE {role} SET default_transaction_read_only = on"
    )
    engine = open_engine(url.replace("postgres@", f"{role}@"))

    with raises(Unavailable, "server_read_only"):
        engine.apply(write("op-2"))

    assert list(engine.spaces(limit=9)) == [SPACE]
    engine.close()
    postgres.sql(f"DROP ROLE {role}")


def test_a_session_that_was_ended_is_replaced(postgres: Server, open_engine: Opener) -> None:
    """An operator who ends a session interrupts neither reads nor writes, and no holder is gone by it."""
    url = f"{new_url()}&application_name=ended"
    engine, other = open_engine(url), open_engine(url)
    pen, name = Pen(engine), engine.holder()
    pen.commit("milk")

    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ended'")

    pen.commit("eggs")
    assert not other.gone(name)
    assert len(engine.commits(SPACE, "", limit=9)) == 2


def test_nothing_is_prepared_behind_a_pooler(open_engine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler the next statement may meet another session; on a session of its own statements are prepared."""
    counts: list[object] = []
    for is_pooled in (True, False):
        monkeypatch.setattr(Connection, "is_pooled", lambda _, is_pooled=is_pooled: is_pooled)
        engine = open_engine(new_url())
        pen = Pen(engine)
        for number in range(9):
            pen.commit(f"item {number}")
        with engine._pool.connection() as connection:
            counts += connection.ask(
                "SELECT count(*) > 0, current_setting('plan_cache_mode') FROM pg_prepared_statements"
            )

    assert counts == [(False, "auto"), (True, "force_generic_plan")]


def test_a_stopped_client_holds_nobody_up(tmp_path: Path, open_engine: Opener) -> None:
    """A process that is stopped in the middle of writing leaves no lock: others write to its spaces at once."""
    engine, draw = open_engine(url_in(tmp_path)), random.Random(7)
    with child(PostgresSubject, tmp_path, "go_on") as other:
        other.answer()
        for number in range(8):
            time.sleep(draw.uniform(0, 0.03))
            other.process.send_signal(signal.SIGSTOP)
            begun_at = time.monotonic()

            for space in ("space-0", "space-1"):
                engine.apply(write(f"beside {number}", value(f"{number}"), space=space))

            assert time.monotonic() - begun_at < 10
            other.process.send_signal(signal.SIGCONT)
        written = [answer.receipt for answer in other.kill() if answer.receipt]

    assert len(written) > 1


def test_a_frozen_server_costs_a_deadline(open_engine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts a statement and never answers is an error, not a hang."""
    engine = open_engine(wait_seconds=0.5)
    monkeypatch.setattr("perdure.engines.postgres.connections.ANSWER_SECONDS", 0.3)
    begun_at = time.monotonic()

    with raises(Unavailable, "server_lost"):
        engine._read(lambda connection: connection.ask("SELECT 1 FROM pg_sleep(60)"))

    assert time.monotonic() - begun_at < 30


class TestWhoIsGone:
    def test_a_missing_lock_file_proves_nothing(self, open_engine: Opener) -> None:
        """Containers share a boot id and not their files."""
        engine, other = open_engine(), open_engine()
        name = engine.holder()
        path = engine._presence._directory / name
        path.rename(path.with_name("away"))

        assert not other.gone(name)

        path.with_name("away").rename(path)

    @pytest.mark.parametrize("part", [1, 2, 3], ids=["device", "inode", "boot"])
    def test_another_file_or_host_of_that_name_proves_nothing(self, part: int, open_engine: Opener) -> None:
        """The very file that the holder locked must be seen, by device and inode, since the same start of this host."""
        engine, other = open_engine(), open_engine()
        name, directory = self._free(engine), engine._presence._directory
        parts = name.split("-")
        parts[part] = f"{int(parts[part], 16) ^ 1:0{len(parts[part])}x}"
        (directory / name).rename(directory / "-".join(parts))

        assert not other.gone("-".join(parts))

        (directory / "-".join(parts)).unlink()

    def test_a_directory_of_another_user_proves_nothing(
        self, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who may write there could make a living process look as if it had ended."""
        engine, other = open_engine(), open_engine()
        name = self._free(engine)
        monkeypatch.setattr("perdure.engines.postgres.presence.os.getuid", lambda: 12_345)

        assert not other.gone(name)
        with raises(Unavailable, "marks_not_writable"):
            other.holder()

    def test_a_free_lock_on_this_host_is_proof_and_is_noted(
        self, postgres: Server, open_engine: Opener
    ) -> None:
        """Control of those above; afterwards every host can know it."""
        engine, other = open_engine(), open_engine()
        name = self._free(engine)

        assert other.gone(name)

        assert postgres.sql(f"SELECT 1 FROM perdure.holders WHERE name = '{name}'")

    def _free(self, engine: PostgresEngine) -> str:
        """Return the name of a holder whose lock is free, as if its process had been killed."""
        name = engine.holder()
        mark = engine._presence._here._mark
        assert mark is not None
        os.close(mark.file)
        engine._presence._here._mark = None
        return name


def test_an_opening_counts_what_it_does(open_engine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits, repeated writes, conflicts, retries and round trips; reading the numbers asks nothing."""
    engine = open_engine()
    engine.apply(write("first", b"{}"))
    before, trips = engine.counters(), Trips(monkeypatch)

    engine.apply(write("one", b"{}"))
    engine.apply(write("one", b"{}"))
    with suppress(PerdureError):
        engine.apply(write("two", Fence("never", 7)))
    with engine._pool.connection() as connection:
        connection.close()
    engine.standing(SPACE)

    after = engine.counters()
    counted = {name: after[name] - before[name] for name in after}
    assert {name: counted[name] for name in ("commits", "repeated", "conflicts", "in_doubt")} == {
        "commits": 1,
        "repeated": 1,
        "conflicts": 1,
        "in_doubt": 0,
    }
    assert counted["round_trips"] == trips.count
    assert counted["connections"] == 1
