"""A replay gives the later inputs of a timeline to a fork again; nothing outside is done twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store, Thread, aio
from perdure.errors import Conflict, Invalid
from perdure.model.context import Context
from perdure.model.message import Text
from perdure.runtime import failpoints
from perdure.runtime.run.replay import ReplayReport
from perdure.testing import Script, fail, say, use
from perdure.testing.script import ScriptStep

TURNS = 30
FORKED_AFTER = 5
PAYING = [number for number in range(1, TURNS + 1) if number % 3 == 0]
PAYING_AGAIN = [number for number in PAYING if number > FORKED_AFTER]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file."""
    with perdure.open(tmp_path / "perdure.db") as opened:
        yield opened


@pytest.fixture
def sent() -> list[str]:
    """What the bank has got."""
    return []


def paying(sent: list[str], *, guarded: bool = True) -> Agent:
    """Return an agent that pays if it is told to; without the guard it pays whatever it paid before."""

    @perdure.tool(effect="financial", repeat_guard="ask" if guarded else "allow")
    def pay(to: str) -> str:
        """Pay somebody."""
        sent.append(to)
        return f"paid {to}"

    return Agent("payer", backend=Script(*[answer] * 200), tools=[pay])


def answer(context: Context) -> ScriptStep:
    """Pay if the last message is of the user and says so; else tell how many messages there are."""
    last = context.messages[-1]
    words = "".join(block.text for block in last.content if isinstance(block, Text))
    if last.role == "user" and words.startswith("Pay "):
        return use("pay", to=words.removeprefix("Pay ").rstrip("."))
    return fail() if words == "Fail." else say(f"Done after {len(context.messages)} messages.")


def conversation(store: Store, agent: Agent) -> Thread:
    """Have a conversation of 30 turns, every third with a payment, and fork it after the fifth."""
    thread = store.thread("books", agent=agent)
    for number in range(1, TURNS + 1):
        thread.run(f"Pay ann-{number}." if number in PAYING else f"Note {number}.", id=f"input-{number}")
    thread.fork("again", at=f"turn:{FORKED_AFTER}")
    return thread


def test_a_replay_of_30_turns_makes_no_payment_again(store: Store, sent: list[str]) -> None:
    """All later inputs are given to the fork, no payment is made again, and each that was stopped is listed."""
    thread = conversation(store, paying(sent))
    before = list(sent)

    done = thread.replay(onto="again")

    assert (len(before), sent) == (len(PAYING), before)
    assert [each.turn for each in done.inputs] == list(range(FORKED_AFTER + 1, TURNS + 1))
    assert {each.status for each in done.inputs} == {"succeeded"}
    assert done.is_complete
    assert [each.turn for each in done.stopped] == PAYING_AGAIN
    made = {call.id: call for call in thread.calls() if call.timeline == "main"}
    assert all(made[each.made_before or ""].state == "succeeded" for each in done.stopped)
    assert [turn.input for turn in thread.on("again").turns()] == [turn.input for turn in thread.turns()]


def test_without_bound_and_guard_the_payments_would_be_made_again(store: Store, sent: list[str]) -> None:
    """Control: the same replay pays again where the tool allows repeats and the bound is lifted."""
    thread = conversation(store, paying(sent, guarded=False))

    done = thread.replay(onto="again", effect_max="privileged")

    assert len(sent) == len(PAYING) + len(PAYING_AGAIN)
    assert done.stopped == ()


def test_with_the_bound_lifted_the_repeat_guard_still_stops_payments(store: Store, sent: list[str]) -> None:
    """The guard asks, nobody is there to answer, and the replay denies the call and goes on."""
    thread = conversation(store, paying(sent))

    done = thread.replay(onto="again", effect_max="privileged")

    assert len(sent) == len(PAYING)
    assert [each.turn for each in done.stopped] == PAYING_AGAIN
    assert done.is_complete


def test_a_dry_run_lists_inputs_and_payments_and_runs_nothing(store: Store, sent: list[str]) -> None:
    """The report has what would be given and what the first runs paid; the fork does not move."""
    thread = conversation(store, paying(sent))
    head = thread.on("again").head

    planned = thread.replay(onto="again", dry_run=True)

    assert thread.on("again").head == head
    assert len(planned.inputs) == TURNS - FORKED_AFTER
    assert {each.run for each in planned.inputs} == {None}
    assert [each.turn for each in planned.stopped] == PAYING_AGAIN


def test_a_repeated_replay_gives_no_input_twice(store: Store, sent: list[str]) -> None:
    """The second replay finds the runs of the first."""
    thread = conversation(store, paying(sent))
    first = thread.replay(onto="again")

    second = thread.replay(onto="again", since=f"turn:{FORKED_AFTER}")

    assert [each.run for each in second.inputs] == [each.run for each in first.inputs]
    assert len(thread.on("again").turns()) == TURNS


def few(store: Store) -> Thread:
    """Have a conversation of four turns, and fork it after the first."""
    thread = store.thread("notes", agent=paying([]))
    for number in range(1, 5):
        thread.run(f"Note {number}.")
    thread.fork("again", at="turn:1")
    return thread


