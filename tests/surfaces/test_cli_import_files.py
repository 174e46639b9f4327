"""`perdure import` of several saved conversations: each has its thread, and what is refused is named by its file."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.surfaces.shell import Ended, Shell

ANN = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}]
BOB = [*ANN, {"role": "user", "content": "my IBAN is 42"}, {"role": "assistant", "content": "noted"}]


def save(file: Path, said: object) -> None:
    """Save a conversation, and make its directory."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(said))


def threads(shell: Shell) -> dict[str, int]:
    """How many messages each thread has."""
    with perdure.open(shell.store) as store:
        return {thread.id: len(thread.transcript()) for thread in store.threads()}


def added(ended: Ended) -> list[tuple[str, str, int]]:
    """The file, the thread and the new messages of each conversation."""
    return [(each["source"], each["thread"], each["messages"]) for each in ended.json["sessions"]]


def commands(text: str) -> list[list[str]]:
    """The commands that a text spells, without the name of the program."""
    return [shlex.split(found)[1:] for found in re.findall(r"`(perdure [^`]+)`", text)]


@pytest.mark.parametrize(("ann", "bob"), [(ANN, BOB), (BOB, ANN)])
def test_files_of_the_same_name_are_a_thread_each(
    empty: Shell, ann: list[dict[str, str]], bob: list[dict[str, str]]
) -> None:
    """Named by the path below the directory, and the table has the path; again adds nothing, and one that grew its rest."""
    save(empty.directory / "d/ann/chat.json", ann)
    save(empty.directory / "d/bob/chat.json", bob)
    save(empty.directory / "d/eve/other.json", ANN)

    told = empty.ok("import", "d", "--agent", "g").out
    save(empty.directory / "d/bob/chat.json", [*bob, {"role": "user", "content": "Bye."}])
    again = empty.ok("import", "d", "--json")

    assert "d/ann/chat.json" in told
    assert threads(empty) == {"ann/chat": len(ann), "bob/chat": len(bob) + 1, "other": 2}
    assert [each[2] for each in added(again)] == [0, 1, 0]


def test_files_that_are_named_one_by_one_are_told_apart_by_their_paths(empty: Shell) -> None:
    """Also by their endings, and a file that is named twice is one."""
    save(empty.directory / "ann/chat.json", ANN)
    save(empty.directory / "ann/chat.jsonl", BOB)
    save(empty.directory / "bob/chat.json", BOB)

    empty.ok(
        "import",
        "ann/chat.json",
        "./ann/chat.json",
        "ann/chat.jsonl",
        "bob/chat.json",
        "--agent",
        "g",
        "--json",
    )

    assert threads(empty) == {"ann/chat.json": 2, "ann/chat.jsonl": 4, "bob/chat": 4}


def test_another_file_of_the_same_name_is_refused_with_commands_that_import_it(empty: Shell) -> None:
    """A later command, which has more or less than the thread; control: the same file, grown, goes on."""
    save(empty.directory / "ann/chat.json", ANN)
    save(empty.directory / "bob/chat.json", BOB)
    empty.ok("import", "ann/chat.json", "--agent", "g")

    refused = empty("import", "bob/chat.json", "--json")
    apart, same = commands(refused.error["hint"])
    empty.ok(*apart)
    after = empty.ok("import", "bob/chat.json", "--json")
    save(empty.directory / "ann/chat.json", [*ANN, {"role": "user", "content": "Bye."}])
    empty.ok("import", "ann/chat.json")

    assert (refused.code, refused.error["code"]) == (4, "import_thread_taken")
    assert "ann/chat.json" in refused.error["message"]
    assert same == ["import", "bob/chat.json", "--thread", "chat"]
    assert added(after) == [("bob/chat.json", "bob/chat", 0)]
    assert threads(empty) == {"bob/chat": 4, "chat": 3}


def test_a_file_keeps_its_thread_when_another_of_its_name_comes(empty: Shell) -> None:
    """And one that was named by its path keeps that name when it is imported alone."""
    save(empty.directory / "d/ann/chat.json", ANN)
    empty.ok("import", "d", "--agent", "g")
    save(empty.directory / "d/bob/chat.json", BOB)

    both = empty.ok("import", "d", "--agent", "g", "--json")
    alone = empty.ok("import", "d/bob/chat.json", "--json")

    assert added(both) == [("d/ann/chat.json", "chat", 0), ("d/bob/chat.json", "bob/chat", 4)]
    assert added(alone) == [("d/bob/chat.json", "bob/chat", 0)]


def test_a_file_that_was_moved_goes_on_after_it_was_named_with_its_thread(empty: Shell) -> None:
    """Once; then its new place is known."""
    save(empty.directory / "ann/chat.json", ANN)
    empty.ok("import", "ann/chat.json", "--agent", "g")
    save(empty.directory / "new/chat.json", BOB)

    empty.ok("import", "new/chat.json", "--thread", "chat")
    empty.ok("import", "new/chat.json")

    assert threads(empty) == {"chat": 4}


def test_a_thread_that_knows_no_file_takes_one_that_has_all_of_it(empty: Shell) -> None:
    """Then it knows it; control: one that parts from it is refused, with its file."""
    parted: list[dict[str, Any]] = [*ANN, {"role": "user", "content": "Else?"}]
    save(empty.directory / "ann/chat.json", BOB)
    save(empty.directory / "bob/chat.json", parted)
    empty.ok("import", "ann/chat.json", "--thread", "chat", "--agent", "g")

    refused = empty("import", "bob/chat.json", "--json")
    save(empty.directory / "ann/chat.json", [*BOB, {"role": "user", "content": "Bye."}])
    grown = empty.ok("import", "ann/chat.json", "--json")

    assert (refused.code, refused.error["code"]) == (4, "import_thread_taken")
    assert "bob/chat.json" in refused.error["message"]
    assert added(grown) == [("ann/chat.json", "chat", 1)]


