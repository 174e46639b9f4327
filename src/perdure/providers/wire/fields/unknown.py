"""Reports the fields of a request that its reader does not know, each as a loss.

A reader reads the known fields of a vendor's request, and keeps most others verbatim.  Where it
keeps none, a table says which fields it knows there:

    {"messages[]": frozenset({"role", "content"}), "tools[].function": frozenset({"name", …})}

A field that is in no table's row, and that the context does not hold under its name either, is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

from perdure.model.context import Context
from perdure.providers.contract import Asked, Loss, losses_of

__all__ = ["Known", "asked"]

Known: TypeAlias = Mapping[str, frozenset[str]]

_STRANGE = "it is no field that is known here; it was not read"
_MARKS = "the places of prompt cache marks are not kept; render sets them again"


def asked(context: Context, body: Mapping[str, Any], known: Known) -> Asked:
    """Return the context with a report of the fields that it lacks."""
    losses = list(context.losses) if isinstance(context, Asked) else []
    strange = [
        (place, name) for path, fields in known.items() for place, name in _strange(body, path, fields)
    ]
    if strange:
        held = _held(context)
        losses += [_strange_field(place, name) for place, name in strange if f'"{name}"' not in held]
    if context.options.get("cache") is True:
        losses.append(Loss(kind="converted", where="options.cache", what="cache marks", why=_MARKS))
    return Asked(
        system=context.system,
        messages=context.messages,
        tools=context.tools,
        options=context.options,
        losses=losses_of(losses),
    )


def _strange_field(place: str, name: str) -> Loss:
    return Loss(kind="dropped", where=f"{place}.{name}", what=name, why=_STRANGE)


def _held(context: Context) -> str:
    """Return everything that is stored beside the canonical form, as text."""
    kept = [message.vendor_metadata or "" for message in context.messages]
    return "\n".join([*kept, json.dumps(context.options.get("vendor") or {}, default=str)])


def _strange(body: Mapping[str, Any], path: str, known: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the fields at a path that are not known, each with its place."""
    for place, found in _at(body, path.split("."), ""):
        if isinstance(found, Mapping):
            fields = cast("Mapping[str, Any]", found).items()
            yield from ((place, name) for name, value in fields if name not in known and value is not None)


def _at(value: object, steps: list[str], place: str) -> Iterator[tuple[str, object]]:
    if not steps:
        yield place, value
        return
    if not isinstance(value, Mapping):
        return
    name = steps[0].removesuffix("[]")
    held: object = cast("Mapping[str, Any]", value).get(name)
    inner = f"{place}.{name}" if place else name
    if not steps[0].endswith("[]"):
        yield from _at(held, steps[1:], inner)
    elif isinstance(held, list):
        for at, each in enumerate(cast("list[object]", held)):
            yield from _at(each, steps[1:], f"{inner}[{at}]")
