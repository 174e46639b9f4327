"""Writes that form a chain: a commit each, one durable write, one move of the head."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, aio
from perdure.errors import Invalid, OpReused, StaleHead
from perdure.model.digest import Kind, digest_of
from perdure.model.patch import Put
from perdure.testing import Script, say, use


def value_digest(json: bytes) -> str:
    """The address of a JSON document."""
    return digest_of(Kind.VALUE, json)


def test_put_in_a_block_returns_the_digest_of_the_value(tmp_path: Path) -> None:
    """The same content has the same digest, which the platform computes."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")

        with thread.change("two") as change:
            first = change.put("/n.json", [1])
            appended = change.append("/n.json", 2)

    assert first == value_digest(b"[1]")
    assert appended == value_digest(b"[1,2]")


def test_a_tool_is_given_the_digest_of_what_it_puts(tmp_path: Path) -> None:
    """`call.put` returns what `change.put` does."""
    given: list[str] = []

    @perdure.tool(effect="none")
    def note(call: Call) -> str:
        """Take a note."""
        given.append(call.put("/n.json", {"a": 1}))
        return "noted"

    agent = Agent("a", backend=Script(use("note"), say("Done.")), tools=[note])
    with perdure.open(tmp_path / "agents.db") as store:
        store.thread("t", agent=agent).run("go")

    assert given == [value_digest(b'{"a":1}')]


def test_each_write_of_a_chain_is_a_commit_whose_digest_it_returns(tmp_path: Path) -> None:
    """The head moves once, from before the first commit to the last."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        before = thread.put("/todos.json", ["milk"])

        with thread.change("seed", chain=True) as change:
            second = change.put("/todos.json", ["milk", "eggs"])
            third = change.append("/todos.json", "bread")
            fourth = change.delete("/todos.json")
            seen_inside = change.paths("/")

        assert [entry.digest for entry in thread.log()][:4] == [fourth, third, second, before.commit]
        assert (change.commits, thread.head.version) == ((second, third, fourth), before.version + 1)
        assert thread.at(second).get("/todos.json") == ["milk", "eggs"]
        assert thread.at(third).get("/todos.json") == ["milk", "eggs", "bread"]
        assert seen_inside == []
        assert store.verify().ok


def test_messages_of_a_chain_can_be_undone_one_by_one(tmp_path: Path) -> None:
    """Each is a turn of its own."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        with thread.change("items", chain=True) as change:
            for number in range(3):
                change.say("user", f"item {number}")

        thread.undo()

        assert [entry.message.text for entry in thread.transcript()] == ["item 0", "item 1"]


def test_a_chain_that_raises_leaves_the_head_where_it_was(tmp_path: Path) -> None:
    """All of the chain becomes true, or nothing."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        before = thread.put("/a.json", 1)

        with pytest.raises(ZeroDivisionError), thread.change("seed", chain=True) as change:
            change.put("/a.json", 2)
            _ = 1 / 0

        assert (thread.head, thread.get("/a.json")) == (before, 1)


def test_a_chain_repeated_under_its_op_id_gives_the_first_digests(tmp_path: Path) -> None:
    """Nothing is written the second time, also after others have written."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")

        def write() -> tuple[str, ...]:
            with thread.change("seed", chain=True, op_id="once") as change:
                change.put("/a.json", change.get("/a.json", default=0) + 1)
                change.say("user", "hello")
                change.put("/a.json", change.get("/a.json") + 1)
            return change.commits

        first = write()
        thread.put("/b.json", 1)
        after = thread.head

        assert write() == first
        assert (thread.head, thread.get("/a.json")) == (after, 2)


