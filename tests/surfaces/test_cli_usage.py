"""How commands are spelled, what is said if they are not, and what never happens."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import perdure
from perdure import errors
from perdure.cli.app import build, load
from perdure.cli.command_list import ALONE, NOUNS
from perdure.cli.completion import FLAGS, in_store
from perdure.cli.errors import code_of
from perdure.engines.sqlite import SqliteEngine
from perdure.model.digest import Digest
from perdure.model.head import Head
from tests.surfaces.shell import PROTOCOLS, WITHOUT_STORE, Shell, commands

COMMANDS = [
    *(f"{name} {verb}" for name, noun in NOUNS.items() for verb in noun.verbs),
    *ALONE,
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does(command: str) -> None:
    """Its help starts with an imperative, without a full stop, and is the line that lists show."""
    words = command.split()
    listed = ALONE[words[0]].line if len(words) == 1 else NOUNS[words[0]].verbs[words[1]]

    loaded = load(build(), words)

    assert loaded is not None
    line = loaded.help.split("\n\n")[0]
    assert line == listed
    assert line[0].isupper()
    assert not line.endswith(".")
    assert not line.split()[0].endswith(("s", "ing"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_page(empty: Shell, command: str) -> None:
    """`--help` prints the line, the usage and the options that are everywhere."""
    ended = empty.ok(*command.split(), "--help")

    assert "Usage: perdure " + command in ended.out
    assert "--store" in ended.out
    assert "--json" in ended.out


def test_every_command_is_tried_by_these_tests() -> None:
    """The list that the tests below go through leaves none out."""
    assert {*commands(), *WITHOUT_STORE} == {*COMMANDS}


@pytest.mark.parametrize("command", commands())
def test_no_command_makes_a_store_by_itself(empty: Shell, command: str) -> None:
    """Only `init`, `import` and `demo` make one: a mistyped path is reported and creates nothing."""
    ended = empty(*command.split(), *commands()[command])

    assert ended.code == 3
    assert "there is no store at" in ended.err + ended.out
    assert "`perdure init`" in ended.err + ended.out
    assert list(empty.directory.iterdir()) == []


@pytest.mark.parametrize("command", commands())
def test_every_answer_can_be_json(shell: Shell, command: str) -> None:
    """With `--json` a command prints one object and nothing else, or one error."""
    ended = shell(*command.split(), *commands()[command], "--json")

    if command in ("threads follow", "work", *PROTOCOLS):
        assert all(isinstance(json.loads(line), dict) for line in ended.out.splitlines())
    elif ended.code in (0, 6):
        assert isinstance(json.loads(ended.out), dict)
        assert ended.err == ""
    else:
        assert ended.out == ""
        assert set(ended.error) >= {"error", "message"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no-such-command"], "'perdure' has no command 'no-such-command'"),
        (["threads", "fok", "x"], "Did you mean 'fork'?"),
        (["threads", "ls", "--wrong"], "has no option --wrong"),
        (["threads", "ls", "--agnet", "helper"], "Did you mean '--agent'?"),
        (["threads", "switch", "shopping", "--too", "openai:gpt-5.6"], "You wrote --too: did you mean --to?"),
        (["threads", "switch", "shopping", "--to"], "--to needs a value"),
        (["threads", "fork", "shopping"], "'perdure threads fork' needs NAME"),
        (["approvals", "approve", "shopping"], "Try: perdure approvals ls shopping"),
        (["calls", "resolve"], "Try: perdure calls resolve --help"),
        (["threads", "ls", "extra"], "'extra'"),
        (["threads", "log", "shopping", "--limit", "many"], "many"),
        (["state", "get", "shopping"], "Usage: 'perdure state get' needs PATH"),
        (["state", "put", "shopping"], "Usage: 'perdure state put' needs PATH"),
        (["state", "ls"], "needs THREAD"),
        (["runs", "resume", "shopping"], "this needs --code: what the tools of agent 'helper' do"),
        (["threads", "list"], "Did you mean 'ls'?"),
        (["calls", "settle", "shopping"], "Did you mean 'resolve'?"),
        (["thread", "delete", "shopping"], "Did you mean 'rm'?"),
        (["state", "set", "shopping", "/x", "1"], "Did you mean 'put'?"),
        (["undo", "shopping"], "Did you mean 'perdure threads undo' or 'perdure memory undo'?"),
        (
            ["log", "shopping"],
            "Did you mean 'perdure threads log' or 'perdure state log' or 'perdure memory log'?",
        ),
        (["calls", "resolve", "shopping", "c1", "perhaps"], "perhaps"),
        (["approvals", "edit", "shopping", "c1"], "--value"),
        (["threads", "follow", "shopping", "--after", "x"], "not a cursor"),
        (["state", "get", "shopping", "/x", "--agent", "helper"], "one word too many"),
        (["threads", "undo", "shopping", "--turns", "1", "--to", "HEAD~1"], "Give one of them"),
    ],
)
def test_a_misspelled_command_is_a_usage_error(shell: Shell, words: list[str], told: str) -> None:
    """It ends with 2 and says what was not understood and that nothing was done."""
    ended = shell(*words)

    assert ended.code == 2
    assert ended.out == ""
    assert told in ended.err
    assert "nothing was" in ended.err


def test_a_bare_noun_lists_and_the_singular_is_accepted(shell: Shell) -> None:
    """`threads`, `thread` and `threads ls` are one command."""
    listed = shell.ok("threads", "ls", "--json").json

    assert shell.ok("threads", "--json").json == listed
    assert shell.ok("thread", "--json").json == listed
    assert shell.ok("thread", "ls", "--json").json == listed


@pytest.mark.parametrize("noun", ["state", "artifacts", "checkpoint"])
def test_a_bare_noun_whose_list_needs_a_thread_shows_its_commands(empty: Shell, noun: str) -> None:
    """Programs, which ask for JSON, are told what is missing."""
    assert empty.ok(noun).out == empty.ok(noun, "--help").out
    assert "ls" in empty.ok(noun).out
    assert empty.ok(noun, "--store", "other.db").out == empty.ok(noun).out
    assert "needs THREAD" in empty(noun, "--json").error["message"]
    assert empty(noun, "--store", "other.db", "--json").code == 2


def test_help_may_be_asked_for_in_either_way(empty: Shell) -> None:
    """`perdure help threads log` is `perdure threads log --help`."""
    assert empty.ok("help").out == empty.ok("--help").out
    assert empty.ok("help", "threads", "log").out == empty.ok("threads", "log", "--help").out


def test_a_store_that_lies_here_under_another_name_is_told(shell: Shell) -> None:
    """It is a question: nothing is opened by it.  A file that is no store is not asked about."""
    shell.store.rename(shell.directory / "agents.db")
    (shell.directory / "notes.db").write_text("no store")

    ended = shell("threads")

    assert ended.code == 3
    assert "Did you mean --store agents.db?" in ended.err
    assert "notes.db" not in ended.err


def test_options_may_stand_before_the_command(shell: Shell) -> None:
    """`--store` and `--json` mean the same on either side."""
    after = shell.ok("threads", "show", "shopping", "--store", "perdure.db", "--json")

    before = shell.ok("--store", "perdure.db", "--json", "threads", "show", "shopping")

    assert before.json == after.json


def test_the_store_comes_from_the_option_before_the_environment(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--store` is asked first, then $PERDURE_STORE, then ./perdure.db."""
    monkeypatch.setenv("PERDURE_STORE", "elsewhere.db")

    assert shell("threads").code == 3
    assert shell("threads", "--store", "perdure.db").code == 0


