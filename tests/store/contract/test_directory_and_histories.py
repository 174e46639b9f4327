"""The directory and the names of spaces are not hashed; what commits say of themselves is.

Where the two disagree nothing is read, and `verify` names it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import perdure
from perdure import Store, Thread
from perdure.engines.contract import CellWrite, Write
from perdure.errors import Corrupt, NotFound
from perdure.history.space import ALIVE, STORE
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.digest import Kind, digest_of
from perdure.store.plumbing import directory
from tests.coded import raises


@pytest.fixture
def two(store: Store) -> tuple[Thread, Thread]:
    """Two threads of two agents, with histories of their own."""
    one, other = store.thread("t", agent="a"), store.thread("u", agent="b")
    for thread in (one, other):
        with thread.change("learn") as change:
            change.put("/whose.json", thread.id)
            change.say("user", f"I am {thread.id}")
            change.agent.put("/seen.json", thread.id)
    one.put("/again.json", 1)
    return one, other


def record(store: Store, id: str) -> dict[str, Json]:
    """What the directory says about a thread."""
    cell = store._resources.engine.cell(STORE, f"thread/{id}")
    assert cell is not None
    found = canonical.decode(cell.value or b"")
    assert isinstance(found, dict)
    return found


def alter(store: Store, name: str, value: object, space: str = STORE) -> None:
    """Write a cell below the face."""
    engine = store._resources.engine
    cell = engine.cell(space, name)
    body = None if value is None else canonical.encode(value)
    written = CellWrite(name=name, expected=cell.revision if cell else 0, value=body)
    op_id = store._resources.ids()
    intent = digest_of(Kind.BODY, op_id.encode())
    engine.apply(Write(space=space, op_id=op_id, intent=intent, cells=(written,)))


def faults(store: Store) -> str:
    """What `verify` names."""
    return "\n".join(str(fault) for fault in store.verify().faults)


READS: dict[str, Callable[[Thread], object]] = {
    "get": lambda thread: thread.get("/whose.json"),
    "paths": lambda thread: thread.paths(),
    "transcript": lambda thread: thread.transcript(),
    "log": lambda thread: thread.log(),
    "turns": lambda thread: thread.turns(),
    "at": lambda thread: thread.at("HEAD~0").get("/whose.json"),
    "put": lambda thread: thread.put("/mine.json", 1),
    "undo": lambda thread: thread.undo(),
    "fork": lambda thread: thread.fork("mine"),
}


@pytest.mark.parametrize("read", READS)
def test_a_record_that_leads_to_another_thread_is_not_followed(
    read: str, store: Store, two: tuple[Thread, Thread]
) -> None:
    """Whichever way one reads or writes: the history says whose it is."""
    one, other = record(store, "t"), record(store, "u")
    alter(store, "thread/t", other | {"agent": "a"})
    alter(store, "thread/u", one | {"agent": "b"})

    with raises(Corrupt, "wrong_history", thread="t", found="u"):
        READS[read](store.thread("t", agent="a"))


def test_records_that_were_swapped_are_named(store: Store, two: tuple[Thread, Thread]) -> None:
    """Both of them, from both sides."""
    one, other = record(store, "t"), record(store, "u")
    alter(store, "thread/t", other)
    alter(store, "thread/u", one)

    found = faults(store)

    assert (
        f"cell thread/t in the list of threads: it leads to space '{other['space']}', which holds the thread 'u'"
        in found
    )
    assert (
        f"cell thread/u in the list of threads: it leads to space '{one['space']}', which holds the thread 't'"
        in found
    )


def test_a_record_that_is_gone_is_named_by_its_space(store: Store, two: tuple[Thread, Thread]) -> None:
    """A thread that nobody removed has a record."""
    space = record(store, "t")["space"]
    alter(store, "thread/t", None)

    assert (
        f"space {space} in thread 't': it holds the thread 't', but the directory does not lead to it"
        in faults(store)
    )


def test_a_record_of_what_is_no_thread_is_named(store: Store, two: tuple[Thread, Thread]) -> None:
    """An agent's space, say."""
    alter(store, "thread/t", record(store, "t") | {"space": "agent:a"})

    assert (
        "cell thread/t in the list of threads: it leads to space 'agent:a', which is not a thread's"
        in faults(store)
    )


def test_a_thread_that_was_given_to_another_agent_is_named(store: Store, two: tuple[Thread, Thread]) -> None:
    """Its commits have read what that agent does not have."""
    alter(store, "thread/t", record(store, "t") | {"agent": "b"})

    assert "of its agent's map, which 'b' does not have" in faults(store)


def test_a_removal_that_nobody_made_is_named(store: Store, two: tuple[Thread, Thread]) -> None:
    """A thread that is removed says when."""
    alter(store, ALIVE, {}, space=str(record(store, "t")["space"]))

    assert "cell alive in thread 't':" in faults(store)


def test_what_really_happens_to_threads_is_no_fault(store: Store, two: tuple[Thread, Thread]) -> None:
    """Begun and never written; undone to the start; removed and begun again; removed by a process that died halfway."""
    store.thread("empty", agent="a")
    two[0].undo(to=None)
    two[1].rm()
    store.thread("u", agent="b").put("/new.json", 1)
    half = store.thread("half", agent="a")
    half.put("/x.json", 1)
    directory._closed(store._resources.store, half._space)

    assert faults(store) == ""
    with pytest.raises(NotFound):
        store.thread("half")


SWAP = "UPDATE spaces SET name = CASE name WHEN '{0}' THEN '-' ELSE '{0}' END WHERE name IN ('{0}', '{1}')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store on disk with two threads and two agents, closed."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        for id, agent in (("t", "a"), ("u", "b")):
            with store.thread(id, agent=agent).change("learn") as change:
                change.put("/whose.json", id)
                change.agent.put("/whose.json", agent)
    return path


def tamper(path: Path, *statements: str) -> None:
    """Alter the database behind the engine's back."""
    db = apsw.Connection(str(path))
    for statement in statements:
        db.execute(statement)
    db.close()


def test_names_of_agents_spaces_that_were_swapped_are_not_followed(path: Path) -> None:
    """An agent's commits carry its name."""
    tamper(path, SWAP.format("agent:a", "agent:b"), "UPDATE spaces SET name='agent:b' WHERE name='-'")

    with perdure.open(path) as store:
        with raises(Corrupt, "wrong_history", thread="a", found="b"):
            store.agent("a").get("/whose.json")
        assert "it belongs to 'b', not to 'a'" in faults(store)


def test_a_space_that_has_lost_its_name_is_named(path: Path) -> None:
    """The sum of the names does not fit what the newest write left."""
    tamper(path, "DELETE FROM spaces WHERE name='agent:a'")

    with perdure.open(path) as store:
        assert "the names of spaces are not as the newest write left them" in faults(store)
