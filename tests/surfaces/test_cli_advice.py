"""What the command line says when something is not possible: in commands that can be typed, never in Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import perdure
from perdure.cli.hints import Subject, advice_for
from perdure.errors import NotFound
from tests.surfaces import paying
from tests.surfaces.shell import Shell, shop

# A name with brackets right behind it, a name with = behind it, or a name of ours with a dot in it.
PYTHON = re.compile(
    r"\w\((?!s\))[^)]*\)|\b[a-z_]+=|\b(?:perdure|testing|thread|event|errors)\.(?!adapters|transports|db|dev)\w+\b"
)

FAILING = [
    "threads show shoping",
    "threads show shopping --timeline what-of",
    "threads show shopping --at turn:99",
    "threads show shopping --at what-fi",
    "threads diff shopping main what-fi",
    "threads promote shopping what-fi",
    "threads fork shopping x --at tun:2",
    "threads fork shopping what-if",
    "threads undo shopping --turns 99",
    "threads undo shopping --turns 0",
    "threads redo shopping",
    "threads begin shopping --agent other",
    "threads context shopping",
    "threads context shopping --at HEAD",
    "threads context shopping --to nobody:model",
    "threads render shopping --to nobody:model",
    "threads render shopping --to script:x",
    "threads switch shopping --to openai:gpt-55 --dry-run",
    "threads switch shopping --to nothing",
    "threads bisect shopping --path /count.json --above 1 --good what-if",
    "threads rm bread",
    "threads undo bread",
    "threads switch bread --to openai:gpt-5.6",
    "state get shopping /todo.json",
    "state get /pref.json --agent helper",
    "state get /prefs.json --agent helpr",
    "state rm shopping /nope",
    "state blame shopping /nope",
    "state log shopping /nope",
    "runs show house nope",
    "runs resume house",
    "runs resume house --code app.py",
    "runs resume house --code tests.surfaces.paying:asker",
    "runs cancel shopping",
    "calls show house nope",
    "calls resolve house nope done",
    "calls ls house --run nope",
    "approvals show house nope",
    "approvals approve shopping c1",
    "checkpoints show shopping",
    "checkpoints derive shopping --to nobody:x",
    "agents show helpr",
    "agents export helpr",
    "agents switch helpr --to openai:gpt-5.6",
    "memory show nope --owner ann",
    "memory forget nope --owner ann",
    "memory restore nope --owner ann",
    "memory restore aisle --owner ann",
    "memory restore aisle --owner ann --at version:0",
    "memory redo --owner ann",
    "memory undo --owner nobody",
    "memory undo --owner ann --changes 99",
    "artifacts show shopping nope",
    "export shopping --format opena-chat",
    "models ls opneai",
    "chat helpr",
    "chat payer",
    "chat talker --to openai-chat:gpt-5.6",
    "chat talker --to nobody:x",
    "threads follow shopping --after x",
]


@pytest.fixture
def street(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell with a shopping list, a house that waits for an approval, and bread whose run was cut off."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    shop(empty.store)
    with perdure.open(empty.store) as store:
        store.thread("house", agent=paying.payer, owner="ann").run("Pay.", id="m1")
        store.memory("ann").add("prefers aisle seats", kind="preference", id="aisle")
    paying.cut_off(empty.store)
    return empty


def test_nobody_who_types_commands_is_told_to_write_python(street: Shell, subtests: pytest.Subtests) -> None:
    """Every one of these fails, says what was not done, and names no method, argument or class."""
    for line in FAILING:
        with subtests.test(line):
            ended = street(*line.split(), stdin=b"Hello\n")

            assert ended.code in (1, 2, 3, 4, 5, 7)
            assert not PYTHON.search(ended.err), ended.err


def test_python_in_a_message_would_be_found() -> None:
    """Control: what the library says to programs is what the pattern finds."""
    for said in ("See paths().", "Use undo(to=…).", "Name its agent= to begin one.", "a perdure.Message"):
        assert PYTHON.search(said)
    assert not PYTHON.search("run 'x' (SIGKILL), see `perdure state ls shopping --at HEAD~1` in app.py")


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("state get shopping /todo", "`perdure state ls shopping`"),
        ("state get /pref --agent helper", "`perdure state ls --agent helper`"),
        ("state get shopping /todo --store ./perdure.db", "`perdure state ls shopping`"),
        ("threads show shopping --timeline zzz", "`perdure threads show shopping`"),
        ("threads undo bread", "`perdure runs cancel bread`"),
        ("threads redo shopping", "`perdure threads undo shopping --to REF`"),
        ("threads context shopping --at HEAD", "`perdure threads context shopping`"),
    ],
)
def test_advice_names_what_it_was_about(street: Shell, words: str, typed: str) -> None:
    """What is told can be typed as it is."""
    assert typed in street(*words.split()).err


def test_advice_names_the_store_that_was_named(street: Shell) -> None:
    """A command without it would look elsewhere."""
    street.store.rename(street.directory / "other one.db")

    ended = street("state", "get", "shopping", "/todo", "--store", "other one.db")

    assert "`perdure state ls shopping --store 'other one.db'`" in ended.err


def test_a_thread_with_a_strange_name_is_quoted() -> None:
    """What is suggested is for a shell, which would obey it."""
    error = NotFound("there is nothing at /x.", code="path_not_found", path="/x")

    advice = advice_for(error, Subject(thread="a; rm -rf /"))

    assert advice == "See what there is with `perdure state ls 'a; rm -rf /'`."


def test_a_fact_with_a_strange_name_is_quoted() -> None:
    """Ids come from models and files, and a shell would obey them."""
    error = NotFound("it was undone.", code="call_undone", run="a; rm -rf /")

    assert "`perdure runs cancel THREAD 'a; rm -rf /'`" in advice_for(error)


MISTYPED = [
    ("threads show shoping", "'shopping'"),
    ("threads show Shopping", "'shopping'"),
    ("threads ls --agent helpr", "helper"),
    ("threads ls --owner an", "ann"),
    ("threads show shopping --timeline what-of", "what-if"),
    ("threads show shopping --at what-of", "'what-if'"),
    ("threads fork shopping x --at tun:2", "'turn:2'"),
    ("threads diff shopping ask-mlik-main", "'ask-milk-main'"),
    ("threads context shopping --to antropic:claude-sonnet-5-5", "'anthropic'"),
    ("threads context shopping --to anthropic:claude-sonet-5-5", "'claude-sonnet-5-5'"),
    ("threads render shopping --to anthropic:claude-sonet-5-5", "'claude-sonnet-5-5'"),
    ("threads switch shopping --to opnai:gpt-5.6", "'openai'"),
    ("checkpoints derive shopping --to opnai:gpt-5.6", "'openai'"),
    ("state get shopping /todo.json", "'/todos.json'"),
    ("state blame shopping /todo.json", "'/todos.json'"),
    ("state log shopping /todo.json", "'/todos.json'"),
    ("state rm shopping /todo.json", "'/todos.json'"),
    ("state get shopping /note/a.txt", "'/notes/a.txt'"),
    ("state ls --agent helpr", "'helper'"),
    ("runs ls shopping --timeline what-of", "what-if"),
    ("calls ls shopping --timeline what-of", "what-if"),
    ("agents show helpr", "'helper'"),
    ("agents export helpr", "'helper'"),
    ("agents switch helpr --to openai:gpt-5.6", "'helper'"),
    ("memory show aisel --owner ann", "'aisle'"),
    ("memory show aisle --owner an", "'ann'"),
    ("memory ls --owner an", "ann"),
    ("memory ls --owner ann --scope usr", "user"),
    ("memory search seats --owner an", "ann"),
    ("export shopping --format opena-chat", "'openai-chat'"),
    ("models ls opneai", "'openai'"),
    ("models show gpt5", "openai:gpt-5.6"),
    ("chat helpr", "'helper'"),
    ("thread shw shopping", "'show'"),
    ("thraeds", "'threads'"),
]


def test_a_mistyped_name_is_told_what_it_may_have_meant(street: Shell, subtests: pytest.Subtests) -> None:
    """And nothing is done by the guess."""
    before = street.ok("verify", "--json").json

    for words, meant in MISTYPED:
        with subtests.test(words):
            ended = street(*words.split())

            assert re.search(rf"Did you mean .*{re.escape(meant)}", ended.err + ended.out), ended

    assert street.ok("verify", "--json").json == before


def test_a_mistyped_store_is_told_what_it_may_have_meant_and_never_made(
    street: Shell, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by commands that go on until they are stopped."""
    (street.directory / "app_of_a_mistyped_store.py").write_text(
        'from perdure import Agent\nagent = Agent("helper", backend="openai:gpt-5.6")\n'
    )
    monkeypatch.syspath_prepend(street.directory)
    code = "--code app_of_a_mistyped_store:agent"

    for words in (
        "serve --port 0",
        f"work {code}",
        "mcp --operator",
        "keys add me --role viewer",
        "runs start a Hello",
    ):
        with subtests.test(words):
            ended = street(*words.split(), "--store", "perdur.db")

            assert (ended.code, "Did you mean --store perdure.db?" in ended.err) == (3, True), ended
            assert not (street.directory / "perdur.db").exists()


