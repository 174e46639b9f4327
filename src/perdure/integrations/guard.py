"""Takes a framework's tool calls through the ledger of a thread, so that an effect happens once.

A framework calls its tools by itself; its hook around a call hands the call to a `CallGuard`, which makes it by `thread.call`:
`started` is durable before the tool runs, and the result is durable before the framework sees it.  After a crash the
framework asks for the call again, under the same id if it has stored the message that asks for it before the tool ran.
The guard returns the stored result of a finished call.  The outcome of a call that was under way is unknown: the guard
does not make it again, and tells the model so in words.  A call that is known to have had no effect is made again.  A model that asks for
the same thing under a new id, while the outcome of the first is unknown or on another branch, is stopped by the
fingerprint of the call: tool and arguments.  Equal calls that a model asks for in one answer are several calls, and are made one
after the other.  A tool that another program runs is started by `begin`, and settled when that
program reports its outcome.

The guard executes nothing that is stored.  A result is a text or JSON, and what becomes of it is the framework's decision.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from itertools import count
from threading import Lock
from typing import Any, Generic, TypeVar, cast

import msgspec

from perdure import aio
from perdure.errors import Busy, Conflict, Invalid, PerdureError
from perdure.integrations import foreign_ids
from perdure.ledger.json_schema import with_defaults
from perdure.model.canonical import Json
from perdure.model.effect import Effect, Reach, check_effect
from perdure.model.fork_safety import renew_in_child
from perdure.runtime import event_loop
from perdure.runtime.calls import direct_call
from perdure.runtime.calls.direct_call import CallResult
from perdure.runtime.calls.round import fingerprint_for
from perdure.runtime.tools.call import Call
from perdure.runtime.tools.signature import Arguments
from perdure.runtime.tools.tool import RepeatGuard, Tool
from perdure.store.thread import Thread

__all__ = ["BegunCall", "CallGuard", "EqualCallQueue", "GuardedCall", "GuardOutcome"]

_T = TypeVar("_T")
_log = logging.getLogger("perdure.integrations")
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.02, 1.0
_WAIT_SECONDS_MAX = 60.0  # for a call that another process is making
_inside: ContextVar[frozenset[str]] = ContextVar("perdure_equal_calls", default=frozenset())
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,127}\Z")


class GuardedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that a framework is about to make."""

    id: str  # the framework's id of the call
    tool: str
    arguments: Mapping[str, Any]
    asked_by: str = ""  # the id of the message that asks for it: models use the same call id again
    annotations: Mapping[str, Any] | None = None  # of an MCP server, if the program trusts it
    schema: Mapping[str, Any] | None = None  # of the arguments; its defaults count as given

    @property
    def ledger_ids(self) -> Iterator[str]:
        """The ids of the call in the ledger: the same whenever it is asked for; the second is for after a failure.

        Another message, tool or arguments make it another call, though the framework's id may be the same.
        """
        parts = json.dumps([self.asked_by, self.id, self.tool, self.arguments], sort_keys=True, default=repr)
        digest = sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        for number in count(1):
            attempt = "" if number == 1 else f"~{number}"
            yield foreign_ids.thread_id(f"{self.id or 'call'}~{digest}{attempt}")


class GuardOutcome(msgspec.Struct, Generic[_T], frozen=True, kw_only=True):
    """The outcome of a guarded call."""

    state: str  # of the call in the ledger
    text: str  # the result, or in words why there is none
    value: _T | None = None  # what the tool returned, if it ran just now
    ran: bool = False  # the tool ran just now and returned
    stored: Json = None  # the result as the ledger has it, if it ran before

    @property
    def is_result(self) -> bool:
        """True if there is a result: the tool has run, now or before."""
        return self.ran or self.state == "succeeded"


