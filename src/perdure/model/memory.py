"""Defines items of memory: what is remembered across threads, for one owner.

An item is text with a kind, a scope and a source.  It is named by an id, unique for its owner.  A
reference to it is `mem://<scope>/<owner>/<id>@<commit>`: the commit is one of the owner's memory, so
that a reference names one version for ever.

The map of an owner's memory holds every version of an item under a path of its own, in the order in
which they were written.  A version that a thread wrote names the thread's commit, and counts only
while that commit is reachable; a version that was written directly always counts.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args
from urllib.parse import quote, unquote

import msgspec

from perdure.errors import Corrupt, Invalid
from perdure.model import canonical, names
from perdure.model.digest import Digest, check_digest
from perdure.model.patch import Clear, Patch, Put
from perdure.model.text import well_formed

__all__ = [
    "KINDS",
    "MEMORY",
    "TEXT_BYTES_MAX",
    "TRUSTS",
    "MemoryItem",
    "ItemKind",
    "Reference",
    "Remembered",
    "Remembering",
    "Source",
    "Trust",
    "Version",
    "MemoryChange",
    "check_item",
    "check_item_id",
    "check_scope",
    "decode_item",
    "decode_remembering",
    "decode_version",
    "folded",
    "item_prefix",
    "items_of",
    "parse_memory_reference",
    "parse_version_path",
    "remade",
    "version_path",
]


ItemKind: TypeAlias = Literal["semantic", "episodic", "procedural", "preference"]
Trust: TypeAlias = Literal["system", "user", "model", "tool", "import"]

KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
TRUSTS: tuple[Trust, ...] = get_args(Trust)  # the strongest first
MEMORY = "memory:"  # the prefix of the names of memory spaces
TEXT_BYTES_MAX = 64 * 1024

_ITEMS = "/items/"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_SCOPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
_PATH = re.compile(r"/items/([A-Za-z0-9][A-Za-z0-9._-]{0,127})/([0-9]{12})\.([0-9]{6})\Z")
_REFERENCE = re.compile(r"mem://([^/@]+)/([^/@]+)/([^/@]+)(?:@([0-9a-f]+))?\Z")


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of memory."""

    text: str
    trust: Trust  # the kind of source
    at: int  # µs since 1970, UTC
    kind: ItemKind = "semantic"
    scope: str = "user"
    expires_at: int | None = None  # µs since 1970, UTC; None: it does not expire
    pinned: bool = False  # True: every run of the owner is shown it, whatever the input says

    def says_same(self, other: MemoryItem) -> bool:
        """True if nothing but trust, time, pin and the case and white space of the text differs, and neither expires."""
        if self.expires_at is not None or folded(self.text) != folded(other.text):
            return False
        same = {"text": other.text, "trust": other.trust, "at": other.at, "pinned": other.pinned}
        return msgspec.structs.replace(self, **same) == other

    def is_as_trusted(self, other: MemoryItem) -> bool:
        """True if its source is as strong as that of the other, or stronger, by the order of `TRUSTS`."""
        return TRUSTS.index(self.trust) <= TRUSTS.index(other.trust)


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The commit that wrote an item, with its thread, run, call and agent."""

    space: str  # of the thread: a thread that is begun again under the same id has another
    thread: str
    commit: Digest
    run: str | None = None
    call: str | None = None
    agent: str | None = None


class Version(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of an item, as the map of a memory holds it."""

    item: MemoryItem | None = None  # None: it was forgotten here
    source: Source | None = None  # None: it was written directly
    origin: Source | None = None  # the source of an item that was copied directly


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change that a call makes to memory."""

    id: str
    item: MemoryItem | None = None  # None: it is forgotten


class Remembering(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of memory by one call, as its entry in the ledger holds them."""

    written: tuple[MemoryChange, ...] = ()
    root: Digest | None = None  # of the memory that it read last; None: it read none


class Reference(msgspec.Struct, frozen=True):
    """The parts of `mem://<scope>/<owner>/<id>@<commit>`."""

    scope: str
    owner: str
    id: str
    commit: Digest | None = None  # of the owner's memory; None: as it is now

    def __str__(self) -> str:
        """Return the reference as it is written."""
        at = f"@{self.commit}" if self.commit else ""
        return f"mem://{self.scope}/{quote(self.owner, safe='')}/{self.id}{at}"


