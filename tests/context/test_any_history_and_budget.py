"""Whatever was said, and however little room there is: what is shown is valid, within the budget, and whole in its pairs."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perdure
from perdure import Agent, ContextLimits, Message
from perdure.context.budget import budget_of
from perdure.model.recipe import Frame
from perdure.providers import tokens
from perdure.providers.catalog import shipped
from tests.context.lines import BACKENDS, answer, asking, check_pairs, check_valid, search, user

CASES = 200 if os.environ.get("PERDURE_DEEP") else 5  # for each of nine backends

_texts = st.builds(
    lambda word, count: word * count,
    st.sampled_from(["rain ", "été ", "12 ", "{}\n", "雨"]),
    st.integers(1, 400),
)
_ids = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3, unique=True)
_messages = st.one_of(
    st.builds(user, _texts),
    st.builds(lambda text: Message("assistant", (perdure.Text(text),)), _texts),
    st.builds(lambda ids, text: asking(*ids, text=text), _ids, st.one_of(st.just(""), _texts)),
    st.builds(lambda ids, text: answer(*((id, text) for id in ids)), _ids, _texts),
)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=CASES, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    history=st.lists(st.lists(_messages, min_size=1, max_size=6), max_size=12),
    window=st.integers(3_000, 12_000),
    turns=st.integers(1, 6),
    was_on=st.booleans(),
)
def test_what_is_shown_is_valid_and_fits(
    backend: str, history: list[list[Message]], window: int, turns: int, was_on: bool
) -> None:
    """A line with any messages, shown to its own backend or to another, within any window."""
    limits = ContextLimits(window=window, turns=turns)
    before = "script:other" if was_on else None
    declared = perdure.testing.Script(backend=before) if before else None
    agent = Agent("planner", backend=declared, instructions="Plan.", tools=[search], context=limits)
    with perdure.open("memory:") as store:
        thread = store.thread("trip", agent=agent)
        for part in history:
            with thread.change("said") as change:
                for message in part:
                    change.add(message)

        plan = thread.plan(backend)

        check_pairs(plan.context.messages)
        check_valid(thread, backend)
        assert plan.fits
        counted = tokens.count(plan.context, model=backend)
        assert counted.count <= window - plan.reserved
        assert all(item.why for item in plan.items)


def test_without_a_budget_the_same_would_not_fit() -> None:
    """The control: a history that is cut to fit is too large when nobody cuts it."""
    roomy, narrow = ContextLimits(window=1_000_000), ContextLimits(window=4_000)
    with perdure.open("memory:") as store:
        thread = store.thread("trip", agent=Agent("planner", context=roomy))
        with thread.change("said") as change:
            change.add(user("rain " * 20_000))

        whole = thread.plan("openai:gpt-5.6")
        budget = budget_of("openai:gpt-5.6", narrow, frame=Frame(), models=shipped)

        assert whole.tokens > (budget.room or 0)
