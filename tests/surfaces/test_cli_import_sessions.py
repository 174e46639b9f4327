"""`perdure import` with one path brings in the sessions of other tools."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.crash.campaign import SEED
from tests.integrations.importers.claude_sessions import SESSION, write_project
from tests.integrations.importers.codex_sessions import write_rollout
from tests.surfaces.shell import Shell

THREAD = f"claude-code:{SESSION}"


def test_a_directory_of_sessions_becomes_threads(empty: Shell, tmp_path: Path) -> None:
    """Of both tools, each under its own agent; a second import adds nothing."""
    write_project(tmp_path / "claude", "2.1.90", SEED)
    write_rollout(tmp_path / "codex", "0.98.0", SEED)

    first = empty.ok("import", str(tmp_path), "--json").json
    again = empty.ok("import", str(tmp_path), "--json").json

    agents = {each["id"]: each["agent"] for each in empty.ok("threads", "ls", "--json").json["threads"]}
    assert agents[THREAD] == "claude-code"
    assert {each["format"] for each in first["sessions"]} == {"claude-code", "codex"}
    assert (first["messages"] > 0, again["messages"]) == (True, 0)


def test_the_answer_names_threads_and_what_was_left_out(empty: Shell, tmp_path: Path) -> None:
    """For people: one row a thread, and the kinds of lines that have no place in a transcript."""
    write_project(tmp_path, "2.1.90", SEED)

    told = empty.ok("import", str(tmp_path)).out

    assert "of 2 sessions." in told
    assert "user (isMeta)" in told


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ('"timestamp":"2025-03-04T12:11:12.000+02:00",', ("said 2025-03-04 10:11:12", "2025-03-04")),
        (
            '"timestamp":"yesterday",',
            ("2", "-"),
        ),  # the control: it is no time, so that of the import is shown
    ],
)
def test_an_imported_turn_is_shown_with_the_time_when_it_was_said(
    empty: Shell, at: str, shown: tuple[str, str]
) -> None:
    """In the log, the turns and the graph; in UTC, as every other time."""
    words = '"message":{"role":"user","content":"Is the shop open?"}'
    line = f'{{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s1",{at}{words}}}\n'
    (empty.directory / "s1.jsonl").write_text(line, encoding="utf-8")
    empty.ok("import", "s1.jsonl")

    log = next(
        line for line in empty.ok("threads", "log", "claude-code:s1").out.splitlines() if "turn 1" in line
    )
    turns = empty.ok("threads", "turns", "claude-code:s1").out
    graph = empty.ok("threads", "log", "claude-code:s1", "--graph").out

    assert shown[0] in log
    assert all(shown[1] in each for each in (turns, graph))
    assert ("said" in log) == shown[0].startswith("said")


def test_a_refused_file_is_named_and_the_others_are_imported(empty: Shell, tmp_path: Path) -> None:
    """The command exits with 5."""
    write_rollout(tmp_path, "0.98.0", SEED)
    document = {"schema_version": "ATIF-v9.0", "steps": []}
    (tmp_path / "t.json").write_text(json.dumps(document), encoding="utf-8")

    ended = empty("import", str(tmp_path), "--json")

    assert (ended.code, [each["code"] for each in ended.json["refused"]]) == (5, ["import_version_unknown"])
    assert ended.json["messages"] > 0


def test_a_conversation_of_an_export_that_cannot_be_read_is_named(empty: Shell) -> None:
    """The command exits with 5, as it does for a file of a directory; the others are imported."""
    said = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Rain?"]}}
    good = {"id": "cv1", "mapping": {"n1": {"message": said}}, "current_node": "n1"}
    body = json.dumps([good, {"id": "cv2", "mapping": "broken"}])
    (empty.directory / "conversations.json").write_text(body, encoding="utf-8")

    ended = empty("import", "conversations.json")

    assert (ended.code, "Added 1 message" in ended.out) == (5, True)
    assert "cv2" in ended.out


def test_an_archive_without_an_export_is_told_what_to_do(empty: Shell) -> None:
    """It is not taken for a saved conversation, and no store is made; a name inside an archive is no file."""
    with zipfile.ZipFile(empty.directory / "notes.zip", "w") as archive:
        archive.writestr("notes.json", '[{"role": "user", "content": "Hi"}]')

    ended = empty("import", "notes.zip", "--agent", "a", "--json")
    inside = empty("import", "notes.zip/notes.json", "--agent", "a", "--json")

    assert (ended.code, ended.error["code"]) == (2, "import_archive_without_export")
    assert "Unpack it" in ended.error["hint"]
    assert (inside.code, empty.store.exists()) == (3, False)


def session(folder: Path, name: str) -> None:
    """Save a session of one line."""
    line = '{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"%s","message":{"role":"user","content":"Rain?"}}'
    (folder / f"{name}.jsonl").write_text(line % name + "\n")


def test_several_files_are_imported_as_a_thread_each(empty: Shell) -> None:
    """Each has a row, also one without anything new; one that cannot be read does not stop those after it."""
    for name in ("s1", "s2", "s3"):
        session(empty.directory, name)
    (empty.directory / "junk.jsonl").write_text("no JSON")
    empty.ok("import", "s1.jsonl")

    ended = empty("import", "s1.jsonl", "s2.jsonl", "junk.jsonl", "missing.jsonl", "s3.jsonl")
    again = empty("import", "s2.jsonl", "s3.jsonl", "--json")

    rows = [line.split() for line in ended.out.splitlines() if ".jsonl  " in line]
    assert rows == [
        ["s1.jsonl", "claude-code:s1", "0", "0"],
        ["s2.jsonl", "claude-code:s2", "1", "0", "main"],
        ["s3.jsonl", "claude-code:s3", "1", "0", "main"],
    ]
    assert (ended.code, ended.out.count("✗ ")) == (5, 2)
    assert (again.code, again.json["sources"], again.json["messages"]) == (0, 2, 0)


def test_several_files_without_a_session_make_no_store(empty: Shell) -> None:
    """Each is named with its reason."""
    (empty.directory / "junk.jsonl").write_text("no JSON")

    ended = empty("import", "junk.jsonl", "missing.jsonl", "more.jsonl", "--json")

    codes = [each["code"] for each in ended.json["refused"]]
    assert (ended.code, codes) == (5, ["not_a_conversation", "import_not_found", "import_not_found"])
    assert (empty.directory / "perdure.db").exists() is False


def test_several_files_go_to_no_single_thread(empty: Shell) -> None:
    """`--thread` takes one, and a word that is a thread and a path says nothing about the second."""
    for name in ("s1", "s2"):
        session(empty.directory, name)
    empty.ok("import", "s1.jsonl")
    (empty.directory / "claude-code:s1").mkdir()

    refused = empty("import", "s1.jsonl", "s2.jsonl", "--thread", "t", "--json")
    unclear = empty("import", "claude-code:s1", "s2.jsonl", "--json")

    assert (refused.code, refused.error["code"]) == (2, "options_conflict")
    assert (unclear.code, unclear.error["code"]) == (2, "options_conflict")


def test_saved_conversations_among_several_files_are_a_thread_each(empty: Shell) -> None:
    """Each is named like its file; a later import adds the rest, and one that was edited is refused."""
    words = ("import", "one.json", "two.json", "s1.jsonl", "--agent", "a", "--json")
    chats = {
        name: [{"role": "user", "content": f"Hello {name}"}, {"role": "assistant", "content": "Hi."}]
        for name in "12"
    }
    more = {"role": "user", "content": "Bye."}
    session(empty.directory, "s1")
    for name, file in (("1", "one.json"), ("2", "two.json")):
        (empty.directory / file).write_text(json.dumps(chats[name]))

    nameless = empty("import", "one.json", "two.json", "--format", "openai-chat", "--json")
    first = empty(*words[:3], *words[4:], "--format", "openai-chat")
    (empty.directory / "one.json").write_text(json.dumps([*chats["1"], more]))
    (empty.directory / "two.json").write_text(json.dumps([chats["2"][0], more]))
    second = empty(*words[:3], *words[4:], "--format", "openai-chat")

    assert [each["code"] for each in nameless.json["refused"]] == ["agent_missing"] * 2
    added = [(each["thread"], each["messages"]) for each in first.json["sessions"]]
    assert (first.code, added) == (0, [("one", 2), ("two", 2)])
    assert [(each["thread"], each["messages"]) for each in second.json["sessions"]] == [("one", 1)]
    assert (second.code, second.json["refused"][0]["code"]) == (5, "import_overlaps_from_start")


def chat(path: Path, words: str, **more: str) -> None:
    """Save a conversation of plain words."""
    said = [{"role": "user", "content": words, **more}, {"role": "assistant", "content": "Hm."}]
    path.write_text(json.dumps(said))


def test_one_saved_conversation_is_imported_as_several_are(empty: Shell) -> None:
    """It becomes a thread that is named like its file, of the format that is named or found; again adds nothing."""
    chat(empty.directory / "l.json", "Rain?", name="ann")
    words = ("import", "l.json", "--format", "openai-chat", "--json")

    nameless = empty(*words)
    first = empty.ok(*words, "--agent", "g").json
    again = empty.ok(*words).json

    assert (nameless.code, nameless.error["code"]) == (2, "agent_missing")
    assert [(each["thread"], each["messages"]) for each in first["sessions"]] == [("l", 2)]
    assert again["messages"] == 0


def test_a_file_whose_format_is_not_decided_is_named(empty: Shell) -> None:
    """Among several; the others are imported."""
    chat(empty.directory / "l.json", "Rain?", name="ann")
    chat(empty.directory / "m.json", "Sun?")

    ended = empty("import", "m.json", "l.json", "--agent", "g", "--json")

    ((source, code, why),) = [(each["source"], each["code"], each["why"]) for each in ended.json["refused"]]
    assert (ended.code, ended.json["messages"]) == (5, 2)
    assert (source, code, "l.json" in why) == ("l.json", "format_missing", True)


def test_a_directory_of_saved_conversations_is_imported_like_its_files(empty: Shell) -> None:
    """Other files are counted, and one that cannot be imported is refused by name."""
    there = empty.directory / "chats"
    there.mkdir()
    for name in ("a", "b"):
        chat(there / f"{name}.json", f"Hello {name}?")
    (there / "cut.json").write_text('[{"role": "user", "content": "Rain')
    (there / "notes.txt").write_text("no JSON")

    ended = empty("import", "chats", "--agent", "g", "--json")

    assert (ended.code, [each["thread"] for each in ended.json["sessions"]]) == (5, ["a", "b"])
    assert [(each["source"], each["code"]) for each in ended.json["refused"]] == [
        ("chats/cut.json", "not_json")
    ]
    assert (ended.json["others"], ended.json["others_first"]) == (1, ["chats/notes.txt"])


def test_saved_conversations_beside_sessions_are_passed_over(empty: Shell) -> None:
    """The directories of tools have files that look like messages: they are named, and named alone they are imported."""
    there = empty.directory / "there"
    there.mkdir()
    session(there, "s1")
    chat(there / "a.json", "Hello?")

    ended = empty.ok("import", "there", "--json").json

    assert [each["thread"] for each in ended["sessions"]] == ["claude-code:s1"]
    assert ended["others_first"] == ["there/a.json"]


@pytest.mark.parametrize("words", [(), ("--format", "openai-chat")])
def test_a_directory_without_anything_to_import_is_refused(empty: Shell, words: tuple[str, ...]) -> None:
    """In one line, and no store is made."""
    (empty.directory / "there").mkdir()
    (empty.directory / "there" / "notes.txt").write_text("no JSON")

    ended = empty("import", "there", *words, "--json")

    assert (ended.code, ended.error["code"], empty.store.exists()) == (2, "import_source_empty", False)


def test_a_saved_conversation_goes_to_no_thread_of_another(empty: Shell) -> None:
    """Its file has the name of a thread that has none of its messages; sessions beside it are imported."""
    asked = {"type": "function", "id": "c", "function": {"name": "look", "arguments": "{}"}}
    saved = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [asked]}]
    (empty.directory / "other.json").write_text('[{"role": "user", "content": "Something else"}]')
    (empty.directory / "chat.json").write_text(json.dumps(saved))
    session(empty.directory, "s1")
    empty.ok("import", "other.json", "--thread", "chat", "--agent", "a", "--format", "openai-chat")

    ended = empty("import", "chat.json", "s1.jsonl", "--agent", "a", "--json")

    assert [each["thread"] for each in ended.json["sessions"]] == ["claude-code:s1"]
    assert [each["code"] for each in ended.json["refused"]] == ["import_thread_taken"]


def test_a_cut_off_document_is_told_where_it_ends(empty: Shell) -> None:
    """Also without --thread, and among others."""
    (empty.directory / "chat.json").write_text('[{"role": "user", "content": "Rain')
    session(empty.directory, "s1")

    alone = empty("import", "chat.json", "--json")
    among = empty("import", "s1.jsonl", "chat.json", "--json")

    assert (alone.error["code"], among.json["refused"][0]["code"]) == ("not_json", "not_json")
    assert "char 29" in alone.error["message"]


def test_a_last_line_that_is_not_complete_is_named_with_its_file(empty: Shell) -> None:
    """Among several files, a person has to know which."""
    for name in ("s1", "s2"):
        session(empty.directory, name)
    with (empty.directory / "s2.jsonl").open("a") as file:
        file.write('{"type":"user","uu')

    told = empty.ok("import", "s1.jsonl", "s2.jsonl").out

    assert "1 last line not complete yet, of s2.jsonl" in told


def test_a_session_without_a_message_is_counted_apart(empty: Shell) -> None:
    """It makes no thread; the others are told as they are."""
    session(empty.directory, "s1")
    (empty.directory / "s2.jsonl").write_text(
        _asked(1).replace("s1", "s2").replace('"type":"user"', '"type":"user","isMeta":true')
    )

    told = " ".join(empty.ok("import", ".").out.split())

    assert "Added 1 message and 0 calls of 1 session; 1 other without a message." in told


def test_lines_that_were_edited_are_named_and_the_command_exits_with_4(empty: Shell) -> None:
    """Every time; a file that was refused as well is 5."""
    words = '"message":{"role":"user","content":"Question %d%s?"}'
    line = '{"type":"user","uuid":"u%d","parentUuid":null,"sessionId":"s1",' + words + "}\n"
    file = empty.directory / "s1.jsonl"
    file.write_text("".join(line % (at, at, "") for at in range(9)))
    empty.ok("import", "s1.jsonl")
    file.write_text("".join(line % (at, at, " more" if at > 1 else "") for at in range(9)))

    ended = empty("import", "s1.jsonl")
    again = empty("import", "s1.jsonl", "--json")

    told = " ".join(ended.out.split())
    assert (ended.code, again.code) == (4, 4)
    assert "7 lines of s1.jsonl say something else" in told
    assert "claude-code:s1" in told
    assert (
        "line 3, 4, 5, 6, 7, … Have the edited one too: perdure import s1.jsonl --format claude-code" in told
    )
    assert again.json["sessions"][0]["edited"] == [f"line {at}" for at in range(3, 10)]


def test_an_edited_session_is_imported_as_another_thread(empty: Shell) -> None:
    """The command that the report names has both; a thread of another session, and several sessions, are refused."""
    file = empty.directory / "s1.jsonl"
    session(empty.directory, "s2")
    file.write_text(_asked(1))
    empty.ok("import", "s1.jsonl", "s2.jsonl")
    file.write_text(_asked(1).replace("Question", "Answer"))
    words = ("import", "s1.jsonl", "--format", "claude-code", "--json", "--thread")

    added = empty.ok(*words, "edited").json
    again = empty.ok(*words, "edited").json
    taken = empty(*words, "claude-code:s2")
    several = empty("import", ".", "--format", "claude-code", "--thread", "all", "--json")

    assert [(each["thread"], each["messages"]) for each in added["sessions"]] == [("edited", 1)]
    assert again["messages"] == 0
    assert (taken.code, taken.error["code"]) == (4, "import_thread_taken")
    assert (several.code, {each["code"] for each in several.json["refused"]}) == (
        5,
        {"session_not_for_thread"},
    )
    said = [empty.ok("threads", "log", name).out for name in ("claude-code:s1", "edited")]
    assert ["Answer" in each for each in said] == [False, True]


def test_a_file_that_is_no_session_makes_no_store(empty: Shell, tmp_path: Path) -> None:
    """One line, and nothing is written."""
    (tmp_path / "notes.txt").write_text("no session", encoding="utf-8")

    ended = empty("import", str(tmp_path / "notes.txt"))

    assert (ended.code, (empty.directory / "perdure.db").exists()) == (2, False)
    assert len(ended.err.strip().splitlines()) <= 3


def test_options_of_a_file_are_refused_with_sessions(empty: Shell, tmp_path: Path) -> None:
    """They would do nothing."""
    write_rollout(tmp_path, "0.98.0", SEED)
    (empty.directory / "request.json").write_text('{"messages": []}', encoding="utf-8")

    assert empty("import", str(tmp_path), "--whole").code == 2
    assert empty("import", str(tmp_path), "--format", "openai-chat").code == 5
    assert empty("import", "trip", "request.json", "--format", "openai-chat").code == 2


@pytest.mark.parametrize("text", ['{"x": 1}', "[]", "[1, 2]", '"words"', "no JSON at all"])
def test_a_file_without_any_message_is_offered_no_format(empty: Shell, text: str) -> None:
    """Neither alone nor with a thread; nothing is made."""
    (empty.directory / "junk.json").write_text(text)

    alone = empty("import", "junk.json", "--json")
    added = empty("import", "junk.json", "--thread", "t", "--agent", "a", "--json")

    assert alone.error["code"] == "not_a_conversation"
    assert added.error["code"] in ("not_a_conversation", "not_json")
    assert "--format" not in alone.err + added.err
    assert [each.name for each in empty.directory.iterdir()] == ["junk.json"]


def test_files_that_are_no_sessions_are_counted(empty: Shell, tmp_path: Path) -> None:
    """The directories of these tools have many, so they are passed over; control: alone, one is refused."""
    there = tmp_path / "sessions"
    there.mkdir()
    write_rollout(there, "0.98.0", SEED)
    (there / "notes.jsonl").write_text('{"foo": 1}\n', encoding="utf-8")

    ended = empty.ok("import", str(there))

    assert "1 other file passed over" in ended.out
    assert "notes.jsonl" in ended.out
    assert empty("import", str(there / "notes.jsonl")).code == 2


@pytest.mark.parametrize(
    "words",
    [
        "import /dev/zero --thread x --agent a",
        "import x /dev/zero --agent a",
        "artifacts put shopping /dev/zero",
        "state put shopping /x.bin --file /dev/zero",
    ],
)
def test_a_device_is_refused_before_it_is_read(shell: Shell, words: str) -> None:
    """It may have no end, and reading it would fill the memory or the disk."""
    ended = shell(*words.split(), "--json")

    assert (ended.code, ended.error["code"]) == (2, "file_is_device")


def test_what_is_read_as_a_whole_has_a_limit(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The input of a pipe has no size, so it is read up to the limit; what fits is taken."""
    monkeypatch.setattr("perdure.cli.input.json_input._BYTES_MAX", 60)
    said = b'[{"role": "user", "content": "Hi"}]'
    import_it = ("import", "x", "-", "--agent", "a", "--format", "openai-chat", "--json")

    long, short = shell(*import_it, stdin=said + b" " * 60), shell(*import_it, stdin=said)

    assert (long.code, long.error["code"], long.error["facts"]["limit"]) == (2, "file_too_large", 60)
    assert short.code == 0


