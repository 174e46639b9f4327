"""`perdure import` of a source that has changed since: what it reports, and the commands that it names."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import Invalid
from tests.integrations.importers.test_chatgpt import conversation, node, saved
from tests.integrations.importers.test_openai_agents import database
from tests.surfaces.shell import Ended, Shell


def advised(ended: Ended, label: str) -> list[str]:
    """The words of the command that follows a label, without the name of the program."""
    found = re.search(rf"{re.escape(label)}: perdure (.*(?:\\\n.*)*)", ended.out)
    assert found is not None, ended.out
    return shlex.split(found[1].replace("\\\n", " "))


def export(folder: Path, words: str) -> str:
    """Save an export of two conversations, the second of which says `words`."""
    other = conversation("c-2")
    other["mapping"]["a1"]["message"]["content"]["parts"] = [words]
    return saved(folder, conversation("c-1"), other).name


def archive(folder: Path, words: str) -> str:
    """Save the same export as an archive."""
    with zipfile.ZipFile(folder / "export.zip", "w") as opened:
        opened.write(folder / export(folder, words), "conversations.json")
    return "export.zip"


def with_sub_agent(folder: Path, words: str) -> str:
    """Save a session of Claude Code whose sub-agent is in its file."""
    said: list[dict[str, Any]] = [
        {"uuid": "u1", "parentUuid": None, "message": {"role": "user", "content": words}},
        {
            "uuid": "u2",
            "parentUuid": None,
            "isSidechain": True,
            "agentId": "a1",
            "message": {"role": "user", "content": "Look."},
        },
    ]
    lines = [json.dumps({"type": "user", "sessionId": "s1", **each}) for each in said]
    (folder / "s1.jsonl").write_text("\n".join(lines) + "\n")
    return "s1.jsonl"


def table(folder: Path, words: str) -> str:
    """Save a database with two sessions, the first message of one of which says `words`."""
    (folder / "agents.db").unlink(missing_ok=True)
    said = [{"role": "user", "content": text} for text in (words, "More?", "Other")]
    file = database(folder, said)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE agent_messages SET session_id = 's2' WHERE id = 3")
    connection.close()
    return file.name


@pytest.mark.parametrize("written", [export, archive, with_sub_agent, table])
def test_the_command_that_is_advised_after_an_edit_has_the_edited_session_too(
    empty: Shell, written: Callable[[Path, str], str]
) -> None:
    """Also where the source has several sessions; the thread that was there stays as it is."""
    file = written(empty.directory, "Rain?")
    empty.ok("import", file)
    written(empty.directory, "Edited?")

    ended = empty("import", file)
    other = empty.ok(*advised(ended, "Have the edited one too"), "--json").json

    (added,) = other["sessions"]
    assert (ended.code, added["thread"]) == (4, "NAME")
    logs = {each: empty.ok("threads", "log", each).out for each in ("NAME", _edited(ended))}
    assert {each: ("Edited?" in log, "Rain?" in log) for each, log in logs.items()} == {
        "NAME": (True, False),
        _edited(ended): (False, True),
    }


def _edited(ended: Ended) -> str:
    """The thread whose session was edited."""
    found = re.search(r"than when (\S+) was imported", " ".join(ended.out.split()))
    assert found is not None
    return found[1]


def test_one_session_of_a_source_is_imported_alone(empty: Shell) -> None:
    """By its id, or by the end that a terminal shows; an id that none has, and a second source, are refused."""
    long = "68e0aaaa-0000-4000-8000-00000000c0de"
    file = saved(empty.directory, conversation("c-1"), conversation(long)).name
    words = ("import", file, "--json", "--session")

    first = empty.ok(*words, "c-1").json
    second = empty.ok(*words, "0000c0de").json
    none = empty(*words, "c-3")
    two = empty(*words, "c-1", file)

    assert [each["session"] for each in (*first["sessions"], *second["sessions"])] == ["c-1", long]
    assert (none.code, none.error["code"]) == (3, "session_not_found")
    assert two.error["code"] == "options_conflict"


def test_a_saved_conversation_is_no_session_of_a_source(empty: Shell) -> None:
    """It is not added as another one."""
    (empty.directory / "chat.json").write_text('[{"role": "user", "content": "Hi"}]')

    ended = empty("import", "chat.json", "--session", "x", "--agent", "a", "--json")

    assert (ended.code, ended.error["code"]) == (2, "options_conflict")
    assert not empty.store.exists()


def test_a_repaired_line_is_named_also_if_nothing_is_added(empty: Shell) -> None:
    """The thread has it with U+FFFD, so it is said again."""
    line = b'{"type":"user","uuid":"u1","sessionId":"s1","message":{"role":"user","content":"caf\xe9"}}\n'
    (empty.directory / "s1.jsonl").write_bytes(line)

    shown = [empty.ok("import", "s1.jsonl").out for _ in range(2)]

    assert ["Added 1 message" in each for each in shown] == [True, False]
    assert all(re.search(r"repaired\s+line 1", each) for each in shown)


def test_a_saved_conversation_that_is_refused_leaves_no_empty_thread(
    empty: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a session leaves none."""
    monkeypatch.setattr("perdure.store.thread.Thread.add", _refuse)
    (empty.directory / "chat.json").write_text('[{"role": "user", "content": "Hi"}]')

    refused = [
        empty("import", *words, "--agent", "a", "--json").code
        for words in (("chat.json", "--thread", "t"), ("chat.json",))
    ]

    assert (refused, empty.ok("threads", "ls", "--json").json["threads"]) == ([2, 2], [])


