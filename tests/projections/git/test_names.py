"""Names from data as names in a git tree."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.projections.git import branch_of, path_of, segment_of

TRICKS = [
    *(
        ".",
        "..",
        "...",
        ".git",
        ".GIT",
        ".Git",
        "git~1",
        "GIT~1",
        ".git.",
        ".git ",
        ".git...",
        ".git::$INDEX",
    ),
    *(".g\u200cit", "\u200d.git", ".git\u200b", "\ufeff.git", ".gitmodules", ".gitattributes", ".gitignore"),
    *(
        "con",
        "NUL.txt",
        "com1",
        "lpt9.a.b",
        "aux.",
        "a\\b",
        "a:b",
        "C:",
        "*",
        "?",
        "~",
        "-rf",
        '"quoted"',
        "'",
    ),
    *(
        "a\nb",
        "\r",
        "\x00",
        "\x1b[31m",
        "a\tb",
        " ",
        " a",
        "a ",
        "a.",
        "",
        "%",
        "%41",
        "%value",
        "%_",
        "%h",
        "A%",
    ),
    *(
        "\ud800",
        "\u202egit.",
        "\uff0egit",
        "\u2044",
        "é",
        "заметки",
        "笔记",
        "😀",
        "x" * 500,
        "." * 300,
        "é" * 300,
    ),
]
SEGMENTS = st.text(max_size=300) | st.sampled_from(TRICKS)


def read_back(segment: str) -> str:
    """The text that a segment was written for; not for one that is hashed."""
    if segment == "%_":
        return ""
    return unquote_to_bytes(segment).decode("utf-8", "surrogatepass")


@given(SEGMENTS)
def test_what_is_written_can_be_read_back(text: str) -> None:
    """So two names never become one."""
    written = segment_of(text)

    assert "%h" in written or read_back(written) == text


@given(st.text(min_size=200, max_size=600), st.text(min_size=200, max_size=600))
def test_what_is_too_long_is_told_apart_by_its_hash(one: str, other: str) -> None:
    """Two long names with the same beginning stay two."""
    common = "x" * 200

    assert (segment_of(common + one) == segment_of(common + other)) == (one == other)


@given(SEGMENTS)
def test_a_segment_is_a_harmless_file_name_everywhere(text: str) -> None:
    """No separator, no control, nothing invisible, no dot at either end, at most 200 bytes, no device."""
    written = segment_of(text)

    assert 0 < len(written.encode()) <= 200
    assert not re.search(r"[/\\:*?\"<>|~\s\x00-\x1f\x7f]|^\.|\.$|\.\.", written)
    assert not re.match(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", written, re.IGNORECASE)
    assert not {unicodedata.category(letter) for letter in written} & {
        "Cc",
        "Cf",
        "Cs",
        "Co",
        "Zs",
        "Zl",
        "Zp",
    }


@pytest.mark.parametrize(
    "text", ["todos.json", "a-b_c", "2026", "Notes", "é.txt", "заметки", "笔记", "a@b=c+d,e"]
)
def test_an_ordinary_name_stays_as_it_is(text: str) -> None:
    """People find what they look for."""
    assert segment_of(text) == text


def test_which_characters_stay_is_no_question_to_the_unicode_tables() -> None:
    """A character that this Python does not know yet is treated as one that it knows."""
    unassigned = next(
        chr(code) for code in range(0x1E000, 0x1F000) if unicodedata.category(chr(code)) == "Cn"
    )

    assert segment_of(unassigned) == unassigned


def test_a_path_with_others_below_it_has_another_file() -> None:
    """Its name is a directory's there."""
    assert path_of("/a", above=False) == "a"
    assert path_of("/a", above=True) == "a/%value"
    assert path_of("/a//.git/", above=False) == "a/%_/%2Egit/%_"


@pytest.mark.parametrize(
    ("timeline", "branch"),
    [
        ("main", "main"),
        ("main.v12", "main.v12"),
        ("a/b", "a%2Fb"),
        ("a..b", "a.%2Eb"),
        ("x.", "x%2E"),
        ("x.lock", "x%2Elock"),
        ("x.lock/y.lock", "x.lock%2Fy%2Elock"),
    ],
)
def test_a_timeline_is_a_branch_of_one_segment(timeline: str, branch: str) -> None:
    """Git refuses some names, and `a` beside `a/b`."""
    assert branch_of(timeline) == branch


@given(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}", fullmatch=True))
def test_every_name_of_a_timeline_is_one_that_git_takes(timeline: str) -> None:
    """By the rules of git-check-ref-format."""
    name = branch_of(timeline)

    assert not re.search(r"\.\.|[\x00-\x20\x7f~^:?*\[\\/]|@\{|^\.|\.$|\.lock$|^-", name)
    assert len(name) <= 200
