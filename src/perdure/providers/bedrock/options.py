"""Writes and reads the options and tools of Bedrock Converse, by the family of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context, ToolSpec
from perdure.providers.anthropic.capabilities import EFFORT_BUDGETS, Traits, room_for, thinking_budget
from perdure.providers.bedrock.capabilities import claude, family, keeps_to_schema, refuses, takes_top_k
from perdure.providers.bedrock.parse import Raw, as_object
from perdure.providers.capabilities import Capability
from perdure.providers.contract import Loss, LossKind
from perdure.providers.wire.options import output_words

__all__ = ["BedrockSettings", "NAMES", "NAME_MAX", "tools_of", "API", "read_options"]

API = "bedrock-converse"


_BUDGET_USUAL = 8_192
_FIELDS = "additionalModelRequestFields"
_WRITTEN = frozenset({"tools", "system", "outputConfig", _FIELDS})
_KNOWN = frozenset(
    {
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stop",
        "tool_choice",
        "parallel_tool_calls",
        "output",
        "reasoning",
        "metadata",
        "stream",
        "service_tier",
        "vendor",
        "cache",
    }
)
_TIERS = frozenset({"priority", "default", "flex", "reserved"})


class BedrockSettings:
    """Writes the options of one request."""

    def __init__(self, options: Mapping[str, Any], vendor: Mapping[str, Any], model: str) -> None:
        """Take the canonical options, and in `vendor` those that only this format has."""
        self.losses: list[Loss] = []
        self.words: list[str] = []  # options that only text can express; it is added to the system text
        self._options, self._vendor, self._model = options, vendor, model
        self._claude, self._family = claude(model), family(model)
        self._body: dict[str, Any] = {}
        self._inference: dict[str, Any] = {}

    def write(
        self, tools: Sequence[Mapping[str, Any]], names: Mapping[str, str], *, loop: bool
    ) -> dict[str, Any]:
        """Return all options; `loop` is True if tools have just answered a message without thinking."""
        self._body = {name: value for name, value in self._vendor.items() if name not in _WRITTEN}
        self._limits()
        self._tools(tools, names)
        self._output()
        self._fields(loop=loop)
        self._sampling()
        self._rest()
        if self._inference:
            self._body["inferenceConfig"] = self._inference
        return self._body

    def _lose(self, kind: LossKind, option: str, why: str) -> None:
        self.losses.append(Loss(kind=kind, where=f"options.{option}", what=option, why=why))

    def _limits(self) -> None:
        limit = self._options.get("max_tokens")
        if isinstance(limit, int) and limit > 0:
            self._inference["maxTokens"] = limit
        stops = self._options.get("stop")
        told = [stops] if isinstance(stops, str) else list(cast("list[Any]", stops or []))
        stops = [stop for stop in told if isinstance(stop, str) and (stop.strip() or not self._claude)]
        if stops != told:
            self._lose("dropped", "stop", "Claude refuses stops of white space only")
        told = [stop for stop in stops if stop]
        if told:
            self._inference["stopSequences"] = told

    def _sampling(self) -> None:
        thinks = _mapping(self._body.get(_FIELDS)).get("thinking") is not None
        for name, theirs in (("temperature", "temperature"), ("top_p", "topP")):
            value = self._options.get(name)
            if not isinstance(value, int | float):
                continue
            if self._claude is not None and not self._claude.sampling:
                self._lose("dropped", name, "this model takes none")
            elif thinks and not (name == "temperature" and value == 1):
                self._lose("dropped", name, "it is not taken beside thinking")
            elif theirs == "topP" and "temperature" in self._inference and not self._both():
                self._lose("dropped", name, "this model takes no top_p beside temperature")
            elif not 0 <= value <= 1:
                self._inference[theirs] = min(max(value, 0), 1)
                self._lose("repaired", name, f"it is {self._inference[theirs]} here: between 0 and 1")
            else:
                self._inference[theirs] = value

    def _both(self) -> bool:
        return self._claude is None or self._claude.both_samplings

    def _tools(self, tools: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> None:
        wanted = self._options.get("tool_choice")
        if self._options.get("parallel_tool_calls") is False:
            self._lose("dropped", "parallel_tool_calls", "Bedrock has no such option")
        if not tools:
            if wanted not in (None, "none"):
                self._lose("dropped", "tool_choice", "there is no tool to choose")
            return
        config: dict[str, Any] = {"tools": list(tools)}
        self._body["toolConfig"] = config
        declared = {_mapping(tool.get("toolSpec")).get("name") for tool in tools}
        choice = self._choice(wanted, names, declared)
        if choice is not None:
            config["toolChoice"] = choice

    def _choice(self, wanted: object, names: Mapping[str, str], declared: set[Any]) -> dict[str, Any] | None:
        if wanted is None:
            return None
        if wanted == "auto":
            return {"auto": {}}
        if refuses(Capability.TOOL_CHOICE, self._model):
            self._lose("dropped", "tool_choice", "this model cannot be made to call a tool")
            return None
        if wanted == "required":
            return {"any": {}}
        name = _mapping(wanted).get("name")
        if isinstance(name, str) and names.get(name, name) in declared:
            return {"tool": {"name": names.get(name, name)}}
        self._lose("dropped", "tool_choice", "Bedrock has no such choice, or the tool is not declared")
        return None

    def _output(self) -> None:
        wanted = self._options.get("output")
        raw = _mapping(self._vendor.get("outputConfig"))
        rest = {key: value for key, value in raw.items() if key not in ("textFormat", "effort")}
        effort = _mapping(self._options.get("reasoning")).get("effort")
        if raw.get("effort") and raw["effort"] == effort:
            rest["effort"] = effort
        if raw.get("textFormat") and output_of(raw) == wanted:
            rest["textFormat"] = raw["textFormat"]
        elif wanted is not None:
            self._asked_output(wanted, rest)
        if rest:
            self._body["outputConfig"] = rest

    def _asked_output(self, wanted: object, config: dict[str, Any]) -> None:
        schema = _mapping(wanted).get("schema")
        if not isinstance(schema, Mapping) or not keeps_to_schema(self._model):
            self._lose(
                "converted", "output", "asked for in words: this model keeps to no schema, or there is none"
            )
            self.words.append(output_words(wanted))
            return
        if _mapping(wanted).get("strict") is False:
            self._lose("converted", "output.strict", "Bedrock always keeps to the schema")
        told = {"schema": json.dumps(schema, ensure_ascii=False)}
        told |= {
            key: str(_mapping(wanted)[key]) for key in ("name", "description") if _mapping(wanted).get(key)
        }
        config["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": told}}

    def _fields(self, *, loop: bool) -> None:
        """Write the model's own fields: unchanged if they still match the options, else new ones."""
        raw = _mapping(self._vendor.get(_FIELDS))
        told = _mapping(self._options.get("reasoning"))
        own_effort = _mapping(self._vendor.get("outputConfig")).get("effort")
        wanted: dict[str, Any] = {
            key: value for key, value in told.items() if (key, value) != ("effort", own_effort)
        }
        asked = {"reasoning": wanted} if wanted else {}
        if self._options.get("top_k") is not None:
            asked["top_k"] = self._options["top_k"]
        fields = dict(raw)
        if of_fields(raw) != asked:
            known = (
                "thinking",
                "reasoning_config",
                "reasoningConfig",
                "reasoning_effort",
                "top_k",
                "inferenceConfig",
            )
            fields = {key: value for key, value in raw.items() if key not in known} | self._made(wanted)
        if loop and _is_budgeted(fields) and self._claude is not None:
            self._lose(
                "dropped",
                "reasoning",
                "tools have just answered a message that has no thinking of this model",
            )
            fields = {
                key: value for key, value in fields.items() if key not in ("thinking", "reasoning_config")
            }
        if fields:
            self._body[_FIELDS] = fields

    def _made(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        top_k = self._options.get("top_k")
        if isinstance(top_k, int) and takes_top_k(self._model):
            fields |= {"top_k": top_k} if self._claude is not None else {"inferenceConfig": {"topK": top_k}}
        elif top_k is not None:
            self._lose("dropped", "top_k", "this model takes none")
        if not wanted:
            return fields
        if self._claude is not None:
            return fields | self._thinking(wanted, self._claude)
        return fields | self._reasoning(wanted)

    def _reasoning(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reasoning fields of a model that is not Claude."""
        effort, off = wanted.get("effort"), wanted.get("enabled") is False
        level = "high" if effort in ("xhigh", "max") else "low" if effort == "minimal" else effort or "medium"
        if self._family == "gpt-oss" and not off:
            self._levelled(wanted, level)
            return {"reasoning_effort": level}
        if self._family == "nova" and not off and effort != "none":
            self._levelled(wanted, level)
            return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
        if not off and effort != "none":
            self._lose("dropped", "reasoning", "this model is not told how to think")
        return {}

    def _levelled(self, wanted: Mapping[str, Any], level: object) -> None:
        """Report the reasoning options that a level of effort cannot express."""
        if wanted.get("effort") not in (None, level):
            self._lose("converted", "reasoning.effort", f"it is '{level}' here")
        if wanted.get("budget_tokens") is not None:
            self._lose("converted", "reasoning.budget_tokens", f"efforts have names here; it is '{level}'")
        if wanted.get("summary") is not None:
            self._lose("dropped", "reasoning.summary", "this model has no such option")

    def _thinking(self, wanted: Mapping[str, Any], traits: Traits) -> dict[str, Any]:
        if wanted.get("enabled") is False or wanted.get("effort") == "none":
            return {"thinking": {"type": "disabled"}} if traits.thinking else {}
        choice = _mapping(_mapping(self._body.get("toolConfig")).get("toolChoice"))
        if not traits.thinking or choice.keys() & {"any", "tool"}:
            self._lose("dropped", "reasoning", "this model does not think, or a tool is forced")
            return {}
        budget = wanted.get("budget_tokens")
        if traits.adaptive and not (isinstance(budget, int) and traits.budget):
            self._adapted(wanted, traits)
            return {"thinking": {"type": "adaptive"}}
        if not isinstance(budget, int):
            budget = EFFORT_BUDGETS.get(str(wanted.get("effort")), _BUDGET_USUAL)
            self._lose("converted", "reasoning", f"this model takes a number of tokens: {budget}")
        is_exact = isinstance(wanted.get("budget_tokens"), int)
        limit = self._inference.get("maxTokens") or room_for(budget, traits)
        fits = thinking_budget(budget, limit, is_exact=is_exact and "maxTokens" in self._inference)
        if fits is None:
            self._lose("dropped", "reasoning", f"max_tokens of {limit} leaves no room for it")
            return {}
        if fits != budget and wanted.get("budget_tokens") is not None:
            why = f"it is {fits} here, so that max_tokens of {limit} leaves room for an answer"
            self._lose("repaired", "reasoning.budget_tokens", why)
        return {"thinking": {"type": "enabled", "budget_tokens": fits}}

    def _adapted(self, wanted: Mapping[str, Any], traits: Traits) -> None:
        """Report the reasoning options that an adaptive model does not take."""
        why = "this model thinks as much as it likes here"
        for name in ("effort", "budget_tokens"):
            if wanted.get(name) is not None:
                self._lose("converted", f"reasoning.{name}", why)
        if wanted.get("summary") is not None and not traits.budget:
            self._lose("dropped", "reasoning.summary", "Bedrock is not asked to tell of its thinking")

    def _rest(self) -> None:
        metadata = _mapping(self._options.get("metadata"))
        told = {key: value for key, value in metadata.items() if isinstance(value, str)}
        if len(told) != len(metadata):
            self._lose("dropped", "metadata", "Bedrock takes texts only")
        if told:
            self._body["requestMetadata"] = told
        tier = self._options.get("service_tier")
        if tier in _TIERS:
            self._body["serviceTier"] = {"type": tier}
        elif tier is not None:
            self._lose("dropped", "service_tier", f"Bedrock has no tier '{tier}'")
        for name, value in self._options.items():
            if name not in _KNOWN and value is not None:
                self._lose("dropped", name, "Bedrock has no such option")


def _is_budgeted(fields: Mapping[str, Any]) -> bool:
    thinking = _mapping(fields.get("thinking")) or _mapping(fields.get("reasoning_config"))
    return thinking.get("type") == "enabled"


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


NAME_MAX = 64
NAMES = rf"[a-zA-Z0-9_-]{{1,{NAME_MAX}}}"


def tools_of(
    context: Context, listed: object, names: Mapping[str, str], losses: list[Loss], *, called: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the tools; in the order of `listed`, where a Bedrock request had such a list; and those of the history."""
    specs: dict[str, tuple[int, ToolSpec]] = {}
    for at, spec in enumerate(context.tools):
        if spec.name in specs:
            _lose(
                losses,
                "dropped",
                f"tools[{at}]",
                "tool",
                f"'{spec.name}' is declared twice; the first stands",
            )
        else:
            specs[spec.name] = (at, spec)
    made: list[dict[str, Any]] = []
    for entry in cast("list[dict[str, Any]]", listed) if isinstance(listed, list) else []:
        if "name" not in entry:
            made.append(dict(entry))
        elif (found := specs.pop(str(entry["name"]), None)) is not None:
            made.append(_tool(*found, names, losses))
    made += [_tool(at, spec, names, losses) for at, spec in specs.values()]
    declared = {tool["toolSpec"]["name"] for tool in made if "toolSpec" in tool}
    return made + ([] if declared else _of_history(called, losses))


def _of_history(called: Sequence[str], losses: list[Loss]) -> list[dict[str, Any]]:
    """Return declarations for the tools that the history calls: Bedrock demands them."""
    for name in called:
        why = f"'{name}' was called, and Bedrock wants it declared; it takes anything"
        _lose(losses, "repaired", "tools", "tool", why)
    return [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in called]


def _tool(at: int, spec: ToolSpec, names: Mapping[str, str], losses: list[Loss]) -> dict[str, Any]:
    schema = dict(spec.parameters)
    if schema.get("type") != "object":
        if schema:
            why = "it is not said to be of an object; it is now"
            _lose(losses, "repaired", f"tools[{at}].parameters", "schema", why)
        schema["type"] = "object"
    tool: dict[str, Any] = {"name": names[spec.name], "inputSchema": {"json": schema}}
    if spec.description:
        tool["description"] = spec.description
    if spec.strict is not None:
        tool["strict"] = spec.strict
    return {"toolSpec": tool}


def _lose(losses: list[Loss], kind: LossKind, where: str, what: str, why: str) -> None:
    losses.append(Loss(kind=kind, where=where, what=what, why=why))


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
_INFERENCE = {
    "maxTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "stopSequences": "stop",
}


def of_fields(fields: object) -> dict[str, Any]:
    """Return the canonical options in a model's own fields: reasoning and top_k."""
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
    """Return the answer that an `outputConfig` asks for; None if it is none that is known."""
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


def read_options(raw: Raw) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options in canonical names, and what has none, as it is."""
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
