"""Says what the import of one session added, and what of the source is not in the thread as it was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure.integrations.importers.session import ForeignSession, SourcePart
from perdure.providers.contract import Loss
from perdure.store.thread import Thread

__all__ = ["CopyEnd", "SessionReport", "checkpoint_aside", "reply_in_two", "report_of"]


class CopyEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The last message of an older copy of a session."""

    timeline: str  # that has it
    message: int  # its number there, from 1
    messages: int  # how many the timeline has


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of importing one session."""

    format: str
    session: str
    source: str
    thread: str | None  # None: it has no message, so it made no thread
    timelines: tuple[str, ...] = ()  # that have new messages
    messages: int = 0  # that were added
    calls: int = 0
    calls_unknown: int = 0  # of them, those without a result: their outcomes are unknown
    unmapped: Mapping[str, int] = {}  # what has no place in a transcript, by kind
    losses: tuple[Loss, ...] = ()
    edited: tuple[str, ...] = ()  # places in the source that say something else than when they were imported
    torn: bool = False  # the last line was not complete; it is read when it is
    current: str | None = None  # the timeline with the line that is current in the source; None: main has it
    older_copy: CopyEnd | None = None  # where a source ends that has nothing new, and less than one before


def report_of(session: ForeignSession) -> SessionReport:
    """Return the report of a session of which nothing was written yet."""
    return SessionReport(
        format=session.format,
        session=session.id,
        source=session.source,
        thread=None,
        unmapped=dict(sorted(session.unmapped.items())),
        losses=tuple(session.losses),
        torn=session.torn,
    )


def checkpoint_aside(line: Thread | None, new: Sequence[str]) -> Loss:
    """Return what the report says of a newest checkpoint that is not where the saver goes on."""
    if line is None:
        messages = f"; its messages are on {', '.join(new)}" if new else ""
        why = f"the graph has gone on here, so it goes on from its own state{messages}"
        return Loss(kind="dropped", where="the newest checkpoint", what="checkpoint", why=why)
    why = f"its messages do not follow main's, so it is on the timeline '{line.timeline}', and a graph goes on from main"
    return Loss(kind="converted", where="the newest checkpoint", what="checkpoint", why=why)


def reply_in_two(part: SourcePart) -> Loss:
    """Return what the report says of a reply that was not complete at the import before."""
    why = "its beginning was imported before it was complete, so the rest is a message of its own"
    return Loss(kind="converted", where=part.where, what="reply", why=why)
