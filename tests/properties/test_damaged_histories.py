"""Whatever a history looks like, what is rendered of it is valid everywhere."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings

from holdfast.model.context import Context
from holdfast.providers import adapter
from holdfast.providers.registry import APIS
from holdfast.providers.rules import check
from tests.properties.histories import contexts
from tests.recorded.oracles import oracle
from tests.recorded.pairs import MODELS

DEEP = bool(os.environ.get("HOLDFAST_DEEP"))
CASES = 3_000 if DEEP else 250  # for each of seven targets: 21,000 in a deep run, each for two models
RELAXED = settings(max_examples=CASES, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@pytest.mark.parametrize("target", APIS)
@RELAXED
@given(context=contexts())
def test_a_damaged_history_is_rendered_validly(target: str, context: Context) -> None:
    """No exception is raised, no rule of level error is broken, the types are the SDK's, and it is so every time."""
    judge = oracle(target)

    for model in MODELS[target]:
        rendered = adapter(target).render(context, model=model)
        broken = check(rendered.body, target, model=model)
        assert [each for each in broken if each.level == "error"] == []
        assert judge(rendered.body) == []
        assert json.dumps(rendered.body, ensure_ascii=False).encode()
        assert adapter(target).render(context, model=model) == rendered
