"""Forked workers run every test once, and say of each what pytest would say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

TESTS = """
import os, signal, sys
from pathlib import Path
import pytest

KEPT = sys.stderr

@pytest.fixture(scope="session")
def opened(tmp_path_factory):
    yield tmp_path_factory.getbasetemp().name
    with Path("closed").open("a") as file:
        file.write(f"{os.getpid()}\\n")

@pytest.mark.parametrize("number", range(40))
def test_passes(opened, number, tmp_path):
    assert opened.startswith("worker") and opened in tmp_path.parts
    with Path("passed").open("a") as file:
        file.write(f"{number} {os.getpid()}\\n")

def test_fails():
    print("printed before")
    assert 6 * 7 == 41

def test_is_skipped():
    pytest.skip("by name")

def test_ends_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

def test_runs_after_it():
    Path("after").touch()

def test_what_was_open_when_it_was_imported_is_open():
    KEPT.write("still open")
"""


def _run(directory: Path, *options: str) -> str:
    (directory / "test_them.py").write_text(TESTS, encoding="utf-8")
    (directory / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:xdist -p tests.parallel\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-ra", *options]
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done
    return done.stdout


def test_each_test_runs_once_and_what_ends_its_process_has_failed(tmp_path: Path) -> None:
    """The worker that was killed is replaced; each worker leaves its fixtures, and reports what was printed."""
    said = _run(tmp_path, "-n", "2")
    assert "2 failed, 42 passed, 1 skipped" in said
    assert "assert (6 * 7) == 41" in said
    assert "printed before" in said
    assert "by name" in said
    assert "this test ended the process that ran it: SIGKILL" in said
    assert (tmp_path / "after").exists()
    passed = [line.split() for line in (tmp_path / "passed").read_text(encoding="utf-8").splitlines()]
    assert sorted(int(number) for number, _ in passed) == list(range(40))
    closed = (tmp_path / "closed").read_text(encoding="utf-8").split()
    assert len(closed) == len(set(closed)) > 0
    assert set(closed) <= {pid for _, pid in passed}


def test_the_first_failure_ends_a_run_that_is_to_stop_there(tmp_path: Path) -> None:
    """With `-x` a worker is handed nothing more."""
    said = _run(tmp_path, "-n", "1", "-x")
    assert "1 failed, 40 passed" in said
    assert not (tmp_path / "after").exists()
