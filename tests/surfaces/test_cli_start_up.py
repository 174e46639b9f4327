"""What a command or a program loads: help needs no store, and reading needs nothing that runs an agent."""

from __future__ import annotations

import io
import math
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from rich.console import Console

import perdure
from perdure.cli.app import build
from perdure.cli.command_list import NOUNS, WIDTH_MIN, draw
from perdure.cli.run import run
from perdure.testing import Script, say

LISTING = """
import sys
from perdure.cli import main
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as end:
        assert not end.code, (command, end.code)
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


# What parses words, draws tables, describes data and runs coroutines.
LIBRARIES = {
    "asyncio",
    "cyclopts",
    "importlib.metadata",
    "inspect",
    "msgspec",
    "rich",
    "typing_extensions",
}
READING = """
import sys, perdure
with perdure.open(sys.argv[1]) as store:
    assert store.thread("rent").get("/title") == "Rent"
print("\\nloaded:", *sys.modules)
"""
# A program that opens a store and reads one value needs none of these.
UNREAD = RUN | {
    "apsw.ext",
    "asyncio",
    "email.utils",
    "importlib.metadata",
    "logging",
    "perdure.engines.sqlite.sql",
    "perdure.history.merge",
    "perdure.history.query",
    "perdure.history.verify",
    "perdure.ledger.calls",
    "perdure.ledger.verify",
    "perdure.memory",
    "perdure.providers",
    "perdure.runtime.agent.file",
    "perdure.runtime.event_loop",
    "perdure.runtime.tools",
    "perdure.switching.checkpoint",
    "perdure.switching.route",
    "tempfile",
    "tomllib",
    "yaml",
}


def loaded_by(directory: Path, *commands: str) -> set[str]:
    """The modules that are loaded when `perdure` has run the commands in a fresh interpreter."""
    return loaded_in(directory, LISTING, *commands)


def loaded_in(directory: Path, *program: str) -> set[str]:
    """The modules that a fresh interpreter has loaded at the end of a program, which prints them."""
    ended = subprocess.run(
        [sys.executable, "-c", *program],
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


def test_the_version_and_the_first_page_load_no_library_no_engine_and_no_store(tmp_path: Path) -> None:
    """They are printed by plain code: parsing words and drawing tables is not loaded for them."""
    printed = ("--version", "--help", "-h", "help", "", "threads --help", "help runs")

    assert loaded_by(tmp_path, *printed) & (LIBRARIES | STORE | DRIVERS) == set()


@pytest.mark.parametrize("command", ["--version", "--help"])
def test_a_full_disk_under_the_output_is_told_in_words(command: str, tmp_path: Path) -> None:
    """What is printed by plain code ended in a traceback there."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "perdure", command],
            cwd=tmp_path,
            env=buffered,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("No space left") == 1


def test_another_page_of_help_loads_the_libraries(tmp_path: Path) -> None:
    """Control: the names are right."""
    assert loaded_by(tmp_path, "init --help") & LIBRARIES == LIBRARIES - {"asyncio", "importlib.metadata"}


@pytest.mark.parametrize("width", [WIDTH_MIN, 60, 79, 80, 81, 100, 139, 200])
@pytest.mark.parametrize(
    ("bold", "colour", "encoding"),
    [(False, False, "utf-8"), (True, True, "utf-8"), (True, False, "utf-8"), (False, False, "ascii")],
)
def test_the_first_page_looks_as_the_library_draws_it(
    width: int, bold: bool, colour: bool, encoding: str
) -> None:
    """At any width, in colour, without colour on a terminal, and where the encoding has no lines."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, height=25, force_terminal=bold, no_color=not colour)
    build().help_print([], console=console)
    stream.seek(0)

    assert draw(width, bold=bold, colour=colour, ascii_only=encoding == "ascii") == stream.read()


@pytest.mark.parametrize("noun", NOUNS)
@pytest.mark.parametrize(("width", "bold"), [(WIDTH_MIN, False), (80, False), (80, True), (139, True)])
def test_the_page_of_a_noun_looks_as_the_library_draws_it(noun: str, width: int, bold: bool) -> None:
    """For every noun, in colour and without."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=25, force_terminal=bold, no_color=not bold)
    build().help_print([noun], console=console)

    assert draw(width, noun=noun, bold=bold, colour=bold, ascii_only=False) == stream.getvalue()


