"""Reads a request of Bedrock Converse as a context."""

from __future__ import annotations

from typing import Any

from perdure.model.context import ToolSpec
from perdure.model.message import Message, Role
from perdure.providers.bedrock.options import API, read_options
from perdure.providers.bedrock.parse import VENDOR, BedrockBlocks, Raw, as_list, as_object
from perdure.providers.contract import Asked, Loss
from perdure.providers.wire.block_order import shown
from perdure.providers.wire.call_ids import CallNames
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep
from perdure.providers.wire.malformed import malformed, unreadable

__all__ = ["FIELDS", "joined", "read_request"]
_SOURCE = frozenset({"bytes", "s3Location", "text", "content"})
_MEDIA = ("image", "document", "video", "audio")
_IN_MESSAGE, _IN_RESULT = "messages[].content[]", "messages[].content[].toolResult.content[]"

# The fields that the reader knows, in places where it keeps no others.
FIELDS = {
    "messages[]": frozenset({"role", "content"}),
    _IN_MESSAGE: frozenset(
        {
            *("text", "toolUse", "toolResult", "guardContent", "cachePoint", *_MEDIA),
            *("reasoningContent", "citationsContent", "searchResult"),
        }
    ),
    _IN_RESULT: frozenset({"text", "json", "searchResult", *_MEDIA}),
    f"{_IN_MESSAGE}.toolUse": frozenset({"toolUseId", "name", "input", "type"}),
    f"{_IN_MESSAGE}.reasoningContent": frozenset({"reasoningText", "redactedContent"}),
    **{f"{place}.{kind}.source": _SOURCE for place in (_IN_MESSAGE, _IN_RESULT) for kind in _MEDIA},
    **{
        f"{place}.{kind}.source.s3Location": frozenset({"uri", "bucketOwner"})
        for place in (_IN_MESSAGE, _IN_RESULT)
        for kind in _MEDIA
    },
    "system[]": frozenset({"text", "guardContent", "cachePoint"}),
    "inferenceConfig": frozenset({"maxTokens", "temperature", "topP", "stopSequences"}),
    "toolConfig": frozenset({"tools", "toolChoice"}),
    "toolConfig.tools[]": frozenset({"toolSpec", "cachePoint"}),
    "toolConfig.tools[].toolSpec": frozenset({"name", "description", "inputSchema", "strict"}),
    "toolConfig.toolChoice": frozenset({"auto", "any", "tool"}),
    "toolConfig.toolChoice.tool": frozenset({"name"}),
    "serviceTier": frozenset({"type"}),
}


def read_request(body: Raw, *, model: str | None = None, provider: str | None = None) -> Asked:
    """Return the context that a request shows."""
    raw = as_object(body, "the request")
    if "messages" not in raw:
        raise unreadable("not_a_request", "this is no request of Bedrock Converse: it has no messages")
    facts = {"endpoint": provider or VENDOR, "model": model or raw.get("modelId")}
    ids = CallNames()
    losses: list[Loss] = []
    messages = [
        _message(message, f"messages[{at}]", ids, facts, losses)
        for at, message in enumerate(as_list(raw["messages"], "messages"))
    ]
    options, vendor = read_options(raw)
    system, blocks = _system(raw.get("system"))
    if blocks:
        vendor["system"] = blocks
    specs, tools = _tools(as_object(raw.get("toolConfig") or {}, "toolConfig"), options)
    if tools:
        vendor["tools"] = tools
    if vendor:
        options["vendor"] = {API: vendor}
    if _is_cached(raw):
        options["cache"] = True
    return Asked(system=system, messages=messages, tools=specs, options=options, losses=tuple(losses))


def joined(blocks: object) -> str:
    """Return the system words of a request, as one text."""
    texts: list[str] = []
    for at, block in enumerate(as_list(blocks or [], "system")):
        raw = as_object(block, f"system[{at}]")
        guarded = as_object(as_object(raw.get("guardContent") or {}, "system").get("text") or {}, "system")
        text = raw.get("text") or guarded.get("text")
        if isinstance(text, str):
            texts.append(text)
    return "\n\n".join(texts)


def _message(message: object, where: str, ids: CallNames, facts: Raw, losses: list[Loss]) -> Message:
    raw = as_object(message, where)
    role = raw.get("role")
    if role not in ("user", "assistant", "system"):
        raise malformed(f"{where}.role", f"is {role!r}, none of Bedrock Converse")
    if role == "user" and raw.get("content") is None:
        raise malformed(where, "has no content")
    reading = BedrockBlocks(ids, where=f"{where}.content", assistant=role == "assistant")
    reading.read(raw.get("content") or [])
    losses += reading.losses
    blocks = shown(reading.pieces, results_first=True)
    ids_here = call_ids(reading.calls)
    kept_here = blocks is not None or ids_here is not None
    said: Role = "tool" if role == "user" and reading.results and not reading.content else role
    return Message(
        role=said,
        content=tuple(reading.content),
        tool_calls=tuple(reading.calls),
        tool_results=tuple(reading.results),
        vendor_metadata=keep(VENDOR, {**facts, "blocks": blocks, "call_ids": ids_here})
        if kept_here
        else None,
    )


def _system(system: object) -> tuple[str, list[dict[str, Any]] | None]:
    blocks = [dict(as_object(block, "system")) for block in as_list(system or [], "system")]
    told = [block for block in blocks if "cachePoint" not in block]
    rich = len(told) > 1 or any(block.keys() != {"text"} for block in told)
    return joined(told), told if rich else None


def _tools(config: Raw, options: dict[str, Any]) -> tuple[list[ToolSpec], list[dict[str, Any]] | None]:
    """Return the tools of the caller, and the list as Bedrock has it, where that says more."""
    specs: list[ToolSpec] = []
    listed: list[dict[str, Any]] = []
    for at, tool in enumerate(as_list(config.get("tools") or [], "toolConfig.tools")):
        raw = as_object(tool, f"toolConfig.tools[{at}]")
        if "toolSpec" in raw:
            specs.append(_spec(as_object(raw["toolSpec"], f"toolConfig.tools[{at}].toolSpec")))
            listed.append({"name": specs[-1].name})
        elif "cachePoint" not in raw:
            listed.append(dict(raw))
    _choice(as_object(config.get("toolChoice") or {}, "toolChoice"), options)
    return specs, None if len(listed) == len(specs) else listed


def _spec(raw: Raw) -> ToolSpec:
    strict = raw.get("strict")
    schema = as_object(raw.get("inputSchema") or {}, "inputSchema").get("json")
    return ToolSpec(
        name=str(raw.get("name")),
        description=str(raw.get("description") or ""),
        parameters=dict(as_object(schema or {}, "inputSchema.json")),
        strict=strict if isinstance(strict, bool) else None,
    )


def _choice(choice: Raw, options: dict[str, Any]) -> None:
    if "auto" in choice:
        options["tool_choice"] = "auto"
    elif "any" in choice:
        options["tool_choice"] = "required"
    elif "tool" in choice:
        options["tool_choice"] = {"name": as_object(choice["tool"], "toolChoice.tool").get("name")}


def _is_cached(raw: Raw) -> bool:
    """True if any part of a request is marked for the prompt cache."""
    config = as_object(raw.get("toolConfig") or {}, "toolConfig")
    lists: list[object] = [raw.get("system") or [], config.get("tools") or []]
    lists += [as_object(message, "messages").get("content") or [] for message in raw["messages"]]
    blocks = [block for each in lists for block in as_list(each, "content")]
    return any("cachePoint" in as_object(block, "a block") for block in blocks)
