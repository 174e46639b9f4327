"""Reads trajectories in the Agent Trajectory Interchange Format (ATIF), versions 1.x.

Steps of the user and of the agent are messages; a step of the system is counted.  The results of an observation answer
the calls of their step.  A result without a call, in a step with one call, answers that call; otherwise it is kept
beside the message.  Embedded trajectories of sub-agents are sessions of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from perdure.errors import Unsupported
from perdure.integrations.importers.session import (
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
    read_document,
    thread_id,
)
from perdure.integrations.importers.sources import Candidate, read_file
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import Loss

__all__ = ["read_sessions", "recognises"]

FORMAT = "atif"
_VERSION = re.compile(r"ATIF-v1\.[0-9]+\Z")
_STEP_FACTS = (
    "step_id",
    "timestamp",
    "metrics",
    "reasoning_effort",
    "is_copied_context",
    "extra",
    "llm_call_count",
)


def recognises(file: Candidate) -> bool:
    """True if a JSON document says that it is a trajectory."""
    return _is_trajectory(file.document)


def _is_trajectory(value: Json) -> bool:
    version = value.get("schema_version")
    return isinstance(version, str) and version.startswith("ATIF") and isinstance(value.get("steps"), list)


def read_sessions(place: str) -> list[ForeignSession]:
    """Read a trajectory and those inside it; raise `Unsupported` for a version that is not 1.x."""
    path, content = Path(place), read_file(place)
    value = read_document(content, place)
    if not _is_trajectory(value):
        raise no_such_format(place, (FORMAT,))
    _check_version(value, path)
    id = as_text(value.get("trajectory_id")) or as_text(value.get("session_id")) or path.stem
    original = Original(name=path.name, content=content, media_type="application/json")
    found: list[ForeignSession] = []
    _read(value, id, path, found, None)
    for session in found:
        session.originals = [original]
    return found


def _check_version(value: Json, path: Path) -> None:
    version = str(value.get("schema_version"))
    if not _VERSION.match(version):
        raise Unsupported(
            f"{path} is in version {version[:40]} of ATIF, and versions 1.x are known; nothing was imported from it.",
            code="import_version_unknown",
            source=str(path),
            version=version[:40],
        )


def _read(
    value: Json, id: str, path: Path, found: list[ForeignSession], parent: ForeignSession | None
) -> ForeignSession:
    """Read one trajectory, and append it and those inside it to `found`."""
    session = ForeignSession(format=FORMAT, id=id, thread=thread_id(FORMAT, id), source=str(path))
    agent = as_object(value.get("agent"))
    session.facts = {"session": id} | {
        field: value[field]
        for field in ("schema_version", "session_id", "notes", "final_metrics")
        if value.get(field)
    }
    session.facts["agent"] = {
        field: agent[field] for field in ("name", "version", "model_name") if agent.get(field)
    }
    found.append(session)
    steps = _Steps(session, as_text(agent.get("model_name")))
    for number, step in enumerate(as_list(value.get("steps")), 1):
        steps.take(number, as_object(step))
    session.paths = [tuple(steps.entries)]
    if parent is not None:
        session.links.append(Link(kind="parent", thread=parent.thread))
    calls = steps.calls_of_agents
    for number, inner in enumerate(as_list(value.get("subagent_trajectories")), 1):
        given = as_object(inner)
        own = as_text(given.get("trajectory_id")) or f"subagent-{number}"
        child = _read(given, f"{id}/{own}", path, found, session)
        session.links.append(Link(kind="child", thread=child.thread, call=calls.get(own)))
    if continued := as_text(value.get("continued_trajectory_ref")):
        session.facts["continued_in"] = continued
    return session


class _Steps:
    """The steps of one trajectory, as they come."""

    def __init__(self, session: ForeignSession, model: str | None) -> None:
        self._session, self._model = session, model
        self.entries: list[SessionEntry] = []
        self.calls_of_agents: dict[str, str | None] = {}
        self._name = ""  # of the step before: names depend on all steps so far

    def take(self, number: int, step: Json) -> None:
        """Add one step, or count it."""
        where = f"step {number}"
        source = step.get("source")
        if source not in ("user", "agent"):
            self._session.unmapped[
                f"step of the {source if isinstance(source, str) else 'unknown source'}"
            ] += 1
            return
        text = json.dumps([self._name, step], sort_keys=True, ensure_ascii=False)
        self._name = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        blocks = _blocks(step.get("message"), self._session, where)
        facts = {field: step[field] for field in _STEP_FACTS if step.get(field) is not None}
        if source == "user":
            if blocks:
                self._add("user", Message("user", blocks), where, facts)
            return
        if thought := as_text(step.get("reasoning_content")):
            blocks = (ReasoningSummary(thought), *blocks)
        calls = [_call(as_object(call), at) for at, call in enumerate(as_list(step.get("tool_calls")))]
        results, loose = self._results(step, calls, where)
        if loose:
            facts["observation"] = loose
        model = as_text(step.get("model_name")) or self._model
        if blocks or calls:
            self._add("agent", Message("assistant", blocks, tuple(calls)), where, facts, model)
        elif loose:
            self._session.unmapped["observation without a call"] += len(loose)
        if results:
            self._add("results", Message("tool", (), (), tuple(results)), where, {})

    def _add(self, kind: str, message: Message, where: str, facts: Json, model: str | None = None) -> None:
        name = moment_name(FORMAT, f"{self._name}-{kind}")
        provider, _, own = (model or "").partition("/")
        part = SourcePart(name=name, item=message, where=where, facts=facts)
        self.entries.append(
            SessionEntry(
                parts=(part,),
                provider=provider if own else None,
                model=(own or model) if model else None,
                begins_turn=kind == "user",
            )
        )

    def _results(
        self, step: Json, calls: Sequence[ToolCall], where: str
    ) -> tuple[list[ToolResult], list[Json]]:
        """Return the results that answer a call of the step, and the others."""
        known = {call.id for call in calls}
        found: list[ToolResult] = []
        loose: list[Json] = []
        for each in as_list(as_object(step.get("observation")).get("results")):
            result = as_object(each)
            call = as_text(result.get("source_call_id"))
            if call is None and len(calls) == 1:
                call = calls[0].id
            for ref in as_list(result.get("subagent_trajectory_ref")):
                if id := as_text(as_object(ref).get("trajectory_id")):
                    self.calls_of_agents[id] = call
            if call in known:
                found.append(
                    ToolResult(call, "success", _blocks(result.get("content"), self._session, where))
                )
            else:
                loose.append(result)
                why = "no call of its step has its id; it is kept beside the message"
                self._session.losses.append(Loss(kind="dropped", where=where, what="observation", why=why))
        return found, loose


def _call(call: Json, at: int) -> ToolCall:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    name = as_text(call.get("function_name")) or "unknown"
    return ToolCall(as_text(call.get("tool_call_id")) or f"call-{at}", name, text)


def _blocks(content: Any, session: ForeignSession, where: str) -> tuple[Block, ...]:
    """Return text and pictures of a message or a result."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    found: list[Block] = []
    for each in as_list(content):
        part = as_object(each)
        source = as_object(part.get("source"))
        path, media = as_text(source.get("path")), as_text(source.get("media_type"))
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            found.append(Text(part["text"]))
        elif path and media:
            found.append(Image(path, media) if media.startswith("image/") else File(path, media))
        else:
            why = "it is neither text nor a file with a media type; it is kept in the original"
            session.losses.append(Loss(kind="dropped", where=where, what="content part", why=why))
    return tuple(found)
