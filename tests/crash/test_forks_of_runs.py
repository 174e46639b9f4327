"""Forks of a process that runs agents: neither side hangs, loses a write or repeats an effect.

The programs are in `tests.crash.forked_runs`.  Each is a process of its own with a bounded wait, so
that a hang is a failure.
"""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest

from tests.crash.campaign import sized
from tests.crash.forked_runs import ACTS, CHILD_ENDED, MOMENTS
from tests.forked import ForkedProcess, commands

HANG_SECONDS = 6.0  # so long a program is watched that hangs


def command(name: str, path: Path, *arguments: object) -> list[str]:
    """How a program is started, behind `python`."""
    return ["-m", "tests.crash.forked_runs", name, str(path / "store.db"), *map(str, arguments)]


def program(name: str, path: Path, *arguments: object) -> dict[str, Any]:
    """What a program printed; raises `TimeoutError` if it does not end."""
    done = commands().run(command(name, path, *arguments))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (found.get("repeated", []), found.get("faults", [])) == ([], [])
    return found


@pytest.mark.parametrize("act", ACTS)
def test_a_fork_at_any_moment_of_a_run_disturbs_neither_side(tmp_path: Path, act: str) -> None:
    """The parent's run succeeds with each effect once, whatever the child does, and the child ends."""
    chosen = sized(MOMENTS[ACTS.index(act) % 5 :: 10], MOMENTS)

    found = program("moments", tmp_path, act, *chosen)

    well = ["succeeded", -9 if act == "dies" else 0]
    assert len(found["ended"]) >= 2 * len(chosen) - 2
    assert all(ended == well for ended in found["ended"])


@pytest.mark.parametrize("how", ["exits", "leaves"])
def test_after_a_run_in_a_child_the_parent_runs_with_workers(tmp_path: Path, how: str) -> None:
    """A child that made a loop of its own, and ended either way, leaves the parent's loop usable."""
    found = program("after_child", tmp_path, how)

    assert (found["statuses"], found["codes"], found["paid"]) == (["succeeded"] * 2, [0], 6)


def hangs(directory: Path) -> bool:
    """Whether a parent goes on for ever whose child closed the loops that it inherited."""
    directory.mkdir()
    start = command("after_child", directory, "leaves", "control")
    with ForkedProcess(commands(), start, stdout=PIPE, stderr=DEVNULL) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().strip() == CHILD_ENDED
        try:
            parent.wait(HANG_SECONDS)
        except TimeoutError:
            parent.kill()  # it would end by itself after a minute
            return True
    return False


def test_control_a_child_that_closes_inherited_loops_hangs_its_parent(tmp_path: Path) -> None:
    """The parent never hears that its worker threads have ended, unless they end before it waits for them."""
    assert any(hangs(tmp_path / str(number)) for number in range(10))


def test_workers_of_a_multiprocessing_pool_run_beside_their_parent(tmp_path: Path) -> None:
    """A pool that was forked after a run in the parent does all its work, and so does the parent."""
    size = sized(4, 60)

    found = program("pool", tmp_path, size)

    assert found["statuses"] == ["succeeded"] * (2 * size + 2)
    assert found["paid"] == 2 * (2 * size + 2)


def test_workers_of_a_pre_forking_server_serve_from_one_open_store(tmp_path: Path) -> None:
    """All requests succeed though a worker was killed and replaced, and the master goes on."""
    workers, requests = sized((3, 4), (8, 40))

    found = program("server", tmp_path, workers, requests)

    assert found["statuses"] == ["succeeded"] * 2
    assert found["codes"] == [-9, *[0] * workers]


def test_a_child_does_not_wait_for_the_events_of_its_parents_run(tmp_path: Path) -> None:
    """An inherited stream is refused in the child, an inherited follower reads on from the store."""
    forks = sized(6, 60)

    found = program("streams", tmp_path, forks)

    assert (found["codes"], found["statuses"]) == ([0] * forks, ["succeeded"] * forks)


def test_forks_among_commits_and_runs_lose_nothing(tmp_path: Path) -> None:
    """What threads of the parent and each child put is there afterwards."""
    forks = sized(8, 100)

    found = program("commits", tmp_path, forks)

    assert (found["codes"], found["kept"], found["done"]) == ([0] * forks, list(range(forks)), [0, 0])


@pytest.mark.parametrize(("way", "code"), [("returns", 0), ("raises", 1), ("exits", 7)])
def test_a_child_that_comes_back_from_a_tool_ends_there(tmp_path: Path, way: str, code: int) -> None:
    """The parent alone records what came of the call, on the loop's thread and on a worker."""
    found = program("in_tool", tmp_path, way)

    assert (found["statuses"], found["codes"]) == (["succeeded"] * 2, [code] * 2)


def test_a_fork_among_searches_of_memory_stops_no_process(tmp_path: Path) -> None:
    """No child inherits an index in the middle of a search, nor a lock that is never released."""
    found = program("memories", tmp_path)

    assert (found["codes"], found["errors"]) == ([0] * 8, [])


def test_the_awaitable_face_works_in_a_child(tmp_path: Path) -> None:
    """A store that was opened on a loop of the parent has workers in the child too."""
    found = program("awaited", tmp_path)

    assert (found["codes"], found["threads"]) == ([0], ["again", "child", "parent"])
