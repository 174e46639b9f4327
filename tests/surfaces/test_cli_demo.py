"""The demo: it proves what it tells, and stops if a promise is broken."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Thread
from perdure.cli.commands.demo import command, langgraph_story, payments, switching
from perdure.cli.commands.demo.bank import Bank
from perdure.cli.commands.demo.screen import Stage
from tests.forked import PIPE, ForkedProcess, ForkServer, Subprocess, commands
from tests.surfaces.shell import Shell

TOLD = [
    "Pay the landlord 900, please.",
    "its model is scripted",
    "the ordinary loop paid twice",
    "ours paid once",
    "started → unknown → succeeded",
    "the repeat guard had not",
    '+   "amount": 500',
    "the bank shows the edited amount, once",
    "Decided",
    "milk",
    "eggs",
    "carrots",
    "bread",
    "what-if",
    "Promote",
    "Undo",
    "Read the past",
    "StaleHead",
    "SIGKILL",
    "acknowledged commits are there",
    "Compatibility check:",
    "all five layers are byte for byte the same",
    "kind: StateCheckpoint",
    'note: "already done: do not repeat"',
    "it was not run, a person is asked",
    "undo took the switch back",
    "the line was published once",
    "the whole store is intact",
]


HAS_MODEL = switching.available()


@pytest.fixture(autouse=True)
def without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted backends stand in for the local model, except where a test says otherwise."""
    monkeypatch.setattr(switching, "available", lambda: False)


@pytest.fixture(autouse=True)
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that the story kills are forked; `tests/docs/test_pictures.py` runs the demo as it is."""
    for module in (command, payments):
        monkeypatch.setattr(module, "subprocess", Subprocess(commands()))


@pytest.fixture(scope="module")
def langgraph_forks() -> Iterator[ForkServer]:
    """Processes that have imported LangGraph."""
    with ForkServer("perdure.integrations.langgraph.sample_graphs", "perdure.cli.run") as server:
        yield server


@pytest.mark.deep
@pytest.mark.skipif(not HAS_MODEL, reason="the local model is not installed; `make venv` installs it")
def test_a_real_conversation_is_carried_over_three_formats(
    empty: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third part, with the model on this machine: every switch is made, and nothing is done twice."""
    monkeypatch.setattr(switching, "available", lambda: True)
    with perdure.open(empty.store) as store:
        (empty.directory / "bank").mkdir()
        stage = Stage(None)
        switching.tell(stage, store, empty.directory / "bank")
        backends = [
            entry.provider for entry in store.thread("board").transcript() if entry.role == "assistant"
        ]

    assert {"local", "openai", "anthropic", "script"} <= {*backends}
    assert len(stage.proved) == 11


def test_the_story_is_told_and_proved(empty: Shell) -> None:
    """Every step is there, and its store is kept and intact."""
    ended = empty.ok("demo")

    assert [words for words in TOLD if words not in ended.out] == []
    assert "✗ this" not in ended.out
    assert "scripted backends are used" in ended.out
    assert ended.out.count("✓") >= 40
    assert ended.out.index("paid twice") < ended.out.index("milk")
    with perdure.open("perdure-demo.db", read_only=True) as store:
        assert store.verify().ok
        assert store.thread("shopping").get("/todos.json") == ["milk", "eggs", "bread"]
        assert [call.state for call in store.thread("rent").calls()] == ["succeeded", "awaiting_approval"]
    assert [line.split()[:2] for line in Path("perdure-demo-bank/ours.txt").read_text().splitlines()] == [
        ["landlord", "900"],
        ["roofer", "500"],
    ]


