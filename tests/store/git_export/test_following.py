"""Following: the repository goes on with the thread, from wherever it was left."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from perdure import Store
from perdure.errors import Conflict, NotFound
from perdure.store import git_export
from tests.coded import raises
from tests.forked import ForkedProcess, commands
from tests.store.git_export.looking import branches, clean, git


def test_following_waits_and_tells_of_what_moved(store: Store, tmp_path: Path) -> None:
    """First what is there, then each time something was committed, forked, undone."""
    thread = store.thread("trip", agent="planner")
    thread.put("/a", 1)
    following = git_export.follow(thread, tmp_path / "g")
    first = next(following)
    later = threading.Timer(0.3, lambda: thread.put("/a", 2))
    later.start()

    second = next(following)
    thread.undo()
    third = next(following)
    later.join()

    assert (first.commits, second.commits, third.commits) == (1, 1, 0)
    assert third.branches[0].git == first.branches[0].git
    assert [each.moved for each in third.branches] == [True]


def test_a_write_that_moves_no_head_is_not_told(store: Store, tmp_path: Path) -> None:
    """An artifact that was put is no commit."""
    thread = store.thread("trip", agent="planner")
    thread.put("/a", 1)
    following = git_export.follow(thread, tmp_path / "g")
    next(following)

    thread.artifacts.put(b"content")
    later = threading.Timer(0.5, lambda: thread.put("/a", 2))
    later.start()
    written = next(following)
    later.join()

    assert written.commits == 1


def test_following_ends_with_the_thread(store: Store, tmp_path: Path) -> None:
    """A thread that is removed has nothing to follow; what was exported stays."""
    thread = store.thread("trip", agent="planner")
    thread.put("/a", 1)
    following = git_export.follow(thread, tmp_path / "g")
    next(following)

    thread.rm()

    with raises(NotFound, "thread_removed", thread="trip"):
        next(following)
    assert len(branches(tmp_path / "g")) == 1


def test_a_process_that_is_killed_at_any_moment_is_gone_on_from(store: Store, tmp_path: Path) -> None:
    """The command in a process of its own, killed while it writes, again and again: in the end all is there."""
    thread = store.thread("trip", agent="planner")
    for number in range(300):
        thread.put(f"/{number % 7}", number)
    words = ["-m", "perdure", "export", "trip", "--git", "g", "--follow", "--store", "store.db"]

    for wait in (0.02, 0.05, 0.1, 0.2, 0.4):
        with ForkedProcess(commands(), words, cwd=tmp_path, stdout=DEVNULL, stderr=DEVNULL) as process:
            for number in range(20):
                thread.put("/more", number)
            with pytest.raises(TimeoutError):
                process.wait(wait)
            process.kill()
    git_export.export(thread, tmp_path / "g")
    git_export.export(thread, tmp_path / "whole")

    assert branches(tmp_path / "g") == branches(tmp_path / "whole")
    assert git(tmp_path / "g", "fsck", "--strict").replace("dangling commit", "").count("\n") <= 5


def following(*more: str) -> list[str]:
    """The command; a forked process hears Ctrl-C, though the tests may run in the background and ignore it."""
    return ["-m", "perdure", "export", "trip", "--git", "g", "--follow", "--store", "store.db", *more]


def test_the_command_follows_until_it_is_interrupted(store: Store, tmp_path: Path) -> None:
    """It says what it wrote, goes on as commits arrive from another process, and ends with the signal."""
    thread = store.thread("trip", agent="planner")
    thread.put("/a", 1)
    process = ForkedProcess(commands(), following("--json"), cwd=tmp_path, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None

    with process:
        first = process.stdout.readline()
        thread.put("/a", 2)
        second = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate()

    assert '"commits":1' in first
    assert '"commits":1' in second
    assert process.returncode == 130
    git_export.export(thread, tmp_path / "whole")
    assert branches(tmp_path / "g") == branches(tmp_path / "whole")
    assert clean(tmp_path / "g")


def test_people_are_told_that_there_is_more_to_come(store: Store, tmp_path: Path) -> None:
    """What was there, how to stop, and then a line for each branch that moves."""
    thread = store.thread("trip", agent="planner")
    thread.put("/a", 1)
    process = ForkedProcess(commands(), following(), cwd=tmp_path, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None

    with process:
        first = [process.stdout.readline() for _ in range(5)]
        thread.put("/a", 2, reason="second")
        later = process.stdout.readline()
        thread.undo(to=None)
        last = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate()

    assert first[0] == "Wrote 1 commit of trip to g.\n"
    assert first[-1].startswith("Following. Ctrl-C stops it")
    assert later.startswith("main  2 commits  ")
    assert later.endswith("second\n")
    assert last == "main  nothing is committed there any more\n"


def test_an_export_that_was_killed_before_it_had_said_whose_it_is_can_be_made_again(
    store: Store, tmp_path: Path
) -> None:
    """All it left is its lock and half a marker; control: beside somebody's file it touches nothing."""
    thread = store.thread("trip", agent="planner")
    thread.put("/n", 1)
    for name in ("begun", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "perdure.lock").touch()
        (tmp_path / name / "perdure.json.new").write_text('{"form')
    (tmp_path / "theirs" / "notes.txt").write_text("mine")

    git_export.export(thread, tmp_path / "begun")

    assert (tmp_path / "begun" / "perdure.json").is_file()
    with raises(Conflict, "not_an_export"):
        git_export.export(thread, tmp_path / "theirs")
