"""Undo and redo are recorded moves: they raise the version and can be followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from perdure.engines import loops
from perdure.engines.contract import Engine, Step, Write
from perdure.engines.loops import ATTEMPTS_MAX
from perdure.errors import Conflict, Forgotten, NotFound, StaleHead
from perdure.history import gc_generation, reader, timelines
from perdure.history.revisions import Exactly
from perdure.history.space import CommitCache, Space
from perdure.history.tree import EMPTY
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.head import MAIN, Head
from tests.coded import raises
from tests.history.hand import Hand


def grown(count: int) -> Hand:
    """A line of so many turns."""
    hand = Hand()
    for number in range(count):
        hand.write({"/n": number})
    return hand


def redo(hand: Hand) -> Head:
    """Redo once."""
    return timelines.redo(hand.space, MAIN, op_id=hand.space.ids())


def test_redo_follows_undo_back_step_by_step() -> None:
    """Three undos, three redos, and every move raised the version."""
    hand = grown(4)
    states: list[object] = []
    for move in (hand.undo, hand.undo, hand.undo):
        move()
        states.append(hand.get("/n"))
    for _ in range(3):
        redo(hand)
        states.append(hand.get("/n"))

    assert states == [2, 1, 0, 1, 2, 3]
    assert hand.head().version == 10
    with raises(NotFound, "nothing_to_redo"):
        redo(hand)


def test_undo_and_redo_can_be_mixed() -> None:
    """A redone undo is done with; one that came before it is still there."""
    hand = grown(4)
    hand.undo()
    hand.undo()
    redo(hand)
    hand.undo()
    hand.undo()

    assert hand.get("/n") == 0
    for expected in (1, 2, 3):
        redo(hand)
        assert hand.get("/n") == expected
    with pytest.raises(NotFound):
        redo(hand)


def test_a_new_commit_ends_what_could_be_redone() -> None:
    """What was undone is still there to be forked or gone back to."""
    hand = grown(3)
    undone = hand.head()
    hand.undo()
    hand.write({"/n": "new"})

    with raises(NotFound, "nothing_to_redo"):
        redo(hand)
    timelines.undo_to(hand.space, MAIN, undone.commit, op_id="back")
    assert hand.get("/n") == 2


def test_redo_looks_past_a_page_of_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves are read in pages; the walk goes on over their edges."""
    monkeypatch.setattr(loops, "_PAGE_MIN", 2)
    monkeypatch.setattr(loops, "_PAGE_MAX", 2)
    hand = grown(6)
    for _ in range(5):
        hand.undo()
    for _ in range(5):
        redo(hand)

    assert hand.get("/n") == 5
    with pytest.raises(NotFound):
        redo(hand)


def test_undo_takes_a_whole_run() -> None:
    """The commits of one run are one turn."""
    hand = grown(1)
    for number in range(5):
        hand.write({"/n": f"run {number}"}, run="run-1")

    hand.undo()

    assert hand.get("/n") == 0
    assert hand.head() == Head(MAIN, 7, hand.head().commit)


def test_undo_to_any_commit_of_the_space() -> None:
    """Also to one of another line, and redo comes back from there."""
    hand = grown(3)
    hand.fork("what-if", None)
    aside = hand.write({"/n": "aside"}, timeline="what-if")
    before = hand.head()

    timelines.undo_to(hand.space, MAIN, aside, op_id="aside")
    assert hand.get("/n") == "aside"
    timelines.undo_to(hand.space, MAIN, None, op_id="nothing")
    assert hand.head() == Head(MAIN, 5, None)
    redo(hand)
    assert redo(hand) == Head(MAIN, 7, before.commit)


def test_moves_are_recorded_with_their_act() -> None:
    """An audit shows what was done, and by which write."""
    hand = grown(2)
    hand.undo()
    redo(hand)
    hand.fork("what-if", None)
    other = hand.head("what-if")
    timelines.promote(hand.space, other, op_id="promote")
    moves = hand.engine.moves(hand.space.name, MAIN, limit=9)

    assert [move.act for move in moves] == [Act.PROMOTE, Act.REDO, Act.UNDO, Act.COMMIT, Act.COMMIT]
    assert [hand.head(name).version for name in ("main", "main.v4", "what-if")] == [5, 0, 0]


