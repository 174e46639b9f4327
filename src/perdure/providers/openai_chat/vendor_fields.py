"""Stores the fields of a Chat message beyond its canonical form, for the server that wrote them.

    {"openai": {"endpoint": "openrouter", "model": "…", "response_id": "…", "chat": {…}}}

Text and media stay in the canonical blocks.  Stored here is only what would be lost: extra fields, the field
names of reasoning, details of parts, and parts and calls that no other format knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from perdure.model.canonical import prepared
from perdure.model.message import Message
from perdure.providers.wire.fields.vendor_items import items_of
from perdure.providers.wire.fields.vendor_metadata import keep, kept

__all__ = ["BOUND", "Beside", "Origin", "Part", "beside", "merged", "same_model", "with_beside", "objects_of"]


BOUND = ("reasoning_details", "extra_content", "thought_signature")  # what only the same model can read
_DATE = re.compile(r"\d{2,}|latest|preview|free|exp")


class Origin(msgspec.Struct, frozen=True):
    """The writer of a message: the vendor's key in vendorMetadata, the server's provider, and the model."""

    vendor: str
    endpoint: str
    model: str | None = None


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """The other fields of one block."""

    add: dict[str, Any] = {}  # to be merged into the part as it is rendered
    native: dict[str, Any] | None = None  # the part itself, where the block only describes it


class Beside(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The other fields of one message."""

    blocks: int = 0  # how many it had; a message that was changed since is rendered plainly
    role: str | None = None  # where the canonical one is another
    fields: dict[str, Any] = {}  # of the message, as they came
    bound: dict[str, Any] = {}  # those that only the same model can read
    reasoning: tuple[str, ...] = ()  # the fields that held the words of the reasoning
    asked: bool = False  # it came in a request, so that the server is known to take it
    parts: dict[str, Part] = {}  # by the place of the block
    refusal: int | None = None  # the block that was a refusal
    ids: tuple[str, ...] = ()  # the server's own ids of the calls
    calls: dict[str, dict[str, Any]] = {}  # what stood beside a call, by its place
    said: dict[str, Any] = {}  # other fields of the answer, never sent back


_EMPTY = Beside()


def with_beside(message: Message, more: Beside, origin: Origin, **facts: Any) -> Message:
    """Return the message with its other fields and the facts of its origin, if there are any."""
    told = msgspec.to_builtins(msgspec.structs.replace(more, blocks=0))
    if not told and not any(value is not None for value in facts.values()):
        return message
    if told:
        told["blocks"] = _blocks(message)
    whose = {"endpoint": origin.endpoint, "model": origin.model}
    metadata = keep(origin.vendor, whose | facts | {"chat": told or None})
    return msgspec.structs.replace(message, vendor_metadata=metadata)


def beside(message: Message, origin: Origin) -> Beside:
    """Return the stored fields of a message of `origin`; none if another server wrote it."""
    own = kept(message, origin.vendor, endpoint=origin.endpoint)
    told = own.get("chat") if own is not None else None
    if own is None or not isinstance(told, dict):
        return _EMPTY
    try:
        found = msgspec.convert(told, prepared(Beside))
    except (msgspec.ValidationError, UnicodeError):
        return _EMPTY
    if found.blocks != _blocks(message):
        found = msgspec.structs.replace(found, parts={}, refusal=None)
    if not same_model(own.get("model"), origin.model):
        calls = {
            at: {name: value for name, value in more.items() if name not in BOUND}
            for at, more in found.calls.items()
        }
        found = msgspec.structs.replace(found, bound={}, calls=calls)
    return found


def _blocks(message: Message) -> int:
    return len(message.content) + sum(len(result.content) for result in message.tool_results)


def same_model(made: object, asked: str | None) -> bool:
    """True if two names are one model's: aliases with a date, or with the words in another order, are."""
    if not isinstance(made, str) or asked is None:
        return True
    return made == asked or _words(made) == _words(asked)


def merged(part: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part with what stood beside it, at any depth."""
    whole = dict(part)
    for name, value in more.items():
        there = whole.get(name)
        if isinstance(there, dict) and isinstance(value, dict):
            whole[name] = merged(cast("dict[str, Any]", there), cast("dict[str, Any]", value))
        else:
            whole[name] = value
    return whole


def _words(name: str) -> set[str]:
    return {word for word in re.split(r"[-./:@_ ]+", name.lower()) if not _DATE.fullmatch(word)}


def objects_of(value: object) -> list[dict[str, Any]]:
    """Return the objects of a JSON list; none for anything else."""
    return [cast("dict[str, Any]", each) for each in items_of(value) if isinstance(each, dict)]
