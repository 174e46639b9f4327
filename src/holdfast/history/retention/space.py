"""One space under a policy: what must stay is marked, everything else of it may go.

Commits, changesets and moves always stay, so that the chain verifies.  Values, nodes,
bodies, artifacts and checkpoints go when nothing that must stay needs them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.engines.contract import Cell, CellWrite, Fact, Write
from holdfast.errors import Conflict
from holdfast.history.artifacts import UPLOAD
from holdfast.history.digests import Digests
from holdfast.history.retention.marking import Marks
from holdfast.history.retention.policy import Policy
from holdfast.history.retention.roots import roots, undone_roots
from holdfast.history.scan import whole_pages
from holdfast.history.space import Space
from holdfast.model import canonical
from holdfast.model.commit import decode_commit
from holdfast.model.digest import Kind, Object, digest_of

__all__ = ["Marked", "expire_uploads", "mark", "removable"]

_REMOVABLE = frozenset((Kind.VALUE, Kind.NODE, Kind.BODY, Kind.ARTIFACT, Kind.CHECKPOINT))
_PAGE = 100


class Marked(msgspec.Struct, frozen=True):
    """What of a space must stay, and what only undone commits need."""

    live: Marks
    undone: Marks
    staged_may_go: bool  # no upload is under way


def mark(space: Space, policy: Policy, now: int, elsewhere: Digests) -> Marked:
    """Find what must stay; `elsewhere` is what other spaces have read here.

    Raises `Corrupt` or `NotFound` if anything that must stay cannot be read: then nobody can
    tell what else must stay with it.
    """
    live = Marks(space)
    for digest in roots(space):
        live.mention(digest)
    since = policy.undone_since(now)
    if since is not None:
        for digest in undone_roots(space, since):
            live.commit(digest)
    for fact in _facts(space):
        _keep_more(live, fact, since, elsewhere)
    undone = Marks(space, under=live)
    for fact in _facts(space):
        live.chunks(fact)
        if fact.kind == Kind.COMMIT and fact.object is not None and fact.object.digest not in live:
            undone.commit(fact.object.digest)
    if undone:
        for fact in _facts(space):
            undone.chunks(fact)
    _, under_way = _uploads(space, policy, now)
    return Marked(live, undone, policy.staged_after_days is not None and not under_way)


def removable(space: Space, marked: Marked) -> Iterator[tuple[str, Object]]:
    """The objects that may go, and why."""
    for fact in _facts(space):
        found = fact.object
        if found is None or found.kind not in _REMOVABLE or found.digest in marked.live:
            continue
        if found.digest in marked.undone:
            yield "undone", found
        elif marked.staged_may_go:
            yield "staged", found


def expire_uploads(space: Space, policy: Policy, now: int) -> None:
    """End the uploads that are older than the policy allows, so that none of them can be finished any more."""
    for cell in _uploads(space, policy, now)[0]:
        ended = CellWrite(name=cell.name, expected=cell.revision, value=None)
        op_id = f"expire:{cell.revision}:{cell.name}"
        intent = digest_of(Kind.BODY, canonical.encode(["expire", cell.name]))
        try:
            space.engine.apply(Write(space=space.name, op_id=op_id, intent=intent, cells=(ended,)))
        except Conflict:
            continue  # it was finished in this moment


def _keep_more(live: Marks, fact: Fact, since: int | None, elsewhere: Digests) -> None:
    """Mark what is kept for its own sake: what others read, young commits, and all commits if none may go."""
    if fact.object is None:
        return
    digest = fact.object.digest
    if fact.kind == Kind.COMMIT:
        if since is None or digest in elsewhere or decode_commit(fact.object.body).at >= since:
            live.commit(digest)
    elif fact.kind == Kind.NODE and digest in elsewhere:
        live.tree(digest)


def _uploads(space: Space, policy: Policy, now: int) -> tuple[list[Cell], list[Cell]]:
    """The uploads that may be ended, and those that are still under way."""
    since = policy.staged_since(now)
    old: list[Cell] = []
    young: list[Cell] = []
    after = ""
    while page := space.engine.cells(space.name, prefix=UPLOAD, after=after, limit=_PAGE):
        for cell in page:
            began = _began_at(cell)
            (old if since is not None and began is not None and began < since else young).append(cell)
        after = page[-1].name
    return old, young


def _began_at(cell: Cell) -> int | None:
    match canonical.decode(cell.value or b"null"):
        case {"at": int() as at}:
            return at
        case _:
            return None


def _facts(space: Space) -> Iterator[Fact]:
    return (fact for page in whole_pages(space.engine, space.name) for fact in page)
