"""Reads the threads of LangGraph's savers: the messages of their checkpoints, with every branch.

Each checkpoint holds the whole list of messages, or for a delta channel the writes since its parent.  The lists of all
checkpoints form a tree of messages; each end of it is a path, and the list of the newest checkpoint is the first.  So
messages that a graph removed or replaced are kept on a timeline of their own.

The newest checkpoint is carried over whole, as Perdure's saver stores it: channels, versions, metadata and the writes of
tasks, so that the graph goes on from it under the same thread id.  So are those of subgraphs that may still go on.
If a value has no form in a checkpoint, none is carried over; the report says so, and the saver refuses the thread.

The tables are in a SQLite file or on a PostgreSQL server, and nothing is written there.  Both give the same rows.  A
table without the columns that are read here is of a version that is not known.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Protocol, cast

import msgspec

from perdure.errors import Invalid, PerdureError, Unavailable, Unsupported
from perdure.integrations import foreign_ids
from perdure.integrations.checkpoint_layout import carried_record, is_of_task, is_trigger
from perdure.integrations.importers.foreign_data import ForeignObject, decode_typed, plain, saver_form
from perdure.integrations.importers.session import (
    CarriedCheckpoint,
    ForeignSession,
    Json,
    Link,
    Original,
    SessionEntry,
    SourcePart,
    as_list,
    as_object,
    as_text,
    moment_name,
    no_such_format,
    shortened,
    thread_id,
)
from perdure.integrations.importers.sources import Candidate, columns_of, is_server, opened
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.names import shown_address
from perdure.providers.contract import Loss
from perdure.providers.framework_messages import vendor_fields

__all__ = ["read_sessions", "recognises"]

FORMAT = "langgraph"
_ROLES = {"human": "user", "user": "user", "ai": "assistant", "assistant": "assistant", "tool": "tool"} | {
    "function": "tool",
    "system": "system",
    "developer": "system",
    "remove": "remove",
}
_INNER = ("__", "branch:", "start:", "join:")  # channels of the graph itself
_FACTS = (
    "id",
    "name",
    "response_metadata",
    "usage_metadata",
    "additional_kwargs",
    "invalid_tool_calls",
    "artifact",
)


def recognises(file: Candidate) -> bool:
    """True if a database has the tables of the saver, whatever their columns; a server is expected to."""
    return file.is_server or file.has_tables(has_checkpoints)


def read_sessions(place: str) -> Iterator[ForeignSession]:
    """Yield the sessions of a saver: one for each thread and namespace."""
    if is_server(place):
        with open_postgres(place) as tables:
            yield from _read(tables, shown_address(place))
        return
    with opened(Path(place)) as connection:
        if not has_checkpoints(connection):
            raise no_such_format(place, (FORMAT,))
        yield from _read(SqliteTables(connection, place), place)


def _read(tables: Tables, source: str) -> Iterator[ForeignSession]:
    """Yield the sessions of each thread: those of its namespaces, then that of the root graph, which carries on."""
    for thread, places in groupby(tables.threads(), key=lambda place: place[0]):
        root: _CheckpointReading | None = None
        others: list[_CheckpointReading] = []  # of namespaces that may go on
        for _, namespace in places:
            reading = _CheckpointReading(tables, thread, namespace, source)
            session = reading.session()
            if namespace == "":
                root = reading
                continue
            if root is not None and reading.may_go_on(root):
                others.append(reading)
            yield session
        if root is not None:
            yield root.carrying(others)


class _MessageNode(msgspec.Struct, kw_only=True):
    """One message in the tree of all lists."""

    value: Any  # as it was stored
    parent: _MessageNode | None
    name: str
    children: list[_MessageNode] = []


class _CheckpointReading:
    """One thread and namespace."""

    def __init__(self, tables: Tables, thread: str, namespace: str, source: str) -> None:
        self._tables, self._thread, self._namespace = tables, thread, namespace
        id = f"{thread}/{namespace}" if namespace else thread
        own = thread_id(FORMAT, id) if namespace else foreign_ids.thread_id(thread)  # as the saver names it
        self._session = ForeignSession(format=FORMAT, id=id, thread=own, source=source)
        self._session.facts = {"session": id, "thread_id": thread, "checkpoint_ns": namespace}
        self._roots: list[_MessageNode] = []
        self._lists: dict[str, list[_MessageNode]] = {}  # by checkpoint
        self._ends: dict[str, list[str]] = {}  # the checkpoints whose lists end with a message, by its name
        self._channel: str | None = None
        self._newest: CheckpointRow | None = None  # None: the last one cannot be read, or there is none

    def session(self) -> ForeignSession:
        """Read all checkpoints; the newest one decides about the first path and the state."""
        newest: CheckpointRow | None = None
        raw: dict[str, CheckpointRow] = {}
        digest = sha256()
        count, last = 0, ""
        for row in self._tables.checkpoints(self._thread, self._namespace):
            count, last = count + 1, row.id
            digest.update(row.id.encode("utf-8", "surrogatepass") + sha256(row.raw).digest())
            if row.parent in raw:
                del raw[row.parent]
            raw[row.id] = row
            if row.fault is None:
                self._lists[row.id] = way = self._list(row)
                if way:
                    self._ends.setdefault(way[-1].name, []).append(moment_name(FORMAT, row.id))
                newest = row
            else:
                self._session.unmapped["checkpoint that cannot be read"] += 1
                why = f"{row.fault[:200]}; it is kept in the original if nothing follows it"
                self._session.losses.append(
                    Loss(kind="dropped", where=f"checkpoint {row.id[:80]}", what="checkpoint", why=why)
                )
        self._session.facts |= {"checkpoints": count, "checkpoints_digest": digest.hexdigest()}
        self._session.paths = self._paths(newest)
        self._newest = newest if newest is not None and newest.id == last else None
        if newest is not None:
            self._session.facts["checkpoint"] = newest.id
            self._session.state = self._state(newest)
        self._session.originals = self._originals(raw, newest)
        if self._namespace:
            self._session.links.append(Link(kind="parent", thread=foreign_ids.thread_id(self._thread)))
        self._session.checkpoints = frozenset(self._lists)
        return self._session

    def may_go_on(self, root: _CheckpointReading) -> bool:
        """True for a subgraph that remembers, and for the task of a step that has not ended."""
        if self._newest is None or root._newest is None:
            return False
        return not is_of_task(self._namespace) or self._newest.id > root._newest.id

    def carrying(self, others: Sequence[_CheckpointReading]) -> ForeignSession:
        """Return the session with the checkpoints that a graph goes on from, its own last; without any if one has no form."""
        if self._newest is None:
            return self._session
        try:
            self._session.carried = [each._carried() for each in (*others, self)]
        except (PerdureError, RecursionError, TypeError, ValueError, AttributeError) as error:
            why = f"a graph cannot go on from it: {str(error)[:200]}"
            self._session.losses.append(
                Loss(kind="dropped", where="the newest checkpoint", what="checkpoint", why=why)
            )
        self._session.checkpoints = self._session.checkpoints.union(*(each._lists for each in others))
        return self._session

    def _carried(self) -> CarriedCheckpoint:
        row = self._newest
        assert row is not None
        values = dict(row.values)
        for channel in as_object(row.metadata.get("counters_since_delta_snapshot")):
            if channel not in values:
                if channel != self._channel:
                    raise _not_carried(f"channel {channel[:80]} is stored as differences")
                values[channel] = ForeignObject(
                    "langgraph", "DeltaSnapshot", [n.value for n in self._lists[row.id]]
                )
        place, is_early = (self._thread, self._namespace), row.checkpoint["v"] < _VERSION_MAX
        if is_early and row.parent and self._tables.writes(place, row.parent, "__pregel_tasks"):
            raise _not_carried("it is of an early version and has tasks that were sent")
        about: Json = {"source": "loop", "step": max(len(self._lists) - 2, -1), "parents": {}, **row.metadata}
        whole = {**row.checkpoint, "id": row.id}
        nodes = self._lists[row.id] if isinstance(values.get(self._channel or ""), list) else []
        return CarriedCheckpoint(
            namespace=self._namespace,
            record=carried_record(place, whole, values, about, saver_form),
            channels={name: saver_form(each) for name, each in values.items() if not is_trigger(name, each)},
            messages=self._channel if nodes else None,
            parts=tuple(node.name for node in nodes),
            writes=tuple(
                {**each, "value": saver_form(each["value"]), "at": 0}
                for each in self._tables.writes(place, row.id)
            ),
        )

    def _list(self, row: CheckpointRow) -> list[_MessageNode]:
        """Return the messages of a checkpoint as nodes of the tree."""
        before = self._lists.get(row.parent or "", [])
        channel = self._channel or _message_channel(row.values)
        if channel is None and row.parent is not None and "messages" in row.channels:
            channel = "messages"
        if channel is None:
            return before
        if channel in row.values:
            self._channel = channel
            values = _unwrapped(row.values[channel])
        elif channel in row.channels and row.parent is not None:
            values = self._replayed([node.value for node in before], row.parent, channel)
        else:
            return before
        return self._nodes(values, before)

    def _replayed(self, values: list[Any], parent: str, channel: str) -> list[Any]:
        """Return a list with the writes that were stored at the checkpoint before, as a delta channel applies them."""
        try:
            writes = self._tables.writes((self._thread, self._namespace), parent, channel)
        except PerdureError:
            self._session.unmapped["write that cannot be read"] += 1
            return values
        for write in (each["value"] for each in writes):
            for value in as_list(write) or [write]:
                fields = _fields(value)
                id = None if fields is None else as_text(fields[1].get("id"))
                at = next(
                    (
                        n
                        for n, each in enumerate(values)
                        if id and (_fields(each) or ("", {}))[1].get("id") == id
                    ),
                    None,
                )
                if fields is not None and fields[0] == "remove":
                    values = [] if id == "__remove_all__" else [v for n, v in enumerate(values) if n != at]
                elif at is not None:
                    values = [*values[:at], value, *values[at + 1 :]]
                elif fields is not None:
                    values = [*values, value]
        return values

    def _nodes(self, values: Sequence[Any], before: Sequence[_MessageNode]) -> list[_MessageNode]:
        """Return the nodes of a list: those of the list before as far as both are equal, then others."""
        same = 0
        while same < min(len(values), len(before)) and values[same] == before[same].value:
            same += 1
        way = list(before[:same])
        for value in values[same:]:
            parent = way[-1] if way else None
            siblings = self._roots if parent is None else parent.children
            node = next((each for each in siblings if each.value == value), None)
            if node is None:
                node = _MessageNode(value=value, parent=parent, name=_name(parent, value))
                siblings.append(node)
            way.append(node)
        return way

    def _paths(self, newest: CheckpointRow | None) -> list[tuple[SessionEntry, ...]]:
        """Return the way to each end of the tree, after that of the newest checkpoint."""
        found: dict[str, list[_MessageNode]] = {}
        if newest is not None and self._lists[newest.id]:
            found[self._lists[newest.id][-1].name] = self._lists[newest.id]
        for way in self._lists.values():
            if way and not way[-1].children:
                found.setdefault(way[-1].name, way)
        self._entries: dict[str, SessionEntry | None] = {}
        return [tuple(e for node in way if (e := self._entry(node)) is not None) for way in found.values()]

    def _entry(self, node: _MessageNode) -> SessionEntry | None:
        if node.name not in self._entries:
            self._entries[node.name] = self._converted(node)
        return self._entries[node.name]

    def _converted(self, node: _MessageNode) -> SessionEntry | None:
        fields = _fields(node.value)
        if fields is None or fields[0] not in ("user", "assistant", "tool"):
            role = fields[0] if fields else "unknown role"
            self._session.unmapped[f"message of the {role}"] += 1
            return None
        role, told = fields
        message = self._message(role, told)
        meta = as_object(told.get("response_metadata"))
        is_reply = role == "assistant"
        facts = {field: plain(told[field]) for field in _FACTS if told.get(field)}
        where = f"message {told.get('id')}"[:80]
        also = tuple(self._ends.get(node.name, ()))
        return SessionEntry(
            parts=(SourcePart(name=node.name, item=message, where=where, facts=facts, also=also),),
            provider=as_text(meta.get("model_provider")) if is_reply else None,
            model=(as_text(meta.get("model_name")) or as_text(meta.get("model"))) if is_reply else None,
            begins_turn=role == "user",
        )

    def _message(self, role: str, told: Json) -> Message:
        blocks = self._blocks(told.get("content"))
        if role == "user":
            return Message("user", blocks)
        if role == "tool":
            call = as_text(told.get("tool_call_id")) or as_text(told.get("name")) or "-"
            status = "error" if told.get("status") == "error" else "success"
            return Message("tool", (), (), (ToolResult(call, status, blocks),))
        asked = as_list(told.get("tool_calls"))
        calls = [_call(as_object(each), at) for at, each in enumerate(asked)]
        calls += [
            _call(as_object(each), at)
            for at, each in enumerate(as_list(told.get("invalid_tool_calls")), len(asked))
        ]
        return Message("assistant", blocks, tuple(calls))

    def _blocks(self, content: Any) -> tuple[Block, ...]:
        if isinstance(content, str):
            return (Text(content),) if content else ()
        found: list[Block] = []
        for each in as_list(content):
            block = Text(each) if isinstance(each, str) else _block(as_object(each))
            if block is not None:
                found.append(block)
                for _, what in vendor_fields(as_object(each)):
                    self._session.unmapped[f"{what[:40]} of {as_object(each).get('type')}"] += 1
            elif as_object(each).get("type") not in (
                "tool_use",
                "tool_call",
                "function_call",
                "invalid_tool_call",
            ):
                self._session.unmapped[f"content of type {str(as_object(each).get('type'))[:40]}"] += 1
        return tuple(found)

    def _state(self, row: CheckpointRow) -> Json:
        """Return the values of the other channels by path."""
        state: Json = {}
        for channel, value in row.values.items():
            if channel == self._channel or channel.startswith(_INNER):
                continue
            try:
                state[f"/langgraph/{shortened(channel, 100)}"] = plain(value)
            except (PerdureError, RecursionError):
                self._session.unmapped["channel that cannot be read"] += 1
        return state

    def _originals(self, raw: Mapping[str, CheckpointRow], newest: CheckpointRow | None) -> list[Original]:
        """Return the checkpoints at the ends of the thread as they are stored, which hold everything before them."""
        found = [
            Original(name=f"checkpoint {row.id}", content=row.raw, media_type="application/octet-stream")
            for row in raw.values()
            if row.raw
        ]
        if not found and newest is not None:  # stored in pieces, so the values are kept as they were read
            values = json.dumps(plain(newest.values), ensure_ascii=False).encode("utf-8", "surrogatepass")
            found = [Original(name=f"checkpoint {newest.id}", content=values, media_type="application/json")]
        told = json.dumps(self._session.facts, sort_keys=True).encode("utf-8", "surrogatepass")
        return [*found, Original(name="thread", content=told, media_type="application/json")]


def _not_carried(why: str) -> Unsupported:
    return Unsupported(f"{why}.", code="import_checkpoint_not_carried")


def _name(parent: _MessageNode | None, value: Any) -> str:
    """Return the name of a message, which depends on all messages before it."""
    text = json.dumps([parent.name if parent else "", plain(value)], sort_keys=True, ensure_ascii=False)
    return moment_name(FORMAT, sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])


def _unwrapped(value: Any) -> list[Any]:
    """Return a list of messages, also from the snapshot of a delta channel."""
    if isinstance(value, ForeignObject) and value.name == "DeltaSnapshot":
        value = value.value
    return as_list(value)


def _message_channel(values: Json) -> str | None:
    """Return the channel that holds messages: `messages`, or the first one that has any."""
    for channel in sorted(values, key=lambda name: (name != "messages", name)):
        found = [_fields(each) is not None for each in _unwrapped(values[channel])]
        if any(found) if channel == "messages" else found and all(found):
            return channel
    return None


def _fields(value: Any) -> tuple[str, Json] | None:
    """Return the role and the fields of a message in any of the forms that graphs store; None if it is none."""
    if isinstance(value, ForeignObject):
        if not value.name.removesuffix("Chunk").endswith("Message"):
            return None
        told = as_object(value.value)
        kind = value.name.removesuffix("Chunk").removesuffix("Message").lower()
        kind = str(told.get("role") or "user") if kind == "chat" else kind
    else:
        told = as_object(value)
        if "content" not in told:
            return None
        kind = str(told.get("role") or told.get("type"))
    role = _ROLES.get(kind)
    return None if role is None else (role, told)


def _call(call: Json, at: int) -> ToolCall:
    function = as_object(call.get("function"))
    arguments = call.get("args", function.get("arguments"))
    text = arguments if isinstance(arguments, str) else json.dumps(plain(arguments or {}), ensure_ascii=False)
    name = as_text(call.get("name")) or as_text(function.get("name")) or "unknown"
    return ToolCall(as_text(call.get("id")) or f"call-{at}", name, text)


def _block(part: Json) -> Block | None:
    """Return a part of a message; None if it has no place in one."""
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return Text(part["text"])
    for field in ("thinking", "reasoning"):
        if kind == field and isinstance(part.get(field), str):
            return ReasoningSummary(part[field])
    if kind == "image_url":
        given = part.get("image_url")
        url = as_text(given) or as_text(as_object(given).get("url"))
        return Image(url, _media_type(url, "image/png")) if url else None
    if kind in ("image", "file", "audio", "video"):
        return _file(str(kind), part)
    return None


def _file(kind: str, part: Json) -> Block | None:
    source = as_object(part.get("source")) or part
    media = as_text(part.get("mime_type")) or as_text(source.get("media_type"))
    media = media or ("image/png" if kind == "image" else "application/octet-stream")
    data = as_text(part.get("base64")) or as_text(source.get("data"))
    url = f"data:{media};base64,{data}" if data else as_text(source.get("url"))
    if url is None:
        return None
    return Image(url, media) if media.startswith("image/") else File(url, media)


def _media_type(url: str, default: str) -> str:
    declared = url[5:].partition(";")[0].partition(",")[0] if url.startswith("data:") else ""
    return declared if "/" in declared else default


# ---- the tables

_VERSION_MAX = 4  # of the format of a checkpoint
_CHECKPOINTS = {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint"}


class CheckpointRow(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint."""

    id: str
    parent: str | None
    values: Json  # by channel
    channels: frozenset[str]  # that have a version
    raw: bytes  # as it is stored; empty where it is stored in pieces
    kind: str = ""
    fault: str | None = None  # why it cannot be read
    checkpoint: Json = {}  # all of it, as far as it is stored in one piece
    metadata: Json = {}