def test_an_error_is_json_where_json_was_asked_for(shell: Shell) -> None:
    """On the error stream, with the error's own name; usage errors too."""
    missing = shell("threads", "show", "shoping", "--json")
    misspelled = shell("threads", "nonsense", "--json")

    assert (missing.code, missing.out, missing.error["error"]) == (3, "", "NotFound")
    assert missing.error["code"] == "thread_not_found"
    assert missing.error["facts"] == {"thread": "shoping", "near": ["shopping"]}
    assert "Did you mean 'shopping'?" in missing.error["message"]
    begin = "perdure threads begin shoping --agent NAME"
    assert missing.error["hint"] == f"Begin one with `{begin}`, or see `perdure threads ls`."
    assert (misspelled.code, misspelled.error["error"]) == (2, "Usage")


HEAD = Head("main", 1, None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Invalid("x"), 2),
        (errors.NotFound("x"), 3),
        (errors.Forgotten("x", "y"), 3),
        (errors.Conflict("x"), 4),
        (errors.StaleHead(HEAD, HEAD), 4),
        (errors.Busy("x", "y"), 4),
        (errors.Decided("x"), 4),
        (errors.Sealed("x"), 4),
        (errors.MergeConflict([]), 4),
        (errors.WrongStore("a", "b", "c"), 4),
        (errors.Held("a", "b"), 5),
        (errors.ServerChanged("a:b", recorded=None, resolved=None), 5),
        (errors.Moved("x", 1, 2), 4),
        (errors.OpReused("x"), 4),
        (errors.Refused("x"), 5),
        (errors.Corrupt("x"), 6),
        (errors.Unavailable("x"), 7),
        (errors.InDoubt("x", "y"), 7),
        (errors.Unsupported("x"), 1),
        (errors.NotDone("x"), 1),
        (errors.RunFailed("x"), 1),
        (ValueError("x"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    """Scripts tell what happened by the code alone."""
    assert code_of(error) == code


def test_every_error_of_the_library_is_in_that_list() -> None:
    """A new error does not go without a code by oversight."""
    parameters = test_every_error_has_its_exit_code.pytestmark[0].args[1]  # pyright: ignore[reportFunctionMemberAccess]
    tried = {type(error).__name__ for error, _ in parameters}

    assert {*errors.__all__} - {"PerdureError", "PerdureWarning", "PathConflict"} == tried - {"ValueError"}


def test_what_nobody_foresaw_is_no_traceback(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one message that asks for a report; PERDURE_DEBUG shows where it happened."""
    monkeypatch.setattr("perdure.cli.commands.threads.ls.reading", lambda _: 1 / 0)

    quiet = shell("threads")
    monkeypatch.setenv("PERDURE_DEBUG", "1")
    loud = shell("threads")

    assert quiet.code == loud.code == 1
    assert "Traceback" not in quiet.err
    assert "ZeroDivisionError" in quiet.err
    assert "PERDURE_DEBUG=1" in quiet.err
    assert "Traceback" in loud.err


def test_the_version_is_told(empty: Shell) -> None:
    """`perdure --version` names the program and its version."""
    ended = empty.ok("--version")

    assert ended.out.split()[0] == "perdure"
    assert ended.out.split()[1][0].isdigit()


def test_without_words_the_commands_are_listed(empty: Shell) -> None:
    """All of them, each with its line."""
    ended = empty.ok()

    assert all(name in ended.out for name in (*NOUNS, *ALONE))


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    """`perdure … | head -1` ends without a complaint."""
    query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 2000) SELECT hex(zeroblob(40)) FROM n"
    script = f"from perdure.cli import main; main(['sql', '{query}', '--limit', '0'])"

    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=shell.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()

    assert complaint == b""
    assert process.returncode in (0, 141)


def test_no_command_is_loaded_before_it_is_used() -> None:
    """Listing the commands imports none of their files, no driver and nothing of a vendor."""
    script = (
        "import sys\nfrom perdure.cli import main\n"
        "try:\n    main(['threads', '--help'])\nexcept SystemExit:\n    pass\n"
        "print('loaded:', *sys.modules)"
    )
    environment = os.environ | {"COLUMNS": "80"}

    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )

    loaded = set(ended.stdout.rpartition("loaded:")[2].split())
    assert "perdure.cli.command_list" in loaded
    loaded_commands = (
        "perdure.cli.commands.threads.",
        "perdure.cli.commands.runs.",
        "perdure.runtime.",
        "perdure.ledger.",
    )
    assert not [name for name in loaded if name.startswith(loaded_commands)]
    assert loaded.isdisjoint({"apsw", "perdure.store.store", "mcp", "openai", "anthropic"})


def test_completion_is_installed_where_the_shell_looks(
    made: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--install-completion` writes a script that knows nouns, verbs and options, and asks for ids of the store."""
    monkeypatch.setenv("HOME", str(tmp_path))
    script, program = tmp_path / "completion.bash", tmp_path / "perdure"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m perdure "$@"\n')
    program.chmod(0o700)

    made.ok("--install-completion", "--shell", "bash", "--output", str(script))

    assert not (tmp_path / ".bashrc").exists()
    written = script.read_text()
    words = ("threads", "bisect", "--timeline", "doctor", "approvals", "reconcile", "--code")
    assert all(word in written for word in words)
    typed = f'. {script}; COMP_WORDS=({program} threads show ho); COMP_CWORD=3; _perdure; echo "${{COMPREPLY[@]}}"'
    shown = subprocess.run(["bash", "-c", typed], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == "house\n"
    assert (
        "\ncomplete -o bashdefault -o default -F _perdure perdure" in written
    )  # elsewhere files are offered
    noun = typed.replace("threads show ho", "th").replace("CWORD=3", "CWORD=1")
    shown = subprocess.run(["bash", "-c", noun], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == "threads\n"


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("threads show ho", "thread"),
        ("state get --json ", "thread"),
        ("export ", "thread"),
        ("runs show house ", "run"),
        ("run cancel {begun}", "whole run"),
        ("calls ls --run ", "run"),
        ("calls ls house --run ", "run"),
        ("calls show house ", "call"),
        ("approvals approve house ", "asked"),
        ("approval deny {asked}", "asked"),
        ("threads diff house ", "timeline"),
        ("threads log house --limit 3 --timeline m", "timeline"),
        ("memory ls --owner ", "owner"),
        ("state get house --at m", "timeline"),
        ("threads bisect house --good ", "timeline"),
        ("threads ls --owner a", "owner"),
        ("threads undo house --to ", "timeline"),
        ("threads cherry-pick house ", "timeline"),
        ("threads replay house --since ", "timeline"),
        ("threads search x --thread ", "thread"),
        ("threads ls --agent ", "agent"),
        ("agents show ", "agent"),
        ("chat ", "agent"),
        ("threads fork house ", None),
        ("threads show --at ", None),
        ("doctor ", None),
    ],
)
def test_ids_of_the_store_are_completed(made: Shell, typed: str, kind: str | None) -> None:
    """An id is offered where the word that is typed can be one, and nothing where it cannot."""
    (run,) = made.ok("runs", "--json").json["runs"]
    calls = [each["id"] for each in made.ok("calls", "ls", "house", "--json").json["calls"]]
    (asked,) = made.ok("approvals", "--json").json["approvals"]
    ids = {
        "thread": ["house"], "run": [run["id"][-8:]], "call": [id[-8:] for id in sorted(calls, reverse=True)],
        "asked": [asked["call"][-8:]], "whole run": [run["id"]], "timeline": ["main"], "owner": ["ann"],
        "agent": ["payer"], None: [],
    }  # fmt: skip
    typed = typed.format(begun=run["id"][:14], asked=asked["call"][-8:-2])

    found = made.ok("__complete", *typed.split(" ")).out.splitlines()

    assert found == ["\x1fbegin", *ids[kind]]


@pytest.fixture
def stocked(made: Shell) -> Shell:
    """The same shell; the thread has a state with an older moment and a fork, and an agent has a map."""
    with perdure.open(made.store) as store:
        thread = store.thread("house")
        thread.put("/plan.json", 1)
        thread.put("/paint/blue.json", 2)
        thread.put("/paint/red one.json", 3)
        thread.fork("b").put("/roof.json", 4)
        store.agent("cashier").put("/till.json", 5)
    return made


PATHS = ["/paint/blue.json", "/paint/red one.json", "/plan.json"]


@pytest.mark.parametrize(
    ("typed", "paths"),
    [
        ("state get house ", PATHS),
        ("state get house /p", PATHS),
        ("state blame --json house /paint/b", PATHS[:1]),
        ("state log house /plan", PATHS[2:]),
        ("state put house /paint", PATHS[:2]),
        ("state rm house /x", []),
        ("state ls house /paint/", PATHS[:2]),
        ("state ls --timeline b house /r", ["/roof.json"]),
        ("state get house --at HEAD~1 /paint", PATHS[:1]),
        ("state get --agent cashier ", ["/till.json"]),
        ("state get --agent nobody ", []),
        ("state get nowhere ", []),
        ("state get house /plan.json ", []),
        ("state get house paint", []),
        ("threads diff house HEAD~1 --prefix /paint/r", PATHS[1:2]),
        ("threads bisect house --path /pl", PATHS[2:]),
        ("threads merge house b --ours --path /pl", PATHS[2:]),
        ("threads show house ", []),
    ],
)
def test_paths_of_a_state_are_completed(stocked: Shell, typed: str, paths: list[str]) -> None:
    """Where a path can stand: of that thread or agent, timeline and moment, and only those that begin so."""
    found = stocked.ok("__complete", *typed.split(" ")).out.splitlines()

    assert found == ["\x1fbegin", *paths]


def test_a_shell_completes_a_path(stocked: Shell, tmp_path: Path) -> None:
    """Bash puts it into the line, with its blank quoted; the scripts of zsh and fish ask in the same way."""
    program = tmp_path / "perdure"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m perdure "$@"\n')
    program.chmod(0o700)
    scripts = {shell: tmp_path / f"completion.{shell}" for shell in ("bash", "zsh", "fish")}
    for shell, script in scripts.items():
        stocked.ok("--install-completion", "--shell", shell, "--output", str(script))
    words = f"COMP_WORDS=({program} state get house /paint/r); COMP_CWORD=4"

    shown = subprocess.run(
        ["bash", "-c", f'. {scripts["bash"]}; {words}; _perdure; echo "${{COMPREPLY[@]}}"'],
        cwd=stocked.directory, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert shown.stdout == "/paint/red\\ one.json\n"
    assert "'2:The path, such as /todos.json:_cyclopts_perdure_complete'" in scripts["zsh"].read_text()
    assert "__fish_perdure_complete" in scripts["fish"].read_text()


def test_completing_a_path_reads_the_part_of_the_tree_that_has_it(
    stocked: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twenty thousand paths a few nodes are read; the control completes all, of which the first are offered."""
    with perdure.open(stocked.store) as store, store.thread("house").change("many") as change:
        for number in range(20_000):
            change.put(f"/many/{number:05}.json", number)
    read: list[int] = []
    objects = SqliteEngine.objects

    def counted(engine: SqliteEngine, space: str, digests: Sequence[Digest]) -> object:
        read.append(len(digests))
        return objects(engine, space, digests)

    monkeypatch.setattr(SqliteEngine, "objects", counted)

    found = stocked.ok("__complete", "state", "get", "house", "/many/1234").out.splitlines()
    few = sum(read)
    whole = stocked.ok("__complete", "state", "get", "house", "/many/").out.splitlines()

    assert found == ["\x1fbegin", *(f"/many/1234{number}.json" for number in range(10))]
    assert 0 < few < 20
    assert len(whole) == 201
    with perdure.open(stocked.store, read_only=True) as store:
        read.clear()
        assert sum(each.startswith("/many/1234") for each in store.thread("house").paths()) == 10
    assert sum(read) > 100


def test_a_completion_changes_nothing_and_never_fails(made: Shell) -> None:
    """A file that is no store, and none at all, offer nothing; a store is the same file afterwards."""
    (made.directory / "notes.db").write_text("no store")
    before = made.store.read_bytes()

    for store in ("notes.db", "missing.db", "postgresql://nowhere/x"):
        assert made.ok("__complete", "--store", store, "threads", "show", "").out == "\x1fbegin\n"
        assert made.ok("__complete", "--store", store, "state", "get", "house", "").out == "\x1fbegin\n"
    made.ok("__complete", "threads", "show", "")
    made.ok("__complete", "state", "get", "house", "")

    assert made.store.read_bytes() == before
    assert not (made.directory / "missing.db").exists()


def test_a_completion_loads_no_parser_and_no_engine(made: Shell) -> None:
    """A person waits for it, so it loads neither the libraries that parse words nor anything of the store."""
    script = (
        "import sys\nfrom perdure.cli import main\n"
        "try:\n    main(['__complete', 'threads', 'show', ''])\nexcept SystemExit:\n    pass\n"
        "print('loaded:', *sys.modules)"
    )

    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=made.directory, capture_output=True, text=True, check=True
    )

    offered, _, loaded = ended.stdout.rpartition("loaded:")
    assert "house" in offered
    assert set(loaded.split()).isdisjoint(
        {"cyclopts", "rich", "msgspec", "apsw", "typing", "perdure.store.store"}
    )


def test_completion_knows_which_options_take_no_value() -> None:
    """It reads words without the signatures, so what it knows of them is compared with them here."""
    app = build()
    spelled = [(noun, verb) for noun, known in NOUNS.items() for verb in known.verbs]
    loaded = [load(app, words) for words in (*spelled, *((name,) for name in ALONE))]
    options = [each for command in loaded if command for each in command.assemble_argument_collection()]

    assert {name for each in options if each.hint is bool for name in each.names} == FLAGS


@pytest.mark.parametrize("words", [("memory", "ls"), ("state", "get"), ("threads", "bisect")])
def test_the_scripts_ask_the_store_for_owners_and_moments(words: tuple[str, str]) -> None:
    """An option that is not marked would be offered the files of the directory."""
    command = load(build(), words)
    assert command is not None
    marked = {
        name
        for each in command.assemble_argument_collection()
        if each.parameter.completer is in_store
        for name in each.names
    }

    assert marked & {"--owner", "--at"}


def test_names_of_groups_are_known() -> None:
    """Every command that stands alone is in a group that the first page shows."""
    assert {alone.group for alone in ALONE.values()} == {"Start", "Work", "Care"}


@pytest.mark.parametrize("words", ["threads ls", "calls ls shopping", "approvals ls", "threads log shopping"])
def test_a_limit_below_zero_is_refused(shell: Shell, words: str) -> None:
    """An empty list would say that nothing is there."""
    ended = shell(*words.split(), "--limit", "-3")

    assert (ended.code, ended.out) == (2, "")
    assert "--limit" in ended.err


def test_every_usage_line_names_its_arguments(subtests: pytest.Subtests) -> None:
    """None of them says ARGS, and each that the signature needs is there without brackets."""
    for words in (name.split() for name in commands()):
        with subtests.test(" ".join(words)):
            command = load(build(words[0]), words)

            assert command is not None
            usage = command.usage or ""
            assert usage.startswith(f"Usage: perdure {' '.join(words)} ")
            assert not re.search(r"ARGS|\*", usage)
            needed = [
                each.name for each in command.assemble_argument_collection() if each.required and each.show
            ]
            assert [name for name in needed if name not in usage.split()] == []


def test_a_noun_is_suggested_by_one_of_its_spellings(tmp_path: Path) -> None:
    """`threads` and `thread` are the same thing to say."""
    ended = subprocess.run(
        [sys.executable, "-m", "perdure", "thraeds"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Did you mean 'threads'?" in ended.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("version", "'perdure --version'"),
        ("metrics", "/metrics"),
        ("threads log shopping -n 3", "'--limit'"),
        ("threads fork shopping fix --before turn:2", "'--at turn:n~1'"),
        ("memory update item words --owner ann", "'edit'"),
        ("threads fork shopping fix --at turn:171", ""),
    ],
)
def test_a_word_of_another_program_leads_to_ours(shell: Shell, words: str, meant: str) -> None:
    """And a moment that the thread cannot have is never suggested."""
    ended = shell(*words.split())

    assert ended.code in (2, 3)
    assert meant in ended.err
    assert "verify" not in ended.err
    assert "version:171" not in ended.err
