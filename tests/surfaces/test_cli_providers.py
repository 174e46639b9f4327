"""The commands about providers, and those that carry conversations in and out."""

from __future__ import annotations

import json
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.providers.conversation_input import formats_of
from perdure.providers.registry import APIS
from perdure.providers.validator import RULES, check
from perdure.testing import Script, say
from tests.surfaces.shell import Shell

ASKED: dict[str, Any] = {
    "model": "gpt-5.6",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": "And tomorrow?"},
    ],
}
TORN = {"messages": ASKED["messages"][:3]}


def save(shell: Shell, body: object, name: str = "request.json") -> str:
    """A file in the directory of the shell."""
    (shell.directory / name).write_text(json.dumps(body), encoding="utf-8")
    return name


def bring(shell: Shell, body: object, *words: str, format: str = "openai-chat") -> Any:
    """Import what a file holds."""
    file = save(shell, body)
    return shell.ok("import", "trip", file, "--format", format, "--agent", "planner", *words, "--json").json


def test_a_proper_request_is_found_proper(empty: Shell) -> None:
    """Nothing is broken, the exit code is 0, and no store is made."""
    ended = empty.ok("providers", "check", save(empty, ASKED), "--format", "openai-chat")

    assert ended.out == f"✓ request.json keeps the {len(RULES['openai-chat'])} rules of openai-chat\n"
    assert [each.name for each in empty.directory.iterdir()] == ["request.json"]


def test_a_torn_request_is_refused(empty: Shell) -> None:
    """With code, place and reason, and exit code 5."""
    ended = empty("providers", "check", save(empty, TORN), "--format", "openai-chat")

    assert ended.code == 5
    assert "C02" in ended.out
    assert "messages[2].tool_calls[0]" in ended.out
    assert "✗ request.json has 1 error by the rules of openai-chat" in ended.out


def test_programs_are_told_the_same(empty: Shell) -> None:
    """And what the API demands."""
    ended = empty("providers", "check", save(empty, TORN), "--format", "openai-chat", "--json")

    (broken,) = ended.json["broken"]
    assert (ended.code, ended.json["ok"]) == (5, False)
    assert (broken["code"], broken["level"]) == ("C02", "error")
    assert broken["demand"] == "every tool_call is answered before any other message"


