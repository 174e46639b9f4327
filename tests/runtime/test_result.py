"""Results: everything is kept, and a model is shown what it can use."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from typing import Any, get_args

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.errors import Invalid
from perdure.model.message import File, Image, Message, Text, ToolResult
from perdure.runtime.tools.result import PREVIEW_BYTES, NoResult, explain, keep, preview
from perdure.runtime.tools.signature import why_refused

REF = "artifact://sha256/" + "ab" * 32
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def shown(value: object, **options: Any) -> str:
    """The words that a model is shown of a result."""
    return "\n".join(block.text for block in preview(keep(value), REF, **options) if isinstance(block, Text))


@dataclasses.dataclass
class Seat:
    """One seat."""

    row: int
    at: datetime.date
    letter: str = "A"


class Point(msgspec.Struct, omit_defaults=True, tag="point", rename="camel"):
    """A place."""

    place_x: float = 0.5


class Box(pydantic.BaseModel):
    """Something with a size."""

    size: int


class Cabin(enum.Enum):
    """Where one sits."""

    FRONT = "front"


def test_text_is_kept_as_text() -> None:
    """In UTF-8, and shown as it is."""
    kept = keep("naïve")

    assert (kept.content, kept.media_type, kept.status) == (
        "naïve".encode(),
        "text/plain; charset=utf-8",
        "success",
    )
    assert preview(kept, REF) == (Text("naïve"),)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (2**70, str(2**70)),
        (1.5, "1.5"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ((1, 2), "[1,2]"),
        (Seat(1, datetime.date(2026, 1, 2)), '{"row":1,"at":"2026-01-02","letter":"A"}'),
        ([Point()], '[{"type":"point","placeX":0.5}]'),
        (Box(size=3), '{"size":3}'),
        ({"cabin": Cabin.FRONT}, '{"cabin":"front"}'),
    ],
)
def test_what_is_json_is_kept_as_json(value: object, text: str) -> None:
    """Objects by their fields, numbers exactly."""
    kept = keep(value)

    assert (kept.content.decode(), kept.media_type) == (text, "application/json")
    assert shown(value) == text


class Odd:
    """An object."""

    def __repr__(self) -> str:
        return "<odd>"


class Broken:
    """An object that cannot show itself."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def circle() -> list[Any]:
    """A list that holds itself."""
    items: list[Any] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "content", "words"),
    [
        (Odd(), "<odd>", "an Odd is not JSON"),
        ({"a": Odd()}, "{'a': <odd>}", "an Odd is not JSON"),
        (float("nan"), "nan", "it holds nan"),
        ([float("inf")], "[inf]", "it holds inf"),
        ({1}, "{1}", "a set is not JSON"),
        ({1: 2}, "{1: 2}", "the key 1, which is not a string"),
        (Odd, repr(Odd), "a type is not JSON"),
        (circle(), "[[...]]", "nested deeper than 64"),
        (Broken(), "<Broken whose repr raised RuntimeError>", "a Broken is not JSON"),
        (16**5000, "0x1" + "0" * 5000, "cannot be written as JSON"),
    ],
    ids=["object", "inside", "nan", "infinity", "set", "key", "class", "circle", "broken", "integer"],
)
def test_what_is_not_json_is_kept_as_its_repr_with_a_note(value: object, content: str, words: str) -> None:
    """It is never refused: the effect has happened."""
    kept = keep(value)

    assert (kept.content.decode(), kept.status) == (content, "success")
    assert words in shown(value)
    assert "Python repr" in shown(value)


def test_lone_surrogates_stay_in_what_is_kept_and_not_in_what_is_shown() -> None:
    """As text, and inside JSON."""
    for value in ("a\ud800b", {"k": "a\ud800b"}):
        assert b"a\xed\xa0\x80b" in keep(value).content
        assert "a\ufffdb" in shown(value)
        shown(value).encode()


@pytest.mark.parametrize(
    ("body", "media_type"),
    [(PNG, "image/png"), (b"%PDF-1.7 \x00", "application/pdf"), (b"\x00\xff", "application/octet-stream")],
)
def test_bytes_are_shown_by_reference(body: bytes, media_type: str) -> None:
    """With the media type that they speak for."""
    kept = keep(bytearray(body))

    words, block = preview(kept, REF)

    assert (kept.content, kept.media_type) == (body, media_type)
    assert isinstance(words, Text)
    assert REF in words.text
    assert block == (Image if media_type == "image/png" else File)(REF, media_type)


def test_bytes_that_are_text_are_shown_as_text() -> None:
    """Also JSON, and also when only the beginning looked like text."""
    assert shown(b'{"a": 1}') == '{"a": 1}'
    assert keep(b'{"a": 1}').media_type == "application/json"
    assert shown(memoryview(b"hello")) == "hello"
    assert keep(b"a" * 5_000 + b"\xff").media_type == "application/octet-stream"


