"""The history of one path: every commit that changed what it holds, or what is at a place inside its document.

The walk goes back from a moment along the timeline, one commit after another, and reads values only where a commit has
written the path.  A long history is walked in parts: `PathLog.of` stops at a limit, or when its caller has no more time,
and says from which commit it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import Forgotten
from perdure.history.changes.json_edits import Place, read
from perdure.history.changes.patch_builder import Touched
from perdure.history.query import is_beside_run
from perdure.history.tree import Entry
from perdure.model import canonical
from perdure.model.digest import Digest
from perdure.shapes.conversation import input_at
from perdure.shapes.store import StateOf, whose
from perdure.shapes.text import in_short, preview, stamp
from perdure.store.agents import AgentMap
from perdure.store.plumbing.revisions import LogEntry
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["PathLog", "PathVersion"]

_COMMITS_AT_ONCE = 100
_VALUE_BYTES_MAX = 4_096  # of a value that is part of the answer


class PathVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One commit that wrote the path, and what the path held then; all null: nothing."""

    commit: str
    before: str | None  # the commit before it; null: it is the first
    turn: int  # in which, or after which, it was written; 0: before the first message
    apart: bool  # it belongs to no message: an edit, a switch, a merge or a cherry-pick, after that turn
    reason: str
    input: str  # what the user said in its turn; empty: it belongs to no message
    at: str
    run: str | None
    beside_run: bool  # a program wrote it while that run was under way
    digest: str | None  # of the document as a whole, as is `size`
    size: int | None
    preview: str | None
    forgotten: bool  # a retention policy has removed what it held
    value: Any = UNSET  # over HTTP: what was at the place, if it is a short JSON value


class PathLog(StateOf, frozen=True, kw_only=True):
    """The commits that wrote a path, newest first."""

    path: str
    place: list[str | int]  # inside the document; empty: the document as a whole
    versions: list[PathVersion]
    more: bool  # whether there are older ones beyond the limit

    @classmethod
    def of(
        cls,
        line: Thread | AgentMap,
        seen: View,
        path: str,
        place: Place = (),
        *,
        limit: int,
        is_late: Callable[[], bool] = lambda: False,
        has_values: bool = False,
    ) -> tuple[Self, Digest | None]:
        """Return the changes up to the moment of `seen`, and the commit to go on from; None: there is nothing older.

        `limit` 0 takes all.  The walk ends early when `is_late`, so that there may be fewer, and older ones all the same.
        """
        found: list[LogEntry] = []
        more: Digest | None = None
        for entry, is_change in _writers(seen, path, place):
            if limit and len(found) == limit and is_change:
                more = _parent(found[-1])
                break
            found += [entry] * is_change
            if is_late():
                more = _parent(entry)
                break
        versions = list(_versions(seen, path, place, found, has_values=has_values))
        page = cls(**whose(line), path=path, place=list(place), versions=versions, more=more is not None)
        return page, more


def _parent(entry: LogEntry) -> Digest | None:
    return entry.parents[0] if entry.parents else None


def _writers(seen: View, path: str, place: Place) -> Iterator[tuple[LogEntry, bool]]:
    """Yield the commits of the timeline, newest first, and whether each changed what is at the place."""
    while entries := seen.log(limit=_COMMITS_AT_ONCE):
        for entry in entries:
            touched = Touched()
            touched.add_ops(entry.patch.ops)
            yield entry, touched.covers(path) and _is_change(seen, entry, path, place)
        seen = seen.at(_parent(entries[-1]))


def _is_change(seen: View, entry: LogEntry, path: str, place: Place) -> bool:
    """True if a commit left another value at the place than it found, or if these values are forgotten."""
    try:
        return _value_at(seen.at(entry), path, place) != _value_at(seen.at(_parent(entry)), path, place)
    except Forgotten:
        return True


def _value_at(view: View, path: str, place: Place) -> Entry | bytes | None:
    """Return what is at the place, in canonical bytes, which differ for 1 and true; None: nothing."""
    if not place:
        return _held(view, path)
    found = read(view.get(path, default=None), place)
    return None if isinstance(found, UnsetType) else canonical.encode(found)


def _versions(
    seen: View, path: str, place: Place, written: Sequence[LogEntry], *, has_values: bool
) -> Iterator[PathVersion]:
    """Yield what the path held after each of these commits, newest first.

    It held it until the next of them.  A policy forgets older states first, so the last moment is read before the first.
    """
    last = seen
    for entry in written:
        then = seen.at(entry)
        yield _version(entry, path, place, (last, then), has_values=has_values)
        last = seen.at(_parent(entry))


def _version(
    entry: LogEntry, path: str, place: Place, moments: Sequence[View], *, has_values: bool
) -> PathVersion:
    held, shown, value, is_forgotten = None, None, UNSET, True
    for then in moments:
        with suppress(Forgotten):
            held = _held(then, path)
            shown, value = _shown(then, held, place) if held else (None, UNSET)
            is_forgotten = False
            break
    turn = (event for each in _run_so_far(moments[-1], entry.run) for event in each.events)
    beside_run = is_beside_run(entry.run, entry.reason, turn)
    return PathVersion(
        commit=entry.digest,
        before=_parent(entry),
        turn=entry.turn,
        apart=entry.is_apart,
        reason=entry.reason,
        input="" if beside_run else input_at(moments[-1]),
        at=stamp(entry.at),
        run=entry.run,
        beside_run=beside_run,
        digest=held.value if held else None,
        size=held.size if held else None,
        preview=shown,
        forgotten=is_forgotten,
        value=value if has_values else UNSET,
    )


def _run_so_far(then: View, run: str | None) -> Iterator[LogEntry]:
    """Yield the commits of a run up to the moment `then`, newest first."""
    while run is not None and (entries := then.log(limit=_COMMITS_AT_ONCE)):
        for entry in entries:
            if entry.run != run:
                return
            yield entry
        then = then.at(_parent(entries[-1]))


def _shown(view: View, held: Entry, place: Place) -> tuple[str | None, Any]:
    """Return what was at the place, on one line, and the value if it is short JSON; None: nothing was there."""
    if held.form != "json" or (not place and held.size > _VALUE_BYTES_MAX):
        return preview(view, held), UNSET
    found = read(view.get(held.path), place)
    if isinstance(found, UnsetType):
        return None, UNSET
    is_short = len(canonical.encode(found)) <= _VALUE_BYTES_MAX
    return in_short(found), found if is_short else UNSET


def _held(view: View, path: str) -> Entry | None:
    return next((entry for entry in view.entries(path) if entry.path == path), None)
