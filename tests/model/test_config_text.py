"""Documents that people write by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Invalid
from perdure.model.canonical import Json
from perdure.model.config_text import read_toml, read_yaml, write_yaml
from tests.coded import raises

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_reads_back(value: Json) -> None:
    """Every JSON value survives the way through a YAML text."""
    assert read_yaml(write_yaml(value)).value == value


def test_a_written_text_is_for_people() -> None:
    """Keys keep their order, plain words stay plain, long texts stand on lines of their own."""
    value: Json = {
        "kind": "Agent",
        "spec": {"tools": ["book", "yes"], "instructions": "One.\nTwo.\n", "size": 1.0},
    }

    assert write_yaml(value) == (
        'kind: Agent\nspec:\n  tools:\n    - book\n    - "yes"\n  instructions: |\n    One.\n    Two.\n  size: 1.0\n'
    )


def test_words_are_words() -> None:
    """Only true and false are truths; dates and versions stay text."""
    found = read_yaml("a: yes\nb: off\nc: true\nd: 2026-01-31\ne: 1.10.2\nf: 0x10\ng: ~\nh: 012\n").value

    assert found == {
        "a": "yes", "b": "off", "c": True, "d": "2026-01-31", "e": "1.10.2", "f": 16, "g": None, "h": 12.0,
    }  # fmt: skip


def test_every_value_knows_its_line() -> None:
    """A place leads to the line of its key, or of the nearest thing around it."""
    document = read_yaml("a: 1\nb:\n  - x\n  - y: 2\n    z: 3\n")

    assert document.line(("b", 1, "z")) == 5
    assert document.line(("b", 0)) == 3
    assert document.line(("b", 0, "nothing")) == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", 2),  # a key twice
        ("a: &x 1\nb: *x\n", 1),  # an anchor
        ("a: !!python/object:os.system x\n", 1),  # a tag
        ("a: 1\n---\nb: 2\n", 2),  # a second document
        ("a: [1\nb: 2\n", 2),  # no YAML
        ("? [a]\n: 1\n", 1),  # a key that is not text
        ("a: 1e999\n", 1),  # a number that cannot be stored
        ("[" * 100, 1),  # too deep
    ],
)
def test_what_is_more_than_json_is_refused(text: str, line: int) -> None:
    """An error names the line, and nothing is constructed."""
    with raises(Invalid, "document_invalid", line=line):
        read_yaml(text)


def test_toml_is_read_with_its_lines() -> None:
    """Tables, arrays of tables and dotted keys lead to their lines."""
    document = read_toml(
        'kind = "Agent"\n[spec]\nbackend = "a:b"\npolicy.block = ["x"]\n[[spec.more]]\nn = 1\n'
    )

    assert document.value == {
        "kind": "Agent",
        "spec": {"backend": "a:b", "policy": {"block": ["x"]}, "more": [{"n": 1}]},
    }
    assert document.line(("spec", "policy", "block")) == 4
    assert document.line(("spec", "more", 0, "n")) == 6


def test_toml_that_json_cannot_say_is_refused() -> None:
    """A date has no place in JSON."""
    with raises(Invalid, "document_invalid", line=2, place=("when",)):
        read_toml("a = 1\nwhen = 2026-01-31\n")
