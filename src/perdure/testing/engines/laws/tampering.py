"""The laws of damage: what was edited behind the engine's back is not used, and not written over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.engines.contract import CellWrite, Engine
from perdure.errors import Corrupt
from perdure.testing.engines.ground import Edit, Ground
from perdure.testing.engines.hand import SPACE, START, made, moved, portrait, write

__all__ = ["TamperingLaws"]

_READS: dict[str, Callable[[Engine], object]] = {
    "cell": lambda engine: engine.cell(SPACE, "lease"),
    "cells": lambda engine: engine.cells(SPACE, limit=9),
    "listed": lambda engine: engine.listed(prefix="", limit=9),
    "write": lambda engine: engine.apply(write("op-9", _put("lease", 2, b"eve"))),
}


def _put(name: str, expected: int, value: bytes) -> CellWrite:
    return CellWrite(name=name, expected=expected, value=value, listed=True)


def _filled(engine: Engine) -> None:
    """Two cells, one of them written twice, two entries and a head."""
    first = made("milk")
    engine.apply(write("op-1", _put("lease", 0, b"ann"), _put("other", 0, b"bob")))
    engine.apply(write("op-2", _put("lease", 1, b"bob"), b"1", b"2"))
    engine.apply(write("op-3", first, moved(START, first)))


class TamperingLaws(Ground):
    """What a digest and a seal promise."""

    @pytest.mark.parametrize("read", sorted(_READS))
    @pytest.mark.parametrize(
        ("what", "to"), [("cell value", "eve"), ("cell revision", "1"), ("cell moved", "lease")]
    )
    def test_a_cell_that_was_edited_is_not_used(self, engine: Engine, what: str, to: str, read: str) -> None:
        """Each read checks its digest, which covers its space, name, revision and value."""
        _filled(engine)
        name = "other" if what == "cell moved" else "lease"

        engine = self.tamper(engine, Edit(what=what, space=SPACE, name=name, to=to))  # pyright: ignore[reportArgumentType]

        with pytest.raises(Corrupt):
            _READS[read](engine)

    def test_a_damaged_cell_is_named(self, engine: Engine) -> None:
        """The error says which cell it is."""
        _filled(engine)
        engine = self.tamper(engine, Edit(what="cell value", space=SPACE, name="lease", to="eve"))

        with pytest.raises(Corrupt) as damaged:
            engine.cell(SPACE, "lease")

        assert damaged.value.cell == "lease"

    @pytest.mark.parametrize(
        ("what", "name"),
        [("cell gone", "lease"), ("entry gone", "2"), ("head gone", "main"), ("cell value", "other")],
    )
    def test_what_is_gone_is_missed(self, engine: Engine, what: str, name: str) -> None:
        """`check` finds it, and a write to the space is refused: evidence is not written over."""
        _filled(engine)
        engine = self.tamper(engine, Edit(what=what, space=SPACE, name=name))  # pyright: ignore[reportArgumentType]

        with pytest.raises(Corrupt):
            engine.check(SPACE, again=True)
        with pytest.raises(Corrupt):
            engine.apply(write("op-9", _put("other", 1, b"eve")))

    def test_a_space_that_nobody_edited_passes(self, engine: Engine) -> None:
        """Control: what the writes left adds up, however often it is asked."""
        _filled(engine)

        engine.check(SPACE)
        engine.check(SPACE, again=True)

        assert engine.ledger(SPACE).position == 2

    def test_a_space_is_sealed_again_on_purpose(self, engine: Engine) -> None:
        """After a repair it can be read and written as it is."""
        _filled(engine)
        engine = self.tamper(engine, Edit(what="cell gone", space=SPACE, name="lease"))

        engine.reseal(SPACE)

        engine.check(SPACE, again=True)
        engine.apply(write("op-9", _put("lease", 0, b"eve")))
        assert portrait(engine)
