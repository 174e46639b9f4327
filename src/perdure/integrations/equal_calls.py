"""Lets the equal calls of one process take turns, whichever threads and event loops make them.

A model may ask for two equal payments in one answer, and frameworks make the calls of an answer at once.  While the first
one is under way its outcome is unknown, so the ledger could only refuse the second.  Here the second one waits until the
first is settled, and the ledger then knows that the model wants both.

A call that could wait for itself does not wait, and the ledger decides: one that is made inside an equal call, and a blocking
one after an awaited one, whose event loop it may be blocking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from threading import Lock

from perdure.model.fork_safety import renew_in_child

__all__ = ["EqualCalls"]

_inside: ContextVar[frozenset[str]] = ContextVar("perdure_equal_calls", default=frozenset())


class _Turn(Future[None]):
    """The turn of one call; it is done when the call and all before it have ended."""

    is_awaited = False


class EqualCalls:
    """The calls under way, by a key that equal calls share."""

    def __init__(self) -> None:
        """Begin with none."""
        self.after_fork_in_child()
        renew_in_child(self)

    def after_fork_in_child(self) -> None:
        """Begin with none: what is under way runs in the parent alone."""
        self._last: dict[str, _Turn] = {}
        self._lock = Lock()

    @contextmanager
    def turn(self, key: str) -> Generator[None]:
        """Wait for the equal calls that were there before, and let later ones wait for this one."""
        if key in _inside.get():
            yield
            return
        before, own = self._enter(key, _Turn())
        try:
            if before is not None and not before.is_awaited:
                before.result()
            with _within(key):
                yield
        finally:
            self._leave(key, before, own)

    @asynccontextmanager
    async def aturn(self, key: str) -> AsyncGenerator[None]:
        """Await `turn`."""
        if key in _inside.get():
            yield
            return
        turn = _Turn()
        turn.is_awaited = True
        before, own = self._enter(key, turn)
        try:
            if before is not None:
                # Shielded: the turn before is not this call's to cancel.
                await asyncio.shield(asyncio.wrap_future(before))
            with _within(key):
                yield
        finally:
            self._leave(key, before, own)

    def _enter(self, key: str, own: _Turn) -> tuple[_Turn | None, _Turn]:
        with self._lock:
            before, self._last[key] = self._last.get(key), own
        return before, own

    def _leave(self, key: str, before: _Turn | None, own: _Turn) -> None:
        """End a turn once the one before it has ended: a call that was cancelled while it waited lets nothing overtake."""

        def end(_: object = None) -> None:
            with self._lock:
                if self._last.get(key) is own:
                    del self._last[key]
            own.set_result(None)

        if before is None:
            end()
        else:
            before.add_done_callback(end)


@contextmanager
def _within(key: str) -> Generator[None]:
    token = _inside.set(_inside.get() | {key})
    try:
        yield
    finally:
        _inside.reset(token)
