"""The laws of a store's life: opened, closed, opened again, copied."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perdure.engines.contract import CellWrite, Engine
from perdure.errors import Conflict, Forgotten, Unavailable, Unsupported
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import SPACE, START, Pen, made, moved, portrait, value, write

__all__ = ["LifeLaws"]

FIRST = made("milk", run="run-1", messages=["m-1"])
DONE = write(
    "done", FIRST, moved(START, FIRST), value("milk"), CellWrite(name="a", expected=0, value=b"1"), b"{}"
)

CALLS: dict[str, Callable[[Engine], object]] = {
    "apply": lambda engine: engine.apply(DONE),
    "recorded": lambda engine: engine.recorded(SPACE, "done"),
    "objects": lambda engine: engine.objects(SPACE, [FIRST.digest]),
    "missing": lambda engine: engine.missing(SPACE, [FIRST.digest]),
    "steps": lambda engine: engine.steps(SPACE, FIRST.digest, limit=1),
    "turn": lambda engine: engine.turn(SPACE, FIRST.digest, 1),
    "labelled": lambda engine: engine.labelled(SPACE, "m-1"),
    "commits": lambda engine: engine.commits(SPACE, "", limit=1),
    "hold": lambda engine: engine.hold(SPACE, "main"),
    "holds": lambda engine: engine.holds(SPACE, limit=1),
    "moves": lambda engine: engine.moves(SPACE, "main", limit=1),
    "cell": lambda engine: engine.cell(SPACE, "a"),
    "cells": lambda engine: engine.cells(SPACE, limit=1),
    "listed": lambda engine: engine.listed(prefix="", limit=1),
    "entries": lambda engine: engine.entries(SPACE, limit=1),
    "spaces": lambda engine: engine.spaces(limit=1),
    "scan": lambda engine: engine.scan(SPACE, limit=1),
    "forget": lambda engine: engine.forget(SPACE, [FIRST.digest], why="too old", standing=1),
    "standing": lambda engine: engine.standing(SPACE),
    "instant": lambda engine: engine.instant(),
    "holder": lambda engine: engine.holder(),
    "gone": lambda engine: engine.gone("0" * 32),
    "drop": lambda engine: engine.drop(SPACE, why="too old"),
    "facts": lambda engine: engine.facts(),
}


class LifeLaws(Ground):
    """What `close`, `backup` and `facts` promise, and what opening again shows."""

    @pytest.mark.parametrize("call", CALLS)
    def test_a_closed_engine_does_nothing(self, engine: Engine, call: str) -> None:
        """Every method says that the store is closed, and none of them touches it."""
        engine.apply(DONE)
        engine.close()

        with pytest.raises(Unavailable, match="closed"):
            CALLS[call](engine)

    def test_closing_again_is_no_error(self, engine: Engine) -> None:
        """Whoever cleans up need not know who did so before."""
        engine.close()

        engine.close()

    def test_opening_again_shows_what_was_written(self, tmp_path: Path) -> None:
        """Everything is there if the engine is persistent, and nothing at all if it is not."""
        with closing(self.open(tmp_path)) as engine:
            receipt = engine.apply(DONE)
            Pen(engine, head=receipt.heads[0], tip=FIRST).commit("eggs")
            before = portrait(engine)

        with closing(self.open(tmp_path)) as again:
            assert (portrait(again) == before) is self.persistent
            assert (again.recorded(SPACE, "done") is not None) is self.persistent
            assert again.apply(DONE) == receipt

    def test_what_was_forgotten_stays_forgotten(self, tmp_path: Path) -> None:
        """Opening again brings nothing back: neither objects nor the writes of a dropped space."""
        with closing(self.open(tmp_path)) as engine:
            engine.apply(DONE)
            engine.apply(write("op", value("eggs"), space="theirs"))
            engine.forget(SPACE, [value("milk").digest], why="user asked", standing=engine.standing(SPACE))
            engine.drop("theirs", why="user asked")

        with closing(self.open(tmp_path)) as again:
            if self.persistent:
                with pytest.raises(Forgotten, match="user asked"):
                    again.objects(SPACE, [value("milk").digest])
                with pytest.raises(Forgotten, match="user asked"):
                    again.apply(write("op", value("eggs"), space="theirs"))
            assert list(again.spaces(limit=9)) == (["theirs", SPACE] if self.persistent else [])

    def test_two_openings_are_one_store_if_it_is_shared(self, engine: Engine, tmp_path: Path) -> None:
        """What one writes the other sees at once; an engine that cannot share shows nothing."""
        with closing(self.open(tmp_path)) as other:
            assert list(other.spaces(limit=9)) == []

            engine.apply(DONE)

            seen = other.hold(SPACE, "main") == engine.hold(SPACE, "main")
            assert seen is self.shared_between_processes
            assert (portrait(other) == portrait(engine)) is self.shared_between_processes

    def test_a_backup_is_a_store_of_its_own(self, engine: Engine, tmp_path: Path) -> None:
        """It holds what was true when it was made; an engine without files refuses."""
        engine.apply(DONE)
        before = portrait(engine)
        (tmp_path / "copy").mkdir()
        if self.file is None:
            with pytest.raises(Unsupported, match="nothing was written"):
                engine.backup(tmp_path / "copy" / "store")
            assert list((tmp_path / "copy").iterdir()) == []
            return

        engine.backup(tmp_path / "copy" / self.file)
        engine.apply(write("later", value("eggs")))

        with closing(self.open(tmp_path / "copy")) as copy:
            assert portrait(copy) == before
            assert copy.recorded(SPACE, "later") is None

    def test_a_backup_overwrites_nothing(self, engine: Engine, tmp_path: Path) -> None:
        """A file that exists is left as it is."""
        target = tmp_path / "precious"
        target.write_bytes(b"precious")
        engine.apply(DONE)

        with pytest.raises(Unsupported if self.file is None else Conflict):
            engine.backup(target)

        assert target.read_bytes() == b"precious"

    def test_facts_say_what_kind_of_store_it_is(self, engine: Engine) -> None:
        """`doctor` shows them, so they are short texts and numbers."""
        facts = engine.facts()

        assert facts["engine"]
        assert {type(each) for each in facts.values()} <= {str, int}
