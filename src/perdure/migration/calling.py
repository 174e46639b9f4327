"""Tool calls in a checkpoint: what was done, never to be replayed, and what waits for somebody.

Every external write that the last entries are about is listed: also one of another line of the
thread, or one that was undone since, because the world does not know of lines.  Those before them are
counted by tool, and none is left out.  Of other calls the last few of this line are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.errors import Forgotten
from perdure.history.space import Space
from perdure.ledger.decisions import took_in
from perdure.migration.book import Known
from perdure.migration.earlier import outcome_of
from perdure.migration.rules import shortened
from perdure.migration.window import Window, is_behind, is_said
from perdure.model.call import CallRecord
from perdure.model.checkpoint import Done, Many, Pending
from perdure.model.digest import Digest
from perdure.model.ticket import Ticket

__all__ = ["ARGS_MAX", "CALLS_MAX", "counted", "digest_of_calls", "pending"]

CALLS_MAX = 16  # other calls that are listed, the newest
ARGS_MAX = 400  # characters of the arguments of one call
MESSAGE_MAX = 400

_FORGOTTEN = "(forgotten)"


def digest_of_calls(space: Space, seen: Window, commit: Digest | None) -> tuple[tuple[Done, ...], int]:
    """The calls to be told of, oldest first, and how many of those that were read are left out."""
    writes = [known for known in seen.stand.calls if known.record.reach.guarded]
    others = [known for known in seen.stand.calls if not known.record.reach.guarded]
    here = _last_here(space, seen, others, commit)
    listed = sorted((*writes, *here), key=lambda known: known.position)
    args = _bodies(space, [known.record.args for known in listed])
    done = tuple(
        _done(known.record, args[known.record.args], elsewhere=not _is_here(space, seen, known, commit))
        for known in listed
    )
    return done, len(seen.stand.calls) - len(done)


def counted(space: Space, seen: Window, commit: Digest | None) -> tuple[Many, ...]:
    """The external writes before those that are listed, by tool and by what became of them."""
    records = [record for group in seen.earlier.groups for record in group.named]
    args = _bodies(space, [record.args for record in records])
    return tuple(
        Many(
            tool=group.tool,
            count=group.count,
            calls=tuple(
                _done(
                    record,
                    args[record.args],
                    elsewhere=not is_behind(space, seen, record.label, commit),
                )
                for record in group.named
            ),
        )
        for group in seen.earlier.groups
    )


def pending(space: Space, seen: Window, commit: Digest | None, timeline: str) -> tuple[Pending, ...]:
    """Every approval that is seen from the commit and still to be given on that timeline.

    A call by hand waits before anything of it is committed, so it is seen from everywhere.  What was
    decided on another timeline waits here still, unless the decision came along with the history, or
    it was decided here too, by a copy of the call.
    """
    copied = {known.record.copied_from for known in seen.stand.calls if known.record.timeline == timeline}
    waiting = [
        ticket
        for ticket in seen.stand.waiting
        if ticket.label is None or _by_hand(ticket) or is_said(space, seen, ticket.label, commit)
    ]
    waiting += [
        ticket
        for ticket in seen.stand.decided
        if ticket.call not in copied
        and is_said(space, seen, ticket.label, commit)
        and not took_in(space, ticket, commit)
    ]
    args = _bodies(space, [ticket.args for ticket in waiting])
    return tuple(
        Pending(
            ticket=ticket.id,
            call=ticket.call,
            tool=ticket.tool,
            message=shortened(ticket.message, MESSAGE_MAX),
            args=args[ticket.args],
        )
        for ticket in waiting
    )


def _by_hand(ticket: Ticket) -> bool:
    return ticket.run is not None and ticket.label == ticket.run


def _last_here(space: Space, seen: Window, others: Sequence[Known], commit: Digest | None) -> list[Known]:
    found: list[Known] = []
    for known in reversed(others):
        if len(found) == CALLS_MAX:
            break
        if _is_here(space, seen, known, commit):
            found.append(known)
    return found


def _is_here(space: Space, seen: Window, known: Known, commit: Digest | None) -> bool:
    return is_behind(space, seen, known.record.label, commit)


def _done(record: CallRecord, args: str, *, elsewhere: bool) -> Done:
    return Done(
        call=record.id,
        tool=record.tool,
        args=args,
        effect=record.effect,
        idempotent=record.idempotent,
        state=record.state,
        outcome=outcome_of(record),
        result_ref=record.result or record.evidence,
        idempotency_key=record.key if record.reach.writes else None,
        backend=record.backend,
        elsewhere=elsewhere,
    )


def _bodies(space: Space, digests: Iterable[Digest]) -> dict[Digest, str]:
    """The arguments of calls, each cut where it is long."""
    wanted = list(dict.fromkeys(digests))
    try:
        found: list[bytes | None] = list(space.nodes(wanted))
    except Forgotten:
        found = [_body(space, digest) for digest in wanted]
    return {digest: _shown(body) for digest, body in zip(wanted, found, strict=True)}


def _body(space: Space, digest: Digest) -> bytes | None:
    try:
        return space.body(digest)
    except Forgotten:
        return None


def _shown(body: bytes | None) -> str:
    return _FORGOTTEN if body is None else shortened(body.decode("utf-8", "replace"), ARGS_MAX)
