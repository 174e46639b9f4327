"""The views that name memory and artifacts, read by stock `sqlite3`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import perdure
from tests.memory.remembering import forgetting, remembering


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    """What a query gives."""
    with sqlite3.connect(path) as database:
        return database.execute(query).fetchall()


def test_every_write_of_a_thread_to_memory_is_a_row(tmp_path: Path) -> None:
    """Owner, item, scope, reference and call; a forgetting has no reference, and an odd owner none that SQL can write."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        (call, *_) = remembering(store, "t1", "likes fjords").calls()
        forgetting(store, "t1")
        remembering(store, "t2", "likes lakes", owner="a b")
        store.memory("ann").add("by hand")

    query = (
        "SELECT conversation_id, owner, item, scope, reference FROM memory_references ORDER BY created_at, id"
    )
    found = rows(path, query)
    calls = rows(
        path, "SELECT call_id FROM memory_references WHERE conversation_id = 't1' AND scope IS NOT NULL"
    )

    assert sorted(found, key=str) == sorted(
        [
            ("t1", "ann", "n", "user", "mem://user/ann/n"),
            ("t1", "ann", "n", None, None),
            ("t2", "a b", "n", "user", None),
        ],
        key=str,
    )
    assert calls == [(call.id,)]


def test_what_was_undone_is_not_in_main(tmp_path: Path) -> None:
    """Its row stays, and says so."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        remembering(store, "t1", "likes fjords").undo()

    assert rows(path, "SELECT in_main FROM memory_references") == [(0,)]


def test_named_artifacts_have_their_reference(tmp_path: Path) -> None:
    """Those with a name of a collection; a label has none."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        artifacts = store.thread("t", agent="a").artifacts
        artifacts.put(b"one", name="design/draft")
        artifacts.put(b"two", name="notes.txt")
        artifacts.put(b"three", name="sha256/x")

    assert rows(path, "SELECT name, named_reference FROM artifact_references ORDER BY name") == [
        ("design/draft", "artifact://design/draft"),
        ("notes.txt", None),
        ("sha256/x", None),
    ]
