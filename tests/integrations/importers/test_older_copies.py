"""Copies of a session that end before what was imported, such as a backup beside the live file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Store
from perdure.integrations.importers import SessionReport, import_sessions
from perdure.integrations.importers.report import CopyEnd
from tests.integrations.importers.test_openai_agents import database
from tests.integrations.importers.test_rewritten_sessions import as_rollout, with_ids, written

Lines = list[dict[str, Any]]


def forked(_: str = "") -> Lines:
    """A session whose user went back to the first answer, and asked otherwise."""
    lines = with_ids("2.1.90")
    other = {"role": "user", "content": "And Oslo?"}
    return [*lines, {"type": "user", "sessionId": "s1", "message": other, "uuid": "u9", "parentUuid": "u1"}]


SESSIONS: dict[str, tuple[Callable[..., Lines], int, int]] = {
    "claude code": (lambda: with_ids("2.1.90"), 2, 2),
    "claude code without ids": (lambda: with_ids("none"), 3, 3),
    "codex": (as_rollout, 3, 2),
    "claude code before it went back": (forked, 4, 4),
    "claude code before it went back, within the old line": (forked, 3, 3),
}


def one(store: Store, file: Path) -> SessionReport:
    """Import a file with one session."""
    (found,) = import_sessions(store, file).sessions
    return found


def has(store: Store, thread: str | None) -> tuple[list[str], list[str], object]:
    """The timelines of a thread, the words on main, and what is described of the source."""
    assert thread is not None
    held = store.thread(thread)
    lines = [hold.head.timeline for hold in held.timelines()]
    return lines, [entry.text for entry in held.transcript()], held.get("/import/session", default=None)


@pytest.mark.parametrize("kind", SESSIONS)
def test_an_older_copy_changes_nothing_and_is_named(store: Store, tmp_path: Path, kind: str) -> None:
    """It makes no timeline, is no current line, and the description stays that of the longer one, also in one import."""
    lines, length, message = SESSIONS[kind]
    (tmp_path / "a.jsonl").write_bytes(written(lines()))
    first = one(store, tmp_path / "a.jsonl")
    before = has(store, first.thread)

    (tmp_path / "b.jsonl").write_bytes(written(lines()[:length]))
    older = one(store, tmp_path / "b.jsonl")
    again = import_sessions(store, tmp_path).sessions

    end = CopyEnd(timeline="main", message=message, messages=len(before[1]))
    if kind.startswith("claude code before"):
        assert older.older_copy is not None
        assert older.older_copy.message == message
    else:
        assert older.older_copy == end
    assert (older.messages, older.current, older.edited) == (0, None, ())
    assert [each.older_copy for each in again] == [None, older.older_copy]
    assert [each.current for each in again] == [first.current, None]
    assert has(store, first.thread) == before


def test_a_copy_that_cuts_a_reply_off_edits_nothing(store: Store, tmp_path: Path) -> None:
    """Its line says what it said; one that says something else is named, whether or not the rest is there."""
    reply = with_ids("2.1.90")[1]
    block = {"content": [{"type": "text", "text": "And wind."}]}
    more = {**reply, "uuid": "u1b", "parentUuid": "u1", "message": reply["message"] | block}
    whole = [with_ids("2.1.90")[0], reply, more]
    file = tmp_path / "s1.jsonl"
    file.write_bytes(written(whole))
    one(store, file)

    file.write_bytes(written(whole[:2]))
    cut = one(store, file)
    edited = {**reply, "message": reply["message"] | {"content": [{"type": "text", "text": "Rain."}]}}
    file.write_bytes(written([whole[0], edited]))
    both = one(store, file)

    assert (cut.edited, cut.older_copy is not None) == ((), True)
    assert (both.edited, both.messages) == (("line 2",), 0)


def test_the_old_main_is_named_where_the_source_ends_on_it(store: Store, tmp_path: Path) -> None:
    """After a promote of an earlier point, the whole source says which sealed timeline has its line, each time."""
    file = tmp_path / "s1.jsonl"
    file.write_bytes(written(with_ids("2.1.90")))
    first = one(store, file)
    assert first.thread is not None
    thread = store.thread(first.thread)
    thread.fork("short", at="claude-code:u1")
    thread.promote("short")
    old = next(hold.head.timeline for hold in thread.timelines() if hold.sealed)

    file.write_bytes(written([*with_ids("2.1.90"), {"type": "summary", "summary": "x", "leafUuid": "u3"}]))
    found = [one(store, file) for _ in range(2)]
    thread.promote(old)
    back = [one(store, file) for _ in range(2)]

    assert [(each.current, each.messages) for each in found] == [(old, 0)] * 2
    assert [each.current for each in back] == [None, None]


def test_a_dropped_line_is_not_named(store: Store, tmp_path: Path) -> None:
    """A person dropped what the source ends with."""
    file = tmp_path / "s1.jsonl"
    file.write_bytes(written(with_ids("2.1.90")))
    first = one(store, file)
    assert first.thread is not None
    thread = store.thread(first.thread)
    thread.fork("short", at="claude-code:u1")
    thread.promote("short")
    thread.drop(next(hold.head.timeline for hold in thread.timelines() if hold.sealed))

    file.write_bytes(written([*with_ids("2.1.90"), {"type": "summary", "summary": "x", "leafUuid": "u3"}]))

    assert one(store, file).current is None


def test_a_row_that_was_removed_is_told_from_one_that_is_not_there_yet(store: Store, tmp_path: Path) -> None:
    """SQLite keeps the highest number of a table, so a database that never had the row is an older copy."""
    items = [{"role": "user", "content": text} for text in ("One", "Two")]
    for name in ("old", "live"):
        (tmp_path / name).mkdir()
    old = database(tmp_path / "old", items[:1])
    live = database(tmp_path / "live", items)
    one(store, live)

    older = one(store, old)
    with sqlite3.connect(live) as connection:
        connection.execute("DELETE FROM agent_messages WHERE id = 2")
    connection.close()
    popped = one(store, live)

    assert (older.current, older.older_copy) == (None, CopyEnd(timeline="main", message=1, messages=2))
    assert (popped.current is None, popped.older_copy) == (False, None)