class Tables(Protocol):
    """The tables of a saver."""

    def threads(self) -> list[tuple[str, str]]:
        """Return the ids of threads with their namespaces, sorted."""
        ...

    def checkpoints(self, thread: str, namespace: str) -> Iterator[CheckpointRow]:
        """Yield the checkpoints in the order of their ids, which is that of time."""
        ...

    def writes(self, place: tuple[str, str], checkpoint: str, channel: str | None = None) -> list[Json]:
        """Return the writes of tasks at a checkpoint in the order in which they apply, to one channel or to all for None.

        Each has its task, path, index, channel and value.
        """
        ...


def has_checkpoints(connection: Connection) -> bool:
    """True if a database has the tables of the saver, whatever their columns."""
    return bool(columns_of(connection, "checkpoints")) and bool(columns_of(connection, "writes"))


class SqliteTables:
    """The tables of the SQLite saver."""

    def __init__(self, connection: Connection, source: str) -> None:
        """Check the columns; raise `Unsupported` if they are not those of a known version."""
        self._connection = connection
        lacking = _CHECKPOINTS - columns_of(connection, "checkpoints")
        if lacking:
            raise _unknown_version(source, f"table checkpoints has no column {', '.join(sorted(lacking))}")
        has_path = "task_path" in columns_of(connection, "writes")
        self._path = "task_path" if has_path else "NULL"
        self._order = "task_path, task_id, idx" if has_path else "task_id, idx"
        self._metadata = "metadata" if "metadata" in columns_of(connection, "checkpoints") else "NULL"

    def threads(self) -> list[tuple[str, str]]:
        """Return the ids of threads with their namespaces, sorted."""
        query = "SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints ORDER BY thread_id, checkpoint_ns"
        return [(str(thread), str(namespace)) for thread, namespace in self._connection.execute(query)]

    def checkpoints(self, thread: str, namespace: str) -> Iterator[CheckpointRow]:
        """Yield the checkpoints in the order of their ids."""
        query = (
            f"SELECT checkpoint_id, parent_checkpoint_id, type, checkpoint, {self._metadata} FROM checkpoints "
            "WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id"
        )
        for id, parent, kind, body, metadata in self._connection.execute(query, (thread, namespace)):
            raw = body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogateescape")
            yield _row(str(id), parent, str(kind or "json"), raw, metadata)

    def writes(self, place: tuple[str, str], checkpoint: str, channel: str | None = None) -> list[Json]:
        """Return the writes of tasks at a checkpoint."""
        query = (
            f"SELECT task_id, {self._path}, idx, channel, type, value FROM writes "
            "WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3 AND (?4 IS NULL OR channel = ?4) "
            f"ORDER BY {self._order}"
        )
        return [_task_write(*row) for row in self._connection.execute(query, (*place, checkpoint, channel))]


