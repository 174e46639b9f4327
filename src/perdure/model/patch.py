"""Defines patches: changes to state as ordered ops.

`put` and the arguments of document ops are named by digest.  A document op also
records the digest of the document after it, so that the tree can be checked without the values.
Document places are arrays of keys and indexes, never dotted strings.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.errors import Corrupt, Unsupported
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.digest import Digest

__all__ = [
    "JSON_TYPE",
    "OPS_VERSION",
    "Clear",
    "Delete",
    "Edit",
    "Op",
    "Patch",
    "Put",
    "Replace",
    "Stored",
    "Verb",
    "check_version",
    "decode_patch",
    "plain",
    "unknown_op",
    "unreadable",
]

OPS_VERSION = 1
JSON_TYPE = "application/json"

Verb: TypeAlias = Literal["set", "unset", "append", "merge", "increment", "insert", "remove"]


class Stored(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A value by reference, as the map holds it at a path."""

    value: Digest
    size: int
    form: Literal["json", "bytes"] = "json"
    media_type: str = JSON_TYPE


class Put(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="put", gc=False):
    """The path now holds this value."""

    path: str
    value: Digest
    size: int
    form: Literal["json", "bytes"] = "json"
    media_type: str = JSON_TYPE


class Delete(msgspec.Struct, frozen=True, tag_field="op", tag="delete", gc=False):
    """The path, which held a value, holds none."""

    path: str


class Clear(msgspec.Struct, frozen=True, tag_field="op", tag="clear", gc=False):
    """The path and everything below it hold nothing; '/' is everything."""

    prefix: str


class Replace(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="replace", gc=False):
    """The whole thread-scoped state is now this; `keep` and Perdure's own prefixes stay as they are."""

    entries: dict[str, Stored]
    keep: tuple[str, ...] = ()


class Edit(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="edit", gc=False):
    """A JSON document was changed in one place."""

    path: str
    verb: Verb
    at: tuple[str | int, ...]
    leaves: Digest  # the document afterwards
    size: int  # of the document afterwards
    argument: Digest | None = None  # None: the verb takes none


Op: TypeAlias = Put | Delete | Clear | Replace | Edit


class Patch(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Ops in the order in which they apply: all of them or none."""

    ops: tuple[Op, ...] = ()
    version: int = 1  # absent means 1, for ever


_decoder = msgspec.json.Decoder(Patch)
_KNOWN: dict[str, frozenset[str]] = {
    "op": frozenset(str(kind.__struct_config__.tag) for kind in get_args(Op)),
    "verb": frozenset(get_args(Verb)),
}


def decode_patch(body: bytes) -> Patch:
    """Return the patch that `body` holds; raises `Corrupt`, or `Unsupported` for ops of a newer Perdure."""
    try:
        patch = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable("patch", error, unknown_op(plain(body))) from error
    check_version(patch)
    return patch


def check_version(patch: Patch) -> None:
    """Raise `Unsupported` for a patch whose ops have a version that this release does not know."""
    if patch.version > OPS_VERSION:
        raise _newer("patch", f"its ops have version {patch.version}, over {OPS_VERSION}")


def plain(body: bytes) -> Json:
    """Return the JSON of stored bytes that are not of the expected type; None if they are not even JSON."""
    try:
        return canonical.decode(body)
    except Corrupt:
        return None


def unknown_op(patch: Json) -> str | None:
    """Return the first op or verb of a patch, as plain JSON, that this release does not know; None if there is none."""
    ops = patch.get("ops") if isinstance(patch, dict) else None
    for op in ops if isinstance(ops, list) else ():
        for field, known in _KNOWN.items():
            name = op.get(field) if isinstance(op, dict) else None
            if isinstance(name, str) and name not in known:
                return name
    return None


def unreadable(what: str, error: Exception, unknown: str | None) -> Corrupt | Unsupported:
    """Return the error for stored bytes whose digest is right; a newer Perdure wrote an `unknown` event or op."""
    if unknown is not None:
        return _newer(what, f"it has '{unknown}', which this version does not know")
    return Corrupt(
        f"a stored {what} cannot be read: {error}.",
        code="record_unreadable",
        advice="Run `perdure verify`.",
        what=what,
    )


def _newer(what: str, why: str) -> Unsupported:
    return Unsupported(
        f"a stored {what} was written by a newer Perdure ({why}); it was not read.",
        code="written_by_newer_version",
        advice="Install that version, or a later one.",
        what=what,
        why=why,
    )
