"""What importing the package costs a process, against two modules of the standard library."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from bench.ground import Ground, median
from bench.table import Result

_OURS, _THEIRS = "import perdure", "import json, sqlite3"


def measure(ground: Ground) -> Iterable[Result]:
    _process_time(_OURS)  # so that the bytecode is there
    times = [(_process_time(_OURS), _process_time(_THEIRS)) for _ in range(ground.sizes.imports)]
    yield Result(
        measure="import perdure, process time",
        ours=1e3 * median(ours for ours, _ in times),
        baseline=1e3 * median(theirs for _, theirs in times),
        baseline_is="json, sqlite3",
        unit="ms",
        bound="at most",
        bar=2.0,
    )


def _process_time(statement: str) -> float:
    """Processor seconds of a process that runs one statement."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", statement], os.environ)
    _, status, used = os.wait4(child, 0)
    assert status == 0, f"`{statement}` failed"
    return used.ru_utime + used.ru_stime
