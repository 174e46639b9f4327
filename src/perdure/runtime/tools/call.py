"""Calls as a tool sees them: who it is, what state it can reach, and the ways out of it.

A tool that takes a parameter of type `Call` is handed one.  It is good for one attempt: when
that is over, the state behind it is closed, also to a thread that still runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, get_args, overload

import msgspec
from msgspec import UNSET

from perdure.errors import Invalid
from perdure.history.changes.values import Given
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.ticket import OnTimeout, Resume, Verdict
from perdure.runtime.tools.call_state import CallMap, CallMemory, CallStateView

__all__ = ["Call", "Outcome", "OutcomeKind", "Ruling", "Suspended", "Suspension"]

_T = TypeVar("_T")

OutcomeKind: TypeAlias = Literal["done", "not_done", "dont_know"]


class Outcome(msgspec.Struct, frozen=True):
    """What a reconcile hook found out about a call; made by `call.done`, `call.not_done`, `call.dont_know`."""

    kind: OutcomeKind
    result: Any = None  # what the tool would have returned; only where it is done
    why: str | None = None  # in words, where nobody knows


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody decided about a call that its tool had suspended."""

    verdict: Verdict
    value: Json = None  # the answer, or the edited arguments
    by: str | None = None
    why: str | None = None
    at: int = 0  # µs since 1970, UTC


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool asks for when it suspends its call: what its ticket will say."""

    message: str
    action: str = "approve"
    parameters: str | None = None  # JSON text
    response_schema: str | None = None  # JSON text
    expires_in_us: int | None = None  # None: it waits for ever
    on_timeout: OnTimeout = "expire"
    resume: Resume = "run"


class Suspended(BaseException):
    """A tool stops to wait for a decision.

    Not an `Exception`: a tool that catches whatever goes wrong shall not catch this.
    """

    def __init__(self, suspension: Suspension) -> None:
        """Carry what is asked for."""
        self.suspension = suspension
        super().__init__(suspension.message)


class Call:
    """One attempt at a call, as its tool sees it."""

    __slots__ = ("_state_view", "arguments", "attempt", "decision", "id", "key", "tool")

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
    ) -> None:
        """A call without a room has no state: reading or writing there raises `Invalid`."""
        self.id = id
        self.tool = tool  # its name
        self.key = key  # the same at every attempt; for services that take an idempotency key
        self.attempt = attempt  # 1 at first
        self.arguments: dict[str, Any] = dict(arguments or {})  # as JSON, validated, defaults filled
        self.decision = decision  # None: nobody was asked
        self._state_view = state_view

    def __repr__(self) -> str:
        """Which call, and which attempt."""
        return f"<Call {self.id!r} of {self.tool}, attempt {self.attempt}>"

    @overload
    def get(self, path: str, *, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, *, type: type[_T], default: Any = ...) -> _T: ...
    def get(self, path: str, *, type: Any = None, default: Any = UNSET) -> Any:
        """The value at `path` in the thread's state; `default` if there is none, else `NotFound`."""
        return self._at_hand().home(path).get(path, type=type, default=default)

    def put(self, path: str, value: Given, *, media_type: str | None = None) -> Digest:
        """Let `path` hold a JSON document, or bytes with a media type, in the thread's state; the value's digest."""
        return self._at_hand().home(path).put(path, value, media_type=media_type)

    def delete(self, path: str) -> None:
        """Let `path` hold nothing in the thread's state; raises `NotFound` if that is so already."""
        self._at_hand().home(path).delete(path)

    def paths(self, prefix: str = "/") -> list[str]:
        """The paths that `prefix` covers in the thread's state, sorted."""
        return self._at_hand().home(prefix).paths(prefix)

    @property
    def agent(self) -> CallMap:
        """The agent's own map, which all of its threads share."""
        return self._at_hand().agent

    @property
    def memory(self) -> CallMemory:
        """What is remembered for the thread's owner, across threads and agents: `add`, `search`, `forget`."""
        return self._at_hand().memory

    def read_artifact(self, reference: str) -> bytes:
        """The content of an artifact in the history of this line; raises `NotFound` for any other."""
        return self._at_hand().artifact(reference)

    @property
    def scratch(self) -> CallMap:
        """State of this call alone: it outlives a suspension and is gone when the call settles."""
        return self._at_hand().scratch

    def suspend(
        self,
        message: str,
        *,
        action: str = "approve",
        parameters: Mapping[str, Given] | None = None,
        response_schema: Mapping[str, Given] | None = None,
        expires_in: float | timedelta | None = None,
        on_timeout: OnTimeout = "expire",
        resume: Resume = "run",
    ) -> NoReturn:
        """Stop here and ask; what was decided is in `call.decision` when the tool runs again.

        Nothing after this line runs.  Suspend before anything outside was done: after a
        decision the tool starts from its first line.  `expires_in` is in seconds.
        """
        _check_choice("on_timeout", on_timeout, get_args(OnTimeout))
        _check_choice("resume", resume, get_args(Resume))
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
        """For a reconcile hook: it happened, and this is what the tool would have returned."""
        return Outcome("done", result)

    def not_done(self) -> Outcome:
        """For a reconcile hook: it did not happen."""
        return Outcome("not_done")

    def dont_know(self, why: str | None = None) -> Outcome:
        """For a reconcile hook: that cannot be found out."""
        return Outcome("dont_know", why=why)

    def close(self) -> None:
        """End the attempt: from now on its state can be neither read nor written through this call."""
        if self._state_view is not None:
            self._state_view.close()

    def _at_hand(self) -> CallStateView:
        if self._state_view is None:
            raise Invalid("this call has no state at hand; nothing was read or written.")
        return self._state_view


def _check_choice(what: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise Invalid(f"{what} is one of {', '.join(choices)}, not {given!r}; the call was not suspended.")


def _json_text(value: Mapping[str, Given] | None) -> str | None:
    return None if value is None else canonical.encode(dict(value)).decode()


def _microseconds(duration: float | timedelta | None) -> int | None:
    if duration is None:
        return None
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not 0 < seconds < 1e9:
        raise Invalid(
            f"expires_in is a number of seconds above 0, not {duration}; the call was not suspended."
        )
    return round(seconds * 1_000_000)
