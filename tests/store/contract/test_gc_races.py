"""Retention against everybody else: whichever comes first, a live head never stands on what was forgotten.

Either the writer is seen by retention, which then keeps what he needs; or the writer meets
`Forgotten`, and nothing was written.  The controls take one of the two halves away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from perdure import Store, Thread
from perdure.engines.contract import Engine, Receipt, Write
from perdure.errors import Forgotten
from perdure.history import gc_generation, retention
from perdure.history.retention import RetentionPolicy, SpaceRemoval
from perdure.history.space import Space
from perdure.model.head import Head

DAY = 24 * 60 * 60 * 1_000_000
TEXT = {"important": "value" * 30}

RETURNS: dict[str, Callable[[Thread, Head], object]] = {
    "cherry-pick": lambda thread, two: thread.cherry_pick(two),
    "fork": lambda thread, two: thread.fork("again", at=two),
    "undo": lambda thread, two: thread.undo(to=two),
}


@pytest.fixture
def two(thread: Thread) -> Head:
    """A turn that was undone, and is remembered by everybody who may read it."""
    thread.put("/base.json", 0)
    with thread.change("two") as change:
        change.put("/x.json", TEXT)
        change.put("/y.json", "other")
    undone = thread.head
    thread.undo()
    thread.put("/after.json", 1)
    view = thread.at(undone)
    assert [view.get(path) for path in view.paths()] == [0, TEXT, "other"]
    return undone


def collect(store: Store) -> Sequence[SpaceRemoval]:
    """Forget everything that was undone."""
    engine, now = store._resources.engine, store._resources.clock()
    plan = retention.plan(engine, RetentionPolicy(undone_after_days=0), now + 3 * DAY)
    return retention.carry_out(engine, plan, ids=store._resources.ids)


def before_writing(monkeypatch: pytest.MonkeyPatch, engine: Engine, act: Callable[[], object]) -> None:
    """Let something happen between what the next writer has read and what he writes, once."""
    apply, left = engine.apply, [act]

    def late(write: Write) -> Receipt:
        while left:
            left.pop()()
        return apply(write)

    monkeypatch.setattr(engine, "apply", late)


def before_forgetting(monkeypatch: pytest.MonkeyPatch, engine: Engine, act: Callable[[], object]) -> None:
    """Let something happen between what retention has marked and what it forgets, once."""
    forget, left = engine.forget, [act]

    def late(*args: Any, **options: Any) -> int:
        while left:
            left.pop()()
        return forget(*args, **options)

    monkeypatch.setattr(engine, "forget", late)


def assert_whole(store: Store, thread: Thread) -> None:
    """Everything that any head reaches can be read."""
    for hold in thread.timelines():
        line = store.thread(thread.id, timeline=hold.head.timeline)
        for view in [line, *(line.at(step.digest) for step in line.log())]:
            assert all(view.get(path) is not None for path in view.paths())
    assert store.verify().ok


@pytest.mark.parametrize("how", RETURNS)
def test_nobody_returns_to_what_was_forgotten(
    how: str, store: Store, other: Store, thread: Thread, two: Head
) -> None:
    """Not even who remembers all of it: it is looked for in the store."""
    (done,) = collect(other)
    before = thread.head

    with pytest.raises(Forgotten):
        RETURNS[how](thread, two)

    assert done.count == 3
    assert thread.head == before
    assert_whole(other, thread)


@pytest.mark.parametrize("how", RETURNS)
def test_what_is_forgotten_between_reading_and_writing_is_noticed(
    how: str, store: Store, other: Store, thread: Thread, two: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation has changed: the writer begins again, and meets it."""
    before = thread.head
    before_writing(monkeypatch, store._resources.engine, lambda: collect(other))

    with pytest.raises(Forgotten):
        RETURNS[how](thread, two)

    assert thread.head == before
    assert_whole(other, thread)


@pytest.mark.parametrize("how", [*RETURNS, "put"])
def test_what_somebody_returns_to_while_it_is_marked_stays(
    how: str, store: Store, other: Store, thread: Thread, two: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention has decided already; the write makes it decide again.  An equal value is not stored again."""
    acts = {**RETURNS, "put": lambda thread, two: thread.put("/new.json", TEXT)}
    before_forgetting(monkeypatch, other._resources.engine, lambda: acts[how](thread, two))

    (done,) = collect(other)

    line = store.thread(thread.id, timeline="again") if how == "fork" else thread
    assert line.get("/new.json" if how == "put" else "/x.json") == TEXT
    assert done.left_alone is None
    assert_whole(other, thread)


def test_an_undo_along_the_line_does_not_mind(
    store: Store, other: Store, thread: Thread, two: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is forgotten meanwhile is nothing that a live line has."""
    before_writing(monkeypatch, store._resources.engine, lambda: collect(other))

    thread.undo()

    assert thread.paths() == ["/base.json"]
    assert thread.redo() == thread.head
    assert thread.get("/after.json") == 1


def test_a_merge_does_not_take_in_what_was_forgotten(
    store: Store, other: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other line is undone and collected while its change is on the way into ours."""
    thread.put("/base.json", 0)
    line = thread.fork("what-if")
    line.put("/x.json", TEXT)

    def give_up() -> None:
        line.undo()
        line.put("/after.json", 1)
        collect(other)

    before_writing(monkeypatch, store._resources.engine, give_up)

    with pytest.raises(Forgotten):
        thread.merge("what-if")

    assert thread.paths() == ["/base.json"]
    assert_whole(other, thread)


def test_who_collects_reads_nothing_forgotten_from_memory(store: Store, thread: Thread, two: Head) -> None:
    """The nodes that this process remembers go with those in the store."""
    resources = store._resources
    plan = retention.plan(resources.engine, RetentionPolicy(undone_after_days=0), resources.clock() + 3 * DAY)

    retention.carry_out(resources.engine, plan, ids=resources.ids, cache=resources.cache)

    with pytest.raises(Forgotten):
        thread.at(two).paths()


# ---- controls: a check that cannot fail is no evidence


def test_without_the_standing_a_live_value_is_lost(
    store: Store, other: Store, thread: Thread, two: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgetting that does not ask who wrote meanwhile takes what a put relies on."""
    places = ("shared_rules", "sqlite.engine", "postgres.upkeep")
    for place in [
        f"perdure.engines.{place}" for place in places if f"perdure.engines.{place}" in sys.modules
    ]:
        monkeypatch.setattr(f"{place}.check_standing", lambda *args: None)
    before_forgetting(monkeypatch, other._resources.engine, lambda: thread.put("/new.json", TEXT))

    collect(other)

    with pytest.raises(Forgotten):
        thread.get("/new.json")


@pytest.mark.parametrize("how", ["cherry-pick", "fork"])
def test_without_the_fence_a_live_head_ends_on_what_was_forgotten(
    how: str, store: Store, other: Store, thread: Thread, two: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that does not say which generation he read is not told that it is over."""

    def unfenced(space: Space, act: Callable[[Space], object]) -> object:
        return act(msgspec.structs.replace(space))

    monkeypatch.setattr(gc_generation, "fenced", unfenced)
    before_writing(monkeypatch, store._resources.engine, lambda: collect(other))

    RETURNS[how](thread, two)

    line = store.thread(thread.id, timeline="again") if how == "fork" else thread
    with pytest.raises(Forgotten):
        line.get("/x.json")