def test_a_warning_refuses_nothing(empty: Shell) -> None:
    """It depends on whose server it is."""
    body = {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi."}]}

    words = ["providers", "check", save(empty, body), "--format", "openai-chat"]

    assert "warning" not in empty.ok(*words).out
    assert "with 1 warning" in empty.ok(*words, "--provider", "deepseek").out


@pytest.mark.parametrize(
    ("content", "format", "code"),
    [("{}", "telex", 3), ("no json", "openai-chat", 2), ("[]", "openai-chat", 2), (None, "openai-chat", 3)],
)
def test_what_cannot_be_checked_is_told(empty: Shell, content: str | None, format: str, code: int) -> None:
    """By the exit code and in words."""
    if content is not None:
        (empty.directory / "request.json").write_text(content, encoding="utf-8")

    ended = empty("providers", "check", "request.json", "--format", format)

    assert ended.code == code
    assert ended.err


def test_every_format_has_a_provider(empty: Shell) -> None:
    """Names, formats and servers, without a store."""
    listed = empty.ok("providers", "--json").json["providers"]

    assert {each["format"] for each in listed} == set(APIS)
    assert {each["name"]: each["format"] for each in listed}["openai"] == "openai-responses"


def test_a_saved_request_becomes_a_thread(empty: Shell) -> None:
    """Import makes the store and the thread; calls are in the ledger as made elsewhere."""
    told = bring(empty, ASKED)

    assert (told["messages"], told["calls"], told["losses"]) == (6, 1, [])
    assert empty.ok("threads", "show", "trip", "--json").json["agent"] == "planner"
    (call,) = empty.ok("calls", "ls", "trip", "--json").json["calls"]
    assert (call["tool"], call["state"]) == ("look", "succeeded")


def test_the_same_import_twice_is_one(empty: Shell) -> None:
    """If it has an op id."""
    first = bring(empty, ASKED, "--op-id", "one")

    assert bring(empty, ASKED, "--op-id", "one")["head"] == first["head"]


@pytest.mark.parametrize("body", [{"what": 1}, "words", 7])
def test_what_is_no_conversation_makes_nothing(empty: Shell, body: object) -> None:
    """No store, no thread."""
    ended = empty("import", "trip", save(empty, body), "--format", "openai-chat", "--agent", "planner")

    assert ended.code == 2
    assert [each.name for each in empty.directory.iterdir()] == ["request.json"]


def test_a_saved_conversation_is_added_to_the_thread_that_an_option_names(empty: Shell) -> None:
    """As with the thread before the file; a thread that is there needs no agent again, one that is not needs one."""
    file = save(empty, ASKED)
    asked = ("import", file, "--thread", "trip", "--format", "openai-chat", "--json")

    refused = empty(*asked)
    first = empty.ok(*asked, "--agent", "planner").json
    again = empty.ok(*asked, "--whole").json
    twice = empty("import", "trip", file, "--thread", "trip", "--format", "openai-chat", "--json")

    assert (refused.code, refused.error["code"]) == (2, "agent_missing")
    assert (first["messages"], again["messages"], again["agent"]) == (6, 0, "planner")
    assert twice.error["code"] == "options_conflict"


def test_what_is_no_session_is_imported_as_a_conversation(empty: Shell) -> None:
    """A message list alone needs an agent, and its format where the content does not decide it."""
    file = save(empty, ASKED)
    plain = save(empty, [{"role": "user", "content": "Weather?", "name": "ann"}], "plain.json")

    alone = empty("import", file, "--json")
    without = empty("import", plain, "--thread", "trip", "--json")

    assert (alone.error["code"], "--agent NAME" in alone.error["hint"]) == ("agent_missing", True)
    assert without.error["code"] == "format_missing"
    assert all(api in without.error["hint"] for api in ("openai-chat", "anthropic-messages", "ollama-chat"))
    assert "gemini-generate" not in without.error["hint"]
    assert "--agent NAME" in without.error["hint"]


def test_a_list_of_words_needs_no_format(empty: Shell) -> None:
    """It means the same in each of them; control: with a tool's message it does not."""
    said = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "Rain."}]
    asked = ("import", save(empty, said), "--thread", "trip", "--agent", "planner", "--json")

    added = empty.ok(*asked).json

    assert (added["messages"], added["format"]) == (2, "openai-chat")
    assert len(formats_of([*said, {"role": "tool", "content": "Rain."}])) > 1


@pytest.mark.parametrize(
    "format",
    [api for api in APIS if api not in ("mistral-chat", "azure-inference-chat", "gemini-interactions")],
)
def test_the_format_of_a_conversation_with_calls_is_found(empty: Shell, format: str) -> None:
    """By what that format alone writes."""
    bring(empty, ASKED)
    save(
        empty,
        json.loads(empty("export", "trip", "--format", format, "--model", "some-model").out),
        "out.json",
    )

    found = empty.ok("import", "out.json", "--thread", "again", "--agent", "planner", "--json").json

    assert found["format"] == format
    assert spoken(empty, "again") == spoken(empty, "trip")


RAIN = {"role": "assistant", "content": "Rain."}
SUNDAY = {"role": "user", "content": "And on Sunday?"}


def test_a_conversation_that_was_imported_before_adds_nothing(empty: Shell) -> None:
    """Nor does it after other messages, or a part of it; `--again` adds it on purpose."""
    once = bring(empty, ASKED)
    words = spoken(empty, "trip")

    told = empty.ok("import", save(empty, ASKED), "--thread", "trip").out
    assert "Nothing was added" in told
    assert "--again" in told
    assert (spoken(empty, "trip"), bring(empty, ASKED)["head"]) == (words, once["head"])

    bring(empty, [SUNDAY])
    part = bring(empty, {**ASKED, "messages": ASKED["messages"][:3]})
    assert (bring(empty, ASKED)["messages"], part["messages"]) == (0, 0)
    assert bring(empty, ASKED, "--again")["messages"] == 6


def test_a_conversation_that_has_grown_adds_the_rest(empty: Shell) -> None:
    """However often it grew, and however it is given again."""
    bring(empty, ASKED)
    longer = {**ASKED, "messages": [*ASKED["messages"], RAIN]}
    longest = {**ASKED, "messages": [*longer["messages"], SUNDAY]}

    first, second = bring(empty, longer), bring(empty, longest)

    assert [(each["messages"], each["repeated"]) for each in (first, second)] == [(1, 6), (1, 7)]
    assert bring(empty, longest)["messages"] == bring(empty, longer)["messages"] == 0
    assert spoken(empty, "trip")[-2:] == [("assistant", "Rain."), ("user", "And on Sunday?")]


