"""Imports what is found at a path, source by source, and reports what was added, refused and passed over.

A source that cannot be read does not stop the others.  What was written stays, so the same call again goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

import msgspec

from perdure.errors import Invalid, NotFound, PerdureError, Unavailable
from perdure.integrations.importers.report import SessionReport
from perdure.integrations.importers.session import FORMATS, ForeignSession
from perdure.integrations.importers.sources import SessionSource, find_sources, format_of
from perdure.integrations.importers.write import write_session
from perdure.model import names
from perdure.store.store import Store

__all__ = ["import_sessions", "ImportProgress", "ImportReport", "RefusedSource"]

_OTHERS_NAMED = 3  # files that are no sessions
_ID_END_MIN = 8  # characters by which commands show an id


class RefusedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file or session that was not imported, or not to its end."""

    source: str
    code: str
    why: str
    error: PerdureError


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import added, session by session."""

    sessions: tuple[SessionReport, ...] = ()
    refused: tuple[RefusedSource, ...] = ()
    others: int = 0  # files that are no sessions
    others_first: tuple[str, ...] = ()  # the first few of them
    passed_over: tuple[str, ...] = ()  # all of them

    @property
    def messages(self) -> int:
        """How many messages were added."""
        return sum(each.messages for each in self.sessions)

    @property
    def calls(self) -> int:
        """How many calls were added."""
        return sum(each.calls for each in self.sessions)


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an import is."""

    sources: int  # files and servers that were found
    done: int  # of them
    sessions: int  # so far
    messages: int  # that were added so far
    source: str  # that was read last


def import_sessions(
    store: Store,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    agent: str | None = None,
    owner: str | None = None,
    thread: str | None = None,
    session: str | None = None,
    progress: Callable[[ImportProgress], None] | None = None,
) -> ImportReport:
    """Import the sessions at a path: a file, a directory, a SQLite database or the address of a PostgreSQL server.

    `format` is one of `FORMATS`; None finds it by the content.  A new thread belongs to `agent`; None: to an agent that is
    named like the format.  A thread that is there keeps its agent: `Conflict` if `agent` names another one.  A source that
    cannot be read is refused and listed while the others are imported; if it is the only one, its error is raised.
    So is a conversation of an export, while the others of its file are imported.
    `thread` is the id of the thread that the only session becomes, as for a copy that was edited; None: each is named by
    its format and id.  `session` is the id of the one that is imported, or the end of its id; None: all are.
    Raises `Invalid` if there is no session, and `NotFound` if none has that id, having written nothing.
    """
    if format is not None:
        names.check_choice("format", format, FORMATS)
    if store.read_only:
        raise Unavailable(
            "the store was opened read-only; nothing was imported.",
            code="opened_read_only",
            advice="Open it without read_only=True.",
        )
    sources, others = find_sources(path, format)
    sessions: list[SessionReport] = []
    refused: list[RefusedSource] = []
    kept: set[str] = set()
    for done, source in enumerate(sources, 1):
        try:
            for each in _read(source, session, thread, others_there=session is None and len(sources) > 1):
                if isinstance(each, Invalid):
                    refused.append(_refused(source, each))
                else:
                    kept |= each.kept
                    sessions.append(write_session(store, each, agent=agent, owner=owner))
        except PerdureError as error:
            if len(sources) == 1:
                raise
            refused.append(_refused(source, error))
        if progress is not None:
            added = sum(each.messages for each in sessions)
            progress(
                ImportProgress(
                    sources=len(sources),
                    done=done,
                    sessions=len(sessions),
                    messages=added,
                    source=source.place,
                )
            )
    if session is not None and not sessions and not refused:
        raise _not_found(path, session)
    return _report(sessions, refused, [each for each in others if each not in kept])


def _report(
    sessions: Sequence[SessionReport], refused: Sequence[RefusedSource], others: Sequence[str]
) -> ImportReport:
    return ImportReport(
        sessions=tuple(sessions),
        refused=tuple(refused),
        others=len(others),
        others_first=tuple(others[:_OTHERS_NAMED]),
        passed_over=tuple(others),
    )


def _not_found(path: str | os.PathLike[str], session: str) -> NotFound:
    return NotFound(
        f"no session in {os.fspath(path)} has the id '{session}'; nothing was imported.",
        code="session_not_found",
        advice="Import without it: each session becomes a thread of its own.",
        session=session,
    )


def _read(
    source: SessionSource, session: str | None, thread: str | None, *, others_there: bool
) -> Iterable[ForeignSession | Invalid]:
    """Read the sessions of a source: all, or the one with the id `session`; for a `thread` there must be only one."""
    found: Iterable[ForeignSession | Invalid] = format_of(source.format).read_sessions(source.place)
    if session is not None:
        found = (each for each in found if _is_named(each, session))
    return found if thread is None else _only(found, thread, others_there=others_there)


def _is_named(found: ForeignSession | Invalid, wanted: str) -> bool:
    """True for the session that has an id, or ends with it, as ids are shown in commands."""
    return isinstance(found, ForeignSession) and (
        found.id == wanted or (len(wanted) >= _ID_END_MIN and found.id.endswith(wanted))
    )


def _only(
    found: Iterable[ForeignSession | Invalid], thread: str, *, others_there: bool
) -> list[ForeignSession | Invalid]:
    """Return the one session, named as a thread; raises `Invalid` if there are others, here or in other sources."""
    every = list(found)
    for each in every:
        if others_there or len(every) > 1 or (isinstance(each, ForeignSession) and each.carried):
            raise Invalid(
                f"thread '{thread}' takes one session, and no graph of LangGraph, which goes on under its own id; "
                "nothing was imported.",
                code="session_not_for_thread",
                advice="Name one of them, or leave the thread out: each session becomes a thread of its own.",
                thread=thread,
            )
        if isinstance(each, Invalid):
            raise each
        each.thread = thread
    return every


def _refused(source: SessionSource, error: PerdureError) -> RefusedSource:
    return RefusedSource(source=source.place, code=error.code, why=str(error), error=error)
