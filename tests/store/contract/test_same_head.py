"""Two writers with the same read head: exactly one wins, the other is told and writes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import pytest

import perdure
from perdure import Store, Thread
from perdure.errors import StaleHead
from tests.forked import ForkedProcess, commands


def test_two_blocks_on_one_head(thread: Thread, other: Store) -> None:
    """Whoever leaves first wins, whoever entered first or not."""
    elsewhere = other.thread("trip-42")

    with pytest.raises(StaleHead) as caught, thread.change("slow") as slow:
        slow.put("/n.json", "slow")
        with elsewhere.change("fast") as fast:
            fast.put("/n.json", "fast")

    assert caught.value.expected.version == 0
    assert caught.value.actual == thread.head
    assert slow.receipt is None
    assert [entry.reason for entry in thread.log()] == ["fast"]


WRITER = """
import sys, perdure
from perdure.errors import StaleHead
with perdure.open(sys.argv[1]) as store:
    thread = store.thread("trip-42")
    for _ in range(int(sys.argv[3])):
        try:
            with thread.change(sys.argv[2]) as change:
                change.put("/n.json", change.get("/n.json") + 1)
                print("ready", flush=True)
                sys.stdin.readline()
            print("won", flush=True)
        except StaleHead as error:
            print("stale", error.expected.version, error.actual.version, flush=True)
"""


def test_two_processes_on_one_head(tmp_path: Path) -> None:
    """Both have read the head before either writes; ten rounds, ten winners."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        thread = store.thread("trip-42", agent="planner")
        thread.put("/n.json", 0)
        writers = [
            ForkedProcess(commands(), ["-c", WRITER, str(path), name, "10"], stdin=PIPE, stdout=PIPE)
            for name in ("one", "two")
        ]
        outcomes: list[list[str]] = []
        for _ in range(10):
            for writer in writers:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "ready\n"
            for writer in writers:
                print(file=writer.stdin, flush=True)
            outcomes.append(
                sorted(writer.stdout.readline().split()[0] for writer in writers if writer.stdout)
            )
        for writer in writers:
            writer.communicate()

        assert outcomes == [["stale", "won"]] * 10
        assert thread.get("/n.json") == 10
        assert thread.head.version == 11


def test_nothing_is_lost_among_many(store_url: str, thread: Thread) -> None:
    """Whoever is told that the head moved reads again; in the end every increment is there."""

    def count(_: int) -> None:
        with perdure.open(store_url) as store:
            mine = store.thread("trip-42")
            for _ in range(15):
                add_one(mine)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))

    assert thread.get("/n.json") == 60
    assert len(thread.log()) == 60


def add_one(thread: Thread) -> None:
    """Read, add, write; again if somebody was faster."""
    while True:
        try:
            with thread.change("count") as change:
                change.put("/n.json", change.get("/n.json", default=0) + 1)
        except StaleHead:
            continue
        return


def test_writing_without_looking_would_lose_updates(thread: Thread, other: Store) -> None:
    """Control: two writers that each take whatever head there is overwrite each other."""
    thread.put("/n.json", 0)
    one, two = thread.get("/n.json"), other.thread("trip-42").get("/n.json")

    thread.put("/n.json", one + 1)
    other.thread("trip-42").put("/n.json", two + 1)

    assert thread.get("/n.json") == 1