class CallGuard:
    """Makes a framework's tool calls through the ledger.

    `effects` says what each tool may change, by its name; a tool without an entry counts as an `external_write`.
    `repeat_guard` says what happens to an external write that may be a repetition: `deny` tells the model so, `ask`
    lets a person decide, `allow` makes it.
    """

    def __init__(
        self, effects: Mapping[str, Effect | Reach] | None = None, *, repeat_guard: RepeatGuard = "deny"
    ) -> None:
        """Check the effects; raises `Invalid` for a word that is none."""
        given = dict(effects or {})
        self._reaches = {
            name: each if isinstance(each, Reach) else Reach(check_effect(each))
            for name, each in given.items()
        }
        self._repeat_guard: RepeatGuard = repeat_guard
        self._equal_calls = EqualCallQueue()

    def reach(self, call: GuardedCall) -> Reach:
        """Return how far a call reaches: as declared here, as an MCP server says, else an external write."""
        known = self._reaches.get(call.tool)
        hints = call.annotations
        if known is not None or hints is None:
            return known or Reach()
        if hints.get("readOnlyHint"):
            return Reach("read_only")
        return Reach("external_write", bool(hints.get("idempotentHint")))

    def fingerprint(self, call: GuardedCall) -> str:
        """Return what equal calls share; empty if the repeat guard does not check this one."""
        tool = self._tool(call, str)
        return fingerprint_for(tool, tool.take(_plain(call.arguments))) if tool.reach.guarded else ""

    def call(
        self,
        thread: Thread,
        call: GuardedCall,
        run: Callable[[], _T],
        *,
        store: Callable[[_T], Json],
        describe: Callable[[_T], Json] = str,
    ) -> GuardOutcome[_T]:
        """Make a call whose tool is `run`; `store` says what the ledger keeps of its result.

        If `store` raises, the ledger keeps what `describe` returns: the tool has run, and its result is returned as it is.
        An exception of the tool is raised again once the ledger has it; its outcome counts as unknown.  So is an error of
        the ledger if the tool has been called; before that, a conflict is told in words.  Where another caller is making
        the same call, this one waits for its outcome; raises `Busy` if that takes longer than a minute.
        """
        attempt = _Attempt(run, store, describe)
        tool, arguments = self._tool(call, attempt.run_once), _plain(call.arguments)
        for id in call.ledger_ids:
            result = self._make(thread, tool, arguments, id, attempt)
            if isinstance(result, GuardOutcome):
                return result
            if not attempt.is_to_repeat(result):
                told = _settle_cut_off(thread, tool, result)
                return attempt.outcome(result, lambda id=id: _stored(thread, id), told)
        raise AssertionError("the ids of a call do not end")

    async def acall(
        self,
        thread: aio.Thread,
        call: GuardedCall,
        run: Callable[[], Awaitable[_T]],
        *,
        store: Callable[[_T], Json],
        describe: Callable[[_T], Json] = str,
    ) -> GuardOutcome[_T]:
        """Make a call whose tool is awaited; the rules are those of `call`."""
        attempt = _Attempt(run, store, describe)
        tool, arguments = self._tool(call, attempt.arun_once, runs_async=True), _plain(call.arguments)
        for id in call.ledger_ids:
            result = await self._amake(thread, tool, arguments, id, attempt)
            if isinstance(result, GuardOutcome):
                return result
            if not attempt.is_to_repeat(result):
                found, told = None, ""
                if not attempt.ran:
                    found = await thread.off_loop(partial(_stored, thread.target(), id))
                    told = await thread.off_loop(partial(_settle_cut_off, thread.target(), tool, result))
                return attempt.outcome(result, lambda found=found: found, told)
        raise AssertionError("the ids of a call do not end")

    def _make(
        self, thread: Thread, tool: Tool, arguments: dict[str, Json], id: str, attempt: _Attempt[_T]
    ) -> CallResult | GuardOutcome[_T]:
        """Make one call; wait where another caller is making it: its outcome is that of this one, too."""
        key = _key(thread.id, tool, arguments)
        for pause in _pauses():
            try:
                with self._equal_calls.turn(key):
                    return thread.call(tool, arguments, id=id)
            except (Busy, Conflict) as error:
                if not attempt.may_wait(error, id) or self._equal_calls.is_inside(key):
                    return attempt.refused(error)
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("the last pause is None")

    async def _amake(
        self, thread: aio.Thread, tool: Tool, arguments: dict[str, Json], id: str, attempt: _Attempt[_T]
    ) -> CallResult | GuardOutcome[_T]:
        """Await `_make`."""
        key = _key(thread.id, tool, arguments)
        for pause in _pauses():
            try:
                async with self._equal_calls.aturn(key):
                    return await thread.call(tool, arguments, id=id)
            except (Busy, Conflict) as error:
                if not attempt.may_wait(error, id) or self._equal_calls.is_inside(key):
                    return attempt.refused(error)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("the last pause is None")

    def begin(self, thread: Thread, call: GuardedCall) -> BegunCall | GuardOutcome[Any]:
        """Start a call whose tool another program runs; return its outcome instead if it is not to be made.

        The start is durable if the tool may change something.
        """
        reported = _Report()
        tool, arguments = self._tool(call, reported.outcome), _plain(call.arguments)
        attempt = _Attempt[Any](reported.outcome, lambda value: value, str)
        for id in call.ledger_ids:
            env = thread._env()  # pyright: ignore[reportPrivateUsage]
            try:
                begun = event_loop.drive(direct_call.begin(env, tool, arguments, id=id))
            except (Busy, Conflict) as error:
                return attempt.refused(error)
            if isinstance(begun, direct_call.StartedCall):
                return BegunCall(begun, reported)
            if not attempt.is_to_repeat(begun):
                told = _settle_cut_off(thread, tool, begun)
                return attempt.outcome(begun, lambda id=id: _stored(thread, id), told)
        raise AssertionError("the ids of a call do not end")

    def _tool(self, call: GuardedCall, run: Callable[[], Any], *, runs_async: bool = False) -> Tool:
        name = call.tool if _TOOL.match(call.tool) else f"_{foreign_ids.path_segment(call.tool).strip('~')}"
        work: Callable[[Arguments, Call], Any] = lambda _arguments, _call: run()  # noqa: E731
        return Tool(
            name=name[:128],
            description="",
            parameters={"type": "object"},
            function=run,
            take=lambda given: Arguments(given, _with_defaults(call, given)),
            run=work,
            runs_async=runs_async,
            reach=self.reach(call),
            repeat_guard=self._repeat_guard,
        )


