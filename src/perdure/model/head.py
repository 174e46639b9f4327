"""Heads: where a timeline stood when it was read."""

from __future__ import annotations

import msgspec

from perdure.model.digest import Digest

__all__ = ["MAIN", "Head"]

MAIN = "main"


class Head(msgspec.Struct, frozen=True, gc=False):
    """Where a timeline stood when it was read.

    A head is also the permission to write.  It is good for one move, and stale
    once anyone else has made that move first.
    """

    timeline: str
    version: int  # how often the head has moved, undo included; it never goes down
    commit: Digest | None  # None: nothing committed, or everything undone
