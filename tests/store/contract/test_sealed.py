"""A sealed timeline takes no write, through whichever call it comes: the store itself refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.engines import memory, shared_rules
from perdure.engines.contract import Engine, Hold, Move
from perdure.engines.memory import MemoryEngine
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.commit import apply
from perdure.errors import Sealed
from perdure.model.commit import Act
from perdure.model.head import Head
from perdure.testing.engines.builders import SPACE, Made, Pen, begun, made, moved, portrait, value, write
from tests.coded import raises
from tests.crash.on_disk import group_of


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty store, of either kind."""
    with closing(MemoryEngine() if request.param == "memory" else SqliteEngine(tmp_path / "s.db")) as engine:
        yield engine


def sealed(engine: Engine) -> tuple[Head, Made]:
    """The head of a timeline that was sealed, and its commit."""
    pen = Pen(engine)
    tip = pen.commit("milk")
    return pen.move(tip, Act.SEAL, seal=True), tip


@pytest.mark.parametrize("act", Act)
def test_no_kind_of_move_goes_through(engine: Engine, act: Act) -> None:
    """Not a commit, an undo, a promotion, nor sealing it again, with the very head that it stands at."""
    head, tip = sealed(engine)
    new = made("eggs", tip)
    before = portrait(engine)

    with raises(Sealed, "sealed", timeline="main"):
        engine.apply(write("op", new, value("eggs"), moved(head, new, act=act)))

    assert portrait(engine) == before
    assert engine.recorded(SPACE, "op") is None


def test_a_stale_head_is_told_that_it_is_sealed(engine: Engine) -> None:
    """Reading again would not help, so that is what is said."""
    _, tip = sealed(engine)
    new = made("eggs", tip)

    with pytest.raises(Sealed):
        engine.apply(write("op", new, moved(Head("main", 1, tip.digest), new)))


def test_a_write_with_several_moves_is_refused_whole(engine: Engine) -> None:
    """The timeline that is open does not move either."""
    head, tip = sealed(engine)
    engine.apply(write("fork", begun("other", tip)))
    new = made("eggs", tip)

    with pytest.raises(Sealed):
        engine.apply(write("op", new, moved(Head("other", 0, tip.digest), new), moved(head, new)))

    other = engine.hold(SPACE, "other")
    assert other is not None
    assert other.head.version == 0


def test_it_is_refused_by_the_group_itself(tmp_path: Path) -> None:
    """The call below the engine, which has the connection in its hands, refuses too."""
    with closing(SqliteEngine(tmp_path / "s.db")) as engine:
        head, tip = sealed(engine)
        new = made("eggs", tip)

        with pytest.raises(Sealed):
            group_of(engine).apply(write("op", new, moved(head, new)))


def test_it_is_sealed_for_every_process(tmp_path: Path) -> None:
    """Also for one that read the head before, and for one that opens the store later."""
    with (
        closing(SqliteEngine(tmp_path / "s.db")) as early,
        closing(SqliteEngine(tmp_path / "s.db")) as engine,
    ):
        head, tip = sealed(engine)
        new = made("eggs", tip)

        with closing(SqliteEngine(tmp_path / "s.db")) as late:
            for each in (early, late):
                with pytest.raises(Sealed):
                    each.apply(write("op", new, moved(head, new)))


def test_it_can_be_forked(engine: Engine) -> None:
    """Nothing is lost by sealing: the way on is another timeline."""
    _, tip = sealed(engine)

    assert Pen(engine).fork("on", tip).commit("eggs").commit.parents == (tip.digest,)


def test_control_an_engine_that_does_not_look_at_the_seal_lets_it_in(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check the head of a sealed timeline moves: the check is what refuses."""

    def past_the_seal(move: Move, hold: Hold | None) -> None:
        check_move(move, hold and Hold(hold.head, False, hold.move))

    check_move = shared_rules.check_move
    head, tip = sealed(engine)
    new = made("eggs", tip)
    for module in (memory, apply):
        monkeypatch.setattr(module, "check_move", past_the_seal, raising=False)
    monkeypatch.setattr(shared_rules, "check_move", past_the_seal)

    engine.apply(write("op", new, moved(head, new)))

    hold = engine.hold(SPACE, "main")
    assert hold is not None
    assert hold.head.commit == new.digest
