"""Memory: what is kept across threads, for one owner.

An item is words with a kind, a scope and the one who said it.  It is named by an id, unique for its
owner, and written `mem://<scope>/<owner>/<id>@<commit>` where it is referred to: the commit is one of
the owner's memory, so that a reference names one version for ever.

The map of an owner's memory holds every version of an item under a path of its own, in the order in
which they came.  A version that a thread wrote names its commit there, and counts only while
that commit can be reached; one that was written by hand stands by itself.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args
from urllib.parse import quote, unquote

import msgspec

from perdure.errors import Corrupt, Invalid
from perdure.model import canonical, names
from perdure.model.digest import Digest, check_digest
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
    "item_prefix",
    "parse_memory_reference",
    "parse_version_path",
    "remade",
    "version_path",
]


ItemKind: TypeAlias = Literal["semantic", "episodic", "procedural", "preference"]
Trust: TypeAlias = Literal["system", "user", "model", "tool", "import"]

KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
TRUSTS: tuple[Trust, ...] = get_args(Trust)
MEMORY = "memory:"  # what the names of the spaces of memory begin with
TEXT_BYTES_MAX = 64 * 1024

_ITEMS = "/items/"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_SCOPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
_PATH = re.compile(r"/items/([A-Za-z0-9][A-Za-z0-9._-]{0,127})/([0-9]{12})\.([0-9]{6})\Z")
_REFERENCE = re.compile(r"mem://([^/@]+)/([^/@]+)/([^/@]+)(?:@([0-9a-f]+))?\Z")


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is remembered."""

    text: str
    trust: Trust  # who said it
    at: int  # µs since 1970, UTC
    kind: ItemKind = "semantic"
    scope: str = "user"
    expires_at: int | None = None  # µs since 1970, UTC; None: it is kept until it is forgotten


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an item comes from: the commit that wrote it, and what that belongs to."""

    space: str  # of the thread: one that is begun again under the same id is another
    thread: str
    commit: Digest
    run: str | None = None
    call: str | None = None
    agent: str | None = None


class Version(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the map of a memory holds at one path."""

    item: MemoryItem | None = None  # None: it was forgotten here
    source: Source | None = None  # None: it stands by itself
    origin: Source | None = None  # where something that was kept by hand came from


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change that a call makes to memory."""

    id: str
    item: MemoryItem | None = None  # None: it is forgotten


class Remembering(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call did to memory, as its entry in the ledger holds it."""

    written: tuple[MemoryChange, ...] = ()
    root: Digest | None = None  # of the memory that it looked at last; None: it did not look


class Reference(msgspec.Struct, frozen=True):
    """What `mem://<scope>/<owner>/<id>@<commit>` names."""

    scope: str
    owner: str
    id: str
    commit: Digest | None = None  # of the owner's memory; None: as it is now

    def __str__(self) -> str:
        """Return the reference as it is written."""
        at = f"@{self.commit}" if self.commit else ""
        return f"mem://{self.scope}/{quote(self.owner, safe='')}/{self.id}{at}"


class Remembered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item as it is read: its words, and everything that is known of it."""

    id: str
    owner: str
    text: str
    kind: ItemKind
    scope: str
    trust: Trust
    at: int  # µs since 1970, UTC
    reference: str  # mem://<scope>/<owner>/<id>@<commit>
    digest: Digest  # of what the map holds
    expires_at: int | None = None
    source: Source | None = None  # None: it was added by hand


_items = msgspec.json.Decoder(MemoryItem)
_versions = msgspec.json.Decoder(Version)
_rememberings = msgspec.json.Decoder(Remembering)


def remade(text: str) -> str:
    """Return `text` with U+FFFD for each lone surrogate: what others said may hold some."""
    return well_formed(_text(text))


def check_item(item: MemoryItem) -> MemoryItem:
    """Return `item` if it can be remembered; raises `Invalid`."""
    if not _text(item.text).strip():
        raise Invalid("an item of memory is text, and not empty; nothing was remembered.")
    if len(canonical.encode(item.text)) > TEXT_BYTES_MAX:
        raise Invalid(
            f"an item of memory has at most {TEXT_BYTES_MAX:,} bytes; nothing was remembered. Keep bulky content "
            "as an artifact, and remember what it is."
        )
    _check_choice("kind", item.kind, KINDS)
    _check_choice("trust", item.trust, TRUSTS)
    check_scope(item.scope)
    if item.expires_at is not None and (type(item.expires_at) is not int or item.expires_at <= 0):
        raise Invalid(
            f"expires_at is µs since 1970, or None, not {item.expires_at!r}; nothing was remembered."
        )
    return item


def _text(text: str) -> str:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(f"an item of memory is text, not {text!r}; nothing was remembered.")
    return text


def check_item_id(id: str) -> str:
    """Return `id` if an item can have it; raises `Invalid`."""
    if not isinstance(id, str) or not _ID.match(id):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{ascii(id)[:100]} cannot be the id of an item: use up to 128 letters, digits, '.', '_' and '-', the "
            "first a letter or a digit; nothing was done."
        )
    return id


def check_scope(scope: str) -> str:
    """Return `scope` if an item can have it; raises `Invalid`."""
    if not isinstance(scope, str) or not _SCOPE.match(scope):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{ascii(scope)[:100]} cannot be a scope: use up to 63 of a-z, 0-9, '.', '_' and '-', such as 'user' or "
            "'project'; nothing was done."
        )
    return scope


def item_prefix(id: str) -> str:
    """Return where the versions of an item lie in the map."""
    return f"{_ITEMS}{id}/"


def version_path(id: str, depth: int, place: int) -> str:
    """Return where a version lies that the commit of that depth writes; later ones come after it."""
    return f"{_ITEMS}{id}/{depth:012}.{place:06}"


def parse_version_path(path: str) -> tuple[str, int]:
    """Return the item whose version lies at `path`, and the depth of the commit that wrote it; raises `Corrupt`."""
    found = _PATH.match(path)
    if found is None:
        raise Corrupt(f"{path!a} is no place for an item of memory. Run `perdure verify`.")
    return found[1], int(found[2])


def parse_memory_reference(text: str) -> Reference:
    """Return what a reference names; raises `Invalid` if it is none."""
    found = _REFERENCE.match(text) if isinstance(text, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if found is None:
        raise Invalid(
            f"{ascii(text)[:120]} is not a reference of the form mem://<scope>/<owner>/<id>@<commit>; nothing was "
            "looked up."
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
    """Return what a call did to memory; raises `Corrupt`."""
    return canonical.decode_struct(_rememberings, body, "item of memory")


def _check_choice(what: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise Invalid(f"{what} is one of {', '.join(choices)}, not {given!r}; nothing was remembered.")
