"""The room of one call: the state that its tool sees, and what it writes there.

A call sees the state as it was at the start of its round and its own writes at once, never
its siblings'.  Nothing is written until `finish` hands the patches over.  Once the room is
closed, a tool that is still running, in a thread that nobody can stop, can neither read nor
change anything here.

The call's scratch lies under a prefix of its own in the thread's state.  It is kept while
the call is suspended, and goes when the call settles.  Paths that are declared with call scope
are there too, whatever the tool calls them.

Memory as a call sees it: what its thread's owner has, and what the call adds to it.

Searching sees the memory as it was when the call looked.  What the call adds or forgets is durable with
its result and true with its round's commit; until then it is seen by the call itself, by id, and by nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from threading import RLock
from typing import Any, Literal, TypeAlias, TypeVar, overload

import msgspec
from msgspec import UNSET

from perdure.errors import Invalid, NotFound
from perdure.history import artifacts
from perdure.history.changes.patch_builder import Ops, Patched
from perdure.history.changes.touched_paths import Touched
from perdure.history.changes.values import Given, StoredValue, declared, typed
from perdure.history.space import Space
from perdure.ledger import results
from perdure.memory import OwnerMemory, Recall, relevant
from perdure.memory.owner_memory import Line
from perdure.memory.visibility import Visibility
from perdure.memory.write import until
from perdure.model import names
from perdure.model.digest import Digest, Kind, Object
from perdure.model.memory import Item, ItemKind, MemoryChange, Remembering, check_item, check_item_id, remade
from perdure.model.patch import Delete, Put, Stored

__all__ = ["CallStateView", "CallMap", "scratch_prefix", "CallMemory", "NoMemory", "SaidBy"]


SaidBy: TypeAlias = Literal["user", "model", "tool", "import"]
"""For whom a tool may speak; the system speaks for itself."""

_WRITES_MAX = 1_000


class NoMemory(Invalid):
    """A call asked for memory on a thread without an owner.  Nothing was read or written."""

    def __init__(self) -> None:
        """Say what is missing."""
        super().__init__(
            "this thread has no owner, and so no memory; nothing was read or written.",
            advice="Begin threads with owner=.",
        )


class CallMemory:
    """The memory of the owner of a call's thread."""

    __slots__ = ("_check", "_line", "_memory", "_root", "_written")

    def __init__(self, memory: OwnerMemory | None, line: Line, check: Callable[[], None]) -> None:
        """Look from where `line` stands; `check` raises once the call is over.  None: the thread has no owner."""
        self._memory, self._line, self._check = memory, line, check
        self._root: Digest | None = None
        self._written: dict[str, MemoryChange] = {}

    def add(
        self,
        text: str,
        *,
        kind: ItemKind = "semantic",
        scope: str = "user",
        id: str | None = None,
        trust: SaidBy = "tool",
        expires: datetime | timedelta | None = None,
    ) -> str:
        """Remember something for the thread's owner; its id.  It is true when the call's round is committed.

        Under an `id` that there is, it takes the place of what was there.  `trust` is who said it.
        """
        memory = self._open()
        if str(trust) == "system":
            raise Invalid("a tool does not speak for the system; nothing was remembered. Say who said it.")
        now = memory.space.clock()
        item = Item(
            text=remade(text), kind=kind, scope=scope, trust=trust, at=now, expires_at=until(expires, now)
        )
        named = memory.space.ids() if id is None else check_item_id(id)
        self._write(MemoryChange(id=named, item=check_item(item)))
        return named

    def search(
        self, query: str, *, limit: int = 8, kind: ItemKind | None = None, scope: str | None = None
    ) -> Recall:
        """What is remembered about `query`, the best first."""
        memory = self._open()
        found = relevant(memory, query, limit=limit, kind=kind, scope=scope, line=self._line)
        self._root = found.sight.root
        return found

    def get(self, id: str) -> str:
        """The words of one item, with this call's own writes; raises `NotFound`."""
        memory = self._open()
        own = self._written.get(check_item_id(id))
        if own is not None and own.item is not None:
            return own.item.text
        judge = Visibility(memory, None, self._line)
        found = None if own is not None else judge.item(id)
        self._root = judge.sight.root
        if found is None or not found.counts or found.version.item is None:
            raise NotFound(f"'{memory.owner}' has no item '{id}' in memory; nothing was read.")
        return found.version.item.text

    def forget(self, id: str) -> None:
        """Let there be no such item; raises `NotFound` if there is none."""
        self.get(id)
        self._write(MemoryChange(id=id))

    def finish(self) -> Remembering | None:
        """What the call did to memory; None if that is nothing."""
        if not self._written and self._root is None:
            return None
        return Remembering(written=tuple(self._written.values()), root=self._root)

    def _write(self, written: MemoryChange) -> None:
        self._written.pop(written.id, None)
        if len(self._written) >= _WRITES_MAX:
            raise Invalid(f"one call writes at most {_WRITES_MAX} items; this one was not remembered.")
        self._written[written.id] = written

    def _open(self) -> OwnerMemory:
        self._check()
        if self._memory is None:
            raise NoMemory
        return self._memory


