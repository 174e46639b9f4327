"""Reads the sessions of the Codex CLI: `rollout-<time>-<uuid>.jsonl`, with or without an envelope around each item.

Items of the model up to an output or a message of the user are one reply.  Messages of the developer, and those in the
user's role that the tool wrote itself (`<environment_context>`, `<user_instructions>`), are counted and
become no message.  Events repeat what items say and are counted; only `thread_rolled_back` means something of its own: the
turns that it takes back are written, and then undone.  A compaction changes what the model is shown and nothing that was
said, so it is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from perdure.integrations.importers.openai_agents import accepted
from perdure.integrations.importers.session import (
    ForeignSession,
    Json,
    JsonLine,
    Link,
    Original,
    SessionEntry,
    SourcePart,
    as_list,
    as_object,
    as_text,
    moment_name,
    no_such_format,
    read_document,
    read_lines,
    thread_id,
)
from perdure.integrations.importers.sources import Candidate, read_file
from perdure.providers.contract import Loss

__all__ = ["read_sessions", "recognises"]

FORMAT = "codex"
_API = "openai-responses"
_ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_OUTPUTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "tool_search_output",
        "mcp_tool_call_output",
    }
)
_REPLIES = frozenset(
    {
        "reasoning",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "tool_search_call",
        "web_search_call",
    }
    | {"image_generation_call", "mcp_call", "file_search_call", "code_interpreter_call", "computer_call"}
)
_ITEMS = _REPLIES | _OUTPUTS | {"message"}
_INJECTED = re.compile(
    r"\s*<(environment_context|user_instructions|turn_aborted|permissions instructions|collaboration_mode"
    r"|skill|user_shell_command|user_action|subagent_notification|model_switch|personality_spec)>.*</\1>\s*\Z"
    r"|\s*</?image\b[^<>]*>\s*\Z"  # around a picture
    r"|\s*# AGENTS\.md instructions\b.*<INSTRUCTIONS>",
    re.DOTALL,
)
_TAGGED = re.compile(r"\s*<([a-z_]+)>.*</\1>\s*\Z", re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FACTS = (
    "cwd",
    "cli_version",
    "originator",
    "source",
    "git",
    "model_provider",
    "timestamp",
    "forked_from_id",
)


def recognises(file: Candidate) -> bool:
    """True if a file looks like a session: by its lines, or in the first releases as one document."""
    return file.has_lines(_is_line) or _is_document(file.document)


def _is_line(line: Json) -> bool:
    if as_text(line.get("type")) in _ENVELOPES:
        return isinstance(line.get("payload"), dict)
    bare_start = "type" not in line and as_text(line.get("id")) and as_text(line.get("timestamp"))
    is_bare = as_text(line.get("type")) in _ITEMS and "message" not in line and "sessionId" not in line
    return bool(bare_start) or is_bare or "record_type" in line


def _is_document(value: Json) -> bool:
    return isinstance(value.get("session"), dict) and isinstance(value.get("items"), list)


def read_sessions(place: str) -> list[ForeignSession]:
    """Read one session."""
    path, content = Path(place), read_file(place)
    read = read_lines(content)
    if not any(_is_line(line.value) for line in read.lines):
        return [_read_document(path, content)]
    session = _read(path, read.lines)
    session.originals = [Original(name=path.name, content=content)]
    session.losses, session.torn = [*read.losses(), *session.losses], read.torn
    return [session]


def _read_document(path: Path, content: bytes) -> ForeignSession:
    """Read one session of the first releases, which is one JSON document."""
    value = read_document(content, str(path))
    if not _is_document(value):
        raise no_such_format(str(path), (FORMAT,))
    items = [as_object(value["session"]), *(as_object(item) for item in as_list(value["items"]))]
    lines = [JsonLine(number, item, _digest(item)) for number, item in enumerate(items)]
    session = _read(path, lines)
    session.originals = [Original(name=path.name, content=content, media_type="application/json")]
    return session


def _read(path: Path, lines: Sequence[JsonLine]) -> ForeignSession:
    reading = _RolloutReading(path)
    has_items = any(_unwrapped(line.value)[0] in _ITEMS for line in lines)
    reading.said = {
        text.strip()
        for line in lines
        if as_object(line.value.get("payload")).get("type") == "user_message"
        and (text := as_text(line.value["payload"].get("message")))
    }
    for line in lines:
        reading.take(line, has_items=has_items)
    return reading.finish()


def _digest(item: Json) -> str:
    return sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()


def _unwrapped(value: Json) -> tuple[str, Json]:
    """Return the kind of a line and what it holds, with or without an envelope."""
    kind = as_text(value.get("type"))
    if "payload" in value:
        payload = as_object(value["payload"])
        if kind == "response_item":
            return as_text(payload.get("type")) or kind, payload
        # The envelope of an item has a type of its own; a payload below the type of an item is none.
        return f"{kind} with a payload" if kind in _ITEMS else kind or "line", payload
    if kind is None:
        return ("session_meta" if "id" in value else "state", value)
    return kind, value


class _RolloutReading:
    """One session, as its lines come."""

    def __init__(self, path: Path) -> None:
        self._session = ForeignSession(format=FORMAT, id="", thread="", source=str(path), api=_API)
        self._path = path
        self._entries: list[SessionEntry] = []
        self._open: list[SourcePart] = []  # of the reply, or of the outputs, that is being read
        self._role = ""
        self._model: str | None = None
        self._provider = "openai"
        self._paths: list[tuple[SessionEntry, ...]] = []
        self._undone: set[str] = set()
        self._ids: set[str] = set()  # of items
        self.said: set[str] = set()  # the user's words by the events; empty: there are no such events

    def take(self, line: JsonLine, *, has_items: bool) -> None:
        """Read one line; events count as items only in a file `has_items` is false for."""
        kind, payload = _unwrapped(line.value)
        if kind == "session_meta":
            self._begin(payload)
        elif kind == "turn_context":
            self._session.unmapped[kind] += 1
            if model := as_text(payload.get("model")):
                self._close()
                self._model = model
        elif kind == "event_msg":
            self._event(line, payload, has_items=has_items)
        elif kind == "message":
            self._message(line, payload)
        elif kind in _OUTPUTS:
            self._add("tool", line, _output(payload), is_error=_failed(payload))
        elif kind in _REPLIES:
            self._add("assistant", line, self._accepted(line, _call(payload)))
        else:
            self._session.unmapped[kind] += 1

    def finish(self) -> ForeignSession:
        """Return the session."""
        self._close()
        session = self._session
        if not session.id:
            found = _UUID.findall(self._path.name)
            session.id = found[-1] if found else self._path.stem
        session.thread = thread_id(FORMAT, session.id)
        session.paths = [*self._paths, tuple(self._entries)]
        session.undone = frozenset(self._undone)
        session.facts.setdefault("session", session.id)
        return session

    def _begin(self, meta: Json) -> None:
        """Take the first description of the session; a fork repeats that of the session it comes from."""
        self._session.unmapped["session_meta"] += 1
        if self._session.id or not as_text(meta.get("id")):
            return
        session = self._session
        session.id = meta["id"]
        self._provider = as_text(meta.get("model_provider")) or self._provider
        session.facts = {"session": session.id} | {field: meta[field] for field in _FACTS if meta.get(field)}
        if origin := as_text(meta.get("forked_from_id")):
            session.links.append(Link(kind="forked_from", thread=thread_id(FORMAT, origin)))
        spawned = as_object(as_object(as_object(meta.get("source")).get("subagent")).get("thread_spawn"))
        if parent := as_text(spawned.get("parent_thread_id")) or as_text(meta.get("parent_thread_id")):
            session.links.append(Link(kind="parent", thread=thread_id(FORMAT, parent)))

    def _event(self, line: JsonLine, payload: Json, *, has_items: bool) -> None:
        kind = as_text(payload.get("type")) or "event"
        self._session.unmapped[f"event_msg/{kind}"] += 1
        if kind == "thread_rolled_back":
            turns = payload.get("num_turns")
            self._roll_back(turns if isinstance(turns, int) and not isinstance(turns, bool) else 0)
        elif not has_items and kind in ("user_message", "agent_message") and as_text(payload.get("message")):
            role = "user" if kind == "user_message" else "assistant"
            part = "input_text" if role == "user" else "output_text"
            content = [{"type": part, "text": payload["message"]}]
            self._message(line, {"type": "message", "role": role, "content": content})

    def _roll_back(self, turns: int) -> None:
        """Take back the last turns: the path with them is written first, and then undone."""
        self._close()
        begun = [at for at, entry in enumerate(self._entries) if entry.begins_turn]
        if turns <= 0 or not self._entries:
            return
        cut = begun[-turns] if turns <= len(begun) else 0
        self._paths.append(tuple(self._entries))
        self._undone |= {part.name for entry in self._entries[cut:] for part in entry.parts}
        self._entries = self._entries[:cut]

    def _message(self, line: JsonLine, payload: Json) -> None:
        role = payload.get("role")
        if role == "assistant":
            content = payload.get("content")
            blocks = (
                [{"type": "output_text", "text": content}]
                if isinstance(content, str)
                else self._typed(line, content)
            )
            self._add("assistant", line, self._accepted(line, {**payload, "content": blocks}))
            return
        if role != "user":
            self._session.unmapped[f"message of the {role if isinstance(role, str) else 'unknown role'}"] += 1
            return
        content = payload.get("content")
        known = (
            [{"type": "input_text", "text": content}]
            if isinstance(content, str)
            else self._typed(line, content)
        )
        said = [block for block in known if not self._is_injected(block)]
        if len(said) < len(known):
            self._session.unmapped["message that the tool wrote"] += 1
        if said:
            self._close()
            self._add("user", line, self._accepted(line, {**payload, "content": said}))
            self._close()

    def _typed(self, line: JsonLine, content: object) -> list[Json]:
        """Return the blocks of a message; one without a type is left out and reported."""
        blocks = as_list(content)
        known = [cast("Json", block) for block in blocks if as_text(as_object(block).get("type"))]
        for _ in range(len(blocks) - len(known)):
            self._lose(line, "content block", "it has no type; it is kept in the original")
        return known

    def _accepted(self, line: JsonLine, item: Json) -> Json:
        """Return an item without what OpenAI's API would refuse the whole conversation for."""
        found, lost = accepted(item, self._ids)
        for what, why in lost:
            self._lose(line, what, why)
        return found

    def _lose(self, line: JsonLine, what: str, why: str) -> None:
        self._session.losses.append(Loss(kind="dropped", where=line.where, what=what, why=why))

    def _is_injected(self, block: Any) -> bool:
        """True for text that the tool wrote: in a known tag, or in any tag if no event has it as the user's words."""
        text = as_object(block).get("text")
        if not isinstance(text, str):
            return False
        is_from_user = not self.said or any(text.strip() in each for each in self.said)
        is_tagged = not is_from_user and _TAGGED.match(text) is not None
        return is_tagged or _INJECTED.match(text) is not None

    def _add(self, role: str, line: JsonLine, item: Json, *, is_error: bool = False) -> None:
        if role != self._role:
            self._close()
            self._role = role
        at = as_text(line.value.get("timestamp"))
        name = moment_name(FORMAT, f"{line.number}-{line.digest[:12]}")
        facts: Json = {"line": line.number} | ({"timestamp": at} if at else {})
        self._open.append(
            SourcePart(
                name=name, item=item, where=line.where, facts=facts, is_error=is_error, place=line.number
            )
        )

    def _close(self) -> None:
        """End the entry that is being read."""
        if not self._open:
            return
        is_reply = self._role == "assistant"
        self._entries.append(
            SessionEntry(
                parts=tuple(self._open),
                provider=self._provider if is_reply and self._model else None,
                model=self._model if is_reply else None,
                begins_turn=self._role == "user",
            )
        )
        self._open, self._role = [], ""


def _call(payload: Json) -> Json:
    """Return an item of a reply; calls that this machine made are calls of functions."""
    kind = payload["type"]
    if kind not in ("local_shell_call", "tool_search_call"):
        return payload
    call = as_text(payload.get("call_id")) or as_text(payload.get("id")) or "-"
    given = payload.get("action") if kind == "local_shell_call" else payload.get("arguments")
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    name = kind.removesuffix("_call")
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": call}


def _output(payload: Json) -> Json:
    """Return the output of a call in the form that the API has."""
    output: Any = payload.get("output", payload.get("tools", payload.get("result")))
    inner: Any = as_object(output).get("content")
    if isinstance(inner, str | list):
        output = cast("Any", inner)
    if not isinstance(output, str | list) or payload["type"] == "tool_search_output":
        output = json.dumps(output, ensure_ascii=False)
    kind = (
        "custom_tool_call_output" if payload["type"] == "custom_tool_call_output" else "function_call_output"
    )
    call = as_text(payload.get("call_id")) or as_text(payload.get("id")) or "-"
    return {"type": kind, "call_id": call, "output": output}


def _failed(payload: Json) -> bool:
    return as_object(payload.get("output")).get("success") is False
