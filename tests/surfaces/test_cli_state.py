"""The commands about state: reading, writing, and whose value it is."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call
from perdure.testing import Script, say, use
from tests.surfaces.shell import Shell


def value(shell: Shell, path: str, *more: str) -> object:
    """What a path holds, by the command line."""
    return shell.ok("state", "get", "shopping", path, *more, "--json").json["value"]


def test_paths_are_listed_with_what_they_hold(shell: Shell) -> None:
    """Sorted, with form, size and digest; people see small values."""
    listed = shell.ok("state", "ls", "shopping", "--json").json

    assert [each["path"] for each in listed["paths"]] == ["/count.json", "/notes/a.txt", "/todos.json"]
    assert (listed["thread"], listed["agent"]) == ("shopping", None)
    note = listed["paths"][1]
    assert (note["form"], note["media_type"], note["size"]) == ("bytes", "text/plain", 11)
    assert '["milk","eggs","carrots"]' in shell.ok("state", "ls", "shopping").out


def test_a_prefix_a_limit_and_a_moment_narrow_the_list(shell: Shell) -> None:
    """`/notes` covers what is below it; an empty list is said in words."""
    below = shell.ok("state", "ls", "shopping", "/notes", "--json").json
    first = shell.ok("state", "ls", "shopping", "--limit", "1", "--json").json

    assert [each["path"] for each in below["paths"]] == ["/notes/a.txt"]
    assert (len(first["paths"]), first["more"]) == (1, True)
    assert shell.ok("state", "ls", "shopping", "/notes", "--at", "turn:1", "--json").json["paths"] == []
    assert (
        "There is nothing under /notes" in shell.ok("state", "ls", "shopping", "/notes", "--at", "turn:1").out
    )


def test_a_value_is_printed_for_people_and_exactly_for_programs(shell: Shell) -> None:
    """Pretty JSON, an object with the value, or the stored bytes and nothing else."""
    assert (
        shell.ok("state", "get", "shopping", "/todos.json").out == '[\n  "milk",\n  "eggs",\n  "carrots"\n]\n'
    )
    assert value(shell, "/todos.json") == ["milk", "eggs", "carrots"]
    assert shell.ok("state", "get", "shopping", "/todos.json", "--raw").out == '["milk","eggs","carrots"]'


def test_bytes_are_text_for_people_and_base64_for_programs(shell: Shell) -> None:
    """What is not text is described, and `--raw` writes it."""
    shell.ok("state", "put", "shopping", "/blob", "-", "--media-type", "image/png", stdin=b"\x89PNG\x00\xff")

    got = shell.ok("state", "get", "shopping", "/blob", "--json").json

    assert base64.b64decode(got["base64"]) == b"\x89PNG\x00\xff"
    assert "value" not in got
    assert "6 B of image/png" in shell.ok("state", "get", "shopping", "/blob").out
    assert shell.ok("state", "get", "shopping", "/notes/a.txt").out == "plain words\n"
    raw = subprocess.run(
        [
            sys.executable,
            "-c",
            "from perdure.cli import main; main(['state', 'get', 'shopping', '/blob', '--raw'])",
        ],
        cwd=shell.directory,
        capture_output=True,
        check=True,
    )
    assert raw.stdout == b"\x89PNG\x00\xff"


@pytest.mark.parametrize("text", ["null", "-5", "1.0", '"words"', '{"b":[1,{"a":true}]}', "[]"])
def test_a_value_is_given_as_json(shell: Shell, text: str) -> None:
    """Whatever JSON there is, by word, by input and by file, comes back as it was."""
    (shell.directory / "value.json").write_text(text)

    shell.ok("state", "put", "shopping", "/a", text)
    shell.ok("state", "put", "shopping", "/b", "-", stdin=text.encode())
    shell.ok("state", "put", "shopping", "/c", "--file", "value.json")

    for path in ("/a", "/b", "/c"):
        assert shell.ok("state", "get", "shopping", path, "--raw").out == text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/a", "milk"], "Text is written with quotes"),
        (["/a", '{"x":1,"x":2}'], "appears twice"),
        (["/a", "9007199254740993"], "beyond"),
        (["/a", "NaN"], "NaN"),
        (["/a"], "no value was given"),
        (["/a", "1", "--file", "value.json"], "both given"),
        (["no-slash", "1"], "must start with '/'"),
        (["/a", "-"], "not text"),
    ],
)
def test_a_value_that_cannot_be_is_refused(shell: Shell, words: list[str], told: str) -> None:
    """With 2, and nothing is written."""
    ended = shell("state", "put", "shopping", *words, stdin=b"\xff")

    assert ended.code == 2
    assert told in ended.err
    assert shell.ok("threads", "show", "shopping", "--json").json["head"]["version"] == 4


@pytest.mark.parametrize("verb", ["get", "log", "blame", "rm"])
def test_a_path_without_its_first_stroke_is_told_with_it(shell: Shell, verb: str) -> None:
    """The advice is the path as it would be taken."""
    ended = shell("state", verb, "shopping", "count.json")

    assert ended.code == 2
    assert "Write '/count.json'." in ended.err


def test_a_file_that_is_not_there_is_told(shell: Shell) -> None:
    """By its name, and without a traceback."""
    ended = shell("state", "put", "shopping", "/a", "--file", "nowhere.json")

    assert ended.code == 3
    assert "nowhere.json" in ended.err


def test_a_write_is_one_commit_with_a_reason(shell: Shell) -> None:
    """The answer tells where the timeline stands, and the sentence ends with the commit."""
    written = shell.ok("state", "put", "shopping", "/a", "1", "--reason", "by hand", "--json").json
    (sentence,) = shell.ok("state", "rm", "shopping", "/a").out.splitlines()

    commits = shell.ok("threads", "log", "shopping", "--commits", "--limit", "2", "--json").json["commits"]
    assert written["head"] == {"timeline": "main", "version": 5, "commit": commits[1]["digest"]}
    assert [commit["reason"] for commit in commits] == ["delete", "by hand"]
    assert sentence.split()[-1] == commits[0]["digest"][:12]


def test_a_write_with_an_op_id_happens_once(shell: Shell) -> None:
    """Repeating it gives the first answer; another value under the same id is a conflict."""
    first = shell.ok("state", "put", "shopping", "/a", "1", "--op-id", "w1", "--json").json

    again = shell.ok("state", "put", "shopping", "/a", "1", "--op-id", "w1", "--rebase", "--json").json
    other = shell("state", "put", "shopping", "/a", "2", "--op-id", "w1", "--json")

    assert again == first
    assert (other.code, other.error["error"]) == (4, "OpReused")


def test_a_write_goes_to_the_timeline_that_is_named(shell: Shell) -> None:
    """The others stay as they are."""
    shell.ok("state", "put", "shopping", "/a", "1", "--timeline", "what-if")

    assert value(shell, "/a", "--timeline", "what-if") == 1
    assert shell("state", "get", "shopping", "/a").code == 3


def test_a_deleted_path_is_absent_now_and_present_then(shell: Shell) -> None:
    """Deleting is a commit like any other."""
    shell.ok("state", "rm", "shopping", "/todos.json")

    assert shell("state", "get", "shopping", "/todos.json").code == 3
    assert value(shell, "/todos.json", "--at", "HEAD~1") == ["milk", "eggs", "carrots"]
    assert shell("state", "rm", "shopping", "/todos.json").code == 3


def test_the_log_of_a_path_has_every_value_it_held(shell: Shell) -> None:
    """Newest first, with its removal; commits that did not touch it are left out."""
    shell.ok("state", "rm", "shopping", "/todos.json")

    versions = shell.ok("state", "log", "shopping", "/todos.json", "--json").json["versions"]

    assert [each["turn"] for each in versions] == [3, 3, 2, 1]
    assert [each["preview"] for each in versions] == [
        None,
        '["milk","eggs","carrots"]',
        '["milk","eggs"]',
        '["milk"]',
    ]
    shown = shell.ok("state", "log", "shopping", "/todos.json", "--limit", "1").out
    assert "removed" in shown
    assert "--limit 0" in shown
    assert shell("state", "log", "shopping", "/never").code == 3


def test_the_log_of_a_path_has_no_write_that_changed_nothing(shell: Shell) -> None:
    """The same value written again is no other value."""
    for value in ("1", "2", "2", "2"):
        shell.ok("state", "put", "shopping", "/again.json", value)

    versions = shell.ok("state", "log", "shopping", "/again.json", "--json").json["versions"]

    assert [each["preview"] for each in versions] == ["2", "1"]
    assert (
        shell.ok("state", "blame", "shopping", "/again.json", "--json").json["commit"]
        == versions[0]["commit"]
    )


def test_the_log_of_a_path_reaches_over_many_commits(shell: Shell) -> None:
    """It is read in pages, to the first commit."""
    script = "import perdure\nt = perdure.open('perdure.db').thread('shopping')\n"
    script += "for n in range(230): t.put('/noise.json', n)\n"
    subprocess.run([sys.executable, "-c", script], cwd=shell.directory, check=True)

    versions = shell.ok("state", "log", "shopping", "/todos.json", "--json").json["versions"]

    assert [each["turn"] for each in versions] == [3, 2, 1]


def test_blame_names_commit_message_and_backend(shell: Shell) -> None:
    """Of the turn that wrote the value which is there now."""
    blamed = shell.ok("state", "blame", "shopping", "/count.json", "--json").json

    assert (blamed["turn"], blamed["reason"], blamed["backend"]) == (3, "add carrots", "openai:gpt-5.6")
    assert blamed["message"]["text"] == "Done, carrots is on it."
    assert "assistant: Done, carrots is on it." in shell.ok("state", "blame", "shopping", "/count.json").out
    assert shell("state", "blame", "shopping", "/never").code == 3


def test_a_place_inside_a_document_has_a_history(shell: Shell) -> None:
    """Blame, log and bisect take it; without it they are about the document, whose last writer changed another key."""
    for value in ({"jam": 1}, {"jam": 5}, {"jam": 5, "tea": 2}):
        shell.ok("state", "put", "shopping", "/prices.json", json.dumps(value), "--reason", f"{value}")
    about = ("shopping", "/prices.json", "--place", "jam", "--json")

    blamed = shell.ok("state", "blame", *about).json
    logged = shell.ok("state", "log", *about).json
    found = shell.ok(
        "threads", "bisect", "shopping", "--path", "/prices.json", "--place", "jam", "--above", "3", "--json"
    ).json

    assert (blamed["reason"], blamed["preview"], blamed["place"]) == ("{'jam': 5}", "5", ["jam"])
    assert [each["preview"] for each in logged["versions"]] == ["5", "1"]
    assert found["commit"]["digest"] == blamed["commit"] == logged["versions"][0]["commit"]
    assert shell.ok("state", "blame", "shopping", "/prices.json", "--json").json["commit"] != blamed["commit"]


@pytest.mark.parametrize("command", [["state", "blame"], ["state", "log"]])
def test_a_place_that_a_document_does_not_have_is_told(shell: Shell, command: list[str]) -> None:
    """With the key that may have been meant."""
    shell.ok("state", "put", "shopping", "/prices.json", '{"jam": 1}')

    ended = shell(*command, "shopping", "/prices.json", "--place", "/jam")

    assert ended.code == 3
    assert "Did you mean 'jam'?" in ended.err


@pytest.mark.parametrize("command", [["state", "blame"], ["state", "log"]])
def test_a_nested_place_in_another_notation_is_spelled_as_a_list(shell: Shell, command: list[str]) -> None:
    """What the advice spells is found."""
    shell.ok("state", "put", "shopping", "/prices.json", '{"jam": {"price": [1]}}')

    ended = shell(*command, "shopping", "/prices.json", "--place", "jam.price.0", "--json")

    spelled = ended.error["hint"].split("'")[1]
    assert spelled == '["jam", "price", 0]'
    shell.ok(*command, "shopping", "/prices.json", "--place", spelled)


def test_an_agents_own_map_is_read_and_written_with_agent(shell: Shell) -> None:
    """The same verbs; there is no thread then."""
    listed = shell.ok("state", "--agent", "helper", "--json").json
    assert [each["path"] for each in listed["paths"]] == ["/prefs.json"]
    assert (listed["thread"], listed["agent"]) == (None, "helper")
    assert '"market"' in shell.ok("state", "get", "/prefs.json", "--agent", "helper").out

    shell.ok("state", "put", "/prefs.json", '{"shop":"corner"}', "--agent", "helper")

    assert len(shell.ok("state", "log", "/prefs.json", "--agent", "helper", "--json").json["versions"]) == 2
    assert shell.ok("state", "blame", "/prefs.json", "--agent", "helper", "--json").json["turn"] == 2
    shell.ok("state", "rm", "/prefs.json", "--agent", "helper")
    assert shell("state", "get", "/prefs.json", "--agent", "helper").code == 3
    assert "market" in shell.ok("state", "get", "/prefs.json", "--agent", "helper", "--at", "HEAD~2").out


def test_a_mistyped_agent_begins_nothing(shell: Shell) -> None:
    """Reading and writing alike; and its map has no other timelines."""
    for words in (["ls"], ["get", "/a"], ["put", "/a", "1"], ["rm", "/a"]):
        ended = shell("state", *words, "--agent", "helpr")
        assert ended.code == 3
        assert "Did you mean 'helper'?" in ended.err

    assert shell("state", "ls", "--agent", "helper", "--timeline", "what-if").code == 2
    assert shell.ok("sql", "select count(*) from cells where name like 'agent/%'", "--json").json["rows"] == [
        [1]
    ]


def test_raw_bytes_are_not_sent_to_a_terminal_that_might_obey_them(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are for a file or a pipe; harmless text is written."""
    shell.ok("state", "put", "shopping", "/evil", "-", "--media-type", "text/plain", stdin=b"\x1b[2J")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)

    refused = shell("state", "get", "shopping", "/evil", "--raw")

    assert refused.code == 2
    assert "\x1b" not in refused.out