def test_a_name_that_is_close_to_nothing_is_no_reason_to_guess(
    street: Shell, subtests: pytest.Subtests
) -> None:
    """Control: there is no guess where nothing is near."""
    for words in ("threads show zzzzz", "state get shopping /zzz", "agents show zzzzz", "qqq"):
        with subtests.test(words):
            assert "Did you mean" not in street(*words.split()).err


def test_a_mistyped_checkpoint_is_told_what_it_may_have_meant(street: Shell) -> None:
    """By the name that the list shows."""
    street.ok("threads", "switch", "shopping", "--to", "openai-chat:gpt-5.6")
    (kept,) = street.ok("checkpoints", "ls", "shopping", "--json").json["checkpoints"]
    wrong = kept["name"][:-1] + ("0" if kept["name"][-1] != "0" else "1")

    ended = street("checkpoints", "show", "shopping", wrong)

    assert ended.code == 3
    assert f"Did you mean '{kept['name']}'?" in ended.err


def test_a_program_here_that_declares_the_agent_is_what_to_type(street: Shell) -> None:
    """The files of this directory are read, never run."""
    Path("app.py").write_text(
        'raise SystemExit(9)\nwith x:\n    hired = perdure.Agent("payer", tools=[])\nother = Agent("other")\n'
    )

    missing = street("runs", "resume", "house")
    file = street("runs", "resume", "house", "--code", "app.py")
    talk = street("chat", "payer")

    assert "Write --code app:hired." in missing.err
    assert "Write --code app." in file.err  # which finds it by its name
    assert "Write --code app:hired." in talk.err
    assert (missing.code, file.code, talk.code) == (2, 2, 3)


