"""`make bench` at its smallest: every measure runs, and the table says what was compared with which bar."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RATIOS = {"durable turns", "2 threads writing", "2 processes writing", "runs of an agent, four writes each"}


def measured(at: Path, *only: str) -> list[dict[str, Any]]:
    """What the yardstick prints as data; nothing is asserted about times, which are nobody's promise here."""
    command = [sys.executable, "-m", "bench", "--tiny", "--json", "--at", str(at), *only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=1_700, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_every_measure_runs_and_names_its_bar(tmp_path: Path) -> None:
    """A measure that breaks, or loses its bar, is found here and not by whoever compares."""
    rows = {row["measure"]: row for row in measured(tmp_path)}

    assert all(row.get("why") or row["ours"] is not None for row in rows.values())
    assert {name for name in rows if name in RATIOS} == RATIOS
    assert rows["durable turns"]["bar"] == 0.7
    assert rows["runs of an agent, four writes each"]["bar"] == 0.6
    assert not list(tmp_path.iterdir()), "what was measured in is removed"


def test_an_unknown_measure_is_refused(tmp_path: Path) -> None:
    """Control: the command can fail."""
    with pytest.raises(AssertionError, match="invalid choice"):
        measured(tmp_path, "--only", "nonsense")
