"""Bounds: how far calls may reach on a line, set when it is forked, for good.

Kept in a cell of the thread's space, written by the write that begins the timeline, so neither is
ever there without the other.  What is forked from it may reach no further.
"""

from __future__ import annotations

import msgspec
from msgspec import UnsetType

from perdure.engines.contract import CellWrite
from perdure.errors import Conflict, Moved
from perdure.history import cells as records
from perdure.history import timelines
from perdure.history.revisions import Name
from perdure.history.space import Space
from perdure.model import canonical
from perdure.model.effect import Effect, check_effect, within
from perdure.model.head import MAIN, Head

__all__ = ["BOUND", "fork", "most"]

BOUND = "bound/"  # cells, by timeline

_TRIES_MAX = 8


class _Bound(msgspec.Struct, frozen=True):
    """The value of a bound's cell."""

    effect_max: Effect


_bounds = msgspec.json.Decoder(_Bound)


def most(space: Space, timeline: str) -> Effect | None:
    """The most that calls may reach on a line; None: there is no bound, as ever on `main`, which is not forked."""
    if timeline == MAIN:
        return None
    cell = space.engine.cell(space.name, BOUND + timeline)
    return None if cell is None or cell.value is None else records.read(cell, _bounds).effect_max


def fork(
    space: Space,
    source: str,
    timeline: str,
    at: Name | UnsetType | None,
    *,
    effect_max: Effect | None,
    op_id: str | None,
) -> Head:
    """Begin a timeline at a moment of `source`, with its bound, in one write.

    `effect_max` is the most that calls may reach there; None, or one that reaches further: as far as
    they may on `source`.  Raises as `timelines.fork` does.
    """
    inherited = most(space, source)
    wanted = check_effect(effect_max) if effect_max is not None else None
    bound = inherited if wanted is None or (inherited and not within(wanted, inherited)) else wanted
    meant = () if wanted is None else (f"effect_max {wanted}",)
    for _ in range(_TRIES_MAX):
        cells = _binding(space, timeline, bound)
        try:
            return timelines.fork(space, source, timeline, at, op_id=op_id, cells=cells, meant=meant)
        except Moved as moved:
            if not cells or moved.cell != cells[0].name:
                raise
    raise Conflict(f"others begin timeline '{timeline}' all the time; nothing was forked. Try again.")


def _binding(space: Space, timeline: str, bound: Effect | None) -> tuple[CellWrite, ...]:
    """The write of a bound; none where there is nothing to say."""
    before = space.engine.cell(space.name, BOUND + timeline)
    if bound is None and (before is None or before.value is None):
        return ()
    value = None if bound is None else canonical.encode_struct(_Bound(bound))
    return (CellWrite(name=BOUND + timeline, expected=before.revision if before else 0, value=value),)