def test_another_chain_under_the_same_op_id_is_refused(tmp_path: Path) -> None:
    """The number of commits is part of what was meant."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        with thread.change("seed", chain=True, op_id="once") as change:
            change.put("/a.json", 1)
            change.put("/a.json", 2)

        with pytest.raises(OpReused), thread.change("seed", op_id="once") as change:
            change.put("/a.json", 1)
            change.put("/a.json", 2)


def test_a_chain_is_never_rebased(tmp_path: Path) -> None:
    """Its digests were given out, so that it can be only where it was made."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")

        with pytest.raises(Invalid):
            thread.change("seed", chain=True, on_conflict="rebase")
        with pytest.raises(StaleHead), thread.change("seed", chain=True) as change:
            change.put("/a.json", 1)
            thread.put("/b.json", 1)

        assert thread.paths("/") == ["/b.json"]


def test_the_agents_map_gets_what_a_chain_changes_there(tmp_path: Path) -> None:
    """What is handed over to the agent is the last commit of the chain."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")

        with thread.change("seed", chain=True) as change:
            change.put("/a.json", 1)
            change.agent.put("/last.json", "a")

        assert (store.agent("a").get("/last.json"), len(thread.log()), len(change.commits)) == ("a", 2, 2)
        assert store.verify().ok


def test_the_awaitable_face_chains_too(tmp_path: Path) -> None:
    """The digests are the same kind of thing there."""

    async def main() -> tuple[Sequence[str], ...]:
        async with aio.open(tmp_path / "agents.db") as store:
            thread = await store.thread("t", agent="a")
            async with thread.change("seed", chain=True) as change:
                given = [await change.put("/a.json", 1), await change.put("/b.json", 2)]
            return given, change.commits, [entry.digest for entry in await thread.log()]

    given, commits, log = asyncio.run(main())

    assert tuple(given) == commits == tuple(reversed(log))


def test_with_chain_writes_each_write_of_a_tool_is_a_commit(tmp_path: Path) -> None:
    """The writes of one invocation come one after the other, and are one durable write with its result."""

    @perdure.tool(effect="none")
    def plan(call: Call) -> str:
        """Plan."""
        call.put("/todos.json", ["milk"])
        call.put("/config.json", {"a": 1})
        call.put("/todos.json", ["milk", "eggs"])
        return "planned"

    backend = Script(use("plan"), use("plan"), say("Done."))
    agent = Agent("a", backend=backend, tools=[plan], chain_writes=True)
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        thread.run("go")

        ops = [entry.patch.ops for entry in thread.log() if entry.patch.ops]
        written = [[op.path for op in each if isinstance(op, Put)] for each in ops]
        assert written == [["/todos.json"], ["/config.json"], ["/todos.json"]] * 2
        assert thread.get("/todos.json") == ["milk", "eggs"]
        assert store.verify().ok


def test_without_chain_writes_a_round_is_one_commit(tmp_path: Path) -> None:
    """Control: by default the writes of a tool are applied together."""

    @perdure.tool(effect="none")
    def plan(call: Call) -> str:
        """Plan."""
        call.put("/todos.json", ["milk"])
        call.put("/config.json", {"a": 1})
        return "planned"

    agent = Agent("a", backend=Script(use("plan"), say("Done.")), tools=[plan])
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        thread.run("go")

        assert [len(entry.patch.ops) for entry in thread.log() if entry.patch.ops] == [2]


@pytest.mark.parametrize("chain", [False, True])
def test_an_op_id_that_named_a_fork_or_an_undo_names_no_change(tmp_path: Path, chain: bool) -> None:
    """Whatever moved a head under that id, and wherever: it is a different write, and nothing is written."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        thread.put("/n.json", 1)
        thread.fork("other", op_id="fork").put("/n.json", 2, op_id="there")
        thread.put("/n.json", 3)
        thread.undo(op_id="undo")
        thread.promote("other", op_id="promote")
        before = thread.head

        for op_id in ("fork", "there", "undo", "promote"):
            with pytest.raises(OpReused), thread.change("again", chain=chain, op_id=op_id) as change:
                change.put("/n.json", 4)

        assert thread.head == before
