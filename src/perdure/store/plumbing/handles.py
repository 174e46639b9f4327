"""What the handles on a store share: its resources, methods that refuse to block an event loop, and late imports.

`StoreResources` holds the engine of an open store, its clock, ids, limits, models and caches, and opens its spaces.
All spaces of the store share one cache of nodes.  Ids of actions are UUIDv7, made of the clock and of randomness;
within a process each is greater than the one before.  Ids define no order: order comes from parents and versions.
Growing ids only keep what is stored by id close together.

Every public method of a handle is `blocking`: it may wait for a disk.  On a thread that runs an event loop the call
would stall everything there, so it raises before it does anything, and the error names the awaitable counterpart.  An
iterator checks at every item.  A loop that only drives a run of the blocking interface may be stalled: tools and hooks
that run there use the blocking interface like any other code.

A handle on a thread has methods that read, write, run and switch.  A program that only reads loads none of the modules
that a run or a switch needs, so a command such as `perdure threads log` starts faster.  Type checkers see the import:

    if TYPE_CHECKING:
        from perdure.runtime.run import control
    else:
        control = deferred("perdure.runtime.run.control")
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import GeneratorType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from perdure.engines import registry
from perdure.engines.contract import Answer, Engine, Fence, Question, Receipt, Write
from perdure.errors import Invalid
from perdure.history.space import AGENTS, ALIVE, STORE, CommitCaches, Space, label_of
from perdure.history.tree import NodeCache
from perdure.model import names
from perdure.model.limits import Limits


class _DeferredModule(ModuleType):
    """Imports the module of its name when an attribute is read, and reads the attribute there.

    Once it is imported, the module itself takes the place of the stand-in where that was made.
    """

    def __init__(self, name: str, users: dict[str, Any]) -> None:
        """Stand in for the module `name` among the names `users`."""
        super().__init__(name)
        self.__dict__["users"] = users

    def __getattr__(self, name: str) -> object:
        # Nothing is copied from the module: a test may replace a name in it.
        module = sys.modules.get(self.__name__)
        # Another thread may be importing it now.
        if module is None or getattr(module.__spec__, "_initializing", False):
            module = import_module(self.__name__)
        else:
            users: dict[str, Any] = self.__dict__["users"]
            for alias in [alias for alias, each in users.items() if each is self]:
                users[alias] = module
        return getattr(module, name)


def deferred(name: str) -> ModuleType:
    """Return a stand-in for the module `name`, which imports it when one of its names is used."""
    return _DeferredModule(name, sys._getframe(1).f_globals)  # pyright: ignore[reportPrivateUsage]


if TYPE_CHECKING:
    from perdure.engines.news import LiveChannel
    from perdure.engines.search_contract import SearchIndex
    from perdure.memory import owner_memory
    from perdure.memory.embedding import Embedder
    from perdure.memory.owner_memory import Memories
    from perdure.providers import catalog
    from perdure.providers.catalog import Catalog
    from perdure.runtime import event_loop
    from perdure.runtime.session.environment import StoreRuntime
else:
    catalog = deferred("perdure.providers.catalog")
    event_loop = deferred("perdure.runtime.event_loop")  # imports asyncio
    owner_memory = deferred("perdure.memory.owner_memory")

__all__ = ["StoreResources", "beside_loop", "blocking", "deferred", "guarded", "Ids", "system_clock"]

_C = TypeVar("_C", bound=type)
_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


def blocking(cls: _C) -> _C:
    """Let every public method and property of a class, and its `with` statement, spare an event loop: `beside_loop`."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name != "__enter__":
            continue
        if isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(_guarded(member.fget, name), doc=member.__doc__))
        elif callable(member) and not isinstance(member, type):
            setattr(cls, name, _guarded(member, name))
    return cls


def beside_loop(what: str, work: Callable[[], _T], *, lets_wait: bool = False) -> _T:
    """Call `work`, which blocks; `what` names it, such as `Thread.run`.

    If this thread runs an event loop that waits for blocking calls, `work` is called on another thread; any other loop
    would be stalled: raises `Invalid`.  `lets_wait` makes it a loop that waits, from now on.
    """
    asyncio = sys.modules.get("asyncio")  # if it is not imported, no loop runs
    # The public get_running_loop raises if there is none, which costs more than this call.
    loop = None if asyncio is None else asyncio.events._get_running_loop()
    if loop is None or event_loop.may_block(loop):
        return work()
    if lets_wait:
        event_loop.let_wait(loop)
    if event_loop.may_wait(loop):
        return event_loop.run_beside(work)
    kind, _, name = what.partition(".")
    instead = (
        f"`async with` on a perdure.aio.{kind}" if name == "__enter__" else f"its twin perdure.aio.{what}"
    )
    raise Invalid(
        f"perdure.{what} would block the event loop that runs on this thread; nothing was done.",
        code="blocks_event_loop",
        advice=f"Use {instead}; to let the loop wait instead, open the store with `perdure.open(…, blocking=True)`.",
        call=what,
    )