class PostgresTables:
    """The tables of the PostgreSQL saver, which keeps the values of channels apart."""

    def __init__(self, connection: Any) -> None:
        """Read through an open connection."""
        self._connection = connection

    def threads(self) -> list[tuple[str, str]]:
        """Return the ids of threads with their namespaces, sorted."""
        query = "SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints ORDER BY thread_id, checkpoint_ns"
        return [(str(thread), str(namespace)) for thread, namespace in self._connection.execute(query)]

    def checkpoints(self, thread: str, namespace: str) -> Iterator[CheckpointRow]:
        """Yield the checkpoints in the order of their ids."""
        query = (
            "SELECT checkpoint_id, parent_checkpoint_id, checkpoint, metadata FROM checkpoints "
            'WHERE thread_id = %s AND checkpoint_ns = %s ORDER BY checkpoint_id COLLATE "C"'
        )
        for id, parent, body, metadata in self._connection.execute(query, (thread, namespace)).fetchall():
            checkpoint = as_object(body)
            values = {**as_object(checkpoint.get("channel_values"))}
            fault = _version_fault(checkpoint)
            try:
                values |= self._blobs(thread, namespace, as_object(checkpoint.get("channel_versions")))
            except PerdureError as error:
                fault = str(error)
            channels = frozenset(as_object(checkpoint.get("channel_versions")))
            yield CheckpointRow(
                id=str(id),
                parent=parent,
                values=values,
                channels=channels,
                raw=b"",
                fault=fault,
                checkpoint=checkpoint,
                metadata=as_object(metadata),
            )

    def writes(self, place: tuple[str, str], checkpoint: str, channel: str | None = None) -> list[Json]:
        """Return the writes of tasks at a checkpoint."""
        query = (
            "SELECT task_id, task_path, idx, channel, type, blob FROM checkpoint_writes WHERE thread_id = %s "
            "AND checkpoint_ns = %s AND checkpoint_id = %s AND (%s::text IS NULL OR channel = %s) "
            "ORDER BY task_path, task_id, idx"
        )
        given = (*place, checkpoint, channel, channel)
        return [_task_write(*row) for row in self._connection.execute(query, given).fetchall()]

    def _blobs(self, thread: str, namespace: str, versions: Json) -> Json:
        query = (
            "SELECT channel, type, blob FROM checkpoint_blobs WHERE thread_id = %s AND checkpoint_ns = %s "
            "AND (channel, version) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
        )
        given = (thread, namespace, list(versions), [str(each) for each in versions.values()])
        rows = self._connection.execute(query, given).fetchall()
        return {str(channel): _decoded(str(kind), body) for channel, kind, body in rows if kind != "empty"}


