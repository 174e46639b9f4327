"""A tenant learns nothing of another, and changes nothing of it, whatever it names and whoever pools its connections.

Each try is made twice: in the database where the other tenant is, by a role to which row security applies, and in one
where only this tenant ever was.  Both must come to the same, so not even the presence of a name shows.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import pytest

from perdure.engines.contract import (
    CellOf,
    CellWrite,
    Engine,
    Fence,
    HeadOf,
    LabelOf,
    LedgerOf,
    Move,
    OpOf,
    Rebuilt,
)
from perdure.errors import PerdureError
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.head import Head
from perdure.testing.engines.builders import START, Made, Part, Pen, made, moved, portrait, value, write
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.pooler import PGBOUNCER, bouncing, pooling
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import GRANTS

if TYPE_CHECKING or not MISSING:
    import psycopg

    from perdure.engines.postgres.connections import Connection, parse_address
    from perdure.engines.postgres.engine import PostgresEngine
    from perdure.engines.postgres.schema import ROW_SECURITY

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

TRIES = 10_000 if os.environ.get("PERDURE_DEEP") else 200
SPACES = ("thread-1", "store", "secret/plans", "%", "a\0b")
SECRET = "the other tenant's secret"
Try: TypeAlias = Callable[[Engine], object]


def filled(engine: Engine, text: str, spaces: tuple[str, ...] = SPACES) -> list[Made]:
    """Write something of every kind to each space; return the commits."""
    commits: list[Made] = []
    for space in spaces:
        pen = Pen(engine, space=space)
        commits.append(pen.commit(text, messages=[f"message {text}"], run=f"run {text}"))
        commits.append(pen.commit(f"{text} again"))
        pen.fork(f"line {text}")
        engine.apply(
            write(
                f"op {text}",
                CellWrite(name=f"deadline/{text}", expected=0, value=text.encode(), listed=True),
                CellWrite(name="alive", expected=0, value=text.encode()),
                value(text),
                value(f"{text} large" * 999),
                b'"%s"' % text.encode(),
                space=space,
            )
        )
    return commits


class Guesses:
    """Tries of every call of the contract, with names and digests of the other tenant, parts of them, and wildcards."""

    def __init__(self, seed: int, *, theirs: list[Made], holder: str) -> None:
        self.draw, self._theirs, self._holder = random.Random(seed), theirs, holder
        digests = [each.digest for made_ in theirs for each in made_.objects]
        self._digests = [*digests, value(SECRET).digest, Digest("0" * 64)]
        self._names = [
            *SPACES,
            f"op {SECRET}",
            f"deadline/{SECRET}",
            f"message {SECRET}",
            f"run {SECRET}",
            f"line {SECRET}",
            "main",
            "main 1",
            "alive",
            "deadline/",
            holder,
        ]

    def name(self) -> str:
        """Return a name of theirs, a part of one, a pattern or anything."""
        draw, found = self.draw, self.draw.choice(self._names)
        match draw.randrange(6):
            case 0:
                return found[: draw.randrange(len(found) + 1)] or "x"
            case 1:
                return draw.choice(
                    ("%", "_", "*", "\0", "\\", "'", "' OR '1'='1", "\ud83d", "\U0010ffff", ".*")
                )
            case 2:
                return found[: draw.randrange(len(found) + 1)] + draw.choice("%_*\0?")
            case 3:
                return "".join(draw.choices("ab%_/\0'\"é", k=draw.randrange(1, 6)))
            case _:
                return found

    def space(self) -> str:
        """Return mostly a space of theirs."""
        return self.draw.choice(SPACES) if self.draw.random() < 0.6 else self.name()

    def digest(self) -> Digest:
        return self.draw.choice(self._digests)

    def prefix(self) -> str:
        return self.draw.choice(("", "%", "_", self.digest()[: self.draw.randrange(12)]))

    def number(self) -> int:
        return self.draw.choice((-1, 0, 0, 1, 1, 2, 3, 1 << 40))

    def write(self) -> Try:
        """Return a write that names what is theirs: fences, cells, heads to move from and to, parents, op_ids."""
        draw, parts, theirs = self.draw, list[Part](), self.draw.choice(self._theirs)
        name, other = self.name(), self.name()
        head = Head(
            self.draw.choice(("main", name)), max(self.number(), 0), draw.choice((None, self.digest()))
        )
        choices: tuple[Part, ...] = (
            Fence(name, max(self.number(), 0)),
            CellWrite(
                name=other, expected=max(self.number(), 0), value=draw.choice((None, b"mine")), listed=True
            ),
            moved(head, draw.choice((None, self.digest()))),
            moved(START, theirs.digest),
            Move(act=Act.FORK, timeline=name, expected=None, to=self.digest()),
            made("after theirs", theirs),
            theirs,
            value("near theirs", base=value(SECRET)),
            b'"mine"',
        )
        parts += draw.sample(choices, draw.randrange(1, 4))
        wanted, space = draw.choice((name, f"op {draw.random()}")), self.space()
        return lambda engine: engine.apply(write(wanted, *parts, space=space, intent="a guess"))

    def calls(self) -> Mapping[str, Callable[[], Try]]:
        """Return for each method of the contract how a try of it is made."""
        name, space, digest, number, draw = self.name, self.space, self.digest, self.number, self.draw
        return {
            "apply": self.write,
            "recorded": lambda: _call("recorded", space(), name()),
            "answers": lambda: _call(
                "answers",
                (
                    HeadOf(space(), name()),
                    CellOf(space(), name()),
                    LedgerOf(space()),
                    OpOf(space(), name()),
                    LabelOf(space(), name()),
                ),
            ),
            "objects": lambda: _call("objects", space(), [digest() for _ in range(draw.randrange(1, 3))]),
            "missing": lambda: _call("missing", space(), [digest(), digest()]),
            "steps": lambda: _call("steps", space(), digest(), skip=max(number(), 0), limit=9, bodies=True),
            "events": lambda: _call("events", space(), digest(), limit=9, bodies=True),
            "turn": lambda: _call("turn", space(), digest(), number()),
            "labelled": lambda: _call("labelled", space(), name()),
            "commits": lambda: _call("commits", space(), self.prefix(), limit=99),
            "hold": lambda: _call("hold", space(), name()),
            "holds": lambda: _call("holds", space(), after=draw.choice(("", name())), limit=99),
            "moves": lambda: _call("moves", space(), name(), before=draw.choice((None, 9)), limit=99),
            "cell": lambda: _call("cell", space(), name()),
            "cells": lambda: _call(
                "cells", space(), prefix=draw.choice(("", name())), descending=draw.random() < 0.5, limit=99
            ),
            "cells_of": self._cells_of,
            "listed": lambda: _call(
                "listed",
                prefix=draw.choice(("", name())),
                after=draw.choice((("", ""), (name(), name()))),
                limit=99,
            ),
            "entries": lambda: _call(
                "entries", space(), after=max(number(), 0), descending=draw.random() < 0.5, limit=99
            ),
            "ledger": lambda: _call("ledger", space()),
            "check": lambda: _call("check", space(), again=draw.random() < 0.5),
            "reseal": lambda: _call(
                "reseal", space(), [Rebuilt(name=name(), value=b"mine")] * draw.randrange(2)
            ),
            "spaces": lambda: _call("spaces", after=draw.choice(("", name())), limit=99),
            "scan": lambda: _call("scan", space(), after=max(number(), 0), limit=99),
            "writes": lambda: _call("writes", space(), after=max(number(), 0), limit=99),
            "stored_cells": lambda: _call("stored_cells", space(), after=draw.choice(("", name())), limit=99),
            "standing": lambda: _call("standing", space()),
            "wait": lambda: _call("wait", {space(): -1, space(): 0}, 0),
            "forget": self._forget,
            "drop": lambda: _call("drop", space(), why="too old"),
            "gone": lambda: _call("gone", draw.choice((self._holder, name()))),
        }

    def _cells_of(self) -> Try:
        spaces, name = [self.space(), self.space()], self.name()
        return lambda engine: sorted(
            engine.cells_of(spaces, name), key=lambda cell: cell.space
        )  # in any order

    def _forget(self) -> Try:
        space, digests = self.space(), [self.digest(), self.digest()]
        return lambda engine: engine.forget(space, digests, why="old", standing=engine.standing(space))


def _call(method: str, /, *arguments: Any, **options: Any) -> Try:
    return lambda engine: getattr(engine, method)(*arguments, **options)


def outcome(attempt: Try, engine: Engine) -> object:
    """Return what a call returns, or the kind, code and words of what it raises."""
    try:
        return attempt(engine)
    except PerdureError as error:
        return type(error), error.code, str(error)


def test_every_call_of_the_contract_is_tried() -> None:
    """What is left out takes no name, or answers about this process."""
    calls = {name for name in vars(Engine) if not name.startswith("_")}

    tried = set(Guesses(0, theirs=[], holder="").calls())

    assert calls - tried == {"instant", "holder", "backup", "facts", "counters", "close"}


class Shared:
    """A database that tenants share, and a role to which row security applies."""

    def __init__(self, server: Server, *, partitions: str) -> None:
        self.server, self.role, self.database = server, f"r{uuid4().hex[:12]}", f"d{uuid4().hex[:12]}"
        server.sql(f"CREATE ROLE {self.role} LOGIN", f"CREATE DATABASE {self.database} TEMPLATE template0")
        url = f"{server.url(self.database)}{partitions}"
        PostgresEngine(parse_address(url, read_only=False)).close()
        self.sql(*[grant.format(role=self.role) for grant in GRANTS])

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        return self.server.sql(*statements, database=self.database)

    def url(self, *, tenant: str, pooler: str = "") -> str:
        return f"{pooler or self.server.url(self.database, user=self.role)}&tenant={tenant}"

    def client(self, pooler: str = "") -> psycopg.Connection[Any]:
        """Return a session of the role with SQL of its own."""
        return psycopg.connect(pooler or self.server.url(self.database, user=self.role), autocommit=True)

    def remove(self) -> None:
        self.server.sql(f"DROP DATABASE {self.database} WITH (FORCE)", f"DROP ROLE {self.role}")


@pytest.fixture(scope="module", params=["", "&partitions=3"], ids=["plain", "partitioned"])
def shared(request: pytest.FixtureRequest, postgres: Server) -> Iterator[Shared]:
    """A database that tenants share."""
    made_ = Shared(postgres, partitions=request.param)
    yield made_
    made_.remove()


@pytest.fixture
def ours() -> str:
    """The name of one tenant."""
    return f"ours-{uuid4().hex[:8]}"


@pytest.fixture
def theirs() -> str:
    """The name of the other."""
    return f"theirs-{uuid4().hex[:8]}"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose name is short enough for a socket, and which the server's user may enter."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.mark.parametrize("way", ["directly", "pooler", "pgbouncer"])
def test_no_guess_shows_or_changes_anything_of_another_tenant(
    way: str, shared: Shared, place: Path, ours: str, theirs: str, open_engine: Opener
) -> None:
    """Every answer and every refusal is what it would be if the other tenant did not exist."""
    if way == "pgbouncer" and PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed")
    with ExitStack() as stack:
        url = ""
        if way != "directly":
            pooler = {"pooler": pooling, "pgbouncer": bouncing}[way]
            url = stack.enter_context(
                pooler(shared.server, place, database=shared.database, user=shared.role)
            )
        victim, guesser, departed = (
            stack.enter_context(closing(open_engine(shared.url(tenant=name, pooler=url))))
            for name in (theirs, ours, theirs)
        )
        holder, alone = departed.holder(), open_engine()
        departed.close()
        assert victim.gone(holder)
        guesses = Guesses(7, theirs=filled(victim, SECRET), holder=holder)
        before = [portrait(victim, space) for space in SPACES]
        for engine in (guesser, alone):
            filled(engine, "mine", SPACES[:2])
        calls = [make for name, make in guesses.calls().items() if hasattr(guesser, name)]

        for number in range(TRIES):
            attempt = guesses.draw.choice(calls)()
            assert outcome(attempt, guesser) == outcome(attempt, alone)
            if number % 20 == 0:  # a transaction of the other tenant goes in between
                assert len(victim.cells(SPACES[0], limit=9)) == 2

        assert [portrait(victim, space) for space in SPACES] == before
        for space in SPACES:
            victim.check(space, again=True)


def test_a_guess_that_finds_something_would_show(shared: Shared, theirs: str, open_engine: Opener) -> None:
    """Control: made in the other tenant's own store, tries of every call come to something else."""
    victim, alone = open_engine(shared.url(tenant=theirs)), open_engine()
    guesses = Guesses(7, theirs=filled(victim, SECRET), holder="nobody")

    silent = {
        name
        for name, make in guesses.calls().items()
        if hasattr(victim, name)
        and not any(outcome(attempt, victim) != outcome(attempt, alone) for attempt in _some(make))
    }

    assert silent == {"check", "reseal", "gone"}  # nothing is damaged, and nobody is gone


