"""What starting Perdure loads: drivers, the terminal and the event loop only when they are used."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"apsw", "cyclopts", "rich", "backports.zstd", "compression.zstd", "asyncio"}


def loaded_by(program: str) -> set[str]:
    """The modules that are loaded in a fresh interpreter after `program`."""
    listing = "\nimport sys\nprint('\\nloaded:', *sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program + listing], capture_output=True, text=True, check=True
    )
    return set(ended.stdout.rpartition("loaded:")[2].split())


def test_import_perdure_loads_nothing_heavy() -> None:
    """A driver is loaded when a store is opened, not before."""
    assert loaded_by("import perdure") & HEAVY == set()


def test_a_heavy_import_would_be_found() -> None:
    """Control: a driver or an event loop that came along is seen."""
    assert loaded_by("import perdure, apsw, asyncio") & HEAVY == {"apsw", "asyncio"}