def test_a_path_with_odd_characters_works(shell: Shell, tmp_path: Path) -> None:
    """Quotes, spaces, wildcards and other scripts are only text."""
    path = "/a b/'%_\";--/ключ/日本"

    shell.ok("state", "put", "shopping", path, "1")

    assert value(shell, path) == 1
    assert path in [each["path"] for each in shell.ok("state", "ls", "shopping", "--json").json["paths"]]


def test_the_fork_before_what_a_merge_brought_begins_where_it_was_written(empty: Shell) -> None:
    """The turn is named with its timeline; the printed command, typed as it is, forks before it, and not on main.

    Control: a turn of main has the same number, and the command of what main wrote forks there.
    """
    agent = Agent("noter", backend=Script(*[say("Noted.")] * 9))
    with perdure.open(empty.store) as store:
        main = store.thread("house", agent=agent)
        main.run("One.")
        other = main.fork("other")
        for line, path in ((main, "/here.json"), (other, "/there.json")):
            with line.change("note", run="r") as change:
                change.say("user", f"Write {path}.")
                change.put(path, 1)
        main.merge("other", prefer="ours")

    commands = {}
    for path in ("/here.json", "/there.json"):
        shown = empty.ok("state", "blame", "house", path).out
        commands[path] = shlex.split(shown.partition("Fork before it: ")[2].splitlines()[0])[1:]
        assert ("turn     2 of other, " in shown) == (path == "/there.json")
    for name, path in (("a", "/here.json"), ("b", "/there.json")):
        empty.ok(*[name if word == "NAME" else word for word in commands[path]])

    with perdure.open(empty.store) as store:
        heads = [store.thread("house").on(name) for name in ("a", "b")]
        assert [[entry.message.text for entry in each.transcript()] for each in heads] == [
            ["One.", "Noted."]
        ] * 2
    assert commands["/here.json"][-1] == "turn:2~1"
    assert "turn:" not in commands["/there.json"][-1]


def test_an_edit_by_hand_during_a_run_is_not_said_to_be_the_models(empty: Shell) -> None:
    """Another process writes while a tool runs: blame and log name the edit; the control is what the tool wrote."""

    @perdure.tool(effect="read_only")
    def look(call: Call) -> str:
        call.put("/looked.json", 1)
        empty.ok("state", "put", "house", "/edited.json", "1")
        return "looked"

    with perdure.open(empty.store) as store:
        agent = Agent("looker", backend=Script(use("look"), say("Done.")), tools=[look])
        store.thread("house", agent=agent).run("Look around.")

    edited, looked = (empty.ok("state", "blame", "house", f"/{name}.json") for name in ("edited", "looked"))
    blamed = empty.ok("state", "blame", "house", "/edited.json", "--json").json
    logged = {name: empty.ok("state", "log", "house", f"/{name}.json").out for name in ("edited", "looked")}

    assert "during 1, 'put'" in edited.out
    assert (blamed["backend"], blamed["message"], blamed["run"]) == (None, None, None)
    assert blamed["beside_run"]
    assert "script:" not in edited.out
    assert "script:" in looked.out
    assert ("Look around." in logged["edited"], "Look around." in logged["looked"]) == (False, True)