class Remembered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item as it is read: its text, and everything that is known of it."""

    id: str
    owner: str
    text: str
    kind: ItemKind
    scope: str
    trust: Trust
    at: int  # µs since 1970, UTC
    reference: str  # mem://<scope>/<owner>/<id>@<commit>
    digest: Digest  # of the version in the map
    expires_at: int | None = None
    source: Source | None = None  # None: it was added directly
    pinned: bool = False  # True: every run of the owner is shown it, whatever the input says


_items = msgspec.json.Decoder(MemoryItem)
_versions = msgspec.json.Decoder(Version)
_rememberings = msgspec.json.Decoder(Remembering)


def remade(text: str) -> str:
    """Return `text` with U+FFFD for each lone surrogate; raises `Invalid` if it is not text."""
    return well_formed(_text(text))


def folded(text: str) -> str:
    """Return `text` so that it is equal to that of a text which differs in case and white space alone."""
    return " ".join(text.split()).casefold()


def check_item(item: MemoryItem) -> MemoryItem:
    """Return `item` if it can be remembered; raises `Invalid`."""
    if not _text(item.text).strip():
        raise Invalid("an item of memory is text, and not empty; nothing was remembered.", code="item_empty")
    canonical.encode(item.text)  # raises for a lone surrogate
    if len(item.text.encode()) > TEXT_BYTES_MAX:
        raise Invalid(
            f"an item of memory has at most {TEXT_BYTES_MAX:,} bytes in UTF-8; nothing was remembered.",
            code="item_too_large",
            advice="Keep bulky content as an artifact, and remember what it is.",
            limit=TEXT_BYTES_MAX,
        )
    _check_choice("kind", item.kind, KINDS)
    _check_choice("trust", item.trust, TRUSTS)
    check_scope(item.scope)
    if item.expires_at is not None and (type(item.expires_at) is not int or item.expires_at <= 0):
        raise Invalid(
            f"expires_at is µs since 1970, or None, not {item.expires_at!r}; nothing was remembered.",
            code="expiry_invalid",
        )
    if type(item.pinned) is not bool:
        raise Invalid(
            f"pinned is True or False, not {item.pinned!r}; nothing was remembered.", code="pinned_invalid"
        )
    return item


def _text(text: str) -> str:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"an item of memory is text, not {text!r}; nothing was remembered.", code="item_not_text"
        )
    return text


def check_item_id(id: str) -> str:
    """Return `id` if an item can have it; raises `Invalid`."""
    if not isinstance(id, str) or not _ID.match(id):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{ascii(id)[:100]} cannot be the id of an item: use up to 128 letters, digits, '.', '_' and '-', the "
            "first a letter or a digit; nothing was done.",
            code="item_id_invalid",
        )
    return id


def check_scope(scope: str) -> str:
    """Return `scope` if an item can have it; raises `Invalid`."""
    if not isinstance(scope, str) or not _SCOPE.match(scope):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{ascii(scope)[:100]} cannot be a scope: use up to 63 of a-z, 0-9, '.', '_' and '-', such as 'user' or "
            "'project'; nothing was done.",
            code="scope_invalid",
        )
    return scope


def item_prefix(id: str) -> str:
    """Return the prefix of the versions of an item in the map."""
    return f"{_ITEMS}{id}/"


def version_path(id: str, depth: int, place: int) -> str:
    """Return the path of a version that the commit of that depth writes; paths sort by depth."""
    return f"{_ITEMS}{id}/{depth:012}.{place:06}"


def parse_version_path(path: str) -> tuple[str, int]:
    """Return the id of the item at `path`, and the depth of the commit that wrote the version; raises `Corrupt`."""
    found = _PATH.match(path)
    if found is None:
        raise Corrupt(
            f"{path!a} is not the path of an item of memory.",
            code="item_path_invalid",
            advice="Run `perdure verify`.",
            path=path,
        )
    return found[1], int(found[2])


def items_of(patch: Patch) -> list[str]:
    """Return the ids of the items that a patch writes or removes, each once."""
    found: list[str] = []
    for op in patch.ops:
        match op:
            case Put(path=path):
                found.append(parse_version_path(path)[0])
            case Clear(prefix=prefix):
                found.append(prefix.removesuffix("/").rpartition("/")[2])
            case _:
                continue
    return list(dict.fromkeys(found))


def parse_memory_reference(text: str) -> Reference:
    """Return the parts of a reference; raises `Invalid` if it is none."""
    found = _REFERENCE.match(text) if isinstance(text, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if found is None:
        raise Invalid(
            f"{ascii(text)[:120]} is not a reference of the form mem://<scope>/<owner>/<id>@<commit>; nothing was "
            "looked up.",
            code="reference_invalid",
            reference=text,
        )
    owner = names.check_id("owner", unquote(found[2]))
    commit = check_digest(found[4]) if found[4] else None
    return Reference(check_scope(found[1]), owner, check_item_id(found[3]), commit)


def decode_item(body: bytes) -> MemoryItem:
    """Return the item that a body holds; raises `Corrupt`."""
    return canonical.decode_struct(_items, body, "item of memory")


def decode_version(body: bytes) -> Version:
    """Return the version that a value of the map holds; raises `Corrupt`."""
    return canonical.decode_struct(_versions, body, "item of memory")


def decode_remembering(body: bytes) -> Remembering:
    """Return the changes of memory by one call; raises `Corrupt`."""
    return canonical.decode_struct(_rememberings, body, "item of memory")


def _check_choice(what: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise Invalid(
            f"{what} is one of {', '.join(choices)}, not {given!r}; nothing was remembered.",
            code="choice_invalid",
            what=what,
            choices=choices,
        )
