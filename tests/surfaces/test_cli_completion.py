"""Completion of ids: what listings show is what a person types the beginning of, and what the commands take."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

import perdure
from perdure.cli import completion
from perdure.cli.app import build, load
from perdure.cli.command_list import ALONE, NOUNS
from perdure.cli.completion import candidates, in_store
from perdure.model.names import short_ids
from perdure.testing import Script, say
from tests.surfaces.paying import payer
from tests.surfaces.pty_session import PtySession
from tests.surfaces.shell import Shell


def offers(shell: Shell, *words: str) -> list[str]:
    """What is offered in the place of the last word."""
    begun, *found = shell.ok("__complete", *words).out.splitlines()
    assert begun == "\x1fbegin"
    return found


def beginning(id: str, others: Iterable[str]) -> str:
    """The first two characters, or as many more as tell an id from the others."""
    length = 2
    while sum(other.startswith(id[:length]) for other in others) > 1:
        length += 1
    return id[:length]


@pytest.fixture
def worked(made: Shell) -> Shell:
    """The same shell; the thread has artifacts, a switch and an undone change, and its owner has two items."""
    with perdure.open(made.store) as store:
        thread = store.thread("house", agent=payer)
        thread.artifacts.put(b"plan", name="drafts/plan")
        thread.fork("aside").put("/own.json", 1)
        thread.put("/plan.json", 1)
        thread.put("/plan.json", 2)
        thread.undo()
        for words in ("likes jam", "likes tea"):
            store.memory("ann").add(words)
        calm = store.thread("calm", agent="noter")
        calm.put("/a.json", 1)
        calm.switch(Script(say("Hello."), backend="script:other"))
        store.thread("ann@home:1", agent="noter").put("/a.json", 1)
        store.thread("two words", agent="noter").put("/a.json", 1)
    return made


def ids_of(shell: Shell) -> dict[str, list[str]]:
    """The ids of each kind, those with what listings show of them first."""
    read = lambda *words: shell.ok(*words, "--json").json  # noqa: E731
    return {
        "run": [each["id"] for each in read("runs", "ls", "house")["runs"]],
        "call": [each["id"] for each in read("calls", "ls", "house")["calls"]],
        "item": [each["id"] for each in read("memory", "ls", "--owner", "ann")["items"]],
    }


COMMANDS = {
    "runs show house ID": "run",
    "runs show ID": "run",
    "calls ls house --run ID": "run",
    "threads log house --at ID": "run",
    "threads diff house ID": "run",
    "calls show house ID": "call",
    "calls show ID": "call",
    "memory show --owner ann ID": "item",
    "memory log --owner ann ID": "item",
}


@pytest.mark.parametrize(("command", "kind"), COMMANDS.items())
def test_the_beginning_of_what_is_shown_is_completed_to_what_the_command_takes(
    worked: Shell, command: str, kind: str
) -> None:
    """Of each id by its first two characters; a digit of its middle alone is none of it."""
    ids = ids_of(worked)[kind]
    shown = short_ids(ids)

    for id in ids:
        end = shown[id]
        assert len(end) < len(id)
        (found,) = offers(worked, *command.replace("ID", beginning(end, shown.values())).split())[-1:]
        assert found == end
        assert worked.ok(*command.replace("ID", found).split(), "--json").code == 0


@pytest.mark.parametrize(("command", "kind"), COMMANDS.items())
def test_any_part_that_commands_take_is_completed(worked: Shell, command: str, kind: str) -> None:
    """The beginning of the whole id to the id, another part of four characters to its end; three are too few."""
    ids = ids_of(worked)[kind]
    found = {
        typed: offers(worked, *command.replace("ID", typed).split())
        for typed in (ids[0][:14], ids[0][-7:-2], ids[0][24:29])
    }

    assert ids[0] in found[ids[0][:14]]
    assert found[ids[0][-7:-2]] == [ids[0][-7:]]
    assert found[ids[0][24:29]] == [ids[0][24:]]
    for end in (ids[0][-7:], ids[0][24:]):
        assert worked.ok(*command.replace("ID", end).split(), "--json").code == 0
    assert offers(worked, *command.replace("ID", "-8").split()) == []


def test_an_end_that_two_ids_share_is_not_offered(empty: Shell) -> None:
    """Then the whole id is; what is offered is what listings show wherever they show eight characters."""
    first, second = (f"0197{number:04x}-0000-7000-8000-0000deadbeef" for number in (1, 2))
    with perdure.open(empty.store) as store:
        for id in (first, second, alone := str(uuid4())):
            store.thread(id, agent="helper").put("/a.json", 1)

    assert offers(empty, "threads", "show", "de") == []
    assert offers(empty, "threads", "show", "0197") == [first, second]
    assert offers(empty, "threads", "show", alone[-8:-5]) == [short_ids([first, second, alone])[alone]]
    assert empty.ok("threads", "show", alone[-8:], "--json").json["id"] == alone


@pytest.mark.parametrize(
    "command",
    ["threads log house --at", "threads diff house", "threads undo house --to", "threads diff house x"],
)
def test_commits_are_completed_by_their_digits(worked: Shell, command: str) -> None:
    """Twelve of them, as listings show them, also of what was undone; all, to a person who typed more."""
    moves = worked.ok("threads", "moves", "house", "--json").json["moves"]
    undone, now = moves[1]["to"], moves[0]["to"]
    aside = worked.ok("threads", "log", "house", "--timeline", "aside", "--commits", "--json").json[
        "commits"
    ][0]

    for digest in (undone, now, aside["digest"]):
        assert digest[:12] in offers(worked, *command.split(), digest[:2])
        assert offers(worked, *command.split(), digest[:20]) == [digest]
    assert offers(worked, *command.split(), "") == ["aside", "main"]


def test_what_else_has_a_name_is_completed(worked: Shell) -> None:
    """Artifacts by name and digest, checkpoints, agents, and the threads of the store that is copied."""
    (artifact,) = worked.ok("artifacts", "ls", "house", "--json").json["artifacts"]
    (kept,) = worked.ok("checkpoints", "ls", "calm", "--json").json["checkpoints"]

    assert offers(worked, "artifacts", "show", "house", "") == ["drafts/plan"]
    assert offers(worked, "artifact", "get", "house", artifact["digest"][:2]) == [artifact["digest"][:12]]
    assert offers(worked, "checkpoints", "show", "calm", "c") == [kept["name"]]
    assert offers(worked, "agents", "show", "p") == ["payer"]
    assert offers(worked, "copy", str(worked.store), "x.db", "--thread", "h") == ["house"]
    assert offers(worked, "memory", "show", "--owner", "nobody", "") == []


def test_every_marked_word_has_something_to_be(subtests: pytest.Subtests) -> None:
    """A word that the scripts ask the store for is one that the answer knows: an option, or the place of a word."""
    app, options, words = build(), set[str](), list[Sequence[str]]()
    spelled = [
        *((noun, verb) for noun, known in NOUNS.items() for verb in known.verbs),
        *((name,) for name in ALONE),
    ]
    for command in spelled:
        loaded = load(app, command)
        assert loaded is not None
        marked = [
            each for each in loaded.assemble_argument_collection() if each.parameter.completer is in_store
        ]
        options |= {name for each in marked for name in each.names if name.startswith("--")}
        words += [command] * sum(each.index is not None for each in marked)

    assert options - set(completion._OPTIONS) == set()
    for command in words:
        with subtests.test(" ".join(command)):
            places = [completion._kinds([*command, *["x"] * at], has_agent=False) for at in range(3)]
            assert sum(map(bool, places)) >= min(words.count(command), 3)


@pytest.fixture
def bash(worked: Shell, tmp_path: Path) -> PtySession:
    """A bash at a terminal that has the script."""
    program, script = tmp_path / "perdure", tmp_path / "completion.bash"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m perdure "$@"\n')
    program.chmod(0o700)
    worked.ok("--install-completion", "--shell", "bash", "--output", str(script))
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    started = PtySession(
        worked.directory, "--norc", "--noprofile", "-i", program="bash", columns=200, PATH=path, PS1="$ "
    )
    started.type(f". {script}; bind 'set bell-style none'; echo rea''dy\r")
    started.wait_for("ready")
    return started


def test_a_person_at_bash_gets_what_they_began_completed(worked: Shell, bash: PtySession) -> None:
    """What listings show, words that readline cuts at : @ and =, and a blank; where nothing fits no file is offered."""
    ids = ids_of(worked)
    (run,), calls, items = ids["run"], ids["call"], ids["item"]
    head = worked.ok("threads", "moves", "house", "--json").json["moves"][0]["to"]
    typed = {
        f"runs show house {run[-8:-6]}": f"runs show house {run[-8:]}",
        f"calls show {beginning(calls[0][-8:], [each[-8:] for each in calls])}": f"calls show {calls[0][-8:]}",
        f"memory show --owner ann {beginning(items[1][-8:], [each[-8:] for each in items])}": (
            f"memory show --owner ann {items[1][-8:]}"
        ),
        f"threads log house --at {head[:6]}": f"threads log house --at {head[:12]}",
        "threads show ann@": "threads show ann@home:1",
        "threads show ann@ho": "threads show ann@home:1",
        "threads show ann@home:": "threads show ann@home:1",
        "threads log ann@home:1 --timeline m": "threads log ann@home:1 --timeline main",
        "threads log house --timeline=as": "threads log house --timeline=aside",
        "threads show two\\ w": "threads show two\\ words",
        "state get two\\ words /": "state get two\\ words /a.json",
        "runs show house pe": "runs show house pe",  # no perdure.db
    }

    with bash:
        for number, (begun, whole) in enumerate(typed.items()):
            bash.type(
                f"perdure {begun}\t\x01echo {number}: \x05.\r"
            )  # the line as it is then, told and not run
            bash.wait_for(f"{number}: perdure {whole.replace(chr(92), '')}{'' if begun == whole else ' '}.\n")


def test_the_first_commit_of_a_long_history_is_found(empty: Shell) -> None:
    """Among a thousand, by a program for SQLite that reads their digests."""
    with perdure.open(empty.store) as store:
        thread = store.thread("long", agent="helper")
        with thread.change("many", chain=True) as change:
            for number in range(900):
                change.put("/n.json", number)
        first = thread.log()[-1].digest

    found = candidates(["threads", "log", "long", "--at", first[:8]], {"PERDURE_STORE": str(empty.store)})

    assert found == [first[:12]]
