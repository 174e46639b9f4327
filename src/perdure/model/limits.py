"""Defines the size limits of values, artifacts and writes.  All can be set lower when a store is opened."""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]

_MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one value, artifact or write may hold at the most."""

    value_bytes_max: int = _MIB  # a larger value is stored as an artifact
    artifact_bytes_max: int = 100 * _MIB
    write_events_max: int = 1_000
    write_bytes_max: int = 8 * _MIB
