"""What a program declares: refused when it cannot be, and never altered by whoever reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Store
from perdure.errors import Conflict, Invalid, NotFound, StaleHead, Unavailable
from perdure.store.plumbing import directory
from tests.coded import raises


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store in memory."""
    with perdure.open("memory:") as opened:
        yield opened


class TestDeclaring:
    """An agent is checked when it is made."""

    @pytest.mark.parametrize(
        ("state", "code"),
        [
            (["/a"], "state_declaration_invalid"),
            ("/a", "state_declaration_invalid"),
            ({"/a": 1}, "state_declaration_invalid"),
            (5, "state_declaration_invalid"),
            ([perdure.state("/a"), perdure.state("/a", default=1)], "state_declared_twice"),
        ],
        ids=["a path", "text", "a mapping", "a number", "twice"],
    )
    def test_what_is_no_state_is_refused(self, state: Any, code: str) -> None:
        """On construction, not when it is first used."""
        with raises(Invalid, code, agent="planner"):
            Agent("planner", state=state)

    def test_an_agent_can_be_a_key(self) -> None:
        """Equal agents are one key, also with defaults that are lists."""
        one, other = (Agent("planner", state=[perdure.state("/a", default=[1])]) for _ in range(2))

        assert {one: 1}[other] == 1
        assert hash(one) != hash(Agent("planner"))


class TestDefaults:
    """What absent paths are read as belongs to the declaration."""

    def test_nobody_can_alter_them(self, store: Store) -> None:
        """Neither through the object that was declared nor through one that was read."""
        given = {"tags": ["a"]}
        agent = Agent("planner", state=[perdure.state("/d.json", default=given)])
        thread = store.thread("trip-42", agent=agent)
        given["tags"].append("poison")

        for read in (thread.get, store.agent(agent).get, thread.at().get):
            read("/d.json")["tags"].append("poison")
        with thread.change("look") as change:
            change.get("/d.json")["tags"].append("poison")
            assert change.get("/d.json") == {"tags": ["a"]}
        agent.defaults["/d.json"] = "poison"

        assert thread.get("/d.json") == store.agent(agent).get("/d.json") == {"tags": ["a"]}
        assert agent.defaults == {"/d.json": {"tags": ["a"]}}

    def test_they_come_as_the_type_that_is_asked_for(self, store: Store) -> None:
        """Like any value; what is given with the call is returned as it is."""

        class Todo(msgspec.Struct):
            title: str

        agent = Agent("planner", state=[perdure.state("/todos.json", default=[{"title": "milk"}])])
        thread = store.thread("trip-42", agent=agent)

        assert thread.get("/todos.json", type=list[Todo]) == [Todo("milk")]
        with thread.change("look") as change:
            assert change.get("/todos.json", type=list[Todo]) == [Todo("milk")]
        with raises(Invalid, "value_has_other_type", path="/todos.json", type="list"):
            thread.get("/todos.json", type=list[int])
        assert thread.get("/todos.json", type=list[int], default=None) is None


class TestATypoCreatesNothing:
    """Neither a thread nor an agent is begun by something that fails."""

    def test_a_timeline_that_is_not_there(self, store: Store) -> None:
        """A thread begins on main; another timeline is only opened."""
        with raises(NotFound, "thread_not_found", thread="new"):
            store.thread("new", agent="planner", timeline="nope")
        assert (list(store.threads()), list(store.agents())) == ([], [])
        store.thread("trip-42", agent="planner").fork("what-if")

        with raises(NotFound, "timeline_not_found", timeline="nope", thread="trip-42"):
            store.thread("trip-42", agent=Agent("planner"), timeline="nope")
        with raises(Conflict, "thread_of_another_agent", agent="typo", belongs_to="planner"):
            store.thread("trip-42", agent="typo", timeline="what-if")
        assert list(store.agents()) == ["planner"]
        assert store.thread("trip-42", agent="planner", timeline="what-if").timeline == "what-if"

    @pytest.mark.parametrize(
        "fail",
        [
            lambda planner: planner.put("bad path", 1),
            lambda planner: planner.put("/n.json", {1}),
            lambda planner: planner.delete("/n.json"),
            lambda planner: planner.undo(),
            lambda planner: planner.change("x").__enter__().__exit__(None, None, None),
        ],
        ids=["path", "value", "delete", "undo", "nothing changed"],
    )
    def test_a_change_of_an_agent_that_comes_to_nothing(
        self, store: Store, fail: Callable[[Any], object]
    ) -> None:
        """The agent is listed after its first commit, not before."""
        typo = store.agent("typo")
        with suppress(Invalid, NotFound):
            fail(typo)

        assert list(store.agents()) == []
        typo.put("/n.json", 1)
        assert list(store.agents()) == ["typo"]

    def test_a_commit_that_could_not_be_listed_is_listed_by_the_next(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The map is durable by then, so the block does not fail."""
        planner = store.agent("planner")

        def fail(*args: object, **options: object) -> None:
            raise Unavailable("not now")

        with monkeypatch.context() as patch:
            patch.setattr(directory, "record_agent", fail)
            planner.put("/n.json", 1)
        assert list(store.agents()) == []

        with pytest.raises(StaleHead), planner.change("stale") as change:
            change.put("/n.json", 3)
            store.agent("planner").put("/n.json", 2)
        assert list(store.agents()) == ["planner"]


def test_values_are_fixed_when_they_are_given(store: Store) -> None:
    """Altering what was put, or handed to an edit, or read, changes nothing that is committed."""
    thread = store.thread("trip-42", agent="planner")
    todos, item, blob = ["milk"], {"n": [1]}, bytearray(b"abc")
    with thread.change("put") as change:
        change.put("/todos.json", todos)
        change.append("/todos.json", item)
        change.put("/d.json", {})
        change.merge("/d.json", {"item": item})
        change.put("/blob", blob)
        change.agent.put("/ours.json", todos)
        todos.append("poison")
        item["n"].append(2)
        blob[0] = 0
        change.get("/todos.json").append("poison")

    thread.get("/d.json")["item"] = "poison"
    assert thread.get("/todos.json") == ["milk", {"n": [1]}]
    assert thread.get("/d.json") == {"item": {"n": [1]}}
    assert thread.get("/blob") == b"abc"
    assert store.agent("planner").get("/ours.json") == ["milk"]
