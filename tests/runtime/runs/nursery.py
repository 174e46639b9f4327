"""A nursery: a process without threads that has children one after another, each of which may die.

A forked child begins with everything imported, so a life costs some milliseconds.  What is to
be done is a function of a module, called with arguments that can be pickled.
"""

from __future__ import annotations

import atexit
import os
import pickle
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import msgspec

from perdure.errors import NotFound
from perdure.providers import registry
from tests.crash.processes import Other, Pipe

__all__ = ["Died", "Nursery", "nursery"]


class Died(msgspec.Struct, frozen=True):
    """A child that did not live to say what it came to."""

    signal: int  # 0: it ended by itself, with the error that its words tell
    words: str = ""


class Nursery:
    """Where children are had."""

    def __init__(self, other: Other) -> None:
        """Have them in that process."""
        self._other = other

    def child(self, work: Callable[..., object], *args: object) -> Any:
        """What a child that does `work` comes to, or how it died."""
        self._other.tell((work, args))
        return self._other.answer()

    def lives(self, work: Callable[..., object], *args: object) -> Any:
        """What a child comes to that is not meant to die."""
        came = self.child(work, *args)
        assert not isinstance(came, Died), f"{work.__name__}{args}: {came}"
        return came

    def dies(self, work: Callable[..., object], *args: object) -> None:
        """Have a child that is killed on the way."""
        came = self.child(work, *args)
        assert isinstance(came, Died), f"{work.__name__}{args} came to {came}"
        assert came.signal == 9, f"{work.__name__}{args}: {came.words}"


@contextmanager
def nursery() -> Generator[Nursery]:
    """The nursery of this process; an error in the block ends it, and the next block has another one."""
    other = _other()
    try:
        yield Nursery(other)
    except BaseException:
        _other.cache_clear()
        other.end()
        raise


@cache
def _other() -> Other:
    other = Other(_bear)
    atexit.register(other.end)
    return other


def _bear(pipe: Pipe) -> None:
    with suppress(NotFound):
        registry.target("script:model")  # reads what other packages register, which no child has to do again
    while True:
        try:
            work, args = pipe.recv()
        except EOFError:
            return
        pipe.send(_life(work, args))


def _life(work: Callable[..., object], args: tuple[object, ...]) -> object:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        _live(work, args, write)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        told = file.read()
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return Died(os.WTERMSIG(status))
    return pickle.loads(told)  # noqa: S301  # what our own child wrote


def _live(work: Callable[..., object], args: tuple[object, ...], write: int) -> None:
    try:
        came = work(*args)
    except BaseException:
        came = Died(0, traceback.format_exc())
    with os.fdopen(write, "wb") as file:
        pickle.dump(came, file)
    os._exit(0)