def cpu_seconds(*words: str) -> float:
    """The processor time of one fresh interpreter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=cached())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cached() -> dict[str, str]:
    """The environment, with bytecode kept from one interpreter to the next."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def test_starting_costs_little_more_than_python(directory: Path) -> None:
    """In processor time, against an interpreter that imports argparse and json; each is the least of several turns."""
    programs = {
        "python": ("-c", "import argparse, json"),
        "version": ("-m", "perdure", "--version"),
        "help": ("-m", "perdure", "--help"),
        "reading": ("-c", READING, str(directory / "agents.db")),
    }
    most = {"version": 1.5, "help": 4.0, "reading": 7.5}
    # What else the machine does makes a turn longer, never shorter: so a busy moment is waited for to pass.
    least = dict.fromkeys(programs, math.inf)
    for turn in range(40):
        least = {name: min(least[name], cpu_seconds(*words)) for name, words in programs.items()}
        if turn >= 3 and all(least[name] <= times * least["python"] for name, times in most.items()):
            break

    assert {
        name: least[name] / least["python"] for name in most if least[name] > most[name] * least["python"]
    } == {}


def test_opening_a_store_and_reading_a_value_loads_nothing_else(directory: Path) -> None:
    """Nothing that runs, switches, searches or verifies, no other library, and no event loop."""
    loaded = loaded_in(directory, READING, "agents.db")

    assert "perdure.store.thread" in loaded
    assert loaded & (UNREAD | DRIVERS - {"apsw"}) == set()


FIRST_RUN = """
import sys, perdure
from perdure.testing import Script, say
with perdure.open("memory:") as store:
    greeter = perdure.Agent("greeter", backend=Script(say("Hello!")))
    assert store.thread("hi", agent=greeter).run("Hi").text == "Hello!"
    if len(sys.argv) > 1:
        store.thread("hi").switch(sys.argv[1])
print("\\nloaded:", *sys.modules)
"""
# A run that stays on its backend needs none of these.
UNRUN = {
    "perdure.runtime.inference.switch",
    "perdure.switching.checkpoint.derive",
    "perdure.switching.checkpoint.heuristics",
}


def test_a_first_run_loads_nothing_that_switches_and_no_tokenizer(tmp_path: Path) -> None:
    """Nor the packages that are installed: a first script answers at once."""
    loaded = loaded_in(tmp_path, FIRST_RUN)

    assert "perdure.runtime.run.loop" in loaded
    assert loaded & (UNRUN | {"email", "importlib.metadata", "tiktoken"}) == set()


def test_a_switch_loads_what_switches(tmp_path: Path) -> None:
    """Control: the names are right."""
    assert loaded_in(tmp_path, FIRST_RUN, "openai:gpt-5.6") >= UNRUN


def test_reading_loads_nothing_that_runs_an_agent(directory: Path) -> None:
    """Commands that read load the store, and neither runs nor switches nor a provider's SDK."""
    loaded = loaded_by(
        directory,
        "threads ls",
        "threads log rent",
        "threads show rent",
        "state ls rent",
        "state get rent /title",
        "state blame rent /title",
        "runs ls rent",
        "calls ls rent",
        "memory ls",
    )

    assert "perdure.store.thread" in loaded
    assert loaded & (RUN | DRIVERS - {"apsw"}) == set()


UNLISTED = {
    "email",
    "http.client",
    "perdure.context.plan",
    "perdure.providers.tokens",
    "perdure.switching.commit",
    "subprocess",
    "urllib.request",
}


def test_a_listing_loads_nothing_that_switches_or_asks_a_server(directory: Path) -> None:
    """Neither tokens nor switches are counted in a list, and no completion is installed."""
    assert loaded_by(directory, "threads ls", "runs ls") & UNLISTED == set()


def test_a_command_that_needs_the_run_or_what_a_listing_leaves_out_loads_it(directory: Path) -> None:
    """Control: the names are right, and a module that was loaded would be found."""
    loaded = loaded_by(directory, "threads context rent --to openai:gpt-5.6")

    assert {"perdure.context.plan", "perdure.providers.tokens"} <= loaded
    assert {"perdure.runtime.inference", "perdure.runtime.session.environment"} <= loaded & RUN
    assert "apsw" in loaded


def test_every_module_of_a_run_exists() -> None:
    """Control: a module that was renamed would be missing from every list."""
    source = Path(perdure.__file__).parent.parent
    names = [name for name in STORE | UNREAD if name.startswith("perdure.")]
    places = [source.joinpath(*name.split(".")) for name in names]

    assert [place for place in places if not (place.is_dir() or place.with_suffix(".py").is_file())] == []


@pytest.mark.parametrize(("words", "times"), [((), 1), (("--help",), 3)])
def test_a_command_reads_its_signature_once(
    words: tuple[str, ...],
    times: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes longer than opening a store; control: help, which has a line of usage, reads it again."""
    read: list[App] = []
    assemble = App.assemble_argument_collection

    def counted(app: App, **options: Any) -> Any:
        read.append(app)
        return assemble(app, **options)

    monkeypatch.setattr(App, "assemble_argument_collection", counted)
    monkeypatch.chdir(tmp_path)
    with perdure.open("perdure.db") as store:
        store.thread("rent", agent="house").put("/title", "Rent")

    assert run(["threads", "log", "rent", *words]) == 0

    assert len(read) == times