def _refuse(*_: object, **__: object) -> None:
    raise Invalid("too large; nothing was imported.", code="artifact_too_large")


def chatgpt_went_back(folder: Path, *, again: bool) -> str:
    """An export whose current line is that of an earlier question in the second export."""
    return saved(folder, conversation("c-1", "u2" if again else "a3")).name


def chatgpt_answered_again(folder: Path, *, again: bool) -> str:
    """An export in which a question is new that follows an earlier answer."""
    more = [node("u4", "a1", "user", "And Rome?")] if again else []
    return saved(folder, conversation("c-1", "u4" if again else "a3", *more)).name


def claude_went_back(folder: Path, *, again: bool) -> str:
    """A session of Claude Code in which the user went back."""
    said = [("u1", None, "One"), ("u2", "u1", "Two"), *([("u3", "u1", "Other")] if again else [])]
    lines = [
        {"type": "user", "uuid": id, "parentUuid": parent, "sessionId": "s1"}
        | {"message": {"role": "user", "content": words}}
        for id, parent, words in said
    ]
    (folder / "s1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "s1.jsonl"


def items_popped(folder: Path, *, again: bool, more: str | None = None) -> str:
    """A database of the Agents SDK from which the last row was popped."""
    file = folder / "agents.db"
    if not again:
        return database(folder, [{"role": "user", "content": text} for text in ("One", "Two")]).name
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM agent_messages WHERE id = 2")
    connection.close()
    return database(folder, [{"role": "user", "content": more}] if more else []).name


def items_popped_and_added(folder: Path, *, again: bool) -> str:
    """The same, and another row was added after it."""
    return items_popped(folder, again=again, more="Other")


WENT_ON: dict[str, tuple[Callable[..., str], list[str]]] = {
    "ChatGPT's current node moved": (chatgpt_went_back, ["Oslo?", "It rains.", "And Bergen?"]),
    "ChatGPT's answer was followed again": (chatgpt_answered_again, ["Oslo?", "It rains.", "And Rome?"]),
    "Claude Code went back": (claude_went_back, ["One", "Other"]),
    "an item was popped": (items_popped, ["One"]),
    "an item was popped and one added": (items_popped_and_added, ["One", "Other"]),
}


@pytest.mark.parametrize("kind", WENT_ON)
def test_a_line_that_is_current_elsewhere_is_named_until_main_has_it(empty: Shell, kind: str) -> None:
    """Main keeps what it has; the command that is named makes the other line main, and it is not named again."""
    written, wanted = WENT_ON[kind]
    first = empty.ok("import", written(empty.directory, again=False), "--json").json
    file = written(empty.directory, again=True)

    shown, again = empty.ok("import", file), empty.ok("import", file)
    (session,) = empty.ok("import", file, "--json").json["sessions"]
    empty.ok(*advised(shown, "Make it main"))
    after = [empty.ok("import", file, "--json").json["sessions"][0]["current"] for _ in range(2)]

    assert first["sessions"][0]["current"] is None
    assert advised(again, "Make it main") == ["threads", "promote", session["thread"], session["current"]]
    assert (after, said(empty, session["thread"])) == ([None, None], wanted)


def test_a_conversation_that_went_on_here_is_no_line_of_the_source(empty: Shell) -> None:
    """Control: main has all of the session and more; an undo here is none either."""
    file = claude_went_back(empty.directory, again=False)
    empty.ok("import", file)
    (empty.directory / "more.json").write_text('[{"role": "user", "content": "Here."}]')
    empty.ok("import", "claude-code:s1", "more.json", "--format", "openai-chat")
    body = (empty.directory / file).read_text()
    (empty.directory / file).write_text(body + '{"type":"summary","summary":"x","leafUuid":"u2"}\n')

    longer = empty.ok("import", file, "--json").json["sessions"]
    empty.ok("threads", "undo", "claude-code:s1", "--to", "claude-code:u1")
    (empty.directory / file).write_text(body + '{"type":"summary","summary":"y","leafUuid":"u2"}\n')
    undone = empty.ok("import", file, "--json").json["sessions"]

    assert [each["current"] for each in (*longer, *undone)] == [None, None]
    assert said(empty, "claude-code:s1") == ["One"]


def said(shell: Shell, thread: str) -> list[str]:
    """The words on main."""
    with perdure.open(shell.store) as store:
        return [entry.text for entry in store.thread(thread).transcript() if entry.text]
