"""Fingerprints: equal for the same call, and pinned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Invalid
from perdure.ledger.call_identity import fingerprint_of
from perdure.model.canonical import Json
from tests.coded import raises

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("arguments", "digest"),
    [
        ({}, "ad38e4e649b7997c79da7c3805cb8bf7ef1dafb0041385eb314c2078b6ca81c0"),
        ({"amount": 1, "to": "ä"}, "493a8db43702fbd0306d3cc7efdbdddbd48bbeec7b484b01f6a727dc32deeadd"),
        ({"rate": 0.1, "tiny": 1e-7}, "8ae9a8d9c645c6d4188eab344746275efc6f7a5c3066afcdc25fa99e0c9cddff"),
        (
            {"id": 2**70, "deep": [{"x": None}]},
            "397afad12419a8beb13212a75ab6e5ecfef9cd7751a0d030ce34aafdb460a037",
        ),
    ],
)
def test_fingerprints_are_pinned(arguments: Json, digest: str) -> None:
    """What was approved yesterday is recognised tomorrow."""
    assert fingerprint_of("pay", "2", arguments) == digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, -0.0),
        (10**20, 1e20),
        ([{"x": 3}], [{"x": 3.0}]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (2**53, float(2**53)),
        ("caf\u00e9", "cafe\u0301"),
        ([{"caf\u00e9": 1}], [{"cafe\u0301": 1}]),
    ],
)
def test_the_same_call_has_one_fingerprint(one: Json, other: Json) -> None:
    """Numbers count by their value, text in its composed form and keys in any order, also deep inside."""
    assert fingerprint_of("pay", None, {"v": one}) == fingerprint_of("pay", None, {"v": other})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "a "),
        ({"\u00e9": 1, "e\u0301": 2}, {"\u00e9": 2, "e\u0301": 1}),
        (1, "1"),
        (1, True),
        (0, None),
        (2**53, 2**53 + 1),
        ([1, 2], [2, 1]),
        (0.1, 0.10000000000000002),
    ],
)
def test_other_calls_have_other_fingerprints(one: Json, other: Json) -> None:
    """Big integers are exact, a type is part of the value, and no word is left out."""
    assert fingerprint_of("pay", None, {"v": one}) != fingerprint_of("pay", None, {"v": other})


def test_tool_and_version_are_part_of_it() -> None:
    """The same arguments to another tool, or to a later version of it, are another call."""
    found = {fingerprint_of(tool, version, {}) for tool in ("pay", "send") for version in (None, "1", "2")}

    assert len(found) == 6


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, (1,), b"x"])
def test_what_json_cannot_hold_has_none(value: object) -> None:
    """Refused, also inside."""
    with raises(Invalid, "arguments_not_json", tool="pay"):
        fingerprint_of("pay", None, {"v": value})  # pyright: ignore[reportArgumentType]


def test_a_lone_surrogate_has_a_fingerprint() -> None:
    """Models write them; the call must still be guarded."""
    assert fingerprint_of("pay", None, "\ud800") != fingerprint_of("pay", None, "\udc00")


def test_arguments_without_end_are_refused() -> None:
    """Depth is bounded before the interpreter's stack is."""
    deep: Json = 0
    for _ in range(100_000):
        deep = [deep]

    with raises(Invalid, "arguments_not_json", tool="pay"):
        fingerprint_of("pay", None, deep)


@given(JSON)
def test_floats_that_are_whole_never_matter(value: Json) -> None:
    """Writing every integer that fits as a float leaves the fingerprint as it was."""
    assert fingerprint_of("t", None, value) == fingerprint_of("t", None, _floated(value))


def _floated(value: Json) -> Json:
    match value:
        case bool():
            return value
        case int() if abs(value) < 2**53:
            return float(value)
        case dict():
            return {key: _floated(item) for key, item in value.items()}
        case list():
            return [_floated(item) for item in value]
        case _:
            return value
