"""Arguments that models wrote: others' JSON, taken exactly or refused in words that help."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Invalid
from perdure.ledger.call_identity import fingerprint_of
from perdure.runtime.tools.tool import tool
from tests.coded import raises


class Box(pydantic.BaseModel):
    """Something with a size."""

    size: int


@tool(effect="none")
def pack(n: int = 0, of: list[int] | None = None, what: Any = None, box: Box | None = None) -> None:
    """Pack."""


@pytest.mark.parametrize("raw", ["", "  \n", "{}"])
def test_no_arguments_are_an_empty_object(raw: str) -> None:
    """Some models write nothing at all."""
    assert pack.validated(raw).normal == {"n": 0, "of": None, "what": None, "box": None}


@pytest.mark.parametrize("number", [2**53 + 1, 2**64 + 1, -(10**30), 10**400])
def test_integers_stay_exact(number: int) -> None:
    """Through hinted parameters and through any JSON."""
    arguments = pack.validated(f'{{"n": {number}, "what": [{number}]}}')

    assert arguments.values["n"] == arguments.normal["n"] == number
    assert arguments.values["what"] == arguments.normal["what"] == [number]
    assert len(fingerprint_of("pack", None, dict(arguments.normal))) == 64


def test_an_integral_float_is_taken_for_an_integer() -> None:
    """JSON does not tell 1 from 1.0, and models write either, also inside."""
    arguments = pack.validated('{"n": 1.0, "of": [2.0, 3]}')

    assert (arguments.values["n"], arguments.values["of"]) == (1, [2, 3])
    assert type(arguments.values["n"]) is int


def test_any_json_stays_as_it_came() -> None:
    """Where no integer is asked for, a float is left alone."""
    assert repr(pack.validated('{"what": 1.0}').normal["what"]) == "1.0"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"n": "1"}', "`n`: expected `int`, got `str`"),
        ('{"n": 1.5}', "`n`: expected `int`, got `float`"),
        ('{"n": true}', "`n`: expected `int`, got `bool`"),
        ('{"of": [1, "x"]}', "`of[1]`: expected `int`, got `str`"),
        ('{"seats": 1}', "unknown field `seats`"),
        ('{"box": {"size": "big"}}', "`box`: `size`: Input should be a valid integer"),
        ('{"n": 1, "n": 2}', "the field `n` appears twice"),
        ('{"what": {"a": 1, "a": 2}}', "the field `a` appears twice"),
        ('{"n": NaN}', "NaN is not JSON"),
        ('{"what": -Infinity}', "-Infinity is not JSON"),
        ('{"what": 1e999}', "1e999 is too large a number"),
        ('{"n": 1', "they are not JSON"),
        ("{'n': 1}", "they are not JSON"),
        ("[1]", "they are an array, not an object"),
        ("null", "they are null, not an object"),
        ('"{}"', "they are a string, not an object"),
        ('{"what": ' + "[" * 70 + "]" * 70 + "}", "nested deeper than 64"),
        ('{"what": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper than 64"),
        ('{"what": ' + "9" * 5_000 + "}", "they are not JSON"),
    ],
)
def test_a_refusal_names_the_field_and_says_what_to_do(raw: str, words: str) -> None:
    """A model can mend its call by it."""
    with raises(Invalid, "arguments_refused", tool="pack") as refused:
        pack.validated(raw)

    assert words in str(refused.value.facts["why"])
    assert refused.value.advice


def test_a_missing_field_is_named() -> None:
    """With the word that the schema has for it."""

    def send(to: str) -> None: ...

    with raises(Invalid, "arguments_refused", why="missing required field `to`"):
        tool(send).validated("{}")


@pytest.mark.parametrize(
    "raw", ['{"what": "a\\ud800b"}', '{"what": ["a\ud800b"]}', '{"what": {"a\\udfffb": 1}}']
)
def test_lone_surrogates_are_replaced(raw: str) -> None:
    """A tool gets text that can be encoded; the raw text is kept elsewhere."""
    shown = repr(pack.validated(raw).values["what"])

    assert "a\ufffdb" in shown
    shown.encode()


def test_halves_of_a_letter_that_stand_together_are_joined() -> None:
    """An emoji written as two escapes, or as two raw halves, is that emoji."""
    assert pack.validated('{"what": "\\ud83d\\ude00"}').values["what"] == "😀"
    assert pack.validated('{"what": "\ud83d\ude00"}').values["what"] == "😀"


def test_keys_that_become_equal_are_refused_as_twice() -> None:
    """Replacing must not let one of two values disappear."""
    with raises(Invalid, "arguments_refused", why="the field `\ufffd` appears twice"):
        pack.validated('{"what": {"\\ud800": 1, "\\ud801": 2}}')


@given(st.text())
def test_whatever_text_comes_the_answer_is_arguments_or_invalid(raw: str) -> None:
    """Never another error, and never words that cannot be sent."""
    try:
        pack.validated(raw)
    except Invalid as refused:
        str(refused).encode()