def test_a_tool_that_is_not_known_is_answered_with_those_that_are(empty: Shell) -> None:
    """All of them, and the one that was meant; no store was made."""
    (empty.directory / "sessions").mkdir()

    ended = empty("import", "sessions", "--format", "claude", "--json")

    assert (ended.code, ended.error["code"]) == (2, "session_format_unknown")
    assert "claude-code, codex, " in ended.error["message"]
    assert "Did you mean 'claude-ai' or 'claude-code'?" in ended.error["hint"]
    assert not empty.store.exists()


def test_an_import_says_that_it_made_a_store(empty: Shell) -> None:
    """The first one; the control, a second one, has the store already."""
    (empty.directory / "chat.json").write_text('[{"role": "user", "content": "Hello."}]')
    words = ("import", "chat.json", "--thread", "t", "--agent", "a", "--format", "openai-chat")

    first, second = empty.ok(*words).out, empty.ok(*words, "--again").out

    assert first.startswith("Made a new store: ./perdure.db")
    assert "new store" not in second


@pytest.mark.parametrize("words", [("--format", "markdown"), ()])
def test_an_export_without_a_format_that_is_known_names_all(shell: Shell, words: tuple[str, ...]) -> None:
    """Those of vendors, plain tables and spans."""
    ended = shell("export", "shopping", *words)

    assert ended.code in (2, 3)
    assert all(name in ended.err for name in ("openai-chat", "anthropic-messages", "sqlite", "otlp"))


