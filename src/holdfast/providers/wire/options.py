"""Canonical options, looked at before a format renders them: one of a wrong type is left out, and reported.

What an option means is the same for every format, so what it may be is, too.  A whole number that came
as 40.0 is 40, and one stop is a list of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, cast

from holdfast.model.canonical import Json
from holdfast.providers.contract import Loss

__all__ = ["checked"]

_INTEGER_MAX = 2**63 - 1


def checked(options: Mapping[str, Json]) -> tuple[dict[str, Json], list[Loss]]:
    """The options that are what they have to be, and a loss for each that is not."""
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
