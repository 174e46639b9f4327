"""The laws of a write: true as a whole or not at all, and never twice.

The laws of heads: a head moves in one step, and only for a writer who read where it stood.
"""

from __future__ import annotations

import msgspec
import pytest

from perdure.engines.contract import CellWrite, Engine, Fence, Hold, Move, Receipt, Recorded
from perdure.errors import Conflict, Invalid, NotFound, OpReused, PerdureError, Sealed, StaleHead
from perdure.model.commit import Act, encode_commit
from perdure.model.digest import Digest, Kind, Object
from perdure.model.head import Head
from perdure.testing.engines.builders import (
    SPACE,
    START,
    Part,
    Pen,
    begun,
    made,
    move_digest,
    moved,
    portrait,
    value,
    write,
)
from perdure.testing.engines.subject import EngineSubject, raises

__all__ = ["WriteLaws", "HeadLaws"]


FIRST = made("milk")
SECOND = made("eggs", FIRST)
ORPHAN = made("after nothing", made("never written"))
UNTOLD = made("without its changeset")

# One part that must be refused in the store that `furnished` makes, and how; in the contract's order.
REFUSALS: dict[str, tuple[Part, type[PerdureError], dict[str, object]]] = {
    "a fence": (Fence("lease", 7), Conflict, {"cell": "lease"}),
    "a cell": (CellWrite(name="lease", expected=7, value=b"x"), Conflict, {"cell": "lease"}),
    "a sealed timeline": (moved(Head("sealed", 0, FIRST.digest), SECOND), Sealed, {"timeline": "sealed"}),
    "a stale head": (moved(START, SECOND), StaleHead, {"expected": START}),
    "a timeline that exists": (begun("sealed", FIRST), Conflict, {"code": "timeline_exists"}),
    "a timeline that does not exist": (
        moved(Head("nowhere", 0, None), SECOND),
        NotFound,
        {"timeline": "nowhere"},
    ),
    "a move to no commit": (begun("new", ORPHAN), NotFound, {"commit": ORPHAN.digest}),
    "a parent that is not there": (ORPHAN, NotFound, {"commit": ORPHAN.commit.parents[0]}),
    "a commit without its changeset": (UNTOLD.objects[-1], NotFound, {"commit": UNTOLD.digest}),
}


def furnished(engine: Engine) -> Pen:
    """Return a store with a moved `main`, a sealed timeline, a cell and an entry."""
    pen = Pen(engine)
    pen.commit("milk")
    engine.apply(write("seal", begun("sealed", FIRST, seal=True)))
    engine.apply(write("lease", CellWrite(name="lease", expected=0, value=b"ann"), b'{"n":1}'))
    return pen


class WriteLaws(EngineSubject):
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
        """The same op_id with the same intent writes nothing, although others wrote in between."""
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

        with raises(OpReused, op_id="op"):
            engine.apply(write("op", value("eggs"), b"{}", intent="another"))

        assert portrait(engine) == before

    def test_another_intent_is_refused_before_anything_is_compared(self, engine: Engine) -> None:
        """A reused op_id is reported as such, not as a stale head."""
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
        part, error, facts = REFUSALS[refusal]
        third = made("bread", FIRST, run="run-1", messages=["m-1"])
        rest = (
            value("bread"),
            third,
            begun("bread", third),
            CellWrite(name="x", expected=0, value=b"1"),
            b"{}",
        )

        with raises(error, **facts):
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
            write("op", SECOND, moved(Head("main", 1, FIRST.digest), SECOND), intent="again")
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

        with raises(REFUSALS[first][1], **REFUSALS[first][2]):
            engine.apply(write("op", REFUSALS[then][0], REFUSALS[first][0]))

    def test_a_sealed_timeline_is_sealed_before_it_is_stale(self, engine: Engine) -> None:
        """A writer with an old head of a sealed timeline learns not to try again."""
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

        with raises(Invalid, code="written_twice", name="main"):
            engine.apply(write("op", FIRST, SECOND, *twice))

        assert list(engine.spaces(limit=9)) == []

    def test_a_write_cannot_write_one_cell_twice(self, engine: Engine) -> None:
        """A cell has one new value for each write."""
        twice = (CellWrite(name="a", expected=0, value=b"1"), CellWrite(name="a", expected=1, value=b"2"))

        with raises(Invalid, code="written_twice", name="a"):
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

        with raises(NotFound, commit=FIRST.digest):
            engine.apply(write("op-2", child, moved(START, child)))


