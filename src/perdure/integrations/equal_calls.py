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

__all__ = ["EqualCallQueue"]

_inside: ContextVar[frozenset[str]] = ContextVar("perdure_equal_calls", default=frozenset())


class _Turn(Future[None]):
    """The turn of one call; it is done when the call and all before it have ended."""

    def __init__(self, *, is_awaited: bool) -> None:
        super().__init__()
        self.is_awaited = is_awaited
        self.before: _Turn | None = None


class EqualCallQueue:
    """The calls under way, by a key that equal calls share."""

    def __init__(self) -> None:
        """Start with no call under way."""
        self.after_fork_in_child()
        renew_in_child(self)

    def after_fork_in_child(self) -> None:
        """Start with no call under way: the parent alone makes those that it had begun."""
        self._last: dict[str, _Turn] = {}
        self._lock = Lock()

    @contextmanager
    def turn(self, key: str | None) -> Generator[None]:
        """Wait for the equal calls that were there before, and let later ones wait for this one; None: none are equal."""
        own = _Turn(is_awaited=False)
        if key is None or not self._enter(key, own):
            yield
            return
        try:
            if own.before is not None and not own.before.is_awaited:
                own.before.result()
            with _within(key):
                yield
        finally:
            self._leave(key, own)

    @asynccontextmanager
    async def aturn(self, key: str | None) -> AsyncGenerator[None]:
        """As `turn`, for an awaited call: it waits for blocking and awaited calls alike."""
        own = _Turn(is_awaited=True)
        if key is None or not self._enter(key, own):
            yield
            return
        try:
            if own.before is not None:
                # Shielded: the turn before is not this call's to cancel.
                await asyncio.shield(asyncio.wrap_future(own.before))
            with _within(key):
                yield
        finally:
            self._leave(key, own)

    def is_inside(self, key: str | None) -> bool:
        """True if this is called from inside a call of that key."""
        return key in _inside.get()

    def _enter(self, key: str, own: _Turn) -> bool:
        """Take a place behind the equal calls under way; False if this call could wait for itself."""
        if self.is_inside(key):
            return False
        with self._lock:
            before = own.before = self._last.get(key)
            # A turn ends after all before it, so a call behind an awaited one is awaited too.
            own.is_awaited = own.is_awaited or (before is not None and before.is_awaited)
            self._last[key] = own
            return True

    def _leave(self, key: str, own: _Turn) -> None:
        """End a turn once the one before it has ended: a call that was cancelled while it waited lets nothing overtake."""
        before, own.before = own.before, None

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