@contextmanager
def open_postgres(url: str) -> Generator[PostgresTables]:
    """Open the tables on a server in a transaction that can only read; raise `Unavailable` if it cannot be reached."""
    try:
        import psycopg
    except ImportError as error:
        raise Unavailable(
            "PostgreSQL is read through psycopg, which is not installed; nothing was imported.",
            code="driver_missing",
            advice="Install perdure[postgres].",
        ) from error
    place = shown_address(url)
    try:
        with psycopg.connect(url) as connection:
            connection.read_only = True
            _check_postgres(connection, place)
            yield PostgresTables(connection)
    except psycopg.Error as error:
        raise Unavailable(
            f"PostgreSQL at {place} did not answer as expected ({type(error).__name__}); nothing more was imported.",
            code="import_database_unavailable",
            source=place,
        ) from error


def _check_postgres(connection: Any, place: str) -> None:
    query = (
        "SELECT count(DISTINCT table_name) FROM information_schema.tables WHERE table_schema = ANY(current_schemas(false)) "
        "AND table_name IN ('checkpoints', 'checkpoint_blobs', 'checkpoint_writes')"
    )
    if connection.execute(query).fetchone() != (3,):
        raise Invalid(
            f"{place} has no tables of LangGraph's saver; nothing was imported from it.",
            code="import_format_unknown",
            source=place,
        )