_T = TypeVar("_T")
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def scratch_prefix(call: str) -> str:
    """Where the scratch of that call lies in the thread's state, without a closing '/'."""
    if _PLAIN_ID.match(call):
        return f"/__tool_call_scope/{call}"
    return f"/__tool_call_scope/~{sha256(call.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


class _Gate:
    """Whether the tool may still come in; one lock for all that it does here."""

    __slots__ = ("closed", "lock")

    def __init__(self) -> None:
        self.lock = RLock()
        self.closed = False

    def check(self) -> None:
        """Raise `Invalid` if the call is over."""
        if self.closed:
            raise Invalid(
                "this call is over: it has ended, was cancelled or ran out of time; nothing was read or written."
            )


class CallMap:
    """A map as one call sees it, with its own writes."""

    __slots__ = ("_begin", "_defaults", "_gate", "_ops", "_prefix", "_reads")

    def __init__(
        self,
        gate: _Gate,
        begin: Callable[[], Ops],
        *,
        prefix: str = "",
        defaults: Mapping[str, bytes] | None = None,
        reads: Touched | None = None,
    ) -> None:
        """A map that `begin` gives when it is first needed; with a `prefix`, the part of it that lies there."""
        self._gate, self._begin, self._prefix = gate, begin, prefix
        self._defaults = defaults or {}
        self._reads = reads
        self._ops: Ops | None = None

    @overload
    def get(self, path: str, *, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, *, type: type[_T], default: Any = ...) -> _T: ...
    def get(self, path: str, *, type: Any = None, default: Any = UNSET) -> Any:
        """The value at `path`, with this call's own writes; `default` if there is none, else `NotFound`."""
        with self._gate.lock:
            ops, full = self._open(), self._full(path)
            if self._reads is not None:
                self._reads.paths.add(full)
            if ops.entry(full) is not None:
                return typed(path, ops.value(full), type)
        found = declared(self._defaults, path, type) if default is UNSET else default
        if found is UNSET:
            raise NotFound(
                f"there is nothing at {path}.",
                code="path_not_found",
                advice="See what there is with paths(), or give a default.",
                path=path,
            )
        return found

    def put(self, path: str, value: Given, *, media_type: str | None = None) -> Digest:
        """Let `path` hold a JSON document, or bytes with a media type; the digest of the value."""
        with self._gate.lock:
            return self._writing(path).put(self._full(path), value, media_type=media_type)

    def delete(self, path: str) -> None:
        """Let `path` hold nothing; raises `NotFound` if that is so already."""
        with self._gate.lock:
            self._writing(path).delete(self._full(path))

    def paths(self, prefix: str = "/") -> list[str]:
        """The paths that `prefix` covers, sorted, with this call's own writes."""
        with self._gate.lock:
            full = self._prefix + names.check_prefix(prefix)
            found = self._open().paths(full)
            if self._reads is not None:
                self._reads.prefixes.add(full)
        return [path.removeprefix(self._prefix) for path in found]

    @property
    def is_open(self) -> bool:
        """Whether anything was looked at."""
        return self._ops is not None

    @property
    def written(self) -> bool:
        """Whether anything was changed."""
        return bool(self._ops)

    def ops(self) -> Ops:
        """The ops themselves, for whoever ends the room."""
        if self._ops is None:
            self._ops = self._begin()
        return self._ops

    def _full(self, path: str) -> str:
        return self._prefix + names.check_path(path)

    def _writing(self, path: str) -> Ops:
        if not self._prefix and names.reserved(path):
            raise Invalid(
                f"{path} is under a prefix that is reserved for Perdure ({', '.join(names.KERNEL_PREFIXES)}); "
                "nothing was written. Choose another path; what only this call needs goes to `call.scratch`."
            )
        return self._open()

    def _open(self) -> Ops:
        self._gate.check()
        return self.ops()


