"""Calls of child runs in the ledger of the root thread, whose repeat guard checks them too.

A child run has a thread and a ledger of its own.  Before one of its external writes starts, the root thread's ledger
gets an entry for it, in the write that passes the gate of its fingerprint.  So an equal call of the root, of another
child or of a fork is stopped, whoever makes it and whichever of the two starts first.

If a process ends between that entry and the start in the child's own ledger, the call counts as started: it may be
about to start.  What became of the call is in the child's ledger, and the guard reads it there; `settle` copies it to
the entry, so that a reader of the root thread sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from perdure.errors import Moved
from perdure.history import reader
from perdure.history.space import Space
from perdure.ledger import calls, repeat_guard, tickets
from perdure.ledger.repeat_guard import MayStart, Policy, Verdict
from perdure.model.call import SETTLED, UNCLEAR, CallRecord, CallState
from perdure.model.digest import Kind, Object
from perdure.model.run import ParentCall
from perdure.model.ticket import Ticket
from perdure.runtime.session import records

__all__ = ["check", "describe_equal", "enter", "root_of", "settle", "settle_call"]

# How the entry gets from `started` to the state of the call itself; a call that was asked about and then not made
# has failed here.
_STATES: dict[CallState, tuple[CallState, ...]] = {
    "succeeded": ("succeeded",),
    "failed": ("failed",),
    "denied": ("failed",),
    "expired": ("failed",),
    "cancelled": ("failed",),
    "unknown": ("unknown",),
    "needs_human": ("unknown", "needs_human"),
    "resolved": ("unknown", "resolved"),
}


def check(
    space: Space, parent: ParentCall, record: CallRecord, *, policy: Policy, ticket: Ticket | None
) -> Verdict:
    """Decide whether the root thread's repeat guard lets a call of a child run start; `space` is the child's."""
    root = root_of(space, parent)
    return repeat_guard.check(
        root,
        msgspec.structs.replace(record, timeline=parent.root_timeline),
        head=reader.head_of(root, parent.root_timeline).commit,
        backend=record.backend,
        policy=policy,
        seen=repeat_guard.seen(record, ticket, in_root=True),
        child=space,
    )


def describe_equal(space: Space, parent: ParentCall | None, record: CallRecord) -> str | None:
    """Return what to tell a person of equal calls before this one, in this thread and in the root thread of a child."""
    spaces = (space,) if parent is None else (space, root_of(space, parent))
    return tickets.describe_equal(spaces, record)


def enter(space: Space, parent: ParentCall, record: CallRecord, verdict: MayStart) -> None:
    """Record in the root thread's ledger that a call of a child run starts, which the guard has allowed.

    Raises `Moved`, having written nothing, if an equal call has started since the guard was asked.
    """
    root = root_of(space, parent)
    current, now = calls.find(root, record.id), space.clock()
    if current is None:
        entry = CallRecord(
            id=record.id,
            tool=record.tool,
            state="proposed",
            args=record.args,
            args_size=record.args_size,
            at=now,
            fingerprint=record.fingerprint,
            effect=record.effect,
            idempotent=record.idempotent,
            version=record.version,
            timeline=parent.root_timeline,
            backend=record.backend,
            origin="child",
            parent_call=parent.root_call,
            child_space=space.name,
        )
        transition = calls.propose(entry, "requested", "started")
        transition = transition.also(objects=(Object.of(Kind.BODY, space.body(record.args)),))
    elif current.record.state in UNCLEAR:
        transition = calls.advance(current, "requested", "started", at=now)
    else:
        return  # an attempt that was cut off has entered it
    calls.post(root, (transition.also(cells=repeat_guard.starting(record, verdict)),))


def settle(space: Space, parent: ParentCall, made: Sequence[CallRecord]) -> None:
    """Copy what became of calls of a child run to their entries in the root thread's ledger."""
    root = root_of(space, parent)
    wanted = [record for record in made if record.reach.guarded and record.attempt]
    for record, current in zip(wanted, calls.find_many(root, [each.id for each in wanted]), strict=True):
        states = _STATES.get(record.state)
        before = None if current is None else current.record.state
        if current is None or states is None or before in SETTLED or before == record.state:
            continue
        if before in UNCLEAR:
            states = ("needs_human",) if record.state == "needs_human" else states[-1:]
        if before in UNCLEAR and states == ("failed",):
            states = ("requested", "failed")
        with suppress(Moved):  # another process has copied it
            calls.post(
                root,
                (
                    calls.advance(
                        current,
                        *states,
                        at=space.clock(),
                        status=record.status,
                        outcome=record.outcome,
                        why=record.why,
                    ),
                ),
            )


def settle_call(space: Space, record: CallRecord) -> None:
    """Copy what became of one call to the root thread's ledger, if a child run made it."""
    run = records.find(space, record.run) if record.run is not None and record.reach.guarded else None
    if run is not None and run.record.parent is not None:
        settle(space, run.record.parent, (record,))


def root_of(space: Space, parent: ParentCall) -> Space:
    """Return the space of the root thread of a child run, whose call `parent` is; `space` is the child's."""
    return space.beside(parent.root_space, parent.root_thread)
