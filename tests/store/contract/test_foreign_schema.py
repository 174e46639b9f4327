"""A store whose schema somebody changed is refused, and the object is named."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import perdure
from perdure.engines.registry import open_sql
from perdure.engines.sqlite import schema
from perdure.errors import Corrupt, Invalid, PerdureError
from tests.coded import raises

CHANGES = {
    "trigger on our table": (
        "CREATE TRIGGER wipe AFTER INSERT ON log BEGIN DELETE FROM entries; END",
        "wipe",
    ),
    "trigger on a view": ("CREATE TRIGGER sly INSTEAD OF INSERT ON threads BEGIN SELECT 1; END", "sly"),
    "trigger on a table of others": (
        "CREATE TABLE theirs(a); CREATE TRIGGER odd AFTER INSERT ON theirs BEGIN SELECT 1; END",
        "odd",
    ),
    "index": ("CREATE INDEX slow ON log(at)", "slow"),
    "unique index": ("CREATE UNIQUE INDEX once ON cells(value)", "once"),
    "column": ("ALTER TABLE cells ADD COLUMN note TEXT", "cells"),
    "column renamed": ("ALTER TABLE entries RENAME COLUMN body TO words", "entries"),
    "table dropped": ("DROP TABLE stretches", "stretches"),
    "index dropped": ("DROP INDEX cells_listed", "cells_listed"),
    "view dropped": ("DROP VIEW state_commits", "state_commits"),
    "view changed": (
        "DROP VIEW state_commits; CREATE VIEW state_commits AS SELECT 1 AS hash",
        "state_commits",
    ),
    "table as a view": (
        "ALTER TABLE meta RENAME TO hidden; CREATE VIEW meta AS SELECT * FROM hidden",
        "meta",
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a thread in it."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        store.thread("t", agent="a").put("/n", 1)
    return path


def change(path: Path, sql: str) -> None:
    """Change the database as anybody with write access can."""
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_schema_is_refused_and_named(path: Path, what: str, read_only: bool) -> None:
    """Whatever was added, changed or taken away, for reading and for writing."""
    sql, name = CHANGES[what]
    change(path, sql)

    with raises(Corrupt, "schema_changed", name=name):
        perdure.open(path, read_only=read_only)


@pytest.mark.parametrize("what", ["trigger on our table", "column", "view changed"])
def test_a_changed_schema_is_refused_to_questions_too(path: Path, what: str) -> None:
    """`sql` does not answer from a store that cannot be trusted."""
    change(path, CHANGES[what][0])

    with pytest.raises(Corrupt):
        open_sql(str(path), entries=lambda nodes, root: ())


def test_a_schema_that_changes_while_the_store_is_open_is_refused_at_the_next_write(path: Path) -> None:
    """The trigger never runs, and what it was to delete is still there."""
    with perdure.open(path) as store:
        thread = store.thread("t", agent="a")
        change(path, "CREATE TRIGGER wipe AFTER INSERT ON log BEGIN DELETE FROM cells; END")

        with raises(Corrupt, "schema_changed", name="wipe"):
            thread.put("/n", 2)

        assert thread.get("/n") == 1


def test_an_older_store_with_a_trigger_is_refused_before_it_is_upgraded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is changed."""
    older = schema.SCHEMA_VERSION - 1
    monkeypatch.setattr(schema, "_STEPS", {older: "SELECT 1"})
    change(
        path,
        f"PRAGMA user_version = {older}; CREATE TRIGGER wipe AFTER INSERT ON log BEGIN DELETE FROM cells; END",
    )

    with raises(Corrupt, "schema_changed", name="wipe"):
        perdure.open(path)

    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == older


def test_a_search_index_that_somebody_changed_is_made_anew(path: Path) -> None:
    """It is derived, so it is thrown away: what it would find cannot be trusted."""
    with perdure.open(path) as store:
        store.memory("ada").add("she drinks green tea")
        assert store.memory("ada").search("tea")
    (index,) = path.with_name(path.name + "-memory").glob("*.db")
    change(index, "CREATE TRIGGER forge AFTER INSERT ON versions BEGIN UPDATE versions SET kind = 'x'; END")

    with perdure.open(path) as store:
        store.memory("ada").add("she takes no sugar in her tea")
        found = [store.memory("ada").search("tea") for _ in range(2)]

    assert [len(each) for each in found] == [2, 2]
    connection = apsw.Connection(str(index))
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").get == 0


@pytest.mark.parametrize(
    "sql",
    [
        "VACUUM INTO 'copy.db'",
        "ATTACH 'other.db' AS other",
        "CREATE TEMP TABLE t(a)",
        "CREATE TABLE t(a)",
        "DELETE FROM log",
        "PRAGMA journal_mode = delete",
        "PRAGMA writable_schema = 1",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "SELECT load_extension('x')",
    ],
)
def test_a_question_makes_no_file_and_changes_nothing(
    path: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before anything is made."""
    monkeypatch.chdir(path.parent)
    asked = open_sql(str(path), entries=lambda nodes, root: ())
    before = sorted(path.parent.iterdir())

    with pytest.raises(PerdureError) as refused:
        list(asked.query(sql)[1])

    assert isinstance(refused.value, Invalid)
    assert sorted(path.parent.iterdir()) == before
    asked.close()
