"""The SQL views show each event once, with its timeline, and each call of the ledger, wherever it was made."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Agent, Store, Thread
from holdfast.testing import Script, say, use


@holdfast.tool(effect="financial")
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


def paying(to: str) -> Agent:
    """An agent that pays one bill."""
    return Agent("payer", backend=Script(use("pay", to=to), say("Paid.")), tools=[pay])


def thread_of(store: Store, to: str, timeline: str = "main") -> Thread:
    """The thread, for an agent that pays that bill."""
    return store.thread("bills", agent=paying(to), timeline=timeline)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is: a payment that was undone, one on a fork, one by hand and one on main."""
    path = tmp_path / "agents.db"
    with holdfast.open(path) as store:
        thread_of(store, "undone").run("Pay.")
        thread_of(store, "undone").undo()
        thread_of(store, "forked").fork("what-if")
        thread_of(store, "forked", "what-if").run("Pay.")
        thread_of(store, "main").call(pay, {"to": "by hand"}, id="by-hand")
        thread_of(store, "main").run("Pay.")
    return path


@pytest.fixture
def stock(path: Path) -> Iterator[sqlite3.Connection]:
    """The file in the SQLite that comes with Python, read-only."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        yield connection


def rows(stock: sqlite3.Connection, sql: str) -> list[Any]:
    """The rows of a query."""
    return stock.execute(sql).fetchall()


def test_every_call_of_the_ledger_is_a_tool_event(stock: sqlite3.Connection, path: Path) -> None:
    """What was paid was paid: after an undo, on a fork, by hand, each once, with where it stands."""
    found = rows(stock, "SELECT args_json, state, timeline, in_main FROM tool_events ORDER BY created_at")

    assert found == [
        ('{"to": "undone"}', "succeeded", "main", 0),
        ('{"to": "forked"}', "succeeded", "what-if", 0),
        (None, "succeeded", "main", 1),  # the event that asks for a call by hand is nobody's
        ('{"to": "main"}', "succeeded", "main", 1),
    ]
    with holdfast.open(path, read_only=True) as store:
        calls = {
            (each.id, each.tool, each.result, each.key, each.effect) for each in thread_of(store, "x").calls()
        }
    columns = "call_id, tool_name, result_ref, idempotency_key, side_effect_level"
    assert set(rows(stock, f"SELECT {columns} FROM tool_events")) == calls


def test_every_event_is_shown_once_with_its_timeline(stock: sqlite3.Connection) -> None:
    """What was undone is of main, and not in it any more."""
    sql = (
        "SELECT timeline, in_main, count(*), count(DISTINCT id) FROM conversation_events "
        "WHERE event_type = 'message.appended' GROUP BY timeline, in_main ORDER BY 1, 2"
    )

    assert rows(stock, sql) == [("main", 0, 4, 4), ("main", 1, 4, 4), ("what-if", 0, 4, 4)]


def test_what_is_in_main_is_what_the_thread_says(stock: sqlite3.Connection, path: Path) -> None:
    """In order, without gaps."""
    sql = "SELECT id FROM conversation_events WHERE in_main AND event_type = 'message.appended' ORDER BY sequence_number"
    with holdfast.open(path, read_only=True) as store:
        said = [entry.id for entry in thread_of(store, "x").transcript()]

    assert [row[0] for row in rows(stock, sql)] == said


def test_events_of_a_run_that_rebased_its_line_are_shown_once(tmp_path: Path) -> None:
    """Its own line has them too; main's are the ones that are shown."""
    with holdfast.open(tmp_path / "s.db") as store:

        @holdfast.tool(effect="external_write")
        def act() -> str:
            store.thread("t").put("/title", "meanwhile")
            return "done"

        agent = Agent("a", backend=Script(use("act"), say("Done.")), tools=[act])
        store.thread("t", agent=agent).run("Go", head_policy="on_success")

    with closing(sqlite3.connect(f"file:{tmp_path / 's.db'}?mode=ro", uri=True)) as stock:
        found = rows(stock, "SELECT count(*), count(DISTINCT id), min(in_main) FROM conversation_events")
        commits = rows(stock, "SELECT count(*) > 0 FROM thread_commits WHERE timeline LIKE 'run/%'")

    assert found[0][0] == found[0][1]
    assert found[0][2] == 1
    assert commits == [(1,)]  # the control: the other line is there


def test_after_a_promotion_main_is_the_other_timeline(path: Path) -> None:
    """Events follow the pointer; the old main is told by the name that it has now."""
    with holdfast.open(path) as store:
        thread_of(store, "x").promote("what-if")

    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as stock:
        found = dict(rows(stock, "SELECT json_extract(args_json, '$.to'), in_main FROM tool_events"))
        lines = {row[0] for row in rows(stock, "SELECT DISTINCT timeline FROM conversation_events")}

    assert (found["forked"], found["main"], found["undone"]) == (1, 0, 0)
    assert any(line.startswith("main.v") for line in lines)
