"""The laws of names: whatever text names a thing, it names that thing and no other."""

from __future__ import annotations

import pytest

from perdure.engines.contract import CellWrite, Engine
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import SPACE, Pen, begun, made, write

__all__ = ["HOSTILE_NAMES", "NameLaws"]

HOSTILE_NAMES = (
    "plain",
    "Plain",
    "plain ",
    "dots.and/slashes",
    "../../etc/passwd",
    "it's",
    'say "x"',
    "`ticks`; DROP TABLE log; --",
    "100%",
    "100x",
    "a_b",
    "axb",
    "[a-z]*?",
    "back\\slash",
    "?1 :name $2 @3",
    "NULL",
    "0",
    "00",
    "-1",
    "1e3",
    "1000",
    "é",
    "e",
    "日本語",
    "𝄞",
    "ß",
    "ss",
    "\u00a0",
    "x" * 200,
    "x" * 199,
    "字" * 66,
)


class NameLaws(Ground):
    """What every engine promises about spaces, timelines, cells, op_ids, message ids and run ids."""

    @pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
    def test_any_text_can_name_a_thing(self, engine: Engine, name: str) -> None:
        """Quotes, wildcards, SQL, any script, 200 bytes: all of it is only text."""
        first = made("milk", run=name, messages=[f"{name}!"])
        cell = CellWrite(name=name, expected=0, value=name.encode(), listed=True)

        receipt = engine.apply(write(name, first, begun(name, first), cell, space=name))

        assert receipt.heads[0].timeline == name
        assert [hold.head for hold in engine.holds(name, limit=9)] == list(receipt.heads)
        assert [record.op_id for record in engine.moves(name, name, limit=9)] == [name]
        assert engine.cells(name, prefix=name, limit=9) == engine.listed(prefix=name, limit=9)
        assert [list(engine.labelled(name, label)) for label in (name, f"{name}!")] == [[first.digest]] * 2
        assert list(engine.spaces(limit=9)) == [name]
        recorded = engine.recorded(name, name)
        assert recorded is not None
        assert recorded.receipt == receipt

    def test_names_that_look_alike_are_different_spaces(self, engine: Engine) -> None:
        """No two of the hostile names are taken for each other, in any place."""
        for name in HOSTILE_NAMES:
            Pen(engine, space=name).commit(f"in {name}", messages=["m-1"])

        assert list(engine.spaces(limit=99)) == sorted(HOSTILE_NAMES)
        for name in HOSTILE_NAMES:
            (digest,) = engine.labelled(name, "m-1")
            assert engine.steps(name, digest, limit=9)[0].commit.reason == f"in {name}"

    def test_names_that_look_alike_are_different_timelines_and_cells(self, engine: Engine) -> None:
        """Listings are in the order of the names' letters, not of a language."""
        for number, name in enumerate(HOSTILE_NAMES):
            cell = CellWrite(name=name, expected=0, value=b"%d" % number)
            engine.apply(write(name, begun(name, None), cell))

        names = sorted(HOSTILE_NAMES)
        assert [hold.head.timeline for hold in engine.holds(SPACE, limit=99)] == names
        assert [cell.name for cell in engine.cells(SPACE, limit=99)] == names
        for number, name in enumerate(HOSTILE_NAMES):
            cell = engine.cell(SPACE, name)
            assert cell is not None
            assert (cell.value, cell.revision) == (b"%d" % number, 1)

    def test_names_that_look_alike_are_different_labels(self, engine: Engine) -> None:
        """A message id leads to its own commit and to no other."""
        pen = Pen(engine)
        commits = {name: pen.commit(name, messages=[name]).digest for name in HOSTILE_NAMES}

        assert {name: list(engine.labelled(SPACE, name)) for name in commits} == {
            name: [digest] for name, digest in commits.items()
        }

    def test_a_name_that_was_never_used_finds_nothing(self, engine: Engine) -> None:
        """Looking up hostile text is no error, and finds nothing that it might match as a pattern."""
        Pen(engine).commit("milk", run="run-1", messages=["m-1"])

        for name in HOSTILE_NAMES:
            assert engine.hold(SPACE, name) is None
            assert engine.cell(SPACE, name) is None
            assert engine.recorded(SPACE, name) is None
            assert list(engine.labelled(SPACE, name)) == []
            assert list(engine.cells(SPACE, prefix=name, limit=9)) == []
            assert list(engine.entries(name, limit=9)) == []
