"""An audit in plain SQL: what an auditor finds with stock SQLite, without a line of Perdure.

The views have the columns of the documents that Perdure implements.  Two of them need what is
packed, and work where `perdure sql` has added its functions.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store, ToolCall, ToolResult
from perdure.engines.registry import open_sql
from perdure.errors import PerdureError
from perdure.history import writer
from perdure.history.tree import Tree
from perdure.history.writer import Proposal
from perdure.model.digest import Kind, Object
from perdure.model.event import BackendSwitched, ToolCallCompleted, ToolCallRequested
from tests.crash import day

COLUMNS = {
    "conversations": "id agent_id current_backend created_at",
    "conversation_events": "id conversation_id sequence_number event_type payload_json provider model created_at "
    "timeline in_main",
    "state_checkpoints": "id conversation_id summary active_goals_json memory_refs_json artifact_refs_json created_at "
    "timeline in_main",
    "tool_events": "id conversation_id tool_name call_id args_json result_ref idempotency_key side_effect_level "
    "created_at state timeline in_main",
    "state_commits": "hash snapshot_hash parent_hash",
    "state_snapshots": "hash entries",
    "state_values": "hash content",
}
ARGS = '{"flight":  "SK1", "price": 12345678901234567890}'
VENDOR = '{"anthropic": {"signature": "abc=="}}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the audited store is."""
    return tmp_path / "agents.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A store in which a trip was booked, with an undone turn and a fork beside it."""
    with perdure.open(path, clock=day.clock(), ids=day.ids()) as store:
        book(store)
        yield store


def book(store: Store) -> None:
    """Book a trip, with an undone turn and a fork beside it."""
    thread = store.thread("trip-42", agent="planner", owner="user-7")
    with thread.change("asked") as change:
        change.say("user", "Book the cheapest: “SK1”, 100 %", id="m-1")
        change.put("/todos.json", ["buy milk", "walk dog"])
    with thread.change("answered") as change:
        call = ToolCall("c-1", "book", ARGS)
        change.say(
            "assistant",
            "On it.",
            tool_calls=[call],
            vendor_metadata=VENDOR,
            provider="anthropic",
            model="claude",
        )
    _call(store)
    with thread.change("told") as change:
        change.say("tool", tool_results=[ToolResult("c-1", "success", ())])
        change.put("/todos.json", ["walk dog"])
    thread.fork("what-if", at="turn:1").put("/tried.json", True)
    thread.put("/undone.json", 1)
    thread.undo()
    store.thread("invoice-7", agent="clerk").put("/total.json", 12)


def _call(store: Store) -> None:
    """Request and complete one call, and switch the backend, as the runtime will."""
    thread = store.thread("trip-42")
    args = Object.of(Kind.BODY, ARGS.encode())
    events = (
        ToolCallRequested(
            id="e-1",
            call="c-1",
            tool="book",
            args=args.digest,
            size=len(ARGS),
            idempotency_key="trip-42-c-1",
            side_effects="external_write",
        ),
        ToolCallCompleted(id="e-2", call="c-1", status="succeeded", result_ref="artifact://sha256/abc"),
        BackendSwitched(id="e-3", from_backend="anthropic:claude", to_backend="openai:gpt-5.6"),
    )
    proposal = Proposal(reason="called", root=thread.root, events=events, objects=(args,))
    writer.commit(thread._space, thread.head, proposal, op_id="call")


