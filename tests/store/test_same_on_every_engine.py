"""The same acts at the same times give the same digests, whichever engine is below: nothing of it is hashed.

The scene has what can differ: runs with tools, an approval, a switch of backends, timelines, memory and long values.
The clock, the ids and the name of the holder are the test's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import cast

import pytest

import perdure
from perdure import Agent, Store
from perdure.engines import loops
from perdure.engines.registry import open_engine
from perdure.store.plumbing.handles import Ids, StoreResources
from perdure.testing import Script, say, use
from tests.engines.postgres.stores import new_store

NOW = 1_700_000_000_000_000  # µs since 1970


@perdure.tool(effect="external_write")
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@perdure.tool(effect="external_write", ask=True)
def refund(to: str) -> str:
    """Refund, if a person approves."""
    return f"refunded {to}"


def scene(store: Store) -> None:
    """Do everything that leaves commits, moves and entries."""
    first = Script(use("pay", to="ann"), say("Paid."), use("refund", to="bob"), say("Refunded."))
    agent = Agent("clerk", backend=first, tools=[pay, refund])
    thread = store.thread("t", agent=agent)
    thread.run("Pay Ann.", id="m-1")
    thread.run("Refund Bob.", id="m-2")
    (approval,) = store.approvals()
    thread.decide(approval.call, "approve", by="ann")
    thread.resume()
    with thread.change("notes") as change:
        change.put("/long.json", ["line " * 50] * 200)
        change.put("/\N{MUSICAL SYMBOL G CLEF}.json", {"\x00": "\u2028"})
    fork = thread.fork("other")
    fork.put("/only.json", "here")
    thread.put("/long.json", "short")
    thread.undo()
    thread.promote("other")
    store.memory("ann").add("likes tea", id="tea")
    other = Script(say("Hello from the other one."), backend="script:second")
    store.thread("t", agent=Agent("clerk", backend=other, tools=[pay, refund])).switch(other)


def found(store: Store) -> dict[str, list[str]]:
    """Every digest that the store has: of commits, moves and the ends of ledgers."""
    engine = store._resources.engine  # pyright: ignore[reportPrivateUsage]
    digests: dict[str, list[str]] = {}
    for space in loops.spaces(engine):
        of = digests.setdefault(space, [])
        of += sorted(engine.commits(space, "", limit=9_999))
        for hold in engine.holds(space, limit=99):
            of += [
                f"{hold.head.timeline} {each.version} {each.to} {each.previous}"
                for each in engine.moves(space, hold.head.timeline, limit=9_999)
            ]
        of.append(f"ledger {engine.ledger(space)}")
    return digests


@pytest.fixture(scope="module")
def expected() -> dict[str, list[str]]:
    """What the engine in memory has after the scene."""
    with opened("memory:") as store:
        scene(store)
        return found(store)


def opened(url: str) -> Store:
    """A store whose clock and ids say the same each time."""
    numbers = count(1)
    engine = open_engine(url, read_only=False, create=True, durability="power_loss")
    # A call names its holder, and each opening of a store has another name.
    setattr(engine, "holder", lambda: "the test")  # noqa: B010
    ids = cast("Ids", lambda: f"01a1e900-0000-7000-8000-{next(numbers):012x}")
    return Store(StoreResources(engine=engine, clock=lambda: NOW, ids=ids), "opened", read_only=False)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store on another engine."""
    url = new_store(request) if request.param == "postgres" else str(tmp_path / "store.db")
    with opened(url) as empty:
        yield empty


def test_every_digest_is_the_same(store: Store, expected: dict[str, list[str]]) -> None:
    """Of every space: the commits, the moves of every timeline and the end of the ledger."""
    scene(store)

    assert found(store) == expected
    assert sum(map(len, expected.values())) > 20


def test_another_act_gives_other_digests(store: Store, expected: dict[str, list[str]]) -> None:
    """Control: the comparison sees one commit more."""
    scene(store)
    store.thread("t").put("/more.json", 1)

    assert found(store) != expected
