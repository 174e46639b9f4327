"""Two timelines start the same external write at once, and a ticket is decided on a fork.

Of the two one sends and the other asks.  What is decided on a fork is a new call there, which
passes the guard like any other.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from perdure import Store
from perdure.errors import Conflict, Decided
from perdure.model.ticket import Verdict
from perdure.runtime import failpoints
from perdure.runtime.session.result import Result
from perdure.store.thread import Thread
from perdure.testing import say, step, use
from tests.crash.campaign import sized
from tests.runtime.runs import approving, together
from tests.runtime.runs.nursery import nursery
from tests.runtime.runs.postman import postman
from tests.runtime.runs.told import talk_of
from tests.runtime.runs.unguarded import guard_by_id_alone
from tests.runtime.runs.world import World

ROUNDS = sized(4, 50)


@pytest.fixture
def asked(store: Store, world: World) -> Thread:
    """A thread whose only run waits for the approval of a letter to Ann."""
    thread = store.thread("letters", agent=postman(world, ask=True))
    assert thread.run("Write to Ann").status == "waiting"
    return thread


def run_at_once(*lines: Thread) -> list[Result]:
    """What runs come to that all stand before their intent at the same moment."""
    gate = threading.Barrier(len(lines), timeout=60)
    met = threading.local()
    results: dict[str, Result] = {}

    def wait() -> None:
        if not getattr(met, "once", False):
            met.once = True
            gate.wait()

    def run(line: Thread) -> None:
        results[line.timeline] = line.run("Write to Ann")

    failpoints.arm("before_intent", wait)
    try:
        workers = [threading.Thread(target=run, args=(line,)) for line in lines]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        failpoints.disarm("before_intent")
    return [results[line.timeline] for line in lines]


@pytest.mark.parametrize("lines", [2, 5])
def test_of_lines_that_send_at_once_one_sends(store: Store, world: World, lines: int) -> None:
    """The others ask, and each of their questions names a call that may have happened, or did elsewhere."""
    main = store.thread("letters", agent=postman(world))
    main.put("/begun.json", True)
    forks = [main.fork(f"fork-{number}") for number in range(lines - 1)]

    results = run_at_once(main, *forks)

    assert sorted(result.status for result in results) == ["succeeded", *["waiting"] * (lines - 1)]
    assert {ticket.action for result in results for ticket in result.approvals} == {"repeat"}
    assert world.counted() == {"ann": 1}
    assert store.verify().ok


def test_of_processes_that_send_at_once_one_sends(tmp_path: Path, world: World) -> None:
    """The same between processes, round after round: each of them begins on a line of its own."""
    path = str(tmp_path / "agents.db")

    came = together.rounds(path, world.path, ROUNDS)

    assert [sorted(each) for each in came] == [["succeeded", "waiting"]] * ROUNDS
    assert world.repeated() == []
    assert len(world.deeds()) == ROUNDS


def test_two_lines_with_a_guard_by_id_alone_both_send(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: calls of two lines have two ids."""
    main = store.thread("letters", agent=postman(world))
    main.put("/begun.json", True)
    fork = main.fork("fork")
    guard_by_id_alone(monkeypatch)

    run_at_once(main, fork)

    assert world.repeated() == ["ann"]


DECISIONS: list[tuple[Verdict, object, dict[str, int], str]] = [
    ("approve", None, {"ann": 1}, "mailed ann"),
    ("edit", {"to": "bob"}, {"bob": 1}, "mailed bob"),
    ("answer", "by hand", {}, "by hand"),
    ("deny", None, {}, "denied"),
]


@pytest.mark.parametrize(("verdict", "value", "sent", "words"), DECISIONS)
def test_a_ticket_decided_on_a_fork_is_carried_out_there(
    asked: Thread, world: World, verdict: Verdict, value: object, sent: dict[str, int], words: str
) -> None:
    """A new call, whose result answers the one that the conversation holds; the origin waits as before."""
    fork = asked.fork("fork")
    (call,) = asked.calls()

    fork.decide(call.id, verdict, value=value)
    result = fork.resume()

    assert result.status == "succeeded"
    assert world.counted() == sent
    talk = talk_of(fork)
    assert [entry[0] for entry in talk] == ["user", "assistant", "tool", "assistant"]
    assert talk[2][3][0][0] == "call 0"
    assert words in talk[2][3][0][2]
    origin, copy = asked.calls()
    assert (origin.state, origin.timeline, copy.timeline, copy.copied_from) == (
        "awaiting_approval",
        "main",
        "fork",
        origin.id,
    )


def test_what_was_decided_on_a_fork_waits_there_no_more(asked: Thread) -> None:
    """The ticket is still open where it was asked."""
    fork = asked.fork("fork")
    (ticket,) = asked.approvals()
    assert fork.approvals() == [ticket]

    fork.decide(ticket.call, "approve")

    assert fork.approvals() == []
    assert asked.approvals() == [ticket]


@pytest.mark.parametrize("first", ["main", "fork"])
def test_approved_on_both_lines_it_is_sent_by_one(asked: Thread, world: World, first: str) -> None:
    """Whichever comes second is asked about the repetition, and goes on with what is said to that."""
    fork = asked.fork("fork")
    (call,) = asked.calls()
    one, other = (asked, fork) if first == "main" else (fork, asked)
    for line in (one, other):
        line.decide(call.id, "approve")

    assert one.resume().status == "succeeded"
    waits = other.resume()

    assert waits.status == "waiting"
    assert [ticket.action for ticket in waits.approvals] == ["repeat"]
    assert list(waits.approvals) == other.approvals()
    assert world.counted() == {"ann": 1}

    other.decide(waits.approvals[0].id, "deny")

    assert other.resume().status == "succeeded"
    assert world.counted() == {"ann": 1}