def _asked(number: int) -> str:
    """Return a line in which the user says something."""
    parent = f'"u{number - 1}"' if number > 1 else "null"
    words = f'"message":{{"role":"user","content":"Question {number}"}}'
    return f'{{"type":"user","uuid":"u{number}","parentUuid":{parent},"sessionId":"s1",{words}}}\n'


def test_a_session_that_grows_after_a_hand_off_goes_on_under_the_threads_agent(empty: Shell) -> None:
    """No agent is named again: the rest goes to main while nothing else followed there, and beside it afterwards."""
    file = empty.directory / "s1.jsonl"
    file.write_text(_asked(1))
    empty.ok("import", "s1.jsonl")
    empty.ok("threads", "hand-off", "claude-code:s1", "--to", "coder")
    (empty.directory / "more.json").write_text('[{"role": "user", "content": "Here."}]')

    file.write_text(_asked(1) + _asked(2))
    second = empty.ok("import", "s1.jsonl", "--json").json
    empty.ok("import", "claude-code:s1", "more.json", "--format", "openai-chat")
    file.write_text(_asked(1) + _asked(2) + _asked(3))
    third = empty.ok("import", "s1.jsonl", "--json").json

    assert [each["timelines"] for each in (*second["sessions"], *third["sessions"])] == [
        ["main"],
        ["claude-code/u3"],
    ]
    shown = empty.ok("threads", "show", "claude-code:s1", "--json").json
    assert shown["agent"] == "coder"