def test_blocks_are_shown_as_they_are() -> None:
    """One, several, or a message's; kept as the JSON that they are in a message."""
    picture = Image("artifact://sha256/" + "cd" * 32, "image/png")

    kept = keep([Text("see"), picture])

    assert preview(kept, REF) == (Text("see"), picture)
    assert json.loads(kept.content)[1] == {"type": "image", "uri": picture.uri, "mimeType": "image/png"}
    assert keep(Message("tool", (Text("see"), picture))) == kept
    assert keep(Text("see")) == keep("see")


def test_a_tool_can_give_back_an_error_of_its_own() -> None:
    """It is a result like any other, and says so."""
    assert keep(ToolResult("c", "error", (Text("no such city"),))).status == "error"


def test_an_empty_result_is_said_in_words() -> None:
    """No backend takes an empty block."""
    for value in ("", "  \n", b"", Text(""), Message("tool"), [Text(""), Text(" ")]):
        assert shown(value) == "(the tool gave back an empty text)"


def test_a_long_result_is_shown_by_head_and_tail() -> None:
    """And the model is told where the whole is."""
    body = "begin " + "x" * 50_000_000 + " end"
    text = shown(body)

    assert len(text.encode()) < PREVIEW_BYTES + 300
    assert text.startswith("begin x")
    assert text.endswith("x end")
    assert f"the whole, {len(body):,} bytes, is kept as {REF}" in text
    assert len(keep(body).content) == len(body)


def test_a_result_of_just_the_limit_is_shown_whole() -> None:
    """One byte more is not."""
    assert shown("x" * PREVIEW_BYTES) == "x" * PREVIEW_BYTES
    assert REF in shown("x" * (PREVIEW_BYTES + 1))


def test_pictures_stay_when_words_are_cut() -> None:
    """The words are put together and cut; what is by reference is short already."""
    picture = Image("artifact://sha256/" + "cd" * 32, "image/png")

    blocks = preview(keep([Text("a" * 100), picture, Text("b" * 100)]), REF, preview_bytes=60)

    assert isinstance(blocks[0], Text)
    assert blocks[0].text.startswith("a" * 40 + "\n")
    assert blocks[0].text.endswith("\n" + "b" * 20)
    assert blocks[1:] == (picture,)


@given(st.text(min_size=60), st.integers(0, 40))
def test_no_character_is_cut_in_two(text: str, limit: int) -> None:
    """What is shown can be encoded, and its head and tail are the result's own."""
    words = shown(text, preview_bytes=limit)

    words.encode()
    if REF in words:
        assert "\ufffd" not in words or "\ufffd" in text


LEAVES = st.none() | st.booleans() | st.floats() | st.text() | st.binary() | st.sets(st.integers())


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_whatever_is_returned_is_kept_and_can_be_shown(value: object) -> None:
    """Never an error, never an empty block."""
    kept = keep(value)

    for block in preview(kept, REF):
        if isinstance(block, Text):
            assert block.text.strip()
            block.text.encode()


@pytest.mark.parametrize("state", get_args(NoResult))
def test_every_outcome_has_words(state: NoResult) -> None:
    """They name the tool and the reason, once."""
    (block,) = explain(state, "because of \ud800 this.", "book")

    assert isinstance(block, Text)
    assert "book" in block.text
    assert "because of \ufffd this." in block.text
    assert ".." not in block.text
    assert explain(state, "", "book") != (block,)


def test_an_unknown_outcome_warns_against_repeating_it() -> None:
    """It may have happened, and nobody shall simply try again."""
    for state in ("unknown", "needs_human"):
        (block,) = explain(state, "it did not end within 5 s", "pay")
        assert isinstance(block, Text)
        assert "may have happened" in block.text
        assert "Do not" in block.text
    (failed,) = explain("failed", "the card was declined", "pay")
    assert isinstance(failed, Text)
    assert "no effect" in failed.text


def test_refused_arguments_are_told_once() -> None:
    """What was wrong, that it was not run, and what to do: each in one place."""

    @perdure.tool(effect="none")
    def pack(box: str) -> str:
        return box

    with pytest.raises(Invalid) as refused:
        pack.validated('{"box": 1}')
    (block,) = explain("invalid", why_refused(refused.value), "pack")

    assert isinstance(block, Text)
    assert block.text.startswith("Error: the call to pack was not run: its arguments were refused, `box`")
    assert [block.text.count(each) for each in ("not run", "refused", "again")] == [1, 1, 1]


def test_a_thing_is_named_with_its_article() -> None:
    """An object, a list."""
    kept = keep(object())

    assert isinstance(kept.blocks[0], Text)
    assert kept.blocks[0].text.startswith("(The tool gave back an object; an object is not JSON.")
