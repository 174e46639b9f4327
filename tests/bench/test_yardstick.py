"""`make bench` at its smallest: every measure runs, and the table says what was compared with which bar.

All of them run with `PERDURE_DEEP=1`, and in every run those whose bars depend on the sync.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked import commands

ROOT = Path(__file__).parents[2]
BARS = {
    "bytes on disk, 5 turns, 5 keys": 1.1,
    "bytes on disk, 5 turns, 10 keys": 1.1,
    "load of 5 turns whole": 2.0,
    "load state and 50 messages at 10 turns": 1.5,
    "one put into 500 keys, just opened": 1.3,
    "the same, once the map was read": 1.3,
    "speed of the last 2 of 10 turns": 0.95,
    "one run with one tool, CPU, user and system": 2.5,
    "first run of a process on a thread of 8 commits, CPU": 1.5,
}
BARS_BY_SYNC = {
    "durable turns": {0.1: 0.55, 2.0: 0.8},
    "2 threads writing": {0.1: 1.0},
    "2 processes writing": {0.1: 0.7},
    "3 runs at once": {2.0: 3.0},
}
_COMMIT_MS = """
import sys
from pathlib import Path
from bench.sync import measured_sync, slow_syncs_as_told

slow_syncs_as_told()
directory = Path(sys.argv[1])
directory.mkdir()
print(measured_sync(directory))
"""
_SERVER_COMMITS = """
from bench.measures import server

with server._served() as url:
    print(server._committing(url, 9, "on"), server._committing(url, 9, "off"))
"""
_TWO_WRITERS = """
import sys, threading, time
from pathlib import Path
import apsw
from bench.sync import slow_syncs_as_told

slow_syncs_as_told()
paths = [Path(sys.argv[1]) / name for name in sys.argv[2:]]
connections = [apsw.Connection(str(path)) for path in paths]
for connection in connections:
    connection.set_busy_timeout(60_000)
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE IF NOT EXISTS one(value)")

def write(connection):
    for at in range(2):
        connection.execute("INSERT INTO one VALUES (?)", (at,))

threads = [threading.Thread(target=write, args=(each,)) for each in connections]
start = time.perf_counter()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(time.perf_counter() - start)
"""
_TABLE = """
from bench.table import Result, render

beside = Result(measure="a turn", ours=2.0, baseline=5.0, baseline_is="LangGraph", unit="ms")
alone = Result(measure="its own", baseline=7.0, baseline_is="LangGraph", unit="ms")
print(render([beside, alone]))
"""


def child(program: str, environment: dict[str, str], *arguments: str) -> str:
    """What a program prints that uses the yardstick: in this process `bench` is the name of these tests."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=300, check=True)
    return done.stdout.decode()


def measured(at: Path, *more: str) -> dict[str, dict[str, Any]]:
    """The rows that the yardstick prints; the test asserts nothing about times, which no test promises."""
    done = commands().run(["-m", "bench", "--tiny", "--json", "--at", str(at), *more], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {row["measure"]: row for row in json.loads(done.stdout)}


@pytest.mark.deep
def test_every_measure_runs_and_names_its_bar(tmp_path: Path) -> None:
    """A measure that breaks, or loses its bar, is found here and not by whoever compares."""
    rows = measured(tmp_path)

    assert all(row.get("why") or row["ours"] is not None or row["baseline"] for row in rows.values())
    assert {name: rows[name]["bar"] for name in BARS} == BARS
    assert {name: rows[name]["bar"] for name in BARS_BY_SYNC} == dict.fromkeys(BARS_BY_SYNC), (
        "a bar that depends on the sync is judged only where the sync is known"
    )
    assert not list(tmp_path.iterdir()), "what was measured in is removed"


@pytest.mark.parametrize("sync_ms", [0.1, 2.0])
def test_a_bar_holds_at_the_sync_it_is_set_for(tmp_path: Path, sync_ms: float) -> None:
    """The same measure has another bar where a sync takes longer, and the baseline waits for its syncs too."""
    rows = measured(tmp_path, "--sync", str(sync_ms), "--only", "turns", "writers", "runs", "peers")

    for name, bars in BARS_BY_SYNC.items():
        assert rows[name]["bar"] == bars.get(sync_ms), name
    four_syncs_ms = 4 * sync_ms
    for name in ("durable turns", "2 processes writing"):
        assert 1_000 / rows[name]["baseline"] >= four_syncs_ms / (2 if "2" in name else 1) * 0.5
    assert rows["beside other libraries"]["why"]


def test_a_child_process_takes_as_long_for_a_sync(tmp_path: Path) -> None:
    """Writers in processes of their own are told by the environment; control: without it, a sync takes nothing."""

    told = float(child(_COMMIT_MS, {**os.environ, "PERDURE_BENCH_SYNC_US": "20000"}, str(tmp_path / "told")))
    untold = float(child(_COMMIT_MS, dict(os.environ), str(tmp_path / "untold")))

    assert told >= 19.0
    assert untold < 10.0


def test_a_sync_holds_the_lock_of_its_database_alone(tmp_path: Path) -> None:
    """Two syncs of a second on each of two databases overlap; control: on one database they follow each other.

    They sleep so long that a busy machine, which adds to both, does not make the one look like the other.
    """
    told = {**os.environ, "PERDURE_BENCH_SYNC_US": "1000000"}

    apart = float(child(_TWO_WRITERS, told, str(tmp_path), "a.db", "b.db"))
    together = float(child(_TWO_WRITERS, told, str(tmp_path), "c.db", "c.db"))

    assert 2.0 <= apart < 3.9
    assert together >= 4.0


def test_the_figures_of_another_stand_under_its_name() -> None:
    """A reader must not take a peer's figure for ours."""
    heading, _, first, second = child(_TABLE, dict(os.environ)).splitlines()

    columns = [heading.index(name) + len(name) for name in ("Perdure", "compared with", "its figure")]
    cells = [[line[:end].split("  ")[-1].strip() for end in columns] for line in (first, second)]
    assert cells == [["2.00 ms", "LangGraph", "5.00 ms"], ["-", "LangGraph", "7.00 ms"]]


@pytest.mark.parametrize(
    ("more", "problem"), [(("--only", "nonsense"), "invalid choice"), (("--sync", "0"), "a sync takes")]
)
def test_what_is_not_known_is_refused(tmp_path: Path, more: tuple[str, ...], problem: str) -> None:
    """Control: the command can fail."""
    with pytest.raises(AssertionError, match=problem):
        measured(tmp_path, *more)


def test_a_server_waits_as_long_for_a_flush() -> None:
    """It is told so when it starts; control: a commit that is not flushed does not wait."""
    told = {**os.environ, "PERDURE_BENCH_SYNC_US": "20000"}

    flushed, unflushed = (
        float(each)
        for each in subprocess.run(
            [sys.executable, "-c", _SERVER_COMMITS],
            cwd=ROOT,
            env=told,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
    )

    assert flushed >= 0.02
    assert unflushed < flushed
