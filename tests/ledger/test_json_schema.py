"""Answers: what the schema says is checked, and what cannot be checked is refused beforehand."""

from __future__ import annotations

import json

import pytest

from perdure.errors import Invalid, Unsupported
from perdure.ledger import json_schema
from perdure.model.canonical import Json
from tests.coded import raises

PERSON: Json = {
    "$defs": {"Age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "title": "Person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "age": {"anyOf": [{"$ref": "#/$defs/Age"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"enum": ["a", 1]}, "minItems": 1, "maxItems": 2},
        "kind": {"const": "person"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "answer",
    [
        {"name": "Ann"},
        {"name": "Ann", "age": 3.0},
        {"name": "Ann", "age": None, "tags": ["a", 1], "kind": "person"},
    ],
)
def test_an_answer_that_fits_passes(answer: Json) -> None:
    """Every rule that is checked has one that keeps it."""
    json_schema.check_schema(json.dumps(PERSON))
    json_schema.check_answer(json.dumps(PERSON), answer)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ([], "the answer is not object"),
        ({}, "the answer lacks name"),
        ({"name": 1}, "the answer['name'] is not string"),
        ({"name": ""}, "the answer['name'] is under the limit of 1"),
        ({"name": "Annabel"}, "the answer['name'] is over the limit of 5"),
        (
            {"name": "A", "age": -1},
            "the answer['age'] is under the limit of 0 and the answer['age'] is not null",
        ),
        ({"name": "A", "age": 2.5}, "the answer['age'] is not integer and the answer['age'] is not null"),
        ({"name": "A", "age": True}, "the answer['age'] is not integer and the answer['age'] is not null"),
        (
            {"name": "A", "age": 151},
            "the answer['age'] is over the limit of 150 and the answer['age'] is not null",
        ),
        ({"name": "A", "tags": []}, "the answer['tags'] is under the limit of 1"),
        ({"name": "A", "tags": ["a", "a", "a"]}, "the answer['tags'] is over the limit of 2"),
        ({"name": "A", "tags": [True]}, "the answer['tags'][0] is none of [\"a\", 1]"),
        ({"name": "A", "kind": "dog"}, "the answer['kind'] is not \"person\""),
        ({"name": "A", "other": 1}, "the answer['other'] is not allowed"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(answer: Json, fault: str) -> None:
    """The refusal names the place."""
    with raises(Invalid, "schema_mismatch", fault=fault):
        json_schema.check_answer(json.dumps(PERSON), answer)


@pytest.mark.parametrize("keyword", ["pattern", "oneOf", "not", "if", "patternProperties", "multipleOf"])
def test_a_keyword_that_is_not_checked_is_refused(keyword: str) -> None:
    """Also deep inside: nothing is ignored in silence."""
    inside = {"type": "array", "items": {"properties": {"x": {keyword: "y"}}}}

    with raises(Unsupported, "schema_keyword", keyword=keyword):
        json_schema.check_schema(json.dumps(inside))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "not_json"),
        ("3", "schema_invalid"),
        ('{"properties": 3}', "schema_invalid"),
        ('{"anyOf": {}}', "schema_invalid"),
        ('{"items": 5}', "schema_invalid"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, code: str) -> None:
    """Before the question is asked."""
    with raises(Invalid, code):
        json_schema.check_schema(text)


def test_a_reference_outside_is_refused() -> None:
    """Schemas are not fetched."""
    with raises(Unsupported, "schema_reference", reference="https://example.com/x"):
        json_schema.check_schema('{"$ref": "https://example.com/x"}')


def test_a_schema_that_refers_to_itself_ends() -> None:
    """However deep the answer is."""
    text = '{"$defs":{"L":{"anyOf":[{"$ref":"#/$defs/L"},{"type":"null"}]}},"$ref":"#/$defs/L"}'
    json_schema.check_schema(text)

    json_schema.check_answer(text, None)
    with raises(Invalid, "schema_mismatch"):
        json_schema.check_answer(text, 1)


def test_values_keep_big_integers_and_refuse_what_is_no_json() -> None:
    """A person's text is taken exactly."""
    assert json_schema.parse_value(str(2**70), "the value") == 2**70
    for wrong in ("NaN", "{", '{"a":1,"a":1}', '"\ud800"'):
        with raises(Invalid, "not_json"):
            json_schema.parse_value(wrong, "the value")


ORDER: Json = {
    "$defs": {"Line": {"properties": {"sku": {}, "count": {"default": 1}}}},
    "properties": {
        "lines": {"items": {"$ref": "#/$defs/Line"}},
        "gift": {"default": False},
        "note": {"default": float("nan")},
        "ship": {"properties": {"fast": {"default": True}}},
        "odd": {"$ref": "https://example.com/x"},
    },
}


def test_defaults_are_filled_in_where_a_field_is_left_out() -> None:
    """Also in lists, in objects and behind references; what is no JSON, or has no schema here, is left out."""
    given: Json = {"lines": [{"sku": "a"}, {"sku": "b", "count": 2}], "ship": {}, "odd": {"x": 1}}

    assert json_schema.with_defaults(ORDER, given) == {
        "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}],
        "gift": False,
        "ship": {"fast": True},
        "odd": {"x": 1},
    }


def test_filling_in_a_schema_that_refers_to_itself_ends() -> None:
    """A schema is written by others, and may have no end."""
    endless: Json = {"$defs": {"L": {"$ref": "#/$defs/L"}}, "$ref": "#/$defs/L"}

    assert json_schema.with_defaults(endless, {"x": 1}) == {"x": 1}
