"""Keeps clients open for the next request, one set for each event loop.

Connections belong to the loop that opened them, so a client cannot be used on another one.  It is
closed when its loop shuts down; where a loop is closed without that, its clients are dropped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

from perdure.model.fork_safety import ThreadLock

__all__ = ["held", "settings"]

_C = TypeVar("_C")
_Held = dict[Hashable, tuple[Any, AsyncGenerator[Any]]]

_loops: dict[int, tuple[asyncio.AbstractEventLoop, _Held]] = {}
_guard = ThreadLock()


async def held(key: Hashable, make: Callable[[], _C], close: Callable[[_C], Awaitable[object]]) -> _C:
    """Return the client that goes by `key` on this loop, made if there is none."""
    clients = _of_loop(asyncio.get_running_loop())
    found = clients.get(key)
    if found is None:
        keeper = _kept(make(), close, lambda: clients.pop(key, None))
        found = clients.setdefault(key, (await anext(keeper), keeper))
    return found[0]


def settings(*prefixes: str) -> tuple[tuple[str, str], ...]:
    """Return the environment that an SDK reads, as part of a key: after a change another client is made."""
    return tuple(sorted(each for each in os.environ.items() if each[0].startswith(prefixes)))


def _of_loop(loop: asyncio.AbstractEventLoop) -> _Held:
    with _guard:
        for id_, (other, _) in list(_loops.items()):
            if other.is_closed():
                del _loops[id_]
        return _loops.setdefault(id(loop), (loop, {}))[1]


async def _kept(
    client: _C, close: Callable[[_C], Awaitable[object]], forget: Callable[[], object]
) -> AsyncGenerator[_C]:
    """Yield a generator that holds the client; loops close those that are left when they shut down."""
    try:
        yield client
    finally:
        forget()
        with suppress(Exception):  # no caller is left to raise it to
            await close(client)
