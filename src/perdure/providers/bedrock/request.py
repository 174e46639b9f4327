"""A request of Bedrock Converse as a context."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from perdure.errors import Invalid
from perdure.model.context import ToolSpec
from perdure.model.message import Message, Role
from perdure.providers.bedrock.parse import VENDOR, BedrockBlocks, Raw, as_list, as_object
from perdure.providers.contract import Asked, Loss
from perdure.providers.wire.block_order import shown
from perdure.providers.wire.call_ids import CallNames
from perdure.providers.wire.fields.vendor_metadata import call_ids, keep

__all__ = ["API", "FIELDS", "joined", "of_fields", "output_of", "read_request"]

API = "bedrock-converse"

_HANDLED = frozenset(
    {
        "modelId",
        "messages",
        "system",
        "inferenceConfig",
        "toolConfig",
        "additionalModelRequestFields",
        "outputConfig",
        "requestMetadata",
        "serviceTier",
    }
)
_SOURCE = frozenset({"bytes", "s3Location", "text", "content"})
_MEDIA = ("image", "document", "video", "audio")
_IN_MESSAGE, _IN_RESULT = "messages[].content[]", "messages[].content[].toolResult.content[]"

# What is read of a request where nothing else is kept.
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
_INFERENCE = {
    "maxTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "stopSequences": "stop",
}


def read_request(body: Raw, *, model: str | None = None, provider: str | None = None) -> Asked:
    """The context that a request shows."""
    raw = as_object(body, "the request")
    if "messages" not in raw:
        raise Invalid("this is no request of Bedrock Converse: it has no messages. Nothing was read.")
    facts = {"endpoint": provider or VENDOR, "model": model or raw.get("modelId")}
    ids = CallNames()
    losses: list[Loss] = []
    messages = [
        _message(message, f"messages[{at}]", ids, facts, losses)
        for at, message in enumerate(as_list(raw["messages"], "messages"))
    ]
    options, vendor = _options(raw)
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
    """The system words of a request, as one text."""
    texts: list[str] = []
    for at, block in enumerate(as_list(blocks or [], "system")):
        raw = as_object(block, f"system[{at}]")
        guarded = as_object(as_object(raw.get("guardContent") or {}, "system").get("text") or {}, "system")
        text = raw.get("text") or guarded.get("text")
        if isinstance(text, str):
            texts.append(text)
    return "\n\n".join(texts)


def of_fields(fields: object) -> dict[str, Any]:
    """What a model's own fields say in canonical options: how to think, and top_k."""
    raw = as_object(fields or {}, "additionalModelRequestFields")
    found: dict[str, Any] = {}
    thinking = raw.get("thinking") or raw.get("reasoning_config") or raw.get("reasoningConfig")
    if isinstance(thinking, Mapping):
        told = cast("Raw", thinking)
        found["reasoning"] = {"enabled": told.get("type") != "disabled"}
        if isinstance(told.get("budget_tokens"), int):
            found["reasoning"]["budget_tokens"] = told["budget_tokens"]
        if isinstance(told.get("maxReasoningEffort"), str):
            found["reasoning"]["effort"] = told["maxReasoningEffort"]
    effort = thinking if isinstance(thinking, str) else raw.get("reasoning_effort")
    if isinstance(effort, str):
        found["reasoning"] = {"effort": effort}
    inner = as_object(raw.get("inferenceConfig") or {}, "inferenceConfig")
    top_k = raw.get("top_k", inner.get("topK"))
    if isinstance(top_k, int):
        found["top_k"] = top_k
    return found


def output_of(config: object) -> dict[str, Any] | None:
    """The answer that an `outputConfig` asks for; None if it is none that is known."""
    form = as_object(as_object(config or {}, "outputConfig").get("textFormat") or {}, "textFormat")
    told = as_object(
        as_object(form.get("structure") or {}, "structure").get("jsonSchema") or {}, "jsonSchema"
    )
    try:
        schema: object = json.loads(told["schema"]) if isinstance(told.get("schema"), str) else None
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        return None
    more = {key: told[key] for key in ("name", "description") if isinstance(told.get(key), str)}
    return {"schema": schema, **more}


def _message(message: object, where: str, ids: CallNames, facts: Raw, losses: list[Loss]) -> Message:
    raw = as_object(message, where)
    role = raw.get("role")
    if role not in ("user", "assistant", "system"):
        raise Invalid(f"{where}.role is {role!r}, none of Bedrock Converse. Nothing was read.")
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
    """The tools of the caller, and the list as Bedrock has it, where that says more."""
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


def _options(raw: Raw) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options in canonical names, and what has none, as it is."""
    vendor = {name: value for name, value in raw.items() if name not in _HANDLED and value is not None}
    options: dict[str, Any] = {}
    inference = as_object(raw.get("inferenceConfig") or {}, "inferenceConfig")
    for name, ours in _INFERENCE.items():
        if inference.get(name) is not None:
            options[ours] = inference[name]
    if raw.get("additionalModelRequestFields"):
        fields = as_object(raw["additionalModelRequestFields"], "additionalModelRequestFields")
        vendor["additionalModelRequestFields"] = dict(fields)
        options |= of_fields(fields)
    _output(as_object(raw.get("outputConfig") or {}, "outputConfig"), options, vendor)
    if raw.get("requestMetadata"):
        options["metadata"] = dict(as_object(raw["requestMetadata"], "requestMetadata"))
    tier = as_object(raw.get("serviceTier") or {}, "serviceTier").get("type")
    if tier:
        options["service_tier"] = tier
    return options, vendor


def _output(config: Raw, options: dict[str, Any], vendor: dict[str, Any]) -> None:
    if not config:
        return
    vendor["outputConfig"] = dict(config)  # the schema is text there, and goes back as it came
    output = output_of(config)
    if output is not None:
        options["output"] = output
    if isinstance(config.get("effort"), str):
        options["reasoning"] = {**options.get("reasoning", {}), "effort": config["effort"]}


def _is_cached(raw: Raw) -> bool:
    """Whether any part of a request is marked for the prompt cache."""
    config = as_object(raw.get("toolConfig") or {}, "toolConfig")
    lists: list[object] = [raw.get("system") or [], config.get("tools") or []]
    lists += [as_object(message, "messages").get("content") or [] for message in raw["messages"]]
    blocks = [block for each in lists for block in as_list(each, "content")]
    return any("cachePoint" in as_object(block, "a block") for block in blocks)
