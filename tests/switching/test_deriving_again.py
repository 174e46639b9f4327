"""A checkpoint derived again from its commit, in another process and on another store, is the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Store, Thread, testing
from perdure.errors import Corrupt
from perdure.model.checkpoint import Checkpoint, encode_checkpoint
from perdure.model.digest import Digest
from perdure.switching.checkpoint import derive
from tests.coded import raises
from tests.switching.checkpoint.copies import copied
from tests.switching.checkpoint.tellers import Teller
from tests.switching.checkpoint.works import Work, space_of

CHILD = """
import sys, perdure
from perdure.switching.checkpoint import derive
from perdure.model.checkpoint import encode_checkpoint
with perdure.open(sys.argv[1], read_only=True) as store:
    space = store.thread("trip")._space
    for commit in sys.argv[2:]:
        print(encode_checkpoint(derive.derive(space, commit, to_backend="other:model")).hex())
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file."""
    with perdure.open(tmp_path / "one.db") as store:
        yield store


@pytest.fixture
def thread(store: Store) -> Thread:
    """Talk, task state, a booking, an approval that waits, one that was given, a fork, an undo and a switch."""
    work = Work(store)
    work.turn("I want to get to Oslo on Monday.", testing.say("By train or by plane?"))
    work.turn("Let's go by plane.", testing.use("look", city="Oslo"), testing.say("It rains there."))
    work.turn("Pay 90.", testing.use("pay", amount=90), testing.say("Paid."))
    thread = work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))
    thread.put("/task/goals.json", ["a window seat"])
    work.turn("Pay 70.", testing.use("pay", amount=70), testing.say("Paid."))
    thread.decide(thread.approvals()[0].call, "approve", by="ann")
    thread.fork("what-if").put("/x.json", 1)
    work.turn("Book SK2.", testing.use("book", flight="SK2"), testing.say("Booked."))
    thread.undo()
    thread.switch(testing.Script(testing.say("Hello."), backend="script:two"))
    return thread


def commits(thread: Thread) -> list[Digest]:
    """Every commit of the line, newest first."""
    return [entry.digest for entry in thread.log()]


def derived(thread: Thread, commit: Digest) -> bytes:
    """The checkpoint of a commit, here and now."""
    return encode_checkpoint(derive.derive(space_of(thread), commit, to_backend="other:model"))


def elsewhere(path: Path, found: list[Digest], seed: str) -> list[bytes]:
    """The same, by another process on that file."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    told = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), *found],
        capture_output=True,
        check=True,
        text=True,
        env=environment,
    )
    return [bytes.fromhex(line) for line in told.stdout.split()]


def kept(thread: Thread) -> Checkpoint:
    """The checkpoint that the switch kept."""
    return thread.checkpoints()[0].checkpoint


