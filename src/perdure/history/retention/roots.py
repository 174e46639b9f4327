"""Roots: what must stay of a space under a policy.

Roots are the heads of all timelines, sealed ones included; moves within retention; whatever
the ledger and the cells mention (open outboxes, listed artifacts, uploads under way); and what
commits of other spaces have read here.

A move carries no time of its own.  What a head has left counts as left since the first commit
that was made on its timeline afterwards; while there is none it can be redone, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice

import msgspec

from perdure.engines.contract import Cell, Entry, Hold
from perdure.errors import Forgotten
from perdure.history import reader, references
from perdure.history.artifacts import UPLOAD, upload_of
from perdure.history.retention.policy import Policy
from perdure.history.space import Space
from perdure.model.commit import Act, MoveRecord
from perdure.model.digest import Digest

__all__ = ["Left", "abandoned", "left_behind", "roots"]

_PAGE = 200
_ASKED = 50
_PATCH = re.compile(rb'"(?:agent_)?patch":"([0-9a-f]{64})"')  # in an entry: what a call changes


class Left(msgspec.Struct, frozen=True):
    """A commit that a head has left, and whether it was long enough ago for it to go."""

    commit: Digest
    may_go: bool


def roots(space: Space, policy: Policy, now: int) -> Iterator[Digest]:
    """What must stay, commits and other things; some may not be of this space.  Raises `Corrupt` if a head leads nowhere."""
    for hold in _holds(space):
        if hold.head.commit is not None:
            yield space.step(hold.head.commit).digest
    gone = {cell.name for cell in abandoned(space, policy, now)}
    for cell in _cells(space):
        if cell.name not in gone:
            yield from references.mentioned(cell.name.encode())
            yield from references.mentioned(cell.value or b"")
    for entry in _entries(space):
        yield from references.mentioned(entry.body)
        for patch in _PATCH.findall(entry.body):
            yield from _values(space, Digest(patch.decode()))


def _values(space: Space, patch: Digest) -> Iterator[Digest]:
    """The values that a call's patch names: the commit of its round, which would name them too, may be to come."""
    with suppress(Forgotten):
        yield from references.mentioned(space.body(patch))


def left_behind(space: Space, since: int) -> Iterator[Left]:
    """The commits that heads have left otherwise than by a commit on top; some may be live all the same."""
    for hold in _holds(space):
        later: Digest | None = None  # the first commit that was made after the move at hand
        for move in _moves(space, hold.head.timeline):
            if move.act is Act.COMMIT:
                later = move.to
            elif move.from_ is not None and not _on_a_line(space, move.from_, hold):
                lately = later is None or _made_at(space, later) >= since
                yield Left(move.from_, not lately and _made_at(space, move.from_) < since)


def abandoned(space: Space, policy: Policy, now: int) -> Iterator[Cell]:
    """The cells of uploads that are older than the policy allows."""
    since = policy.staged_since(now)
    if since is None:
        return
    for cell in _cells(space, UPLOAD):
        upload = upload_of(cell)
        if upload.expired or upload.at < since:
            yield cell


def _on_a_line(space: Space, commit: Digest, own: Hold) -> bool:
    """Whether a head's line has the commit; only some heads are asked, as this is to save work, not to decide."""
    heads = chain((own,), islice(_holds(space), _ASKED))
    return any(reader.is_ancestor(space, commit, hold.head.commit) for hold in heads)


def _made_at(space: Space, commit: Digest) -> int:
    return space.step(commit).commit.at


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


def _cells(space: Space, prefix: str = "") -> Iterator[Cell]:
    after = ""
    while page := space.engine.cells(space.name, prefix=prefix, after=after, limit=_PAGE):
        yield from page
        after = page[-1].name


def _entries(space: Space) -> Iterator[Entry]:
    position = 0
    while page := space.engine.entries(space.name, after=position, limit=_PAGE):
        yield from page
        position = page[-1].position