class CallStateView:
    """What one attempt at a call reads and writes; good for that attempt alone."""

    __slots__ = (
        "_agent",
        "_call_scoped",
        "_finished",
        "_gate",
        "_line",
        "_prefix",
        "_space",
        "memory",
        "reads",
        "scratch",
        "thread",
    )

    def __init__(
        self,
        call: str,
        space: Space,
        root: Digest,
        *,
        agent: tuple[Space, Digest] | None = None,
        defaults: Mapping[str, bytes] | None = None,
        call_scoped: Sequence[str] = (),
        memory: OwnerMemory | None = None,
        line: Line | None = None,
    ) -> None:
        """Begin from the thread's map, and from the agent's own if it has one, at the start of the round.

        `memory` is the owner's, seen from where `line` stands; None: the thread has no owner.
        """
        self._gate = _Gate()
        self.memory = CallMemory(memory, line or (space.name, None), self._gate.check)
        self._space, self._line = space, line
        self._call_scoped = call_scoped
        self._prefix = scratch_prefix(call)
        self._finished = False
        self.reads = Touched()  # what was looked at in the thread's map
        self.thread = CallMap(self._gate, lambda: Ops(space, root), defaults=defaults, reads=self.reads)
        self.scratch = CallMap(
            self._gate, lambda: Ops(space, root), prefix=self._prefix, defaults=self._own(defaults or {})
        )
        self._agent = None if agent is None else CallMap(self._gate, lambda: Ops(*agent, into=space))

    @property
    def agent(self) -> CallMap:
        """The agent's own map; raises `Invalid` where there is no agent."""
        if self._agent is None:
            raise Invalid("this call has no agent, and so no map of an agent's; nothing was read or written.")
        return self._agent

    def artifact(self, reference: str) -> bytes:
        """The content of an artifact in the history of the line; raises `NotFound` for any other."""
        with self._gate.lock:
            self._gate.check()
            at = self._line[1] if self._line is not None else None
            digest = results.in_history(self._space, reference, at=at)
            return b"".join(artifacts.get(self._space, digest))

    def home(self, path: str) -> CallMap:
        """Where `path` lies: in the thread's map, or, if it is declared with call scope, in the scratch."""
        return self.scratch if self._is_own(path) else self.thread

    @property
    def is_untouched(self) -> bool:
        """Whether the tool has neither read nor written any map."""
        states = (self.thread, self.scratch, self._agent)
        return not any(state is not None and state.is_open for state in states)

    @property
    def has_written(self) -> bool:
        """Whether the tool has changed any map."""
        states = (self.thread, self.scratch, self._agent)
        return any(state is not None and state.written for state in states)

    def close(self) -> None:
        """Let the tool in no more.  It may be done twice."""
        with self._gate.lock:
            self._gate.closed = True

    def finish(self, *, keep_scratch: bool) -> tuple[Patched | None, Patched | None]:
        """What the call changes in the thread's map and in the agent's; None where that is nothing.  Once only.

        Scratch is among it if it is to be kept; else none of it, and what an earlier attempt left is cleared.
        """
        self.close()
        assert not self._finished
        self._finished = True
        brought = self._keep_scratch() if keep_scratch else ()
        if not keep_scratch and self.thread.ops().paths(self._prefix):
            self.thread.ops().clear(self._prefix)
        thread = self.thread.ops().finish() if self.thread.written else None
        agent = self._agent.ops().finish() if self._agent and self._agent.written else None
        return _with(thread, brought), agent

    def _own(self, defaults: Mapping[str, bytes]) -> dict[str, bytes]:
        return {path: default for path, default in defaults.items() if self._is_own(path)}

    def _is_own(self, path: str) -> bool:
        return any(names.under(path, prefix) for prefix in self._call_scoped)

    def _keep_scratch(self) -> tuple[Patched, ...]:
        """Let the thread's ops do what was done to the scratch; what that brings along."""
        if not self.scratch.written:
            return ()
        done, into = self.scratch.ops().finish(), self.thread.ops()
        for op in done.patch.ops:
            match op:
                case Put(path, value, size, form, media_type):
                    into.put_stored(path, StoredValue(Stored(value, size, form, media_type), ()))
                case Delete(path):
                    into.delete(path)
                case _:
                    raise AssertionError(op)  # a call can do nothing else to its scratch
        return (done,)


def _with(patched: Patched | None, brought: tuple[Patched, ...]) -> Patched | None:
    """`patched` with the values, but not the nodes, that came by another way."""
    if patched is None or not brought:
        return patched
    objects: dict[Digest, Object] = {item.digest: item for item in patched.objects}
    objects |= {item.digest: item for item in brought[0].objects if item.kind is not Kind.NODE}
    cells = (*patched.cells, *brought[0].cells)
    return msgspec.structs.replace(patched, objects=tuple(objects.values()), cells=cells)
