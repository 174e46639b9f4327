"""Folds the runtime state at one commit: runs that have not ended, attempts, approvals, locks.

All of it is data of the line and of the ledger.  The holder of a lease is not part of it: that depends on
a process and a clock, not on a history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from perdure.model.call import SETTLED, UNCLEAR, CallRecord
from perdure.model.commit import Changeset
from perdure.model.event import MessageAppended, RunFinished, RunStarted
from perdure.model.ticket import Ticket
from perdure.projections.working_memory import Note

__all__ = ["Attempt", "OpenRun", "RuntimeState", "open_runs", "runtime"]


class OpenRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of this line that has begun and not ended."""

    run: str
    agent: str
    backend: str | None = None
    steps: int = 0  # messages of a model in it
    state: Literal["running", "waiting"] = "running"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that is not settled, and how many times it was started."""

    call: str
    state: str
    attempt: int = 0


class RuntimeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Steps, retries, pending approvals and locks at one commit."""

    runs: tuple[OpenRun, ...] = ()  # in the order in which they began
    attempts: tuple[Attempt, ...] = ()  # by call
    approvals: tuple[str, ...] = ()  # tickets that wait, by id
    locks: tuple[str, ...] = ()  # fingerprints of external writes that no other call may start now
    counters: tuple[Note, ...] = ()  # state that runs hold about themselves, by path


def open_runs(changesets: Iterable[Changeset]) -> list[OpenRun]:
    """Return the runs of a line, given oldest first, that have not ended."""
    begun: dict[str, OpenRun] = {}
    steps: Counter[str] = Counter()
    for changeset in changesets:
        run = changeset.run_id
        for event in changeset.events:
            match event:
                case RunStarted(agent=agent, backend=backend) if run:
                    begun[run] = OpenRun(run=run, agent=agent, backend=backend)
                case RunFinished() if run:
                    begun.pop(run, None)
                case MessageAppended(role="assistant") if run:
                    steps[run] += 1
                case _:
                    pass
    return [msgspec.structs.replace(each, steps=steps[each.run]) for each in begun.values()]


def runtime(
    runs: Iterable[OpenRun],
    calls: Iterable[CallRecord],
    tickets: Iterable[Ticket],
    counters: Iterable[Note],
) -> RuntimeState:
    """Return the runtime state from these parts; `tickets` are those that wait."""
    waiting = sorted(tickets, key=lambda ticket: ticket.id)
    waiting_runs = {ticket.run for ticket in waiting}
    unsettled = sorted((call for call in calls if call.state not in SETTLED), key=lambda call: call.id)
    return RuntimeState(
        runs=tuple(_with_state(run, waiting_runs) for run in runs),
        attempts=tuple(Attempt(call=call.id, state=call.state, attempt=call.attempt) for call in unsettled),
        approvals=tuple(ticket.id for ticket in waiting),
        locks=tuple(sorted({call.fingerprint for call in unsettled if _locks(call)})),
        counters=tuple(counters),
    )


def _with_state(run: OpenRun, waiting: set[str | None]) -> OpenRun:
    return msgspec.structs.replace(run, state="waiting") if run.run in waiting else run


def _locks(call: CallRecord) -> bool:
    return (
        bool(call.fingerprint) and call.reach.guarded and (call.state == "started" or call.state in UNCLEAR)
    )
