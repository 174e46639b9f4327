"""Document ops change one place, never their input, and say exactly why they do not fit."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Invalid, NotFound, PerdureError
from perdure.history.changes.json_edits import apply, check_place
from perdure.model.patch import Verb
from tests.coded import raises

DOCUMENT: Any = {"list": [1, 2, {"deep": True}], "n": 1, "text": "t", "none": None}

FITS: list[tuple[Verb, tuple[str | int, ...], Any, Any]] = [
    ("set", (), 5, 5),
    ("set", ("n",), 5, DOCUMENT | {"n": 5}),
    ("set", ("new",), 5, DOCUMENT | {"new": 5}),
    ("set", ("list", 0), "x", DOCUMENT | {"list": ["x", 2, {"deep": True}]}),
    ("set", ("list", 2, "deep"), None, DOCUMENT | {"list": [1, 2, {"deep": None}]}),
    ("unset", ("n",), None, {"list": DOCUMENT["list"], "text": "t", "none": None}),
    ("unset", ("list", 1), None, DOCUMENT | {"list": [1, {"deep": True}]}),
    ("append", ("list",), 3, DOCUMENT | {"list": [1, 2, {"deep": True}, 3]}),
    ("insert", ("list", 0), 0, DOCUMENT | {"list": [0, 1, 2, {"deep": True}]}),
    ("insert", ("list", 3), 9, DOCUMENT | {"list": [1, 2, {"deep": True}, 9]}),
    ("remove", ("list",), 2, DOCUMENT | {"list": [1, {"deep": True}]}),
    ("remove", ("list",), {"deep": True}, DOCUMENT | {"list": [1, 2]}),
    ("merge", (), {"n": 2, "m": 3}, DOCUMENT | {"n": 2, "m": 3}),
    ("merge", ("list", 2), {"more": 1}, DOCUMENT | {"list": [1, 2, {"deep": True, "more": 1}]}),
    ("increment", ("n",), 2, DOCUMENT | {"n": 3}),
    ("increment", ("n",), -0.5, DOCUMENT | {"n": 0.5}),
    ("increment", ("list", 1), 1, DOCUMENT | {"list": [1, 3, {"deep": True}]}),
]

REFUSED: list[tuple[Verb, tuple[str | int, ...], Any, type[PerdureError], str, dict[str, object]]] = [
    ("set", ("absent", "x"), 1, NotFound, "place_not_found", {"place": ("absent",)}),
    ("set", ("list", 3), 1, NotFound, "place_not_found", {"place": ("list", 3)}),
    ("set", ("list", -1), 1, NotFound, "place_not_found", {"place": ("list", -1)}),
    (
        "set",
        ("list", "x"),
        1,
        Invalid,
        "place_has_other_kind",
        {"place": ("list",), "found": "a list of 3", "expected": "an object"},
    ),
    ("set", ("n", 0), 1, Invalid, "place_has_other_kind", {"found": "a number", "expected": "a list"}),
    (
        "set",
        ("none", "x", "y"),
        1,
        Invalid,
        "place_has_other_kind",
        {"place": ("none",), "found": "null", "expected": "an object with the key 'x'"},
    ),
    ("unset", (), None, Invalid, "place_required", {"verb": "unset"}),
    ("unset", ("absent",), None, NotFound, "place_not_found", {"place": ("absent",)}),
    ("unset", ("list", 9), None, NotFound, "place_not_found", {"place": ("list", 9)}),
    ("unset", ("text", 0), None, Invalid, "place_has_other_kind", {"found": "a string"}),
    ("append", ("n",), 1, Invalid, "place_has_other_kind", {"found": "a number"}),
    ("append", (), 1, Invalid, "place_has_other_kind", {"place": (), "found": "an object"}),
    ("insert", (), 1, Invalid, "place_required", {"verb": "insert"}),
    ("insert", ("list", 4), 1, NotFound, "place_not_found", {"place": ("list", 4)}),
    ("insert", ("list", "x"), 1, Invalid, "index_required", {}),
    ("insert", ("n", 0), 1, Invalid, "place_has_other_kind", {"found": "a number"}),
    ("remove", ("list",), 7, NotFound, "list_item_not_found", {"place": ("list",)}),
    ("remove", ("list",), 1.0, NotFound, "list_item_not_found", {}),
    ("remove", ("list",), True, NotFound, "list_item_not_found", {}),
    ("remove", ("n",), 1, Invalid, "place_has_other_kind", {"expected": "a list"}),
    ("merge", ("list",), {}, Invalid, "place_has_other_kind", {"expected": "an object"}),
    ("merge", (), [1], Invalid, "argument_has_other_kind", {"found": "a list of 1"}),
    ("increment", ("text",), 1, Invalid, "place_has_other_kind", {"found": "a string"}),
    ("increment", ("list", 2, "deep"), 1, Invalid, "place_has_other_kind", {"found": "true"}),
    ("increment", ("n",), "1", Invalid, "argument_has_other_kind", {"found": "a string"}),
    ("increment", ("n",), True, Invalid, "argument_has_other_kind", {"found": "true"}),
]


@pytest.mark.parametrize(("verb", "at", "argument", "expected"), FITS, ids=map(str, range(len(FITS))))
def test_an_op_that_fits(verb: Verb, at: tuple[str | int, ...], argument: Any, expected: Any) -> None:
    """One place changes, and everything else stays."""
    assert apply(DOCUMENT, verb, at, argument, path="/d.json") == expected


@pytest.mark.parametrize(
    ("verb", "at", "argument", "error", "code", "facts"), REFUSED, ids=map(str, range(len(REFUSED)))
)
def test_an_op_that_does_not_fit(
    verb: Verb,
    at: tuple[str | int, ...],
    argument: Any,
    error: type[PerdureError],
    code: str,
    facts: dict[str, object],
) -> None:
    """The error names path, place and what is there instead."""
    with raises(error, code, path="/d.json", **facts):
        apply(DOCUMENT, verb, at, argument, path="/d.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=8,
)
VERBS = st.sampled_from(["set", "unset", "append", "merge", "increment", "insert", "remove"])
PLACES = st.lists(st.sampled_from(["a", "b"]) | st.integers(-1, 3), max_size=3).map(tuple)


@given(JSON, VERBS, PLACES, JSON)
def test_the_input_is_never_altered(document: Any, verb: Verb, at: Any, argument: Any) -> None:
    """Whether an op fits or not, the document and the argument it was given stay as they were."""
    before = copy.deepcopy((document, argument))

    with suppress(Invalid, NotFound):
        apply(document, verb, at, argument, path="/d.json")

    assert (document, argument) == before


@pytest.mark.parametrize("at", ["a.b", 5, None, [1.0], [True], [["a"]], {"a": 1}], ids=repr)
def test_a_place_is_keys_and_indexes(at: Any) -> None:
    """Dotted strings and everything else are refused."""
    with raises(Invalid, "place_invalid"):
        check_place(at)


def test_a_list_is_a_place_too() -> None:
    """Control: what programs write most is taken."""
    assert check_place(["a", 0]) == ("a", 0)
