"""`perdure import --thread` reads what people have: JSON lines, LangChain's messages, files of other encodings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, messages_to_dict

import perdure
from tests.surfaces.shell import Ended, Shell

SAID: list[dict[str, Any]] = [
    {"role": "user", "content": "Rain?"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Thanks"},
]
MESSAGES = [
    SystemMessage("Be brief."),
    HumanMessage("Oslo?"),
    AIMessage(
        [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
        tool_calls=[{"id": "c1", "name": "look", "args": {"city": "Oslo"}}],
    ),
    ToolMessage("rain", tool_call_id="c1"),
    AIMessage("Rain."),
]


def bring(shell: Shell, text: str | bytes, *options: str) -> Ended:
    """Import a file to a thread."""
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    (shell.directory / "chat.jsonl").write_bytes(body)
    return shell("import", "chat.jsonl", "--thread", "trip", "--agent", "planner", "--json", *options)


def spoken(shell: Shell) -> list[tuple[str, str]]:
    """Who said what."""
    with perdure.open(shell.store) as store:
        return [(entry.role, entry.text) for entry in store.thread("trip").transcript()]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_a_message_a_line_is_one_conversation(empty: Shell, end: str) -> None:
    """Blank lines do not count; a file that has grown adds the rest."""
    rows = [json.dumps(each) for each in SAID]

    first = bring(empty, end.join(rows[:2]) + end)
    second = bring(empty, end.join(rows))

    assert (first.json["messages"], second.json["messages"]) == (2, 1)
    assert spoken(empty) == [(each["role"], each["content"]) for each in SAID]


def test_a_prompt_with_another_date_is_named_and_stays(empty: Shell) -> None:
    """The rest of the file is added; without a rest the report names the prompt too."""
    files = [
        json.dumps([{"role": "system", "content": f"It is {day}."}, *SAID]) for day in ("Monday", "Tuesday")
    ]
    bring(empty, files[0])

    again = bring(empty, files[1])
    told = empty("import", "chat.jsonl", "--thread", "trip").out

    assert (again.code, again.json["messages"], again.json["repeated"]) == (0, 0, 3)
    assert [loss["what"] for loss in again.json["losses"]] == ["words of the system"]
    assert "words of the system" in told
    assert spoken(empty)[0] == ("system", "It is Monday.")


def test_a_file_with_one_message_is_that_message(empty: Shell) -> None:
    """Of its role; control: a user's words are not stored as the assistant's."""
    bring(empty, json.dumps(SAID[0]))

    assert spoken(empty) == [("user", "Rain?")]


def test_a_line_that_is_no_json_is_named(empty: Shell) -> None:
    """Control: the lines before it are not imported."""
    ended = bring(empty, f"{json.dumps(SAID[0])}\n{{oops\n{json.dumps(SAID[1])}\n")

    assert (ended.code, ended.error["code"], ended.error["facts"]["file"]) == (
        2,
        "not_json",
        "line 2 of chat.jsonl",
    )
    assert not empty.store.exists()


def test_a_conversation_a_line_is_refused_with_the_way_to_split_it(empty: Shell) -> None:
    """As files for fine-tuning are: a thread holds one; a file with a single one is imported."""
    rows = [json.dumps({"messages": SAID[:2]}), json.dumps({"messages": SAID[1:]})]

    ended = bring(empty, "\n".join(rows))
    without = empty("import", "chat.jsonl", "--json")
    alone = bring(empty, rows[0] + "\n")

    assert without.error["code"] == "conversations_several"
    assert (ended.error["code"], ended.error["facts"]["conversations"]) == ("conversations_several", 2)
    assert alone.json["messages"] == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "file_empty"),
        (b" \n", "file_empty"),
        ('[{"role": "user", "content": "caf\u00e9"}]'.encode("latin-1"), "not_utf8"),
        (b'{"messages": []}', "nothing_to_import"),
        (b"[1", "not_json"),
    ],
)
def test_a_file_that_holds_no_conversation_is_refused_with_the_reason(
    empty: Shell, body: bytes, code: str
) -> None:
    """Empty, another encoding, no messages, no JSON."""
    ended = bring(empty, body)

    assert (ended.code, ended.error["code"]) == (2, code)
    assert not empty.store.exists()


def test_a_role_that_is_not_known_is_the_reason(empty: Shell) -> None:
    """The format is not, though it was not named."""
    ended = bring(empty, json.dumps([{"role": "narrator", "content": "Once."}]))

    assert (ended.code, ended.error["code"] == "format_missing") == (2, False)


def test_a_broken_byte_in_text_of_utf_8_is_repaired_and_reported_with_its_place(empty: Shell) -> None:
    """Other letters say that it is UTF-8; control: without them it may be Latin-1, and is refused."""
    row = '{"role": "user", "content": "caf\u00e9"}\n'.encode()
    broken = b'{"role": "assistant", "content": "b\xffd"}\n'

    repaired = bring(empty, row + broken)
    refused = bring(empty, broken)

    assert [(each["kind"], each["where"]) for each in repaired.json["losses"]] == [
        ("repaired", "line 2: content")
    ]
    assert [text for _, text in spoken(empty)] == ["caf\u00e9", "b\ufffdd"]
    assert refused.error["code"] == "not_utf8"


def test_a_request_that_goes_on_from_a_servers_conversation_says_that_it_is_missing(empty: Shell) -> None:
    """It is no option of the agent's; control: an option is."""
    body = {"previous_response_id": "resp_1", "input": "And now?", "temperature": 0.5}

    losses = bring(empty, json.dumps(body)).json["losses"]

    assert {each["what"] for each in losses} == {"earlier conversation", "temperature"}