class _Watched(Iterator[Any]):
    """An iterator that refuses to be read on a thread that runs an event loop."""

    __slots__ = ("_items", "_what")

    def __init__(self, items: Iterator[Any], what: str) -> None:
        self._items, self._what = items, what

    def __repr__(self) -> str:
        return f"<iterator of {self._what}>"

    def __next__(self) -> Any:
        return beside_loop(self._what, self._items.__next__)


def guarded(member: _F) -> _F:
    """Let one method spare an event loop, as `blocking` lets all of a class."""
    return cast("_F", _guarded(member, member.__name__))


def _guarded(member: Callable[..., Any], name: str) -> Callable[..., Any]:
    modules: dict[str, Any] = sys.modules  # at hand: this is called before everything else

    @functools.wraps(member)
    def guarded(self: object, *args: object, **options: object) -> Any:
        if "asyncio" in modules and modules["asyncio"]._get_running_loop() is not None:
            work = functools.partial(member, self, *args, **options)
            found = beside_loop(f"{type(self).__name__}.{name}", work)
        else:
            try:
                found = member(self, *args, **options)
            except TypeError:
                _check_options(f"{type(self).__name__}.{name}()", member, options)
                raise
        if type(found) is GeneratorType:
            return _Watched(cast("Iterator[Any]", found), f"{type(self).__name__}.{name}")
        return found

    return guarded


_TAKES_ANY = 0x08  # of the flags of a function: it has `**options`

# What callers expect an option to be called.
_USUAL_OPTIONS = {"message_id": "'id'", "input_id": "'id'", "idempotency_key": "'id'", "key": "'id'"}


def _check_options(what: str, member: Callable[..., Any], options: Mapping[str, object]) -> None:
    """Raise `TypeError` for an option that a method does not have; it names the one that may be meant."""
    code = getattr(member, "__code__", None)
    if code is None or code.co_flags & _TAKES_ANY:
        return
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    wrong = next((option for option in options if option not in known), None)
    if wrong is not None:
        usual = _USUAL_OPTIONS if "id" in known else {}
        raise TypeError(names.no_such_name(what, wrong, known, usual, what="option")) from None


_lock = Lock()
_noise: list[
    str
] = []  # random ends of ids that are not used yet; reading randomness costs a call of the system
_NOISE_MAX = 64
_NOISE_DIGITS = 15
_COUNT_MAX = 0xFFF


