"""A commit or an object that the store itself names and does not have is damage, and no list leaves it out.

`NotFound` is for names that a caller gave, and for threads that were removed.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure import Agent, aio
from perdure.engines.sqlite import open_sqlite
from perdure.errors import Corrupt, NotFound
from perdure.history import retention
from perdure.history.retention import RetentionPolicy
from perdure.store.store import Store
from perdure.testing import Script, say, use

UNKNOWN = "0" * 64


@perdure.tool(effect="financial", ask=True)
def wire(amount: int) -> str:
    """Wire."""
    return f"wired {amount}"


def agent() -> Agent:
    """An agent that asks before it wires."""
    return Agent("clerk", backend=Script(use("wire", amount=7), say("Wired.")), tools=[wire])


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A store with two threads, each with a run that waits for a decision."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store:
        for id in ("t", "u"):
            store.thread(id, agent=agent()).run("Wire 7")
    return path


def head_of(path: Path, id: str) -> str:
    """The digest of the commit that a thread stands at."""
    with perdure.open(path, read_only=True) as store:
        commit = store.thread(id).head.commit
    assert commit is not None
    return commit


def swap_heads(path: Path) -> str:
    """Swap the digests of the newest commits of the two threads; the digest that 't' has lost."""
    one, other = (bytes.fromhex(head_of(path, id)) for id in ("t", "u"))
    with closing(sqlite3.connect(path)) as database, database:
        rows = dict(database.execute("SELECT digest, id FROM log WHERE digest IN (?, ?)", (one, other)))
        for digest, row in ((one, rows[other]), (other, rows[one])):
            database.execute("UPDATE log SET digest=? WHERE id=?", (digest, row))
    return one.hex()


def drop_removed(path: Path) -> None:
    """Let the retention policy drop what threads that were removed have left."""
    with closing(open_sqlite(path, read_only=False, create=False, durability="process_crash")) as engine:
        plan = retention.plan(engine, RetentionPolicy(removed_threads=True), 0)
        done = retention.carry_out(engine, plan, ids=lambda: "gc")
    assert [each.dropped for each in done] == [True]


USES: dict[str, Callable[[Store], object]] = {
    "resume": lambda store: store.resume(agent()),
    "approvals": lambda store: store.approvals(),
    "transcript": lambda store: store.thread("t").transcript(),
    "log": lambda store: list(store.thread("t").log()),
    "get": lambda store: store.thread("t").get("/a.json", default=None),
    "turn": lambda store: store.thread("t").at("turn:1"),
    "undo": lambda store: store.thread("t").undo(),
    "write": lambda store: store.thread("t").put("/a.json", 1),
    "resume one": lambda store: store.thread("t", agent=agent()).resume(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_commit_that_a_head_names_and_that_is_missing_is_damage(
    waiting: Path, use: Callable[[Store], object]
) -> None:
    """The error names the commit; nothing is answered as if the thread or its runs were not there."""
    lost = swap_heads(waiting)

    with perdure.open(waiting) as store, pytest.raises(Corrupt) as met:
        use(store)

    assert met.value.digest == lost


def test_resuming_in_a_loop_meets_the_same_damage(waiting: Path) -> None:
    """The `aio` store goes over the open runs by itself."""
    lost = swap_heads(waiting)

    async def resumed() -> None:
        async with aio.open(waiting) as store:
            await store.resume(agent())

    with pytest.raises(Corrupt) as met:
        asyncio.run(resumed())

    assert met.value.digest == lost


def test_a_store_without_edits_resumes_and_lists(waiting: Path) -> None:
    """Control: every one of these has an answer."""
    with perdure.open(waiting) as store:
        statuses = [result.status for result in store.resume(agent())]
        listed = [approval.thread for approval in store.approvals()]

    assert statuses == ["waiting", "waiting"]
    assert listed == ["t", "u"]


def test_a_commit_that_a_caller_names_is_not_found(waiting: Path) -> None:
    """Control: a wrong name is no damage."""
    with perdure.open(waiting) as store:
        thread = store.thread("t")
        with pytest.raises(NotFound):
            thread.at(UNKNOWN)
        with pytest.raises(NotFound):
            thread.artifacts.show(f"artifact://sha256/{UNKNOWN}")


def test_a_thread_that_was_removed_is_left_out_and_not_damage(waiting: Path) -> None:
    """Control: removing is what a user may do, also while another process holds the thread."""
    with perdure.open(waiting) as store, perdure.open(waiting) as other:
        held = other.thread("t")
        store.thread("t").rm(force=True)
        drop_removed(waiting)
        with pytest.raises(NotFound):
            held.transcript()
        resumed = store.resume(agent())

    assert [result.status for result in resumed] == ["waiting"]
