"""Each write on a server is bound to the write before it, so no row of the log passes for another.

The edits here are the hard ones: what a row says of itself is made to fit, its keys lead to it, and the space still adds up
to its seal.  A row without a commit that adds nothing to the ledger has nothing else that could give it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from perdure.engines.contract import CellWrite, Engine
from perdure.errors import Corrupt, Unavailable, Unsupported
from perdure.testing.engines.builders import SPACE, Pen, value, write
from tests.coded import raises
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import pack, schema
    from perdure.engines.postgres.commit import write as write_module

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

BARE = (3, 4, 5, 6)  # the rows without a commit
EXCHANGED = ("op_id", "intent", "pack")  # all that such a row has


class Rows:
    """The rows of one store, which a person edits with SQL."""

    def __init__(self, server: Server, engine: Engine, database: str = "postgres") -> None:
        self._server, self._database = server, database
        self.engine, self.tenant = engine, str(engine.facts()["tenant"])

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements in which `OF` is the condition for the rows of this store, which has one space."""
        told = [each.replace("OF", f"tenant = '{self.tenant}'") for each in statements]
        return self._server.sql(*told, database=self._database)

    def replace(self, row: int, op_id: bytes, intent: bytes, packed: bytes) -> None:
        """Put other content into a row, and lead the key of its op_id there."""
        key = f"perdure.op_key('\\x{op_id.hex()}')"
        self.sql(
            f"DELETE FROM perdure.keys WHERE OF AND row_id = {row} AND space <> 0",
            f"INSERT INTO perdure.keys (tenant, space, key, row_id) SELECT tenant, id, {key}, {row} FROM perdure.spaces WHERE OF",
            f"UPDATE perdure.log SET op_id = '\\x{op_id.hex()}', intent = '\\x{intent.hex()}', pack = '\\x{packed.hex()}' "
            f"WHERE OF AND row_id = {row}",
        )

    def content(self, row: int) -> tuple[bytes, bytes, bytes]:
        """What a row without a commit says."""
        ((op_id, intent, packed),) = self.sql(
            f"SELECT {', '.join(EXCHANGED)} FROM perdure.log WHERE OF AND row_id = {row}"
        )
        assert isinstance(op_id, bytes)
        assert isinstance(intent, bytes)
        assert isinstance(packed, bytes)
        return op_id, intent, packed

    def relink(self) -> None:
        """Make every link again, and that of the space: the whole chain is rewritten."""
        link = "\\x0000000000000000"
        rows = self.sql(
            "SELECT row_id, pack, dropped FROM perdure.log WHERE OF AND op_id IS NOT NULL ORDER BY row_id"
        )
        for row, packed, dropped in rows:
            op = None if dropped is not None else pack.decode_pack(packed).op
            revisions = b"" if op is None else pack.linked_revisions(op.revisions)
            linked = (
                f"perdure.linked('{link}', op_id, intent, '\\x{revisions.hex()}', position, chain, row_id)"
            )
            ((found,),) = self.sql(
                f"UPDATE perdure.log SET link = {linked} WHERE OF AND row_id = {row} RETURNING '\\x' || encode(link, 'hex')"
            )
            link = str(found)
        self.sql(f"UPDATE perdure.spaces SET link = '{link}' WHERE OF")

    def faults(self) -> list[str]:
        """Everything that a full check of the space finds."""
        found, after = list[str](), 0
        while True:
            facts, cursor = self.engine.scan(SPACE, after=after, limit=4)
            found += [fact.fault for fact in facts if fact.fault is not None]
            if cursor is None:
                break
            after = cursor
        try:
            self.engine.check(SPACE, again=True)
        except Corrupt as error:
            found.append(error.code)
        return found