def test_approved_on_two_forks_at_once_it_is_sent_by_one(asked: Thread, world: World) -> None:
    """Both copies stand before their start at the same moment."""
    (call,) = asked.calls()
    forks = [asked.fork(f"fork-{number}") for number in range(3)]
    for fork in forks:
        fork.decide(call.id, "approve")
    results: list[Result] = []
    gate = threading.Barrier(3, timeout=60)

    def resume(line: Thread) -> None:
        gate.wait()
        results.append(line.resume())

    workers = [threading.Thread(target=resume, args=(fork,)) for fork in forks]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert sorted(result.status for result in results) == ["succeeded", "waiting", "waiting"]
    assert world.counted() == {"ann": 1}


def test_a_decision_on_a_fork_is_made_once(asked: Thread, world: World) -> None:
    """The same again changes nothing, another is refused, and resuming again sends nothing."""
    fork = asked.fork("fork")
    (call,) = asked.calls()
    first = fork.decide(call.id, "approve", by="ann")

    assert fork.decide(call.id, "approve", by="ann") == first
    with pytest.raises(Decided):
        fork.decide(call.id, "deny")
    run = fork.resume()
    assert fork.resume(run.run) == run

    assert world.counted() == {"ann": 1}
    assert len(asked.calls()) == 2


def test_each_line_decides_each_call_of_a_round_for_itself(store: Store, world: World) -> None:
    """What was decided on one line waits on the other, is listed there, and is not taken up with it."""
    script = (step(use("mail", to="ann"), use("mail", to="bob")), say("Done."))
    main = store.thread("letters", agent=postman(world, *script, ask=True))
    to_ann, to_bob = (ticket.call for ticket in main.run("Write to both").approvals)
    fork = main.fork("fork")

    fork.decide(to_ann, "approve")
    main.decide(to_bob, "approve")
    here, there = fork.resume(), main.resume()

    assert (
        [ticket.call for ticket in here.approvals] == [ticket.call for ticket in fork.approvals()] == [to_bob]
    )
    assert (
        [ticket.call for ticket in there.approvals]
        == [ticket.call for ticket in main.approvals()]
        == [to_ann]
    )
    assert (fork.paths("/"), main.paths("/")) == (["/mailed/ann.json"], ["/mailed/bob.json"])

    fork.decide(to_bob, "deny")

    assert fork.resume().status == "succeeded"
    assert fork.approvals() == []
    assert world.counted() == {"ann": 1, "bob": 1}


def test_a_fork_of_a_fork_decides_for_itself(asked: Thread, world: World) -> None:
    """A question that a fork was asked about its copy is seen, and can be decided, on what is forked from it."""
    (call,) = asked.calls()
    fork = asked.fork("fork")
    asked.decide(call.id, "approve")
    asked.resume()
    fork.decide(call.id, "approve")
    (repeat,) = fork.resume().approvals
    inner = fork.fork("inner")

    inner.decide(repeat.id, "approve")
    result = inner.resume()

    assert result.status == "succeeded"
    assert world.counted() == {"ann": 2}
    assert fork.approvals() == [repeat]


@pytest.mark.parametrize(
    "point", ["after_started", "after_effect", "while_recording", "after_turn", "before_finish"]
)
def test_killed_on_the_fork_it_is_carried_out_there_once(tmp_path: Path, point: str) -> None:
    """The next process finds the fork's run, and what became of its call; `main` waits as before."""
    path = str(tmp_path / "agents.db")
    with nursery() as nest:
        nest.lives(approving.ask, path)
        nest.lives(approving.decide_on_a_fork, path)
        nest.dies(approving.resume_and_die, path, point, "fork")

        told = nest.lives(approving.go_on, path, True, False, "fork")

    assert World(f"{path}.world").counted() == {"ann": 1}
    assert [call.state for call in told.calls] == ["awaiting_approval", "succeeded"]
    assert [entry[0] for entry in told.talk] == ["user", "assistant", "tool", "assistant"]
    assert told.faults == []


def test_a_continued_run_that_waits_again_finds_its_own_calls(store: Store, world: World) -> None:
    """What the fork's run asked for after the decision is found like what it took over."""
    script = (use("mail", to="ann"), use("mail", to="bob"), say("Done."))
    main = store.thread("letters", agent=postman(world, *script, ask=True))
    (ticket,) = main.run("Write to both").approvals
    fork = main.fork("fork")
    fork.decide(ticket.call, "approve")

    (second,) = fork.resume().approvals
    fork.decide(second.call, "approve")
    result = fork.resume()

    assert result.status == "succeeded"
    assert world.counted() == {"ann": 1, "bob": 1}
    assert [entry[0] for entry in talk_of(fork)] == ["user", *["assistant", "tool"] * 2, "assistant"]


def test_after_an_undo_past_it_there_is_nothing_to_decide(asked: Thread, world: World) -> None:
    """The line does not hold the call any more."""
    (call,) = asked.calls()

    asked.undo()

    with pytest.raises(Conflict):
        asked.decide(call.id, "approve")
    assert world.deeds() == []
