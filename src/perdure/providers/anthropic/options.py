"""Writes and reads the options and tools of Anthropic Messages, by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context, ToolSpec
from perdure.providers.anthropic.capabilities import EFFORT_BUDGETS, room_for, thinking_budget, traits_of
from perdure.providers.anthropic.parse import VENDOR, Raw, as_object
from perdure.providers.contract import Loss, LossKind
from perdure.providers.wire.malformed import malformed
from perdure.providers.wire.options import output_words, own_options

__all__ = [
    "AnthropicSettings",
    "NAMES",
    "NAME_MAX",
    "closed",
    "tools_of",
    "API",
    "read_options",
    "reasoning_of",
]

API = "anthropic-messages"


NAME_MAX = 128
NAMES = rf"[a-zA-Z0-9_-]{{1,{NAME_MAX}}}"

# Keywords that the service refuses in a strict schema.
_UNKEPT = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "propertyNames",
        "contains",
    }
)
_SCHEMAS = ("properties", "$defs", "definitions")
_SCHEMA = ("items", "not", "additionalProperties")
_SCHEMA_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")


def tools_of(
    context: Context, listed: object, names: Mapping[str, str], losses: list[Loss]
) -> list[dict[str, Any]]:
    """Return the tools; in the order of `listed`, where an Anthropic request had such a list."""
    specs: dict[str, tuple[int, ToolSpec]] = {}
    for at, spec in enumerate(context.tools):
        if spec.name in specs:
            losses.append(_loss("dropped", at, "tool", f"'{spec.name}' is declared twice; the first stands"))
        else:
            specs[spec.name] = (at, spec)
    made: list[dict[str, Any]] = []
    for entry in _listed(listed):
        found = specs.pop(str(entry.get("name")), None) if "type" not in entry else None
        if found is not None:
            more = {key: value for key, value in entry.items() if key != "name"}
            made.append(_tool(*found, names, losses) | more)
        elif "type" in entry:
            made.append(dict(entry))
    made += [_tool(at, spec, names, losses) for at, spec in specs.values()]
    return _once(made, losses)


def _listed(listed: object) -> Sequence[Mapping[str, Any]]:
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    return [cast("Mapping[str, Any]", entry) for entry in entries if isinstance(entry, Mapping)]


def _once(tools: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    """Return the tools without repeated names."""
    found: dict[object, dict[str, Any]] = {}
    for at, tool in enumerate(tools):
        key = str(tool["name"]) if tool.get("name") else at
        if key in found:
            losses.append(_loss("dropped", at, "tool", f"'{key}' is declared twice; the first stands"))
        else:
            found[key] = tool
    return list(found.values())


def _tool(at: int, spec: ToolSpec, names: Mapping[str, str], losses: list[Loss]) -> dict[str, Any]:
    schema = dict(spec.parameters)
    if schema.get("type") != "object":
        if schema:
            losses.append(_loss("repaired", at, "schema", "it is not said to be of an object; it is now"))
        schema["type"] = "object"
        schema.setdefault("properties", {})
    refused = [key for key in ("anyOf", "oneOf", "allOf") if schema.pop(key, None) is not None]
    why = "Anthropic refuses it at the top of a schema"
    losses += [_loss("dropped", at, f"schema rule {key}", why) for key in refused]
    tool: dict[str, Any] = {"name": names[spec.name], "description": spec.description}
    if spec.strict is not None:
        tool["strict"] = spec.strict
    tool["input_schema"] = closed(schema, f"tools[{at}].parameters", losses) if spec.strict else schema
    return tool


def closed(schema: Any, where: str, losses: list[Loss]) -> Any:
    """Return a schema as the service keeps it: every object closed, no limits on sizes; each removal is a loss."""
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", schema).items():
        if key in _UNKEPT or (key == "minItems" and value not in (0, 1)):
            why = "Anthropic keeps no such rule"
            losses.append(Loss(kind="dropped", where=f"{where}.{key}", what=f"schema rule {key}", why=why))
        elif key in _SCHEMAS and isinstance(value, Mapping):
            parts = cast("Mapping[str, Any]", value)
            made[key] = {name: closed(part, f"{where}.{key}.{name}", losses) for name, part in parts.items()}
        elif key in _SCHEMA:
            made[key] = closed(value, f"{where}.{key}", losses)
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            parts = enumerate(cast("list[Any]", value))
            made[key] = [closed(part, f"{where}.{key}[{at}]", losses) for at, part in parts]
        else:
            made[key] = value
    return _shut(made, where, losses)


def _shut(schema: dict[str, Any], where: str, losses: list[Loss]) -> dict[str, Any]:
    if schema.get("type") != "object" or schema.get("additionalProperties") is False:
        return schema
    why = (
        "Anthropic demands that objects are closed"
        if "additionalProperties" in schema
        else "it was not said whether it is closed; Anthropic demands it"
    )
    losses.append(Loss(kind="repaired", where=where, what="open object", why=why))
    return schema | {"additionalProperties": False}


def _loss(kind: str, at: int, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=f"tools[{at}]", what=what, why=why)  # pyright: ignore[reportArgumentType]


_BUDGET_USUAL = 8_192
_WRITTEN = frozenset({"tools", "system", "thinking", "output_config", "output_format", "metadata"})
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
        "user",
        "stream",
        "service_tier",
        "vendor",
        "cache",
    }
)
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicSettings:
    """Writes the options of one request."""

    def __init__(
        self, options: Mapping[str, Any], vendor: Mapping[str, Any], model: str, provider: str | None
    ) -> None:
        """Take the canonical options, and in `vendor` those that only this format has; `provider` names the server."""
        self.losses: list[Loss] = []
        self.words: list[str] = []  # options that only text can express; it is added to the system text
        self._options, self._traits, self._provider = options, traits_of(model), provider
        self._vendor = own_options(vendor, API, provider, self.losses)
        self._body: dict[str, Any] = {}

    def write(
        self, tools: Sequence[Mapping[str, Any]], names: Mapping[str, str], *, loop: bool
    ) -> dict[str, Any]:
        """Return all options; `names` are those of the tools here.

        `loop` is True if tools have just answered a turn without thinking."""
        self._body = {name: value for name, value in self._vendor.items() if name not in _WRITTEN}
        self._limits()
        self._choice(tools, names)
        self._output()
        self._reasoning(loop=loop)
        self._sampling()
        self._rest()
        return self._body

    def _lose(self, kind: LossKind, option: str, why: str) -> None:
        self.losses.append(Loss(kind=kind, where=f"options.{option}", what=option, why=why))

    def _limits(self) -> None:
        self._body["max_tokens"] = self._given_limit() or self._traits.max_tokens
        stops = self._options.get("stop")
        listed = [stops] if isinstance(stops, str) else cast("list[Any]", stops or [])
        told = [stop for stop in listed if isinstance(stop, str) and stop.strip()]
        if len(told) != len(listed):
            self._lose("dropped", "stop", "Anthropic refuses stops of white space only")
        if told:
            self._body["stop_sequences"] = told

    def _given_limit(self) -> int | None:
        """Return the longest answer that the options name; None: they name none."""
        wanted = self._options.get("max_tokens")
        return wanted if isinstance(wanted, int) and wanted > 0 else None

    def _choice(self, tools: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> None:
        wanted, parallel = self._options.get("tool_choice"), self._options.get("parallel_tool_calls")
        if wanted is None and parallel is not False:
            return
        if not tools:
            for name in ("tool_choice", "parallel_tool_calls"):
                if self._options.get(name) is not None:
                    self._lose("dropped", name, "there is no tool to choose")
            return
        declared = {str(tool.get("name")) for tool in tools}
        choice = self._chosen(wanted, names, declared)
        if isinstance(parallel, bool) and choice["type"] != "none":
            choice["disable_parallel_tool_use"] = not parallel
        self._body["tool_choice"] = choice

    def _chosen(self, wanted: object, names: Mapping[str, str], declared: set[Any]) -> dict[str, Any]:
        if isinstance(wanted, Mapping):
            name = str(cast("Mapping[str, Any]", wanted).get("name"))
            name = names.get(name, name)
            if name in declared:
                return {"type": "tool", "name": name}
            self._lose("dropped", "tool_choice", f"no tool '{name}' is declared")
        elif isinstance(wanted, str) and wanted in _CHOICES:
            return {"type": _CHOICES[wanted]}
        elif wanted is not None:
            self._lose("dropped", "tool_choice", "Anthropic has no such choice")
        return {"type": "auto"}

    def _output(self) -> None:
        wanted = self._options.get("output")
        raw = self._vendor.get("output_format")
        if wanted is None:
            if isinstance(raw, Mapping):
                self._body["output_format"] = raw
            return
        schema = cast("Mapping[str, Any]", wanted).get("schema") if isinstance(wanted, Mapping) else None
        if not isinstance(schema, Mapping) or not self._traits.output:
            why = "asked for in words: this model keeps to no schema, or there is none"
            self._lose("converted", "output", why)
            self.words.append(output_words(cast("object", wanted)))
            return
        for name in cast("Mapping[str, Any]", wanted):
            if name not in ("schema", "strict"):
                self._lose("dropped", f"output.{name}", "Anthropic knows only the schema")
        if cast("Mapping[str, Any]", wanted).get("strict") is False:
            self._lose("converted", "output.strict", "Anthropic always keeps to the schema")
        form = {"type": "json_schema", "schema": closed(schema, "options.output.schema", self.losses)}
        if raw is True:
            self._body["output_format"] = form
        else:
            self._body["output_config"] = {"format": form}

    def _reasoning(self, *, loop: bool) -> None:
        told = self._options.get("reasoning")
        wanted = _mapping(told)
        config = self._effort(wanted)
        if config:
            self._body["output_config"] = {**config, **self._body.get("output_config", {})}
        thinking = self._thinking(wanted)
        if thinking is not None and thinking["type"] != "disabled":
            thinking = self._possible(thinking, loop=loop)
        if thinking is not None:
            self._body["thinking"] = thinking
        self._summary(wanted.get("summary"), thinks=thinking is not None)
        asked = _mapping(self._vendor.get("thinking"))
        for name in sorted(asked.keys() - {"type", "budget_tokens"} - (thinking or {}).keys()):
            where, why = (
                f"options.vendor.{API}.thinking.{name}",
                "the thinking that it belongs to is not asked for",
            )
            self.losses.append(Loss(kind="dropped", where=where, what=name, why=why))

    def _summary(self, asked: object, *, thinks: bool) -> None:
        if asked not in (None, "none", False) and not thinks:
            self._lose("dropped", "reasoning.summary", "no thinking is asked for, so none is told of")
        elif asked not in (None, "none", False, "auto"):
            self._lose("converted", "reasoning.summary", "Anthropic has one kind of summary")

    def _effort(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return `output_config` without the form of the answer."""
        raw = self._vendor.get("output_config")
        config: dict[str, Any] = dict(cast("Mapping[str, Any]", raw)) if isinstance(raw, Mapping) else {}
        effort = wanted.get("effort")
        if config.get("effort") == effort:
            return config
        config.pop("effort", None)
        if not isinstance(effort, str) or effort == "none" or not self._traits.efforts:
            return config
        nearest = effort if effort in self._traits.efforts else {"minimal": "low"}.get(effort, "high")
        if nearest != effort:
            self._lose("converted", "reasoning.effort", f"'{effort}' is '{nearest}' here")
        return config | {"effort": nearest}

    def _thinking(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the thinking that is asked for; None leaves it to the model."""
        raw = self._vendor.get("thinking")
        asked = {key: wanted[key] for key in ("enabled", "budget_tokens") if key in wanted}
        if isinstance(raw, Mapping) and "type" in raw and reasoning_of(cast("object", raw)) == asked:
            return dict(cast("Mapping[str, Any]", raw))
        effort = wanted.get("effort")
        if wanted.get("enabled") is False or effort == "none":
            return {"type": "disabled"}
        if not asked and (effort is None or effort == self._own_effort()):
            return None
        return self._asked(wanted)

    def _own_effort(self) -> object:
        raw = self._vendor.get("output_config")
        return cast("Mapping[str, Any]", raw).get("effort") if isinstance(raw, Mapping) else None

    def _asked(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        budget, effort = wanted.get("budget_tokens"), wanted.get("effort")
        shown: dict[str, Any] = (
            {"display": "summarized"} if wanted.get("summary") and not self._traits.budget else {}
        )
        if isinstance(budget, int) and self._traits.budget:
            return {"type": "enabled", "budget_tokens": budget}
        if isinstance(budget, int):
            self._lose("converted", "reasoning.budget_tokens", "this model thinks as much as it likes")
        if self._traits.adaptive:
            return {"type": "adaptive", **shown}
        if isinstance(effort, str) and not self._traits.efforts:
            self._lose("converted", "reasoning.effort", "this model takes a number of tokens")
        return {"type": "enabled", "budget_tokens": EFFORT_BUDGETS.get(str(effort), _BUDGET_USUAL)}

    def _possible(self, thinking: dict[str, Any], *, loop: bool) -> dict[str, Any] | None:
        """Return the thinking that the other options allow; None if they exclude it."""
        if not self._traits.thinking:
            return self._unthought("this model does not think")
        if thinking["type"] != "enabled":
            return thinking
        if self._body.get("tool_choice", {}).get("type") in ("any", "tool"):
            return self._unthought("a tool is forced, and then Claude does not think")
        if loop:
            return self._unthought("tools have just answered a turn that has no thinking of this model")
        wanted, given = thinking.get("budget_tokens", _BUDGET_USUAL), self._given_limit()
        limit = given or room_for(wanted, self._traits)
        budget = thinking_budget(wanted, limit, is_exact=self._is_budgeted() and given is not None)
        if budget is None:
            return self._unthought(f"max_tokens of {limit} leaves no room for it")
        if budget != thinking.get("budget_tokens") and self._is_budgeted():
            why = f"it is {budget} here, so that max_tokens of {limit} leaves room for an answer"
            self._lose("repaired", "reasoning.budget_tokens", why)
        self._body["max_tokens"] = limit
        return thinking | {"budget_tokens": budget}

    def _is_budgeted(self) -> bool:
        """True if the options name a number of tokens; one that was derived from an effort is ours to change."""
        return "budget_tokens" in _mapping(self._options.get("reasoning"))

    def _unthought(self, why: str) -> None:
        self._lose("dropped", "reasoning", why)

    def _sampling(self) -> None:
        thinks = self._body.get("thinking", {}).get("type") in ("enabled", "adaptive")
        for name in ("temperature", "top_p", "top_k"):
            value = self._options.get(name)
            if not isinstance(value, int | float):
                continue
            if not self._traits.sampling:
                self._lose("dropped", name, "this model takes none")
            elif thinks and not (name == "temperature" and value == 1):
                self._lose("dropped", name, "it is not taken beside thinking")
            elif name == "top_p" and "temperature" in self._body and not self._traits.both_samplings:
                self._lose("dropped", name, "this model takes no top_p beside temperature")
            elif name != "top_k" and not 0 <= value <= 1:
                self._body[name] = min(max(value, 0), 1)
                self._lose("repaired", name, f"it is {self._body[name]} here: between 0 and 1")
            else:
                self._body[name] = value

    def _rest(self) -> None:
        if isinstance(self._options.get("stream"), bool) and self._options["stream"]:
            self._body["stream"] = True
        metadata = self._vendor.get("metadata")
        if metadata or self._options.get("user"):
            told = {"user_id": self._options["user"]} if self._options.get("user") else {}
            self._body["metadata"] = {**told, **(metadata if isinstance(metadata, Mapping) else {})}
        tier = self._options.get("service_tier")
        if tier in ("auto", "standard_only") and self._provider in (None, VENDOR):
            self._body["service_tier"] = tier
        elif tier is not None:
            whose = "Anthropic" if self._provider is None else self._provider
            self._lose("dropped", "service_tier", f"{whose} has no tier '{tier}'")
        for name, value in self._options.items():
            if name not in _KNOWN and value is not None:
                self._lose("dropped", name, "Anthropic has no such option")


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


_SAME = ("max_tokens", "temperature", "top_p", "top_k", "stream", "service_tier")
_HANDLED = frozenset(
    {
        *_SAME,
        "messages",
        "model",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "stop_sequences",
        "metadata",
        "cache_control",
    }
)
_CANONICAL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def reasoning_of(thinking: object) -> dict[str, Any]:
    """Return the canonical options for a `thinking` field."""
    raw = as_object(thinking, "thinking")
    made: dict[str, Any] = {"enabled": raw.get("type") != "disabled"}
    if isinstance(raw.get("budget_tokens"), int):
        made["budget_tokens"] = raw["budget_tokens"]
    return made


def read_options(raw: Raw) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options in canonical names, and what has none, as it is."""
    options: dict[str, Any] = {name: raw[name] for name in _SAME if raw.get(name) is not None}
    vendor = {name: value for name, value in raw.items() if name not in _HANDLED and value is not None}
    if raw.get("stop_sequences"):
        options["stop"] = list(raw["stop_sequences"])
    if raw.get("tool_choice"):
        _choice(as_object(raw["tool_choice"], "tool_choice"), options)
    if raw.get("metadata"):
        _metadata(as_object(raw["metadata"], "metadata"), options, vendor)
    _reasoning(raw, options, vendor)
    _output(raw, options, vendor)
    return options, vendor


def _choice(choice: Raw, options: dict[str, Any]) -> None:
    kind = choice.get("type")
    if kind == "tool":
        options["tool_choice"] = {"name": choice.get("name")}
    elif isinstance(kind, str) and kind in _CANONICAL_CHOICES:
        options["tool_choice"] = _CANONICAL_CHOICES[kind]
    else:
        raise malformed("tool_choice", f"is of type {kind!r}, none of Anthropic Messages")
    if isinstance(choice.get("disable_parallel_tool_use"), bool):
        options["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]


def _metadata(metadata: Raw, options: dict[str, Any], vendor: dict[str, Any]) -> None:
    if isinstance(metadata.get("user_id"), str):
        options["user"] = metadata["user_id"]
    more = {key: value for key, value in metadata.items() if key != "user_id"}
    if more:
        vendor["metadata"] = more


def _reasoning(raw: Raw, options: dict[str, Any], vendor: dict[str, Any]) -> None:
    reasoning: dict[str, Any] = {}
    if raw.get("thinking"):
        thinking = as_object(raw["thinking"], "thinking")
        reasoning = reasoning_of(thinking)
        if thinking.get("type") == "adaptive" or thinking.keys() - {"type", "budget_tokens"}:
            vendor["thinking"] = dict(thinking)
    config = as_object(raw.get("output_config") or {}, "output_config")
    if isinstance(config.get("effort"), str):
        reasoning["effort"] = config["effort"]
    rest = {key: value for key, value in config.items() if key != "format" and value is not None}
    if rest:
        vendor["output_config"] = rest
    if reasoning:
        options["reasoning"] = reasoning


def _output(raw: Raw, options: dict[str, Any], vendor: dict[str, Any]) -> None:
    config = as_object(raw.get("output_config") or {}, "output_config")
    wanted: object = config.get("format") or raw.get("output_format")
    if not wanted:
        return
    described = as_object(wanted, "output_format")
    older = not config.get("format")
    if described.get("type") == "json_schema" and isinstance(described.get("schema"), Mapping):
        options["output"] = {"schema": dict(described["schema"])}
        if older:
            vendor["output_format"] = True  # the older place of the same thing
    elif older:
        vendor["output_format"] = dict(described)
    else:
        vendor["output_config"] = {**vendor.get("output_config", {}), "format": dict(described)}
