"""A commit on an end that this process knows goes by a short statement, which stores what the general function stores."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import perdure
from perdure.engines.contract import CellWrite, Fence
from perdure.errors import Corrupt, Moved, StaleHead
from perdure.model.digest import Digest
from perdure.testing.engines.builders import SPACE, Pen, made, moved, write
from tests.coded import raises
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    import psycopg

    from perdure.engines.postgres import engine as engine_module
    from perdure.engines.postgres.commit import write as write_module
    from perdure.engines.postgres.commit.next_commit import NEXT
    from perdure.engines.postgres.commit.write import RecentObject
    from perdure.engines.postgres.connections import Connection

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

# Everything that is stored, but for the number of the space, which is another one in each store.
STORED = (
    (
        "SELECT l.row_id, l.sequence, l.run, l.position, l.prev, l.jump, l.depth, l.turn, l.events, l.unnumbered, l.digest, "
        "l.op_id, l.intent, l.chain, l.previous, l.dropped, l.needs, l.pack, l.state, l.link FROM perdure.log l "
        "WHERE l.tenant = '{0}' ORDER BY l.space, l.row_id"
    ),
    "SELECT key, row_id FROM perdure.keys WHERE tenant = '{0}' AND space <> 0 ORDER BY key, row_id",
    "SELECT timeline, version, commit, sealed, move, row_id, record FROM perdure.heads WHERE tenant = '{0}' ORDER BY space, timeline",
    "SELECT name, rows, position, chain, generation, seal, link FROM perdure.spaces WHERE tenant = '{0}' ORDER BY id",
)


class FixedBases:
    """What writes may be stored against, as it was at a moment."""

    def __init__(self, found: tuple[int, str, dict[Digest, RecentObject]]) -> None:
        self._found = found[0], found[1], dict(found[2])

    def of(self, _space: str) -> tuple[int, str, dict[Digest, RecentObject]]:
        """Return it."""
        return self._found

    def after(self, row: int) -> FixedBases:
        """Return the same objects as if another thread had written them after a row."""
        generation, clock, found = self._found
        later = {
            name: replace(each, row=row + 1, chain=(*each.chain[:-1], row + 1))
            for name, each in found.items()
        }
        return FixedBases((generation, clock, later))


def is_short(sql: str) -> bool:
    """True if this is one of the short statements."""
    return sql in NEXT.values()


class Sent:
    """Notes which statements are sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        send = Connection._send

        def noted(connection: Connection, sql: str, parameters: Any) -> None:
            self.statements.append(sql)
            send(connection, sql, parameters)

        monkeypatch.setattr(Connection, "_send", noted)

    @property
    def short(self) -> int:
        """How many were the short one."""
        return sum(is_short(sql) for sql in self.statements)


def tell(pen: Pen, commits: int) -> None:
    """Write a history with runs and messages."""
    for number in range(commits):
        pen.commit(f"{number}", run=f"r{number // 3}" if number % 5 else None, messages=[f"m-{number}"])


def talk(url: str, turns: int) -> None:
    """Write a thread in which everything is the same each time: values that grow, runs, changes by hand, a fork."""
    times, ids = count(1_700_000_000_000_000), (f"id-{number}" for number in count())
    with perdure.open(url, clock=lambda: next(times), ids=lambda: next(ids)) as store:
        thread = store.thread("trip", agent="planner")
        for number in range(turns):
            with thread.change("said", run=None if number % 4 == 0 else f"r{number // 3}") as change:
                change.say("user", f"Turn {number}.")
                change.put(f"/notes/{number % 3}.json", [f"note {each}" for each in range(number)])
            if number % 7 == 0:
                thread.put("/by-hand.json", number)
        fork = thread.fork("b", at="turn:3")
        fork.put("/notes/fork.json", 1)
        fork.put("/notes/fork.json", 2)
        thread.put("/last.json", 3)


