"""What the command line advises can be typed: each command and option exists, and names the store that was used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

import perdure
from perdure import Agent
from perdure.cli.app import build, load
from perdure.cli.command_list import ALONE, NOUNS, SPELLINGS
from tests.surfaces import paying
from tests.surfaces.shell import Shell, commands, shop
from tests.surfaces.test_cli_advice import FAILING

STORE = "other one.db"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
SPELLED = re.compile(r"`perdure ([^`]+)`|(?:^|: | {2})perdure ((?:[a-z]+ )+[^\n]*)", re.MULTILINE)
QUOTED = re.compile(r"`[^`]*`")

TELLING = [
    *(
        f"{name} {' '.join(words)}"
        for name, words in commands().items()
        if name not in ("export", "agents apply")
    ),
    "threads begin fresh --agent helper",
    "approvals ls",
    "approvals show house id",
    "memory ls",
    "sql",
    "doctor",
    "checkpoints ls house",
    *FAILING,
    "gc --apply",
    "runs resume house --code tests.surfaces.test_cli_advised_commands:bare",
    "runs resume house --code tests.surfaces.nowhere",
]

bare = Agent("payer", tools=[paying.pay])  # the payer of `paying`, without the backend that its thread is on


@pytest.fixture
def elsewhere(empty: Shell) -> Shell:
    """A shell whose store has another name than the one that is found without being named."""
    place = empty.directory / STORE
    shop(place)
    with perdure.open(place) as store:
        store.thread("house", agent=paying.payer, owner="ann").run("Pay.", id="m1")
        store.memory("ann").add("prefers aisle seats", kind="preference", id="aisle")
    paying.cut_off(place)
    return empty


@cache
def options_of(*words: str) -> frozenset[str]:
    """The options of a command; fails if there is none of that name."""
    found = load(build(), words)
    assert found is not None, words
    return frozenset(name for each in found.assemble_argument_collection() for name in each.names)


def command_in(text: str) -> tuple[str, ...]:
    """The words of a command that name it."""
    first, *rest = text.split()
    if first in ALONE:
        return (first,)
    first = SPELLINGS[first]
    return (first, rest[0] if rest and rest[0] in NOUNS[first].verbs else "ls")


def advised(text: str) -> Iterator[str]:
    """Every command that a text advises, without the name of the program."""
    for quoted, plain in SPELLED.findall(text):
        yield quoted or plain


def assert_can_be_typed(text: str) -> None:
    """Fail unless every command that a text advises exists, with its options."""
    for each in advised(text):
        known = options_of(*command_in(each))
        assert set(OPTION.findall(each)) <= known, each


def test_every_option_that_a_help_text_names_is_one_of_the_command() -> None:
    """A help text that names an option of another command would send people astray."""
    every = [(noun, verb) for noun, each in NOUNS.items() for verb in each.verbs] + [
        (name,) for name in ALONE
    ]
    for words in every:
        found = load(build(), words)
        assert found is not None

        named = set(OPTION.findall(QUOTED.sub("", found.help)))

        assert named <= options_of(*words), words


def test_what_is_advised_names_the_store_and_can_be_typed(
    elsewhere: Shell, subtests: pytest.Subtests
) -> None:
    """Whatever a command prints: its store is named in every command that it advises."""
    seen = 0
    for line in TELLING:
        with subtests.test(line):
            ended = elsewhere(*line.split(), "--store", STORE, stdin=b"")

            for each in advised(ended.out + ended.err):
                seen += 1
                assert f"--store '{STORE}'" in each, each
                assert set(OPTION.findall(each)) <= options_of(*command_in(each)), each
            bare = set(OPTION.findall(QUOTED.sub("", ended.err)))
            assert bare - {"--help"} <= options_of(*command_in(line)), ended.err
    assert seen > len(TELLING) // 4  # the control: there is advice to look at


def test_a_store_that_is_found_without_is_not_named(shell: Shell) -> None:
    """Control: what is the default needs no words."""
    assert "--store" not in shell.ok("threads", "begin", "fresh", "--agent", "helper").out


def test_an_agent_that_lives_in_another_store_is_talked_to_there(empty: Shell) -> None:
    """`agents apply` keeps it where its file says, and advises the command that finds it there."""
    home = empty.directory / "agents"
    home.mkdir()
    perdure.open(home / "home.db").close()
    (home / "agent.yaml").write_text(
        "apiVersion: perdure.dev/v1alpha1\nkind: Agent\nmetadata: {name: keeper}\n"
        "spec: {backend: 'openai-chat:gpt-5.6', object_storage: home.db}\n"
    )

    told = empty.ok("agents", "apply", "-f", "agents/agent.yaml").out

    assert "Talk to it: perdure chat keeper --store agents/home.db" in told