def test_half_a_character_is_repaired_and_reported_with_its_place(empty: Shell) -> None:
    """As in sessions; control: a whole one, written as two halves, is no loss."""
    whole = bring(empty, '[{"role": "user", "content": "\\ud83d\\ude00"}]')
    half = bring(empty, '[{"role": "user", "content": "Hm \\ud83d"}]')

    assert whole.json["losses"] == []
    assert [(each["kind"], each["where"]) for each in half.json["losses"]] == [
        ("repaired", "messages[0].content")
    ]
    assert spoken(empty) == [("user", "\U0001f600"), ("user", "Hm \ufffd")]


ROWS = '{"role":"system","content":"Be brief."}\n\n{"role":"user","content":"Rain?"}\n'


@pytest.mark.parametrize(
    ("row", "places"),
    [
        ('{"role":"user","content":[{"type":"weird"}]}', ["line 5: content[0]"]),
        ('{"role":"user","content":"Hm \\ud83d"}', ["line 5: content"]),
        ('{"role":"tool","tool_call_id":"c9","content":"1"}', ["line 5: tool_results[0]"]),
    ],
)
def test_places_of_losses_are_lines_of_the_file(empty: Shell, row: str, places: list[str]) -> None:
    """Blank lines count, and in a file that has grown the lines that were there; control: without a blank line."""
    chat = ("--format", "openai-chat")
    begun = bring(empty, ROWS, *chat)
    grown = bring(empty, ROWS + "\n" + row + "\n", *chat)
    control = bring(empty, ROWS.replace("\n\n", "\n") + row, "--again", *chat)

    assert begun.json["losses"] == []
    assert [each["where"] for each in grown.json["losses"]] == places
    assert [each["where"] for each in control.json["losses"]] == [places[0].replace("5", "3")]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('{"role":"narrator","content":"Once."}', "line 5 of chat.jsonl has the role 'narrator'"),
        ('{"type":"header"}', "line 5 of chat.jsonl is no Chat message"),
        (
            '{"role":"user","content":"No',
            "line 5 of chat.jsonl is not JSON: Unterminated string starting at (column 26)",
        ),
    ],
)
def test_a_line_that_cannot_be_read_is_named(empty: Shell, row: str, told: str) -> None:
    """As the editor of the user counts it."""
    ended = bring(empty, ROWS + "\n" + row + "\n", "--format", "openai-chat")

    assert ended.code == 2
    assert told in ended.error["message"]


def test_a_line_that_was_edited_is_named_in_the_conflict(empty: Shell) -> None:
    """Control: in a JSON list it has a number."""
    answer = '{"role":"assistant","content":"%s"}\n'
    bring(empty, ROWS + "\n" + answer % "Sun.")

    edited = bring(empty, ROWS + "\n" + answer % "Snow.")
    listed = bring(
        empty, json.dumps([json.loads(row) for row in (ROWS + answer % "Snow.").split("\n") if row])
    )

    assert (edited.code, listed.code) == (4, 4)
    assert "line 5 of chat.jsonl" in edited.error["message"]
    assert "number 3" in listed.error["message"]


