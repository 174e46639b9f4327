"""Turns are numbered as a person counts them: by messages.  What is done between messages shifts no number."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Store, Thread
from perdure.errors import NotFound, RunFailed
from perdure.testing import Script, fail, say, step, use
from tests.engines.postgres.stores import new_store
from tests.selection import engines


@perdure.tool(effect="external_write", ask=True)
def send(call: Call, to: str) -> str:
    """Send a letter."""
    call.put("/sent.json", to)
    return f"sent to {to}"


@perdure.tool(effect="read_only")
def look(call: Call) -> str:
    """Look."""
    call.put("/looked.json", True)
    return "seen"


def agent(*steps: Any) -> Agent:
    """Return an agent that answers with these steps, or just says yes."""
    return Agent(name="planner", backend=Script(*(steps or (say("yes"),) * 20)), tools=[send, look])


def put_by_hand(thread: Thread) -> None:
    """Write a value without a message."""
    thread.put("/by-hand.json", len(thread.log()))


def merge(thread: Thread) -> None:
    """Merge a change that another timeline made."""
    name = f"other-{len(thread.log())}"
    fork = thread.fork(name)
    fork.put(f"/{name}.json", 1)
    thread.merge(name)


def pick(thread: Thread) -> None:
    """Pick a change that another timeline made."""
    name = f"picked-{len(thread.log())}"
    fork = thread.fork(name)
    fork.put(f"/{name}.json", 1)
    thread.cherry_pick(fork.turns(limit=1)[0])


def switch(thread: Thread) -> None:
    """Switch to another backend."""
    thread.switch(Script(*(say("other"),) * 20, backend=f"script:other-{len(thread.log())}"))


def call_by_hand(thread: Thread) -> None:
    """Call a tool without a model."""
    thread.call(look, {}, id=f"c{len(thread.log())}")


ASIDES: dict[str, Callable[[Thread], None]] = {
    "edit": put_by_hand,
    "merge": merge,
    "pick": pick,
    "switch": switch,
    "call": call_by_hand,
}


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty store on each engine."""
    url = {"memory:": lambda: "memory:", "file": lambda: str(tmp_path / "store.db")}
    with perdure.open(url.get(request.param, lambda: new_store(request))()) as opened:
        yield opened


@pytest.fixture
def thread(store: Store) -> Thread:
    """A conversation of three messages with something of every kind before, between and after them."""
    thread = store.thread("t", agent=agent())
    put_by_hand(thread)
    for number in range(1, 4):
        thread.run(f"message {number}", id=f"m{number}")
        for act in ASIDES.values():
            act(thread)
    return thread


def messages(thread: Thread) -> list[tuple[int, str]]:
    """The numbers and inputs of its messages."""
    return [(turn.number, turn.input) for turn in thread.turns() if turn.kind == "message"]


EXPECTED = [(number, f"message {number}") for number in range(1, 4)]


def test_numbers_are_those_of_messages(thread: Thread) -> None:
    """Everything else has its own kind, and the number of the message before it."""
    kinds = [(turn.number, turn.kind) for turn in thread.turns() if turn.kind != "message"]

    assert messages(thread) == EXPECTED
    assert kinds == [(0, "edit")] + [(number, kind) for number in range(1, 4) for kind in ASIDES]


def test_every_way_to_name_a_turn_means_the_same_one(thread: Thread) -> None:
    """`turn:n`, the log, the run and the turn itself agree."""
    for turn in (turn for turn in thread.turns() if turn.kind == "message"):
        named = thread.at(f"turn:{turn.number}")
        newest = named.log(limit=1)[0]

        assert turn.run is not None
        assert named.digest == turn.after == thread.at(turn.run).digest == newest.digest
        assert (newest.turn, newest.is_apart) == (turn.number, False)
        assert named.turns(limit=1)[0].input == turn.input


def test_a_turn_with_a_tilde_is_the_moment_before_it(thread: Thread) -> None:
    """What was done between the messages stays; `~2` is before the message before it."""
    turns = {turn.number: turn for turn in thread.turns() if turn.kind == "message"}

    assert [thread.at(f"turn:{number}~1").digest for number in turns] == [
        turn.before for turn in turns.values()
    ]
    assert thread.at("turn:3~2").digest == turns[2].before
    assert thread.at("turn:3~1").digest != thread.at("turn:2").digest
    assert thread.fork("before", at="turn:2~1").head.commit == turns[2].before


