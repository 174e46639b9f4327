"""Leaving a backend, as a program does it: one thread, or every thread of an agent.

Thin: `runtime.switching` owns the rules.
"""

from __future__ import annotations

from abc import ABC
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import Busy, Conflict, Invalid, PerdureError, Refused, ServerChanged
from perdure.providers.backend import Backend
from perdure.providers.contract import Model
from perdure.providers.profile import BackendRef, name_of
from perdure.store.plumbing import revisions
from perdure.store.plumbing.deferred import deferred
from perdure.store.plumbing.loop_guard import blocking
from perdure.store.runs import Runs
from perdure.switching.commit import reports, reports_of
from perdure.switching.current_backend import RecordedBackend
from perdure.switching.report import Report

if TYPE_CHECKING:
    from perdure.runtime.inference import backend as inference_backend
    from perdure.runtime.inference import switch
else:
    inference_backend = deferred("perdure.runtime.inference.backend")
    switch = deferred("perdure.runtime.inference.switch")

__all__ = ["ThreadMoved", "Switching", "moved"]


@blocking
class Switching(Runs, ABC):
    """A line whose backend can be changed in the middle of a task."""

    _handed: dict[RecordedBackend, BackendRef]

    @property
    def backend(self) -> str | None:
        """The backend that takes the next turn, as the line's history says; else the agent's own, None if it has none."""
        declared = self._declared.backend
        recorded = inference_backend.line_backend(self._env())
        if recorded is not None:
            return recorded.name
        return None if declared is None else name_of(declared)

    def check_switch(self, backend: str | Backend | Model, *, output: Any = None) -> Report:
        """What a switch to `backend` would keep, convert and remove, and whether the policy lets it pass.

        Nothing is written and nothing is sent.  `output` is the type that runs are asked for, if they are.
        """
        return switch.check(self._env(), switch.SwitchRequest(to=backend, output=output))

    def switch(
        self,
        backend: str | Backend | Model,
        *,
        reason: str | None = None,
        approved_by: str | None = None,
        output: Any = None,
        summariser: str | Backend | Model | None = None,
        op_id: str | None = None,
    ) -> Report:
        """Let `backend` take the turns from here on, by one commit; the report of what that keeps and loses.

        `summariser` is a model that says in its own words how things stand: that is kept, labelled, beside what
        was derived if every sentence of it can be traced to messages, else it is left out and a note says why.
        Raises `Refused(report)` if the agent's policy stops it (`approved_by` is who lets pass what needs
        an approval), `Busy` if a run is on the line, `NotFound` or `Unsupported` for a backend that
        cannot be.  Then nothing was written.  An undo takes a switch back.
        """
        asked = switch.SwitchRequest(
            to=backend,
            reason=reason,
            approved_by=approved_by,
            output=output,
            summariser=summariser,
            op_id=op_id,
        )
        report = switch.switch(self._env(), asked)
        if not isinstance(backend, str):
            recorded = RecordedBackend(report.to_backend, report.to_server)
            self._handed.pop(recorded, None)  # the newest is the last
            self._handed[recorded] = backend
        return report

    def switches(self, *, run: str | None = None, limit: int | None = None) -> list[Report]:
        """The switches of this line, oldest first; those that a run made along its route, if it is named.

        With a `limit` the last so many.
        """
        if limit is not None and (not isinstance(limit, int) or limit < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(f"a limit is a number from 0, or None for all, not {limit!r}; nothing was read.")
        at = self._now()[1]
        if run is not None:
            found = reports_of(self._space, run, revisions.resolve(self._space, self.head, run))
            return found if limit is None else found[-limit:] if limit else []
        return list(islice(reports(self._space, at), limit))[::-1]


class ThreadMoved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one thread when its agent was moved."""

    thread: str
    report: Report | None = None  # None: it could not even be looked at
    error: PerdureError | None = None  # why it was not moved

    @property
    def ok(self) -> bool:
        """Whether it is on the new backend, or could be."""
        return self.error is None and self.report is not None and self.report.ok


def moved(
    thread: Switching,
    backend: BackendRef,
    *,
    id: str,
    dry_run: bool,
    reason: str | None = None,
    approved_by: str | None = None,
) -> ThreadMoved:
    """Move one thread of several; that it cannot be moved is no reason not to move the others.

    One that is on that backend at another server stays: only a switch of that thread alone moves it.
    """
    try:
        report = thread.check_switch(backend)
        changed = _at_another_server(report)
        if dry_run or changed is not None:
            return ThreadMoved(thread=id, report=None if changed else report, error=changed)
        return ThreadMoved(thread=id, report=thread.switch(backend, reason=reason, approved_by=approved_by))
    except Refused as refused:
        report = refused.report if isinstance(refused.report, Report) else None
        return ThreadMoved(thread=id, report=report, error=refused)
    except (Busy, Conflict) as conflict:
        return ThreadMoved(thread=id, error=conflict)


def _at_another_server(report: Report) -> ServerChanged | None:
    """The error for a thread that is on that very backend, at another server than the name leads to here."""
    if report.from_backend != report.to_backend or report.from_server in (None, report.to_server):
        return None
    return ServerChanged(
        report.to_backend, recorded=report.from_server, resolved=report.to_server, thread=report.thread
    )