def told(engine: Engine, word: str) -> Engine:
    """Write two commits, four writes without one, and a last commit with an entry of the ledger."""
    pen = Pen(engine)
    pen.commit(f"{word} 1", messages=[f"{word}-1"])
    pen.commit(f"{word} 2")
    for name in ("a", "b"):
        engine.apply(write(f"{word} {name}", CellWrite(name=name, expected=0, value=b"1")))
        engine.apply(write(f"{word} {name} again", CellWrite(name=name, expected=1, value=b"2")))
    engine.apply(write(f"{word} end", b'{"entry":1}'))
    return engine


@pytest.fixture
def rows(postgres: Server, open_engine: Opener) -> Rows:
    """The rows of a store."""
    return Rows(postgres, told(open_engine(), "mine"))


@pytest.fixture
def others(postgres: Server, open_engine: Opener) -> Rows:
    """The rows of another tenant's store."""
    return Rows(postgres, told(open_engine(new_url()), "other"))


def exchange(rows: Rows, one: int, other: int) -> None:
    """Let two rows change places."""
    contents = rows.content(one), rows.content(other)
    rows.replace(other, *contents[0])
    rows.replace(one, *contents[1])


def are_of(faults: Sequence[str], row: int) -> bool:
    """True if a fault names a row and says that it does not follow."""
    return any([f"row {row} of the log: it does not follow" in fault for fault in faults])


def test_a_store_without_edits_is_sound(rows: Rows) -> None:
    """Control: nothing is found, and every row that completes a write has a link of eight bytes."""
    assert rows.faults() == []
    assert rows.sql("SELECT count(*), min(length(link)), max(length(link)) FROM perdure.log WHERE OF") == [
        (7, 8, 8)
    ]


@pytest.mark.parametrize("pair", [(3, 4), (3, 5), (4, 6)])
def test_two_rows_that_changed_places_are_found(rows: Rows, pair: tuple[int, int]) -> None:
    """Both rows and their keys are whole."""
    exchange(rows, *pair)

    assert all([are_of(rows.faults(), row) for row in pair])


@pytest.mark.parametrize("with_link", [False, True], ids=["without its link", "with its link"])
def test_a_row_of_another_tenant_is_found(rows: Rows, others: Rows, *, with_link: bool) -> None:
    """Each row without a commit in turn; with its own link the row after it, or the row itself, does not follow."""
    for row in BARE:
        mine, link = rows.content(row), rows.sql(f"SELECT link FROM perdure.log WHERE OF AND row_id = {row}")
        rows.replace(row, *others.content(row))
        if with_link:
            ((theirs,),) = others.sql(
                f"SELECT encode(link, 'hex') FROM perdure.log WHERE OF AND row_id = {row}"
            )
            rows.sql(f"UPDATE perdure.log SET link = '\\x{theirs}' WHERE OF AND row_id = {row}")

        found = rows.faults()
        assert are_of(found, row) or (with_link and are_of(found, row + 1)), f"row {row}"

        rows.replace(row, *mine)
        ((back,),) = link
        assert isinstance(back, bytes)
        rows.sql(f"UPDATE perdure.log SET link = '\\x{back.hex()}' WHERE OF AND row_id = {row}")
    assert rows.faults() == []


def test_it_is_the_link_that_finds_them(rows: Rows, others: Rows) -> None:
    """Control: with all links made again the same edits are a consistent rewrite, which no sum can find."""
    exchange(rows, 3, 4)
    rows.replace(5, *others.content(5))
    rows.relink()

    assert rows.faults() == []


def test_an_intent_and_revisions_cannot_be_edited_with_their_checksums(rows: Rows) -> None:
    """What a repeated write is compared with, and what it is answered with, are both in the link."""
    op_id, intent, packed = rows.content(3)
    found = pack.decode_pack(packed)
    for revisions, other in (((1,), bytes(32)), ((7,), intent)):
        op = pack.PackedOp((), revisions, 0, pack.intent_checksum(op_id, other))
        rows.replace(3, op_id, other, pack.encode_pack(found.items, op, found.states))

        assert are_of(rows.faults(), 3)


