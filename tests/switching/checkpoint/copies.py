"""Another store with the same history: objects, ledger and records of one space, written anew."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engines.contract import CellWrite, Move, Write
from perdure.engines.memory import MemoryEngine
from perdure.history.space import Space
from perdure.history.stored_objects import whole_pages
from perdure.history.tree import NodeCache
from perdure.model.commit import Act
from perdure.model.digest import Kind, digest_of
from perdure.model.head import MAIN, Head

__all__ = ["copied"]

_MANY = 100_000


def copied(space: Space, *, without_last_entries: int = 0) -> Space:
    """The same space on an engine in memory, where no head has the same version and no row the same number."""
    engine = MemoryEngine()
    objects = [
        fact.object
        for page in whole_pages(space.engine, space.name)
        for fact in page
        if fact.object is not None and fact.object.kind is not Kind.MOVE
    ]
    cells = space.engine.cells(space.name, limit=_MANY)
    entries = _entries(space, without_last_entries)
    main = next(hold for hold in space.engine.holds(space.name, limit=_MANY) if hold.head.timeline == MAIN)
    engine.apply(
        Write(
            space=space.name,
            op_id="copy",
            intent=digest_of(Kind.BODY, b"copy"),
            objects=tuple(objects),
            moves=(Move(act=Act.COMMIT, timeline=MAIN, expected=Head(MAIN, 0, None), to=main.head.commit),),
            cells=tuple(CellWrite(name=cell.name, expected=0, value=cell.value) for cell in cells),
            entries=tuple(entries),
        )
    )
    return Space(
        engine=engine,
        name=space.name,
        label=space.label,
        clock=space.clock,
        ids=space.ids,
        cache=NodeCache(),
    )


def _entries(space: Space, without_last: int) -> Sequence[bytes]:
    found = [entry.body for entry in space.engine.entries(space.name, limit=_MANY)]
    return found[: len(found) - without_last]
