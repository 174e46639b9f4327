"""Ids of actions: UUIDv7, made of the clock and of randomness, growing within a process.

An id is never an order: order comes from parents and versions.  That ids grow only keeps
what is stored by id close together.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock

__all__ = ["Ids"]

_RANDOM_BITS = 74
_RANDOM = (1 << _RANDOM_BITS) - 1
_STEP_BITS = 40
_STEP = (1 << _STEP_BITS) - 1
_LOW_BITS = 62
_LOW = (1 << _LOW_BITS) - 1
_VARIANT = 0b10 << _LOW_BITS
_VERSION = 7 << 12

_lock = Lock()


class Ids:
    """A source of ids: call it for the next one."""

    __slots__ = ("_clock", "_last")

    def __init__(self, clock: Callable[[], int]) -> None:
        """Take the time from `clock`, in µs since 1970."""
        self._clock = clock
        self._last = 0

    def __call__(self) -> str:
        """The next id."""
        noise = int.from_bytes(os.urandom(16), "big")
        fresh = (self._clock() // 1_000 << _RANDOM_BITS) | (noise >> _STEP_BITS) & _RANDOM
        with _lock:
            # Within one ms, and when the clock goes back, a random step: a forked process takes another one.
            number = self._last = max(fresh, self._last + 1 + (noise & _STEP))
        high = number >> _RANDOM_BITS << 16 | _VERSION | number >> _LOW_BITS & 0xFFF
        digits = f"{high << 64 | _VARIANT | number & _LOW:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _renew() -> None:
    global _lock  # noqa: PLW0603  # the parent may have held it at the moment of the fork
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
