"""Stores and reads the values of state paths, and converts them to the types that a program asks for.

A value is a JSON document or bytes with a media type.  A value that is larger than the limit
is stored as an artifact: the map then names the artifact, and reading it is no different.  A long
list is stored by element (see `perdure.model.lists`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Corrupt, Invalid, NotFound
from perdure.history import artifacts
from perdure.history.space import Space
from perdure.history.tree import Entry
from perdure.model import canonical, lists
from perdure.model.artifact import check_media_type
from perdure.model.canonical import Json, prepared
from perdure.model.digest import Digest, Kind, Object
from perdure.model.lists import Fetch, StoredList
from perdure.model.patch import JSON_TYPE, Stored

__all__ = [
    "Given",
    "StoredValue",
    "Value",
    "append",
    "decode",
    "keep",
    "keep_json",
    "read",
    "read_bytes",
    "read_json",
    "read_many",
    "declared",
    "typed",
]


Value: TypeAlias = "Json | bytes"
Given: TypeAlias = "Mapping[str, Given] | Sequence[Given] | str | float | bool | bytes | None"
"""What type checkers accept as a value; tuples and other collections are refused when they are written."""

BYTES_TYPE = "application/octet-stream"

_Form: TypeAlias = Literal["json", "bytes"]

_IN_PARTS = (Kind.ARTIFACT, Kind.LIST)
_ALL_STORED: Mapping[Digest, Object] = MappingProxyType({})


class StoredValue(msgspec.Struct, frozen=True, gc=False):
    """A value by reference, and what the write that uses it must carry."""

    stored: Stored
    objects: tuple[Object, ...]
    cells: tuple[CellWrite, ...] = ()
    body: bytes | None = None  # None: it is in the store


def keep(
    space: Space,
    value: object,
    media_type: str | None,
    *,
    base: Digest | None,
    own: Mapping[Digest, Object] = _ALL_STORED,
) -> StoredValue:
    """Return the reference by which the map names `value`, and the objects that hold it.

    `base` is the value that it replaces, which an engine may store it as a difference to; None
    if there is none.  What a long list shares with `base` is not among the objects.  `own` are objects that the same write
    adds.  Raises `Invalid` for what is neither JSON nor bytes.
    """
    if isinstance(value, bytes | bytearray):
        kind = BYTES_TYPE if media_type is None else check_media_type(media_type)
        return _keep(space, bytes(value), "bytes", kind, base)
    if media_type not in (None, JSON_TYPE):
        raise Invalid(
            f"a JSON document has the media type {JSON_TYPE}, not {media_type!r}; nothing was written.",
            code="media_type_not_json",
            advice="Give bytes to choose another.",
            media_type=media_type,
        )
    return keep_json(space, canonical.encode(value), base=base, own=own)


def keep_json(
    space: Space, body: bytes, *, base: Digest | None, own: Mapping[Digest, Object] = _ALL_STORED
) -> StoredValue:
    """Do what `keep` does, with the canonical bytes of a JSON document."""
    if lists.LIST_BYTES_MIN <= len(body) <= space.limits.artifact_bytes_max:
        built = lists.build(body)
        if built is not None:
            return _keep_list(space, built, body, base, own)
    return _keep(space, body, "json", JSON_TYPE, base)


def append(
    space: Space, entry: Entry, item: bytes, *, own: Mapping[Digest, Object] = _ALL_STORED
) -> StoredValue | None:
    """Return the list that `entry` names with one more element, given in canonical bytes, from its last nodes alone.

    Its objects are those that the list without the element does not have.  `own` are objects that may not be stored yet.
    None: it is no list that is stored by element, or will be none.
    """
    if entry.form != "json" or not lists.LIST_BYTES_MIN <= entry.size <= space.limits.artifact_bytes_max:
        return None
    fetch = _fetching_ends(space, own)
    found = fetch((entry.value,))[0]
    longer = lists.append(fetch, found, item) if found.kind is Kind.LIST else None
    if longer is None or longer.json_bytes > space.limits.artifact_bytes_max:
        return None
    objects = tuple(longer.objects.values())
    space.cache.put_list_ends(objects)
    return StoredValue(_stored_list(longer), objects)


def read(space: Space, entry: Entry) -> Value:
    """Return the value that the map holds; raises `Forgotten` or `Corrupt`."""
    return decode(entry.form, read_bytes(space, entry.value))


def read_many(space: Space, entries: Sequence[Entry]) -> list[Value]:
    """Return the values of these entries, read together; raises as `read` does."""
    wanted = list(dict.fromkeys([entry.value for entry in entries]))
    found = {one.digest: one for one in space.objects(wanted)}
    return [
        read(space, entry)
        if found[entry.value].kind in _IN_PARTS
        else decode(entry.form, found[entry.value].body)
        for entry in entries
    ]


def read_json(space: Space, digest: Digest, *, own: Mapping[Digest, Object] = _ALL_STORED) -> Json:
    """Return the JSON document of that digest."""
    return canonical.decode(read_bytes(space, digest, own=own))


def read_bytes(space: Space, digest: Digest, *, own: Mapping[Digest, Object] = _ALL_STORED) -> bytes:
    """Return the bytes of a value, whether it is an object, an artifact or a list by element.

    `own` are objects that may not be stored yet.
    """
    fetch = _fetching(space, own)
    found = fetch((digest,))[0]
    if found.kind is Kind.LIST:
        return lists.read(fetch, found)
    return b"".join(artifacts.get(space, digest)) if found.kind is Kind.ARTIFACT else found.body


def decode(form: _Form, body: bytes) -> Value:
    """Return the value that these bytes of that form hold."""
    return canonical.decode(body) if form == "json" else body


def _keep(space: Space, body: bytes, form: _Form, media_type: str, base: Digest | None) -> StoredValue:
    if len(body) > space.limits.value_bytes_max:
        return _as_artifact(space, body, form, media_type)
    value = Object.of(Kind.VALUE, body, base=base)
    return StoredValue(Stored(value.digest, len(body), form, media_type), (value,), body=body)


def _keep_list(
    space: Space, built: StoredList, body: bytes, base: Digest | None, own: Mapping[Digest, Object]
) -> StoredValue:
    objects = _without(space, built, base, own)
    cells: tuple[CellWrite, ...] = ()
    if sum([len(each.body) for each in objects]) > space.limits.value_bytes_max:
        objects, cells = artifacts.stage_objects(space, objects)
    return StoredValue(_stored_list(built), objects, cells, body)


def _without(
    space: Space, built: StoredList, base: Digest | None, own: Mapping[Digest, Object]
) -> tuple[Object, ...]:
    """Return the objects of a list that the value `base` does not have: all of them if that value cannot be read."""
    if base is not None:
        fetch = _fetching(space, own)
        try:
            old = fetch((base,))[0]
            if old.kind is Kind.LIST:
                return lists.new_objects(fetch, built, old)
        except (NotFound, Corrupt):
            pass
    return tuple(built.objects.values())


def _stored_list(built: StoredList) -> Stored:
    return Stored(built.top.digest, built.json_bytes, "json", JSON_TYPE)


def _fetching(space: Space, own: Mapping[Digest, Object]) -> Fetch:
    """Return what reads objects, of `own` and of the space."""
    if not own:
        return space.objects

    def fetch(digests: Sequence[Digest]) -> Sequence[Object]:
        stored = [digest for digest in digests if digest not in own]
        found = {each.digest: each for each in space.objects(stored)}
        return [own[digest] if digest in own else found[digest] for digest in digests]

    return fetch


def _fetching_ends(space: Space, own: Mapping[Digest, Object]) -> Fetch:
    """Return what reads one object: of the ends of lists that this process made longer, of `own`, else of the space."""
    ends = space.cache.list_ends

    def fetch(digests: Sequence[Digest]) -> Sequence[Object]:
        found = ends.get(digests[0]) or own.get(digests[0])
        return space.objects(digests) if found is None else (found,)

    return fetch


def _as_artifact(space: Space, body: bytes, form: _Form, media_type: str) -> StoredValue:
    staged = artifacts.stage(space, (body,), media_type=media_type)
    stored = Stored(staged.digest, len(body), form, media_type)
    return StoredValue(stored, staged.objects, staged.cells, body)


def typed(path: str, value: Value, type: Any) -> Any:
    """Return `value` as a `type`; None: unconverted.  Raises `Invalid`, naming the path, if it is not one."""
    if type is None or (isinstance(value, bytes) and type is bytes):
        return value
    if isinstance(value, bytes) or type is bytes:
        raise _other_type(
            path,
            type,
            f"holds {'bytes' if isinstance(value, bytes) else 'a JSON document'}, not {_name(type)}",
            "Ask for it without a type, or as what it is.",
        )
    try:
        return msgspec.convert(value, prepared(type))
    except msgspec.ValidationError as error:
        raise _other_type(
            path,
            type,
            f"does not hold {_name(type)}: {error}",
            "Ask for it without a type, or put what fits.",
        ) from error
    except TypeError as error:
        raise Invalid(
            f"{path} cannot be asked for as {_name(type)}: {error}; nothing was returned.",
            code="type_unsupported",
            path=path,
            type=_name(type),
        ) from error


def declared(defaults: Mapping[str, bytes], path: str, type: Any) -> Any:
    """Return a new copy of the declared default of `path` as a `type`; `UNSET` if none is declared."""
    body = defaults.get(path)
    return msgspec.UNSET if body is None else typed(path, canonical.decode(body), type)


def _other_type(path: str, type: Any, what: str, advice: str) -> Invalid:
    return Invalid(
        f"{path} {what}; nothing was returned.",
        code="value_has_other_type",
        advice=advice,
        path=path,
        type=_name(type),
    )


def _name(type: Any) -> str:
    return getattr(type, "__name__", None) or str(type)
