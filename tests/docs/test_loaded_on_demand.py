"""The demo and the generators of pages are installed, and only their own commands load them."""

from __future__ import annotations

import subprocess
import sys

ON_DEMAND = ("perdure.cli.commands.demo", "perdure.cli.reference", "perdure.cli.commands.models.page")
RUN = """
import contextlib, sys
from perdure.cli.run import run
for command in sys.argv[1:]:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
        run(command.split())
print(*sys.modules, sep="\\n")
"""


def loaded(*commands: str) -> list[str]:
    """The modules on demand that the process of some commands has loaded."""
    done = subprocess.run([sys.executable, "-c", RUN, *commands], capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if name.startswith(ON_DEMAND)]


def test_other_commands_do_not_load_the_demo_or_a_generator() -> None:
    """A program that uses Perdure pays for neither."""
    assert loaded("--help", "--version", "threads ls --store memory:") == []


def test_the_demo_loads_itself() -> None:
    """Control: the list of modules shows what a command loads."""
    assert "perdure.cli.commands.demo.command" in loaded("demo --help")
