"""Bounds: how far calls may reach on a line, set when it is forked, for good.

Kept in a cell of the thread's space, written before the timeline is begun, so a line is never
there without its bound.  What is forked from it may reach no further.
"""

from __future__ import annotations

import msgspec

from holdfast.engines.contract import CellWrite, Write
from holdfast.errors import Conflict
from holdfast.history import cells, writer
from holdfast.history.space import Space
from holdfast.model import canonical
from holdfast.model.digest import Kind, digest_of
from holdfast.model.effect import Effect, check_effect, within
from holdfast.model.head import MAIN, Head

__all__ = ["BOUND", "limit", "most"]

BOUND = "bound/"  # cells, by timeline


class _Bound(msgspec.Struct, frozen=True):
    """The value of a bound's cell."""

    effect_max: Effect


_bounds = msgspec.json.Decoder(_Bound)


def most(space: Space, timeline: str) -> Effect | None:
    """The most that calls may reach on a line; None: there is no bound, as ever on `main`, which is not forked."""
    if timeline == MAIN:
        return None
    cell = space.engine.cell(space.name, BOUND + timeline)
    return None if cell is None or cell.value is None else cells.read(cell, _bounds).effect_max


def limit(space: Space, source: str, timeline: str, effect_max: Effect | None) -> None:
    """Bound a timeline that is about to be forked from `source`; raises `Conflict` if it has another bound already."""
    inherited = most(space, source)
    wanted = check_effect(effect_max) if effect_max is not None else None
    bound = inherited if wanted is None or (inherited and not within(wanted, inherited)) else wanted
    if bound == most(space, timeline):
        return  # whether the line is there already, or the same fork is asked for again, is the fork's business
    if space.engine.hold(space.name, timeline) is not None:
        raise Conflict(f"timeline '{timeline}' exists already; nothing was written. Choose another name.")
    before = space.engine.cell(space.name, BOUND + timeline)
    value = None if bound is None else canonical.encode_struct(_Bound(bound))
    write = Write(
        space=space.name,
        op_id=space.ids(),
        intent=digest_of(Kind.BODY, value or b""),
        fences=space.fences,
        cells=(CellWrite(name=BOUND + timeline, expected=before.revision if before else 0, value=value),),
    )
    writer.submit(space, write, Head(timeline, 0, None))
