"""`perdure export --format sqlite`: the views as plain tables, for programs that have no Perdure."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.surfaces.shell import Shell

EXPORT = ("--format", "sqlite", "--output", "plain.db")


@contextmanager
def stock(path: Path) -> Generator[sqlite3.Connection]:
    """The file in the SQLite that comes with Python."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        yield connection


def test_the_state_at_every_commit_is_read_by_stock_sqlite(shell: Shell) -> None:
    """Commit, snapshot, value, path by path, for every commit of the thread."""
    shell.ok("export", "shopping", *EXPORT)

    with stock(shell.directory / "plain.db") as plain, perdure.open(shell.store, read_only=True) as store:
        roots: dict[str, str] = dict(plain.execute("SELECT hash, snapshot_hash FROM state_commits"))
        snapshots: dict[str, str] = dict(plain.execute("SELECT hash, entries FROM state_snapshots"))
        values: dict[str, Any] = dict(plain.execute("SELECT hash, content FROM state_values"))
        thread = store.thread("shopping")
        for entry in thread.log():
            view, entries = thread.at(entry), json.loads(snapshots[roots[entry.digest]])
            assert set(entries) == set(view.paths())
            assert json.loads(values[entries["/todos.json"]]) == view.get("/todos.json")


def test_everything_is_a_table_with_the_columns_of_its_view(shell: Shell) -> None:
    """The same rows as `perdure sql` gives."""
    told = shell.ok("export", *EXPORT, "--json").json

    with stock(shell.directory / "plain.db") as plain:
        kinds = dict(plain.execute("SELECT name, type FROM sqlite_schema"))
        for name, rows in told["tables"].items():
            seen = shell.ok("sql", f"SELECT * FROM {name}", "--limit", "0", "--json").json
            cursor = plain.execute(f"SELECT * FROM {name}")
            assert [column[0] for column in cursor.description] == seen["columns"] or not rows
            assert [list(row) for row in cursor] == seen["rows"]
            assert len(seen["rows"]) == rows
    assert set(kinds.values()) == {"table"}


def test_a_thread_is_exported_without_the_others(shell: Shell) -> None:
    """Control: without a name the others are there."""
    with perdure.open(shell.store) as store:
        store.thread("secret", agent="helper").put("/secret.json", "hidden words")

    shell.ok("export", "shopping", *EXPORT)
    shell.ok("export", "--format", "sqlite", "--output", "all.db")

    assert b"hidden words" not in (shell.directory / "plain.db").read_bytes()
    assert b"hidden words" in (shell.directory / "all.db").read_bytes()


def test_a_file_that_is_there_is_left_alone(shell: Shell) -> None:
    """The new one is for its owner alone."""
    (shell.directory / "plain.db").write_text("mine")

    ended = shell("export", "shopping", *EXPORT)
    shell.ok("export", "shopping", "--format", "sqlite", "--output", "new.db")

    assert ended.code == 4
    assert (shell.directory / "plain.db").read_text() == "mine"
    assert stat.S_IMODE((shell.directory / "new.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["shopping", "--format", "sqlite"], 2),
        (["shoping", *EXPORT], 3),
        (["shopping", "--format", "sqlite", "--output", "nowhere/plain.db"], 3),
        (["--format", "openai-chat"], 2),
        (["shopping", "--git", "there", "--output", "plain.db"], 2),
    ],
)
def test_what_cannot_be_exported_leaves_no_file(shell: Shell, words: list[str], code: int) -> None:
    """Usage, a thread or a directory that is not there."""
    assert shell("export", *words).code == code
    assert not (shell.directory / "plain.db").exists()


def test_states_that_were_let_go_are_null_and_the_rest_is_there(shell: Shell) -> None:
    """In the view, in the query of the how-to and in plain tables; control: before, no row is NULL."""
    count = "SELECT count(*), count(entries) FROM state_snapshots"
    with perdure.open(shell.store) as store:
        for number in range(2):
            store.thread("shopping").put("/count.json", number)
    ((rows, whole),) = shell.ok("sql", count, "--json").json["rows"]
    shell.ok("gc", "--superseded-older-than", "0d", "--apply")

    ((left, known),) = shell.ok("sql", count, "--json").json["rows"]
    shell.ok("export", *EXPORT)

    assert rows == whole == left > known > 0
    with stock(shell.directory / "plain.db") as plain:
        assert plain.execute(count).fetchone() == (left, known)
