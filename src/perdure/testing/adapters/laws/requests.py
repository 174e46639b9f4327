"""The laws of `read_request`: what was rendered is read again, and what is no request is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import Message, Text, ToolResult
from perdure.testing.adapters.ground import Ground
from perdure.testing.adapters.histories import HISTORIES, SOUND
from perdure.testing.adapters.laws.cases import for_each
from perdure.testing.adapters.looking import changed, leaves, mended

__all__ = ["RequestLaws"]


def results_of(context: Context) -> list[ToolResult]:
    """Every result, in order."""
    return [result for message in context.messages for result in message.tool_results]


def words_of(content: Message | ToolResult) -> str:
    """The words of a message or a result."""
    return mended("".join(block.text for block in content.content if isinstance(block, Text)))


class RequestLaws(Ground):
    """What reading a request promises."""

    def read_again(self, history: str) -> Context:
        """A history after its own request."""
        body = json.loads(json.dumps(self.rendered(HISTORIES[history]).body))
        return self.adapter().read_request(body, model=self.model)

    @for_each(SOUND)
    def test_what_was_said_is_read_again(self, history: str) -> None:
        """The words of each side come back in their order."""
        before, after = SOUND[history], self.read_again(history)

        assert mended(after.system) == mended(before.system)
        for role in ("user", "assistant"):
            said = [words_of(each) for each in before.messages if each.role == role]
            heard = [words_of(each) for each in after.messages if each.role == role]
            assert [words for words in heard if words] == [words for words in said if words]

    @for_each(SOUND)
    def test_calls_are_read_again(self, history: str) -> None:
        """Calls come back in their order, with their names and arguments."""
        before, after = SOUND[history], self.read_again(history)

        asked = [(call.name, call.arguments) for each in before.messages for call in each.tool_calls]
        assert [(call.name, call.arguments) for each in after.messages for call in each.tool_calls] == asked

    @for_each(SOUND)
    def test_results_are_read_again(self, history: str) -> None:
        """Results come back in their order, with their words."""
        before, after = results_of(SOUND[history]), results_of(self.read_again(history))

        assert len(after) == len(before)
        for one, two in zip(before, after, strict=True):
            assert words_of(one) in "\n".join(mended(leaf) for leaf in leaves(words_of(two)))

    @for_each(SOUND)
    def test_tools_are_read_again(self, history: str) -> None:
        """Tools come back with their names and descriptions."""
        before, after = SOUND[history].tools, self.read_again(history).tools

        assert [(tool.name, tool.description) for tool in after] == [
            (tool.name, tool.description) for tool in before
        ]

    @for_each(HISTORIES)
    def test_calls_and_results_pair_up(self, history: str) -> None:
        """In every request each call has an id of its own and exactly one result, which comes after it."""
        context = self.read_again(history)
        asked: list[str] = []
        answered: list[str] = []
        for message in context.messages:
            for result in message.tool_results:
                assert result.call_id in asked, "a result stands before its call, or has none"
                answered.append(result.call_id)
            asked += [call.id for call in message.tool_calls]

        assert sorted(asked) == sorted(set(asked))
        assert sorted(answered) == sorted(asked)

    @for_each(SOUND)
    def test_a_request_read_again_is_rendered_the_same(self, history: str) -> None:
        """Reading and rendering once more changes nothing."""
        body = self.rendered(SOUND[history]).body

        assert self.rendered(self.read_again(history)).body == body

    def test_the_example_of_a_request_is_read_and_rendered(self) -> None:
        """All words of a request of this format are in the context that it shows, and in its render."""
        request = self.example()
        context = self.adapter().read_request(request, model=self.model)
        body = self.adapter().render(context, model=self.model).body

        assert context.messages
        again = self.adapter().read_request(body, model=self.model)
        assert [words_of(each) for each in again.messages] == [words_of(each) for each in context.messages]

    def test_reading_leaves_the_request_as_it_is(self) -> None:
        """A request is not touched."""
        request = self.example()
        before = json.dumps(request)

        self.adapter().read_request(request, model=self.model)

        assert json.dumps(request) == before

    def test_a_request_of_a_wrong_shape_is_refused_or_read(self) -> None:
        """Whatever part of a request is wrong, the answer is a context or `Invalid`, and nothing else."""
        adapter = self.adapter()
        example: Any = self.request if self.request is not None else self.rendered(SOUND["one call"]).body
        for body in changed(example):
            try:
                context = adapter.read_request(body, model=self.model)
            except Invalid:
                continue
            assert isinstance(context, Context)

    def example(self) -> dict[str, Any]:
        """The example of a request."""
        if self.request is None:
            pytest.skip("no example of a request was given: set `request`")
        return json.loads(json.dumps(self.request))
