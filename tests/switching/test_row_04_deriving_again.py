"""Row 4: a checkpoint derived again from its commit, in another process and on another store, is the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Store, Thread, testing
from holdfast.errors import Corrupt
from holdfast.migration import extract
from holdfast.model.checkpoint import Checkpoint, encode_checkpoint
from holdfast.model.digest import Digest
from tests.migration.copies import copied
from tests.migration.works import Work, space_of

CHILD = """
import sys, holdfast
from holdfast.migration import extract
from holdfast.model.checkpoint import encode_checkpoint
with holdfast.open(sys.argv[1], read_only=True) as store:
    space = store.thread("trip")._space
    for commit in sys.argv[2:]:
        print(encode_checkpoint(extract.derive(space, commit, to_backend="other:model")).hex())
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file."""
    with holdfast.open(tmp_path / "one.db") as store:
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
    return encode_checkpoint(extract.derive(space_of(thread), commit, to_backend="other:model"))


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

    again = elsewhere(tmp_path / "one.db", found, seed="1")
    there = elsewhere(tmp_path / "two.db", found, seed="2")

    assert again == here
    assert there == here
    assert len(set(here)) > len(here) // 2  # the control: different moments have different checkpoints


def test_another_engine_with_the_same_history_gives_the_same_bytes(thread: Thread) -> None:
    """Rows, revisions and versions of the store have no part in it."""
    other = copied(space_of(thread))

    for commit in commits(thread):
        again = extract.derive(other, commit, to_backend="other:model")
        assert encode_checkpoint(again) == derived(thread, commit)


def test_what_a_switch_kept_can_be_derived_by_anybody(thread: Thread) -> None:
    """From its commit and the position of the ledger that it names, on the store itself and on a copy."""
    found = kept(thread)

    for space in (space_of(thread), copied(space_of(thread))):
        assert encode_checkpoint(extract.derive_again(space, found)) == encode_checkpoint(found)


def test_a_ledger_that_lacks_what_it_names_is_refused(thread: Thread) -> None:
    """The control: with entries missing that the checkpoint read, nothing is derived at all."""
    short = copied(space_of(thread), without_last_entries=1)

    with pytest.raises(Corrupt, match="is not the one that was read up to position"):
        extract.derive_again(short, kept(thread))
