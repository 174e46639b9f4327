"""Imported threads are listed, shown and found by the titles that they had, with the time when they were said last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.integrations.importers import test_claude_ai
from tests.integrations.importers.test_chatgpt import conversation, saved
from tests.surfaces.shell import Shell
from tests.surfaces.test_cli_import_again import advised

SAID = "2023-11-14T22:13:20.500000Z"  # as the export has it


def trips(folder: Path, *titles: str) -> None:
    """Save an export with a conversation for each title, each of which was said a day after the one before."""
    found: list[dict[str, Any]] = [
        conversation(f"c-{number}") | {"title": title} for number, title in enumerate(titles)
    ]
    for number, each in enumerate(found):
        for node in each["mapping"].values():
            if node["message"]:
                node["message"]["create_time"] += 86_400 * number
    saved(folder, *found)


def test_a_title_is_listed_and_shown_with_the_time_when_it_was_said(empty: Shell) -> None:
    """The time of the import is another one, which JSON has too; control: a thread of this store has neither."""
    trips(empty.directory, "Trip to Oslo")
    empty.ok("import", "conversations.json")
    empty.ok("threads", "begin", "own", "--agent", "a")

    imported, own = empty.ok("threads", "ls", "--json").json["threads"]
    listed, shown = (empty.ok("threads", *words).out for words in (("ls",), ("show", "chatgpt:c-0")))

    assert (imported["title"], imported["said_at"]) == ("Trip to Oslo", SAID)
    assert imported["last_at"] > "2024"
    assert (own["title"], own["said_at"]) == (None, None)
    assert [word in listed for word in ("Trip to Oslo", "2023-11-14")] == [True, True]
    assert [word in shown for word in ("title      Trip to Oslo", "2023-11-14 22:13:20")] == [True, True]


def test_a_list_without_a_title_has_no_column_for_it(shell: Shell) -> None:
    """Control of the columns that lists have."""
    assert "title" not in shell.ok("threads", "ls").out


def test_a_thread_that_went_on_here_was_said_last_here(empty: Shell) -> None:
    """By a message or an edit; its title stays."""
    trips(empty.directory, "Trip to Oslo")
    empty.ok("import", "conversations.json")
    with perdure.open(empty.store) as store, store.thread("chatgpt:c-0").change("say") as change:
        change.say("user", "And now?")

    (row,) = empty.ok("threads", "ls", "--json").json["threads"]

    assert (row["title"], row["said_at"]) == ("Trip to Oslo", None)


def test_a_search_finds_titles_beside_messages(empty: Shell) -> None:
    """All of the words, in any case; control: a word that no title has, and one that only a message has."""
    trips(empty.directory, "Trip to Oslo", "Hats")
    empty.ok("import", "conversations.json")

    def titles(*words: str) -> list[str]:
        return [each["title"] for each in empty.ok("threads", "search", *words, "--json").json["titles"]]

    assert (titles("OSLO", "trip"), titles("trip", "hats"), titles("rains")) == (["Trip to Oslo"], [], [])
    assert titles("trip", "--thread", "chatgpt:c-0") == ["Trip to Oslo"]
    assert titles("trip", "--thread", "chatgpt:c-1") == []
    assert "Trip to Oslo" in empty.ok("threads", "search", "trip").out


def test_the_newest_first_are_those_that_were_said_last(empty: Shell) -> None:
    """Imported together, they would be in any order by the time of the import."""
    trips(empty.directory, "One", "Two", "Three")
    empty.ok("import", "conversations.json")
    empty.ok("threads", "begin", "own", "--agent", "a")

    listed = empty.ok("threads", "ls", "--newest", "--json").json["threads"]

    assert [each["title"] for each in listed] == [None, "Three", "Two", "One"]


def test_a_title_of_several_formats_and_of_a_session_that_was_renamed(empty: Shell) -> None:
    """The newest import decides."""
    test_claude_ai.saved(empty.directory, test_claude_ai.conversation())
    line = '{"type":"user","uuid":"u1","sessionId":"s1","message":{"role":"user","content":"Hi"}}\n'
    (empty.directory / "s1.jsonl").write_text(line)
    empty.ok("import", "conversations.json", "s1.jsonl")
    before = {each["id"]: each["title"] for each in empty.ok("threads", "ls", "--json").json["threads"]}

    (empty.directory / "s1.jsonl").write_text(line + '{"type":"summary","summary":"Hours","leafUuid":"u1"}\n')
    empty.ok("import", "s1.jsonl")
    after = {each["id"]: each["title"] for each in empty.ok("threads", "ls", "--json").json["threads"]}

    assert before == {"claude-ai:c-1": "Weather", "claude-code:s1": None}
    assert after == {"claude-ai:c-1": "Weather", "claude-code:s1": "Hours"}


@pytest.mark.parametrize(
    ("title", "shown"),
    [("\x1b[2J\x07Hi", "\\x1b[2J\\x07Hi"), ("a\nb", "a↵b"), ("x" * 5_000, "x" * 199 + "…"), (" ", None), (5, None)],
)  # fmt: skip
def test_an_odd_title_is_shown_safely(empty: Shell, title: object, shown: str | None) -> None:
    """What a terminal would obey is spelled, and a long one is cut; the whole is in the state."""
    saved(empty.directory, conversation("c-0") | {"title": title})
    empty.ok("import", "conversations.json")

    (row,) = empty.ok("threads", "ls", "--json").json["threads"]

    assert row["title"] == shown
    assert "\x1b" not in empty.ok("threads", "ls").out + empty.ok("threads", "search", "hi").out
    kept = empty.ok("state", "get", "chatgpt:c-0", "/import/session", "--json").json["value"]["facts"]
    assert kept.get("title") == title


def test_a_title_stays_when_another_line_is_made_main(empty: Shell) -> None:
    """The description is on that line, too."""
    trips(empty.directory, "Trip to Oslo")
    empty.ok("import", "conversations.json")
    moved = json.loads((empty.directory / "conversations.json").read_text())
    moved[0]["current_node"] = "u2"
    (empty.directory / "conversations.json").write_text(json.dumps(moved))

    empty.ok(*advised(empty.ok("import", "conversations.json"), "Make it main"))

    (row,) = empty.ok("threads", "ls", "--json").json["threads"]
    assert (row["title"], row["said_at"]) == ("Trip to Oslo", SAID)
