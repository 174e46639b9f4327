"""A call as its tool sees it: its identity, the state that it can reach, and the ways to end it.

A tool that takes a parameter of type `Call` gets one.  It is good for one attempt: when the attempt is over,
the state behind it is closed, also to a thread that still runs.

A call sees the state as it was at the start of its round and its own writes at once, but no writes of other
calls of the round.  Nothing is written until `CallStateView.finish` returns the patches.

The call's scratch is under a prefix of its own in the thread's state.  It is kept while the call is suspended,
and removed when the call settles.  Paths that are declared with call scope are there too.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from threading import RLock
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, get_args, overload

import msgspec
from msgspec import UNSET

from perdure.errors import Invalid, NotFound
from perdure.history import artifacts
from perdure.history.changes.patch_builder import Ops, Patched, Touched
from perdure.history.changes.values import Given, StoredValue, declared, typed
from perdure.history.space import Space
from perdure.ledger import results
from perdure.memory import OwnerMemory
from perdure.memory.owner_memory import Line
from perdure.model import canonical, names
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, Object
from perdure.model.memory import Remembering
from perdure.model.patch import Delete, Put, Stored
from perdure.model.text import well_formed
from perdure.model.ticket import CHILD_RUN, OnTimeout, Resume, Verdict
from perdure.runtime.events import CallProgress
from perdure.runtime.tools.call_memory import CallMemory
from perdure.runtime.tools.waiting import (
    Children,
    ChildRunner,
    Suspended,
    Suspension,
    When,
    timer,
)

__all__ = [
    "Call",
    "CallMap",
    "CallStateView",
    "Children",
    "Outcome",
    "OutcomeKind",
    "Ruling",
    "Suspended",
    "Suspension",
    "scratch_prefix",
]

_T = TypeVar("_T")

OutcomeKind: TypeAlias = Literal["done", "not_done", "dont_know"]

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
PROGRESS_SECONDS = 0.1  # between two words of progress of one call
PROGRESS_CHARACTERS = 500


class Outcome(msgspec.Struct, frozen=True):
    """What a reconcile hook found out about a call; `call.done`, `call.not_done` and `call.dont_know` make one."""

    kind: OutcomeKind
    result: Any = None  # what the tool would have returned; only where it is done
    why: str | None = None  # in words, where it cannot be found out


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What a person decided about a call that its tool had suspended."""

    verdict: Verdict
    value: Json = None  # the answer, or the edited arguments
    by: str | None = None
    why: str | None = None
    at: int = 0  # µs since 1970, UTC


