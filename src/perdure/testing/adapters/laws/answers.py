"""The laws of `parse`: an answer is read whole, and what is none is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import Message, encode_message
from perdure.providers.contract import Finished, Reply
from perdure.testing.adapters.ground import Ground
from perdure.testing.adapters.histories import user
from perdure.testing.adapters.laws.cases import for_each
from perdure.testing.adapters.looking import changed

__all__ = ["AnswerLaws"]

# What other parties say: errors, answers in part, nothing.
STRANGE: list[Any] = json.loads("""[
    {}, {"error": {"message": "overloaded", "code": 529}}, {"error": "overloaded"}, {"message": "Not Found"},
    {"choices": []}, {"choices": [{}]}, {"candidates": [{}]}, {"content": "words"}, {"output": null},
    {"type": "error"}, null, [], "words", 7
]""")


class AnswerLaws(Ground):
    """What reading an answer promises."""

    def test_an_answer_is_read_whole(self) -> None:
        """The message can be kept, the vendor says why it stopped, and the last event is the whole."""
        reply = self.adapter().parse(self.answer())

        assert reply.message.role == "assistant"
        assert reply.message.content or reply.message.tool_calls
        assert encode_message(reply.message)
        assert reply.stop
        assert reply.events[-1] == Finished(
            message=reply.message, usage=reply.usage, stop=reply.stop, stop_kind=reply.stop_kind
        )

    def test_an_answer_is_read_the_same_every_time(self) -> None:
        """Neither the time nor the order of dictionaries is in what is read."""
        answer = self.answer()
        turned = json.loads(json.dumps(answer, sort_keys=True))

        first = self.adapter().parse(answer)

        assert self.adapter().parse(answer) == first
        other = self.adapter().parse(turned)
        assert encode_message(other.message) == encode_message(first.message)
        assert (other.stop, other.usage) == (first.stop, first.usage)

    def test_parsing_leaves_the_answer_as_it_is(self) -> None:
        """An answer is not touched."""
        answer = self.answer()
        before = json.dumps(answer)

        self.adapter().parse(answer)

        assert json.dumps(answer) == before

    def test_the_calls_of_an_answer_have_ids_of_their_own(self) -> None:
        """Two calls of one answer are never confused."""
        ids = [call.id for call in self.adapter().parse(self.answer()).message.tool_calls]

        assert sorted(ids) == sorted(set(ids))
        assert all(ids)

    def test_an_answer_goes_back_to_who_gave_it(self) -> None:
        """The words and the calls of an answer are in the next request to the same vendor."""
        message = self.adapter().parse(self.answer()).message
        context = self.adapter().read_request(
            self.adapter().render(self.asking(message), model=self.model).body, model=self.model
        )

        given = [each for each in context.messages if each.role == "assistant"]
        assert "".join(each.text for each in given) == message.text
        assert [call.name for each in given for call in each.tool_calls] == [
            call.name for call in message.tool_calls
        ]

    @for_each(STRANGE)
    def test_what_is_no_answer_is_refused(self, body: Any) -> None:
        """What is not of the format is `Invalid`, or says no reason to stop; it is never another error."""
        try:
            reply = self.adapter().parse(body)
        except Invalid:
            return
        assert reply.stop is None

    def test_an_answer_of_a_wrong_shape_is_refused_or_read(self) -> None:
        """Whatever part of an answer is wrong, the outcome is a reply that can be kept, or `Invalid`."""
        adapter = self.adapter()
        for body in changed(self.answer()):
            try:
                reply = adapter.parse(body)
            except Invalid:
                continue
            assert isinstance(reply, Reply)
            assert encode_message(reply.message)

    def asking(self, message: Message) -> Context:
        """A context in which `message` is the last answer and a user goes on."""
        return Context(messages=(user("And?"), message, user("Go on.")))

    def answer(self) -> dict[str, Any]:
        """The example of an answer."""
        if self.reply is None:
            pytest.skip("no example of an answer was given: set `reply`")
        return json.loads(json.dumps(self.reply))
