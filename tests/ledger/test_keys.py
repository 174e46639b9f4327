"""Keys: stable, printable, one per call unless a template says otherwise."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.engines.contract import Instant
from perdure.errors import Invalid
from perdure.ledger import call_identity
from perdure.model.canonical import Json
from tests.coded import raises
from tests.ledger.books import Keeper


def filled(template: str, arguments: dict[str, Json], scope: str = "store", thread: str = "t") -> str:
    """The key that a template makes."""
    return call_identity.templated_key(template, arguments, agent="planner", thread=thread, scope=scope)


def test_the_default_key_is_pinned() -> None:
    """A service that saw it before an upgrade knows it afterwards."""
    assert call_identity.default_key("trip-42", "c1") == "pd-8ae240cea5d22700c6991f32c0ad58dc2c962dcc"


def test_thread_and_call_are_kept_apart_in_it() -> None:
    """Moving a letter from one to the other makes another key."""
    assert call_identity.default_key("ab", "c") != call_identity.default_key("a", "bc")


def test_a_template_takes_its_fields_from_the_arguments() -> None:
    """Text as it is, numbers by their value, the rest as JSON; braces can be written."""
    made = filled("create-{ticket}-{n}-{{x}}-{o}", {"ticket": "A1", "n": 2.0, "o": {"b": 1.0, "a": None}})

    assert made == 'create-A1-2-{x}-{"a":null,"b":1}'


def test_a_text_in_two_spellings_makes_one_key() -> None:
    """An é that is one character and one that is two are the same letter to the service."""
    assert filled("{to}", {"to": "caf\u00e9"}) == filled("{to}", {"to": "cafe\u0301"})


def test_a_key_of_the_thread_begins_with_agent_and_thread() -> None:
    """So two threads that fill the same template do not meet; a slash or colon does not blur it."""
    assert filled("{a}", {"a": "1"}, "thread") == "planner:t:1"
    assert filled("{a}", {"a": "y"}, "thread", "t:x") != filled("{a}", {"a": "x:y"}, "thread", "t")


@given(st.text(), st.text())
def test_a_key_is_printable_ascii_of_limited_length(value: str, thread: str) -> None:
    """Whatever the arguments hold, it can stand in a header."""
    made = filled("k-{v}", {"v": value}, "thread", thread.encode("utf-8", "replace").decode())

    assert made.isascii()
    assert made.isprintable()
    assert " " not in made
    assert len(made) <= call_identity.KEY_BYTES_MAX


def test_long_values_still_make_different_keys() -> None:
    """What is cut off counts."""
    assert filled("{v}", {"v": "x" * 500 + "1"}) != filled("{v}", {"v": "x" * 500 + "2"})


def test_a_template_names_arguments_that_are_there() -> None:
    """Anything else is refused, as early as it can be told."""
    assert call_identity.check_template("a-{x}-{y}") == {"x", "y"}
    for wrong in ("{}", "{x", "x}", "{x.y}", "{0}"):
        with raises(Invalid, "key_template_brace", template=wrong):
            call_identity.check_template(wrong)
    with raises(Invalid, "key_template_constant", template="plain"):
        call_identity.check_template("plain")
    with raises(Invalid, "key_argument_missing", argument="y"):
        filled("{y}", {"x": 1})


def test_a_key_lives_until_its_time() -> None:
    """Without one, for ever; a call without a key has none that lives."""
    record = Keeper().record("c")
    timed = msgspec.structs.replace(record, key_until=3_500_000, key_clock="boot-1")

    assert call_identity.stands(record, Instant("boot-9", 10**18)) == "alive"
    assert call_identity.stands(timed, Instant("boot-1", 3_499_999)) == "alive"
    assert call_identity.stands(timed, Instant("boot-1", 3_500_000)) == "over"
    assert call_identity.stands(msgspec.structs.replace(record, key=None), Instant("boot-1", 0)) == "over"


@pytest.mark.parametrize("clock", ["boot-2", None])
def test_the_age_of_a_key_is_not_known_on_another_clock(clock: str | None) -> None:
    """Neither after a reboot, nor where no clock was recorded: it counts neither as alive nor as over."""
    record = Keeper().record("c")
    timed = msgspec.structs.replace(record, key_until=3_500_000, key_clock=clock)

    ages = {call_identity.stands(timed, Instant("boot-1", at)) for at in (0, 10**18)}

    assert ages == {"unknown"}
