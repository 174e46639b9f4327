"""What model inference lacks of Chat is left out, and reported."""

from __future__ import annotations

from perdure.model.context import Context, ToolSpec
from perdure.model.message import Message, Text
from perdure.providers.foundry.adapter import ADAPTER

HI = Message(role="user", content=(Text("hi"),))


def test_fields_that_it_lacks_are_left_out_and_reported() -> None:
    """Each by its name."""
    context = Context(
        messages=[HI],
        tools=[ToolSpec(name="f", strict=True)],
        options={"user": "ann", "n": 2, "seed": 3, "temperature": 0.5},
    )

    rendered = ADAPTER.render(context, model="phi-4")

    assert rendered.body["seed"] == 3
    assert "strict" not in rendered.body["tools"][0]["function"]
    assert {loss.what for loss in rendered.losses} == {"user", "n", "strict tool"}


def test_answers_are_kept_under_its_own_name() -> None:
    """So that no other server gets them back."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}

    reply = ADAPTER.parse({"id": "1", "model": "phi-4", "choices": [choice]})

    assert '"azure":{"endpoint":"azure","model":"phi-4","response_id":"1"' in (
        reply.message.vendor_metadata or ""
    )
