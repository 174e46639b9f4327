"""The processes that the engine suite starts fork from one that has imported the suites."""

from __future__ import annotations

import atexit
import subprocess
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.testing.engines import child
from tests.forked import ForkedProcess, ForkServer


@cache
def _suites() -> ForkServer:
    names = ("memory", "sqlite", "postgres", "controls")
    server = ForkServer(*(f"tests.conformance.test_{name}" for name in names))
    atexit.register(server.close)
    return server


def _started(command: Sequence[str], **streams: Any) -> Any:
    process: Any = ForkedProcess(_suites(), command[1:], **streams)
    process.stdin, process.stdout = process.stdin.detach(), process.stdout.detach()
    return process


@pytest.fixture(autouse=True)
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """To start Python and import the suites takes half a second, and some twenty laws need another process."""
    monkeypatch.setattr(child, "subprocess", SimpleNamespace(Popen=_started, PIPE=subprocess.PIPE))