class Ids:
    """A source of ids: call it for the next one.

    An id has the time in ms, its number among those of the same ms, and 60 random bits, so that a forked process, or
    another one, takes others.
    """

    __slots__ = ("_clock", "_count", "_ms", "_prefix")

    def __init__(self, clock: Callable[[], int]) -> None:
        """Take the time from `clock`, in µs since 1970."""
        self._clock = clock
        self._ms = -1  # of the last id, and its number
        self._count = 0
        self._prefix = ""  # what all ids of that ms begin with

    def __call__(self) -> str:
        """The next id."""
        ms = self._clock() // 1_000
        with _lock:
            count = self._count + 1
            if ms > self._ms or count > _COUNT_MAX:
                # Where the clock stands still or goes back, the last ms is used up before the next one begins.
                self._ms = ms = ms if ms > self._ms else self._ms + 1
                digits = f"{ms:012x}"
                self._prefix, count = f"{digits[:8]}-{digits[8:]}-7", 0
            self._count = count
            if not _noise:
                digits = os.urandom(_NOISE_MAX * _NOISE_DIGITS // 2).hex()
                ends = range(_NOISE_DIGITS, len(digits) + 1, _NOISE_DIGITS)
                _noise.extend([f"-8{digits[at - 15 : at - 12]}-{digits[at - 12 : at]}" for at in ends])
            return f"{self._prefix}{count:03x}{_noise.pop()}"


def _renew() -> None:
    global _lock  # noqa: PLW0603  # the parent may have held it at the moment of the fork
    _lock = Lock()
    _noise.clear()  # the parent uses them


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def system_clock() -> int:
    """Return the µs since 1970, UTC."""
    return time.time_ns() // 1_000


def shipped() -> Catalog:
    """Return the catalog of models that is shipped."""
    return catalog.shipped()


def in_memory(owner: str | None) -> SearchIndex:
    """Return a search index in memory."""
    return registry.open_search("memory:", owner, read_only=False)


_FENCES = (Fence(ALIVE, 0),)


class _ComparedLater:
    """An engine for a handle that may never be used: it compares the space with its seal before the first call."""

    __slots__ = ("_engine", "_is_compared", "_space")

    def __init__(self, engine: Engine, space: str) -> None:
        self._engine, self._space, self._is_compared = engine, space, False

    # What every write calls is written out: an attribute that is not there costs as much as twenty calls.
    def answers(self, questions: Sequence[Question], *, fresh: bool = True) -> Sequence[Answer]:
        if not self._is_compared:
            self._compare()
        return self._engine.answers(questions, fresh=fresh)

    def apply(self, write: Write) -> Receipt:
        if not self._is_compared:
            self._compare()
        return self._engine.apply(write)

    def __getattr__(self, name: str) -> Any:
        if not self._is_compared:
            self._compare()
        return getattr(self._engine, name)

    def _compare(self) -> None:
        self._engine.check(self._space)
        self._is_compared = True


class StoreResources(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the handles on one store share."""

    engine: Engine
    clock: Callable[[], int]  # µs since 1970, UTC
    ids: Callable[[], str]
    limits: Limits = Limits()
    models: Callable[[], Catalog] = shipped  # the catalog of models; read at the first use
    indexes: Callable[[str | None], SearchIndex] = (
        in_memory  # the index of an owner's memory; None: of no owner
    )
    embedder: Embedder | None = None  # None: memory is searched for words alone
    read_only: bool = False
    spool: Path | None = (
        None  # where processes of the store tell each other what live runs say; None: nowhere
    )
    channel: LiveChannel | None = None  # the same between machines; None: the engine has none
    # Spaces are compared with their seals when they are first used, not when they are opened.
    compares_later: bool = False
    cache: NodeCache = msgspec.field(default_factory=NodeCache)
    steps: CommitCaches = msgspec.field(default_factory=CommitCaches)
    runtimes: list[StoreRuntime] = msgspec.field(default_factory=list)  # the first one, once a run needs it
    _memories: list[Memories] = msgspec.field(default_factory=list)  # the first one, once it is needed

    @property
    def store(self) -> Space:
        """The store's own space."""
        return self.named(STORE)

    def agent(self, name: str) -> Space:
        """Return the space of an agent's own map."""
        return self._space(AGENTS + name, name, ())

    def thread(self, id: str, space: str, *, begun: bool = False) -> Space:
        """Return the space of a thread; writes to it are refused once the thread is removed.

        `begun`: the thread was begun just now, so there is nothing in its space to compare.
        """
        return self._space(space, id, _FENCES, begun=begun)

    @property
    def store_runtime(self) -> StoreRuntime:
        """What the runs of the store share, created when the first run needs it."""
        if not self.runtimes:
            from perdure.runtime.session.environment import StoreRuntime

            # Two threads may both append one; both then use the first.
            self.runtimes.append(StoreRuntime(spool=self.spool, channel=self.channel))
        return self.runtimes[0]

    @property
    def memories(self) -> Memories:
        """The memories of all owners, created when they are first needed."""
        if not self._memories:
            reach = owner_memory.ReachableMemory(lambda name, label: self._space(name, label, ()))
            # Two threads may both append; both then use the first.
            self._memories.append(
                owner_memory.Memories(
                    self.named, reach, self.indexes, self.embedder, read_only=self.read_only
                )
            )
        return self._memories[0]

    def close(self) -> None:
        """Wait for background work to end, then release everything."""
        for runtime in self.runtimes:
            runtime.close()
        for each in self._memories:
            each.close()
        if "perdure.runtime.event_loop" in sys.modules:  # else nothing has run
            event_loop.close_ended_loops()
        self.engine.close()

    def named(self, name: str) -> Space:
        """Return any space by name, without the fences of a thread."""
        return self._space(name, label_of(self.engine, name), ())

    def _space(self, name: str, label: str, fences: tuple[Fence, ...], *, begun: bool = False) -> Space:
        engine = self.engine
        if self.compares_later:
            engine = cast("Engine", _ComparedLater(engine, name))
        elif not begun:
            engine.check(name)
        return Space(
            engine=engine,
            name=name,
            label=label,
            clock=self.clock,
            ids=self.ids,
            cache=self.cache,
            limits=self.limits,
            fences=fences,
            steps=self.steps.of(name, label),
        )