def test_a_move_is_made_against_the_head_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer commits between the read and the move: nothing moves."""
    hand = grown(2)
    before = timelines.commit_before_turns

    def late(*args: object) -> object:
        found = before(*args)  # pyright: ignore[reportArgumentType]
        hand.write({"/n": "in between"})
        return found

    monkeypatch.setattr(timelines, "commit_before_turns", late)
    with pytest.raises(StaleHead):
        hand.undo()
    assert hand.get("/n") == "in between"


def test_a_kept_name_that_is_taken_is_a_conflict() -> None:
    """Another program begins `main.v2` through the engine; promoting raises and moves nothing."""
    hand = grown(2)
    hand.fork("what-if", None)
    move = timelines.Move(act=Act.FORK, timeline="main.v2", expected=None, to=None)
    hand.engine.apply(Write(space=hand.space.name, op_id="x", intent=EMPTY, moves=(move,)))
    before = hand.head()

    with raises(Conflict, "timeline_exists", timeline="main.v2"):
        timelines.promote(hand.space, hand.head("what-if"), op_id="promote")
    assert hand.head() == before


@pytest.mark.parametrize("move", ["fork", "undo to", "redo", "promote"])
def test_no_move_leads_to_a_state_that_was_forgotten(move: str) -> None:
    """Its root is looked for in the store, whatever is remembered; nothing moves."""
    hand = grown(2)
    last = hand.head().commit
    assert last is not None
    hand.fork("what-if", last)
    hand.undo()
    hand.forget([hand.space.root_at(last)])
    before, space = hand.head(), hand.space

    with raises(Forgotten, "forgotten", what=f"nothing was moved: the state at commit {last}"):
        match move:
            case "fork":
                timelines.fork(space, MAIN, "more", last, op_id="x")
            case "undo to":
                timelines.undo_to(space, MAIN, last, op_id="x")
            case "redo":
                timelines.redo(space, MAIN, op_id="x")
            case _:
                timelines.promote(space, hand.head("what-if"), op_id="x")

    assert hand.head() == before


def test_a_line_on_a_forgotten_state_can_still_be_left_and_sealed() -> None:
    """What is refused is to go there."""
    hand = grown(2)
    hand.forget([hand.space.root_at(hand.head().commit)])

    timelines.seal(hand.space, MAIN, op_id="seal")
    timelines.fork(hand.space, MAIN, "before", "HEAD~1", op_id="fork")

    assert hand.get("/n", timeline="before") == 0


def test_a_move_among_constant_forgetting_is_given_up() -> None:
    """It is tried a number of times, and then raises."""
    hand = grown(2)
    tries: list[Space] = []

    def always(space: Space) -> Head:
        tries.append(space)
        hand.forget([hand.space.root_at(hand.write({"/n": len(tries)}))])
        write = Write(space=space.name, op_id="x", intent=EMPTY, fences=space.fences)
        hand.engine.apply(write)
        return hand.head()

    with raises(Conflict, "contended", attempts=ATTEMPTS_MAX):
        gc_generation.fenced(hand.space, always)
    assert len(tries) == ATTEMPTS_MAX


def test_listing_goes_over_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` first, also before it has moved; the others by name."""
    monkeypatch.setattr(loops, "_PAGE_MIN", 3)
    monkeypatch.setattr(loops, "_PAGE_MAX", 3)
    hand = Hand()
    for name in ("z", "a", "m", "n", "b", "c", "d"):
        hand.fork(name, None)

    listed = [hold.head.timeline for hold in timelines.timelines(hand.space)]

    assert listed == ["main", "a", "b", "c", "d", "m", "n", "z"]


class Counted:
    """An engine that counts how often commits are read from it."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.reads = engine, 0

    def steps(self, space: str, at: Digest, *, limit: int, **options: Any) -> Sequence[Step]:
        self.reads += 1
        return self._engine.steps(space, at, limit=limit, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def test_a_fork_at_a_moment_that_was_listed_reads_no_commit() -> None:
    """What the log has just shown is remembered; control: unlisted, or after anything was forgotten, it is read."""
    hand = grown(6)
    engine = Counted(hand.engine)

    def fork(name: str, *, listed: bool) -> int:
        space = msgspec.structs.replace(hand.space, engine=cast("Engine", engine), steps=CommitCache())
        shown = reader.log(space if listed else hand.space, hand.head().commit)
        engine.reads = 0
        timelines.fork(space, MAIN, name, Exactly(shown[3].digest), op_id=None)
        return engine.reads

    assert fork("listed", listed=True) == 0
    assert fork("unlisted", listed=False) == 1

    hand.write({"/gone": "words"})
    hand.forget([hand.space.tree_at(hand.head().commit).get("/gone").value])  # pyright: ignore[reportOptionalMemberAccess]
    assert fork("after-forgetting", listed=True) == 1
