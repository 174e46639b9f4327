"""Notices whether code runs that hostile bytes name: a function of a module, a command, a source text, a pickle.

The bytes name the module `perdure_canary`, or have that word in a command or a source.  Python raises an audit event before
it imports, compiles, unpickles or starts anything; an event that has the word in it is noted.  A class that is constructed
has to be imported first, so the detector needs no payload of its own kind for each way to construct one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock

import pytest

__all__ = ["CANARY", "Detector", "detector"]

CANARY = "perdure_canary"
MODULE = """
FIRED = []


def fire(*args, **kwargs):
    FIRED.append(args)


class Trap:
    def __init__(self, *args, **kwargs):
        FIRED.append(args)
"""
_KINDS = (
    *(
        "import",
        "compile",
        "exec",
        "os.",
        "subprocess.",
        "pickle.",
        "marshal.",
        "shutil.",
        "socket.",
        "urllib.",
    ),
    *("ctypes.", "code.", "builtins.", "webbrowser."),
)
_listening: list[Detector] = []
_lock = Lock()


class Detector:
    """Notes what runs of the canary's code while something else is done."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self._found: list[str] = []

    def executed(self, work: Callable[[], object], *allowed: type[Exception]) -> list[str]:
        """Do something, which may raise one of the errors that are `allowed`; return the kinds of events that name the canary."""
        self._found = []
        with _lock:
            _listening.append(self)
        try:
            with suppress(*allowed):
                work()
        finally:
            with _lock:
                _listening.remove(self)
            sys.modules.pop(CANARY, None)
        return self._found

    def note(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note an event if it is of a kind that executes, and names the canary."""
        if event.startswith(_KINDS) and CANARY in repr(arguments):
            self._found.append(event)


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    for each in _listening:
        each.note(event, arguments)


_heard_once: list[bool] = []


@pytest.fixture
def detector(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Detector:
    """A detector, and a canary that can be imported."""
    folder: Path = tmp_path_factory.mktemp("canary")
    (folder / f"{CANARY}.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    if not _heard_once:
        sys.addaudithook(_heard)  # for the rest of the process: there is no way to remove one
        _heard_once.append(True)
    return Detector()
