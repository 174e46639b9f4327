"""Names the test that a socket belongs to which nothing closed.

Python finds such a socket when it collects garbage, and fails the test that happens to run then.  Where each socket was
made is noted, and shown with that failure.
"""

from __future__ import annotations

import os
import re
import socket
import traceback
from collections.abc import Generator
from typing import Any

import pytest

__all__ = ["made_at"]

_FRAMES = 12
_UNCLOSED = re.compile(r"<socket\.socket fd=(\d+)")
_made: dict[
    int, tuple[str, traceback.StackSummary]
] = {}  # by descriptor, which the next socket takes over: test and lines
_init = socket.socket.__init__


def _noting(self: socket.socket, *args: Any, **options: Any) -> None:
    _init(self, *args, **options)
    test = os.environ.get("PYTEST_CURRENT_TEST", "no test")
    lines = traceback.StackSummary.extract(traceback.walk_stack(None), limit=_FRAMES, lookup_lines=False)
    _made[self.fileno()] = test, lines


socket.socket.__init__ = _noting  # pyright: ignore[reportAttributeAccessIssue]


def made_at(report: str) -> list[str]:
    """Return where the sockets that a report names as not closed were made: the test, and the lines that led there."""
    if "ResourceWarning" not in report:
        return []
    numbers = dict.fromkeys(map(int, _UNCLOSED.findall(report)))
    found = [_made[number] for number in numbers if number in _made]
    return [f"{test}\n{''.join(lines.format())}" for test, lines in found]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure where the sockets were made that it names."""
    report = yield
    if report.failed:
        report.sections += [("unclosed socket, made in", each) for each in made_at(report.longreprtext)]
    return report