def cut(rows: Rows) -> None:
    """Take the last write away, with its key, its cell, and what the space counts and adds up to."""
    rows.engine.apply(write("the last", CellWrite(name="c", expected=0, value=b"1")))
    rows.sql(
        "DELETE FROM perdure.log WHERE OF AND row_id = 8",
        "DELETE FROM perdure.keys WHERE OF AND row_id = 8",
        "DELETE FROM perdure.cells WHERE OF AND name = 'c'",
        "UPDATE perdure.spaces SET rows = 7, seal = perdure.sum_of(tenant, id) WHERE OF",
    )


def test_a_write_that_was_cut_off_at_the_end_is_found(rows: Rows) -> None:
    """The row of the space names the link of the newest write."""
    cut(rows)

    assert rows.faults() == ["link_broken"]


def test_a_space_that_was_put_back_whole_is_not_found(rows: Rows) -> None:
    """Control: with the link of the space put back too, it is as it was after an earlier write."""
    cut(rows)
    rows.sql(
        "UPDATE perdure.spaces s SET link = (SELECT link FROM perdure.log l WHERE l.tenant = s.tenant AND row_id = 7) WHERE OF"
    )

    assert rows.faults() == []


def test_links_cannot_be_left_out(rows: Rows) -> None:
    """Writes without links are those of an older version, and this store was made by none."""
    rows.sql(
        "UPDATE perdure.log SET link = NULL WHERE OF",
        "UPDATE perdure.spaces SET link = int8send(rows::bigint) WHERE OF",
    )

    assert [are_of(rows.faults(), row) for row in range(1, 8)] == [True] * 7


def test_forgotten_content_leaves_the_chain_whole(rows: Rows) -> None:
    """A link is over what is said of a write, not over its content."""
    old = value("old words")
    rows.engine.apply(write("said", old))
    rows.engine.forget(SPACE, [old.digest], why="asked", standing=rows.engine.standing(SPACE))

    rows.engine.apply(write("later", value("new words")))

    assert rows.faults() == []


def test_what_is_left_of_removed_writes_is_a_chain(rows: Rows) -> None:
    """A space may be removed, written to and removed again; tombstones that changed places are found."""
    engine = rows.engine
    engine.drop(SPACE, why="asked")
    assert rows.faults() == []
    engine.apply(write("after", value("words")))
    engine.apply(write("after 2", CellWrite(name="d", expected=0, value=b"1")))
    assert rows.faults() == []
    engine.drop(SPACE, why="asked again")
    assert rows.faults() == []
    assert rows.sql("SELECT DISTINCT dropped FROM perdure.log WHERE OF ORDER BY 1") == [
        (b"asked",),
        (b"asked again",),
    ]

    ((one, other),) = rows.sql(
        "SELECT min(encode(op_id, 'hex')), max(encode(op_id, 'hex')) FROM perdure.log WHERE OF AND row_id IN (3, 5)"
    )
    for row, op_id in ((3, other), (5, one)):
        rows.sql(
            f"UPDATE perdure.log SET op_id = '\\x{op_id}' WHERE OF AND row_id = {row}",
            f"UPDATE perdure.keys SET key = perdure.op_key('\\x{op_id}') WHERE OF AND row_id = {row}",
        )

    assert are_of(rows.faults(), 3)


# ---- stores from before links

BEFORE_LINKS = (  # takes a database back to the version without them
    "ALTER TABLE perdure.log DROP COLUMN link",
    "ALTER TABLE perdure.spaces DROP COLUMN link",
    "ALTER TABLE perdure.meta DROP COLUMN unlinked",
    "UPDATE perdure.meta SET version = 14",
)
_LINKS = "SELECT array_agg(row_id ORDER BY row_id) FROM perdure.log WHERE OF AND link IS NOT NULL"


