"""Applying ops again where the map has changed since they were meant.

What an op wanted gone may be gone already, and a document may look different: then a document
op is run again on what is there, and where it does not fit any more, what it left in its
author's eyes takes the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from perdure.errors import Invalid, NotFound
from perdure.history.patching import Ops
from perdure.history.space import Space
from perdure.history.touched import Touched
from perdure.history.tree import diff
from perdure.history.values import Kept
from perdure.model import canonical
from perdure.model.digest import Digest
from perdure.model.event import ConflictCovered
from perdure.model.patch import JSON_TYPE, Clear, Delete, Edit, Op, Patch, Put, Replace, Stored

__all__ = ["Source", "covered", "reapply"]

_COVERED_MAX = 500


class Source(msgspec.Struct, frozen=True):
    """Where the values are that the ops name."""

    kept: Callable[[Stored], Kept]  # a value, as it is to be kept
    body: Callable[[Digest], bytes]  # raises `NotFound`


def reapply(ops: Ops, op: Op, source: Source) -> None:
    """Apply one op on top of what `ops` has come to."""
    match op:
        case Put(path, value, size, form, media_type):
            ops.put_stored(path, source.kept(Stored(value, size, form, media_type)))
        case Delete(path):
            if ops.entry(path) is not None:
                ops.delete(path)
        case Clear(prefix):
            ops.clear(prefix)
        case Replace(entries, keep):
            ops.replace_stored({path: source.kept(each) for path, each in entries.items()}, keep=keep)
        case Edit():
            _edit_again(ops, op, source)


def covered(space: Space, seen: Digest, now: Digest, patch: Patch) -> Iterator[ConflictCovered]:
    """The paths of `patch` that somebody else has changed between the roots `seen` and `now`."""
    if seen == now:
        return
    touched = Touched()
    touched.add_ops(patch.ops)
    changed = (change for change in diff(space.tree(seen), space.tree(now)) if touched.covers(change.path))
    for change in islice(changed, _COVERED_MAX):
        value = change.after.value if change.after else None
        yield ConflictCovered(id=space.ids(), path=change.path, covered=value)


def _edit_again(ops: Ops, op: Edit, source: Source) -> None:
    try:
        argument = None if op.argument is None else canonical.decode(source.body(op.argument))
        ops.edit(op.path, op.verb, op.at, argument)
    except (Invalid, NotFound):
        left = Stored(op.leaves, op.size, "json", JSON_TYPE)
        try:
            ops.put_stored(op.path, source.kept(left))
        except NotFound:
            return  # a document between two ops of one patch, which is not kept; the last one is
