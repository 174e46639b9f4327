"""Messages and values as files."""

from __future__ import annotations

import json

from perdure.model.digest import Digest
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.projections.git import indented, is_indented, lost_value, message_files, state_file
from perdure.projections.transcript import TranscriptEntry

DIGEST = Digest("d" * 64)


def entry(words: Message | None, *, id: str = "m-1", forgotten: str | None = None) -> TranscriptEntry:
    """A message of a transcript."""
    role = words.role if words else "user"
    return TranscriptEntry(
        id=id,
        role=role,
        commit=DIGEST,
        state=DIGEST,
        at=0,
        words=words,
        forgotten=forgotten,
        provider="openai",
    )


def test_words_alone_are_one_file_of_text() -> None:
    """Just as they were said, with a line break at the end."""
    (file,) = message_files(entry(Message(role="user", content=(Text("Hello\n\n# you"),))), 12)

    assert file.path == "messages/00/00/000012-user-m-1.md"
    assert file.content == b"Hello\n\n# you\n"


def test_a_message_that_is_more_than_words_is_a_json_file_too() -> None:
    """The text tells of calls, results, media and thoughts; the other has all, arguments as they came."""
    message = Message(
        role="assistant",
        content=(
            ReasoningSummary("First\nthen"),
            Text("Done."),
            Image("artifact://x", "image/png"),
            File("f:", "a/b"),
        ),
        tool_calls=(ToolCall("c-1", "book", '{"n": 1.0,  "x": "```"}'),),
        tool_results=(ToolResult("c-0", "success", (Text("ok"),)),),
        vendor_metadata='{"openai":{}}',
    )

    text, whole = message_files(entry(message), 1_234_567)

    assert text.path == "messages/123/45/1234567-assistant-m-1.md"
    assert text.content.decode() == (
        "> First\n> then\n\nDone.\n\n[image, image/png](artifact://x)\n\n[file, a/b](f:)\n\n"
        '**Call** `book` (`c-1`)\n\n````json\n{"n": 1.0,  "x": "```"}\n````\n\n'
        "**Result** of `c-0`: success\n\n```\nok\n```\n"
    )
    assert whole.path == "messages/123/45/1234567-assistant-m-1.json"
    read = json.loads(whole.content)
    assert (read["id"], read["provider"]) == ("m-1", "openai")
    assert read["message"]["toolCalls"] == [{"id": "c-1", "name": "book", "args": '{"n": 1.0,  "x": "```"}'}]
    assert read["message"]["vendorMetadata"] == '{"openai":{}}'


def test_a_lone_surrogate_in_arguments_is_json_all_the_same() -> None:
    """What a model wrote is kept as it came, and the file is text."""
    message = Message(role="assistant", tool_calls=(ToolCall("c", "t", '"\ud800"'),))

    _, whole = message_files(entry(message), 1)

    assert json.loads(whole.content.decode())["message"]["toolCalls"][0]["args"] == '"\ud800"'


def test_a_message_that_was_forgotten_says_so_in_its_place() -> None:
    """With the reason that was given."""
    (file,) = message_files(entry(None, forgotten="the user asked"), 1)

    assert file.content == b"*This message was forgotten: the user asked.*\n"


def test_an_id_is_never_a_path() -> None:
    """Whatever it is made of."""
    (file,) = message_files(entry(Message(role="user"), id="../../.git/hooks/x"), 1)

    assert file.path == "messages/00/00/000001-user-%2E%2E%2F.%2E%2F.git%2Fhooks%2Fx.md"


def test_documents_stand_a_value_a_line_and_everything_else_as_it_is() -> None:
    """Numbers keep their spelling; what is very large is left alone."""
    assert indented(b'{"a":[1.0,12345678901234567890],"b":"x,y"}') == (
        b'{\n  "a": [\n    1.0,\n    12345678901234567890\n  ],\n  "b": "x,y"\n}\n'
    )
    assert is_indented("json", 1 << 20)
    assert not is_indented("json", (1 << 20) + 1)
    assert not is_indented("bytes", 1)


def test_a_value_that_was_forgotten_says_so_in_its_place() -> None:
    """With its size and its digest, by which it can still be proved."""
    told = lost_value(DIGEST, 12, "older than a year").decode()

    assert told == f"This value was forgotten: older than a year.\nIt had 12 bytes and the digest {DIGEST}.\n"


def test_no_path_of_a_state_has_the_name_of_a_mark() -> None:
    """A percent sign in a path is written as a code."""
    assert state_file("/%forgotten.md", above=False) == "state/%25forgotten.md"
