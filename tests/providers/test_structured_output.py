"""The schema of a type becomes one that backends take as strict."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.providers.structured_output import output_of


class Leg(msgspec.Struct):
    """A part."""

    flight: str


class Trip(msgspec.Struct):
    """A whole."""

    legs: list[Leg]
    price: int


class Node(msgspec.Struct):
    """Something that holds others of its kind."""

    children: list[Node]


def shape(kind: type) -> Any:
    """What the option says for a type."""
    return output_of(msgspec.json.schema(kind))


def test_a_schema_begins_with_its_object() -> None:
    """No reference stands at the root, and every object is closed."""
    made = shape(Trip)

    assert (made["name"], made["strict"]) == ("Trip", True)
    assert made["schema"]["type"] == "object"
    assert made["schema"]["additionalProperties"] is False
    assert set(made["schema"]["$defs"]) == {"Leg"}
    assert made["schema"]["$defs"]["Leg"]["additionalProperties"] is False


def test_a_recursive_schema_keeps_its_definition() -> None:
    """What is referred to has to stay."""
    assert set(shape(Node)["schema"]["$defs"]) == {"Node"}


def test_an_object_that_is_open_on_purpose_stays_open() -> None:
    """A map has no fields of its own to be closed."""
    made = shape(dict[str, int])

    assert made["schema"]["additionalProperties"] == {"type": "integer"}
    assert made["name"] == "output"
