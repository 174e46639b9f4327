"""Whatever a history looks like, what is rendered of it is valid everywhere."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings

from perdure.model.context import Context, ToolSpec
from perdure.model.message import Message, Text, ToolCall, ToolResult
from perdure.providers import adapter
from perdure.providers.registry import APIS
from perdure.providers.validator import check
from tests.properties.histories import contexts
from tests.recorded.oracles import oracle
from tests.recorded.pairs import MODELS

LOOK = ToolSpec(name="look", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
RESULT = ToolResult("call_1", "success", (Text("rain"),))
UNPAIRED = {"ollama-chat"}  # the servers that take a result without its call
DEEP = bool(os.environ.get("PERDURE_DEEP"))
CASES = 3_000 if DEEP else 15  # for each of nine targets: 27,000 in a deep run, each for two models
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


@pytest.mark.parametrize("target", APIS)
def test_the_same_damage_done_to_a_request_is_found(target: str) -> None:
    """Control: the rules and the types are not silent; a request that loses a part of itself is refused by one of them."""
    call = ToolCall("call_1", "look", '{"city": "Oslo"}')
    asked, told = Message("user", (Text("Is it raining?"),)), Message("tool", (), (), (RESULT,))
    whole = Context(messages=(asked, Message("assistant", (), (call,)), told, asked), tools=(LOOK,))
    model = MODELS[target][0]
    body = adapter(target).render(whole, model=model).body
    place = next(name for name in ("messages", "input", "contents") if name in body)

    def refused(parts: list[object]) -> bool:
        damaged = body | {place: parts}
        errors = [each for each in check(damaged, target, model=model) if each.level == "error"]
        return bool(errors or oracle(target)(damaged))

    assert not refused(body[place])
    shorter = [[*body[place][:at], *body[place][at + 1 :]] for at in range(len(body[place]))]
    assert any(refused(parts) for parts in shorter) is (target not in UNPAIRED)
    assert refused([*body[place], {"role": "nobody"}])
