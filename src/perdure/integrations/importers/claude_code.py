"""Reads the sessions of Claude Code: `<session>.jsonl`, with sub-agents and long outputs beside it.

The lines form a tree by `parentUuid`.  One reply is several lines with one `message.id`, and the result of each of its
calls hangs on the line of that call, so the tree forks where the conversation does not.  The lines of a reply are
therefore one entry, and the results of its calls are the next; where entries fork, the user went back, and each end is a
path.  The newest end is the first path.

A line that names a parent which is not in the file follows the line before it.  A compaction begins with a line without
a parent and goes on from its `logicalParentUuid`.  Its summary, and lines marked `isMeta`, are not the user's words: they
are counted, as are lines of every other type.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec

from perdure.integrations.importers.session import (
    ForeignSession,
    Json,
    JsonLine,
    JsonLines,
    Link,
    Original,
    SessionEntry,
    SourcePart,
    as_list,
    as_object,
    as_text,
    moment_name,
    read_lines,
    thread_id,
)
from perdure.integrations.importers.sources import Candidate, read_file
from perdure.providers.contract import Loss

__all__ = ["API", "read_entry", "read_sessions", "recognises"]

FORMAT = "claude-code"
API = "anthropic-messages"
_TYPES = frozenset({"user", "assistant"})
_OTHERS = frozenset(
    {"summary", "file-history-snapshot", "progress", "attachment", "system", "queue-operation"}
)
_SIGNATURE = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}\Z")
_SYNTHETIC = "<synthetic>"  # the model of errors that the tool itself wrote
_FACTS = ("timestamp", "toolUseResult", "requestId", "isApiErrorMessage", "permissionMode", "todos")
_TITLES = (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("summary", "summary"))


def recognises(file: Candidate) -> bool:
    """True if the lines of a file look like those of a session."""
    return file.has_lines(_is_line)


def _is_line(line: Json) -> bool:
    kind = as_text(line.get("type"))
    if kind in _TYPES:
        return "payload" not in line and "content" in as_object(line.get("message"))
    return kind is not None and (
        ("sessionId" in line and "payload" not in line)
        or (kind in _OTHERS and any(each in line for each in ("leafUuid", "uuid", "messageId", "snapshot")))
    )


def read_sessions(place: str) -> list[ForeignSession]:
    """Read a session and the sub-agents inside its file; a file of one sub-agent is that session alone."""
    path, content = Path(place), read_file(place)
    read = read_lines(content)
    lines = _unique(read)
    session = _session_id(path, lines)
    main: list[JsonLine] = []
    agents: dict[str, list[JsonLine]] = {}
    roots: dict[str, str] = {}
    for line in lines:
        if line.value.get("isSidechain") is True:
            agents.setdefault(_agent_of(line.value, roots), []).append(line)
        else:
            main.append(line)
    if not any(as_text(line.value.get("type")) in _TYPES for line in main) and len(agents) == 1:
        return [_of_agent_file(path, content, read, session, *next(iter(agents.items())))]
    whole = _session(session, path, main)
    whole.originals = [Original(name=path.name, content=content), *_long_outputs(path)]
    whole.losses, whole.torn = [*read.losses(), *whole.losses], read.torn
    calls = _calls_of_agents(main)
    children = [_child(session, path, key, found, calls.get(key)) for key, found in agents.items()]
    whole.links += [Link(kind="child", thread=each.thread, call=calls.get(each.id)) for each in children]
    known = {each.thread for each in whole.links}
    for key, call in calls.items():
        thread = _agent_thread(session, key)
        if thread not in known and _agent_file(path, session, key):
            whole.links.append(Link(kind="child", thread=thread, call=call))
    return [whole, *children]


def read_entry(value: Json) -> ForeignSession:
    """Read one line alone: the session has one entry with one part, or counts the line as unmapped."""
    text = json.dumps(value, sort_keys=True)
    return _session("", Path(), [JsonLine(1, value, sha256(text.encode()).hexdigest())])


def _unique(read: JsonLines) -> list[JsonLine]:
    """Return the lines without those that say the same again under the same id."""
    seen: dict[str, Any] = {}
    found: list[JsonLine] = []
    for line in read.lines:
        uuid = as_text(line.value.get("uuid"))
        if uuid is None or uuid not in seen or seen[uuid] != line.value.get("message"):
            found.append(line)
        if uuid is not None:
            seen.setdefault(uuid, line.value.get("message"))
    return found


def _session_id(path: Path, lines: Iterable[JsonLine]) -> str:
    """Return the id of a session: the name of its file if its lines have that id, else the last id of its lines."""
    ids = [id for line in lines if (id := as_text(line.value.get("sessionId")))]
    return path.stem if path.stem in ids or not ids else ids[-1]


def _agent_of(value: Json, roots: dict[str, str]) -> str:
    """Return which sub-agent a line belongs to: its id, or the first line of its chain in files without ids."""
    uuid, parent = as_text(value.get("uuid")) or "-", as_text(value.get("parentUuid"))
    before = roots.get("", uuid) if parent else uuid  # a parent that is not in the file: the line before
    key = as_text(value.get("agentId")) or roots.get(parent or "-", before)
    roots[uuid] = roots[""] = key
    return key


def _of_agent_file(
    path: Path, content: bytes, read: JsonLines, session: str, key: str, lines: Sequence[JsonLine]
) -> ForeignSession:
    ids = [id for line in lines if (id := as_text(line.value.get("sessionId")))]
    child = _child(ids[0] if ids else session, path, key, lines, None)
    child.originals = [Original(name=path.name, content=content)]
    child.losses, child.torn = [*read.losses(), *child.losses], read.torn
    return child


def _child(session: str, path: Path, key: str, lines: Sequence[JsonLine], call: str | None) -> ForeignSession:
    child = _session(key, path, lines)
    child.thread = _agent_thread(session, key)
    child.facts |= {"session": session, "agent": key}
    child.links = [Link(kind="parent", thread=thread_id(FORMAT, session), call=call)]
    text = "\n".join(json.dumps(line.value, ensure_ascii=False) for line in lines)
    child.originals = [Original(name=f"agent-{key}.jsonl", content=text.encode("utf-8", "surrogatepass"))]
    return child


def _agent_thread(session: str, key: str) -> str:
    return thread_id(FORMAT, f"{session}/agent-{key}")


def _agent_file(path: Path, session: str, key: str) -> bool:
    beside = (path.with_suffix("") / "subagents", path.parent / session / "subagents", path.parent)
    return any((folder / f"agent-{key}.jsonl").is_file() for folder in beside if _is_name(key))


def _is_name(key: str) -> bool:
    return key.replace("-", "").replace("_", "").isalnum() and len(key) < 100


def _calls_of_agents(lines: Iterable[JsonLine]) -> dict[str, str | None]:
    """Return the sub-agents that results name, each with the id of its call."""
    found: dict[str, str | None] = {}
    for line in lines:
        agent = as_text(as_object(line.value.get("toolUseResult")).get("agentId"))
        if agent is None:
            continue
        blocks = as_list(as_object(line.value.get("message")).get("content"))
        ids = [as_text(as_object(block).get("tool_use_id")) for block in blocks]
        found[agent] = next((id for id in ids if id), None)
    return found


def _long_outputs(path: Path) -> list[Original]:
    """Return the outputs that were too long for the session and are in files of their own."""
    folder = path.with_suffix("") / "tool-results"
    if not folder.is_dir():
        return []
    files = sorted(each for each in folder.iterdir() if each.is_file() and not each.is_symlink())
    return [
        Original(
            name=f"tool-results/{each.name}", content=each.read_bytes(), media_type="application/octet-stream"
        )
        for each in files
    ]


def _session(id: str, path: Path, lines: Sequence[JsonLine]) -> ForeignSession:
    """Build the session of lines that belong together."""
    session = ForeignSession(format=FORMAT, id=id, thread=thread_id(FORMAT, id), source=str(path), api=API)
    tree = _SessionTree(session)
    for line in lines:
        tree.take(line)
    session.paths = tree.paths()
    session.facts = _facts(id, lines)
    return session


def _facts(id: str, lines: Iterable[JsonLine]) -> Json:
    """Return what the lines say about the session as a whole."""
    facts: Json = {"session": id}
    versions: dict[str, None] = {}
    for line in lines:
        value = line.value
        for field in ("cwd", "gitBranch", "slug"):
            if as_text(value.get(field)):
                facts.setdefault(field, value[field])
        if version := as_text(value.get("version")):
            versions[version] = None
        for kind, field in _TITLES:
            if value.get("type") == kind and as_text(value.get(field)):
                facts["title"] = value[field]
        if at := as_text(value.get("timestamp")):
            facts.setdefault("from", at)
            facts["to"] = at
    return facts | {"versions": list(versions)}


class _TreeNode(msgspec.Struct, kw_only=True):
    """An entry while it grows."""

    number: int  # in the order of the first lines
    parent: int | None
    role: str
    parts: list[SourcePart] = []
    model: str | None = None
    last: int = 0  # the number of its last line
    answered: set[str] = set()  # the calls whose results it has
    results: int | None = None  # the node with the results of its calls


class _SessionTree:
    """The entries of a session, as its lines come."""

    def __init__(self, session: ForeignSession) -> None:
        self._session = session
        self._nodes: list[_TreeNode] = []
        self._at: dict[str, int | None] = {}  # by uuid: the entry that a child of that line follows
        self._last: int | None = None  # the entry that the line before leads to
        self._replies: dict[str, int] = {}  # by message.id
        self._calls: dict[str, int] = {}  # by the id of a call: the entry that asked for it
        self._taken: Counter[str] = Counter()  # how often an id was the name of a part

    def take(self, line: JsonLine) -> None:
        """Add a line to the entry that it belongs to, or count it."""
        value = line.value
        if self._is_said(value):
            node = self._place(value)
            self._add(node, line)
            reached: int | None = node.number
        else:
            self._session.unmapped[_kind(value)] += 1
            if as_text(value.get("uuid")) is None:
                return
            reached = self._parent(value)
        if uuid := as_text(value.get("uuid")):
            self._at[uuid] = reached
        self._last = reached

    def paths(self) -> list[tuple[SessionEntry, ...]]:
        """Return the way to each end of the tree, the one with the newest line first."""
        inner = {node.parent for node in self._nodes}
        ends = [node for node in self._nodes if node.number not in inner]
        ends.sort(key=lambda node: node.last)
        entries = [self._entry(node) for node in self._nodes]
        return [tuple(entries[at] for at in self._way(end)) for end in [*ends[-1:], *ends[:-1]]]

    def _way(self, end: _TreeNode) -> list[int]:
        way = [end.number]
        while (parent := self._nodes[way[-1]].parent) is not None:
            way.append(parent)
        return way[::-1]

    def _entry(self, node: _TreeNode) -> SessionEntry:
        said = node.role == "user" and not node.answered
        model = node.model if node.model != _SYNTHETIC else None
        provider = "anthropic" if model else None
        return SessionEntry(parts=tuple(node.parts), provider=provider, model=model, begins_turn=said)

    def _is_said(self, value: Json) -> bool:
        """True for a line that is a message of the conversation."""
        if as_text(value.get("type")) not in _TYPES or not isinstance(value.get("message"), dict):
            return False
        content = value["message"].get("content")
        return (
            value.get("isMeta") is not True
            and value.get("isCompactSummary") is not True
            and isinstance(content, str | list)
            and bool(cast("Any", content))
        )

    def _parent(self, value: Json) -> int | None:
        """Return the entry that a line follows."""
        parent = as_text(value.get("parentUuid"))
        is_compaction = value.get("subtype") == "compact_boundary" or value.get("isCompactSummary") is True
        if parent is None and is_compaction:
            parent = as_text(value.get("logicalParentUuid")) or "-"
        if parent is None and "parentUuid" in value:
            return None
        return self._at.get(parent or "", self._last)

    def _place(self, value: Json) -> _TreeNode:
        """Return the entry of a message, which may be a new one."""
        message = as_object(value["message"])
        if value["type"] == "assistant":
            id = as_text(message.get("id"))
            if id is not None and id in self._replies:
                return self._nodes[self._replies[id]]
            node = self._new(self._after_results(self._parent(value)), "assistant")
            if id is not None:
                self._replies[id] = node.number
            return node
        answers = {as_text(each.get("tool_use_id")) for each in _blocks(message, "tool_result")} - {None}
        asked = next((self._calls[call] for call in answers if call in self._calls), None)
        if asked is None:
            return self._new(self._after_results(self._parent(value)), "user")
        results = self._nodes[asked].results
        if results is None or self._nodes[results].answered & answers:
            node = self._new(asked, "user")
            self._nodes[asked].results = node.number
            return node
        return self._nodes[results]

    def _after_results(self, parent: int | None) -> int | None:
        """Return the results of a reply in place of the reply: nothing follows a call but its results."""
        results = None if parent is None else self._nodes[parent].results
        return parent if results is None else results

    def _new(self, parent: int | None, role: str) -> _TreeNode:
        node = _TreeNode(number=len(self._nodes), parent=parent, role=role)
        self._nodes.append(node)
        return node

    def _add(self, node: _TreeNode, line: JsonLine) -> None:
        value, message = line.value, as_object(line.value["message"])
        uuid = as_text(value.get("uuid")) or f"{line.number}-{line.digest[:12]}"
        again = self._taken[uuid]
        self._taken[uuid] += 1
        id = f"{uuid}-{line.digest[:12]}" if again else uuid
        for block in _blocks(message, "tool_use"):
            if call := as_text(block.get("id")):
                self._calls[call] = node.number
        for block in _blocks(message, "tool_result"):
            if call := as_text(block.get("tool_use_id")):
                node.answered.add(call)
        node.model = as_text(message.get("model")) or node.model
        node.last = line.number
        node.parts.append(
            SourcePart(
                name=moment_name(FORMAT, id),
                item={"role": node.role, "content": self._content(message["content"], line)},
                where=line.where,
                facts={"uuid": uuid}
                | {field: value[field] for field in _FACTS if field in value}
                | {field: message[field] for field in ("id", "usage", "stop_reason") if message.get(field)},
            )
        )

    def _content(self, content: str | list[Any], line: JsonLine) -> list[Any]:
        """Return the blocks of a message; what is no block is left out and reported."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        blocks: list[Any] = []
        for block in content:
            if isinstance(block, str):
                blocks.append({"type": "text", "text": block})
            elif not isinstance(block, dict):
                self._lose(
                    line, "content block", "it is neither an object nor text; it is kept in the original"
                )
            elif _is_empty_file(cast("Json", block)):
                self._lose(
                    line, "file", "it has no bytes, which no vendor accepts; it is kept in the original"
                )
            else:
                found = cast("Json", block)
                if found.get("type") == "tool_result" and isinstance(found.get("content"), list):
                    found = {**found, "content": self._content(found["content"], line)}
                blocks += self._signed(found, line)
        return blocks

    def _lose(self, line: JsonLine, what: str, why: str) -> None:
        self._session.losses.append(Loss(kind="dropped", where=line.where, what=what, why=why))

    def _signed(self, block: Json, line: JsonLine) -> list[Json]:
        """Return a block without a signature that the vendor cannot have made: it would refuse the conversation."""
        field = {"thinking": "signature", "redacted_thinking": "data"}.get(str(block.get("type")))
        if field is None or _SIGNATURE.match(str(block.get(field))):
            return [block]
        why = "its signature is not one of Anthropic's; it is kept in the original"
        self._lose(line, f"{field} of a thought", why)
        return [] if field == "data" else [{key: each for key, each in block.items() if key != field}]


def _is_empty_file(block: Json) -> bool:
    source = as_object(block.get("source"))
    return (
        block.get("type") in ("image", "document")
        and source.get("type") in ("base64", "text")
        and not source.get("data")
    )


def _blocks(message: Json, kind: str) -> list[Json]:
    blocks = (as_object(block) for block in as_list(message.get("content")))
    return [block for block in blocks if block.get("type") == kind]


def _kind(value: Json) -> str:
    """Return the name under which a line without a place in the transcript is counted."""
    kind = as_text(value.get("type")) or "line without a type"
    if kind == "system" and as_text(value.get("subtype")):
        return f"system/{value['subtype']}"
    if kind in _TYPES:
        for mark in ("isCompactSummary", "isMeta"):
            if value.get(mark) is True:
                return f"{kind} ({mark})"
        return f"{kind} without content"
    return kind
