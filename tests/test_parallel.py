"""Forked workers run every test once, and say of each what pytest would say."""

from __future__ import annotations

import os
import signal
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


SUBTESTS = """
def test_some_fail(subtests):
    for number in range(3):
        with subtests.test(str(number)):
            assert number != 1
"""

ORPHAN = """
import os, signal
from pathlib import Path

def test_leaves_a_process_behind():
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    Path("orphan").write_text(str(pid))
    os.kill(os.getpid(), signal.SIGKILL)
"""

BAD_TEARDOWN = """
import pytest

@pytest.fixture(scope="session")
def opened():
    yield
    raise ValueError("it cannot be closed")

def test_opens(opened):
    pass

def test_fails():
    assert False

def test_is_not_run(opened):
    pass
"""


def _run(directory: Path, *options: str, tests: str = TESTS) -> str:
    (directory / "test_them.py").write_text(tests, encoding="utf-8")
    (directory / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:xdist -p tests.parallel\n", encoding="utf-8"
    )
    output = directory / "output"  # a file: a process that a test leaves behind would keep a pipe open
    with output.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-ra", *options],
            cwd=directory,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=file,
            stderr=file,
            check=False,
        )
    text = output.read_text(encoding="utf-8")
    assert done.returncode == 1, text
    return text


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


def test_a_failed_subtest_fails_its_test_in_a_worker_too(tmp_path: Path) -> None:
    """Workers send the reports of subtests, so a run with workers ends as one without."""
    for workers in ("0", "1"):
        said = _run(tmp_path, "-n", workers, tests=SUBTESTS)
        assert "test_some_fail - contains 1 failed subtest" in said
        assert "2 failed in" in said


def test_a_process_that_a_test_leaves_behind_does_not_hide_that_its_worker_has_ended(tmp_path: Path) -> None:
    """A process that a worker forked closes the pipe on which the end of the worker is noticed."""
    try:
        said = _run(tmp_path, "-n", "1", tests=ORPHAN)
    finally:
        os.kill(int((tmp_path / "orphan").read_text(encoding="utf-8")), signal.SIGKILL)
    assert "this test ended the process that ran it: SIGKILL" in said


def test_an_error_in_a_worker_that_is_to_stop_stays_in_it(tmp_path: Path) -> None:
    """The worker prints it and ends; it does not go on as if it were the process that collected."""
    said = _run(tmp_path, "-n", "1", "-x", tests=BAD_TEARDOWN)
    assert "it cannot be closed" in said
    assert said.count("1 failed, 1 passed") == 1
    assert "INTERNALERROR" not in said
    assert said.count("short test summary info") == 1
