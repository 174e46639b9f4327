"""Arguments that models wrote: others' JSON, taken exactly or refused in words that help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
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


class Bill(pydantic.BaseModel):
    """What is to be paid, and when."""

    amount: Decimal = Decimal(10)
    due: datetime | None = None
    shares: set[Decimal] = set()


@dataclass
class Parcel:
    """Something with a weight."""

    weight: Decimal


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


@tool(effect="financial")
def pay(
    amount: Decimal = Decimal(10),
    at: datetime | None = None,
    bill: Bill | None = None,
    parcels: Sequence[Parcel] = (),
    seats: set[tuple[int, str]] = set(),  # noqa: B006
) -> None:
    """Pay."""


def fingerprint(raw: str) -> str:
    """The fingerprint of a payment."""
    return fingerprint_of("pay", None, dict(pay.validated(raw).normal))


@pytest.mark.parametrize(
    "spellings",
    [
        [
            "{}",
            *(
                f'{{"amount": {each}}}'
                for each in ("10", "10.0", "1e1", '"10"', '"10.00"', '"1E+1"', '"010"')
            ),
        ],
        ['{"amount": "-10.50"}', '{"amount": -10.5}', '{"amount": "-1050E-2"}'],
        ['{"amount": 0}', '{"amount": "0.00"}', '{"amount": "-0"}', '{"amount": "0E+9"}'],
        [
            '{"at": "2026-03-01T09:00:00Z"}',
            '{"at": "2026-03-01T10:00:00+01:00"}',
            '{"at": "2026-03-01T09:00:00.000Z"}',
        ],
        [
            '{"bill": {}}',
            '{"bill": {"amount": "10.00"}}',
            '{"bill": {"amount": 10, "due": null, "shares": []}}',
        ],
        ['{"bill": {"due": "2026-03-01T09:00:00Z"}}', '{"bill": {"due": "2026-03-01T10:00:00+01:00"}}'],
        ['{"bill": {"shares": ["1.0", "2"]}}', '{"bill": {"shares": [2, 1]}}'],
        ['{"parcels": [{"weight": 1}]}', '{"parcels": [{"weight": "1.000"}]}'],
        ['{"seats": [[1, "a"], [2, "b"]]}', '{"seats": [[2, "b"], [1, "a"], [1.0, "a"]]}'],
    ],
)
def test_one_payment_has_one_fingerprint_however_it_is_spelled(spellings: list[str]) -> None:
    """Amounts, moments and sets count by their value, also inside models: a model that asks again writes them otherwise."""
    assert len({fingerprint(raw) for raw in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"amount": "10"}', '{"amount": "100"}'),
        ('{"amount": "10"}', '{"amount": "-10"}'),
        ('{"amount": "1E+40"}', '{"amount": "1E+41"}'),
        ('{"amount": "1.0000000000000000000000000000000000000001"}', '{"amount": "1"}'),
        ('{"at": "2026-03-01T09:00:00"}', '{"at": "2026-03-01T09:00:00Z"}'),
        ('{"bill": {"amount": 10}}', '{"bill": {"amount": "10.01"}}'),
        ('{"seats": [[1, "a"]]}', '{"seats": [[1, "b"]]}'),
    ],
)
def test_another_amount_or_moment_is_another_payment(one: str, other: str) -> None:
    """No digit is rounded away, and a time without a zone is no moment."""
    assert fingerprint(one) != fingerprint(other)


def test_a_huge_exponent_costs_nothing() -> None:
    """A model may write a number with a billion digits in eleven characters."""
    assert pay.validated('{"amount": "1E+999999999"}').normal["amount"] == "1E+999999999"