@pytest.fixture
def stock(store: Store, path: Path) -> Iterator[sqlite3.Connection]:
    """The same file in the SQLite that comes with Python, read-only, while the store is open."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        yield connection


def rows(stock: sqlite3.Connection, sql: str) -> list[Any]:
    """The rows of a query; bare values where there is one column."""
    found = stock.execute(sql).fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def asked(path: Path, sql: str) -> list[tuple[object, ...]]:
    """The same through `perdure sql`, with its functions."""
    sql_store = open_sql(
        str(path), entries=lambda nodes, root: ((e.path, e.value) for e in Tree(nodes, root).entries())
    )
    with closing(sql_store):
        return list(sql_store.query(sql)[1])


@pytest.mark.parametrize("view", COLUMNS)
def test_a_view_has_the_columns_of_the_documents(store: Store, path: Path, view: str) -> None:
    """Exactly these, in this order; where an event stands comes after them."""
    assert " ".join(str(row[1]) for row in asked(path, f"PRAGMA table_info({view})")) == COLUMNS[view]


def test_conversations_are_listed_with_agent_and_backend(stock: sqlite3.Connection) -> None:
    """The backend is the last one that acted or was switched to."""
    assert rows(stock, "SELECT id, agent_id, current_backend FROM conversations ORDER BY id") == [
        ("invoice-7", "clerk", None),
        ("trip-42", "planner", "openai:gpt-5.6"),
    ]


def test_every_word_that_was_said_can_be_read(stock: sqlite3.Connection) -> None:
    """In order, with its role, as plain JSON; what was undone is not in the conversation."""
    sql = (
        "SELECT json_extract(payload_json, '$.message.role'), json_extract(payload_json, '$.message.content[0].text') "
        "FROM conversation_events WHERE conversation_id = 'trip-42' AND event_type = 'message.appended' AND in_main "
        "ORDER BY sequence_number"
    )

    assert rows(stock, sql) == [
        ("user", "Book the cheapest: “SK1”, 100 %"),
        ("assistant", "On it."),
        ("tool", None),
    ]


def test_events_are_numbered_without_gaps(stock: sqlite3.Connection) -> None:
    """From 1 on, on each line; with types, providers and times."""
    sql = (
        "SELECT sequence_number, event_type, provider, model FROM conversation_events "
        "WHERE conversation_id = 'trip-42' ORDER BY sequence_number"
    )

    assert rows(stock, sql) == [
        (1, "message.appended", None, None),
        (2, "message.appended", "anthropic", "claude"),
        (3, "tool.call.requested", None, None),
        (4, "tool.call.completed", None, None),
        (5, "backend.switched", None, None),
        (6, "message.appended", None, None),
    ]


def test_times_are_plain_text(stock: sqlite3.Connection) -> None:
    """ISO 8601 in UTC, so that they sort and every tool reads them."""
    found = rows(
        stock, "SELECT created_at FROM conversation_events UNION SELECT created_at FROM conversations"
    )

    assert found
    assert all([text.startswith("2023-11-14T22:13:20.") and text.endswith("Z") for text in found])


def test_the_arguments_of_a_call_are_the_raw_text(stock: sqlite3.Connection) -> None:
    """To the letter, in the event that asked for it."""
    sql = "SELECT json_extract(payload_json, '$.args_json') FROM conversation_events WHERE id = 'e-1'"

    assert rows(stock, sql) == [ARGS]


def test_what_only_a_vendor_can_read_is_kept_apart(stock: sqlite3.Connection) -> None:
    """By message, to the letter."""
    sql = "SELECT provider, model, metadata_json FROM provider_metadata WHERE conversation_id = 'trip-42'"

    assert rows(stock, sql) == [("anthropic", "claude", VENDOR)]


def test_commits_form_the_chain_that_the_store_reads(stock: sqlite3.Connection, store: Store) -> None:
    """Hash, snapshot and parent of every commit, undone ones and those of other timelines included."""
    found = {
        hash: (snapshot, parent) for hash, snapshot, parent in rows(stock, "SELECT * FROM state_commits")
    }
    thread = store.thread("trip-42")
    lines = [*thread.log(), *thread.on("what-if").log(), *store.thread("invoice-7").log()]

    assert {
        entry.digest: (entry.root, next(iter(entry.parents), "")) for entry in lines
    }.items() <= found.items()
    assert len(found) == 7


def test_the_first_commit_has_no_parent(stock: sqlite3.Connection) -> None:
    """The empty text stands for none, as in the documents."""
    assert rows(stock, "SELECT count(*) FROM state_commits WHERE parent_hash = ''") == [2]


def test_timelines_say_where_each_stands(stock: sqlite3.Connection, store: Store) -> None:
    """Version, head and seal."""
    thread = store.thread("trip-42")

    assert rows(
        stock, "SELECT timeline, version, head, sealed FROM timelines WHERE conversation_id = 'trip-42'"
    ) == [
        ("main", 6, thread.head.commit, 0),
        ("what-if", 1, thread.on("what-if").head.commit, 0),
    ]


def test_from_a_commit_to_its_state_in_three_steps(store: Store, path: Path) -> None:
    """Commit, snapshot, value: the way of the documents, with the functions of `perdure sql`."""
    commit = store.thread("trip-42").at("turn:1").digest

    ((snapshot,),) = asked(path, f"SELECT snapshot_hash FROM state_commits WHERE hash = '{commit}'")
    ((entries,),) = asked(path, f"SELECT entries FROM state_snapshots WHERE hash = '{snapshot}'")
    value = json.loads(str(entries))["/todos.json"]
    ((content,),) = asked(path, f"SELECT content FROM state_values WHERE hash = '{value}'")

    assert json.loads(str(content)) == ["buy milk", "walk dog"]


def test_every_snapshot_says_what_the_store_says(store: Store, path: Path) -> None:
    """For each commit of the line, path by path."""
    snapshots = {
        str(hash): json.loads(str(entries)) for hash, entries in asked(path, "SELECT * FROM state_snapshots")
    }
    contents = {str(hash): str(content) for hash, content in asked(path, "SELECT * FROM state_values")}
    thread = store.thread("trip-42")

    for entry in thread.log():
        view = thread.at(entry)
        said = {path: json.loads(contents[value]) for path, value in snapshots[str(entry.root)].items()}
        assert said == {path: view.get(path) for path in view.paths()}


def test_a_digest_can_be_computed_from_what_is_read(store: Store, path: Path) -> None:
    """The value's hash is the SHA-256 of kind, length and bytes: an auditor needs no Perdure to check it."""
    for hash, content in asked(path, "SELECT hash, content FROM state_values"):
        body = str(content).encode()
        framed = b"perdure/1\0value\0" + len(body).to_bytes(8, "big") + body
        assert sha256(framed).hexdigest() == hash


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM log",
        "UPDATE heads SET move = ''",
        "CREATE TABLE mine(x)",
        "ATTACH 'x.db' AS x",
        "PRAGMA query_only = 0; DELETE FROM log",
        "PRAGMA writable_schema = 1; DELETE FROM sqlite_schema",
    ],
)
def test_nothing_can_be_written_through_it(store: Store, path: Path, sql: str) -> None:
    """Whatever is tried is refused, and the store is as it was."""
    before = asked(path, "SELECT count(*), sum(id) FROM log")

    with pytest.raises(PerdureError):
        asked(path, sql)

    assert asked(path, "SELECT count(*), sum(id) FROM log") == before
    assert store.verify().faults == ()


def test_stock_sqlite_finds_the_file_whole(stock: sqlite3.Connection) -> None:
    """Integrity, as SQLite itself sees it."""
    assert rows(stock, "PRAGMA integrity_check") == ["ok"]


def test_control_what_is_packed_is_not_shown_by_stock_sqlite(stock: sqlite3.Connection) -> None:
    """The two views that need the functions say so, instead of showing nothing."""
    with pytest.raises(sqlite3.OperationalError, match="no such function: perdure_snapshot"):
        rows(stock, "SELECT * FROM state_snapshots")


def test_a_removed_thread_is_not_listed(store: Store, stock: sqlite3.Connection) -> None:
    """Its record is empty; what it wrote stays in the log until a policy says otherwise."""
    store.thread("invoice-7").rm()

    assert rows(stock, "SELECT id FROM conversations") == ["trip-42"]