def test_words_of_the_system_in_a_field_of_their_own_are_no_item_of_the_list(empty: Shell) -> None:
    """The place of a result is that in the list; control: of a list with them, it is one more."""
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t9", "content": "1"}]}
    asked = {"role": "user", "content": "Rain?"}
    body = {"system": "Be brief.", "messages": [asked, result]}

    losses = bring(empty, json.dumps(body), "--format", "anthropic-messages").json["losses"]

    assert [each["where"] for each in losses] == ["messages[1].tool_results[0]"]


@pytest.mark.parametrize("form", ["dump", "dict", "constructor", "role"])
def test_messages_of_langchain_are_read(empty: Shell, form: str) -> None:
    """In each form in which they are saved; the block that repeats a call is left out."""
    plain = [{**each.model_dump(), "role": each.type} for each in MESSAGES]
    saved = {
        "dump": [each.model_dump() for each in MESSAGES],
        "dict": messages_to_dict(MESSAGES),
        "constructor": [dumpd(each) for each in MESSAGES],
        "role": plain,
    }[form]

    added = bring(empty, json.dumps(saved)).json

    assert (added["format"], added["calls"], added["losses"]) == ("openai-chat", 1, [])
    assert [role for role, _ in spoken(empty)] == ["system", "user", "assistant", "tool", "assistant"]
    (call,) = empty.ok("calls", "ls", "trip", "--json").json["calls"]
    assert (call["tool"], call["state"]) == ("look", "succeeded")


def test_objects_of_langchain_are_read_and_what_is_left_out_is_a_loss() -> None:
    """Metadata, a status, a block that Chat does not have."""
    thread = perdure.open("memory:").thread("trip", agent="planner")
    odd = AIMessage(
        [{"type": "text", "text": "Hm."}, {"type": "video", "url": "x"}], response_metadata={"model": "m"}
    )

    losses = thread.add([HumanMessage("Oslo?"), odd])

    assert [entry.text for entry in thread.transcript()] == ["Oslo?", "Hm."]
    assert [(loss.where, loss.what) for loss in losses] == [
        ("messages[1].content[1]", "video"),
        ("messages[1].response_metadata", "response_metadata"),
    ]


def test_a_request_under_another_format_is_told_what_it_looks_like(empty: Shell) -> None:
    """Only if something was lost; control: under its own format nothing is said."""
    asked = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}],
    }
    body = json.dumps({"model": "claude", "messages": [SAID[0], asked]})

    wrong = bring(empty, body, "--format", "openai-chat").json
    right = bring(empty, body, "--format", "anthropic-messages", "--again").json

    assert (wrong["looks_like"], right["looks_like"]) == ("anthropic-messages", None)


def test_a_format_of_sessions_with_a_thread_says_what_it_is(empty: Shell) -> None:
    """A saved conversation is no session, whichever way the thread is named."""
    ended = bring(empty, json.dumps(SAID), "--format", "claude-code")
    named = empty("import", "trip", "chat.jsonl", "--format", "claude-code", "--json")

    assert (ended.code, ended.error["code"]) == (2, "import_format_unknown")
    assert (named.code, named.error["code"]) == (2, "session_format_with_thread")


def test_a_call_without_a_result_is_counted(empty: Shell) -> None:
    """Control: once its result has come it is not, and a call with its result never was."""
    asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [SAID[0], {"role": "assistant", "content": None, "tool_calls": [asked]}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "rain"}

    first = bring(empty, json.dumps(said)).json
    second = bring(empty, json.dumps([*said, result])).json
    whole = bring(empty, json.dumps([*said, result]), "--again").json

    assert [each["calls_unknown"] for each in (first, second, whole)] == [1, 0, 0]


def test_an_import_of_results_alone_is_no_run_that_goes_on(empty: Shell) -> None:
    """In the log; control: the turn before it, with words of the user, has its number."""
    asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [SAID[0], {"role": "assistant", "content": None, "tool_calls": [asked]}]
    bring(empty, json.dumps(said))
    bring(empty, json.dumps([{"role": "tool", "tool_call_id": "c1", "content": "rain"}]))

    kinds = [each["kind"] for each in empty.ok("threads", "turns", "trip", "--json").json["turns"]]

    assert sorted(kinds) == ["edit", "message"]
    assert "resumed" not in empty.ok("threads", "log", "trip").out
