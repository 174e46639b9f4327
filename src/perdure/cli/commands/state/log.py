"""`perdure state log`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

import msgspec
from msgspec import UnsetType

from perdure.cli.commands.state.target import line_of, words
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import guessing, paths_like
from perdure.cli.options import (
    EVERYWHERE,
    AgentName,
    At,
    Everywhere,
    Limit,
    PlaceInside,
    StatePath,
    ThreadOrPath,
    Timeline,
)
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import moment, the_last
from perdure.cli.output.screen import Cell, Column, Screen
from perdure.errors import Forgotten
from perdure.history.changes.json_edits import Place, parse_place, read
from perdure.history.changes.patch_builder import Touched
from perdure.history.tree import Entry
from perdure.model import canonical
from perdure.model.head import MAIN
from perdure.shapes.conversation import input_at
from perdure.shapes.store import StateOf, whose
from perdure.shapes.text import in_short, preview, stamp
from perdure.store.plumbing.revisions import LogEntry
from perdure.store.view import View

__all__ = ["PathLog", "PathVersion", "log"]

_PAGE = 100
_COLUMNS = (
    Column("turn", right=True),
    Column("value", gives_way=True, wraps=True),
    Column("said, or reason", "name", gives_way=True),
    Column("when", "when", leaves=1),
    Column("commit", "digest"),
)


class PathVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One commit that wrote the path, and what the path held then; all null: nothing."""

    commit: str
    turn: int  # in which, or after which, it was written; 0: before the first message
    reason: str
    input: str  # what the user said in its turn; empty: it belongs to no message
    at: str
    run: str | None
    digest: str | None  # of the document as a whole, as is `size`
    size: int | None
    preview: str | None
    forgotten: bool  # a retention policy has removed what it held


class PathLog(StateOf, Answer, frozen=True, kw_only=True):
    """The commits that wrote a path, newest first."""

    path: str
    place: list[str | int]  # inside the document; empty: the document as a whole
    versions: list[PathVersion]
    more: bool  # whether there are older ones beyond the limit

    def show(self, screen: Screen) -> None:
        """Print a table."""
        screen.table(
            _COLUMNS,
            [
                (
                    str(each.turn or ""),
                    _shown(each),
                    each.input or each.reason,
                    moment(each.at),
                    digest(each.commit),
                )
                for each in self.versions
            ],
        )
        if self.more:
            screen.say((f"{the_last(len(self.versions), 'version')}; --limit 0 shows all.", "quiet"))


def log(
    thread: ThreadOrPath = None,
    path: StatePath = None,
    /,
    *,
    agent: AgentName = None,
    place: PlaceInside = None,
    limit: Limit = 20,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> PathLog:
    """Show every value that a path has had, newest first

    With --place only the commits that changed this place inside the document are shown, with what they left there.
    """
    thread, path = words(agent, thread, path, needed=1)
    assert path is not None
    with reading(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        seen = view_at(line, at)
        inside = () if place is None else parse_place(place)
        written = _changers(seen, path, inside)
        found, more = cut_off(list(islice(written, limit + 1 if limit else None)), limit)
        if not found:
            with guessing(path, lambda: paths_like(seen, path)):
                seen.blame(path, place=inside)  # says that there is nothing, in the usual words
        versions = list(_versions(seen, path, inside, found))
        return PathLog(**whose(line), path=path, place=list(inside), versions=versions, more=more)


def _writers(seen: View, path: str) -> Iterator[LogEntry]:
    """Yield the commits of the timeline that wrote `path`, newest first."""
    while entries := seen.log(limit=_PAGE):
        for entry in entries:
            touched = Touched()
            touched.add_ops(entry.patch.ops)
            if touched.covers(path):
                yield entry
        last = entries[-1]
        seen = seen.at(last.parents[0] if last.parents else None)


def _changers(seen: View, path: str, place: Place) -> Iterator[LogEntry]:
    """Yield the writers that left another value at the place than they found, or whose values are forgotten."""
    for entry in _writers(seen, path):
        moments = (seen.at(entry), seen.at(entry.parents[0] if entry.parents else None))
        try:
            after, before = (_value_at(then, path, place) for then in moments)
        except Forgotten:
            yield entry
        else:
            if after != before:
                yield entry


def _value_at(view: View, path: str, place: Place) -> Entry | bytes | None:
    """Return what is at the place, in canonical bytes, which differ for 1 and true; None: nothing."""
    if not place:
        return _held(view, path)
    found = read(view.get(path, default=None), place)
    return None if isinstance(found, UnsetType) else canonical.encode(found)


def _versions(seen: View, path: str, place: Place, written: Sequence[LogEntry]) -> Iterator[PathVersion]:
    """Yield what the path held after each of these commits, newest first.

    It held it until the next of them.  A policy forgets older states first, so the last moment is read before the first.
    """
    last = seen
    for entry in written:
        then = seen.at(entry)
        yield _version(entry, path, place, (last, then), input_at(then))
        last = seen.at(entry.parents[0] if entry.parents else None)


def _version(entry: LogEntry, path: str, place: Place, moments: Sequence[View], said: str) -> PathVersion:
    held = shown = None
    is_forgotten = True
    for then in moments:
        with suppress(Forgotten):
            held = _held(then, path)
            shown, is_forgotten = _preview(then, held, place) if held else None, False
            break
    return PathVersion(
        commit=entry.digest,
        turn=entry.turn,
        reason=entry.reason,
        input=said,
        at=stamp(entry.at),
        run=entry.run,
        digest=held.value if held else None,
        size=held.size if held else None,
        preview=shown,
        forgotten=is_forgotten,
    )


def _preview(view: View, held: Entry, place: Place) -> str | None:
    """Return what was at the place, on one line; None: nothing."""
    if not place:
        return preview(view, held)
    found = read(view.get(held.path), place)
    return None if isinstance(found, UnsetType) else in_short(found)


def _shown(version: PathVersion) -> Cell:
    if version.forgotten:
        return ("forgotten", "quiet")
    return version.preview if version.preview is not None else ("removed", "removed")


def _held(view: View, path: str) -> Entry | None:
    return next((entry for entry in view.entries(path) if entry.path == path), None)