def test_a_second_commit_is_followed_by_short_ones(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first begins the line, the second says where it stands, and all others are one short statement each."""
    pen = Pen(open_engine())
    sent = Sent(monkeypatch)

    tell(pen, 40)

    assert sent.short == 38
    assert len(sent.statements) == 40


def test_the_short_statement_stores_what_the_function_stores(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every column of every row is the same, and the seal too."""
    urls, sent = (new_url(), new_url()), Sent(monkeypatch)
    talk(urls[0], 30)
    used = sent.short
    monkeypatch.setattr(engine_module, "prepare_next", lambda *_: None)

    talk(urls[1], 30)

    short, general = ([postgres.sql(each.format(url.rpartition("=")[2])) for each in STORED] for url in urls)
    assert short == general
    assert used > 30
    assert sent.short == used


def test_nothing_is_stored_against_rows_after_the_known_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes over may lack them, and only the general function asks it; control: it may be the last row."""
    prepare, asked = engine_module.prepare_next, list[tuple[Any, ...]]()

    def noted(*asking: Any) -> object:
        found = prepare(*asking)
        if found is not None and any(found.states[0].chains):
            asked.append((*asking[:2], FixedBases(asking[2].of(asking[1].space)), asking[3]))
        return found

    monkeypatch.setattr(engine_module, "prepare_next", noted)
    talk(new_url(), 30)

    assert len(asked) > 10
    for tenant, wanted, bases, end in asked:
        assert prepare(tenant, wanted, bases, end) is not None
        assert prepare(tenant, wanted, bases.after(end.rows), end) is None


def test_a_write_of_another_process_is_noticed(open_engine: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short statement changes nothing then; the write is sent in full and is refused as stale."""
    first, other = Pen(open_engine()), open_engine()
    tell(first, 4)
    rival = made("of another", first.tip)
    other.apply(write("of another", rival, moved(first.head, rival)))
    sent = Sent(monkeypatch)

    with pytest.raises(StaleHead):
        first.commit("late")

    assert sent.short == 1
    engine = open_engine()
    engine.check(SPACE, again=True)
    assert engine.standing(SPACE) == 5


def test_where_others_write_too_the_short_statement_rests(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a miss the next sixteen writes are sent in full at once, so that few writes need two round trips."""
    pen, other = Pen(open_engine()), open_engine()
    tell(pen, 4)
    other.apply(write("of another", CellWrite(name="a", expected=0, value=b"1")))
    sent = Sent(monkeypatch)

    for number in range(20):
        pen.commit(f"later {number}")

    assert len(sent.statements) == 21
    short = [number for number, sql in enumerate(sent.statements) if is_short(sql)]
    assert short[:2] == [0, 18]


@pytest.mark.parametrize("wrong", [None, 0, 1], ids=["right", "first wrong", "second wrong"])
@pytest.mark.parametrize("fences", [0, 1, 2])
def test_the_short_statement_compares_each_fence(
    fences: int, wrong: int | None, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that is at another revision than the writer read refuses the write, as in the general function."""
    engine = open_engine()
    pen, names = Pen(engine), ("a", "b")
    engine.apply(write("cells", *[CellWrite(name=name, expected=0, value=b"1") for name in names]))
    tell(pen, 4)
    held = [Fence(name, 1 if at != wrong else 0) for at, name in enumerate(names)][:fences]
    last, sent = made("last", pen.tip), Sent(monkeypatch)

    if wrong is not None and wrong < fences:
        with pytest.raises(Moved):
            engine.apply(write("op", last, moved(pen.head, last), *held))
    else:
        engine.apply(write("op", last, moved(pen.head, last), *held))
        assert len(sent.statements) == 1

    assert sent.short == 1


@pytest.mark.parametrize("is_written", [True, False], ids=["wrote", "wrote nothing"])
def test_a_writer_that_has_the_space_is_waited_for(
    is_written: bool, postgres: Server, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it wrote, the short statement changes nothing and the write is sent in full; if not, the short one has made it."""
    url = new_url()
    pen, sent = Pen(open_engine(f"{url}&application_name=waits")), Sent(monkeypatch)
    tell(pen, 4)
    sent.statements.clear()

    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres.url()) as other:
        other.execute(
            "UPDATE perdure.spaces SET rows = rows + %s WHERE tenant = %s",
            (int(is_written), url.rpartition("=")[2]),
        )
        done = pool.submit(pen.commit, "after")
        while postgres.sql(_WAITING) != [(1,)]:
            assert not done.done()
            time.sleep(0.01)
        other.commit()
        done.result(20)

    assert [is_short(sql) for sql in sent.statements] == ([True, False] if is_written else [True])
    assert open_engine(url).standing(SPACE) == 5 + is_written


_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waits' AND wait_event_type = 'Lock'"
)


@pytest.mark.parametrize(
    ("flag", "fields", "is_digest"), [(0, 9, True), (32, 10, False)], ids=["before", "since"]
)
def test_a_client_that_had_the_store_open_is_answered_as_before(
    flag: int, fields: int, is_digest: bool, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since version 16 the answer has the link and the record of the move, but not for a client that does not ask."""
    answers, call = list[Any](), Connection.call
    monkeypatch.setattr(Connection, "call", lambda *asked: answers.append(found := call(*asked)) or found)
    monkeypatch.setattr(write_module, "_LINK", flag)
    monkeypatch.setattr(engine_module, "end_after", lambda *_: None)
    pen = Pen(open_engine())

    tell(pen, 2)

    *_, place, record = answers[-1][0]
    assert len(place.split(" ")) == fields
    assert (len(record) == 32) == is_digest


class TestAnEditedSeal:
    def test_the_edit_is_still_found(self, postgres: Server, open_engine: Opener) -> None:
        """A commit after it does not put the old seal back."""
        url = new_url()
        pen = self._edited(postgres, open_engine, url)

        pen.commit("after")

        with raises(Corrupt, "seal_broken"):
            open_engine(url).check(SPACE, again=True)

    def test_without_the_comparison_the_edit_would_be_covered(
        self, postgres: Server, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The control: the seal that this process knows is written over the edited one."""
        url = new_url()
        pen = self._edited(postgres, open_engine, url)
        blind = {
            fences: sql.replace("s.seal = $5::numeric", "$5::numeric IS NOT NULL")
            for fences, sql in NEXT.items()
        }
        monkeypatch.setattr(engine_module, "NEXT", blind)

        pen.commit("after")

        open_engine(url).check(SPACE, again=True)

    def _edited(self, postgres: Server, open_engine: Opener, url: str) -> Pen:
        pen = Pen(open_engine(url))
        tell(pen, 4)
        postgres.sql(f"UPDATE perdure.spaces SET seal = seal + 1 WHERE tenant = '{url.rpartition('=')[2]}'")
        return pen


def test_a_prepared_statement_takes_a_number_where_it_had_none(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server gives a parameter its type when it prepares: commits after an edit follow commits without one."""
    sent = Sent(monkeypatch)
    with perdure.open(new_url()) as store:
        plain, edited = store.thread("plain", agent="a"), store.thread("edited", agent="a")
        edited.put("/by-hand.json", 1)
        for thread in (plain, edited):
            for number in range(6):
                with thread.change("said") as change:
                    change.say("user", f"Turn {number}.")

        assert len(edited.transcript()) == 6
        assert store.verify().ok
    assert sent.short >= 8