class _Report:
    """The outcome of a tool, as another program reports it."""

    value: Json = None
    error: str | None = None

    def outcome(self) -> Json:
        """Return the result; raises if the tool ended with an error."""
        if self.error is not None:
            raise _ToolError(self.error)
        return self.value


class _ToolError(Exception):
    """The error of a tool that another program ran: whether it had its effect is not known."""


class BegunCall:
    """A call that is started, and whose tool another program runs now; one of its methods is called once."""

    def __init__(self, started: direct_call.StartedCall, report: _Report) -> None:
        self._started, self._report = started, report

    def settle(self, value: Json) -> CallResult:
        """Record what the tool returned."""
        self._report.value = value
        return event_loop.drive(self._started.settle())

    def fail(self, error: str) -> CallResult:
        """Record that the tool ended with an error: unknown if it may have changed something, else failed."""
        self._report.error = error
        return event_loop.drive(self._started.settle())

    def abandon(self) -> CallResult:
        """Record that no report of the outcome will come."""
        return event_loop.drive(self._started.abandon())

    def refuse(self, why: str) -> CallResult:
        """Record that the tool was not called, because it was refused: failed, without an effect."""
        return event_loop.drive(self._started.refuse(why))


class _Attempt(Generic[_T]):
    """One attempt in this process: what the tool returned or raised."""

    def __init__(
        self, run: Callable[[], Any], store: Callable[[_T], Json], describe: Callable[[_T], Json]
    ) -> None:
        self._run, self._store, self._describe = run, store, describe
        self.ran = self._is_called = False
        self._value: _T | None = None
        self._error: Exception | None = None

    def run_once(self) -> Json:
        self._is_called = True
        try:
            return self._returned(self._run())
        except Exception as error:
            self._error = error
            raise

    async def arun_once(self) -> Json:
        self._is_called = True
        try:
            return self._returned(await self._run())
        except Exception as error:
            self._error = error
            raise

    def _returned(self, value: _T) -> Json:
        self._value, self.ran = value, True
        try:
            return self._store(value)
        except Exception as error:  # noqa: BLE001  # a framework's or a program's serializer raises anything; the tool has run
            kind = type(error).__name__  # its words may quote the result, which no log may have
            _log.warning("a result cannot be stored as it is (%s); the ledger has its text", kind)
            return self._describe(value)

    def is_to_repeat(self, result: CallResult) -> bool:
        """True if an earlier attempt is known to have had no effect, so that the call is made again."""
        return result.state == "failed" and self._error is None and not self.ran

    def may_wait(self, error: PerdureError, id: str) -> bool:
        """True if another caller is making the call of this id: told "nothing was done", a model would ask for it again."""
        return isinstance(error, Busy) and error.holder == id and not self._is_called

    def refused(self, error: PerdureError) -> GuardOutcome[_T]:
        """Return that the ledger refuses the call; raises the error if the tool has been called: its effect may be there."""
        if self._is_called:
            raise error
        return GuardOutcome(state="refused", text=str(error))

    def outcome(self, result: CallResult, stored: Callable[[], Json], told: str) -> GuardOutcome[_T]:
        """Return the outcome, with what is `told` of an earlier call; raises what the tool raised."""
        if self._error is not None:
            raise self._error
        text = f"{result.text} {told}".strip()
        if result.result is None:
            text = "This call waits for the decision of a person; it was not made."
        value = None if self.ran or result.state != "succeeded" else stored()
        return GuardOutcome(state=result.state, text=text, value=self._value, ran=self.ran, stored=value)


