"""Reads the sessions that the OpenAI Agents SDK keeps in SQLite, whatever its tables are called.

The table of messages is known by its columns.  Each row holds one item of the Responses API.  Where the SDK recorded
branches (`message_structure`), each branch is a path; otherwise the rows of a session in their order are its only one.
Items that were encrypted cannot be read, and are counted.

`accepted` leaves out of an item what OpenAI would refuse the whole conversation for, also for Codex, which writes the
same items: programs write ids of another kind or twice, and sealed reasoning that is not OpenAI's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from perdure.integrations.importers.session import (
    ForeignSession,
    Json,
    Original,
    SessionEntry,
    SourcePart,
    as_list,
    as_object,
    as_text,
    moment_name,
    no_such_format,
    thread_id,
)
from perdure.integrations.importers.sources import Candidate, columns_of, opened, quoted, tables_of
from perdure.providers.contract import Loss
from perdure.providers.validator.openai_responses import is_item_id

__all__ = ["API", "FORMAT", "accepted", "grouped", "read_item", "read_sessions", "recognises"]

FORMAT = "openai-agents"
API = "openai-responses"
_COLUMNS = {"id", "session_id", "message_data"}
_OUTPUT = "_output"
_TOKEN = "gAAAA"
_TEXTS = ("output_text", "input_text")  # in messages of the model, and of others
_NO_ID = "__fake_id__"  # what the Agents SDK writes for models of other vendors


def recognises(file: Candidate) -> bool:
    """True if a database has a table with messages of sessions."""
    return file.has_tables(lambda connection: bool(_message_tables(connection)))


def _message_tables(connection: Connection) -> list[str]:
    """Return the tables that hold messages of sessions."""
    return [table for table in tables_of(connection) if columns_of(connection, table) >= _COLUMNS]


def read_sessions(place: str) -> Iterator[ForeignSession]:
    """Yield the sessions of a database, sorted by table and id."""
    with opened(Path(place)) as connection:
        yield from _read(Path(place), connection)


def _read(path: Path, connection: Connection) -> Iterator[ForeignSession]:
    tables = _message_tables(connection)
    if not tables:
        raise no_such_format(str(path), (FORMAT,))
    for table in tables:
        name = quoted(table)
        ids = connection.execute(f"SELECT DISTINCT session_id FROM {name} ORDER BY session_id").fetchall()
        for (id,) in ids:
            prefix = f"{table}/" if len(tables) > 1 else ""
            yield _session(path, connection, table, str(id), prefix)


def _session(path: Path, connection: Connection, table: str, id: str, prefix: str) -> ForeignSession:
    query = f"SELECT id, message_data FROM {quoted(table)} WHERE session_id = ? ORDER BY id"
    rows = [(int(row), data) for row, data in connection.execute(query, (id,))]
    session = ForeignSession(
        format=FORMAT, id=id, thread=thread_id(FORMAT, prefix + id), source=str(path), api=API
    )
    session.facts = {"session": id, "table": table}
    session.has_removed = _removed_up_to(_last_row(connection, table))
    items: dict[int, tuple[str, SourcePart]] = {}
    taken: set[str] = set()  # ids of items
    for row, data in rows:
        found = _item(session, row, data, taken)
        if found is not None:
            items[row] = found
    session.paths = [
        grouped([items[row] for row in way if row in items]) for way in _ways(connection, id, rows)
    ]
    text = b"\n".join(_bytes(data) for _, data in rows)
    session.originals = [Original(name=f"{table}.jsonl", content=text)]
    return session


def _last_row(connection: Connection, table: str) -> int:
    """Return the highest number that a row of a table ever had, also one that is gone; 0 if SQLite does not keep it."""
    kept = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'sqlite_sequence'"
    if connection.execute(kept).fetchone() is None:
        return 0
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return found[0] if found is not None and isinstance(found[0], int) else 0


def _removed_up_to(last: int) -> Callable[[str], bool]:
    """Return what is true for the name of a row that was there, as `pop_item` removes one: its number was given out."""

    def was_there(name: str) -> bool:
        row = name.removeprefix(f"{FORMAT}:").partition("-")[0]
        return row.isdigit() and int(row) <= last

    return was_there


def _bytes(data: object) -> bytes:
    return data if isinstance(data, bytes) else str(data).encode("utf-8", "surrogatepass")


def _ways(connection: Connection, id: str, rows: Sequence[tuple[int, object]]) -> list[list[int]]:
    """Return the rows of each branch, `main` first; all rows if no branches are recorded."""
    whole = [row for row, _ in rows]
    if not columns_of(connection, "message_structure") >= {
        "session_id",
        "message_id",
        "branch_id",
        "sequence_number",
    }:
        return [whole]
    query = "SELECT branch_id, message_id FROM message_structure WHERE session_id = ? ORDER BY branch_id, sequence_number"
    ways: dict[str, list[int]] = {"main": []}
    for branch, message in connection.execute(query, (id,)):
        ways.setdefault(str(branch), []).append(int(message))
    listed = {row for way in ways.values() for row in way}
    ways["main"] += [row for row in whole if row not in listed]
    return [way for way in ways.values() if way]


def _item(session: ForeignSession, row: int, data: object, taken: set[str]) -> tuple[str, SourcePart] | None:
    """Return the role of a row and its item; None if it is not the conversation's."""
    raw = _bytes(data)
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    item = as_object(value)
    if not item or "__enc__" in item:
        what = "encrypted item" if item else "row that is no JSON object"
        session.unmapped[what] += 1
        why = "it cannot be read; it is kept in the original"
        session.losses.append(Loss(kind="dropped", where=f"row {row}", what=what, why=why))
        return None
    name = moment_name(FORMAT, f"{row}-{sha256(raw).hexdigest()[:12]}")
    item, lost = accepted(item, taken)
    session.losses += [Loss(kind="dropped", where=f"row {row}", what=what, why=why) for what, why in lost]
    found = read_item(item, name=name, where=f"row {row}", facts={"row": row}, place=row)
    if found is None:
        session.unmapped[f"message of the {item.get('role')}"] += 1
    return found