def test_before_the_first_turn_there_may_be_nothing(store: Store) -> None:
    """The moment before the first commit is a moment too."""
    thread = store.thread("t", agent=agent())
    thread.run("hello", id="m1")

    assert thread.at("turn:1~1").digest is None


@pytest.mark.parametrize("name", ["turn:0", "turn:4", "turn:99", "turn:2~3", "turn:4~1"])
def test_a_number_that_no_message_has_names_nothing(thread: Thread, name: str) -> None:
    """What was done between messages is no turn that a number could mean."""
    with pytest.raises(NotFound) as absent:
        thread.at(name)

    assert absent.value.code == "revision_not_found"
    assert absent.value.facts["turns"] == 3


def test_an_undo_takes_back_what_is_last_in_the_log(thread: Thread) -> None:
    """Whatever its kind is; the numbers before it stay."""
    turns = thread.turns()

    assert thread.undo().commit == turns[-1].before
    assert thread.undo(turns=len(ASIDES)).commit == thread.turns()[-1].after == turns[-len(ASIDES) - 1].before
    assert messages(thread) == EXPECTED[:2]


def test_an_undo_to_a_number_leaves_that_message_the_last(thread: Thread) -> None:
    """A new message after it has the next number."""
    thread.undo(to="turn:2")
    thread.run("again", id="m4")

    assert messages(thread) == [*EXPECTED[:2], (3, "again")]


def test_a_fork_goes_on_with_the_numbers(thread: Thread) -> None:
    """The messages of the fork are counted from where it parted."""
    fork = thread.fork("f", at="turn:1")
    put_by_hand(fork)
    fork.run("on the fork", id="f1")

    assert messages(fork) == [EXPECTED[0], (2, "on the fork")]


def test_a_replay_names_the_inputs_by_their_numbers(thread: Thread) -> None:
    """The numbers of the first timeline."""
    thread.fork("f", at="turn:1")

    report = thread.replay(onto="f", dry_run=True)

    assert [(each.turn, each.text) for each in report.inputs] == EXPECTED[1:]


def test_the_rest_of_a_run_that_waited_counts_no_second_time(store: Store) -> None:
    """Its turn is told in two parts if something was committed while it waited; the next message has the next number."""
    answers = step(use("send", to="ann")), say("sent"), say("yes")
    thread = store.thread("t", agent=agent(*answers))
    thread.run("write", id="m1")
    put_by_hand(thread)
    thread.decide(thread.approvals()[0].call, "approve", by="bob")
    thread.resume()
    thread.run("and now", id="m2")

    assert [(turn.number, turn.kind) for turn in thread.turns()] == [
        (1, "message"),
        (1, "edit"),
        (1, "resumed"),
        (2, "message"),
    ]
    assert thread.at("turn:1").transcript()[-1].text == thread.at(thread.turns()[0].run).transcript()[-1].text
    assert thread.at("turn:1").transcript()[-1].text == "sent"


@pytest.mark.parametrize("act", [put_by_hand, merge, pick, switch])
def test_a_retry_counts_no_second_time(store: Store, act: Callable[[Thread], None]) -> None:
    """Whatever was done after the failure: the message keeps its number, and the moment after it has its answer."""
    thread = store.thread("t", agent=agent(fail()))
    with pytest.raises(RunFailed):
        thread.run("write", id="m1")
    act(thread)
    thread = store.thread("t", agent=agent(say("yes"), say("yes"))) if act is not switch else thread
    first = thread.run("write", id="m1")
    thread.run("and now", id="m2")
    named = thread.at("turn:1")

    assert [(turn.number, turn.kind, turn.status) for turn in thread.turns() if turn.run] == [
        (1, "message", "succeeded"),
        (1, "resumed", "succeeded"),
        (2, "message", "succeeded"),
    ]
    assert [entry.text for entry in named.transcript()] == ["write", first.text]
    assert named.digest == thread.at(first.run).digest
    assert store.verify().faults == ()


def test_a_store_with_unnumbered_turns_verifies(thread: Thread, store: Store) -> None:
    """The count is a part of each commit, and is computed again from its events."""
    assert store.verify().faults == ()


def test_changes_of_an_agents_own_map_are_counted_each(store: Store) -> None:
    """It has no messages: there a number means a change."""
    thread = store.thread("t", agent=agent())
    for number in range(3):
        with thread.change("learn") as change:
            change.agent.put("/n.json", number)
    learned = store.agent("planner")

    assert [entry.turn for entry in learned.log()] == [3, 2, 1]
    assert learned.at("turn:2").get("/n.json") == 1
