"""Roots: what must stay of a space under a policy, and how to tell that it has changed since.

Roots are the heads of all timelines, sealed ones included; moves within retention; whatever
the ledger and the cells mention (open outboxes, listed artifacts, checkpoints); and what
commits of other spaces have read here.

A move carries no time of its own.  What an undo left behind counts as undone since the first
commit that was made on the timeline afterwards; while there is none it can be redone, and stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import msgspec

from holdfast.engines.contract import Engine, Entry, Hold
from holdfast.history import references
from holdfast.history.digests import Digests
from holdfast.history.scan import spaces, whole_pages
from holdfast.history.space import Space
from holdfast.model.commit import Act, MoveRecord, decode_commit
from holdfast.model.digest import Digest, Kind

__all__ = ["Standing", "read_elsewhere", "roots", "standing", "undone_roots"]

_PAGE = 200


class Standing(msgspec.Struct, frozen=True):
    """Everything of a space that decides what must stay, in short."""

    seal: str  # over heads and cells
    position: int  # of the ledger


def standing(space: Space, before: Standing | None = None) -> Standing:
    """How the space stands now; `before` spares reading the ledger from its beginning."""
    seal = sha256()
    for hold in _holds(space):
        seal.update(repr((hold.head, hold.sealed)).encode())
    for name, revision, _ in _cells(space):
        seal.update(repr((name, revision)).encode())
    position = before.position if before else 0
    for entry in _entries(space, position):
        position = entry.position
    return Standing(seal.hexdigest(), position)


def roots(space: Space) -> Iterator[Digest]:
    """What must stay under any policy, commits and other things; some may not be of this space."""
    for hold in _holds(space):
        yield from (hold.head.commit,) if hold.head.commit else ()
    for name, _, value in _cells(space):
        yield from references.mentioned(name.encode())
        yield from references.mentioned(value)
    for entry in _entries(space, 0):
        yield from references.mentioned(entry.body)


def undone_roots(space: Space, since: int) -> Iterator[Digest]:
    """The commits that heads have left and that must stay: undone after `since`, or still to be redone."""
    for hold in _holds(space):
        later: Digest | None = None  # the first commit that was made after the move at hand
        for move in _moves(space, hold.head.timeline):
            if move.act is Act.COMMIT:
                later = move.to
            elif move.from_ is not None and (later is None or space.step(later).commit.at >= since):
                yield move.from_


def read_elsewhere(engine: Engine) -> Digests:
    """The roots and commits of agents and owners that commits of any space have read; raises `Corrupt`."""
    found = Digests()
    for space in spaces(engine):
        for page in whole_pages(engine, space):
            for fact in page:
                if fact.kind == Kind.COMMIT and fact.object is not None:
                    reads = decode_commit(fact.object.body).reads
                    named = (reads.agent_root, reads.agent_commit, reads.memory_root)
                    found.update(digest for digest in named if digest)
    return found


def _holds(space: Space) -> Iterator[Hold]:
    after = ""
    while page := space.engine.holds(space.name, after=after, limit=_PAGE):
        yield from page
        after = page[-1].head.timeline


def _moves(space: Space, timeline: str) -> Iterator[MoveRecord]:
    """The moves of a timeline, newest first."""
    before: int | None = None
    while page := space.engine.moves(space.name, timeline, before=before, limit=_PAGE):
        yield from page
        before = page[-1].version


def _cells(space: Space) -> Iterator[tuple[str, int, bytes]]:
    after = ""
    while page := space.engine.cells(space.name, after=after, limit=_PAGE):
        yield from ((cell.name, cell.revision, cell.value or b"") for cell in page)
        after = page[-1].name


def _entries(space: Space, position: int) -> Iterator[Entry]:
    while page := space.engine.entries(space.name, after=position, limit=_PAGE):
        yield from page
        position = page[-1].position
