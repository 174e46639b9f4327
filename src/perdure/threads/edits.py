"""Edits: what a change may do to a map, and what it sees of it.

Reading sees the block's own writes.  On the map that the block is about it counts as a
declared read, so that a rebase knows what the block relied on.  An edit that does not fit raises and leaves everything as it was.
A write of one value returns the digest of the value that the path then holds; in a block whose writes form a
chain, every write returns the digest of the commit that it became.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from msgspec import UNSET

from perdure.errors import Invalid, NotFound
from perdure.history.documents import check_place
from perdure.history.patching import Ops
from perdure.history.reading import declared, typed
from perdure.history.touched import Touched
from perdure.history.values import Given
from perdure.model.digest import Digest
from perdure.model.names import KERNEL_PREFIXES, reserved
from perdure.model.patch import Verb
from perdure.threads.loops import blocking

__all__ = ["Edits"]

_T = TypeVar("_T")
_Place = Sequence[str | int]


@blocking
class Edits:
    """A map under change."""

    _ops: Ops | None = None  # None: not begun, or over
    _defaults: Mapping[str, bytes] = {}
    _reads: Touched | None = None  # what was looked at; None: nobody asks

    def __init__(self, *, by_hand: bool) -> None:
        """Begin.  What is done `by_hand` cannot touch the paths that belong to Perdure."""
        self._by_hand = by_hand

    @overload
    def get(self, path: str, *, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, *, type: type[_T], default: Any = ...) -> _T: ...
    def get(self, path: str, *, type: Any = None, default: Any = UNSET) -> Any:
        """The value at `path`, with the block's own writes; `default` if there is none, else `NotFound`."""
        ops = self._open()
        found = ops.entry(path)
        if self._reads is not None:
            self._reads.paths.add(path)
        if found is not None:
            return typed(path, ops.value(path), type)
        if default is UNSET:
            default = declared(self._defaults, path, type)
        if default is UNSET:
            raise NotFound(f"there is nothing at {path}. See what there is with paths(), or give a default.")
        return default

    def paths(self, prefix: str = "/") -> list[str]:
        """The paths that `prefix` covers, sorted, with the block's own writes."""
        found = self._open().paths(prefix)
        if self._reads is not None:
            self._reads.prefixes.add(prefix)
        return found

    def put(self, path: str, value: Given, *, media_type: str | None = None) -> Digest:
        """Let `path` hold a JSON document, or bytes with a media type; the digest of the value."""
        value_digest = self._writing(path).put(path, value, media_type=media_type)
        return self._link() or value_digest

    def delete(self, path: str) -> Digest | None:
        """Let `path` hold nothing; raises `NotFound` if that is so already."""
        self._writing(path).delete(path)
        return self._link()

    def clear(self, prefix: str) -> Digest | None:
        """Let `prefix` and everything below it hold nothing; '/' is everything but what belongs to Perdure."""
        ops = self._writing(prefix)
        if self._by_hand and prefix == "/" and any(ops.paths(own) for own in KERNEL_PREFIXES):
            ops.replace({})
        else:
            ops.clear(prefix)
        return self._link()

    def replace(self, entries: Mapping[str, Given], *, keep: Sequence[str] = ()) -> Digest | None:
        """Let the map hold `entries` and nothing else; what is under `keep` stays."""
        self._open().replace(entries, keep=keep)
        return self._link()

    def set(self, path: str, value: Given, *, at: _Place) -> Digest:
        """Set a key of an object, or an item of a list, in the document at `path`."""
        return self._edit(path, "set", at, value)

    def unset(self, path: str, *, at: _Place) -> Digest:
        """Take a key or an item out of the document at `path`."""
        return self._edit(path, "unset", at, None)

    def append(self, path: str, value: Given, *, at: _Place = ()) -> Digest:
        """Add an item to the end of a list in the document at `path`."""
        return self._edit(path, "append", at, value)

    def insert(self, path: str, value: Given, *, at: _Place) -> Digest:
        """Put an item into a list in the document at `path`, before the index that `at` ends in."""
        return self._edit(path, "insert", at, value)

    def remove(self, path: str, value: Given, *, at: _Place = ()) -> Digest:
        """Take the first item that equals `value` out of a list in the document at `path`."""
        return self._edit(path, "remove", at, value)

    def merge(self, path: str, value: Mapping[str, Given], *, at: _Place = ()) -> Digest:
        """Set several keys of an object in the document at `path`."""
        return self._edit(path, "merge", at, value)

    def increment(self, path: str, by: float = 1, *, at: _Place = ()) -> Digest:
        """Add to a number in the document at `path`."""
        return self._edit(path, "increment", at, by)

    def _edit(self, path: str, verb: Verb, at: _Place, argument: object) -> Digest:
        value_digest = self._writing(path).edit(path, verb, check_place(at), argument)
        return self._link() or value_digest

    def _link(self) -> Digest | None:
        """Make what was just written a commit of its own, where writes form a chain; None: they do not."""
        return None

    def _writing(self, path: str) -> Ops:
        """The ops, to write to `path`; raises `Invalid` if that is not for everybody."""
        if self._by_hand and reserved(path):
            raise Invalid(
                f"{path} is under a prefix that is reserved for runs ({', '.join(KERNEL_PREFIXES)}); nothing was "
                "written. Choose another path."
            )
        return self._open()

    def _open(self) -> Ops:
        if self._ops is None:
            raise Invalid("this change is not open; nothing was done. Use it inside its `with` block.")
        return self._ops