def test_a_session_that_was_imported_for_an_agent_needs_it_once(empty: Shell, tmp_path: Path) -> None:
    """Later imports find the thread and its agent."""
    write_rollout(tmp_path, "0.98.0", SEED)
    empty.ok("import", str(tmp_path), "--agent", "coder")

    assert empty.ok("import", str(tmp_path), "--json").json["refused"] == []


def test_a_refusal_speaks_in_commands_with_the_thread(empty: Shell) -> None:
    """Alone and in a directory: the thread is named, and no Python."""
    there = empty.directory / "sessions"
    there.mkdir()
    for name in ("s1", "s2"):
        (there / f"{name}.jsonl").write_text(_asked(1).replace("s1", name))
    empty.ok("import", "sessions/s1.jsonl")

    alone, among = (empty("import", each, "--agent", "other") for each in ("sessions/s1.jsonl", "sessions"))

    assert (alone.code, among.code) == (4, 5)
    for told in (alone.err, among.out):
        told = " ".join(told.split())
        assert "perdure threads hand-off claude-code:s1 --to other" in told
        assert "thread.hand_off" not in told


@pytest.mark.parametrize(
    "words",
    [
        "import - --thread x --agent a --format openai-chat",
        "import --thread x - --agent a --format openai-chat",
        "import --thread x --agent a --format openai-chat -",
        "import x - --agent a --format openai-chat",
        "--json import --agent a --format openai-chat x -",
    ],
)
def test_a_hyphen_is_the_input_wherever_it_stands(empty: Shell, words: str) -> None:
    """Also before, between and after options; control: an option that is not known is still named as one."""
    said = b'[{"role": "user", "content": "Hi"}]'

    empty.ok(*words.split(), stdin=said)

    assert empty.ok("threads", "show", "x", "--json").json["id"] == "x"
    assert "no option --thraed" in empty("import", "--thraed", "x", "-").err


