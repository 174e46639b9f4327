"""A head that this process moved last is asked for by one short look, which sees every write of another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from perdure.engines.contract import Answer, CellOf, CellWrite, Engine, HeadOf, LedgerOf, Write
from perdure.errors import Corrupt
from perdure.testing.engines.builders import SPACE, START, Pen, made, moved, write
from tests.coded import raises
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.test_next_commit import Sent

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import questions
    from perdure.engines.postgres.engine import PostgresEngine
    from perdure.engines.postgres.reads import StoreQuestion

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

OTHER = "agent:another"
HEAD = HeadOf(SPACE, "main")
BESIDE = (HeadOf(OTHER, "main"), CellOf(SPACE, "a"), LedgerOf(SPACE))


def entered(engine: Engine) -> list[Answer]:
    """What a block of changes reads: the head when it is entered, the rest when it is left."""
    return [*engine.answers((HEAD,)), *engine.answers(BESIDE, fresh=False)]


def moved_head(pen: Pen) -> Write:
    """The next commit, of another writer."""
    rival = made("of another", pen.tip)
    return write("of another", rival, moved(pen.head, rival))


BY_OTHERS: dict[str, Callable[[Pen], Write]] = {
    "head": moved_head,
    "cell": lambda _: write("of another", CellWrite(name="a", expected=0, value=b"1")),
    "ledger": lambda _: write("of another", b"{}"),
    "another space": lambda _: write(
        "of another", each := made("of another"), moved(START, each), space=OTHER
    ),
}


@pytest.fixture
def pen(open_engine: Opener) -> Pen:
    """A writer whose process has read beside its head, and has written since."""
    pen = Pen(open_engine())
    for number in range(5):
        pen.commit(f"{number}")
        entered(pen.engine)
    pen.commit("last")
    return pen


def test_a_known_head_is_one_short_look(
    pen: Pen, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads a row of each space and no other table, and its answers are those of an opening that knows nothing."""
    sent = Sent(monkeypatch)

    known = entered(pen.engine)

    (look,) = sent.statements
    assert "perdure.spaces" in look
    assert "perdure.heads" not in look
    assert known == entered(open_engine())


@pytest.mark.parametrize("what", BY_OTHERS)
def test_a_write_of_another_process_is_seen(what: str, pen: Pen, open_engine: Opener) -> None:
    """To the head, to what is read beside it in its own space, and in another one."""
    before = entered(pen.engine)
    open_engine().apply(BY_OTHERS[what](pen))

    after = entered(pen.engine)

    assert after == entered(open_engine())
    assert after != before


@pytest.mark.parametrize("what", BY_OTHERS)
def test_without_the_look_it_is_not_seen(
    what: str, pen: Pen, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: what is known is taken for what is."""
    open_engine().apply(BY_OTHERS[what](pen))
    always = StoreQuestion("SELECT true", (), bool)
    monkeypatch.setattr(questions, "unchanged", lambda *_: always)

    assert entered(pen.engine) != entered(open_engine())


@pytest.mark.parametrize("own", ["cell", "ledger"])
def test_what_this_process_wrote_beside_its_head_is_seen(own: str, pen: Pen, open_engine: Opener) -> None:
    """Such a write goes by the general function, and what was read before it is not used again."""
    pen.engine.apply(BY_OTHERS[own](pen))
    pen.commit("after")

    assert entered(pen.engine) == entered(open_engine())


@pytest.mark.parametrize("times", [1, 2])
def test_a_head_that_this_process_moved_in_another_way_is_seen(
    times: int, pen: Pen, open_engine: Opener
) -> None:
    """An undo goes by the general function, which does not say where the line goes on."""
    entered(pen.engine)
    pen.move(None)

    found = [entered(pen.engine) for _ in range(times)]

    assert found == times * [entered(open_engine())]


def test_a_head_that_was_edited_is_refused_by_the_write(pen: Pen, postgres: Server) -> None:
    """The look does not read the head; the write compares it before it changes anything."""
    assert isinstance(pen.engine, PostgresEngine)
    tenant = pen.engine.facts()["tenant"]
    postgres.sql(f"UPDATE perdure.heads SET version = version + 1 WHERE tenant = '{tenant}'")
    entered(pen.engine)

    with raises(Corrupt, "head_damaged"):
        pen.commit("late")


def test_processes_that_alternate_pay_for_few_looks(
    pen: Pen, open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a look that found a change the next sixteen writes to the space read the head itself at once."""
    other = open_engine()
    sent = Sent(monkeypatch)
    for number in range(10):
        other.apply(write(f"of another {number}", CellWrite(name="b", expected=number, value=b"1")))
        sent.statements.clear()
        entered(pen.engine)
        pen.commit(f"later {number}")
        extra: Sequence[str] = sent.statements

        assert len(extra) <= (3 if number == 0 else 2)