def test_the_story_fits_a_terminal_of_80_columns(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line runs over, but for the commands at its end, which are to be copied; what is done stands in the document."""
    monkeypatch.setenv("COLUMNS", "80")

    lines = empty.ok("demo").out.splitlines()

    assert [line for line in lines if len(line) > 80 and not typed(line)] == []
    document = lines[lines.index("   kind: StateCheckpoint") : lines.index("15 A backend that can do less")]
    assert any(line.endswith('note: "already done: do not repeat"') for line in document)


def typed(line: str) -> list[str]:
    """What a line says to type after the program's name; nothing if it is no command."""
    found = re.match(r"  (?:.+ -m )?perdure (.+)", line)
    return shlex.split(found[1]) if found else []


@pytest.mark.parametrize("found", ["/usr/bin/perdure", pytest.param(None, marks=pytest.mark.deep)])
def test_the_commands_that_it_ends_with_work(
    empty: Shell, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six of them look inside, and the last one serves the page: by the program's name, or by the module where that is
    not on the path."""
    monkeypatch.setattr(command, "which", lambda _name: found)
    *looking, serving = [words for line in empty.ok("demo").out.splitlines() if (words := typed(line))]

    assert len(looking) == 6
    assert serving[:2] == ["serve", "--store"]
    for words in looking:
        empty.ok(*words)


def test_the_demo_never_touches_a_store_that_is_there(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a new file each time, whatever $PERDURE_STORE says; a path that is taken is a conflict."""
    monkeypatch.setenv("PERDURE_STORE", "perdure.db")
    before = shell.store.read_bytes()

    first, second = (shell.ok("demo", "--json").json for _ in range(2))
    taken = shell("demo", "--store", "perdure.db")

    assert (first["store"], second["store"]) == ("perdure-demo.db", "perdure-demo-2.db")
    assert taken.code == 4
    assert shell.store.read_bytes() == before


def test_as_json_it_tells_what_was_proved(empty: Shell) -> None:
    """And nothing else."""
    told = empty.ok("demo", "--store", "my demo.db", "--json").json

    assert told["ok"] is True
    assert told["broken"] is None
    assert len(told["proved"]) >= 29
    assert Path("my demo.db").exists()


def test_a_broken_promise_ends_the_story(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: an undo that does nothing is noticed at once, and the demo fails."""
    undo = Thread.undo
    monkeypatch.setattr(Thread, "undo", lambda self: self.head if self.id == "shopping" else undo(self))

    ended = empty("demo")
    told = empty("demo", "--json")

    assert ended.code == told.code == 1
    assert "✗ undo took the bread off the list" in ended.out
    assert "Read the past" not in ended.out
    assert told.json["ok"] is False


def test_a_second_payment_ends_the_story(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a hook that swears that nothing was paid is believed of a dead process, and is found out."""
    monkeypatch.setattr(Bank, "find", lambda _self, _reference: None)

    told = empty("demo", "--json")

    assert told.code == 1
    assert "ours paid once" in told.json["broken"]


def test_a_process_that_ends_by_itself_ends_the_story(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: what was not killed proves nothing."""
    monkeypatch.setattr(payments, "PAYER", "perdure.cli.commands.demo.scripted_model")

    told = empty("demo", "--json")

    assert "both processes were killed" in told.json["broken"]


def test_a_decision_that_is_taken_back_ends_the_story(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: if nobody were told that it was decided, the demo would say so."""
    monkeypatch.setattr(payments, "_refused", lambda _thread, _ticket: "no error")

    told = empty("demo", "--json")

    assert "another decision later is refused" in told.json["broken"]


def test_a_race_that_nobody_is_told_of_ends_the_story(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: where Bob writes elsewhere, Ann is told nothing, and the demo says so."""
    elsewhere = perdure.open("memory:")
    elsewhere.thread("shopping", agent="helper")
    opened = command.open_store
    monkeypatch.setattr(
        command, "open_store", lambda place: elsewhere if isinstance(place, str) else opened(place)
    )

    told = empty("demo", "--json")

    assert told.code == 1
    assert "Ann gets an error" in told.json["broken"]


def test_a_lost_commit_ends_the_story(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a process that acknowledges what it never wrote is found out after the kill."""
    liar = empty.directory / "liar.py"
    liar.write_text("import sys, time\nfor n in range(99): print('0' * 64, flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(command, "WRITER", "liar")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(empty.directory), os.environ.get("PYTHONPATH", "")])
    )

    told = empty("demo", "--json").json

    assert told["ok"] is False
    assert "acknowledged commits are there" in told["broken"]


def test_the_writer_is_really_killed(empty: Shell) -> None:
    """It writes without end until it is, and every commit that it said is in the store."""
    with perdure.open("k.db") as store:
        store.thread("t", agent="a")
    with ForkedProcess(commands(), ["-m", command.WRITER, "k.db", "t"], stdout=PIPE) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline().strip() for _ in range(5)]
        writer.kill()

    assert writer.returncode == -signal.SIGKILL
    with perdure.open("k.db", read_only=True) as store:
        assert said == [entry.digest for entry in reversed(store.thread("t").log())][:5]


@pytest.fixture
def short_story(langgraph_forks: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The story with LangGraph, with fewer turns."""
    pytest.importorskip("langgraph.checkpoint.sqlite")
    monkeypatch.setattr(langgraph_story, "subprocess", Subprocess(langgraph_forks))
    told = partial(langgraph_story.tell_langgraph, turns=20)
    monkeypatch.setattr(langgraph_story, "tell_langgraph", told)


TOLD_WITH_LANGGRAPH = [
    "both processes were killed, with the rent paid once each",
    "without the guard it paid twice",
    "with the guard it paid once",
    "the outcome of this call to pay is unknown",
    "with SqliteSaver both runs report success, and one of them is gone",
    "everything that was acknowledged is there",
    "times smaller",
    "the whole store is intact",
]


@pytest.mark.usefixtures("short_story")
def test_the_story_with_langgraph_is_told_and_proved(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is there within 80 columns, and the commands at its end work."""
    monkeypatch.setenv("COLUMNS", "80")

    ended = empty.ok("demo", "--with", "langgraph")

    said = " ".join(ended.out.split())
    assert [words for words in TOLD_WITH_LANGGRAPH if words not in said] == []
    lines = ended.out.splitlines()
    assert [line for line in lines if len(line) > 80 and not typed(line)] == []
    *looking, serving = [words for line in lines if (words := typed(line))]
    assert (len(looking), serving[0]) == (3, "serve")
    for words in looking:
        empty.ok(*words)


@pytest.mark.usefixtures("short_story")
def test_a_guard_that_lets_everything_through_ends_the_story(
    empty: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: where the resumed graph has no guard, the second payment is found out."""
    from perdure.integrations.langgraph import sample_graphs

    resumed = sample_graphs.pay_or_resume

    def unguarded(*given: Any, is_guarded: bool) -> str:
        return resumed(*given, is_guarded=False)

    monkeypatch.setattr(sample_graphs, "pay_or_resume", unguarded)

    told = empty("demo", "--with", "langgraph", "--json")

    assert told.code == 1
    assert "with the guard it paid once" in told.json["broken"]


def test_without_langgraph_the_story_is_not_begun(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package, and no file is made."""
    monkeypatch.setattr(langgraph_story, "find_spec", lambda _name: None)

    ended = empty("demo", "--with", "langgraph", "--json")

    assert (ended.code, ended.error["error"]) == (1, "Unsupported")
    assert list(empty.directory.iterdir()) == []