def _pauses() -> Iterator[float | None]:
    """Yield how long to wait for another caller, longer each time; None at the end."""
    pause, waited = _PAUSE_SECONDS_MIN, 0.0
    while waited < _WAIT_SECONDS_MAX:
        yield pause
        waited, pause = waited + pause, min(2 * pause, _PAUSE_SECONDS_MAX)
    yield None


def _key(thread: str, tool: Tool, arguments: dict[str, Json]) -> str | None:
    """Return a key that equal calls of a thread share; None if the repeat guard does not check such calls."""
    return f"{thread}/{fingerprint_for(tool, tool.take(arguments))}" if tool.reach.guarded else None


def _settle_cut_off(thread: Thread, tool: Tool, denied: CallResult) -> str:
    """Settle the equal calls that processes had started which have ended since; return what the model is told of them.

    A framework that asks under a new id never asks for the first call again, so the first call would stay open.
    """
    if denied.state != "denied":
        return ""
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    fingerprint = thread.trace(denied.id, history=False).record.fingerprint
    told = ""
    for each in thread.calls():
        is_equal = each.fingerprint == fingerprint and each.origin == "call" and each.state == "started"
        if is_equal and not each.reach.repeatable and each.holder and space.engine.gone(each.holder):
            arguments = space.body(each.args).decode("utf-8", "replace")
            with suppress(Busy, Conflict):  # another process settles it
                told = thread.call(tool, arguments, id=each.id).text
    return told


def _stored(thread: Thread, id: str) -> Json:
    """Return the whole result of a call as JSON, or as a text if it is none."""
    record = thread.trace(id, history=False).record
    if record.result is None:
        return None
    content = b"".join(thread.artifacts.get(record.result)).decode("utf-8", "replace")
    try:
        return cast("Json", json.loads(content))
    except ValueError:
        return content


def _with_defaults(call: GuardedCall, given: dict[str, Json]) -> dict[str, Json]:
    """Return the arguments by which calls are compared."""
    schema = None if call.schema is None else dict(call.schema)
    return cast("dict[str, Json]", with_defaults(schema, given))


def _plain(arguments: Mapping[str, Any]) -> dict[str, Json]:
    """Return arguments as JSON; raises `Invalid` if they are none: nothing is called."""
    try:
        return cast("dict[str, Json]", json.loads(json.dumps(dict(arguments), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise Invalid(
            f"the arguments are not JSON: {error}; nothing was done.", code="arguments_not_json"
        ) from error


class _Turn(Future[None]):
    """The turn of one call; it is done when the call and all before it have ended."""

    def __init__(self, *, is_awaited: bool) -> None:
        super().__init__()
        self.is_awaited = is_awaited
        self.before: _Turn | None = None


class EqualCallQueue:
    """The calls of one process that are under way, by a key that equal calls share: these take turns.

    A model may ask for two equal payments in one answer, and frameworks make the calls of an answer at once.  While the
    first one is under way its outcome is unknown, so the ledger could only refuse the second.  Here the second one waits
    until the first is settled, whichever threads and event loops make them, and the ledger then knows that the model
    wants both.

    A call that could wait for itself does not wait, and the ledger decides: one that is made inside an equal call, and a
    blocking one after an awaited one, whose event loop it may be blocking.
    """

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