FIRST_COMMIT = made("milk")
SECOND_COMMIT = made("eggs", FIRST_COMMIT)
OTHER = made("bread", FIRST_COMMIT)


class HeadLaws(EngineSubject):
    """What moves promise, and `hold`, `holds` and `moves`."""

    def test_main_is_there_from_the_start(self, engine: Engine) -> None:
        """`main` is at version 0 with nothing committed; it is listed once it has moved."""
        assert engine.hold(SPACE, "main") == Hold(START)
        assert list(engine.holds(SPACE, limit=9)) == []
        assert list(engine.moves(SPACE, "main", limit=9)) == []

    def test_no_other_timeline_is_there_from_the_start(self, engine: Engine) -> None:
        """A timeline that was never begun is None, not empty."""
        Pen(engine).commit("milk")

        assert engine.hold(SPACE, "what-if") is None
        assert list(engine.moves(SPACE, "what-if", limit=9)) == []

    def test_a_move_raises_the_version_by_one(self, engine: Engine) -> None:
        """The head is at the new commit, one version on."""
        pen = Pen(engine)

        first, second = pen.commit("milk"), pen.commit("eggs")

        assert pen.head == Head("main", 2, second.digest)
        found = engine.hold(SPACE, "main")
        assert found is not None
        assert (found.head, found.sealed) == (pen.head, False)
        assert second.commit.parents == (first.digest,)

    def test_a_stale_head_is_told_both_heads(self, engine: Engine) -> None:
        """Of two writers with the same head the second is refused, and nothing of it is written."""
        winner = engine.apply(write("op-1", FIRST_COMMIT, moved(START, FIRST_COMMIT))).heads[0]
        before = portrait(engine)
        loser = made("bread")

        with raises(StaleHead, expected=START, actual=winner):
            engine.apply(write("op-2", loser, moved(START, loser)))

        assert portrait(engine) == before

    def test_a_move_may_name_the_move_before_it(self, engine: Engine) -> None:
        """With the digest of the timeline's last move it is made as without it."""
        head = engine.apply(write("op-1", FIRST_COMMIT, moved(START, FIRST_COMMIT))).heads[0]
        before = engine.hold(SPACE, "main")
        assert before is not None

        named = moved(head, SECOND_COMMIT, previous=before.move)
        receipt = engine.apply(write("op-2", SECOND_COMMIT, named))

        assert receipt.heads == (Head("main", 2, SECOND_COMMIT.digest),)
        assert engine.moves(SPACE, "main", limit=1)[0].previous == before.move

    def test_a_move_that_names_another_move_before_it_is_stale(self, engine: Engine) -> None:
        """The head alone is right, and nothing of the write is made: its record would be of another chain."""
        head = engine.apply(write("op-1", FIRST_COMMIT, moved(START, FIRST_COMMIT))).heads[0]
        engine.apply(write("op-2", SECOND_COMMIT, moved(head, SECOND_COMMIT)))
        head = engine.apply(write("op-3", moved(Head("main", 2, SECOND_COMMIT.digest), FIRST_COMMIT))).heads[
            0
        ]
        before, third = portrait(engine), made("again", FIRST_COMMIT)
        first, *_ = engine.moves(SPACE, "main", limit=9)[::-1]
        assert first.to == head.commit

        for previous in (move_digest(first), FIRST_COMMIT.digest):
            with raises(StaleHead, expected=head, actual=head):
                engine.apply(write("op-4", third, moved(head, third, previous=previous)))

        assert portrait(engine) == before

    def test_a_head_from_the_future_is_stale(self, engine: Engine) -> None:
        """A version that was never reached is as wrong as one that has passed."""
        with pytest.raises(StaleHead):
            engine.apply(write("op", FIRST_COMMIT, moved(Head("main", 1, None), FIRST_COMMIT)))

    @pytest.mark.parametrize("commit", [None, OTHER.digest], ids=["no commit", "another commit"])
    def test_the_version_alone_is_not_enough(self, engine: Engine, commit: Digest | None) -> None:
        """The whole head is compared: the same number at another commit is stale."""
        engine.apply(write("op-1", FIRST_COMMIT, OTHER, moved(START, FIRST_COMMIT)))

        with pytest.raises(StaleHead):
            engine.apply(write("op-2", SECOND_COMMIT, moved(Head("main", 1, commit), SECOND_COMMIT)))

    def test_the_same_version_of_a_space_begun_again_is_stale(self, engine: Engine) -> None:
        """A head read before a space was dropped does not fit what was written there since."""
        old = engine.apply(write("op-1", FIRST_COMMIT, moved(START, FIRST_COMMIT))).heads[0]
        engine.drop(SPACE, why="removed")
        again = made("begun again")
        new = engine.apply(write("op-2", again, moved(START, again))).heads[0]

        with pytest.raises(StaleHead) as refused:
            engine.apply(write("op-3", moved(old, None)))

        assert (refused.value.expected.version, refused.value.actual) == (old.version, new)

    def test_undo_does_not_make_an_old_head_good_again(self, engine: Engine) -> None:
        """Moving back to a commit is a new move; heads read before it stay stale."""
        pen = Pen(engine)
        first = pen.commit("milk")
        read = pen.head
        pen.commit("eggs")

        pen.move(first, Act.UNDO)

        assert pen.head == Head("main", 3, first.digest)
        with raises(StaleHead, expected=read, actual=pen.head):
            engine.apply(write("op", OTHER, moved(read, OTHER)))

    def test_a_move_to_where_the_head_stands_is_a_move(self, engine: Engine) -> None:
        """The version counts moves, not distances."""
        pen = Pen(engine)
        first = pen.commit("milk")
        read = pen.head

        pen.move(first, Act.REDO)

        assert pen.head == Head("main", 2, first.digest)
        with pytest.raises(StaleHead):
            engine.apply(write("op", moved(read, None)))

    def test_the_first_commit_can_be_undone(self, engine: Engine) -> None:
        """The head then is at no commit, at a higher version, and can go on from there."""
        pen = Pen(engine)
        pen.commit("milk")

        pen.move(None, Act.UNDO)
        with pytest.raises(StaleHead):
            engine.apply(write("op", moved(START, None)))
        again = pen.commit("begun again")

        assert pen.head == Head("main", 3, again.digest)
        assert again.commit.parents == ()

    def test_a_promoted_line_does_not_make_an_old_head_good(self, engine: Engine) -> None:
        """After another line became main, a head of either line from before is stale."""
        pen = Pen(engine)
        pen.commit("milk")
        fork = pen.fork("what-if")
        read, there = pen.head, fork.commit("bread")

        keep = begun("main.v1", pen.tip, act=Act.KEEP, seal=True)
        pen.engine.apply(write("promote", keep, moved(pen.head, there, act=Act.PROMOTE)))

        with pytest.raises(StaleHead):
            engine.apply(write("op-1", SECOND_COMMIT, moved(read, SECOND_COMMIT)))
        with pytest.raises(StaleHead):
            engine.apply(write("op-2", moved(Head("main", fork.head.version, there.digest), None)))

    def test_a_head_moves_only_its_own_timeline(self, engine: Engine) -> None:
        """A head of one timeline is no permission to move another, whatever its numbers."""
        pen = Pen(engine)
        first = pen.commit("milk")
        fork = pen.fork("what-if")
        swapped = Move(act=Act.COMMIT, timeline="main", expected=fork.head, to=first.digest)

        with raises(Invalid, code="head_of_another_timeline", timeline="main"):
            engine.apply(write("op", swapped))

    def test_a_begun_timeline_stands_at_version_0(self, engine: Engine) -> None:
        """Version 0 is where a timeline began, and its first recorded move."""
        pen = Pen(engine)
        first = pen.commit("milk")

        fork = pen.fork("what-if")

        assert fork.head == Head("what-if", 0, first.digest)
        (record,) = engine.moves(SPACE, "what-if", limit=9)
        assert (record.version, record.act, record.from_, record.to) == (0, Act.FORK, None, first.digest)

    def test_a_timeline_can_begin_before_the_first_commit(self, engine: Engine) -> None:
        """A fork of nothing is a timeline with nothing committed."""
        receipt = engine.apply(write("op", begun("what-if", None)))

        assert receipt.heads == (Head("what-if", 0, None),)
        assert Pen(engine, head=receipt.heads[0]).commit("milk").commit.depth == 0

    @pytest.mark.parametrize("timeline", ["main", "what-if"])
    def test_a_timeline_cannot_begin_twice(self, engine: Engine, timeline: str) -> None:
        """A timeline to begin must not exist; `main` always does, moved or not."""
        engine.apply(write("op-1", FIRST_COMMIT, begun("what-if", FIRST_COMMIT)))

        with raises(Conflict, code="timeline_exists", timeline=timeline):
            engine.apply(write("op-2", begun(timeline, None)))

    def test_a_timeline_that_was_never_begun_cannot_move(self, engine: Engine) -> None:
        """Only `begin` makes a timeline; a typo never does."""
        with raises(NotFound, timeline="waht-if"):
            engine.apply(write("op", FIRST_COMMIT, moved(Head("waht-if", 0, None), FIRST_COMMIT)))

    @pytest.mark.parametrize("act", [Act.COMMIT, Act.UNDO, Act.REDO, Act.PROMOTE, Act.SEAL])
    def test_a_sealed_timeline_takes_no_more_moves(self, engine: Engine, act: Act) -> None:
        """Sealing is enforced here, for every writer and every act, with the right head too."""
        pen = Pen(engine)
        first = pen.commit("milk")
        pen.move(first, Act.SEAL, seal=True)
        before = portrait(engine)

        with raises(Sealed, timeline="main"):
            engine.apply(write("op", SECOND_COMMIT, moved(pen.head, SECOND_COMMIT, act=act)))

        assert portrait(engine) == before

    def test_sealing_is_a_move(self, engine: Engine) -> None:
        """It raises the version, is recorded, and shows in the hold."""
        pen = Pen(engine)
        first = pen.commit("milk")

        pen.move(first, Act.SEAL, seal=True)

        hold = engine.hold(SPACE, "main")
        assert hold is not None
        assert (hold.head, hold.sealed) == (Head("main", 2, first.digest), True)
        assert engine.moves(SPACE, "main", limit=1)[0].sealed

    def test_a_sealed_timeline_can_be_forked_and_promoted(self, engine: Engine) -> None:
        """Sealing ends moves of a timeline; its commits are as good as any."""
        pen = Pen(engine)
        first, _ = pen.commit("milk"), pen.commit("eggs")
        engine.apply(write("op-1", begun("kept", first, act=Act.KEEP, seal=True)))

        fork = pen.fork("again", at=first)
        head = pen.move(first, Act.PROMOTE)

        assert fork.commit("bread").commit.parents == (first.digest,)
        assert head == Head("main", 3, first.digest)

    def test_a_move_goes_only_to_a_commit_of_the_space(self, engine: Engine) -> None:
        """Neither another space's commit nor an object of another kind can be a head."""
        engine.apply(write("op-1", FIRST_COMMIT, space="theirs"))
        engine.apply(write("op-2", value("milk"), SECOND_COMMIT.objects[-2]))

        for digest in (FIRST_COMMIT.digest, value("milk").digest, SECOND_COMMIT.commit.changeset):
            with raises(NotFound, commit=digest):
                engine.apply(write("op-3", moved(START, digest)))

    def test_every_parent_must_be_there(self, engine: Engine) -> None:
        """A merge names two parents, and neither may be missing."""
        engine.apply(write("op-1", FIRST_COMMIT))
        merge = made("merge", FIRST_COMMIT, also=OTHER)

        with raises(NotFound, commit=OTHER.digest):
            engine.apply(write("op-2", merge, moved(START, merge)))

    def test_a_commit_must_say_how_deep_it_stands(self, engine: Engine) -> None:
        """Depth is hashed, so a commit that counts wrongly is refused before it is kept for ever."""
        lie = msgspec.structs.replace(SECOND_COMMIT.commit, depth=2)
        stored = Object.of(Kind.COMMIT, encode_commit(lie))
        engine.apply(write("op-1", FIRST_COMMIT))

        with raises(Invalid, code="depth_wrong", depth=2):
            engine.apply(write("op-2", *SECOND_COMMIT.objects[:-1], stored))

        assert list(engine.missing(SPACE, [stored.digest])) == [stored.digest]

    def test_one_write_can_carry_a_chain_of_commits(self, engine: Engine) -> None:
        """The head moves once, to the last of them; the version rises by one."""
        third = made("bread", SECOND_COMMIT)

        receipt = engine.apply(write("op", FIRST_COMMIT, SECOND_COMMIT, third, moved(START, third)))

        assert receipt.heads == (Head("main", 1, third.digest),)
        steps = engine.steps(SPACE, third.digest, limit=9)
        assert [step.digest for step in steps] == [third.digest, SECOND_COMMIT.digest, FIRST_COMMIT.digest]

    def test_several_timelines_move_in_one_write(self, engine: Engine) -> None:
        """A promote keeps the old line and moves the new one in the same step."""
        pen = Pen(engine)
        pen.commit("milk")
        fork = pen.fork("what-if")
        there = fork.commit("bread")
        keep = begun("main.v1", pen.tip, act=Act.KEEP, seal=True)

        receipt = engine.apply(write("op", keep, moved(pen.head, there, act=Act.PROMOTE)))

        assert [head.timeline for head in receipt.heads] == ["main.v1", "main"]
        assert [hold.head.timeline for hold in engine.holds(SPACE, limit=9)] == ["main", "main.v1", "what-if"]
        assert [hold.sealed for hold in engine.holds(SPACE, limit=9)] == [False, True, False]

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["stale last", "stale first"])
    def test_if_one_of_several_moves_is_refused_none_is_made(
        self, engine: Engine, order: tuple[int, int]
    ) -> None:
        """A promote whose main has moved does not leave the kept line behind."""
        pen = Pen(engine)
        first = pen.commit("milk")
        before = portrait(engine)
        moves = (begun("main.v1", first, act=Act.KEEP, seal=True), moved(START, first, act=Act.PROMOTE))

        with pytest.raises(StaleHead):
            engine.apply(write("op", *(moves[index] for index in order)))

        assert portrait(engine) == before

    def test_a_commit_without_a_move_waits_to_be_moved_to(self, engine: Engine) -> None:
        """Objects can be brought before; no timeline shows them until one moves."""
        engine.apply(write("op-1", FIRST_COMMIT, SECOND_COMMIT))
        assert list(engine.holds(SPACE, limit=9)) == []

        receipt = engine.apply(write("op-2", moved(START, SECOND_COMMIT)))

        assert receipt.heads == (Head("main", 1, SECOND_COMMIT.digest),)

    def test_timelines_belong_to_their_space(self, engine: Engine) -> None:
        """The same name in two spaces is two timelines."""
        Pen(engine, space="theirs").fork("what-if")
        Pen(engine, space="theirs").commit("milk")

        assert engine.hold(SPACE, "main") == Hold(START)
        assert engine.hold(SPACE, "what-if") is None
        assert list(engine.moves(SPACE, "main", limit=9)) == []

    def test_timelines_are_listed_by_name_from_a_cursor(self, engine: Engine) -> None:
        """Each page goes on after the last name of the one before it."""
        pen = Pen(engine)
        pen.commit("milk")
        for name in ["b", "a/b", "z", "main.v1"]:
            pen.fork(name)

        pages = [engine.holds(SPACE, after=after, limit=2) for after in ["", "b", "main.v1", "z"]]

        assert [[hold.head.timeline for hold in page] for page in pages] == [
            ["a/b", "b"],
            ["main", "main.v1"],
            ["z"],
            [],
        ]

    def test_moves_are_recorded_newest_first(self, engine: Engine) -> None:
        """Each says why, by which write, from where and to where."""
        pen = Pen(engine)
        first, second = pen.commit("milk"), pen.commit("eggs")
        pen.move(first, Act.UNDO)

        records = engine.moves(SPACE, "main", limit=9)

        assert [record.version for record in records] == [3, 2, 1]
        assert [record.act for record in records] == [Act.UNDO, Act.COMMIT, Act.COMMIT]
        assert [record.op_id for record in records] == ["main 3", "main 2", "main 1"]
        assert [(record.from_, record.to) for record in records] == [
            (second.digest, first.digest),
            (first.digest, second.digest),
            (None, first.digest),
        ]

    @pytest.mark.parametrize("author", ["ann", None])
    def test_a_move_has_the_time_and_the_author_that_it_was_asked_with(
        self, engine: Engine, author: str | None
    ) -> None:
        """They are in its record, which later moves are chained to; a move without them has neither."""
        pen = Pen(engine)
        made = pen.commit("milk")
        asked = moved(pen.head, None, act=Act.UNDO)

        undone = engine.apply(write("undo", msgspec.structs.replace(asked, at=17, author=author))).heads[0]
        engine.apply(write("redo", moved(undone, made, act=Act.REDO)))

        redo, undo, commit = engine.moves(SPACE, "main", limit=9)
        assert [(each.at, each.author) for each in (redo, undo, commit)] == [
            (None, None),
            (17, author),
            (None, None),
        ]
        assert (redo.previous, undo.previous) == (move_digest(undo), move_digest(commit))
        assert [fact.fault for fact in engine.scan(SPACE, limit=99)[0] if fact.fault] == []

    def test_moves_are_listed_below_a_version(self, engine: Engine) -> None:
        """`before` is where the page before ended; a limit bounds the page."""
        pen = Pen(engine)
        for number in range(7):
            pen.commit(f"item {number}")

        pages = [engine.moves(SPACE, "main", before=before, limit=3) for before in [None, 5, 2, 1, 99]]

        assert [[record.version for record in page] for page in pages] == [
            [7, 6, 5],
            [4, 3, 2],
            [1],
            [],
            [7, 6, 5],
        ]

    def test_each_move_names_the_move_before_it(self, engine: Engine) -> None:
        """The hold names the last move, and so the head can be checked against the whole chain."""
        pen = Pen(engine)
        first = pen.commit("milk")
        fork = pen.fork("what-if")
        for line in (pen, fork):
            line.commit("eggs")
            line.move(first, Act.UNDO)

        for timeline in ("main", "what-if"):
            hold, records = engine.hold(SPACE, timeline), engine.moves(SPACE, timeline, limit=9)
            assert hold is not None
            digests = [move_digest(record) for record in records]
            assert [hold.move, *(record.previous for record in records)] == [*digests, None]
