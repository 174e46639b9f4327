"""What a command loads: help needs no store, and reading needs nothing that runs an agent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.testing import Script, say

LISTING = """
import sys
from perdure.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("\\nloaded:", *sys.modules)
"""
DRIVERS = {"apsw", "openai", "anthropic", "google.genai", "boto3", "mistralai"}
STORE = {f"perdure.{name}" for name in ("engines", "history", "ledger", "providers", "runtime", "store")}
RUN = {
    "perdure.context.assemble",
    "perdure.runtime.calls",
    "perdure.runtime.import_messages",
    "perdure.runtime.inference",
    "perdure.runtime.run",
    "perdure.runtime.session.environment",
    "perdure.runtime.session.journal",
    "perdure.runtime.session.lease_keeper",
    "perdure.runtime.streaming",
    "perdure.runtime.tools.execution",
    "perdure.switching.checkpoint.derive",
}


def loaded_by(command: str, directory: Path) -> set[str]:
    """The modules that are loaded when `perdure` has run `command` in a fresh interpreter."""
    ended = subprocess.run(
        [sys.executable, "-c", LISTING, *command.split()],
        cwd=directory,
        env=os.environ | {"PERDURE_STORE": "agents.db"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ended.stdout.rpartition("loaded:")[2].split())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store, in which an agent has run once."""
    made = tmp_path_factory.mktemp("start_up")
    with perdure.open(made / "agents.db") as store:
        clerk = perdure.Agent("clerk", backend=Script(say("Done.")))
        thread = store.thread("rent", agent=clerk)
        thread.put("/title", "Rent")
        thread.run("Pay the rent")
    return made


@pytest.mark.parametrize("command", ["--version", "--help", "threads --help"])
def test_help_loads_no_engine_and_no_store(command: str, tmp_path: Path) -> None:
    """A command that touches no store loads only the command line."""
    assert loaded_by(command, tmp_path) & (STORE | DRIVERS) == set()


@pytest.mark.parametrize(
    "command",
    [
        "threads ls",
        "threads log rent",
        "threads show rent",
        "state ls rent",
        "state get rent /title",
        "state blame rent /title",
        "runs ls rent",
        "calls ls rent",
        "memory ls",
    ],
)
def test_reading_loads_nothing_that_runs_an_agent(command: str, directory: Path) -> None:
    """A command that reads loads the store, and neither runs nor switches nor a provider's SDK."""
    loaded = loaded_by(command, directory)

    assert "perdure.store.thread" in loaded
    assert loaded & (RUN | DRIVERS - {"apsw"}) == set()


def test_a_command_that_needs_the_run_loads_it(directory: Path) -> None:
    """Control: the names of the run are right, and a module that was loaded would be found."""
    loaded = loaded_by("threads context rent --to openai:gpt-5.6", directory)

    assert {"perdure.runtime.inference", "perdure.runtime.session.environment"} <= loaded & RUN
    assert "apsw" in loaded


def test_every_module_of_a_run_exists() -> None:
    """Control: a module that was renamed would be missing from every list."""
    source = Path(perdure.__file__).parent.parent
    places = [source.joinpath(*name.split(".")) for name in STORE | RUN]

    assert [place for place in places if not (place.is_dir() or place.with_suffix(".py").is_file())] == []
