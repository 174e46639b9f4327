"""Canonical bytes: one JSON text for one value, and nothing that JSON cannot hold."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Corrupt, Invalid
from perdure.model import canonical
from perdure.model.canonical import DEPTH_MAX, INT_MAX
from perdure.model.patch import Delete
from tests.coded import raises

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-INT_MAX, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


def reference(value: Any) -> bytes:
    """The canonical bytes as the standard library would write them, keys in the order of their UTF-8 bytes."""
    return json.dumps(arranged(value), ensure_ascii=False, separators=(",", ":")).encode()


def arranged(value: Any) -> Any:
    """`value` with sorted keys and without a minus on zero."""
    match value:
        case dict():
            return {key: arranged(value[key]) for key in sorted(value, key=lambda key: key.encode())}
        case list():
            return [arranged(item) for item in value]
        case float():
            return value + 0.0
        case _:
            return value


def nested(depth: int, bottom: Any) -> Any:
    """`bottom` inside so many lists."""
    for _ in range(depth):
        bottom = [bottom]
    return bottom


class Colour(enum.StrEnum):
    RED = "red"


class Name(str):
    __slots__ = ()


class Count(int):
    pass


@given(VALUES)
def test_bytes_are_those_of_the_standard_library(value: Any) -> None:
    """The fast way and the way by `repr` write what `json.dumps` writes."""
    assert canonical.encode(value) == reference(value)


@given(VALUES)
def test_a_value_comes_back_from_its_bytes(value: Any) -> None:
    """Decoding gives the value, types included, and encoding it again the same bytes."""
    body = canonical.encode(value)

    again = canonical.decode(body)

    assert again == value
    assert canonical.encode(again) == body
    assert canonical.parse(body.decode()) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_written_as_python_writes_it(value: float) -> None:
    """Every float has one text, which reads back as the same float."""
    assert canonical.encode(value) == repr(value + 0.0).encode()
    assert canonical.encode([value, 1e300]) == f"[{value + 0.0!r},1e+300]".encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e16, "1e+16"),
        (9999999999999998.0, "9999999999999998.0"),
        (1e15, "1000000000000000.0"),
        (1e-4, "0.0001"),
        (9.999e-5, "9.999e-05"),
        (1e-7, "1e-07"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.1 + 0.2, "0.30000000000000004"),
        (0.0, "0.0"),
        (-0.0, "0.0"),
        (-1.5, "-1.5"),
        (1.0, "1.0"),
        (1, "1"),
        (INT_MAX, "9007199254740991"),
        (-INT_MAX, "-9007199254740991"),
        (True, "true"),
        (None, "null"),
    ],
)
def test_numbers_have_one_text(value: Any, text: str) -> None:
    """1 and 1.0 are distinct; minus zero is zero."""
    assert canonical.encode(value) == text.encode()
    assert canonical.encode({"a": [value]}) == b'{"a":[%s]}' % text.encode()


def test_minus_zero_is_written_as_zero_beside_any_other_float() -> None:
    """A value has the same bytes wherever it stands, whichever encoder is used for the rest."""
    assert canonical.encode({"b": -0.0, "a": [1.5, -0.0]}) == b'{"a":[1.5,0.0],"b":0.0}'
    assert canonical.encode([-0.0, 1e20]) == b"[0.0,1e+20]"


@pytest.mark.parametrize("other", [None, 1e20], ids=["fast", "by repr"])
def test_keys_are_sorted_by_their_utf8_bytes(other: float | None) -> None:
    """Not by UTF-16, in which U+10000 comes before U+FFFF; and without spaces."""
    value = {"\U00010000": 1, "\uffff": 2, "é": 3, "z": 4, "a": 5, "B": 6, "": other}

    body = canonical.encode(value)

    assert list(json.loads(body)) == ["", "B", "a", "z", "é", "\uffff", "\U00010000"]
    assert b" " not in body


@pytest.mark.parametrize("other", [None, 1e20], ids=["fast", "by repr"])
def test_text_is_utf8_and_escaped_only_where_json_demands(other: float | None) -> None:
    """Both ways escape the same characters in the same form."""
    text = '"\\/\b\f\n\r\t\x00\x1f\x7f\x80\u2028é日𝄞'
    escaped = '"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\x80\u2028é日𝄞"'

    assert canonical.encode([text, other]).startswith(f"[{escaped},".encode())


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1, 2},
        b"bytes",
        bytearray(b"bytes"),
        uuid.UUID(int=1),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        datetime.date(2026, 1, 1),
        decimal.Decimal("1.5"),
        Colour.RED,
        Name("ann"),
        Count(3),
        Delete("/a"),
        msgspec.UNSET,
        msgspec.Raw(b"1"),
        object(),
        ...,
        1j,
    ],
    ids=lambda value: type(value).__qualname__,
)
@pytest.mark.parametrize("inside", [False, True])
def test_what_is_no_json_is_refused_before_encoding(value: object, inside: bool) -> None:
    """Encoders would quietly turn some of these into text; the error says what it is and where."""
    with raises(Invalid, "json_type_unsupported") as refused:
        canonical.encode({"a": [0, value]} if inside else value)

    assert type(value).__qualname__ in str(refused.value)
    assert refused.value.facts["place"] == (("a", 1) if inside else ())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    """NaN and the infinities, wherever they stand, even beside floats that are fine."""
    for each in (value, [1e20, value], {"a": {"b": [value]}}):
        with raises(Invalid, "json_not_finite"):
            canonical.encode(each)


@pytest.mark.parametrize("value", [INT_MAX + 1, -INT_MAX - 1, 2**64, -(10**400)])
def test_integers_that_others_would_round_are_refused(value: int) -> None:
    """±(2^53-1) are the last that every reader of JSON keeps exactly."""
    with raises(Invalid, "json_integer_too_large", place=("n",)):
        canonical.encode({"n": value})


@pytest.mark.parametrize("key", [1, None, True, 1.5, ("a",), Name("a"), Colour.RED])
def test_keys_that_are_no_text_are_refused(key: Any) -> None:
    """JSON has no other keys, and encoders would make text of some."""
    with raises(Invalid, "json_key_not_text", place=("outer",)):
        canonical.encode({"outer": {key: 1}})


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ude00\ud83d"])
@pytest.mark.parametrize("other", [None, 1e20], ids=["fast", "by repr"])
def test_lone_surrogates_are_refused(text: str, other: float | None) -> None:
    """They are no text, in values and in keys, whichever encoder is used."""
    for value in ([text, other], {text: other}, {"a": {"b": [text]}, "c": other}):
        with raises(Invalid, "lone_surrogate"):
            canonical.encode(value)


def test_a_struct_with_a_lone_surrogate_is_refused_too() -> None:
    """Our own structs raise the same typed error as values."""
    with raises(Invalid, "lone_surrogate"):
        canonical.encode_struct(Delete("/\ud800"))


def test_depth_is_bounded() -> None:
    """64 levels are fine, one more is refused, and a value that holds itself ends there too."""
    assert canonical.encode(nested(DEPTH_MAX, 1)) == b"[" * DEPTH_MAX + b"1" + b"]" * DEPTH_MAX
    endless: list[Any] = []
    endless.append(endless)

    for value in (nested(DEPTH_MAX + 1, 1), nested(DEPTH_MAX, {}), endless):
        with raises(Invalid, "json_too_deep"):
            canonical.encode(value)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not_json"),
        ("{", "not_json"),
        ("[1,]", "not_json"),
        ("'a'", "not_json"),
        ("1 2", "not_json"),
        ("NaN", "json_not_finite"),
        ("-Infinity", "json_not_finite"),
        ("1e400", "json_not_finite"),
        ("9007199254740993", "json_integer_too_large"),
        ("1" * 5_000, "not_json"),
        ('"\\ud800"', "lone_surrogate"),
        ('{"a":1,"b":{"c":1,"c":2}}', "json_key_repeated"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), "json_too_deep"),
        ("[" * 100_000, "not_json"),
        ("\ufeff1", "not_json"),
    ],
    ids=lambda text: f"{len(text)} {text[:20]}",
)
def test_text_that_is_no_canonical_value_is_refused(text: str, code: str) -> None:
    """JSON that a person or a program wrote is checked like any other value, duplicate keys included."""
    with raises(Invalid, code):
        canonical.parse(text)


def test_a_duplicate_key_is_named() -> None:
    """One of the two values would be lost without a word."""
    with raises(Invalid, "json_key_repeated", key="c"):
        canonical.parse('{"a":1,"b":{"c":1,"d":3,"c":2}}')


def test_parsed_text_need_not_be_canonical() -> None:
    """Spaces, key order and escapes are the writer's business."""
    assert canonical.parse(' { "b" : 1.0 , "a" : "\\ud83d\\ude00" } ') == {"b": 1.0, "a": "😀"}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'"\xed\xa0\x80"', b"NaN", b"[1]x", b"[" * 100_000])
def test_stored_bytes_that_are_no_json_are_corrupt(body: bytes) -> None:
    """Damage is an error that says so, never an empty value."""
    with raises(Corrupt, "json_unreadable"):
        canonical.decode(body)


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, 2**60, float("nan")])
def test_a_refusal_says_what_to_write_instead(value: Any) -> None:
    """And names no file, which an installed package does not have."""
    with pytest.raises(Invalid) as refused:
        canonical.encode(value)

    assert refused.value.advice
    assert "docs/" not in str(refused.value)