def test_sessions_are_not_read_from_the_input(empty: Shell) -> None:
    """The answer says how a conversation is."""
    ended = empty("import", "-", "--json")

    assert (ended.code, ended.error["code"]) == (2, "sessions_from_input")
    assert "--thread" in ended.error["hint"]


def test_a_value_of_the_state_is_read_from_the_input(shell: Shell) -> None:
    """With `--file -` as with VALUE."""
    shell.ok("state", "put", "shopping", "/from-input", "--file", "-", stdin=b'"milk"')

    assert "milk" in shell.ok("state", "get", "shopping", "/from-input").out


def _called(session: str, *more: str) -> str:
    """Return a session in which a call has no result; its last line has half a character."""
    call = '{"type":"tool_use","id":"t1","name":"Read","input":{}}'
    asked = f'{{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"{session}","message":{{"role":"user","content":"Go \\ud83d"}}}}'
    said = f'{{"type":"assistant","uuid":"u2","parentUuid":"u1","sessionId":"{session}","message":{{"id":"m1","role":"assistant","model":"m","content":[{call}]}}}}'
    return "\n".join((asked, said, *more)) + "\n"


def _answered(session: str) -> str:
    """Return the line with the result of that call."""
    result = '{"type":"tool_result","tool_use_id":"t1","content":"text"}'
    return f'{{"type":"user","uuid":"u3","parentUuid":"u2","sessionId":"{session}","message":{{"role":"user","content":[{result}]}}}}'


