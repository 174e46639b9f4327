"""Somebody edits the tables of a store with SQL: `verify` finds it, and no input is run again.

Every column of every table is edited, in rows that a seed chooses, and rows are removed.  The long form edits many more
rows (`PERDURE_DEEP=1`).  A test puts the tables back as they were, so all of them use one store.
"""

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

import perdure
from perdure.errors import Corrupt, PerdureError
from perdure.ledger import verify
from perdure.model.names import moment_label
from perdure.store.store import Store
from perdure.testing import say, use
from tests.coded import raises
from tests.crash.campaign import SEED, sized
from tests.crash.tampering import scene
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import SERVER, url_of
from tests.store.copies import engine_of

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

TABLES = ("spaces", "log", "keys", "heads", "cells", "entries")
TENANT = f"edited{os.getpid()}"
SAVED = f"saved{os.getpid()}"
# Columns that say nothing about what is stored: who follows a space, and when bytes can be stored as differences.
FREE = {("spaces", "followed_until"), ("spaces", "follower"), ("spaces", "generation")}
# A key of the name of a space leads to no row: that there is one says that the space was written to.
LEADING = {("keys", "row_id"): "space <> 0"}
# Other values of a column that the server takes; what a column holds already is no edit.
OTHERS = {
    "bytea": (
        "NULL",
        "''",
        "sha256({0})",
        "set_byte({0}, length({0}) - 1, 255 - get_byte({0}, length({0}) - 1))",
    ),
    "bigint": ("NULL", "0", "{0} + 1", "{0} - 1"),
    "integer": ("NULL", "0", "{0} + 1", "{0} - 1"),
    "numeric": ("{0} + 1",),
    "boolean": ("NOT {0}",),
}


class Edit(NamedTuple):
    """One statement that a person might type."""

    table: str
    column: str  # empty: the row is removed
    to: str
    row: str  # the hash of all its columns, which a row has again when it is put back

    @property
    def sql(self) -> str:
        where = f"tenant = '{TENANT}' AND md5(x::text) = '{self.row}'"
        if not self.column:
            return f"DELETE FROM perdure.{self.table} x WHERE {where}"
        return (
            f"UPDATE perdure.{self.table} x SET {self.column} = {self.to.format(self.column)} WHERE {where}"
        )


class Tables:
    """The tables of one store, which can be edited and put back."""

    def __init__(self, server: Server) -> None:
        self._server, self._database = server, os.environ[SERVER].partition("?")[0].rpartition("/")[2]
        self.sql(f"DROP SCHEMA IF EXISTS {SAVED} CASCADE", f"CREATE SCHEMA {SAVED}")
        for table in TABLES:
            self.sql(
                f"CREATE TABLE {SAVED}.{table} AS SELECT * FROM perdure.{table} WHERE tenant = '{TENANT}'"
            )

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements as the superuser, to whom row security does not apply."""
        return self._server.sql(*statements, database=self._database)

    def restore(self, *tables: str) -> None:
        """Put tables back as they were."""
        for table in tables or TABLES:
            self.sql(
                f"DELETE FROM perdure.{table} WHERE tenant = '{TENANT}'",
                f"INSERT INTO perdure.{table} OVERRIDING SYSTEM VALUE SELECT * FROM {SAVED}.{table}",
            )

    def is_changed(self, table: str) -> bool:
        """True if a table is not as it was."""
        sets = (f"SELECT * FROM perdure.{table} WHERE tenant = '{TENANT}'", f"SELECT * FROM {SAVED}.{table}")
        both = f"(({sets[0]}) EXCEPT ALL ({sets[1]})) UNION ALL (({sets[1]}) EXCEPT ALL ({sets[0]}))"
        return bool(self.sql(both))

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table that can be edited, and their types."""
        named = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'perdure'"
        found = {str(name): str(kind) for name, kind in self.sql(f"{named} AND table_name = '{table}'")}
        return {name: kind for name, kind in found.items() if name != "tenant" and (table, name) not in FREE}

    def rows(self, table: str, condition: str = "true") -> list[str]:
        """The hashes of the rows of a table."""
        hashed = f"SELECT DISTINCT md5(x::text) FROM perdure.{table} x WHERE tenant = '{TENANT}'"
        return sorted([str(row) for (row,) in self.sql(f"{hashed} AND {condition}")])


@pytest.fixture(scope="module")
def tables(postgres: Server) -> Iterator[Tables]:
    """The tables of a store with everything in it that an edit could spoil."""
    scene.build(url_of(TENANT), lambda: None)
    with perdure.open(url_of(TENANT)) as store:
        with store.thread("t").change("named") as change:
            change.name("langgraph:c-1")
        store.memory("ann").add("likes tea")
    found = Tables(postgres)
    yield found
    found.sql(f"DROP SCHEMA {SAVED} CASCADE")


def faults() -> list[str]:
    """What `verify` finds in the store, or why it cannot be opened."""
    try:
        with perdure.open(url_of(TENANT), read_only=True) as store:
            return [str(fault) for fault in verify.verify(engine_of(store)).faults]
    except PerdureError as error:
        return [str(error)]


@contextmanager
def edited(tables: Tables, *statements: str) -> Generator[None]:
    """The store while some statements have changed it."""
    tables.sql(*statements)
    try:
        yield
    finally:
        tables.restore()