def test_a_replay_says_which_inputs_were_there(store: Store) -> None:
    """Those that the fork shares with the line, and those of an earlier replay, are told from those given now."""
    thread = few(store)
    thread.replay(onto="again")
    thread.run("Note 5.")

    planned = thread.replay(onto="again", since=None, dry_run=True)
    done = thread.replay(onto="again", since=None)

    assert [each.was_there for each in planned.inputs] == [True, True, True, True, False]
    assert [each.was_there for each in done.inputs] == [True, True, True, True, False]
    assert [each.run is None for each in done.inputs] == [True, False, False, False, False]
    assert done.is_complete
    assert [turn.input for turn in thread.on("again").turns()] == [turn.input for turn in thread.turns()]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_replay_that_would_change_the_order_is_refused(store: Store, dry_run: bool) -> None:
    """An input is not given after a later one; nothing is run."""
    thread = few(store)
    thread.replay(onto="again", since="turn:3")
    head = thread.on("again").head

    with pytest.raises(Conflict) as refused:
        thread.replay(onto="again", dry_run=dry_run)

    assert refused.value.code == "replay_out_of_order"
    assert (refused.value.facts["turn"], refused.value.facts["later"]) == (2, 4)
    assert thread.on("again").head == head


def test_a_replay_of_inputs_that_were_undone_is_refused(store: Store) -> None:
    """An id runs once on a timeline, so the earlier run would be reported for words that are not there; redo brings them."""
    thread = few(store)
    thread.replay(onto="again")
    thread.on("again").undo()

    with pytest.raises(Conflict) as refused:
        thread.replay(onto="again")
    thread.on("again").redo()

    assert (refused.value.code, refused.value.facts["turn"]) == ("replayed_input_undone", 4)
    assert thread.replay(onto="again").is_complete


def test_a_replay_ends_with_a_run_that_fails(store: Store, sent: list[str]) -> None:
    """The inputs after it are listed as not given."""
    thread = store.thread("books", agent=paying(sent))
    thread.fork("again")
    for words in ("One.", "Fail.", "Two."):
        with thread.change("said") as change:
            change.say("user", words)

    done, again = thread.replay(onto="again"), thread.replay(onto="again")

    assert [each.status for each in done.inputs] == ["succeeded", "failed", None]
    assert [each.was_there for each in again.inputs] == [True, True, False]
    assert [each.status for each in again.inputs] == ["succeeded", "failed", None]
    assert not done.is_complete


def test_since_leaves_earlier_inputs_out(store: Store, sent: list[str]) -> None:
    """Only inputs after the named moment are given."""
    thread = conversation(store, paying(sent))

    done = thread.replay(onto="again", since="turn:28", dry_run=True)

    assert [each.turn for each in done.inputs] == [29, 30]


def test_a_timeline_is_not_replayed_onto_itself(store: Store, sent: list[str]) -> None:
    """It would have no end."""
    thread = conversation(store, paying(sent))

    with pytest.raises(Invalid) as refused:
        thread.replay(onto="main")

    assert refused.value.code == "replayed_onto_itself"


@pytest.mark.parametrize("point", ["after_intent", "after_turn"])
def test_a_killed_replay_keeps_its_bound_in_the_next_process(
    tmp_path: Path, sent: list[str], point: failpoints.Point
) -> None:
    """Whoever resumes the interrupted run denies the payment too, and a repeated replay goes on to the end."""
    agent = paying(sent)
    with perdure.open(tmp_path / "books.db") as store:
        conversation(store, agent)

    killed(lambda: replay_until(tmp_path / "books.db", agent, point))

    with perdure.open(tmp_path / "books.db") as store:
        thread = store.thread("books", agent=agent)
        open_runs = [run for run in thread.runs() if run.state == "running"]
        thread.on("again").resume(open_runs[0].id)
        done = thread.replay(onto="again", since=f"turn:{FORKED_AFTER}")
        made = [call for call in thread.calls() if call.timeline == "again" and call.state == "succeeded"]
        assert (made, done.is_complete) == ([], True)
        assert len(thread.on("again").turns()) == TURNS


def replay_until(path: Path, agent: Agent, point: failpoints.Point) -> None:
    """Begin the replay, and die at a point of its first run that asks for a payment."""
    with perdure.open(path) as store:
        failpoints.arm(point, lambda: os.kill(os.getpid(), signal.SIGKILL))
        store.thread("books", agent=agent).replay(onto="again")


def killed(work: Callable[[], None]) -> None:
    """Do it in a process that is killed by it."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_replay_can_be_awaited(tmp_path: Path, sent: list[str]) -> None:
    """The awaitable thread has the same method."""

    async def replayed() -> tuple[ReplayReport, ReplayReport]:
        async with aio.open(tmp_path / "books.db") as store:
            thread = await store.thread("books", agent=paying(sent))
            for words in ("Note.", "Pay ann."):
                await thread.run(words)
            await thread.fork("again", at="turn:1")
            return await thread.replay(onto="again"), await thread.replay(
                onto="again", since="turn:1", dry_run=True
            )

    done, planned = asyncio.run(replayed())

    assert [each.tool for each in done.stopped] == ["pay"]
    assert sent == ["ann"]
    assert len(planned.inputs) == 1


def test_the_bound_is_in_the_record_of_each_run(store: Store, sent: list[str]) -> None:
    """Runs by hand on the same fork have none."""
    thread = conversation(store, paying(sent))
    thread.on("again").run("By hand.")
    thread.replay(onto="again", since="turn:29")

    bounds = [run.effect_max for run in thread.runs() if run.timeline == "again"]

    assert bounds == [None, "local_write"]


def test_a_replay_onto_a_fork_of_a_fork_says_what_was_answered_there(store: Store) -> None:
    """Not what the first timeline answered to the same input, which is the control."""
    thread = store.thread("t", agent=Agent("a", backend=Script(say("one"), say("two"))))
    thread.run("First.")
    thread.run("Second.")
    thread.fork("again", at="turn:1")
    thread = store.thread("t", agent=Agent("a", backend=Script(say("other"))))
    thread.replay(onto="again")
    thread.on("again").fork("third")

    done = thread.replay(onto="third")

    assert [(each.was_there, each.run, each.answer) for each in done.inputs] == [(True, None, "other")]
    assert [turn.text for turn in thread.turns()] == ["one", "two"]