def test_a_conversation_that_went_on_in_two_ways_is_refused(empty: Shell) -> None:
    """What would be doubled is counted, and nothing is written."""
    bring(empty, ASKED)
    bring(empty, [SUNDAY])
    words = spoken(empty, "trip")
    file = save(empty, {**ASKED, "messages": [*ASKED["messages"], RAIN]})

    refused = empty("import", file, "--thread", "trip", "--json")

    assert (refused.code, refused.error["code"]) == (4, "import_overlaps")
    assert (refused.error["facts"]["alike"], refused.error["facts"]["differs"]) == (6, 7)
    assert "--again" in refused.error["hint"]
    assert spoken(empty, "trip") == words


def test_what_was_said_here_after_an_import_is_not_added_again(empty: Shell) -> None:
    """A list that has it too adds nothing, and one that has more adds the rest."""
    bring(empty, ASKED)
    with perdure.open(empty.store) as store:
        agent = Agent("planner", backend=Script(say("Rain.")))
        store.thread("trip", agent=agent).run("And on Sunday?")
    here = [*ASKED["messages"], SUNDAY, RAIN]
    words = spoken(empty, "trip")

    same = empty.ok("import", save(empty, {**ASKED, "messages": here}), "--thread", "trip")
    grown = empty.ok("import", save(empty, {**ASKED, "messages": [*here, SUNDAY]}), "--thread", "trip")

    assert "Nothing was added" in same.out
    assert "Added 1 message" in grown.out
    assert spoken(empty, "trip")[-3:] == [*words[-2:], ("user", "And on Sunday?")]


def test_a_conversation_that_is_new_is_added_whole(empty: Shell) -> None:
    """Control: other words repeat nothing."""
    bring(empty, ASKED)

    assert bring(empty, [SUNDAY])["repeated"] == 0


@pytest.mark.parametrize("is_first", [False, True])
def test_a_conversation_that_was_edited_is_refused_with_the_commands_that_take_it(
    empty: Shell, is_first: bool
) -> None:
    """A fork of the moment before where there is one; the fork then has the rest alone."""
    bring(empty, ASKED)
    bring(empty, {**ASKED, "messages": [*ASKED["messages"], RAIN, SUNDAY, RAIN]})
    said = [*ASKED["messages"], RAIN, SUNDAY, {"role": "assistant", "content": "Sun."}]
    said = [{"role": "user", "content": "Hm?"}, *said[1:]] if is_first else said
    file = save(empty, {**ASKED, "messages": said})

    refused = empty("import", file, "--thread", "trip", "--json")

    assert refused.code == 4
    assert "--again" in refused.error["hint"]
    assert ("threads fork" in refused.error["hint"]) is not is_first
    if not is_first:
        empty.ok("threads", "fork", "trip", "other", "--at", refused.error["facts"]["after"])
        added = empty.ok("import", file, "--thread", "trip", "--timeline", "other", "--json").json
        assert added["messages"] == 2


def test_a_thread_of_another_agent_is_left_alone(shell: Shell) -> None:
    """It is a conflict."""
    ended = shell("import", "shopping", save(shell, ASKED), "--format", "openai-chat", "--agent", "planner")

    assert ended.code == 4


@pytest.mark.parametrize("format", APIS)
def test_a_thread_goes_out_in_every_format_and_comes_in_again(empty: Shell, format: str) -> None:
    """The request keeps the rules of its format, and says the same when it is read."""
    bring(empty, ASKED)

    ended = empty("export", "trip", "--format", format, "--model", "some-model")
    (empty.directory / "out.json").write_text(ended.out, encoding="utf-8")
    empty.ok("import", "again", "out.json", "--format", format, "--agent", "planner")

    assert ended.code == 0
    assert not [each for each in check(json.loads(ended.out), format) if each.level == "error"]
    assert spoken(empty, "again") == spoken(empty, "trip")


def spoken(shell: Shell, thread: str) -> list[tuple[str, str]]:
    """Who said what in a thread."""
    messages = shell.ok("threads", "show", thread, "--json").json["messages"]
    return [(each["role"], each["text"]) for each in messages if each["text"]]


def test_an_export_for_no_model_names_none(shell: Shell) -> None:
    """The model is left out."""
    assert "model" not in json.loads(shell.ok("export", "shopping", "--format", "openai-chat").out)