class Call:
    """One attempt at a call, as its tool sees it."""

    __slots__ = (
        "_progress_at",
        "_runner",
        "_state_view",
        "_tell",
        "arguments",
        "attempt",
        "children",
        "decision",
        "id",
        "key",
        "tool",
    )

    def __init__(
        self,
        *,
        id: str,
        tool: str,
        key: str = "",
        attempt: int = 1,
        arguments: Mapping[str, Json] | None = None,
        decision: Ruling | None = None,
        state_view: CallStateView | None = None,
        runner: ChildRunner | None = None,
        tell: Callable[[CallProgress], None] | None = None,
    ) -> None:
        """Without a `state_view` the call has no state: reading or writing raises `Invalid`.

        `runner` runs other agents for it; None: `run` raises `Invalid`.  `tell` gives progress to the watchers of the
        run; None: there can be none.
        """
        self.id = id
        self.tool = tool  # its name
        self.key = key  # the same at every attempt; for services that take an idempotency key
        self.attempt = attempt  # 1 at first
        self.arguments: dict[str, Any] = dict(arguments or {})  # as JSON, validated, defaults filled
        self.decision = decision  # None: no decision was asked for
        self.children: Children | None = None  # the runs that this attempt has started; None: none
        self._state_view, self._runner, self._tell = state_view, runner, tell
        self._progress_at = 0.0  # when watchers were last told, in seconds of the monotonic clock; 0: never

    def __repr__(self) -> str:
        """Name the call and the attempt."""
        return f"<Call {self.id!r} of {self.tool}, attempt {self.attempt}>"

    @overload
    def get(self, path: str, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, default: Any = ..., *, type: type[_T]) -> _T: ...
    def get(self, path: str, default: Any = UNSET, *, type: Any = None) -> Any:
        """Return the value at `path` in the thread's state; `default` if there is none, else `NotFound`."""
        return self._state().home(path).get(path, type=type, default=default)

    def put(self, path: str, value: Given, *, media_type: str | None = None) -> Digest:
        """Set `path` to a JSON document, or bytes with a media type, in the thread's state; return the value's digest."""
        return self._state().home(path).put(path, value, media_type=media_type)

    def delete(self, path: str) -> None:
        """Delete the value at `path` in the thread's state; raises `NotFound` if there is none."""
        self._state().home(path).delete(path)

    def paths(self, prefix: str = "/") -> list[str]:
        """Return the paths under `prefix` in the thread's state, sorted."""
        return self._state().home(prefix).paths(prefix)

    @property
    def agent(self) -> CallMap:
        """The agent's own map, which all of its threads share."""
        return self._state().agent

    @property
    def memory(self) -> CallMemory:
        """The memory of the thread's owner, across threads and agents: `add`, `edit`, `search`, `get`, `forget`."""
        return self._state().memory

    def read_artifact(self, reference: str) -> bytes:
        """Return the content of an artifact in the history of this timeline; raises `NotFound` for any other."""
        return self._state().artifact(reference)

    @property
    def scratch(self) -> CallMap:
        """State of this call alone: it is kept while the call is suspended and removed when the call settles."""
        return self._state().scratch

    def run(self, agent: Any, input: Any, *, thread: str | None = None, output: Any = None) -> Any:
        """Run another agent as a child of this call's run, and return its `Result`; in an `async def` tool, await it.

        The child runs on a thread of its own, or on the one that is named, with the owner of this thread.  It is
        cancelled with this run.  If it waits for a decision, this call waits too, and the tool starts from its first
        line again once the child can go on.  The same attempt order leads to the same children, so a repeated tool
        finds their results and runs nothing twice.  Raises `RunFailed` if the child fails, `Conflict` if the thread
        belongs to another agent or owner, `Invalid` outside of a run.
        """
        if self._runner is None:
            raise Invalid(
                "this call belongs to no run, so it cannot run another agent; nothing was run.",
                code="call_has_no_run",
                advice="Let an agent call the tool in a run.",
                call=self.id,
            )
        if self.children is None:
            self.children = Children(self.id, self.tool, self._runner)
        return self.children.run(agent, input, thread=thread, output=output)

    def progress(self, fraction: float | None = None, message: str = "") -> None:
        """Tell the watchers of this run in this process how much is done, from 0 to 1, and what is being done.

        Nothing is written.  Watchers are told at most ten times a second and call, and always of the end (1).
        """
        if self._tell is None:
            return
        if fraction is not None:
            if isinstance(fraction, bool) or not isinstance(fraction, int | float) or math.isnan(fraction):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Invalid(
                    f"progress is a fraction from 0 to 1, not {fraction!r}; no watcher was told.",
                    code="progress_invalid",
                    call=self.id,
                )
            fraction = min(max(float(fraction), 0.0), 1.0)
        now = time.monotonic()
        if fraction != 1.0 and self._progress_at and now - self._progress_at < PROGRESS_SECONDS:
            return
        self._progress_at = now
        words = well_formed(str(message))[:PROGRESS_CHARACTERS]
        self._tell(CallProgress(self.id, self.tool, "running", fraction=fraction, message=words))

    def suspend(
        self,
        message: str = "",
        *,
        until: When | None = None,
        action: str = "approve",
        parameters: Mapping[str, Given] | None = None,
        response_schema: Mapping[str, Given] | None = None,
        expires_in: float | timedelta | None = None,
        on_timeout: OnTimeout = "expire",
        resume: Resume = "run",
    ) -> NoReturn:
        """Stop here and ask for a decision; it is in `call.decision` when the tool runs again.

        Nothing after this line runs.  Suspend before anything external is done: after a
        decision the tool starts from its first line.  `expires_in` is in seconds.

        With `until` the call asks no person: it waits for that time, a datetime with a time zone or how long from now,
        and then a worker runs the tool again.  A person can still approve it earlier, or deny it.
        """
        _check_choice("on_timeout", on_timeout, get_args(OnTimeout))
        _check_choice("resume", resume, get_args(Resume))
        if action == CHILD_RUN:
            raise Invalid(
                f"the action {CHILD_RUN!r} is reserved for calls that wait for child runs; the call was not suspended.",
                code="suspension_invalid",
                option="action",
            )
        if until is not None:
            raise Suspended(timer(message, until, expires_in, _json_text(parameters)))
        if not message:
            raise Invalid(
                "a call that asks for a decision says what about; the call was not suspended.",
                code="suspension_invalid",
                advice="Give a message, or until=.",
                option="message",
            )
        raise Suspended(
            Suspension(
                message=message,
                action=action,
                parameters=_json_text(parameters),
                response_schema=_json_text(response_schema),
                expires_in_us=_microseconds(expires_in),
                on_timeout=on_timeout,
                resume=resume,
            )
        )

    def done(self, result: object = None) -> Outcome:
        """For a reconcile hook: report that it happened, and what the tool would have returned."""
        return Outcome("done", result)

    def not_done(self) -> Outcome:
        """For a reconcile hook: report that it did not happen."""
        return Outcome("not_done")

    def dont_know(self, why: str | None = None) -> Outcome:
        """For a reconcile hook: report that it cannot be found out."""
        return Outcome("dont_know", why=why)

    def close(self) -> None:
        """End the attempt: from now on this call can neither read nor write the state."""
        self._tell = None
        if self._state_view is not None:
            self._state_view.close()

    def _state(self) -> CallStateView:
        if self._state_view is None:
            raise Invalid("this call has no state; nothing was read or written.", code="call_has_no_state")
        return self._state_view


