"""What a call can wait for: a person's decision, a time, and child runs.

A tool suspends its call to ask a question.  It starts a child run with `call.run`; if the child waits for a decision,
the call waits for the child, and the tool starts from its first line again once the child can go on.  A child run has
ids that follow from its call and an ordinal, so the repeated tool finds the same child and its result.

A child run ends with the attempt that started it: an attempt that is over waits for its children, and one that was
cancelled, or ran out of time, cancels them.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, TypeAlias

import msgspec

from perdure.engines.contract import Engine, time_of_day
from perdure.errors import Invalid
from perdure.model import canonical
from perdure.model.ticket import CHILD_RUN, TIMER, AwaitedChildren, ChildRef, OnTimeout, Resume
from perdure.runtime import event_loop

__all__ = [
    "AWAITED",
    "ChildRequest",
    "ChildRunner",
    "Children",
    "Suspended",
    "Suspension",
    "When",
    "read_moment",
    "moment",
    "timer",
]

AWAITED: contextvars.ContextVar[bool] = contextvars.ContextVar("perdure_awaited_tool", default=False)
"""True in the task of a tool that is awaited."""


When: TypeAlias = datetime | timedelta | float | str
"""A moment with a time zone, or how long from now, in seconds if it is a number; as a text `1h`, or in ISO 8601."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX = 1e9


def _read_text(text: str) -> datetime | timedelta:
    """Return the moment, or the time from now, that a text says; without a zone it is UTC."""
    with suppress(ValueError, KeyError, IndexError, OverflowError):
        return timedelta(seconds=int(text[:-1]) * _UNITS[text[-1]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(
            f"{text!r} is not a time; nothing was scheduled.",
            code="time_invalid",
            advice="Write it as 2026-01-31T09:00 or 2026-01-31T09:00+01:00, or as a time from now: 45s, 10m, 1h, 2d, 1w.",
            time=text,
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def read_moment(at: object) -> datetime | float:
    """Return a moment, or the seconds from now; raises `Invalid` for a datetime without a time zone, and what is neither."""
    at = _read_text(at) if isinstance(at, str) else at
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise Invalid(
                f"{at} has no time zone, so it is no moment; nothing was scheduled.",
                code="time_without_zone",
                advice="Use datetime.now(UTC) + timedelta(…), or give the seconds from now.",
            )
        with suppress(OverflowError):  # of the years 1 and 9999 some moments are in no year of UTC
            return at.astimezone(UTC)
    seconds = at.total_seconds() if isinstance(at, timedelta) else at
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _SECONDS_MAX:
        raise Invalid(
            f"a time is a datetime, a timedelta, a number of seconds from now or a text such as '1h', not {at!r}; nothing was scheduled.",
            code="time_invalid",
        )
    return seconds


def moment(engine: Engine, at: When) -> int:
    """Return a moment in µs since 1970, UTC; a duration counts from now on the store's clock.  Raises `Invalid` for what is none."""
    found = read_moment(at)
    if isinstance(found, datetime):
        return max(0, (found - _EPOCH) // timedelta(microseconds=1))
    return time_of_day(engine) + round(found * 1_000_000)


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool asks for when it suspends its call; the ticket will say it."""

    message: str
    action: str = "approve"
    parameters: str | None = None  # JSON text
    response_schema: str | None = None  # JSON text
    expires_in_us: int | None = None  # None: it never expires
    until: When | None = None  # when it expires, on the store's clock; None: `expires_in_us` says it
    on_timeout: OnTimeout = "expire"
    resume: Resume = "run"


def timer(message: str, until: When, expires_in: object, parameters: str | None) -> Suspension:
    """Return what a call asks for that waits for a time; raise `Invalid` for no moment, or if it expires as well."""
    if expires_in is not None:
        raise Invalid(
            "a call waits until a time, or for a decision that expires, not both; the call was not suspended.",
            code="suspension_invalid",
            option="until",
        )
    read_moment(until)
    text = message or "waits for its time"
    return Suspension(message=text, action=TIMER, parameters=parameters, until=until, on_timeout="approve")


class Suspended(BaseException):
    """A tool stops to wait for a decision.

    Not an `Exception`, so that a tool that catches every exception does not catch this.
    """

    def __init__(self, suspension: Suspension) -> None:
        """Carry what the tool asks for."""
        self.suspension = suspension
        super().__init__(suspension.message)


class ChildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A child run as a tool requests it."""

    call: str
    tool: str
    ordinal: int  # from 1, in the order in which the attempt requests them
    agent: Any
    input: Any
    thread: str | None  # None: a thread of its own
    output: Any
    is_awaited: bool  # False: the tool blocks until the child is over


ChildRunner: TypeAlias = Callable[[ChildRequest], Coroutine[Any, Any, tuple[Any, ChildRef]]]
"""Runs a child to its end, or until it waits; returns its result, and which run it is."""


class Children:
    """The child runs of one attempt at a call."""

    def __init__(self, call: str, tool: str, runner: ChildRunner) -> None:
        """Start with none."""
        self.call, self._tool, self._runner = call, tool, runner
        self._lock = Lock()
        self._count = 0
        self._tasks: list[asyncio.Task[tuple[Any, ChildRef]]] = []
        self._waiting: list[ChildRef] = []

    def run(self, agent: object, input: object, *, thread: str | None, output: object) -> Any:
        """Run a child and return its result, or in a tool that is awaited something to await."""
        with self._lock:
            self._count += 1
            ordinal = self._count
        is_awaited = AWAITED.get() and asyncio.events._get_running_loop() is not None
        work = self._runner(
            ChildRequest(
                call=self.call,
                tool=self._tool,
                ordinal=ordinal,
                agent=agent,
                input=input,
                thread=thread,
                output=output,
                is_awaited=is_awaited,
            )
        )
        if not is_awaited:
            return self._result(*event_loop.drive(work))
        task = asyncio.create_task(work)
        self._tasks.append(task)
        return self._joined(task)

    async def end(self, *, cancel: bool) -> asyncio.CancelledError | None:
        """Wait for children that still run, with `cancel` after they were cancelled.

        Returns the cancellation of the waiting task, which cancels the children too.
        """
        cancelled: asyncio.CancelledError | None = None
        while left := [task for task in self._tasks if not task.done()]:
            if cancel:
                for task in left:
                    task.cancel()
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError as error:
                cancel, cancelled = True, error
        return cancelled

    def suspension(self) -> Suspension:
        """Return what the call waits for: the children that wait for a decision."""
        threads = ", ".join(f"'{child.thread}'" for child in self._waiting)
        awaited = AwaitedChildren(children=tuple(self._waiting))
        return Suspension(
            message=f"{self._tool} waits for a child run on {threads}",
            action=CHILD_RUN,
            parameters=canonical.encode_struct(awaited).decode(),
        )

    async def _joined(self, task: asyncio.Task[tuple[Any, ChildRef]]) -> Any:
        # A sibling that suspends the call cancels this; the child itself goes on to its end.
        return self._result(*await asyncio.shield(task))

    def _result(self, result: Any, child: ChildRef) -> Any:
        """Return the result of a child; suspend the call if the child waits."""
        if result.status != "waiting":
            return result
        with self._lock:
            self._waiting.append(child)
        raise Suspended(self.suspension())
