"""Checks canonical options before a format renders them: one of a wrong type is left out and reported.

An option has the same meaning and type in every format.  The number 40.0 counts as 40, and one stop as a
list of one.

A reader keeps under `vendor` the options that only its format has, and notes of its own (the order of tools, the blocks
of the system words, an option once more in the vendor's spelling).  `foreign_options` reports the first to every
other format as a loss; the notes repeat the canonical context, and are no loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, cast

from perdure.model.canonical import Json
from perdure.model.context import ToolSpec
from perdure.providers.contract import Loss
from perdure.providers.wire.fields.vendor_items import items_of, object_of

__all__ = ["checked", "foreign_options", "output_words", "own_options"]

_INTEGER_MAX = 2**63 - 1
# Fields that some servers of a format know, and others refuse.
_LOCAL = frozenset({"gpustack", "llama.cpp", "lmstudio", "local", "vllm"})
_SERVERS = {
    "anthropic_version": frozenset({"google-vertex"}),
    "chat_template_kwargs": _LOCAL,
    "enable_thinking": _LOCAL | {"alibaba"},
    "keep_alive": frozenset({"ollama", "ollama-cloud"}),
    "models": frozenset({"openrouter"}),
    "plugins": frozenset({"openrouter"}),
    "preset": frozenset({"openrouter"}),
    "provider": frozenset({"openrouter"}),
    "providerOptions": frozenset({"vercel-gateway"}),
    "reasoning_format": frozenset({"groq", "llama.cpp"}),
    "route": frozenset({"openrouter"}),
    "safe_prompt": frozenset({"mistral"}),
    "search_parameters": frozenset({"xai"}),
    "transforms": frozenset({"openrouter"}),
    "usage": frozenset({"openrouter"}),
}
_NOTES = frozenset({"endpoint", "strict_by_default", "tool_order"})
# Fields that hold several settings; some of them may say a canonical option once more.
_CONFIGS = frozenset(
    {
        *("additionalModelRequestFields", "generationConfig", "generation_config"),
        *("output_config", "outputConfig", "thinking", "thinkingConfig", "toolConfig"),
    }
)
_AGAIN = frozenset(
    {
        *("budget_tokens", "effort", "type", "thinkingConfig", "thinkingLevel", "reasoningConfig"),
        *("reasoning_config", "reasoning_effort", "thinking", "top_k", "inferenceConfig"),
        *("responseMimeType", "responseSchema", "textFormat"),
    }
)
_SPELLINGS = {"reasoning": ("enabled", "adaptive", "disabled"), "output": ("json_schema", "application/json")}
_DEFAULTS: tuple[Any, ...] = ({}, [], {"type": "text"}, {"format": {"type": "text"}})
_SYSTEM_FORM = frozenset(
    {"type", "text", "role", "content", "parts", "instructions", "items", "id", "status"}
)


def checked(options: Mapping[str, Json]) -> tuple[dict[str, Json], list[Loss]]:
    """Return the options that are what they have to be, and a loss for each that is not."""
    kept: dict[str, Json] = {}
    losses: list[Loss] = []
    for name, value in options.items():
        fit = value if value is None or name not in _FITS else _FITS[name](value)
        if fit is None and value is not None:
            why = f"it is {type(value).__name__}, or a value that the option cannot have"
            losses.append(Loss(kind="dropped", where=f"options.{name}", what=name, why=why))
        else:
            kept[name] = cast("Json", fit)
    return kept, losses


def own_options(
    fields: Mapping[str, Any], api: str, server: str | None, losses: list[Loss]
) -> dict[str, Any]:
    """Return the fields of a format without those that only other servers of it know, each of which is a loss."""
    foreign = {name for name in fields.keys() & _SERVERS.keys() if server not in _SERVERS[name]}
    for name in sorted(foreign):
        why = f"only {', '.join(sorted(_SERVERS[name]))} knows it"
        losses.append(Loss(kind="dropped", where=f"options.vendor.{api}.{name}", what=name, why=why))
    return {name: value for name, value in fields.items() if name not in foreign}


def output_words(output: object) -> str:
    """Return the words that ask a model for JSON that no field can ask it for."""
    asked = "Answer with one JSON object and nothing else."
    schema = object_of(output).get("schema")
    if not isinstance(schema, Mapping):
        return asked
    return f"{asked} It must fit this JSON schema: {json.dumps(schema, ensure_ascii=False, sort_keys=True)}"


def foreign_options(options: Mapping[str, Any], tools: Sequence[ToolSpec], api: str) -> list[Loss]:
    """Return a loss for each option of a format other than `api` that no canonical option expresses."""
    others = {other: object_of(fields) for other, fields in object_of(options.get("vendor")).items()}
    if not others.keys() - {api}:
        return []
    said = _canonical_leaves(options)
    places = {tool.name: f"tools[{at}]" for at, tool in reversed(list(enumerate(tools)))}
    found: dict[str, Loss] = {}
    for other, fields in others.items():
        for name, value in fields.items() if other != api else ():
            for where in _foreign(f"options.vendor.{other}", name, value, places, said):
                found[where] = _foreign_loss(where, other)
    return list(found.values())


def _foreign_loss(where: str, other: str) -> Loss:
    what = where.rpartition(".")[2]
    if where.startswith("tools[") and what == "type":
        why = f"only {other} has tools that take plain text; its text stands under 'input'"
        return Loss(kind="converted", where=where, what="custom tool", why=why)
    return Loss(kind="dropped", where=where, what=what, why=f"only {other} has it")


def _foreign(
    vendor: str, name: str, value: object, places: Mapping[str, str], said: set[object]
) -> Iterator[str]:
    """Yield the places of the values in a field of another format."""
    if name in _NOTES or (name == "output_format" and value is True):
        return
    if name == "tool_extras":
        for tool, extra in object_of(value).items():
            yield from _beside_tool(object_of(extra), ("parameters", "description"), places.get(tool))
    elif name == "tools":
        yield from _foreign_tools(items_of(value), vendor, places)
    elif name == "system":
        yield from (f"system.{key}" for key in _keys(value) if key not in _SYSTEM_FORM)
    elif name in _CONFIGS:
        for key, each in object_of(value).items():
            if each not in _DEFAULTS and (key not in _AGAIN or not _leaves(each) <= said):
                yield f"{vendor}.{name}.{key}"
    elif value not in _DEFAULTS:
        yield f"{vendor}.{name}"


def _foreign_tools(tools: Iterable[Any], vendor: str, places: Mapping[str, str]) -> Iterator[str]:
    """Yield the fields of a list of tools beside the declared functions, and the vendor's own tools."""
    for entry in map(object_of, tools):
        named = object_of(entry.get("function")).get("name") or ("type" not in entry and entry.get("name"))
        if isinstance(named, str):
            yield from _beside_tool(entry, ("type", "function", "name"), places.get(named))
        else:
            yield f"{vendor}.tools"


