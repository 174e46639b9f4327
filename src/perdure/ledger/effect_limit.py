"""The strongest effect that calls may have on a timeline.  It is set when the timeline is forked and never changes.

A cell of the thread's space has it.  The write that begins the timeline writes that cell, so neither exists without the
other.  A timeline that is forked from a limited one has at most the same limit.
"""

from __future__ import annotations

import msgspec
from msgspec import UnsetType

from perdure.engines.contract import Cell, CellOf, CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import Moved
from perdure.history import reader, timelines
from perdure.history.revisions import Name
from perdure.history.space import (
    Space,
    read_record,
)
from perdure.model import canonical
from perdure.model.effect import Effect, check_effect, within
from perdure.model.head import MAIN

__all__ = ["BOUND", "fork", "most"]

BOUND = "bound/"  # cells, by timeline


class _Bound(msgspec.Struct, frozen=True):
    """The value of a bound's cell."""

    effect_max: Effect


_bounds = msgspec.json.Decoder(_Bound)


def most(space: Space, timeline: str) -> Effect | None:
    """Return the strongest effect that calls may have on a timeline; None: no limit, as always on `main`."""
    if timeline == MAIN:
        return None
    cell: Cell | None = space.ask(CellOf(space.name, BOUND + timeline))[0]
    return None if cell is None or cell.value is None else read_record(cell, _bounds).effect_max


def fork(
    space: Space,
    source: str,
    timeline: str,
    at: Name | UnsetType | None,
    *,
    effect_max: Effect | None,
    op_id: str | None,
    author: str | None = None,
) -> Space:
    """Begin a timeline at a moment of `source`, with its limit, in one write; return the space with what was read first.

    That is also who the agents of the thread are.  `effect_max` is the strongest effect of calls there; None, or one stronger than the limit of `source`, takes over
    the limit of `source`.  Raises as `timelines.fork` does.
    """
    wanted = check_effect(effect_max) if effect_max is not None else None
    meant = () if wanted is None else (f"effect_max {wanted}",)
    questions = [*reader.head_questions(space, source), *timelines.move_questions(space, op_id)]
    questions += [CellOf(space.name, BOUND + each) for each in (source, timeline)]
    questions.append(reader.agents_question(space.name))
    attempts = Attempts(f"the effect limit of '{timeline}'", f"timeline '{timeline}' was not forked")
    while True:
        attempts.begin()
        known = space.knowing(*questions)
        inherited = most(known, source)
        bound = inherited if wanted is None or (inherited and not within(wanted, inherited)) else wanted
        cells = _limit_cells(known, timeline, bound)
        try:
            timelines.fork(known, source, timeline, at, op_id=op_id, cells=cells, meant=meant, author=author)
            return known
        except Moved as moved:
            if not cells or moved.cell != cells[0].name:
                raise


def _limit_cells(space: Space, timeline: str, bound: Effect | None) -> tuple[CellWrite, ...]:
    """Return the cell that stores the limit; none if there is no limit and no older one to remove."""
    before: Cell | None = space.ask(CellOf(space.name, BOUND + timeline))[0]
    if bound is None and (before is None or before.value is None):
        return ()
    value = None if bound is None else canonical.encode_struct(_Bound(bound))
    return (CellWrite(name=BOUND + timeline, expected=before.revision if before else 0, value=value),)
