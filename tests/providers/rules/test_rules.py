"""The validator: each rule finds what breaks it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import NotFound
from perdure.providers.registry import APIS
from perdure.providers.validator import RULES, check
from perdure.providers.validator.rule import Rule
from tests.coded import raises
from tests.providers.rules.examples import BROKEN, CLEAN, Example

ALL = {rule.code: rule for rules in RULES.values() for rule in rules}


def codes(example: Example) -> set[str]:
    """The codes of what an example breaks."""
    api, body, provider, model = example
    return {each.code for each in check(body, api, provider=provider, model=model)}


def test_every_format_has_rules() -> None:
    """What can be rendered can be checked."""
    assert set(RULES) == set(APIS)


@pytest.mark.parametrize("api", APIS)
def test_a_proper_request_breaks_nothing(api: str) -> None:
    """Control: calls, results, reasoning and pictures in their places."""
    assert codes(CLEAN[api]) == set()


@pytest.mark.parametrize("code", ALL)
def test_what_breaks_a_rule_is_found(code: str) -> None:
    """Every rule has a request that breaks it."""
    assert code in codes(BROKEN[code])


@pytest.mark.parametrize("rule", ALL.values(), ids=lambda rule: rule.code)
def test_a_rule_is_named_by_its_code(rule: Rule) -> None:
    """The function, the code, and the sentence belong together."""
    assert getattr(rule.broken, "__name__", "") == rule.code.lower()
    assert rule.demand[0].islower() or rule.demand.startswith("budget")
    assert not rule.demand.endswith(".")


def test_a_place_is_named_as_it_is_found() -> None:
    """The way into the request, and what is wrong there."""
    api, body, *_ = BROKEN["A05"]

    (broken,) = check(body, api)

    assert (broken.code, broken.level, broken.where) == ("A05", "error", "messages[0].content[0]")
    assert broken.why == "its text is empty"


def test_whose_server_it_is_matters() -> None:
    """Fields that OpenAI ignores are refused by Groq."""
    api, body, *_ = BROKEN["C17"]

    assert not [each for each in check(body, api) if each.level == "error"]


def test_an_unknown_format_is_refused() -> None:
    """By name, with those there are."""
    with raises(NotFound, "rules_not_found", api="telex", known=list(RULES)):
        check({}, "telex")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["role", "content", "type", "text", "id", "parts", "tool_calls", "function", "name", "toolUse", "source"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("api", APIS)
@given(
    parts=st.dictionaries(
        st.sampled_from(["messages", "input", "contents", "tools", "system", "toolConfig"]), JSON
    )
)
def test_nonsense_is_no_crash(api: str, parts: dict[str, Any]) -> None:
    """Whatever stands in a request, the answer is a list."""
    assert isinstance(check(parts, api), list)
