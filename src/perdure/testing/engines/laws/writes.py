"""The laws of a write: true as a whole or not at all, and never twice."""

from __future__ import annotations

import pytest

from perdure.engines.contract import CellWrite, Engine, Fence, Receipt, Recorded
from perdure.errors import Conflict, Invalid, NotFound, OpReused, PerdureError, Sealed, StaleHead
from perdure.model.digest import Kind, Object
from perdure.model.head import Head
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import SPACE, START, Part, Pen, begun, made, moved, portrait, value, write

__all__ = ["WriteLaws"]

FIRST = made("milk")
SECOND = made("eggs", FIRST)
ORPHAN = made("after nothing", made("never written"))
UNTOLD = made("without its changeset")

# One part that must be refused in the store that `furnished` makes, and how; in the contract's order.
REFUSALS: dict[str, tuple[Part, type[PerdureError], str]] = {
    "a fence": (Fence("lease", 7), Conflict, "lease"),
    "a cell": (CellWrite(name="lease", expected=7, value=b"x"), Conflict, "lease"),
    "a sealed timeline": (moved(Head("sealed", 0, FIRST.digest), SECOND), Sealed, "sealed"),
    "a stale head": (moved(START, SECOND), StaleHead, "main"),
    "a timeline that exists": (begun("sealed", FIRST), Conflict, "exists"),
    "a timeline that does not exist": (moved(Head("nowhere", 0, None), SECOND), NotFound, "nowhere"),
    "a move to no commit": (begun("new", ORPHAN), NotFound, ORPHAN.digest),
    "a parent that is not there": (ORPHAN, NotFound, ORPHAN.commit.parents[0]),
    "a commit without its changeset": (UNTOLD.objects[-1], NotFound, UNTOLD.digest),
}


def furnished(engine: Engine) -> Pen:
    """A store with a moved `main`, a sealed timeline, a cell and an entry."""
    pen = Pen(engine)
    pen.commit("milk")
    engine.apply(write("seal", begun("sealed", FIRST, seal=True)))
    engine.apply(write("lease", CellWrite(name="lease", expected=0, value=b"ann"), b'{"n":1}'))
    return pen