def _some(make: Callable[[], Try]) -> Iterator[Try]:
    return (make() for _ in range(400))


_TABLES = (
    "SELECT c.oid::regclass::text, c.relkind IN ('r', 'p'), c.relforcerowsecurity FROM pg_class c JOIN pg_attribute a "
    "ON a.attrelid = c.oid AND a.attname = 'tenant' WHERE c.relnamespace = 'perdure'::regnamespace "
    "AND c.relkind IN ('r', 'p', 'v')"
)


def test_row_security_is_forced_on_every_table_and_view(
    shared: Shared, ours: str, theirs: str, open_engine: Opener
) -> None:
    """SQL of one's own sees and changes the rows of the tenant that the transaction names, and of no other."""
    engines = [open_engine(shared.url(tenant=name)) for name in (ours, theirs)]
    for engine in engines:
        filled(engine, "text", SPACES)
        engine.holder()
    tables = shared.sql(_TABLES)

    with shared.client() as db:
        unnamed = [db.execute(f"SELECT 1 FROM {name} LIMIT 1".encode()).fetchall() for name, _, _ in tables]
        with db.transaction():
            db.execute("SELECT set_config('perdure.tenant', %s, true)", (ours,))
            seen = [
                db.execute(f"SELECT DISTINCT tenant FROM {name}".encode()).fetchall() for name, _, _ in tables
            ]
            taken = [
                db.execute(f"DELETE FROM {name} WHERE tenant <> '{ours}'".encode()).rowcount
                for name, is_table, _ in tables
                if is_table
            ]
            with pytest.raises(psycopg.errors.InsufficientPrivilege), db.transaction():
                db.execute("INSERT INTO perdure.spaces (tenant, name) VALUES (%s, 'mine')", (theirs,))

    assert all(forced for _, is_table, forced in tables if is_table)
    assert unnamed == [[]] * len(tables)
    assert {tuple(each) for each in seen} <= {((ours,),), ()}
    assert seen.count([(ours,)]) >= 10
    assert set(taken) == {0}
    for engine in engines:
        assert len(engine.spaces(limit=9)) == len(SPACES)
        engine.close()


