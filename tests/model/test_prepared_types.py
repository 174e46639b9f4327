"""Threads that decode a type for the first time at once do not end the process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from threading import Barrier, Thread

import msgspec

import perdure
from perdure.model import canonical

if sys.argv[1] == "unprepared":
    canonical._prepare_once = lambda type: None
sys.setswitchinterval(1e-6)  # as often as it can be
store = perdure.open("memory:")
thread = store.thread("t", agent="a")
thread.put("/document", {"inner": {}})


def get(kind: type, together: Barrier) -> None:
    together.wait()
    thread.get("/document", type=kind)


for _ in range(200):
    inner = msgspec.defstruct("Inner", [(f"i{at}", "int | None", None) for at in range(20)])
    outer = msgspec.defstruct("Outer", [("inner", inner)])
    together = Barrier(4)
    threads = [Thread(target=get, args=(outer, together)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
"""


def exit_code(how: str) -> int:
    """How the program ends in which threads ask for the same document as a type of its own."""
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, how], stderr=subprocess.DEVNULL, check=False
    ).returncode


def test_threads_ask_for_a_new_type_at_once() -> None:
    """Each gets its document: one thread at a time reads the fields of the type."""
    assert exit_code("prepared") == 0


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="whether msgspec does so there is not known")
def test_control_unprepared_types_end_the_process() -> None:
    """msgspec lets the other threads use what it has read so far."""
    assert exit_code("unprepared") in (-signal.SIGSEGV, -signal.SIGABRT)
