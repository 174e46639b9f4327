"""Patches: the intended changes to state, as ordered ops.

`put` and the arguments of document ops are named by digest.  A document op also
records the digest that it leaves, so that the tree can be checked without the values.
Document places are arrays of keys and indexes, never dotted strings.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from perdure.errors import Corrupt, Unsupported
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
    "unreadable",
]

OPS_VERSION = 1
JSON_TYPE = "application/json"

Verb: TypeAlias = Literal["set", "unset", "append", "merge", "increment", "insert", "remove"]


class Stored(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A value by reference: what the map holds at a path."""

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
    """The whole thread-scoped state is now this; `keep` and the kernel's own prefixes are left alone."""

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
# msgspec names what it does not know in the text of its error alone.
_NEWER = re.compile(r"Invalid (?:enum )?value .* - at `\$.*\.(?:type|op|verb)`\Z", re.DOTALL)


def decode_patch(body: bytes) -> Patch:
    """The patch that `body` holds; raises `Corrupt` if it is not one, `Unsupported` for ops of a newer Perdure."""
    try:
        patch = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable("patch", error) from error
    check_version(patch)
    return patch


def check_version(patch: Patch) -> None:
    """Raise `Unsupported` for a patch whose ops may mean something that is not known here."""
    if patch.version > OPS_VERSION:
        raise _newer("patch", f"its ops have version {patch.version}, over {OPS_VERSION}")


def unreadable(what: str, error: Exception) -> Corrupt | Unsupported:
    """Why stored bytes, whose digest was right, cannot be read: an event or op that is not known is a newer one."""
    if _NEWER.match(str(error)):
        return _newer(what, str(error))
    return Corrupt(f"a stored {what} cannot be read: {error}. Run `perdure verify`.")


def _newer(what: str, why: str) -> Unsupported:
    return Unsupported(
        f"a stored {what} was written by a newer Perdure ({why}); it was not read. Install that version, or a later one."
    )