def test_a_list_of_agents_is_named_once(street: Shell) -> None:
    """It has one place in the code, however many agents are in it."""
    Path("app.py").write_text(
        'import perdure\nagents = [perdure.Agent("a"), perdure.Agent("b"), perdure.Agent("c")]\n'
    )

    missing = street("work", "--code", "app:nope", "--until-idle")
    unknown = street("work", "--code", "nope", "--until-idle")

    assert "Write --code MODULE:NAME, such as app:agents." in missing.err
    assert "Write --code MODULE:NAME, such as app:agents." in unknown.err


@pytest.mark.parametrize(
    "words", [("runs", "show"), ("runs", "wait"), ("runs", "cancel"), ("approvals", "show")]
)
def test_a_word_that_is_no_thread_and_no_run_is_not_begun(street: Shell, words: tuple[str, str]) -> None:
    """A mistyped id of a run is not the name of a thread to be begun."""
    ended = street(*words, "a8a")

    assert ended.code == 3
    assert "neither a thread nor a" in ended.err
    assert "threads begin" not in ended.err


@pytest.mark.parametrize(
    "text", ["", "def broken(", "x = 1", "\x00", 'a, b = Agent("payer"), 2', "Agent = 3"]
)
def test_a_file_that_declares_none_is_no_hint(street: Shell, text: str) -> None:
    """Control: what is no declaration is passed over, and the example is told instead."""
    Path("app.py").write_text(text)

    assert "--code app:planner." in street("runs", "resume", "house").err