def test_the_report_counts_calls_without_a_result_and_names_the_place_of_a_loss(empty: Shell) -> None:
    """The file and the thread where there are several; control: a call with its result is not counted."""
    there = empty.directory / "sessions"
    there.mkdir()
    (there / "a.jsonl").write_text(_called("s1"), encoding="utf-8")
    (there / "b.jsonl").write_text(_called("s2", _answered("s2")), encoding="utf-8")

    told = empty.ok("import", str(there)).out
    counts = {
        each["session"]: each["calls_unknown"]
        for each in empty.ok("import", str(there), "--json").json["sessions"]
    }

    assert "1 call has no result: its outcome is unknown." in told
    assert "a.jsonl (claude-code:s1): line 1" in " ".join(told.split())
    assert counts == {"s1": 0, "s2": 0}  # nothing is new


def test_what_came_to_another_timeline_is_shown_by_the_command_that_is_named(empty: Shell) -> None:
    """Control: the first import is on main, and its command names no timeline."""
    file = empty.directory / "s1.jsonl"
    file.write_text(_asked(1))
    first = empty.ok("import", "s1.jsonl").out
    (empty.directory / "more.json").write_text('[{"role": "user", "content": "Here."}]')
    empty.ok("import", "claude-code:s1", "more.json", "--format", "openai-chat", "--agent", "claude-code")

    file.write_text(_asked(1) + _asked(2))
    second = empty.ok("import", "s1.jsonl").out

    assert "--timeline" not in first
    assert "perdure threads log claude-code:s1 --timeline claude-code/u2" in second