def _task_write(
    task: str, path: str | None, index: int, channel: str, kind: str | None, body: object
) -> Json:
    about: Json = {"task": str(task), "path": path or "", "index": index, "channel": str(channel)}
    return {**about, "value": _decoded(kind or "json", body)}


def _row(id: str, parent: object, kind: str, raw: bytes, metadata: object) -> CheckpointRow:
    try:
        checkpoint = as_object(decode_typed(kind, raw))
        fault = _version_fault(checkpoint)
    except PerdureError as error:
        checkpoint, fault = {}, str(error)
    return CheckpointRow(
        id=id,
        parent=parent if isinstance(parent, str) and parent else None,
        values=as_object(checkpoint.get("channel_values")),
        channels=frozenset(as_object(checkpoint.get("channel_versions"))),
        raw=raw,
        kind=kind,
        fault=fault,
        checkpoint=checkpoint,
        metadata=_metadata(metadata),
    )


def _metadata(stored: object) -> Json:
    try:
        return as_object(_decoded("json", stored)) if stored else {}
    except PerdureError:
        return {}


def _version_fault(checkpoint: Json) -> str | None:
    version = checkpoint.get("v")
    if not checkpoint:
        return "it is no checkpoint"
    return (
        None if isinstance(version, int) and version <= _VERSION_MAX else f"version {version!r} is not known"
    )


def _decoded(kind: str, body: object) -> Any:
    raw = bytes(cast("bytes", body)) if isinstance(body, bytes | memoryview) else str(body or "").encode()
    return decode_typed(kind, raw)


def _unknown_version(source: str, why: str) -> Unsupported:
    return Unsupported(
        f"{source} has checkpoints of a version that is not known: {why}; nothing was imported from it.",
        code="import_version_unknown",
        source=source,
        version=why,
    )
