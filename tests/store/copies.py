"""Compares two stores through their engines, for the tests of copies."""

from __future__ import annotations

from perdure import Store
from perdure.engines import loops
from perdure.engines.contract import Engine
from perdure.ledger.held import COPIES

__all__ = ["content", "engine_of", "equal"]

_ALL = 1_000_000


def engine_of(store: Store) -> Engine:
    """The engine of an open store."""
    return store._resources.engine


def content(engine: Engine, space: str) -> dict[str, object]:
    """Everything that a space holds."""
    writes, _ = engine.writes(space, limit=_ALL)
    holds = list(loops.holds(engine, space))
    facts = {fact.digest: fact.forgotten for each in writes for fact in each.facts}
    return {
        "holds": holds,
        "moves": [list(loops.moves(engine, space, hold.head.timeline)) for hold in holds],
        "entries": list(loops.entries(engine, space)),
        "cells": list(engine.stored_cells(space, limit=_ALL)),
        "ops": [(each.op_id, each.recorded, each.forgotten) for each in writes],
        "objects": facts,
        "commits": list(engine.commits(space, "", limit=_ALL)),
    }


def equal(one: Engine, other: Engine) -> bool:
    """Whether two stores have the same spaces with the same content; what came into them beside."""
    first, second = [
        {name: content(each, name) for name in loops.spaces(each) if name != COPIES} for each in (one, other)
    ]
    return first == second
