"""Sight: everything that decides what is found in a memory, as a value.

The same sight and the same question give the same answer, whatever was written, undone or has
expired since.  So whoever builds something out of memory records the sight with it.
"""

from __future__ import annotations

import msgspec

from perdure.model.digest import Digest

__all__ = ["Sight"]


class Sight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A memory as somebody saw it."""

    commit: Digest | None  # of the memory; None: nothing was ever written
    root: Digest  # of its map there
    at: int  # µs since 1970, UTC: what had expired by then is not found
    withdrawn: tuple[str, ...] = ()  # paths of versions that were met and could not be reached, sorted
