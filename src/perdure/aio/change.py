"""The awaitable block of changes, which becomes one commit.

Everything that is asked of a block runs in the order of asking, one at a time, on the store's workers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from threading import Event
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from msgspec import UNSET

from perdure.aio.proxy import AsyncMethod, AsyncProxy
from perdure.engines.contract import Receipt
from perdure.errors import Invalid
from perdure.model.digest import Digest
from perdure.model.head import Head
from perdure.store import change

__all__ = ["Change", "AgentChange"]

_T = TypeVar("_T")
_R = TypeVar("_R")


class _Edits(AsyncProxy):
    """A map under change."""

    paths = AsyncMethod(change.Edits.paths)
    put = AsyncMethod(change.Edits.put)
    delete = AsyncMethod(change.Edits.delete)
    clear = AsyncMethod(change.Edits.clear)
    replace = AsyncMethod(change.Edits.replace)
    set = AsyncMethod(change.Edits.set)
    unset = AsyncMethod(change.Edits.unset)
    append = AsyncMethod(change.Edits.append)
    insert = AsyncMethod(change.Edits.insert)
    remove = AsyncMethod(change.Edits.remove)
    merge = AsyncMethod(change.Edits.merge)
    increment = AsyncMethod(change.Edits.increment)

    @overload
    async def get(self, path: str, default: Any = ...) -> Any: ...
    @overload
    async def get(self, path: str, default: Any = ..., *, type: type[_T]) -> _T: ...
    async def get(self, path: str, default: Any = UNSET, *, type: Any = None) -> Any:
        """Return the value at `path`, with the block's own writes; `default` if there is none, else `NotFound`."""
        return await self.off_loop(lambda: self.target().get(path, type=type, default=default))


class AgentChange(_Edits):
    """The changes that a block makes to the agent's own map."""

    def __init__(self, tool_threads: ThreadPoolExecutor, block: Change) -> None:
        """Change the map of the agent whose thread `block` changes."""
        super().__init__(tool_threads)
        self._block = block

    def target(self) -> change.AgentChange:
        """Return the blocking object."""
        return self._block.target().agent

    def off_loop(self, work: Callable[[], _R]) -> Coroutine[Any, Any, _R]:
        """Do `work` on a worker, in its turn among everything that the block does."""
        return self._block.off_loop(work)


class Change(_Edits):
    """A block of changes that becomes one commit.  Its methods run in the order in which they are called."""

    def __init__(self, tool_threads: ThreadPoolExecutor, make: Callable[[], change.Change]) -> None:
        """Prepare a block; `thread.change` is the way to get one."""
        super().__init__(tool_threads)
        self._make = make
        self._made: change.Change | None = None
        self._last = Event()  # set when what was asked for last is done
        self._last.set()
        self._asked: list[
            Coroutine[Any, Any, Any]
        ] = []  # for; each is to be awaited before the block is left
        self.agent = AgentChange(tool_threads, self)

    say = AsyncMethod(change.Change.say)
    add = AsyncMethod(change.Change.add)
    name = AsyncMethod(change.Change.name)
    retract = AsyncMethod(change.Change.retract)
    retract_all = AsyncMethod(change.Change.retract_all)
    step = AsyncMethod(change.Change.step)

    @property
    def head(self) -> Head | None:
        """Return the head at entry; after the block, the head that it left."""
        return self._made.head if self._made else None

    @property
    def receipt(self) -> Receipt | None:
        """Return the receipt of the commit; None before it, or if there was nothing to write."""
        return self._made.receipt if self._made else None

    @property
    def commits(self) -> tuple[Digest, ...]:
        """Return the commits of a chain so far; of any other block its commit, once it is left."""
        made = self._made
        return made._commits if made else ()  # pyright: ignore[reportPrivateUsage]  # nothing is read from the store

    async def __aenter__(self) -> Self:
        """Read the head."""
        await self.off_loop(self._enter)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, unless the block raised or changed nothing; raises `Invalid` if something was not awaited."""
        forgotten = [each for each in self._asked if getcoroutinestate(each) == CORO_CREATED]
        for each in forgotten:
            each.close()
        self._asked.clear()
        if forgotten and kind is None:
            calls = tuple(each.__qualname__ for each in forgotten)
            unfit = Invalid(
                f"this block did not await what it asked for: {', '.join(calls)}; nothing was written.",
                code="not_awaited",
                advice="Put `await` before each call.",
                count=len(calls),
                calls=calls,
            )
            await self.off_loop(partial(self.target().__exit__, Invalid, unfit, None))
            raise unfit
        await self.off_loop(partial(self.target().__exit__, kind, error, trace))

    def target(self) -> change.Change:
        """Return the blocking object."""
        if self._made is None:
            raise Invalid(
                "this change is not open; nothing was done.",
                code="change_not_open",
                advice="Use it inside its `async with` block.",
            )
        return self._made

    def off_loop(self, work: Callable[[], _R]) -> Coroutine[Any, Any, _R]:
        """Do `work` on a worker, after everything that was asked of this block before."""
        asked = self._work(work)
        self._asked.append(asked)
        return asked

    async def _work(self, work: Callable[[], _R]) -> _R:
        before, done = self._last, Event()
        self._last = done

        def in_turn() -> _R:
            # The crew takes work in the order in which it is handed over, so what is waited for is under way.
            before.wait()
            try:
                return work()
            finally:
                done.set()

        return await super().off_loop(in_turn)

    def _enter(self) -> None:
        self._made = self._made or self._make()
        self._made.__enter__()