def test_another_process_on_another_file_gives_the_same_bytes(
    thread: Thread, store: Store, tmp_path: Path
) -> None:
    """At every commit, whatever was decided, done or undone after it, and whatever the hash seed."""
    found = commits(thread)
    here = [derived(thread, commit) for commit in found]
    store.backup(tmp_path / "two.db")

    there = elsewhere(
        tmp_path / "two.db", found, seed="2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    )

    assert there == here
    assert len(set(here)) > len(here) // 2  # the control: different moments have different checkpoints


def test_another_engine_with_the_same_history_gives_the_same_bytes(thread: Thread) -> None:
    """Rows, revisions and versions of the store have no part in it."""
    other = copied(space_of(thread))

    for commit in commits(thread):
        again = derive.derive(other, commit, to_backend="other:model")
        assert encode_checkpoint(again) == derived(thread, commit)


def test_what_a_switch_kept_can_be_derived_by_anybody(thread: Thread) -> None:
    """From its commit and the position of the ledger that it names, on the store itself and on a copy."""
    found = kept(thread)

    for space in (space_of(thread), copied(space_of(thread))):
        assert encode_checkpoint(derive.derive_again(space, found)) == encode_checkpoint(found)


def test_a_ledger_that_lacks_what_it_names_is_refused(thread: Thread) -> None:
    """The control: with entries missing that the checkpoint read, nothing is derived at all."""
    short = copied(space_of(thread), without_last_entries=1)

    with raises(Corrupt, "ledger_differs"):
        derive.derive_again(short, kept(thread))


@pytest.fixture
def decided(store: Store) -> Thread:
    """A thread whose owner's memory bears on the task, and whose approval was given just before the switch."""
    work = Work(store, id="decided")
    thread = work.turn(
        "Pay 90 for the flight to Oslo.", testing.use("pay", amount=90), testing.say("It waits.")
    )
    store.memory("ann").add("the flight to Oslo is for two")
    thread.decide(thread.approvals()[0].call, "deny", by="ann")
    thread.switch(testing.Script(testing.say("Hello."), testing.say("Sure."), backend="script:two"))
    return thread


@pytest.mark.parametrize("to", [None, "script:two"])
def test_a_view_of_the_switch_derives_what_it_made(decided: Thread, store: Store, to: str | None) -> None:
    """With the ledger and the memory as they were then, whatever was remembered, forgotten or done since."""
    (made,) = decided.checkpoints()
    for item in store.memory("ann").items():
        store.memory("ann").forget(item.id)
    store.memory("ann").add("the flight to Oslo is for three")
    decided.run("Go on.")

    again = decided.at(made.commit).checkpoint(to=to)

    assert encode_checkpoint(again) == encode_checkpoint(made.checkpoint)
    assert made.checkpoint.relevant_memory_refs


def test_the_commit_before_it_had_read_less(decided: Thread) -> None:
    """The control: neither the decision nor the memory is in what that commit alone says."""
    (made,) = decided.checkpoints()

    before = decided.at(made.checkpoint.commit).checkpoint(to="script:two")

    assert before.relevant_memory_refs == ()
    assert before.ledger != made.checkpoint.ledger
    assert before.pending_approvals != made.checkpoint.pending_approvals


def test_a_summary_that_was_kept_is_in_what_is_derived_again(decided: Thread) -> None:
    """A model's words cannot be derived, so they come from the record; all the rest is derived."""
    teller = Teller(lambda said: {"userGoal": {"text": said[0]["text"], "cites": [said[0]["id"]]}})
    report = decided.switch(testing.Script(testing.say("Hi."), backend="script:three"), summariser=teller)

    again = decided.at(report.commit).checkpoint()

    assert report.checkpoint is not None
    assert report.checkpoint.told is not None
    assert encode_checkpoint(again) == encode_checkpoint(report.checkpoint)


def test_a_thread_at_its_switch_says_what_the_next_one_would_be_told(decided: Thread) -> None:
    """The thread itself looks at what is so now, and not at what was kept."""
    (made,) = decided.checkpoints()

    assert decided.checkpoint() != made.checkpoint
    assert decided.checkpoint().from_backend == "script:two"


@pytest.mark.parametrize("earlier", [0, 1])
def test_what_was_done_and_undone_is_told_even_before_the_first_commit(store: Store, earlier: int) -> None:
    """The ledger knows of the booking, whether the line begins with it or not."""
    work = Work(store, id=f"undone-{earlier}")
    for _ in range(earlier):
        work.turn("Hello.", testing.say("Hi."))
    thread = work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))
    thread.undo()
    two = testing.Script(testing.say("Hello."), backend="script:two")

    report = thread.switch(two)
    thread.run("Go on.")

    assert report.checkpoint is not None
    assert [(done.tool, done.elsewhere) for done in report.checkpoint.calls] == [("book", True)]
    assert "SK1" in two.contexts[0].messages[0].text
    assert thread.at(report.commit).checkpoint() == report.checkpoint