@pytest.mark.parametrize("partitions", [0, 3])
def test_writes_from_before_links_stay_as_they_are(
    partitions: int, postgres: Server, database: str, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no link, later writes are a chain after them, and a migration that was killed is made again."""
    url = f"{postgres.url(database)}&partitions={partitions}"
    told(open_engine(url), "mine").close()
    postgres.sql(*BEFORE_LINKS, database=database)
    whole = schema.MIGRATIONS
    killed = whole[4] + "SELECT pg_terminate_backend(pg_backend_pid());"
    monkeypatch.setattr(schema, "MIGRATIONS", (*whole[:4], killed, *whole[5:]))
    with pytest.raises(Unavailable):
        open_engine(url)
    monkeypatch.setattr(schema, "MIGRATIONS", whole)

    rows = Rows(postgres, open_engine(url), database)
    assert rows.faults() == []
    for name in ("e", "f", "g"):
        rows.engine.apply(write(f"later {name}", CellWrite(name=name, expected=0, value=b"1")))

    assert rows.faults() == []
    assert rows.sql(_LINKS) == [([8, 9, 10],)]
    exchange(rows, 8, 9)
    assert are_of(rows.faults(), 8)
    exchange(rows, 8, 9)
    rows.sql("UPDATE perdure.log SET link = NULL WHERE OF AND row_id = 10")
    assert are_of(rows.faults(), 10)
    rows.engine.drop(SPACE, why="asked")
    assert rows.faults() == []
    assert rows.sql(_LINKS) == [([1, 2, 3, 4, 5, 6, 7, 8, 9, 10],)]


def test_a_space_that_begins_after_the_migration_has_all_its_links(
    postgres: Server, database: str, open_engine: Opener
) -> None:
    """Only spaces from before may have writes without one."""
    open_engine(postgres.url(database)).apply(write("early", value("words"), space="early"))
    postgres.sql(*BEFORE_LINKS, database=database)
    rows = Rows(postgres, told(open_engine(postgres.url(database)), "mine"), database)
    assert rows.faults() == []

    rows.sql(
        f"UPDATE perdure.log SET link = NULL WHERE space = (SELECT id FROM perdure.spaces WHERE name = '{SPACE}')"
    )

    assert are_of(rows.faults(), 1)


def test_an_owner_that_row_security_holds_migrates_every_tenant(
    postgres: Server, database: str, open_engine: Opener
) -> None:
    """The migration is made once, by the opening of one tenant, and row security is forced again after it."""
    role = f"owner_{database}"
    postgres.sql(f"CREATE ROLE {role} LOGIN", f"GRANT CREATE ON DATABASE {database} TO {role}")
    urls = [f"{postgres.url(database, user=role)}&tenant={name}" for name in ("ann", "bob")]
    for url in urls:
        told(open_engine(url), "mine").close()
    postgres.sql(*BEFORE_LINKS, database=database)

    for url in urls:
        rows = Rows(postgres, open_engine(url), database)
        rows.engine.apply(write("later", CellWrite(name="e", expected=0, value=b"1")))

        assert rows.faults() == []
        rows.engine.close()
    assert postgres.sql("SELECT unlinked FROM perdure.meta", database=database) == [(2,)]
    forced = "SELECT relforcerowsecurity FROM pg_class WHERE oid = 'perdure.spaces'::regclass"
    assert postgres.sql(forced, database=database) == [(True,)]
    postgres.sql(f"DROP OWNED BY {role}", database=database)
    postgres.sql(f"DROP ROLE {role}")


def test_a_client_that_was_open_before_the_migration_is_refused(
    postgres: Server, database: str, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the end of its line, and no links: neither of the two ways to write takes its commit."""
    old = Pen(open_engine(postgres.url(database)))
    for number in range(3):
        old.commit(f"item {number}")
    postgres.sql(*BEFORE_LINKS, database=database)
    rows = Rows(postgres, open_engine(postgres.url(database)), database)
    monkeypatch.setattr(write_module, "_REVISIONS", 0)

    with raises(Unsupported, "answer_unknown"):
        old.commit("late")

    assert rows.engine.standing(SPACE) == 3
    assert rows.faults() == []
