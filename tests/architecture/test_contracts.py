"""The import contracts of `pyproject.toml` forbid what they are there to forbid.

That the package keeps them is checked by `make imports`; here each one is broken in a copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, SOURCE
from tests.forked import ForkServer

LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package and of its contracts."""
    shutil.copytree(SOURCE, tmp_path / "src" / "perdure", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    """Processes that have imported the linter, and nothing of the package."""
    with ForkServer("importlinter.cli") as server:
        yield server


def broken_contracts(forks: ForkServer, project: Path) -> list[str]:
    """The names of the contracts that `project` breaks."""
    command = ["-c", LINT, "--no-cache", "--no-logo"]
    environment = os.environ | {"PYTHONPATH": str(project / "src"), "NO_COLOR": "1", "COLUMNS": "200"}
    ended = forks.run(command, cwd=project, env=environment)
    broken = [line.partition(" BROKEN")[0] for line in ended.stdout.splitlines() if " BROKEN" in line]
    assert bool(broken) == bool(ended.returncode), ended.stdout + ended.stderr
    return broken


@pytest.mark.parametrize(
    "lines",
    [
        {
            "model/upward.py": ("import perdure.history", "Imports point down only"),
            "runtime/unheard_of.py": ("", "Inside the runtime imports point down only"),
            "history/shortcut.py": (
                "import perdure.engines.memory",
                "Only the registry knows which engines exist",
            ),
            "store/colour.py": ("import rich", "Only the command line knows the terminal"),
        },
        {
            "unheard_of.py": ("", "Imports point down only"),
            "runtime/session/upward.py": (
                "import perdure.runtime.calls.executor",
                "Inside the runtime imports point down only",
            ),
            "history/driver.py": ("import apsw", "A database driver appears only in its engine"),
            "switching/vendor.py": ("import openai", "A vendor's SDK appears only in its transport"),
        },
    ],
)
def test_a_forbidden_import_is_found(
    forks: ForkServer, copy: Path, lines: dict[str, tuple[str, str]]
) -> None:
    """Each contract fails on one line that breaks it, and no other contract does."""
    for module, (line, _) in lines.items():
        (copy / "src" / "perdure" / module).write_text(f"{line}\n")

    assert broken_contracts(forks, copy) == [contract for _, contract in lines.values()]
