"""A question that was asked on a line belongs to the conversation there: merging the line does not ask it again."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Store, Thread, errors
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.runtime.runs.world import World

MANY = 60


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """What was really sent."""
    return World(str(tmp_path_factory.mktemp("world") / "sent"))


@pytest.fixture
def main(store: Store, world: World) -> Thread:
    """A thread whose agent asks before it sends, with a line beside it."""

    @perdure.tool(effect="external_write", ask=True)
    def send(to: str) -> str:
        """Send a letter."""
        world.do(to)
        return f"sent to {to}"

    script = Script(*[each for _ in range(MANY) for each in (use("send", to="ann"), say("Done."))])
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[send]))
    thread.put("/title.json", "trip")
    thread.fork("side").put("/note.json", "beside")
    thread.put("/title.json", "the trip")
    return thread


def test_what_was_decided_and_done_on_a_merged_line_waits_for_nobody(main: Thread, world: World) -> None:
    """It is in the history by then, and deciding it once more would lead to a second letter."""
    side = main.on("side")
    call = side.run("go").approvals[0].call
    side.decide(call, "approve")
    side.resume()

    main.merge("side")

    assert main.approvals() == []
    with raises(errors.Conflict, "call_elsewhere", timeline="side"):
        main.decide(call, "approve")
    assert world.counted() == {"ann": 1}


def test_what_waits_on_a_merged_line_is_decided_there(main: Thread, world: World) -> None:
    """Nobody on the other line was asked, and no run there would go on."""
    side = main.on("side")
    call = side.run("go").approvals[0].call

    main.merge("side")

    assert (main.approvals(), [ticket.call for ticket in side.approvals()]) == ([], [call])
    side.decide(call, "approve")
    assert (side.resume().status, world.counted()) == ("succeeded", {"ann": 1})


def test_what_a_line_was_forked_with_is_asked_there_too(main: Thread) -> None:
    """The control: a fork has the question in its own conversation, until the decision comes along."""
    call = main.run("go").approvals[0].call
    before = main.fork("before")
    main.decide(call, "deny")
    main.resume()

    after = main.fork("after")

    assert [ticket.call for ticket in before.approvals()] == [call]
    assert after.approvals() == []


def test_a_decision_is_known_however_long_ago_it_was(main: Thread) -> None:
    """A line that was forked after it, and has gone on since, is not asked again."""
    for _ in range(3):
        main.decide(main.run("go").approvals[0].call, "deny")
        main.resume()
    later = main.fork("later")

    for number in range(MANY):
        later.put("/count.json", number)

    assert later.approvals() == []


def test_a_checkpoint_asks_for_nothing_that_was_merged_in(main: Thread) -> None:
    """What was paid on the other line is done, and what waits there waits there."""
    side = main.on("side")
    call = side.run("go").approvals[0].call
    side.decide(call, "approve")
    side.resume()
    waiting = side.run("go once more").approvals

    main.merge("side")

    assert main.checkpoint().pending_approvals == ()
    assert [done.call for done in main.checkpoint().calls if done.state == "succeeded"] == [call]
    assert [each.call for each in side.checkpoint().pending_approvals] == [ticket.call for ticket in waiting]