def test_losses_stand_beside_what_is_exported(empty: Shell) -> None:
    """On the error stream, so that the output is the request alone."""
    bring(empty, TORN)

    ended = empty("export", "trip", "--format", "mistral-chat")

    assert json.loads(ended.out)["messages"]
    assert "could not be carried over unchanged" in ended.err
    assert empty("export", "trip", "--format", "mistral-chat", "--json").json["losses"]


def test_a_rendered_request_is_kept_in_a_file(empty: Shell) -> None:
    """Its losses go to the error stream, so what is printed is JSON."""
    bring(empty, TORN)

    ended = empty("threads", "render", "trip", "--to", "mistral:mistral-large-latest")

    assert json.loads(ended.out)["messages"]
    assert "could not be carried over unchanged" in ended.err


def test_a_moment_is_rendered_as_it_was(shell: Shell) -> None:
    """With --at a REF, with --timeline another line."""
    words = ["threads", "render", "shopping", "--to", "openai-chat:gpt-5.6", "--json"]

    assert len(shell.ok(*words).json["body"]["messages"]) == 6
    assert len(shell.ok(*words, "--at", "turn:1").json["body"]["messages"]) == 2
    assert "bread" in json.dumps(shell.ok(*words, "--timeline", "what-if").json["body"])


@pytest.mark.parametrize(("backend", "code"), [("telex:one", 3), ("nothing-like-it", 2)])
def test_an_unknown_backend_is_told(shell: Shell, backend: str, code: int) -> None:
    """By name."""
    assert shell("threads", "render", "shopping", "--to", backend).code == code


def test_an_export_says_what_only_sending_needs(shell: Shell) -> None:
    """The request is the conversation; the error stream names what --sendable puts in."""
    plain = shell("export", "shopping", "--format", "gemini-generate")
    sendable = shell("export", "shopping", "--format", "gemini-generate", "--sendable")

    assert [each["role"] for each in json.loads(plain.out)["contents"]][-1] == "model"
    assert [each["role"] for each in json.loads(sendable.out)["contents"]][-1] == "user"
    assert "--sendable" in plain.err
    assert "--sendable" not in sendable.err
    facts = shell("export", "shopping", "--format", "gemini-generate", "--json").json
    assert [each["kind"] for each in facts["unsendable"]] == ["repaired"]


@pytest.mark.parametrize("format", ["sqlite", "otlp"])
def test_only_a_request_is_made_sendable(shell: Shell, format: str) -> None:
    """Tables and spans are sent to no model."""
    ended = shell("export", "shopping", "--format", format, "--sendable", "--json")

    assert ended.error["code"] == "options_conflict"


def test_a_request_is_exported_to_a_new_file(shell: Shell) -> None:
    """The same as is printed; control: a file that is there stays as it is."""
    words = ("export", "shopping", "--format", "openai-chat")
    printed = shell.ok(*words).out

    told = shell.ok(*words, "--output", "f.json").out
    again = shell(*words, "--output", "f.json", "--json")

    assert (shell.directory / "f.json").read_text() == printed
    assert "f.json" in told
    assert again.error["code"] == "file_exists"


@pytest.mark.parametrize(
    ("format", "reply"),
    [
        (
            "gemini-generate",
            {
                "candidates": [
                    {"content": {"role": "model", "parts": [{"text": "x", "thoughtSignature": "c2ln"}]}}
                ]
            },
        ),
        (
            "anthropic-messages",
            {
                "role": "assistant",
                "type": "message",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "c2ln"},
                    {"type": "text", "text": "x"},
                ],
            },
        ),
        (
            "bedrock-converse",
            {
                "output": {
                    "message": {
                        "role": "assistant",
                        "content": [
                            {"reasoningContent": {"reasoningText": {"text": "t", "signature": "c2ln"}}},
                            {"text": "x"},
                        ],
                    }
                },
                "stopReason": "end_turn",
            },
        ),
    ],
)
def test_an_export_for_no_model_holds_no_signature(empty: Shell, format: str, reply: dict[str, Any]) -> None:
    """It is a loss, also where it is not known which model signed; control: the thread keeps it."""
    empty.ok("import", save(empty, reply), "--thread", "trip", "--agent", "a", "--format", format)

    plain = empty.ok("export", "trip", "--format", format, "--json").json

    assert "c2ln" not in json.dumps(plain["body"])
    assert "c2ln" in empty.ok("sql", "select * from provider_metadata", "--json").out
    assert plain["losses"]
