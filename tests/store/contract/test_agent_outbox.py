"""The outbox: what threads left to be done arrives in order, and never makes a durable commit look failed."""

from __future__ import annotations

import pytest

import perdure
from perdure import Store, Thread
from perdure.engines import loops
from perdure.engines.contract import Write
from perdure.errors import Conflict, Corrupt, NotFound, PerdureError, Unavailable
from perdure.store.plumbing import directory, outbox
from tests.coded import raises

FAILURES: list[PerdureError] = [
    Corrupt("damaged"),
    Conflict("raced"),
    NotFound("gone"),
    Unavailable("the disk is full"),
]


def leave(thread: Thread, patch: pytest.MonkeyPatch, count: int) -> None:
    """Make commits whose change of the agent's map is not applied."""
    with patch.context() as inside:
        inside.setattr(outbox, "finish", lambda *args: None)
        for number in range(count):
            with thread.change(f"change {number}") as change:
                change.agent.put("/n.json", number)


def test_it_is_emptied_in_the_order_of_commits_over_pages(
    store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells are listed by digest; what was committed last is still applied last."""
    monkeypatch.setattr(loops, "_PAGE_MIN", 3)
    leave(thread, monkeypatch, 20)

    outbox.finish(store._resources.named, thread._space)

    told = [entry.reason for entry in store.agent("planner").log()]
    assert told == [f"change {number}" for number in reversed(range(20))]
    assert store.agent("planner").get("/n.json") == 19
    assert store._resources.engine.listed(prefix="outbox/", limit=10) == []


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_durable_commit_is_not_called_a_failure(
    store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch, error: PerdureError
) -> None:
    """An earlier change cannot be applied: this block is committed, says so, and stays in the outbox."""
    leave(thread, monkeypatch, 1)

    def fail(*args: object, **options: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "deliver", fail)
        with thread.change("mine") as change:
            change.agent.put("/mine.json", 1)
        assert change.receipt is not None
        assert thread.fork("what-if").timeline == "what-if"
        thread.promote("what-if")
    assert thread.log()[0].reason == "mine"
    assert len(store._resources.engine.listed(prefix="outbox/", limit=10)) == 2

    with thread.change("again") as change:
        change.agent.put("/again.json", 1)
    assert store.agent("planner").paths() == ["/again.json", "/mine.json", "/n.json"]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_opening_survives_what_cannot_be_applied(
    store_url: str, thread: Thread, monkeypatch: pytest.MonkeyPatch, error: PerdureError
) -> None:
    """Whatever it is: the store opens, and the next opening finishes it."""
    leave(thread, monkeypatch, 1)

    def fail(*args: object, **options: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(outbox, "deliver", fail)
        with perdure.open(store_url) as again:
            assert again.agent("planner").paths() == []

    with perdure.open(store_url) as again:
        assert again.agent("planner").paths() == ["/n.json"]


def test_a_line_that_cannot_be_begun_is_told_at_once(
    store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict that is not about somebody else having begun the line is not tried for ever."""
    fork = thread.fork("what-if")
    leave(fork, monkeypatch, 1)
    engine = type(store._resources.engine)
    applied = engine.apply

    def refuse(self: object, write: Write) -> object:
        if write.op_id.startswith("begin:fork/"):
            raise Conflict("refused", code="refused_here")
        return applied(self, write)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(engine, "apply", refuse)
        with raises(Conflict, "refused_here"):
            outbox.finish(store._resources.named, thread._space)

    outbox.finish(store._resources.named, thread._space)
    assert fork.agent_map().get("/n.json") == 0


@pytest.mark.parametrize("step", ["_closed", "_emptied"])
def test_a_removal_that_is_always_refused_gives_up(
    store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """After some tries in which another writer was always first it says that nothing came of it; later it works."""
    with monkeypatch.context() as patch:
        patch.setattr(directory, step, lambda *_: False)
        with raises(Conflict, "contended"):
            directory.remove(store._resources.store, thread._space, "trip-42")

    directory.remove(store._resources.store, thread._space, "trip-42")
    with raises(NotFound, "thread_not_found", thread="trip-42"):
        store.thread("trip-42")


def test_what_was_put_and_edited_in_one_block_arrives_as_it_was_done(store: Store, thread: Thread) -> None:
    """An op may edit what the op before it brought, although that is not stored on the agent's side yet."""
    with thread.change("both") as change:
        change.agent.put("/n.json", [1])
        change.agent.append("/n.json", 2)
        change.agent.append("/n.json", 3)

    assert store.agent("planner").get("/n.json") == [1, 2, 3]
    assert [type(op).__name__ for op in store.agent("planner").log()[0].patch.ops] == ["Put", "Edit", "Edit"]
    assert store.verify().ok