def read_item(
    item: Json, *, name: str, where: str, facts: Json, place: int | None = None
) -> tuple[str, SourcePart] | None:
    """Return the role of an item and the item as a part of an entry; None for a message of the system or developer."""
    role = _role(item)
    if role is None:
        return None
    if isinstance(item.get("output"), dict | int | float | bool) and str(item.get("type")).endswith(_OUTPUT):
        item = {**item, "output": json.dumps(item["output"], ensure_ascii=False)}
    return role, SourcePart(name=name, item=item, where=where, facts=facts, place=place)


def _role(item: Json) -> str | None:
    kind = as_text(item.get("type")) or "message"
    if kind == "message":
        role = item.get("role")
        return role if role in ("user", "assistant") else None
    return "tool" if kind.endswith(_OUTPUT) else "assistant"


def grouped(items: Sequence[tuple[str, SourcePart]]) -> tuple[SessionEntry, ...]:
    """Group items into entries: a message of the user, a reply, or the results of its calls."""
    groups: list[tuple[str, list[SourcePart]]] = []
    for role, part in items:
        if groups and groups[-1][0] == role and role != "user":
            groups[-1][1].append(part)
        else:
            groups.append((role, [part]))
    return tuple(SessionEntry(parts=tuple(parts), begins_turn=role == "user") for role, parts in groups)


def accepted(item: Json, ids: set[str]) -> tuple[Json, list[tuple[str, str]]]:
    """Return an item as OpenAI takes it, and what was left out with the reason; `ids` are those of the items before it."""
    found, lost = dict(item), list[tuple[str, str]]()
    token: Any = found.get("encrypted_content")
    if token is not None and not (isinstance(token, str) and token.startswith(_TOKEN)):
        lost.append(("encrypted_content", "it is not one of OpenAI's tokens; it is kept in the original"))
        del found["encrypted_content"]
    id: Any = found.get("id")
    kind = str(found.get("type") or "message")
    if id is not None and (not isinstance(id, str) or not is_item_id(kind, id) or id in ids):
        if id != _NO_ID:
            why = "it is no id of such an item, or another item has it; it is kept in the original"
            lost.append(("id", why))
        del found["id"]
    elif id is not None:
        ids.add(id)
    if kind == "message" and isinstance(found.get("content"), list):
        own, other = _TEXTS if found.get("role") == "assistant" else _TEXTS[::-1]
        found["content"] = [
            {**block, "type": own} if as_object(block).get("type") == other else block
            for block in as_list(found["content"])
        ]
    return found, lost
