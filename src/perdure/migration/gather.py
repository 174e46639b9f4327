"""Gathering the five layers of an agent's state at a commit, each as a pure fold of what is stored.

Reads the whole line and the whole ledger up to a position: made for comparing and auditing, not for
every turn.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.engines.contract import Step
from perdure.history import reader
from perdure.history.space import Space
from perdure.ledger.presence import stands_on
from perdure.memory import Recollection
from perdure.memory.judging import Judge
from perdure.migration import book
from perdure.migration.window import notes_under, read_working
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.digest import Digest
from perdure.model.event import MemoryWritten
from perdure.model.ticket import Ticket
from perdure.projections.runtime import RuntimeState, open_runs, runtime
from perdure.projections.state import CanonicalAgentState, Ledger, LongTermMemory, Memorised

__all__ = ["gather"]

_COUNTERS = "/__run/"


def gather(
    space: Space,
    commit: Digest | None,
    *,
    ledger: LedgerRead | None = None,
    memory: Recollection | None = None,
) -> CanonicalAgentState:
    """The state of the agent at a commit, None being before the first.

    `ledger` says how far to read the log of calls; None: as far as the commit itself had read it.
    `memory` is the owner's, as it is now; None: there is none, or it is not of this moment.
    """
    step = None if commit is None else space.step(commit)
    upto = (step.commit.ledger if step else NO_LEDGER) if ledger is None else ledger
    kept = book.whole(space, upto)
    line = list(reader.steps(space, commit))[::-1]
    calls, tickets = tuple(kept.calls.values()), tuple(kept.tickets.values())
    return CanonicalAgentState(
        conversation=space.label,
        commit=commit,
        transcript=tuple(reader.transcript(space, commit)),
        ledger=Ledger(calls=calls, tickets=tickets),
        working=read_working(space, commit),
        memory=LongTermMemory(items=_items(space, commit, memory), written=_written(line)),
        runtime=_runtime(space, line, commit, Ledger(calls=calls, tickets=tickets)),
    )


def _runtime(space: Space, line: Iterable[Step], commit: Digest | None, ledger: Ledger) -> RuntimeState:
    waiting = [ticket for ticket in ledger.tickets if _waits(space, ticket, commit)]
    runs = open_runs(step.changeset for step in line)
    return runtime(runs, ledger.calls, waiting, notes_under(space, commit, _COUNTERS))


def _waits(space: Space, ticket: Ticket, commit: Digest | None) -> bool:
    return ticket.decision is None and stands_on(space, ticket.label, commit)


def _items(space: Space, commit: Digest | None, memory: Recollection | None) -> tuple[Memorised, ...]:
    if memory is None:
        return ()
    judged = Judge(memory, None, (space.name, commit)).items()
    return tuple(Memorised(each.id, each.entry.value) for each in judged)


def _written(line: Iterable[Step]) -> tuple[str, ...]:
    return tuple(
        event.item for step in line for event in step.changeset.events if isinstance(event, MemoryWritten)
    )
