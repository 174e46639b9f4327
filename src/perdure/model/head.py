"""Defines heads: the version and commit of a timeline when it was read."""

from __future__ import annotations

import msgspec

from perdure.model.digest import Digest

__all__ = ["MAIN", "Head"]

MAIN = "main"


class Head(msgspec.Struct, frozen=True, gc=False):
    """The version and commit of a timeline when it was read.

    A head is also the permission to write.  It is good for one move, and stale
    once another writer has moved the timeline first.
    """

    timeline: str
    version: int  # how many times the head has moved, undo included; it never decreases
    commit: Digest | None  # None: nothing committed, or everything undone