def _beside_tool(fields: Mapping[str, Any], known: Iterable[str], place: str | None) -> Iterator[str]:
    if place is not None:
        yield from (
            f"{place}.{key}" for key, value in fields.items() if key not in known and value is not None
        )


def _canonical_leaves(options: Mapping[str, Any]) -> set[object]:
    """Return the values of the canonical options, in every spelling."""
    said = _leaves([value for name, value in options.items() if name != "vendor"])
    said |= {key.casefold() for name, value in options.items() if name != "vendor" for key in _keys(value)}
    return said.union(*(words for name, words in _SPELLINGS.items() if options.get(name) is not None))


def _leaves(value: object) -> set[object]:
    """Return the scalars within a value; texts in lower case, those that are JSON taken apart."""
    if isinstance(value, Mapping):
        return {leaf for each in cast("Mapping[str, object]", value).values() for leaf in _leaves(each)}
    if isinstance(value, list):
        return {leaf for each in cast("list[object]", value) for leaf in _leaves(each)}
    if isinstance(value, str) and value.startswith("{"):
        try:
            return _leaves(json.loads(value))
        except (ValueError, RecursionError):
            return {value.casefold()}
    return {value.casefold() if isinstance(value, str) else value} if value is not None else set()


def _keys(value: object) -> set[str]:
    if isinstance(value, Mapping):
        held = cast("Mapping[str, object]", value)
        return set(held).union(*(_keys(each) for each in held.values()))
    return set[str]().union(*(_keys(each) for each in items_of(value)))


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and isfinite(value) and value.is_integer():
        return _integer(int(value))
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) <= _INTEGER_MAX else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _INTEGER_MAX else None  # NaN is not


def _stops(value: Any) -> list[str] | None:
    listed = [value] if isinstance(value, str) else value
    texts = isinstance(listed, list) and all(isinstance(each, str) for each in cast("list[Any]", listed))
    return cast("list[str]", listed) if texts else None


def _choice(value: Any) -> Any:
    if isinstance(value, str):
        return value
    named = isinstance(value, Mapping) and isinstance(cast("Mapping[str, Any]", value).get("name"), str)
    return cast("object", value) if named else None


def _output(value: Any) -> Any:
    if isinstance(value, str):
        return value
    schema = cast("Mapping[str, Any]", value).get("schema") if isinstance(value, Mapping) else None
    return cast("object", value) if isinstance(schema, Mapping) else None


def _of(*kinds: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kinds) else None


_FITS: dict[str, Callable[[Any], Any]] = {
    "max_tokens": _integer,
    "temperature": _number,
    "top_p": _number,
    "top_k": _integer,
    "stop": _stops,
    "seed": _integer,
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "tool_choice": _choice,
    "parallel_tool_calls": _of(bool),
    "output": _output,
    "reasoning": _of(dict),
    "user": _of(str),
    "metadata": _of(dict),
    "stream": _of(bool),
    "n": _integer,
    "logprobs": _of(bool),
    "top_logprobs": _integer,
    "service_tier": _of(str),
    "vendor": _of(dict),
    "cache": _of(bool),
}
