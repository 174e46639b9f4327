"""What the classes of handles share: methods that refuse to block an event loop, and imports that wait for their use.

Every public method of a handle may wait for a disk.  On a thread that runs an event loop the call would stall
everything there, so it raises before it does anything, and the error names the awaitable counterpart.  An iterator
checks at every item.  A loop that only drives a run of the blocking interface may be stalled: tools and hooks that
run there use the blocking interface like any other code.

A handle on a thread has methods that read, write, run and switch.  A program that only reads loads none of the modules
that a run or a switch needs, so a command such as `perdure threads log` starts faster.  Type checkers see the import:

    if TYPE_CHECKING:
        from perdure.runtime.run import control
    else:
        control = deferred("perdure.runtime.run.control")
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import GeneratorType, ModuleType
from typing import Any, TypeVar, cast

from perdure.errors import Invalid
from perdure.runtime.event_loop import may_block

__all__ = [
    "blocking",
    "check_loop",
    "deferred",
]

_C = TypeVar("_C", bound=type)


def blocking(cls: _C) -> _C:
    """Let every public method and property of a class, and its `with` statement, refuse to block an event loop."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name != "__enter__":
            continue
        if isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(_guarded(member.fget, name), doc=member.__doc__))
        elif callable(member) and not isinstance(member, type):
            setattr(cls, name, _guarded(member, name))
    return cls


def check_loop(what: str) -> None:
    """Raise `Invalid` if this thread runs an event loop; `what` names the blocking call, such as `Thread.run`."""
    asyncio = sys.modules.get("asyncio")  # if it is not imported, no loop runs
    # The public get_running_loop raises if there is none, which costs more than this call.
    loop = None if asyncio is None else asyncio.events._get_running_loop()
    if loop is not None and not may_block(loop):
        kind, _, name = what.partition(".")
        instead = (
            f"`async with` on a perdure.aio.{kind}" if name == "__enter__" else f"its twin perdure.aio.{what}"
        )
        raise Invalid(
            f"perdure.{what} would block the event loop that runs on this thread; nothing was done.",
            code="blocks_event_loop",
            advice=f"Use {instead}.",
            call=what,
        )


class _Watched(Iterator[Any]):
    """An iterator that refuses to be read on a thread that runs an event loop."""

    __slots__ = ("_items", "_what")

    def __init__(self, items: Iterator[Any], what: str) -> None:
        self._items, self._what = items, what

    def __next__(self) -> Any:
        check_loop(self._what)
        return next(self._items)


def _guarded(member: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(member)
    def guarded(self: object, *args: object, **options: object) -> Any:
        asyncio = sys.modules.get("asyncio")
        if asyncio is not None and asyncio.events._get_running_loop() is not None:
            check_loop(f"{type(self).__name__}.{name}")
        found = member(self, *args, **options)
        if type(found) is GeneratorType:
            return _Watched(cast("Iterator[Any]", found), f"{type(self).__name__}.{name}")
        return found

    return guarded


class _DeferredModule(ModuleType):
    """Imports the module of its name when an attribute is read, and reads the attribute there."""

    def __getattr__(self, name: str) -> object:
        # Nothing is copied from the module: a test may replace a name in it.
        return getattr(import_module(self.__name__), name)


def deferred(name: str) -> ModuleType:
    """Return a stand-in for the module `name`, which imports it when one of its names is used."""
    return _DeferredModule(name)