def edits(tables: Tables, table: str, count: int) -> Iterator[Edit]:
    """Edits of every column of a table, of `count` rows each, and the removal of as many rows."""
    chance = random.Random(f"{SEED} {table}")
    for column, kind in tables.columns(table).items():
        for to in sized(chance.sample(OTHERS[kind], 1), OTHERS[kind]):
            condition = "true" if to in ("NULL", "''", "0") else f"{column} IS NOT NULL"
            found = tables.rows(table, f"{condition} AND {LEADING.get((table, column), 'true')}")
            for row in chance.sample(found, min(count, len(found))):
                yield Edit(table, column, to, row)
    found = tables.rows(table)
    for row in chance.sample(found, min(4 * count, len(found))):
        yield Edit(table, "", "", row)


def test_a_store_without_edits_is_sound(tables: Tables) -> None:
    """Control: nothing is found, also after the tables were put back."""
    tables.restore()

    assert faults() == []


@pytest.mark.parametrize("table", TABLES)
def test_an_edit_of_any_column_is_found(tables: Tables, table: str) -> None:
    """Also the removal of a row; an edit that the server refuses, or that changes nothing, does not count."""
    import psycopg

    missed: list[str] = []
    made = 0
    for edit in list(edits(tables, table, sized(1, 12))):
        try:
            tables.sql(edit.sql)
        except psycopg.Error:
            continue
        if tables.is_changed(table):
            made += 1
            missed += [] if faults() else [edit.sql]
            tables.restore(table)

    assert "\n".join(missed) == ""
    assert made >= 4


def key_of_label(label: str) -> str:
    """The condition for the rows of `keys` that a message id, or the name of a moment, leads along."""
    from perdure.engines.postgres.pack import label_key

    return f"tenant = '{TENANT}' AND key = {label_key(label)}"


@pytest.mark.parametrize("label", ["m-1", moment_label("langgraph:c-1")])
def test_a_lost_key_of_a_message_or_a_name_is_found(tables: Tables, label: str) -> None:
    """It leads to no commit any more, and only the events in that commit say that it should."""
    (removed,) = tables.sql(f"SELECT count(*) FROM perdure.keys WHERE {key_of_label(label)}")[0]

    with edited(tables, f"DELETE FROM perdure.keys WHERE {key_of_label(label)}"):
        found = faults()

    assert removed
    assert found


def intent_of(op_id: str, to: str) -> str:
    """The statement that changes the intent of a write."""
    return f"UPDATE perdure.log SET intent = {to} WHERE tenant = '{TENANT}' AND op_id = '{op_id}'"


def test_a_repeated_op_id_is_not_refused_for_an_intent_that_was_edited(tables: Tables) -> None:
    """Neither as another write, nor answered with a receipt: the damage is named.  Control: sound, it is answered."""
    with perdure.open(url_of(TENANT)) as store:
        thread = store.thread("t")
        answers = [thread.put("/a.json", 1, op_id="put-1") for _ in range(2)]

    with (
        edited(tables, intent_of("put-1", "sha256(intent)")),
        perdure.open(url_of(TENANT)) as store,
        raises(Corrupt, "intent_damaged", op_id="put-1"),
    ):
        store.thread("t").put("/a.json", 1, op_id="put-1")

    assert answers[0] == answers[1]


def space_of(thread: str) -> str:
    """The space of a thread."""
    with perdure.open(url_of(TENANT), read_only=True) as store:
        return store.thread(thread)._record.space


def lost(space: str) -> str:
    """The statement that removes the row of a space."""
    return f"DELETE FROM perdure.spaces WHERE tenant = '{TENANT}' AND name = '{space}'"


def paid_again(store: Store) -> int:
    """How often an input that comes again, and was answered long ago, pays."""
    agent = scene.agent(use("pay", amount=3), say("Paid."))
    scene.DONE.clear()
    store.thread("t", agent=agent, owner="ann").run("Pay 3", id="m-1")
    return scene.DONE["pay 3"]


def test_a_thread_whose_space_is_lost_does_not_look_new(tables: Tables) -> None:
    """An input that comes again is refused, in a new process and in one that has the thread open, and pays nothing."""
    space = space_of("t")
    with perdure.open(url_of(TENANT)) as store:
        before = paid_again(store)

        with edited(tables, lost(space)):
            with raises(Corrupt, "space_lost", space=space):
                paid_again(store)
            with perdure.open(url_of(TENANT)) as other, raises(Corrupt, "space_lost", space=space):
                paid_again(other)
            found = faults()

    assert (before, scene.DONE["pay 3"]) == (0, 0)
    assert any([space in fault for fault in found])


def test_without_the_key_of_its_name_a_lost_space_pays_again(tables: Tables) -> None:
    """Control: the key is what refuses it; `verify` still finds the rows that are left."""
    space = space_of("t")
    key = f"DELETE FROM perdure.keys WHERE tenant = '{TENANT}' AND space = 0 AND key = perdure.name_key('{space}')"
    with edited(tables, lost(space), key):
        found = faults()
        with perdure.open(url_of(TENANT)) as store:
            again = paid_again(store)

    assert again == 1
    assert found


def test_a_store_without_its_own_space_is_not_empty(tables: Tables) -> None:
    """The directory of threads is in the space `store`: without it no thread begins anew."""
    with edited(tables, lost("store")):
        found = faults()
        with perdure.open(url_of(TENANT)) as store, raises(Corrupt, "space_lost", space="store"):
            store.thread("t").put("/a.json", 2)

    assert found


def test_all_spaces_lost_are_found(tables: Tables) -> None:
    """A store whose spaces are all gone is not taken for a new one."""
    with edited(tables, f"DELETE FROM perdure.spaces WHERE tenant = '{TENANT}'"):
        found = faults()

    assert found