@pytest.mark.parametrize("words", [("odd.json",), ("odd.json", "good.json"), ("odd.json", "--thread", "t")])
def test_a_message_that_cannot_be_read_is_refused_with_its_file(empty: Shell, words: tuple[str, ...]) -> None:
    """Alone, among others, and with a thread."""
    save(empty.directory / "odd.json", [{"text": "Rain?", "role": 7}])
    save(empty.directory / "good.json", ANN)

    ended = empty("import", *words, "--agent", "g", "--format", "openai-chat", "--json")

    told = ended.json["refused"][0]["why"] if "good.json" in words else ended.error["message"]
    assert "odd.json" in told
    assert "messages[0]" in told


def test_the_advice_for_an_edited_file_can_be_typed(empty: Shell) -> None:
    """Each of its commands does what it says; the file and the thread are named, alone and among others."""
    edited = [*BOB[:3], {"role": "assistant", "content": "edited"}]
    save(empty.directory / "a chat.json", BOB)
    save(empty.directory / "good.json", ANN)
    empty.ok("import", "a chat.json", "--agent", "g", "--store", "other.db")
    save(empty.directory / "a chat.json", edited)

    among = empty("import", "a chat.json", "good.json", "--agent", "g", "--store", "other.db", "--json")
    why = among.json["refused"][0]["why"]
    fork, into_fork, apart, again = commands(why)
    for words in (fork, into_fork, apart, again):
        empty.ok(*words)

    assert "a chat.json" in why
    assert "thread 'a chat'" in why
    with perdure.open(empty.directory / "other.db") as store:
        texts = [entry.text for entry in store.thread("a chat", timeline="edited").transcript()]
        assert texts == [each["content"] for each in edited]
        assert len(store.thread("a chat-2").transcript()) == len(edited)
        assert len(store.thread("a chat").transcript()) == len(BOB) + len(edited)


UNREADABLE = {
    "latin1.json": json.dumps([{"role": "user", "content": "Café?"}], ensure_ascii=False).encode("latin-1"),
    "sharegpt.json": json.dumps({"conversations": [{"from": "human", "value": "Rain?"}]}).encode(),
    "rows.jsonl": b'{"conversations": [{"from": "human", "value": "Rain?"}]}\n' * 2,
}


def test_files_with_messages_are_not_passed_over_in_a_directory(empty: Shell) -> None:
    """Those of UTF-16 are imported, those that cannot be read are refused; control: a setting is passed over."""
    save(empty.directory / "d/ann.json", ANN)
    save(empty.directory / "d/setting.json", {"theme": "dark", "tools": [{"name": "look"}]})
    (empty.directory / "d/utf16.json").write_bytes(json.dumps(BOB).encode("utf-16"))
    for name, body in UNREADABLE.items():
        (empty.directory / "d" / name).write_bytes(body)

    ended = empty("import", "d", "--agent", "g", "--json")

    assert ended.code == 5
    assert threads(empty) == {"ann": 2, "utf16": 4}
    assert {each["source"]: each["code"] for each in ended.json["refused"]} == {
        "d/latin1.json": "not_utf8",
        "d/sharegpt.json": "conversation_form_unknown",
        "d/rows.jsonl": "conversation_form_unknown",
    }
    assert ended.json["passed_over"] == ["d/setting.json"]


@pytest.mark.parametrize("name", list(UNREADABLE))
@pytest.mark.parametrize("words", [(), ("--thread", "t")])
def test_a_file_with_messages_that_cannot_be_read_has_its_reason_alone_too(
    empty: Shell, name: str, words: tuple[str, ...]
) -> None:
    """With a thread and without; the advice for another encoding names the file."""
    (empty.directory / name).write_bytes(UNREADABLE[name])

    refused = empty("import", name, *words, "--agent", "g", "--json")

    assert (refused.code, name in refused.error["message"]) == (2, True)
    assert refused.error["code"] == ("not_utf8" if name == "latin1.json" else "conversation_form_unknown")
    assert (f"iconv -f latin1 -t utf8 {name}" in refused.error["hint"]) == (name == "latin1.json")


def test_a_saved_conversation_beside_sessions_is_named_as_one(empty: Shell) -> None:
    """With the command that imports it; what cannot be read is refused, and all that is passed over is in the JSON."""
    said = {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s1"}
    save(empty.directory / "d/s1.jsonl", {**said, "message": {"role": "user", "content": "Rain?"}})
    save(empty.directory / "d/ann.json", ANN)
    for name in "abcd":
        save(empty.directory / f"d/{name}.json", {"theme": name})

    told = " ".join(empty.ok("import", "d").out.split())
    ended = empty.ok("import", "d", "--json").json
    (empty.directory / "d/latin1.json").write_bytes(UNREADABLE["latin1.json"])
    refused = empty("import", "d", "--json")

    assert "d/ann.json is a saved conversation, and was not imported." in told
    assert "perdure import d/ann.json --agent" in told
    assert (ended["others"], ended["conversations"]) == (5, ["d/ann.json"])
    assert ended["passed_over"] == [f"d/{name}.json" for name in ("a", "ann", "b", "c", "d")]
    assert (refused.code, [each["source"] for each in refused.json["refused"]]) == (5, ["d/latin1.json"])
