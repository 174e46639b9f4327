"""The SQL views show each event once, with its timeline, and each call of the ledger, wherever it was made."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.testing import Script, say, use


@perdure.tool(effect="financial")
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
    with perdure.open(path) as store:
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
        ('{"to": "by hand"}', "succeeded", "main", 1),
        ('{"to": "main"}', "succeeded", "main", 1),
    ]
    with perdure.open(path, read_only=True) as store:
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
    with perdure.open(path, read_only=True) as store:
        said = [entry.id for entry in thread_of(store, "x").transcript()]

    assert [row[0] for row in rows(stock, sql)] == said


def test_events_of_a_run_that_rebased_its_line_are_shown_once(tmp_path: Path) -> None:
    """Its own line has them too; main's are the ones that are shown."""
    with perdure.open(tmp_path / "s.db") as store:

        @perdure.tool(effect="external_write")
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
    with perdure.open(path) as store:
        thread_of(store, "x").promote("what-if")

    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as stock:
        found = dict(rows(stock, "SELECT json_extract(args_json, '$.to'), in_main FROM tool_events"))
        lines = {row[0] for row in rows(stock, "SELECT DISTINCT timeline FROM conversation_events")}

    assert (found["forked"], found["main"], found["undone"]) == (1, 0, 0)
    assert any(line.startswith("main.v") for line in lines)


def shown_arguments(path: Path) -> dict[str, str | None]:
    """The arguments of every call, as SQL shows them."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as stock:
        return dict(rows(stock, "SELECT call_id, args_json FROM tool_events"))


@pytest.mark.parametrize("effect", ["none", "local_write", "financial"])
@pytest.mark.parametrize("ask", [False, True])
def test_arguments_of_calls_by_hand_are_shown(tmp_path: Path, effect: Any, ask: bool) -> None:
    """Of calls that were made, that failed, that wait for a decision, and that say what an earlier one said."""

    @perdure.tool(effect=effect, ask=ask)
    def send(to: str) -> str:
        return f"sent {1 // (to != 'nobody')}"

    given = {"first": "Ämne", "again": "Ämne", "large": "x" * 100_000, "fails": "nobody"}
    with perdure.open(tmp_path / "s.db") as store:
        thread = store.thread("t", agent="a")
        for id, to in given.items():
            thread.call(send, {"to": to}, id=id)
            thread.put("/note.json", id)

    shown = shown_arguments(tmp_path / "s.db")

    assert {id: json.loads(text or "null") for id, text in shown.items()} == {
        id: {"to": to} for id, to in given.items()
    }


def test_arguments_that_a_model_gave_first_are_shown_of_a_call_by_hand_too(tmp_path: Path) -> None:
    """The store keeps the same words once, where the model said them."""
    with perdure.open(tmp_path / "s.db") as store:
        thread_of(store, "ann").run("Pay.")
        thread_of(store, "ann").call(pay, {"to": "ann"}, id="by-hand")

    shown = shown_arguments(tmp_path / "s.db")

    assert len(shown) == 2
    assert set(shown.values()) == {'{"to": "ann"}'}


@pytest.mark.parametrize("chain", [False, True])
def test_a_change_by_hand_that_was_undone_keeps_its_timeline(tmp_path: Path, chain: bool) -> None:
    """Also in a thread with several timelines, and of each commit of a chain."""
    with perdure.open(tmp_path / "s.db") as store:
        main = store.thread("t", agent="a")
        main.put("/a.json", 0)
        for line in (main, main.fork("what-if"), main.fork("third")):
            with line.change("told", chain=chain) as change:
                change.say("user", f"On {line.timeline}.")
                change.put("/a.json", line.timeline)
            line.undo(2 if chain else 1)

    with closing(sqlite3.connect(f"file:{tmp_path / 's.db'}?mode=ro", uri=True)) as stock:
        said = rows(stock, "SELECT timeline, in_main FROM conversation_events ORDER BY timeline")
        commits = rows(stock, "SELECT DISTINCT timeline FROM thread_commits ORDER BY 1")

    assert said == [("main", 0), ("third", 0), ("what-if", 0)]
    assert commits == [("main",), ("third",), ("what-if",)]