class WriteLaws(Ground):
    """What `apply` and `recorded` promise, whatever is in the write."""

    def test_a_receipt_says_what_became_true(self, engine: Engine) -> None:
        """Heads and revisions come in the order of the moves and cells, with the last entry's place."""
        cells = (CellWrite(name="b", expected=0, value=b"1"), CellWrite(name="a", expected=0, value=b"2"))

        receipt = engine.apply(
            write("op", FIRST, begun("z", FIRST), moved(START, FIRST), *cells, b"{}", b"[]")
        )

        assert receipt.op_id == "op"
        assert receipt.heads == (Head("z", 0, FIRST.digest), Head("main", 1, FIRST.digest))
        assert receipt.revisions == (1, 1)
        assert (receipt.position, receipt.chain) == (2, engine.entries(SPACE, limit=9)[-1].chain)

    def test_an_empty_write_is_a_write(self, engine: Engine) -> None:
        """A write that changes nothing is recorded all the same."""
        receipt = engine.apply(write("op"))

        assert receipt == Receipt(op_id="op")
        assert engine.recorded(SPACE, "op") == Recorded(write("op").intent, receipt)
        assert list(engine.spaces(limit=9)) == [SPACE]

    def test_what_never_became_true_is_not_recorded(self, engine: Engine) -> None:
        """Looking up an unknown op_id gives None, and writes nothing."""
        assert engine.recorded(SPACE, "op") is None
        assert list(engine.spaces(limit=9)) == []

    def test_a_repeated_write_gives_the_first_receipt(self, engine: Engine) -> None:
        """The same op_id with the same intent writes nothing, although others wrote meanwhile."""
        first = write("op", FIRST, moved(START, FIRST), b"{}", CellWrite(name="a", expected=0, value=b"1"))
        receipt = engine.apply(first)
        Pen(engine, head=receipt.heads[0], tip=FIRST).commit("eggs")
        before = portrait(engine)

        again = engine.apply(first)

        assert again == receipt
        assert portrait(engine) == before

    @pytest.mark.parametrize("refusal", REFUSALS)
    def test_an_op_id_is_looked_up_before_anything_is_compared(self, engine: Engine, refusal: str) -> None:
        """A repeated write is answered even if it could not be made again."""
        furnished(engine)
        receipt = engine.apply(write("op", b"{}"))

        assert engine.apply(write("op", b"{}", REFUSALS[refusal][0])) == receipt

    def test_a_repeated_intent_is_known_by_its_digest_alone(self, engine: Engine) -> None:
        """A rebased write has other parents and heads, and is still the same write."""
        pen = Pen(engine)
        pen.commit("milk")
        rebased = made("bread", pen.tip, at=5)
        receipt = engine.apply(write("op", rebased, moved(pen.head, rebased)))
        other = made("bread", made("somewhere else"), at=9)

        assert engine.apply(write("op", other, moved(Head("main", 40, None), other))) == receipt

    def test_an_op_id_cannot_be_used_for_something_else(self, engine: Engine) -> None:
        """The same op_id with another intent is an error, and nothing is written."""
        engine.apply(write("op", value("milk")))
        before = portrait(engine)

        with pytest.raises(OpReused, match="nothing was written") as refused:
            engine.apply(write("op", value("eggs"), b"{}", intent="another"))

        assert refused.value.op_id == "op"
        assert portrait(engine) == before

    def test_another_intent_is_refused_before_anything_is_compared(self, engine: Engine) -> None:
        """A reused op_id is told so, not that its head is stale."""
        furnished(engine)
        engine.apply(write("op"))

        with pytest.raises(OpReused):
            engine.apply(write("op", Fence("lease", 7), moved(START, FIRST), intent="another"))

    def test_an_op_id_belongs_to_its_space(self, engine: Engine) -> None:
        """Two spaces can use the same op_id for two different writes."""
        engine.apply(write("op", b"{}", space="theirs", intent="theirs"))

        receipt = engine.apply(write("op", FIRST, moved(START, FIRST)))

        assert receipt.heads == (Head("main", 1, FIRST.digest),)
        assert engine.recorded("theirs", "op") != engine.recorded(SPACE, "op")

    @pytest.mark.parametrize("refusal", REFUSALS)
    def test_a_refused_write_leaves_nothing_behind(self, engine: Engine, refusal: str) -> None:
        """Whatever part of a write is refused, no other part of it can be seen."""
        pen = furnished(engine)
        before = portrait(engine)
        part, error, named = REFUSALS[refusal]
        third = made("bread", FIRST, run="run-1", messages=["m-1"])
        rest = (
            value("bread"),
            third,
            begun("bread", third),
            CellWrite(name="x", expected=0, value=b"1"),
            b"{}",
        )

        with pytest.raises(error, match=named):
            engine.apply(write("op", *rest, part))

        assert portrait(engine) == before
        assert engine.recorded(SPACE, "op") is None
        assert engine.hold(SPACE, "bread") is None
        assert engine.cell(SPACE, "x") is None
        assert list(engine.labelled(SPACE, "m-1")) == []
        assert list(engine.missing(SPACE, [third.digest])) == [third.digest]
        pen.commit("eggs")

    def test_a_refused_first_write_leaves_no_space(self, engine: Engine) -> None:
        """A space is there only once something in it became true."""
        with pytest.raises(Conflict):
            engine.apply(write("op", value("milk"), Fence("lease", 7)))

        assert list(engine.spaces(limit=9)) == []

    def test_a_refused_op_id_can_be_used_again(self, engine: Engine) -> None:
        """Only what became true is remembered, so a corrected write may keep its op_id."""
        furnished(engine)
        with pytest.raises(StaleHead):
            engine.apply(write("op", SECOND, moved(START, SECOND)))

        receipt = engine.apply(
            write("op", SECOND, moved(Head("main", 1, FIRST.digest), SECOND), intent="anew")
        )

        assert receipt.heads == (Head("main", 2, SECOND.digest),)

    @pytest.mark.parametrize(
        ("first", "then"),
        [
            ("a fence", "a sealed timeline"),
            ("a fence", "a stale head"),
            ("a cell", "a sealed timeline"),
            ("a cell", "a timeline that exists"),
            ("a cell", "a parent that is not there"),
            ("a sealed timeline", "a parent that is not there"),
            ("a stale head", "a parent that is not there"),
            ("a stale head", "a commit without its changeset"),
            ("a stale head", "a move to no commit"),
            ("a timeline that exists", "a move to no commit"),
        ],
    )
    def test_refusals_have_an_order(self, engine: Engine, first: str, then: str) -> None:
        """Where a write breaks two laws, every engine names the same one."""
        furnished(engine)

        with pytest.raises(REFUSALS[first][1], match=REFUSALS[first][2]):
            engine.apply(write("op", REFUSALS[then][0], REFUSALS[first][0]))

    def test_a_sealed_timeline_is_sealed_before_it_is_stale(self, engine: Engine) -> None:
        """A writer with an old head of a sealed timeline is told not to try again."""
        furnished(engine)

        with pytest.raises(Sealed):
            engine.apply(write("op", moved(Head("sealed", 40, None), SECOND)))

    def test_moves_are_looked_at_in_the_order_given(self, engine: Engine) -> None:
        """Of two moves that are refused, the first is named."""
        furnished(engine)

        with pytest.raises(StaleHead):
            engine.apply(write("op", REFUSALS["a stale head"][0], REFUSALS["a sealed timeline"][0]))

    def test_a_write_cannot_move_one_timeline_twice(self, engine: Engine) -> None:
        """A timeline moves once for each write, however many commits it carries."""
        twice = (moved(START, FIRST), moved(Head("main", 1, FIRST.digest), SECOND))

        with pytest.raises(Invalid, match="twice"):
            engine.apply(write("op", FIRST, SECOND, *twice))

        assert list(engine.spaces(limit=9)) == []

    def test_a_write_cannot_write_one_cell_twice(self, engine: Engine) -> None:
        """A cell has one new value for each write."""
        twice = (CellWrite(name="a", expected=0, value=b"1"), CellWrite(name="a", expected=1, value=b"2"))

        with pytest.raises(Invalid, match="twice"):
            engine.apply(write("op", *twice))

        assert list(engine.spaces(limit=9)) == []

    def test_spaces_are_listed_by_name_from_a_cursor(self, engine: Engine) -> None:
        """Every space that was ever written is found, page by page."""
        names = ["a", "a/b", "b", "thread-10", "thread-9", "é"]
        for name in reversed(names):
            engine.apply(write("op", space=name))

        pages = [list(engine.spaces(after=after, limit=2)) for after in ["", "a/b", "thread-10", "é"]]

        assert pages == [["a", "a/b"], ["b", "thread-10"], ["thread-9", "é"], []]

    def test_an_object_that_is_no_commit_is_no_parent(self, engine: Engine) -> None:
        """A parent is a commit of the space, not just something with that digest."""
        impostor = Object.of(Kind.VALUE, FIRST.objects[-1].body)
        child = made("eggs", FIRST)
        engine.apply(write("op-1", impostor))

        with pytest.raises(NotFound, match=FIRST.digest):
            engine.apply(write("op-2", child, moved(START, child)))
