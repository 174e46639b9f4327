"""Sessions of the OpenAI Agents SDK in SQLite become threads, whatever their tables are called."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure import Store
from perdure.integrations.importers import import_sessions
from tests.integrations.importers.counts import Counts, in_store, sound

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi."},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"n": 1}'},
    {"type": "function_call_output", "call_id": "c1", "output": "found"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
]
COUNTS = Counts(inputs=1, replies=2, calls=1, results=1)


def database(path: Path, items: Sequence[object], table: str = "agent_messages") -> Path:
    """Write a session in the SDK's tables, under any name."""
    file = path / "agents.db"
    table = table.replace('"', '""')
    with sqlite3.connect(file) as connection:
        connection.execute(
            f'CREATE TABLE IF NOT EXISTS "{table}" (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, '
            "message_data TEXT NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
        )
        rows = [("s1", item if isinstance(item, str) else json.dumps(item)) for item in items]
        connection.executemany(f'INSERT INTO "{table}" (session_id, message_data) VALUES (?, ?)', rows)
    connection.close()
    return file


@pytest.mark.parametrize("table", ["agent_messages", "our talks", 'odd"name'])
def test_a_table_is_known_by_its_columns(store: Store, tmp_path: Path, table: str) -> None:
    """The SDK lets programs rename it."""
    import_sessions(store, database(tmp_path, ITEMS, table))

    assert (in_store(store), sound(store)) == (COUNTS, [])


def test_a_session_that_has_grown_adds_the_rest(store: Store, tmp_path: Path) -> None:
    """Rows that are there are not added again."""
    import_sessions(store, database(tmp_path, ITEMS))

    report = import_sessions(store, database(tmp_path, [{"role": "user", "content": "More?"}]))

    assert (report.messages, in_store(store).inputs) == (1, 2)


def test_a_row_that_was_edited_is_named(store: Store, tmp_path: Path) -> None:
    """It is not added after the others; control: a row that is new is."""
    file = database(tmp_path, ITEMS)
    import_sessions(store, file)
    with sqlite3.connect(file) as connection:
        edited = json.dumps({"role": "user", "content": "Edited."})
        connection.execute("UPDATE agent_messages SET message_data = ? WHERE id = 1", (edited,))
    connection.close()
    database(tmp_path, [{"role": "user", "content": "More?"}])

    (session,) = import_sessions(store, file).sessions

    assert (session.edited, session.messages) == (("row 1",), 1)


def test_what_cannot_be_read_is_named_by_its_row(store: Store, tmp_path: Path) -> None:
    """Encrypted items and damaged rows are counted; the others are imported."""
    (session,) = import_sessions(
        store, database(tmp_path, [{"__enc__": 1, "v": "x"}, "{torn", *ITEMS])
    ).sessions

    assert [loss.where for loss in session.losses] == ["row 1", "row 2"]
    assert in_store(store) == COUNTS


def test_items_of_another_vendors_model_are_exported_to_openai(store: Store, tmp_path: Path) -> None:
    """The SDK gives each of them the same id, which is none; an id that two others share is left out and listed."""
    fake = [{**item, "id": "__fake_id__"} for item in ITEMS[1:3]]
    twice = [{**item, "id": "msg_1"} for item in ITEMS[4:] * 2]
    items = [ITEMS[0], *fake, ITEMS[3], *twice]

    (session,) = import_sessions(store, database(tmp_path, items)).sessions

    assert [(loss.where, loss.what) for loss in session.losses] == [("row 6", "id")]
    assert (in_store(store), sound(store)) == (COUNTS, [])


def test_recorded_branches_are_timelines(store: Store, tmp_path: Path) -> None:
    """A branch shares the rows before it."""
    file = database(tmp_path, [*ITEMS, {"role": "user", "content": "A?"}, {"role": "user", "content": "B?"}])
    with sqlite3.connect(file) as connection:
        connection.execute(
            "CREATE TABLE message_structure (session_id TEXT, message_id INTEGER, branch_id TEXT, sequence_number INTEGER)"
        )
        ways = {"main": [1, 2, 3, 4, 5, 6], "branch_1": [1, 2, 3, 4, 5, 7]}
        rows = [("s1", row, name, at) for name, way in ways.items() for at, row in enumerate(way)]
        connection.executemany("INSERT INTO message_structure VALUES (?, ?, ?, ?)", rows)
    connection.close()

    import_sessions(store, file)

    thread = store.thread("openai-agents:s1")
    ends = {thread.on(hold.head.timeline).transcript()[-1].text for hold in thread.timelines()}
    assert (ends, thread.transcript()[-1].text) == ({"A?", "B?"}, "A?")


def test_a_session_of_the_real_sdk_is_read(store: Store, tmp_path: Path) -> None:
    """Its own class wrote the rows."""
    agents = pytest.importorskip("agents")
    session = agents.SQLiteSession("s1", str(tmp_path / "agents.db"))
    asyncio.run(session.add_items(ITEMS))
    session.close()

    import_sessions(store, tmp_path)

    assert in_store(store) == COUNTS
