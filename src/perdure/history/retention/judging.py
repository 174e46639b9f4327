"""Judging one space under a policy: what of it may go.

Commits, changesets and moves always stay, so that the chain verifies.  Values, nodes,
bodies, artifacts and checkpoints go when only what may go needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from perdure.engines.contract import Cell, CellWrite, Engine, Step, Write
from perdure.errors import Conflict, Corrupt
from perdure.history.artifacts import upload_of
from perdure.history.digests import Digests
from perdure.history.retention.doomed import Doomed
from perdure.history.retention.living import Living, unliving
from perdure.history.retention.policy import Policy
from perdure.history.retention.roots import abandoned, left_behind, roots
from perdure.history.scan import spaces
from perdure.history.space import Space, label_of
from perdure.history.tree import Cache
from perdure.model import canonical
from perdure.model.digest import Kind, Object, digest_of

__all__ = ["Elsewhere", "expire_uploads", "forget_uploads", "removable", "space_of"]


class Elsewhere:
    """What commits have read in other spaces, found when it is first asked for."""

    def __init__(self, engine: Engine, policy: Policy, now: int) -> None:
        """Look over every space of `engine`, if need be."""
        self._engine, self._policy, self._now = engine, policy, now
        self._found: Digests | None = None

    def found(self) -> Digests:
        """The roots and commits of agents and owners that live commits of any space have read."""
        if self._found is None:
            self._found = Digests()
            for name in spaces(self._engine):
                space = space_of(self._engine, name)
                living = Living(space)
                living.reads = self._found
                for digest in roots(space, self._policy, self._now):
                    living.mention(digest)
        return self._found


def removable(space: Space, policy: Policy, now: int, elsewhere: Elsewhere) -> Iterator[tuple[str, Object]]:
    """The objects that may go, and why.

    Raises `Corrupt` or `NotFound` if anything is damaged: then nobody can tell what must stay.
    """
    since = policy.undone_since(now)
    left = list(left_behind(space, since)) if since is not None else []
    uploads = list(abandoned(space, policy, now))
    if not uploads and not any(each.may_go for each in left):
        return
    living = Living(space)
    for digest in roots(space, policy, now):
        living.mention(digest)
    for each in left:
        for step in unliving(space, each.commit, living):
            if not each.may_go or _is_read(step, elsewhere):
                living.commit(step.digest)
    doomed = Doomed(space, living)
    for each in left:
        doomed.commit(each.commit)
    for cell in uploads:
        doomed.chunks(upload_of(cell).chunks)
    doomed.save()
    yield from doomed.objects() if doomed else ()


def _is_read(step: Step, elsewhere: Elsewhere) -> bool:
    """Whether a live commit of another space has read this one: of an agent's map it says the commit, of a memory the root."""
    return step.digest in elsewhere.found() or step.commit.root in elsewhere.found()


def expire_uploads(space: Space, policy: Policy, now: int) -> None:
    """Mark the uploads that are older than the policy allows, so that none of them can be finished any more."""
    for cell in list(abandoned(space, policy, now)):
        upload = upload_of(cell)
        if not upload.expired:
            expired = msgspec.structs.replace(upload, expired=True)
            _put(space, cell, canonical.encode_struct(expired))


def forget_uploads(space: Space, policy: Policy, now: int) -> None:
    """Empty the cells of expired uploads, whose chunks are gone."""
    for cell in list(abandoned(space, policy, now)):
        if upload_of(cell).expired:
            _put(space, cell, None)


def space_of(engine: Engine, name: str, ids: Callable[[], str] = str) -> Space:
    """The space for reading and forgetting: it has no clock, as nothing that is written here has a time."""
    label = name
    with suppress(Corrupt):  # what is damaged is told of where it is judged, and left alone
        label = label_of(engine, name)
    return Space(engine=engine, name=name, label=label, clock=lambda: 0, ids=ids, cache=Cache(0))


def _put(space: Space, cell: Cell, value: bytes | None) -> None:
    wanted = CellWrite(name=cell.name, expected=cell.revision, value=value)
    intent = digest_of(Kind.BODY, canonical.encode(["upload", cell.name, cell.revision]))
    op_id = f"upload:{cell.revision}:{cell.name}"
    try:
        space.engine.apply(Write(space=space.name, op_id=op_id, intent=intent, cells=(wanted,)))
    except Conflict:
        return  # it was written to in this moment: it is not abandoned
