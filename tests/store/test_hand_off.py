"""A hand-off gives the timeline to another agent by a recorded commit: the conversation, and never another agent's map."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, aio
from perdure.errors import Conflict, NotFound, Refused, StaleHead
from perdure.model.event import AgentHandedOff, BackendSwitched
from perdure.testing import Script, say, step, use
from tests.coded import raises
from tests.engines.postgres.stores import new_store
from tests.selection import engines
from tests.switching.scenes import PICTURE


@perdure.tool(effect="external_write", ask=True)
def refund(call: Call, order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@perdure.tool(effect="read_only")
def look_up(call: Call, order: str) -> str:
    """Look an order up."""
    return f"{order}: shipped"


def triage(*steps: Any) -> Agent:
    """The agent that answers first."""
    return Agent("triage", backend=Script(*(steps or (say("Let me see."),) * 9)), tools=[look_up])


def billing(*steps: Any, backend: str = "script:test") -> Agent:
    """The agent that knows about money."""
    return Agent(
        "billing", backend=Script(*(steps or (say("It is paid."),) * 9), backend=backend), tools=[refund]
    )


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty store on each engine."""
    url = {"memory:": lambda: "memory:", "file": lambda: str(tmp_path / "store.db")}
    with perdure.open(url.get(request.param, lambda: new_store(request))()) as opened:
        yield opened


@pytest.fixture
def first(store: Store) -> Thread:
    """A conversation with the first agent, which has learned something for itself."""
    thread = store.thread("t", agent=triage())
    thread.run("My order 7 is late.", id="m1")
    with thread.change("learn") as change:
        change.agent.put("/own.json", "triage's")
        change.put("/shared.json", "the thread's")
    with store.thread("other", agent=billing()).change("learn") as change:
        change.agent.put("/own.json", "billing's")
    return thread


def test_the_next_agent_has_the_conversation(first: Thread) -> None:
    """Its model is shown what was said before, and its answer follows in the same transcript."""
    agent = billing(say("It is paid."))
    model = agent.backend
    assert isinstance(model, Script)

    thread = first.hand_off(agent, reason="it is about money", by="ann")
    thread.run("Is it paid?", id="m2")

    shown = [message.text for message in model.contexts[0].messages]
    assert "My order 7 is late." in shown
    assert [each.text for each in thread.transcript()][-1] == "It is paid."
    assert (thread.agent, thread.get("/shared.json")) == ("billing", "the thread's")


def test_it_is_an_event_of_its_own_kind_that_shifts_no_number(first: Thread) -> None:
    """The log says who handed it off to whom, and why."""
    thread = first.hand_off(billing(), reason="it is about money", by="ann")
    thread.run("Is it paid?", id="m2")

    (event,) = [e for each in thread.log() for e in each.events if isinstance(e, AgentHandedOff)]
    assert (event.from_agent, event.to_agent, event.why, event.by) == (
        "triage",
        "billing",
        "it is about money",
        "ann",
    )
    assert [(turn.number, turn.kind) for turn in thread.turns()] == [
        (1, "message"),
        (1, "edit"),
        (1, "hand-off"),
        (2, "message"),
    ]


def test_no_agent_sees_the_map_of_another(first: Thread) -> None:
    """The next agent sees its own map, and at moments before the hand-off none."""
    thread = first.hand_off(billing())

    assert thread.at(thread.head).agent_map().get("/own.json") == "billing's"
    with pytest.raises(NotFound):
        thread.at("turn:1").agent_map().get("/own.json")
    with thread.change("learn") as change:
        change.agent.put("/more.json", 1)
    assert first.at("HEAD~2").agent_map().get("/own.json") == "triage's"


@pytest.mark.parametrize("is_undone", [False, True])
def test_a_handle_from_before_a_hand_off_on_a_fork_is_told_whose_it_is(
    first: Thread, *, is_undone: bool
) -> None:
    """Nothing is damaged: while the other agent has the fork its map is not shown, and after an undo it is ours again."""
    fork = first.fork("side")
    other = fork.hand_off(billing())
    other.run("Is it paid?", id="m2")
    if is_undone:
        other.undo(2)
        assert fork.agent_map().get("/own.json") == "triage's"
        assert fork.at(fork.head).agent_map().get("/own.json") == "triage's"
        return

    for view in (fork, fork.at(fork.head)):
        with raises(Conflict, "thread_of_another_agent", thread="t", agent="triage"):
            view.agent_map()


