"""Values: what a state path holds, as a program gives and gets it.

A value is a JSON document or bytes with a media type.  One that is larger than the limit
is kept as an artifact: the map then names the artifact, and reading it is no different.

Values as the types that a program asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Invalid
from perdure.history import artifacts
from perdure.history.space import Space
from perdure.history.tree import Entry
from perdure.model import canonical
from perdure.model.artifact import check_media_type
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, Object
from perdure.model.patch import JSON_TYPE, Stored

__all__ = [
    "BYTES_TYPE",
    "Given",
    "StoredValue",
    "Value",
    "decode",
    "keep",
    "read",
    "read_bytes",
    "read_json",
    "declared",
    "typed",
]


Value: TypeAlias = "Json | bytes"
Given: TypeAlias = "Mapping[str, Given] | Sequence[Given] | str | float | bool | bytes | None"
"""What type checkers accept as a value; tuples and other collections are refused when they are given."""

BYTES_TYPE = "application/octet-stream"

_Form: TypeAlias = Literal["json", "bytes"]


class StoredValue(msgspec.Struct, frozen=True, gc=False):
    """A value by reference, and what the write that uses it must carry."""

    stored: Stored
    objects: tuple[Object, ...]
    cells: tuple[CellWrite, ...] = ()
    body: bytes | None = None  # None: it is in the store


def keep(space: Space, value: object, media_type: str | None, *, base: Digest | None) -> StoredValue:
    """How the map names `value`, and what holds it.

    `base` is the value it takes the place of, which an engine may store it against; None
    if there is none.  Raises `Invalid` for what is neither JSON nor bytes.
    """
    if isinstance(value, bytes | bytearray):
        kind = BYTES_TYPE if media_type is None else check_media_type(media_type)
        return _keep(space, bytes(value), "bytes", kind, base)
    if media_type not in (None, JSON_TYPE):
        raise Invalid(
            f"a JSON document has the media type {JSON_TYPE}, not {media_type!r}; nothing was written. "
            "Give bytes to choose another."
        )
    return _keep(space, canonical.encode(value), "json", JSON_TYPE, base)


def read(space: Space, entry: Entry) -> Value:
    """The value that the map holds; raises `Forgotten` or `Corrupt`."""
    return decode(entry.form, read_bytes(space, entry.value))


def read_json(space: Space, digest: Digest) -> Json:
    """The JSON document of that digest."""
    return canonical.decode(read_bytes(space, digest))


def read_bytes(space: Space, digest: Digest) -> bytes:
    """The bytes of a value, wherever they are kept."""
    found = space.objects((digest,))[0]
    return b"".join(artifacts.get(space, digest)) if found.kind is Kind.ARTIFACT else found.body


def decode(form: _Form, body: bytes) -> Value:
    """The bytes of a value, as its form says."""
    return canonical.decode(body) if form == "json" else body


def _keep(space: Space, body: bytes, form: _Form, media_type: str, base: Digest | None) -> StoredValue:
    if len(body) > space.limits.value_bytes_max:
        return _as_artifact(space, body, form, media_type)
    value = Object.of(Kind.VALUE, body, base=base)
    return StoredValue(Stored(value.digest, len(body), form, media_type), (value,), body=body)


def _as_artifact(space: Space, body: bytes, form: _Form, media_type: str) -> StoredValue:
    staged = artifacts.stage(space, (body,), media_type=media_type)
    stored = Stored(staged.digest, len(body), form, media_type)
    return StoredValue(stored, staged.objects, staged.cells, body)


def typed(path: str, value: Value, type: Any) -> Any:
    """`value` as a `type`; None is as it is.  Raises `Invalid`, naming the path, if it is not one."""
    if type is None or (isinstance(value, bytes) and type is bytes):
        return value
    if isinstance(value, bytes) or type is bytes:
        held = "bytes" if isinstance(value, bytes) else "a JSON document"
        raise Invalid(
            f"{path} holds {held}, not {_name(type)}; nothing was returned. Ask for it without a type, or as what it is."
        )
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise Invalid(
            f"{path} does not hold {_name(type)}: {error}; nothing was returned. Ask for it without a type, or put "
            "what fits."
        ) from error
    except TypeError as error:
        raise Invalid(
            f"{path} cannot be asked for as {_name(type)}: {error}; nothing was returned."
        ) from error


def declared(defaults: Mapping[str, bytes], path: str, type: Any) -> Any:
    """What `path` is declared to be read as while it is absent, a new object each time; unset if nothing is."""
    body = defaults.get(path)
    return msgspec.UNSET if body is None else typed(path, canonical.decode(body), type)


def _name(type: Any) -> str:
    return getattr(type, "__name__", None) or str(type)