def _check_choice(what: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise Invalid(
            f"{what} is one of {', '.join(choices)}, not {given!r}; the call was not suspended.",
            code="suspension_invalid",
            option=what,
        )


def _json_text(value: Mapping[str, Given] | None) -> str | None:
    return None if value is None else canonical.encode(dict(value)).decode()


def _microseconds(duration: float | timedelta | None) -> int | None:
    if duration is None:
        return None
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not 0 < seconds < 1e9:
        raise Invalid(
            f"expires_in is a number of seconds above 0, not {duration}; the call was not suspended.",
            code="suspension_invalid",
            option="expires_in",
        )
    return round(seconds * 1_000_000)


def scratch_prefix(call: str) -> str:
    """Return the prefix of a call's scratch in the thread's state, without a closing '/'."""
    if _PLAIN_ID.match(call):
        return f"/__tool_call_scope/{call}"
    return f"/__tool_call_scope/~{sha256(call.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


class _Gate:
    """Says whether the tool may still use the state; one lock for all that it does there."""

    __slots__ = ("closed", "lock")

    def __init__(self) -> None:
        self.lock = RLock()
        self.closed = False

    def check(self) -> None:
        """Raise `Invalid` if the call is over."""
        if self.closed:
            raise Invalid(
                "this call is over: it has ended, was cancelled or ran out of time; nothing was read or written.",
                code="call_is_over",
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
        """Get the map from `begin` when it is first needed; with a `prefix`, show the part of it under that prefix."""
        self._gate, self._begin, self._prefix = gate, begin, prefix
        self._defaults = defaults or {}
        self._reads = reads
        self._ops: Ops | None = None

    @overload
    def get(self, path: str, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, default: Any = ..., *, type: type[_T]) -> _T: ...
    def get(self, path: str, default: Any = UNSET, *, type: Any = None) -> Any:
        """Return the value at `path`, with this call's own writes; `default` if there is none, else `NotFound`."""
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
        """Set `path` to a JSON document, or bytes with a media type; return the digest of the value."""
        with self._gate.lock:
            return self._writing(path).put(self._full(path), value, media_type=media_type)

    def delete(self, path: str) -> None:
        """Delete the value at `path`; raises `NotFound` if there is none."""
        with self._gate.lock:
            self._writing(path).delete(self._full(path))

    def paths(self, prefix: str = "/") -> list[str]:
        """Return the paths under `prefix`, sorted, with this call's own writes."""
        with self._gate.lock:
            full = self._prefix + names.check_prefix(prefix)
            found = self._open().paths(full)
            if self._reads is not None:
                self._reads.prefixes.add(full)
        return [path.removeprefix(self._prefix) for path in found]

    @property
    def is_open(self) -> bool:
        """True if the map was read or written."""
        return self._ops is not None

    @property
    def written(self) -> bool:
        """True if anything was changed."""
        return bool(self._ops)

    def ops(self) -> Ops:
        """Return the ops, for the end of the attempt."""
        if self._ops is None:
            self._ops = self._begin()
        return self._ops

    def _full(self, path: str) -> str:
        return self._prefix + names.check_path(path)

    def _writing(self, path: str) -> Ops:
        if not self._prefix and names.reserved(path):
            raise Invalid(
                f"{path} is under a prefix that is reserved for Perdure ({', '.join(names.KERNEL_PREFIXES)}); "
                "nothing was written.",
                code="path_reserved",
                advice="Choose another path; what only this call needs goes to `call.scratch`.",
                path=path,
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
        "_memory",
        "_owner_memory",
        "_prefix",
        "_root",
        "_space",
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
        """Start from the thread's map, and from the agent's own if it has one, at the start of the round.

        `memory` is the owner's, as `line` sees it; None: the thread has no owner.
        """
        self._gate = _Gate()
        self._space, self._root, self._line = space, root, line
        self._owner_memory = memory
        self._memory: CallMemory | None = None  # until the tool asks for it, which few do
        self._call_scoped = call_scoped
        self._prefix = scratch_prefix(call)
        self._finished = False
        self.reads = Touched()  # the paths of the thread's map that were read
        self.thread = CallMap(self._gate, lambda: Ops(space, root), defaults=defaults, reads=self.reads)
        self.scratch = CallMap(
            self._gate, lambda: Ops(space, root), prefix=self._prefix, defaults=self._own(defaults or {})
        )
        self._agent = None if agent is None else CallMap(self._gate, lambda: Ops(*agent, into=space))

    @property
    def memory(self) -> CallMemory:
        """The memory of the owner; its methods raise `Invalid` where there is no owner."""
        with self._gate.lock:
            if self._memory is None:
                line = self._line or (self._space.name, None)
                self._memory = CallMemory(self._owner_memory, line, self._gate.check)
            return self._memory

    def remembered(self) -> Remembering | None:
        """Return what the call did to memory; None if that is nothing."""
        return None if self._memory is None else self._memory.finish()

    @property
    def agent(self) -> CallMap:
        """The agent's own map; raises `Invalid` where there is no agent."""
        if self._agent is None:
            raise Invalid(
                "this call has no agent, and so no map of an agent; nothing was read or written.",
                code="call_has_no_agent",
            )
        return self._agent

    def artifact(self, reference: str) -> bytes:
        """Return the content of an artifact in the history of the timeline; raises `NotFound` for any other."""
        with self._gate.lock:
            self._gate.check()
            at = self._line[1] if self._line is not None else None
            digest = results.in_history(self._space, reference, at=at)
            return b"".join(artifacts.get(self._space, digest))

    def home(self, path: str) -> CallMap:
        """Return the map that has `path`: the thread's, or the scratch if the path is declared with call scope."""
        return self.scratch if self._is_own(path) else self.thread

    @property
    def is_untouched(self) -> bool:
        """True if the tool has neither read nor written any map."""
        is_agent_open = self._agent is not None and self._agent.is_open
        return not (is_agent_open or self.thread.is_open or self.scratch.is_open)

    @property
    def has_written(self) -> bool:
        """True if the tool has changed any map."""
        states = (self.thread, self.scratch, self._agent)
        return any(state is not None and state.written for state in states)

    def close(self) -> None:
        """Refuse the tool from now on.  Closing twice is no error."""
        with self._gate.lock:
            self._gate.closed = True

    def finish(self, *, keep_scratch: bool) -> tuple[Patched | None, Patched | None]:
        """Return what the call changes in the thread's map and in the agent's; None where that is nothing.  Once only.

        With `keep_scratch` the changes contain the scratch; else they remove the scratch of earlier attempts.
        """
        self.close()
        assert not self._finished
        self._finished = True
        scratch = self._keep_scratch() if keep_scratch else None
        # Only an earlier attempt can have left scratch: a tool writes to no reserved path of the thread's map.
        has_scratch = not keep_scratch and self._space.tree(self._root).count(self._prefix)
        if has_scratch and self.thread.ops().paths(self._prefix):
            self.thread.ops().clear(self._prefix)
        thread = self.thread.ops().finish() if self.thread.written else None
        agent = self._agent.ops().finish() if self._agent and self._agent.written else None
        return _with_values(thread, scratch), agent

    def _own(self, defaults: Mapping[str, bytes]) -> dict[str, bytes]:
        return {path: default for path, default in defaults.items() if self._is_own(path)}

    def _is_own(self, path: str) -> bool:
        return any(names.under(path, prefix) for prefix in self._call_scoped)

    def _keep_scratch(self) -> Patched | None:
        """Repeat on the thread's map what was done to the scratch; return the patch whose values that uses."""
        if not self.scratch.written:
            return None
        done, into = self.scratch.ops().finish(), self.thread.ops()
        for op in done.patch.ops:
            match op:
                case Put(path, value, size, form, media_type):
                    into.put_stored(path, StoredValue(Stored(value, size, form, media_type), ()))
                case Delete(path):
                    into.delete(path)
                case _:
                    raise AssertionError(op)  # a call can do nothing else to its scratch
        return done


def _with_values(patched: Patched | None, other: Patched | None) -> Patched | None:
    """Return `patched` with the values, but not the tree nodes, of `other`."""
    if patched is None or other is None:
        return patched
    objects: dict[Digest, Object] = {item.digest: item for item in patched.objects}
    objects |= {item.digest: item for item in other.objects if item.kind is not Kind.NODE}
    cells = (*patched.cells, *other.cells)
    return msgspec.structs.replace(patched, objects=tuple(objects.values()), cells=cells)