def test_the_map_of_a_stale_handle_on_a_fork_after_an_undone_hand_off(first: Thread) -> None:
    """The commits of the fork name the first agent's map: the next agent's handle is told whose it is, and not of damage."""
    first.put("/note.json", 1)
    fork = first.fork("side")
    other = fork.hand_off(billing())
    other.undo()

    with raises(Conflict, "thread_of_another_agent", thread="t", agent="billing"):
        other.agent_map()


def test_the_next_agents_tools_apply(store: Store, first: Thread) -> None:
    """A tool of the first agent is unknown, one of the next is asked for and made once."""
    agent = billing(step(use("look_up", order="7")), step(use("refund", order="7")), say("Done."))
    thread = first.hand_off(agent)

    thread.run("Refund it.", id="m2")
    (ticket,) = store.approvals()
    thread.decide(ticket.call, "approve", by="bob")
    thread.resume()

    assert [(each.tool, each.state) for each in thread.calls()] == [
        ("look_up", "failed"),
        ("refund", "succeeded"),
    ]
    assert store.verify().faults == ()


def test_the_first_agent_is_refused_from_then_on(store: Store, first: Thread) -> None:
    """By a new handle and by one that was open; the next agent is let in."""
    first.hand_off(billing())

    with raises(Conflict, "thread_of_another_agent", thread="t", agent="triage"):
        store.thread("t", agent=triage())
    with raises(Conflict, "thread_of_another_agent", thread="t", agent="triage"):
        first.run("Hello?", id="m2")
    assert store.thread("t").agent == store.thread("t", agent=billing()).agent == "billing"
    assert [(each.id, each.agent) for each in store.threads(agent="billing")] == [
        ("other", "billing"),
        ("t", "billing"),
    ]


@pytest.mark.parametrize("is_on_fork", [False, True])
def test_a_block_of_another_agents_handle_writes_nothing(
    store: Store, first: Thread, *, is_on_fork: bool
) -> None:
    """Neither after a hand-off nor after its undo; the handle of the agent writes."""
    line = first.fork("other") if is_on_fork else first
    taken = line.hand_off(billing())
    _check_refused(line, "triage")
    taken.put("/a.json", 1)
    line.undo(to=first.head if is_on_fork else "turn:1")

    _check_refused(taken, "billing")
    line.put("/a.json", 2)
    assert line.get("/a.json") == 2
    assert store.verify().faults == ()


def _check_refused(thread: Thread, agent: str) -> None:
    before = thread.head
    with raises(Conflict, "thread_of_another_agent", thread="t", agent=agent):
        thread.put("/late.json", 1)
    with raises(Conflict, "thread_of_another_agent"), thread.change("late") as change:
        change.say("user", "late")
    with raises(Conflict, "thread_of_another_agent"), thread.change("late") as change:
        change.agent.put("/late.json", 1)
    with raises(Conflict, "thread_of_another_agent"), thread.change("late", chain=True) as change:
        change.put("/late.json", 1)
    assert thread.head == before


def test_a_block_is_not_put_on_top_of_a_hand_off(first: Thread) -> None:
    """It was begun by the agent before; a repeated block still returns its first receipt."""
    with first.change("note", op_id="op-1") as once:
        once.put("/once.json", 1)
    with pytest.raises(StaleHead), first.change("late", on_conflict="rebase") as change:
        change.put("/late.json", 1)
        first.hand_off(billing())
    with first.change("note", op_id="op-1") as again:
        again.put("/once.json", 1)

    assert again.receipt == once.receipt
    assert first.get("/late.json", default=None) is None


def test_an_older_handle_gives_handles_of_the_agent_of_each_timeline(first: Thread) -> None:
    """It was made before the thread was handed off."""
    first.fork("before")
    first.hand_off(billing())

    assert [first.on(line).agent for line in ("main", "before")] == ["billing", "triage"]
    assert first.fork("after").agent == "billing"
    assert first.fork("earlier", at="HEAD~1").agent == "triage"


def test_a_hand_off_that_was_undone_is_not_done_again_by_its_op_id(store: Store, first: Thread) -> None:
    """The handle that is returned is of the agent that has the timeline."""
    assert first.hand_off(billing(), op_id="h").agent == "billing"
    first.undo()

    again = first.hand_off(billing(), op_id="h")

    assert again.agent == store.thread("t").agent == "triage"
    again.put("/a.json", 1)


def test_another_agent_is_refused_without_a_hand_off(store: Store, first: Thread) -> None:
    """The control: only a hand-off lets it in."""
    with raises(Conflict, "thread_of_another_agent", thread="t", agent="billing"):
        store.thread("t", agent=billing())


