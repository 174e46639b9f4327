"""The losses are right for fields that the recorded traffic seldom has, or never together.

The audit's tables were made while looking at that traffic.  The conversations in `rare.jsonl` were not: each is a
request with names, phases, redacted thinking, guarded words, marks, sound, film, halves of tool calls or fields that
that no table knows.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from perdure.model.context import Context
from perdure.model.message import Message
from perdure.providers import adapter
from perdure.providers.registry import APIS
from tests.recorded.audit import audited, silent
from tests.recorded.leaves import given
from tests.recorded.pairs import MODELS
from tests.recorded.test_losses import ELSEWHERE


class Asked(msgspec.Struct, frozen=True):
    """A request of a vendor's own format."""

    name: str
    api: str
    provider: str
    request: dict[str, object]

    @property
    def model(self) -> str:
        """The model that it asks."""
        return str(self.request.get("model") or self.request.get("modelId") or MODELS[self.api][0])

    def context(self) -> Context:
        """What it shows."""
        return adapter(self.api).read_request(self.request, model=self.model, provider=self.provider)


LINES = (Path(__file__).parent / "rare.jsonl").read_text().splitlines()
ASKED = {asked.name: asked for asked in (msgspec.convert(json.loads(line), Asked) for line in LINES)}


@pytest.mark.parametrize("name", ASKED)
def test_the_losses_are_what_is_missing(name: str) -> None:
    """For every format: nothing is absent that no loss names, and no loss names what is there unchanged."""
    asked = ASKED[name]
    context, wrong = asked.context(), list[object]()
    leaves = list(given(context))

    for target in APIS:
        own = target == asked.api
        for model in (*MODELS[target], *((asked.model,) if own else ())):
            for provider in (None, asked.provider, ELSEWHERE.get(target, "elsewhere")) if own else (None,):
                made = adapter(target).render(context, model=model, provider=provider)
                is_home = own and provider in (None, asked.provider)
                found = audited(context, made, leaves, own=is_home)
                wrong += [(target, model, provider, *found)] if found != ([], []) else []

    assert wrong == []


def test_the_conversations_have_something_to_lose() -> None:
    """Control: without their losses, most conversations are found to have lost something in silence."""
    caught: list[str] = []

    for name, asked in ASKED.items():
        context, target = (
            asked.context(),
            "azure-inference-chat" if "mistral" in asked.api else "mistral-chat",
        )
        made = adapter(target).render(context, model=MODELS[target][0])
        if silent(context, msgspec.structs.replace(made, losses=())):
            caught.append(name)

    assert len(caught) >= len(ASKED) * 3 // 4


def test_the_detail_of_a_picture_in_a_result_goes_back() -> None:
    """Chat's own server is shown a result's picture in the detail that the request asked for."""
    asked = ASKED["openai-chat: tool picture"]

    made = adapter(asked.api).render(asked.context(), model=asked.model, provider=asked.provider)

    assert made.body["messages"][-1]["content"][1]["image_url"]["detail"] == "low"


def test_a_loss_names_the_thought_that_is_left_out() -> None:
    """Reasoning that OpenAI knows by its id alone is lost at the places of its words."""
    asked = ASKED["openai-responses: reasoning by id alone"]

    made = adapter(asked.api).render(asked.context(), model=asked.model, provider=asked.provider)

    assert [loss.where for loss in made.losses] == ["messages[1].content[0]", "messages[1].content[1]"]


def test_a_result_that_was_never_recorded_is_no_loss() -> None:
    """The words that stand for a missing result are reported with its call, and once."""
    context = ASKED["openai-chat: bad arguments"].context()
    unanswered = [Message("user"), *context.messages[1:2]]

    target = "openai-responses"
    made = adapter(target).render(Context(messages=unanswered), model=MODELS[target][0])

    assert "tool error" not in {loss.what for loss in made.losses}
