"""The same operations on every engine make the same roots and commit digests."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store, Thread, ToolCall

SECOND = 1_000_000


def opened(url: str, *, first: int = 1) -> Store:
    """A store with a clock that ticks and ids that count."""
    ticks, numbers = count(first), count(1)
    return perdure.open(url, clock=lambda: next(ticks) * SECOND, ids=lambda: f"id-{next(numbers)}")


def replace_and_count(thread: Thread) -> None:
    """The row's own case: a replacement followed by increments."""
    with thread.change("fill", run="run-1") as change:
        for number in range(40):
            change.put(f"/fill/{number}.json", {"n": number, "pad": "x" * 60})
        change.put("/__kernel/left-alone.json", 1)
    with thread.change("replace") as change:
        change.replace({"/count.json": {"n": 1}, "/kept.json": [1.5]}, keep=["/fill/7.json"])
        for _ in range(3):
            change.increment("/count.json", 2, at=["n"])
    with thread.change("count on") as change:
        change.increment("/count.json", at=["n"])


def talk(thread: Thread) -> None:
    """Messages, calls and the agent's own map."""
    with thread.change("talk", author="ann", run="run-1") as change:
        change.say("user", "hello", id="m-1")
        change.say("assistant", "hm", tool_calls=[ToolCall("c", "t", "{ }")], vendor_metadata='{"a": 1.0}')
        change.agent.put("/prefs.json", {"seat": "aisle"})
    with thread.change("talk on", run="run-1") as change:
        change.agent.merge("/prefs.json", {"meal": "none"})
        change.put("/blob", b"\x00\x01", media_type="image/png")


def travel(thread: Thread) -> None:
    """Fork, undo, redo, promote, merge, pick."""
    thread.put("/base.json", 1)
    fork = thread.fork("what-if")
    fork.put("/fork.json", 2)
    fork.put("/fork.json", 3)
    thread.put("/main.json", 4)
    thread.undo()
    thread.redo()
    thread.merge("what-if")
    thread.fork("other", at="HEAD~2").put("/picked.json", 5)
    thread.cherry_pick(thread.on("other").head)
    thread.promote("other")
    thread.delete("/picked.json")


def named(thread: Thread) -> None:
    """Commits with names of another framework, one of them with nothing else."""
    for number in (1, 2):
        with thread.change("checkpoint") as change:
            change.name(f"langgraph:{number}")
            change.name("adk:latest")
            change.put("/n.json", number)
    with thread.change("checkpoint", op_id="three") as change:
        change.name("langgraph:3")
    thread.fork("what-if", at="langgraph:1").put("/n.json", 4)
    thread.undo(to="adk:latest")


def large(thread: Thread) -> None:
    """A value that becomes an artifact, and one that is edited."""
    thread.put("/large.json", ["x" * 2_000_000])
    with thread.change("append") as change:
        change.append("/large.json", "y")
    with thread.change("clear") as change:
        change.clear("/")


STORIES: dict[str, Callable[[Thread], None]] = {
    story.__name__: story for story in (replace_and_count, talk, travel, named, large)
}


def fingerprint(store: Store, story: Callable[[Thread], None]) -> dict[str, Any]:
    """Everything that is hashed after a story."""
    thread = store.thread("trip-42", agent="planner")
    story(thread)
    report = store.verify()
    assert report.ok, report.faults
    return {
        "lines": [(hold.head, hold.sealed, hold.move) for hold in thread.timelines()],
        "log": [(entry.digest, entry.root) for entry in thread.log()],
        "agent": [(entry.digest, entry.root) for entry in store.agent("planner").log()],
        "state": {entry.path: entry for entry in thread.entries()},
    }


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_both_engines_make_the_same_digests(tmp_path: Path, story: Callable[[Thread], None]) -> None:
    """A digest depends on what was done, not on where it is kept."""
    with opened("memory:") as memory, opened(str(tmp_path / "a.db")) as sqlite:
        assert fingerprint(memory, story) == fingerprint(sqlite, story)


def test_another_clock_makes_other_commits_and_the_same_state() -> None:
    """Control: the comparison sees a difference where there is one, and the state does not depend on time."""
    with opened("memory:") as one, opened("memory:", first=1_000) as other:
        first, second = fingerprint(one, replace_and_count), fingerprint(other, replace_and_count)

    assert first["log"] != second["log"]
    assert [root for _, root in first["log"]] == [root for _, root in second["log"]]
    assert first["state"] == second["state"]


def test_replace_leaves_what_it_must(thread: Thread) -> None:
    """What is kept by name and what is the kernel's own outlives a replacement."""
    replace_and_count(thread)

    assert thread.paths() == ["/__kernel/left-alone.json", "/count.json", "/fill/7.json", "/kept.json"]
    assert thread.get("/count.json") == {"n": 8}


def test_equal_content_has_equal_roots_whatever_the_way(thread: Thread) -> None:
    """The root is a function of the content alone."""
    with thread.change("one way") as change:
        for number in range(200):
            change.put(f"/n/{number}.json", number)
    one = thread.root
    with thread.change("another") as change:
        change.clear("/n")
        for number in reversed(range(250)):
            change.put(f"/n/{number}.json", 0)
    with thread.change("and back") as change:
        change.replace({f"/n/{number}.json": number for number in range(200)})

    assert thread.root == one
