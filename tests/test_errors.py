"""The error tree: families that a caller treats differently, messages that say what was not done."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from perdure import errors
from perdure.errors import (
    Busy,
    Conflict,
    Corrupt,
    Decided,
    Forgotten,
    Held,
    InDoubt,
    Invalid,
    MergeConflict,
    Moved,
    NotDone,
    NotFound,
    OpReused,
    PathConflict,
    PerdureError,
    Refused,
    RunFailed,
    Sealed,
    ServerChanged,
    StaleHead,
    Unavailable,
    Unsupported,
    WrongStore,
)
from perdure.model.digest import Digest
from perdure.model.head import Head

OLD, NEW = Head("main", 1, None), Head("main", 2, Digest("ab" * 32))

EXAMPLES: list[PerdureError] = [
    StaleHead(OLD, NEW),
    Moved("lease/main", 1, 2),
    Busy("run-7", "12:00"),
    Decided("approval t-1 was decided otherwise by ann"),
    Sealed("main.v3"),
    MergeConflict([PathConflict("/a", None, "ab", "cd", "both wrote it")]),
    OpReused("op-1"),
    WrongStore("planner", "home.db", "other.db"),
    Conflict("somebody was first"),
    NotFound("there is no such thing"),
    Forgotten("value abc", "user asked"),
    Invalid("that is not a name"),
    Corrupt("bytes differ"),
    Unsupported("cannot do that"),
    Refused(["item"]),
    Held("trip", "agents.db"),
    ServerChanged("openai:gpt-5.6", recorded="https://proxy.example", resolved="https://api.openai.com/v1"),
    Unavailable("the disk is full", retry_after=1.5),
    InDoubt("op-1", "the disk went away"),
    NotDone("the card was declined"),
    RunFailed("run-7"),
]


def drawn() -> dict[str, str]:
    """Each error of the module's docstring, and the error that it hangs from there."""
    parents: dict[str, str] = {}
    line: list[str] = []
    for branch, name in re.findall(r"^    ([│├└─ ]*)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE):
        line = [*line[: len(branch) // 4], name]
        if len(line) > 1:
            parents[name] = line[-2]
    return parents


def kinds() -> dict[str, type[PerdureError]]:
    """Every error that the module defines."""
    members = inspect.getmembers(errors, inspect.isclass)
    return {name: each for name, each in members if issubclass(each, PerdureError)}


def test_the_tree_is_the_one_that_is_drawn() -> None:
    """Every error of the module hangs where its docstring says, and can be imported."""
    parents = {name: each.__bases__[0].__name__ for name, each in kinds().items() if each is not PerdureError}

    assert drawn() == parents
    assert set(errors.__all__) >= set(kinds())


def test_there_is_an_example_of_each_error() -> None:
    """The tests below leave none out."""
    assert {type(error) for error in EXAMPLES} | {PerdureError} == set(kinds().values())


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_crosses_a_process_boundary(error: PerdureError) -> None:
    """Pickled or copied, it is the same kind with the same message and facts."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@pytest.mark.parametrize(
    "error",
    [
        error
        for error in EXAMPLES
        if isinstance(error, StaleHead | Busy | Sealed | OpReused | WrongStore | Refused | MergeConflict)
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_says_that_nothing_was_done(error: PerdureError) -> None:
    """Whoever reads it knows that trying again loses nothing."""
    assert "nothing was" in str(error)


def test_a_stale_head_says_both_places_and_what_to_do() -> None:
    """The facts are attributes, and the message has them in words."""
    error = StaleHead(OLD, NEW)

    assert (error.expected, error.actual) == (OLD, NEW)
    assert str(error) == (
        "timeline 'main' is at version 2 (abababababab), but this write was based on version 1 "
        "(nothing committed); nothing was written. Read it again and decide again."
    )


def test_doubt_says_how_to_end_it() -> None:
    """A write in doubt is whole or absent, and its op_id settles which."""
    error = InDoubt("op-1", "the disk went away")

    assert (error.op_id, error.why, error.retry_after) == ("op-1", "the disk went away", None)
    assert "either whole or absent" in str(error)
    assert "same op_id" in str(error)
    assert InDoubt("op-1").why == ""
    assert str(InDoubt("op-1")).startswith("the outcome of write 'op-1' is not known. It is either")


def test_invalid_input_is_a_value_error_too() -> None:
    """Code that knows nothing of Perdure can catch it."""
    assert isinstance(Invalid("x"), ValueError)


def test_each_public_class_has_a_code_of_its_name() -> None:
    """A program that catches a family still knows which error it has."""
    assert (StaleHead(OLD, NEW).code, Invalid("no name").code, InDoubt("op-1").code) == (
        "stale_head",
        "invalid",
        "in_doubt",
    )


def test_an_error_carries_its_own_code_and_facts() -> None:
    """What a message tells can be read without the message."""
    error = NotFound("path '/a' has no value.", code="path_not_found", advice="See paths().", path="/a")

    assert (error.code, error.facts) == ("path_not_found", {"path": "/a"})
    assert str(error) == "path '/a' has no value. See paths()."


def test_a_busy_timeline_and_an_interrupted_run_have_different_codes() -> None:
    """What helps differs, so the codes differ too."""
    assert [Busy("run-7", "12:00", interrupted=each).code for each in (False, True)] == [
        "busy",
        "run_interrupted",
    ]
