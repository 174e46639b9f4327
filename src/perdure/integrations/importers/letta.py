"""Reads agents that Letta exported: `.af` files, of the first form (one agent) and of the second (a list of agents).

Each agent's messages are a session.  Letta wraps what the user says in JSON: `user_message` is the user's words, and
heartbeats and alerts are counted.  Memory blocks become values of the state, where no model reads them by itself.
Tools carry source code: they are named in the report, kept in the original, and never run.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
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
    read_document,
    shortened,
    thread_id,
)
from perdure.integrations.importers.sources import Candidate, read_file
from perdure.model.message import Block, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import Loss

__all__ = ["read_sessions", "recognises"]

FORMAT = "letta"
_FIRST_FORM = ("core_memory", "agent_type", "llm_config", "message_buffer_autoclear")
_FACTS = ("name", "description", "agent_type", "created_at", "version")


def recognises(file: Candidate) -> bool:
    """True if a JSON document looks like an exported agent."""
    return _is_agent_file(file.document)


def _is_agent_file(value: Json) -> bool:
    if isinstance(value.get("agents"), list):
        return any(isinstance(as_object(each).get("messages"), list) for each in as_list(value["agents"]))
    return isinstance(value.get("messages"), list) and sum(field in value for field in _FIRST_FORM) >= 2


def read_sessions(place: str) -> list[ForeignSession]:
    """Read the sessions of all agents in a file."""
    path, content = Path(place), read_file(place)
    value = read_document(content, place)
    if not _is_agent_file(value):
        raise no_such_format(place, (FORMAT,))
    agents = [as_object(each) for each in as_list(value["agents"])] if "agents" in value else [value]
    original = Original(name=path.name, content=content, media_type="application/json")
    blocks = {
        as_text(as_object(each).get("id")) or "": as_object(each) for each in as_list(value.get("blocks"))
    }
    found: list[ForeignSession] = []
    for agent in agents:
        session = _session(path, agent)
        session.originals = [original]
        session.state = _memory(session, agent, blocks)
        _report_tools(session, agent, value)
        found.append(session)
    return found


def _session(path: Path, agent: Json) -> ForeignSession:
    messages = [as_object(each) for each in as_list(agent.get("messages"))]
    id = _id(agent, messages, path)
    session = ForeignSession(format=FORMAT, id=id, thread=thread_id(FORMAT, id), source=str(path))
    config = as_object(agent.get("llm_config"))
    session.facts = {"session": id} | {field: agent[field] for field in _FACTS if agent.get(field)}
    reading = _Messages(session, as_text(config.get("model")), as_text(config.get("model_endpoint_type")))
    for number, message in enumerate(messages, 1):
        reading.take(number, message)
    session.paths = [tuple(reading.entries)]
    if as_text(agent.get("system")):
        session.unmapped["system prompt"] += 1
    return session


def _id(agent: Json, messages: list[Json], path: Path) -> str:
    """Return an id of the agent; those in the file count from 0 in every file, so its first message counts too."""
    first = next((each for each in messages if each.get("role") != "system"), messages[0] if messages else {})
    told = [agent.get("name"), agent.get("created_at"), first.get("created_at"), first.get("content")]
    digest = sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    return f"{as_text(agent.get('name')) or path.stem}-{digest}"


def _memory(session: ForeignSession, agent: Json, blocks: dict[str, Json]) -> Json:
    """Return the memory blocks of an agent as values of the state."""
    own = [blocks[id] for id in map(str, as_list(agent.get("block_ids"))) if id in blocks]
    own += [as_object(each) for each in as_list(agent.get("core_memory"))]
    own += [as_object(each) for each in as_list(agent.get("memory_blocks"))]
    state: Json = {}
    for block in own:
        label = as_text(block.get("label"))
        if label is not None and isinstance(block.get("value"), str):
            state[f"/letta/blocks/{shortened(label.replace('/', '-'), 100)}"] = block["value"]
        else:
            session.unmapped["memory block without a label"] += 1
    return state


def _report_tools(session: ForeignSession, agent: Json, value: Json) -> None:
    listed = {as_text(as_object(each).get("id")): as_object(each) for each in as_list(value.get("tools"))}
    own = [listed[id] for id in map(str, as_list(agent.get("tool_ids"))) if id in listed]
    own += [as_object(each) for each in as_list(agent.get("tools"))]
    for tool in own:
        name = as_text(tool.get("name")) or "unknown"
        why = "a thread keeps no tools, and source code is never run; it is kept in the original"
        session.losses.append(Loss(kind="dropped", where="tools", what=f"tool '{name[:80]}'", why=why))


class _Messages:
    """The messages of one agent, as they come."""

    def __init__(self, session: ForeignSession, model: str | None, provider: str | None) -> None:
        self._session, self._model, self._provider = session, model, provider
        self.entries: list[SessionEntry] = []
        self._name = ""

    def take(self, number: int, message: Json) -> None:
        """Add one message, or count it."""
        where = f"message {number}"
        role = message.get("role")
        said = self._said(message, where) if isinstance(role, str) else None
        if said is None:
            self._session.unmapped[f"message of the {role if isinstance(role, str) else 'unknown role'}"] += 1
            return
        plain = {field: each for field, each in message.items() if field not in ("id", "agent_id")}
        text = json.dumps([self._name, plain], sort_keys=True)
        self._name = sha256(text.encode()).hexdigest()[:24]
        facts = {field: message[field] for field in ("id", "created_at") if as_text(message.get(field))}
        is_reply = said.role == "assistant"
        model = as_text(message.get("model")) or self._model
        self.entries.append(
            SessionEntry(
                parts=(
                    SourcePart(name=moment_name(FORMAT, self._name), item=said, where=where, facts=facts),
                ),
                provider=self._provider if is_reply else None,
                model=model if is_reply else None,
                begins_turn=said.role == "user",
            )
        )

    def _said(self, message: Json, where: str) -> Message | None:
        """Return a message that a person, the model or a tool wrote; None if it is none of these."""
        blocks = self._blocks(message, where)
        match message["role"]:
            case "user":
                words = tuple(each for block in blocks if (each := _users(block)) is not None)
                return Message("user", words) if words else None
            case "assistant" | "approval":
                calls = tuple(
                    _call(as_object(each), at) for at, each in enumerate(as_list(message.get("tool_calls")))
                )
                return Message("assistant", blocks, calls) if blocks or calls else None
            case "tool" | "function":
                return _results(message, blocks)
            case _:
                return None

    def _blocks(self, message: Json, where: str) -> tuple[Block, ...]:
        content = message.get("content", message.get("text"))
        if isinstance(content, str):
            return (Text(content),) if content else ()
        found: list[Block] = []
        for each in as_list(content):
            part = as_object(each)
            kind = part.get("type")
            if kind == "text" and isinstance(part.get("text"), str):
                found.append(Text(part["text"]))
            elif kind in ("reasoning", "summarized_reasoning") and isinstance(part.get("reasoning"), str):
                found.append(ReasoningSummary(part["reasoning"]))
            elif kind == "image" and (picture := _picture(as_object(part.get("source")))):
                found.append(picture)
            elif kind not in ("tool_call", "tool_return"):  # these repeat fields of the message
                why = "this kind of content is not known; it is kept in the original"
                loss = Loss(kind="dropped", where=where, what=str(kind)[:80], why=why)
                self._session.losses.append(loss)
        return tuple(found)


def _picture(source: Json) -> Block | None:
    media = as_text(source.get("media_type")) or "image/png"
    if data := as_text(source.get("data")):
        return Image(f"data:{media};base64,{data}", media)
    url = as_text(source.get("url"))
    return Image(url, media) if url else None


def _users(block: Block) -> Block | None:
    """Return what the user said in a block; None for what Letta itself says in the user's role."""
    if not isinstance(block, Text):
        return block
    try:
        told: Any = json.loads(block.text)
    except (ValueError, RecursionError):
        return block
    packed = as_object(told)
    if not isinstance(packed.get("type"), str):
        return block
    words = packed.get("message")
    return Text(words) if packed["type"] == "user_message" and isinstance(words, str) else None


def _call(call: Json, at: int) -> ToolCall:
    function = as_object(call.get("function"))
    arguments = function.get("arguments", call.get("arguments"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    name = as_text(function.get("name")) or as_text(call.get("name")) or "unknown"
    return ToolCall(as_text(call.get("id")) or f"call-{at}", name, text)


def _results(message: Json, blocks: tuple[Block, ...]) -> Message | None:
    """Return the results of a message of a tool: one for its call, or one for each of several."""
    returned = [as_object(each) for each in as_list(message.get("tool_returns"))]
    found: list[ToolResult] = []
    for each in returned:
        call = as_text(each.get("tool_call_id"))
        if call is not None:
            told = each.get("func_response", each.get("tool_return"))
            content = (
                (Text(told if isinstance(told, str) else json.dumps(told)),) if told is not None else blocks
            )
            found.append(ToolResult(call, "error" if each.get("status") == "error" else "success", content))
    own = as_text(message.get("tool_call_id"))
    if own is not None and all(result.call_id != own for result in found):
        is_error = any(each.get("status") == "error" for each in returned)
        found.append(ToolResult(own, "error" if is_error else "success", blocks))
    return Message("tool", (), (), tuple(found)) if found else None