def test_an_undo_gives_it_back(store: Store, first: Thread) -> None:
    """The first agent has it again, and the next is refused; a redo reverses that."""
    thread = first.hand_off(billing())
    thread.undo()

    with raises(Conflict, "thread_of_another_agent", thread="t", agent="billing"):
        thread.run("Is it paid?", id="m2")
    assert store.thread("t", agent=triage()).run("Hello?", id="m2").text == "Let me see."
    assert first.at(first.head).agent_map().get("/own.json") == "triage's"


def test_each_timeline_has_its_own_agent(store: Store, first: Thread) -> None:
    """A fork from before the hand-off stays with the first agent, one from after it is the next agent's."""
    thread = first.hand_off(billing())
    thread.fork("before", at="turn:1")
    thread.fork("after")

    assert store.thread("t", agent=triage(), timeline="before").run("Hello?", id="b1").text == "Let me see."
    assert thread.on("after").run("Is it paid?", id="a1").text == "It is paid."
    assert (thread.on("before").agent, thread.on("after").agent) == ("triage", "billing")
    with raises(Conflict, "thread_of_another_agent", thread="t", agent="billing"):
        store.thread("t", agent=billing(), timeline="before")
    assert store.verify().faults == ()


def test_a_backend_of_its_own_is_switched_to_by_the_same_commit(first: Thread) -> None:
    """With its checkpoint and its report, as any switch."""
    thread = first.hand_off(billing(backend="script:other"))
    events = [type(event) for event in thread.log(limit=1)[0].events]

    assert (thread.backend, AgentHandedOff in events, BackendSwitched in events) == (
        "script:other",
        True,
        True,
    )
    assert thread.run("Is it paid?", id="m2").text == "It is paid."


def test_a_switch_that_its_policy_refuses_hands_nothing_off(store: Store, first: Thread) -> None:
    """Nothing is written."""
    first.run(perdure.Message("user", (PICTURE,)), id="m2")
    blind = Script(say("What picture?"), backend="script:blind", lacks=["images"])
    agent = Agent("billing", backend=blind, policy=perdure.Policy(block=["images"]))
    head = first.head

    with pytest.raises(Refused):
        first.hand_off(agent)

    assert (first.head, store.thread("t").agent) == (head, "triage")


def test_a_run_that_has_not_ended_is_in_the_way(store: Store) -> None:
    """It has the tools of its agent: it is decided or cancelled first."""
    thread = store.thread("t", agent=billing(step(use("refund", order="7")), say("Done.")))
    run = thread.run("Refund it.", id="m1").run
    queued = thread.fork("queued").start("Later.")

    with raises(Conflict, "runs_not_ended", thread="t", timeline="main", runs=(run,)):
        thread.hand_off(triage())
    with raises(Conflict, "runs_not_ended", thread="t", timeline="queued", runs=(queued,)):
        thread.on("queued").hand_off(triage())

    thread.cancel(run)
    assert thread.hand_off(triage()).agent == "triage"


def test_the_same_op_id_hands_it_off_once(first: Thread) -> None:
    """Also after a crash of the caller that did not hear of it."""
    first.hand_off(billing(), op_id="h1")
    again = first.hand_off(billing(), op_id="h1")

    assert [turn.kind for turn in again.turns()].count("hand-off") == 1


def test_it_goes_back_and_forth(first: Thread) -> None:
    """An agent that had it before may have it again."""
    again = first.hand_off(billing()).hand_off(triage())

    assert again.run("Hello?", id="m2").text == "Let me see."


def test_a_copy_of_the_thread_brings_the_maps_of_all_its_agents(
    first: Thread, store: Store, tmp_path: Path
) -> None:
    """The copy verifies, and knows whose it is."""
    first.hand_off(billing()).run("Is it paid?", id="m2")

    store.copy_to(tmp_path / "copy.db", threads=["t"])

    with perdure.open(tmp_path / "copy.db") as copied:
        assert copied.verify().faults == ()
        assert copied.thread("t").agent == "billing"
        assert copied.agent("triage").get("/own.json") == "triage's"


def test_awaitable_threads_are_handed_off_too(tmp_path: Path) -> None:
    """The handle that comes back is awaitable."""

    async def story() -> str:
        async with aio.open(tmp_path / "store.db") as store:
            thread = await store.thread("t", agent=triage())
            await thread.run("Hello.", id="m1")
            after = await thread.hand_off(billing())
            return (await after.run("Is it paid?", id="m2")).text

    assert asyncio.run(story()) == "It is paid."