_NAMED = {
    "session": "SET perdure.tenant = '{}'",
    "transaction": "SELECT set_config('perdure.tenant', '{}', true)",
}


@pytest.mark.parametrize("scope", _NAMED)
def test_a_tenant_named_for_the_session_leaks_through_a_pooler(
    scope: str, shared: Shared, place: Path, theirs: str, open_engine: Opener
) -> None:
    """Control: what one client sets for its session, the next one has; what it sets for a transaction ends with it."""
    filled(open_engine(shared.url(tenant=theirs)), SECRET)
    with pooling(shared.server, place, database=shared.database, user=shared.role) as url:
        with shared.client(url) as client:
            client.execute(_NAMED[scope].format(theirs).encode())
        with shared.client(url) as client:
            seen = client.execute("SELECT value FROM perdure.cells").fetchall()

    assert ((SECRET.encode(),) in seen) == (scope == "session")


def test_a_tied_role_sees_its_tenant_only(
    shared: Shared, ours: str, theirs: str, open_engine: Opener
) -> None:
    """It may name another tenant, and finds nothing there; tables that come later are tied too."""
    for tenant in (ours, theirs):
        filled(open_engine(shared.url(tenant=tenant)), SECRET)
    for _ in range(2):  # tying again changes nothing
        shared.sql(f"SELECT perdure.tie_role('{shared.role}', '{ours}')")
    shared.sql(
        "CREATE TABLE perdure.later (tenant text)",
        f"INSERT INTO perdure.later VALUES ('{theirs}')",
        ROW_SECURITY,
    )
    shared.sql(f"GRANT SELECT ON perdure.later TO {shared.role}")
    tables = shared.sql(_TABLES)

    try:
        with shared.client() as db:
            db.execute(f"SET perdure.tenant = '{theirs}'".encode())
            rows = [db.execute(f"SELECT 1 FROM {name} LIMIT 1".encode()).fetchall() for name, _, _ in tables]
        spaces = [open_engine(shared.url(tenant=tenant)).spaces(limit=9) for tenant in (ours, theirs)]
    finally:
        shared.sql("DROP TABLE perdure.later")
        ((number,),) = shared.sql(f"SELECT '{shared.role}'::regrole::oid::text")
        shared.sql(
            *[
                f'DROP POLICY "tied {number}" ON {name}'
                for name, is_table, _ in tables
                if is_table and name != "perdure.later"
            ]
        )

    assert rows == [[]] * len(tables)
    assert spaces == [sorted(SPACES), []]


def test_a_role_that_may_pass_row_security_names_no_tenant(open_engine: Opener) -> None:
    """The engine compares the tenant itself."""
    with open_engine()._pool.connection() as connection:
        assert connection.ask(_SETTING) == [(None,)]


@pytest.mark.parametrize("way", ["directly", "pooler"])
def test_a_session_of_its_own_names_its_tenant_once(
    way: str, shared: Shared, place: Path, ours: str, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read is then one statement; behind a pooler each transaction names the tenant, and none after it has the name."""
    with ExitStack() as stack:
        url = ""
        if way == "pooler":
            url = stack.enter_context(
                pooling(shared.server, place, database=shared.database, user=shared.role)
            )
        engine = stack.enter_context(closing(open_engine(shared.url(tenant=ours, pooler=url))))
        sent, send = list[str](), Connection._send
        monkeypatch.setattr(
            Connection, "_send", lambda db, sql, given: sent.append(sql) or send(db, sql, given)
        )
        engine.standing("space")
        with engine._pool.connection() as connection:
            ((named,),) = connection.call(_SETTING)

    assert len(sent) == (2 if way == "directly" else 3)
    assert named == (ours if way == "directly" else "")


_SETTING = "SELECT current_setting('perdure.tenant', true)"
