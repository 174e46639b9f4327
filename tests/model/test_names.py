"""Names: what can be a path, a name or an id, and what is refused with one defined error."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.names import (
    check_id,
    check_label,
    check_name,
    check_path,
    check_prefix,
    prefixes_of,
    under,
)
from tests.coded import raises

ODD_TEXTS = [
    "dots.and..dots",
    "slashes/and//slashes",
    "..",
    ".git",
    "it's",
    'say "x"',
    "`ticks`; DROP TABLE log; --",
    "100%_[a-z]*?",
    "back\\slash",
    "日本語",
    "é",
    "𝄞",
    unicodedata.normalize("NFC", "A\u030a"),
    "zero\u200bwidth",
    " spaces ",
    "-rf",
    "NULL",
]
CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
DIRECTION = [0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_text_is_only_text(text: str) -> None:
    """Quotes, wildcards, SQL, dots, slashes and any script name a thing like any other letters."""
    assert check_id("thread", text) == text
    assert check_label("reason", text) == text
    assert check_path("/" + text) == "/" + text


@pytest.mark.parametrize("code", CONTROL + DIRECTION, ids=hex)
def test_characters_that_cannot_be_seen_are_refused(code: int) -> None:
    """Control and direction characters can make one name look like another."""
    with raises(Invalid, "unseen_character", what="thread"):
        check_id("thread", f"a{chr(code)}b")
    with raises(Invalid, "unseen_character", what="path"):
        check_path(f"/a{chr(code)}")
    with raises(Invalid, "name_invalid", what="agent"):
        check_name("agent", f"a{chr(code)}")


@pytest.mark.parametrize("text", ["e\u0301", "\u1100\u1161", "\u212b", "\u2126"])
def test_text_that_is_not_nfc_is_refused(text: str) -> None:
    """Two spellings of one letter would be two names that look the same."""
    with raises(Invalid, "not_normalised", what="thread"):
        check_id("thread", text)
    with raises(Invalid, "not_normalised", what="path"):
        check_path(f"/{text}")


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_lone_surrogates_are_refused(text: str) -> None:
    """They are no text; the message itself can be printed all the same."""
    with raises(Invalid, "lone_surrogate", what="thread") as refused:
        check_id("thread", text)

    assert str(refused.value).isascii()


@pytest.mark.parametrize("text", ["", None, 5, b"bytes", ["a"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    """The error names the thing, not a type in our code."""
    with raises(Invalid, "not_text", what="call"):
        check_id("call", text)
    with raises(Invalid, "not_text", what="path"):
        check_path(text)
    with raises(Invalid, "name_invalid", what="agent"):
        check_name("agent", text)


@pytest.mark.parametrize("letter", ["x", "é", "字", "𝄞"])
def test_an_id_has_at_most_200_bytes(letter: str) -> None:
    """Bytes are counted, not letters."""
    size = len(letter.encode())
    fits = letter * (200 // size) + "x" * (200 % size)

    assert len(check_id("thread", fits).encode()) == 200
    with raises(Invalid, "text_too_long", what="thread", limit=200):
        check_id("thread", fits + "x")
    with raises(Invalid, "text_too_long", what="reason", limit=200):
        check_label("reason", fits + "x")


def test_a_path_has_at_most_512_bytes_and_32_segments() -> None:
    """One more of either is refused."""
    assert check_path("/" + "x" * 511)
    assert check_path("/a" * 32)
    with raises(Invalid, "text_too_long", what="path", limit=512):
        check_path("/" + "x" * 512)
    with raises(Invalid, "path_too_deep", limit=32):
        check_path("/a" * 33)


@pytest.mark.parametrize("path", ["/", "a", "a/b", "./a", " /a", "\\a"])
def test_a_path_starts_at_the_root_and_names_something(path: str) -> None:
    """'/' is the prefix of everything, and no path."""
    with raises(Invalid, "path_invalid"):
        check_path(path)


def test_a_prefix_is_the_root_or_a_path() -> None:
    """With or without a closing slash."""
    assert [check_prefix(prefix) for prefix in ("/", "/a", "/a/")] == ["/", "/a", "/a/"]
    for bad in ("", "a", "/a\n"):
        with pytest.raises(Invalid):
            check_prefix(bad)


@pytest.mark.parametrize(
    ("path", "prefix", "covered"),
    [
        ("/notes", "/notes", True),
        ("/notes/a", "/notes", True),
        ("/notes2", "/notes", False),
        ("/notes", "/notes/", False),
        ("/notes/a", "/notes/", True),
        ("/note", "/notes", False),
        ("/anything", "/", True),
        ("/a%b", "/a_b", False),
    ],
)
def test_a_prefix_covers_whole_segments(path: str, prefix: str, covered: bool) -> None:
    """'/notes' covers itself and what is below it, and no name that merely starts so."""
    own, below = prefixes_of(prefix)

    assert under(path, prefix) is covered
    assert (path == own or path.startswith(below)) is covered


@pytest.mark.parametrize(
    "name", ["a", "0", "planner", "main.v3", "what-if", "a_b", "team/planner", "a" * 63, "/".join("abcdefgh")]
)
def test_agents_and_timelines_have_plain_names(name: str) -> None:
    """Small letters, digits, dots, dashes and underscores in up to eight parts."""
    assert check_name("agent", name) == name


@pytest.mark.parametrize(
    "name",
    [
        "A",
        "-a",
        ".a",
        "_a",
        "a b",
        "a/",
        "/a",
        "a//b",
        "é",
        "a\n",
        "a'",
        "a%",
        "a" * 64,
        "/".join("abcdefghi"),
        "a/.b",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    """The error says what a name is."""
    with raises(Invalid, "name_invalid", what="timeline"):
        check_name("timeline", name)


def test_a_long_name_is_not_repeated_whole() -> None:
    """An error stays readable whatever was given."""
    with pytest.raises(Invalid) as refused:
        check_id("thread", "\u202e" * 100_000)

    assert len(str(refused.value)) < 300
