"""What a model takes none of is named in words, to it alone."""

from __future__ import annotations

from typing import Any

import perdure
from perdure import Agent, Image, Message, Text
from perdure.model.context import Context
from perdure.providers.capabilities import Level
from perdure.testing import Script, say

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


class Blind(Script):
    """A model without eyes."""

    window: int | None = 8_000

    def supports(self, capability: str) -> Level:
        """Everything but pictures."""
        return "none" if capability.startswith("image") else "full"


def pictures(context: Context) -> int:
    """How many pictures a model was shown."""
    return sum(isinstance(block, Image) for message in context.messages for block in message.content)


def pictured(agent: Agent) -> Any:
    """A thread with a picture in it."""
    thread = perdure.open("memory:").thread("t", agent=agent)
    digest = thread.artifacts.put(PNG, media_type="image/png")
    with thread.change("picture") as change:
        change.add(Message("user", (Text("Look."), Image(f"artifact://sha256/{digest}", "image/png"))))
    return thread


def test_a_model_without_eyes_is_told_of_a_picture_in_words() -> None:
    """The run succeeds, the words stand where the picture was, and the loss is in the history."""
    blind = Blind(say("I see words."), backend="script:blind")
    thread = pictured(Agent("a", backend=blind))

    thread.run("What is it?")

    (context,) = blind.contexts
    assert pictures(context) == 0
    assert "a picture (image/png), which this model cannot be shown" in context.messages[0].text
    (loss,) = thread.losses(thread.transcript(limit=1)[0])
    assert (loss.kind, loss.what, loss.where) == ("converted", "image", "messages[0].content[1]")


def test_a_model_with_eyes_sees_it() -> None:
    """Control: the same conversation, shown whole; and after the blind one had it."""
    seeing = Script(say("A bridge."), backend="script:eyes")
    thread = pictured(Agent("a", backend=Blind(say("Words."), backend="script:blind")))
    thread.run("What is it?")

    thread.switch(seeing)
    thread.run("And now?")

    assert pictures(seeing.contexts[0]) == 1


def test_what_was_shown_is_made_again_in_the_same_words() -> None:
    """The recipe knows what the model could not be shown."""
    blind = Blind(say("I see words."), backend="script:blind")
    thread = pictured(Agent("a", backend=blind))
    thread.run("What is it?")

    assert thread.at().context() == blind.contexts[0]


def test_a_request_to_a_model_that_the_catalog_knows_as_blind_has_no_picture() -> None:
    """By the format it could have one; by the catalog the model takes none, and the loss says so."""
    thread = pictured(Agent("a"))

    rendered = thread.render("openai-chat:gpt-5.1-codex")

    assert "image_url" not in str(rendered.body)
    assert [loss.what for loss in rendered.losses] == ["image"]
    assert "image_url" in str(thread.render("openai-chat:gpt-5.6").body)
