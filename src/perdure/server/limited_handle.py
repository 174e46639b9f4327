"""The awaitable handle of a thread with the limits of `perdure.server.limited`.

A method of `aio.Thread` that calls the one of the same name is limited by the thread that it calls.  Those that run on the
event loop go past it, so they are checked here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from perdure import aio
from perdure.aio.proxy import begins_first
from perdure.model.call import CallRecord
from perdure.model.run import RunRecord
from perdure.runtime.events import Happening
from perdure.runtime.session.result import Result
from perdure.server.limited import LimitedThread, limited
from perdure.server.routing import HttpCall
from perdure.store.thread import Thread

__all__ = ["LimitedHandle", "awaitable", "opened"]


def awaitable(store: aio.Store, thread: Thread) -> aio.Thread:
    """Return the awaitable handle of a thread, with the same limits."""
    kind = LimitedHandle if isinstance(thread, LimitedThread) else aio.Thread
    return kind(store.tool_threads, thread)


async def opened(call: HttpCall, timeline: str) -> aio.Thread:
    """Open the thread of the path, for reading on the event loop, perhaps for long."""
    thread = await call.server.store.off_loop(
        lambda: limited(call.thread(timeline), call.access, may_be_handed_off=True)
    )
    return awaitable(call.server.store, thread)


class LimitedHandle(aio.Thread):
    """The awaitable twin of a `LimitedThread`: what does not call a method of it is checked here."""

    _held: LimitedThread

    @begins_first
    async def follow(
        self, after: str | None = None, *, wait: bool = False
    ) -> AsyncGenerator[Happening | None]:
        """Yield the events that are seen."""
        await self.off_loop(lambda: self._held.check_cursor(after))
        happenings = super().follow(after, wait=wait)
        async with aclosing(happenings):
            await happenings.begin()
            yield None
            async for each in happenings:
                if await self.off_loop(partial(self._held.sees_event, each)):
                    yield each

    async def wait(self, run: str, seconds: float | None = None) -> Result:
        """Wait for a run that is seen."""
        await self.off_loop(lambda: self._held.find_run(run))
        return await super().wait(run, seconds)

    async def resume(self, run: str | None = None, *, retry: bool = False) -> Result:
        """Resume a run whose timeline is seen."""
        await self.off_loop(lambda: self._held.check_own_run(run))
        return await super().resume(run, retry=retry)

    @begins_first
    async def resume_stream(
        self, run: str | None = None, *, retry: bool = False
    ) -> AsyncGenerator[Happening | None]:
        """Resume a run whose timeline is seen, and yield its events."""
        await self.off_loop(lambda: self._held.check_own_run(run))
        async with aclosing(super().resume_stream(run, retry=retry)) as happenings:
            async for each in happenings:
                yield each

    async def cancel(
        self, run: str | None = None, *, why: str = "cancelled", by: str | None = None
    ) -> RunRecord:
        """Cancel a run whose timeline is seen."""
        await self.off_loop(lambda: self._held.check_own_run(run))
        return await super().cancel(run, why=why, by=by)

    async def reconcile(self, call: str, *, by: str | None = None) -> CallRecord:
        """Ask the tool of a call whose timeline is seen."""
        await self.off_loop(lambda: self._held.check_own_call(call))
        return await super().reconcile(call, by=by)
