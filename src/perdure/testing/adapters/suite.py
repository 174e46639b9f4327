"""The adapter conformance suite: every law of the adapter contract, as a test.

A new adapter joins with a method that returns it:

    class TestYourAdapter(AdapterSuite):
        def adapter(self) -> Adapter:
            return YOUR_ADAPTER

With examples of its format, a request, an answer and the same answer as a stream, more laws apply
(see `perdure.testing.adapters.subject`).  The class must be in a module, not in a function: one law
looks for it in another process.

- `parse` reads an answer whole, and refuses what is no answer.
- `supports` has an answer for every capability, and a true one where a render can show it.
- `render` is pure, the same every time, for every history, and drops nothing in silence.
- `read_request` reads again what was rendered, and refuses what is no request.
- A stream gives the same reply wherever its bytes are cut; one that is cut off gives no more than was complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from random import Random
from typing import Any, cast, get_args

import msgspec
import pytest

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text, ToolResult, encode_message
from perdure.providers.capabilities import Capability
from perdure.providers.contract import Finished, Loss, LossKind, ModelEvent, Rendered, Reply, TextChunk
from perdure.testing.adapters.histories import (
    BROKEN,
    HISTORIES,
    SECRET,
    SHOWN,
    SOUND,
    TOLD_BY_OTHERS,
    places,
    user,
)
from perdure.testing.adapters.subject import (
    AdapterSubject,
    changed,
    covers,
    digests,
    digests_elsewhere,
    for_each,
    is_sent,
    leaves,
    mended,
)

__all__ = ["AdapterSuite", "AnswerLaws", "CapabilityLaws", "RenderLaws", "RequestLaws", "StreamLaws"]


# What other programs send: errors, answers in part, nothing.
STRANGE: list[Any] = json.loads("""[
    {}, {"error": {"message": "overloaded", "code": 529}}, {"error": "overloaded"}, {"message": "Not Found"},
    {"choices": []}, {"choices": [{}]}, {"candidates": [{}]}, {"content": "words"}, {"output": null},
    {"type": "error"}, null, [], "words", 7
]""")


class AnswerLaws(AdapterSubject):
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
        """Return a context in which `message` is the last answer and a user goes on."""
        return Context(messages=(user("And?"), message, user("Go on.")))

    def answer(self) -> dict[str, Any]:
        """Return the example of an answer."""
        if self.reply is None:
            pytest.skip("no example of an answer was given: set `reply`")
        return json.loads(json.dumps(self.reply))


class CapabilityLaws(AdapterSubject):
    """What `supports` promises."""

    @for_each([*Capability, "an unknown capability", ""])
    def test_every_capability_has_an_answer(self, capability: str) -> None:
        """It is `full`, `lossy` or `none`, for the format and for a model of it."""
        adapter = self.adapter()

        assert adapter.supports(capability) in ("full", "lossy", "none")
        assert adapter.supports(capability, model=self.model) in ("full", "lossy", "none")
        assert adapter.supports(capability, model="an unknown model") in ("full", "lossy", "none")

    def test_what_is_not_known_is_not_done(self) -> None:
        """An unknown capability is `none`, and words are never that."""
        assert self.adapter().supports("an unknown capability") == "none"
        assert self.adapter().supports("text") != "none"

    @for_each(SHOWN)
    def test_what_is_done_fully_loses_nothing(self, capability: str) -> None:
        """Where the answer is `full` for a model, a request to it carries the thing over unchanged."""
        context, where = SHOWN[capability]
        if self.adapter().supports(capability, model=self.model) != "full":
            return

        losses = self.rendered(context).losses

        assert [loss for loss in losses if covers(loss, where) and loss.kind != "repaired"] == []

    @for_each(SHOWN)
    def test_what_is_not_done_is_reported(self, capability: str) -> None:
        """Where the answer is `none` for a model, a request to it reports what happened to the thing."""
        context, where = SHOWN[capability]
        if self.adapter().supports(capability, model=self.model) != "none":
            return

        losses = self.rendered(context).losses

        assert [loss for loss in losses if covers(loss, where)] != []


every_history = for_each(HISTORIES)


def text_of(rendered: Rendered) -> str:
    """Return the request and the report, in the order in which they were made."""
    return json.dumps([rendered.body, [repr(loss) for loss in rendered.losses]])


def turned(value: object) -> Any:
    """Return the same with every dictionary the other way round."""
    match value:
        case Mapping():
            held = cast("Mapping[str, Any]", value)
            return {name: turned(held[name]) for name in reversed(list(held))}
        case list() | tuple():
            return [turned(each) for each in cast("list[Any]", value)]
        case _:
            return value


def with_metadata(context: Context, metadata: str | None) -> Context:
    """Return the same conversation, each of its answers with that vendorMetadata."""
    messages: list[Message] = [
        msgspec.structs.replace(message, vendor_metadata=metadata) if message.role == "assistant" else message
        for message in context.messages
    ]
    return msgspec.structs.replace(context, messages=tuple(messages))


class RenderLaws(AdapterSubject):
    """What a rendered request promises."""

    @every_history
    def test_every_history_is_rendered_as_plain_json(self, history: str) -> None:
        """Whatever the history looks like, a request of plain JSON and a report come out."""
        rendered = self.rendered(deepcopy(HISTORIES[history]))

        assert isinstance(rendered.body, dict)
        assert json.loads(json.dumps(rendered.body, allow_nan=False)) == rendered.body

    @every_history
    def test_render_is_the_same_every_time(self, history: str) -> None:
        """The same context gives the same bytes, also where it is another object that says the same."""
        first = text_of(self.rendered(HISTORIES[history]))

        assert text_of(self.rendered(HISTORIES[history])) == first
        assert text_of(self.rendered(deepcopy(HISTORIES[history]))) == first

    @every_history
    def test_the_order_of_dictionaries_changes_nothing(self, history: str) -> None:
        """A dictionary that was filled in another order says the same."""
        context = HISTORIES[history]
        tools = [msgspec.structs.replace(tool, parameters=turned(tool.parameters)) for tool in context.tools]
        other = msgspec.structs.replace(context, tools=tools, options=turned(context.options))

        one, two = self.rendered(context), self.rendered(other)

        assert json.dumps(two.body, sort_keys=True) == json.dumps(one.body, sort_keys=True)
        assert set(two.losses) == set(one.losses)

    def test_another_process_renders_the_same(self) -> None:
        """Neither the process nor its hash seed is in a request."""
        other_seed = 2 if os.environ.get("PYTHONHASHSEED") == "1" else 1

        assert digests_elsewhere(type(self), other_seed) == digests(self)

    @every_history
    def test_render_leaves_the_context_as_it_is(self, history: str) -> None:
        """What is shown is not touched."""
        context, before = deepcopy(HISTORIES[history]), deepcopy(HISTORIES[history])

        self.rendered(context)

        assert context == before

    @every_history
    def test_every_loss_says_what_where_and_why(self, history: str) -> None:
        """An entry of the report has a kind, a place in the context and words."""
        losses = self.rendered(HISTORIES[history]).losses

        assert all(isinstance(loss, Loss) for loss in losses)
        assert {loss.kind for loss in losses} <= set(get_args(LossKind))
        assert [
            loss
            for loss in losses
            if not (loss.what and loss.why) or not loss.where.startswith(Context.__struct_fields__)
        ] == []

    @for_each(BROKEN)
    def test_every_repair_is_reported(self, history: str) -> None:
        """A history that no vendor takes as it is comes out repaired, and the report says so."""
        losses = self.rendered(HISTORIES[history]).losses

        assert [loss for loss in losses if loss.kind in ("repaired", "dropped")] != []

    @every_history
    def test_nothing_said_is_lost_in_silence(self, history: str) -> None:
        """All that the history says is in the request or in the report."""
        context = HISTORIES[history]
        rendered = self.rendered(context)
        sent = mended("\n".join(leaves(rendered.body)))

        silent = [
            (where, words)
            for where, words in places(context)
            if not is_sent(words, sent) and not any(covers(loss, where) for loss in rendered.losses)
        ]

        assert silent == []

    @for_each(["an-unknown-option", "vendor"])
    def test_an_option_that_is_left_out_is_reported(self, option: str) -> None:
        """What no vendor knows is not sent on in silence nor dropped in silence."""
        rendered = self.rendered(HISTORIES["options of all kinds"])

        assert option in rendered.body or any(
            loss.where.startswith(f"options.{option}") for loss in rendered.losses
        )

    @every_history
    def test_what_others_keep_changes_nothing(self, history: str) -> None:
        """Without the vendorMetadata of others the request is the same."""
        context = HISTORIES[history]

        rendered = self.rendered(with_metadata(context, TOLD_BY_OTHERS))
        bare = self.rendered(with_metadata(context, None))

        assert json.dumps(rendered.body) == json.dumps(bare.body)

    @every_history
    def test_what_others_keep_is_shown_to_no_model(self, history: str) -> None:
        """Signatures and ids of another issuer are in no request."""
        body = self.rendered(with_metadata(HISTORIES[history], TOLD_BY_OTHERS)).body

        assert SECRET not in json.dumps(body)


def results_of(context: Context) -> list[ToolResult]:
    """Return every result, in order."""
    return [result for message in context.messages for result in message.tool_results]


def words_of(content: Message | ToolResult) -> str:
    """Return the words of a message or a result."""
    return mended("".join(block.text for block in content.content if isinstance(block, Text)))


class RequestLaws(AdapterSubject):
    """What reading a request promises."""

    def read_again(self, history: str) -> Context:
        """Return a history after its own request."""
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
                assert result.call_id in asked, "a result comes before its call, or has none"
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
        """Return the example of a request."""
        if self.request is None:
            pytest.skip("no example of a request was given: set `request`")
        return json.loads(json.dumps(self.request))


GARBAGE = (
    b"",
    b"\n\n\n",
    b"\x00\xff\xfe\x80" * 40,
    b"<html><body>502 Bad Gateway</body></html>",
    b"data: {broken\n\n",
    b"data: []\n\n",
    b"data: 7\n\ndata: null\n\n",
    b'data: "words"\n\n',
    b"data: {}\n\n",
    b"data: [DONE]\n\n",
    b"event: error\ndata: {}\n\n",
    b'data: {"choices":7}\n\n',
    b'data: {"candidates":[7]}\n\n',
    b'data: {"type":7}\n\n',
    b"data: \xff\xff\n\n",
    b"data: " + b"[" * 100_000 + b"\n\n",
)


def pieces(data: bytes, random: Random, longest: int) -> Iterable[bytes]:
    """Return the same bytes in pieces of any length, some of them empty."""
    at = 0
    while at < len(data):
        size = random.randint(0, longest)
        yield data[at : at + size]
        at += size


def reasoning_of(message: Message) -> str:
    """Return the model's reasoning."""
    return "".join(block.text for block in message.content if isinstance(block, ReasoningSummary))


class StreamLaws(AdapterSubject):
    """What reading a stream promises."""

    def test_a_stream_says_what_the_whole_answer_says(self) -> None:
        """Words, thoughts, calls and the reason to stop are those of the same answer in one piece."""
        data = self.stream_bytes()
        if self.reply is None:
            pytest.skip("no example of an answer was given: set `reply`")

        whole, streamed = self.adapter().parse(self.reply), self.adapter().parse_stream([data])

        assert streamed.message.text == whole.message.text
        assert reasoning_of(streamed.message) == reasoning_of(whole.message)
        assert [(call.id, call.name, call.arguments) for call in streamed.message.tool_calls] == [
            (call.id, call.name, call.arguments) for call in whole.message.tool_calls
        ]
        assert streamed.stop == whole.stop

    def test_a_stream_in_pieces_of_any_size_says_the_same(self) -> None:
        """Where the bytes were cut is not in what was said: byte by byte, by lines and at random."""
        data = self.stream_bytes()
        whole = self.adapter().parse_stream([data])

        assert self.adapter().parse_stream(bytes([byte]) for byte in data) == whole
        assert self.adapter().parse_stream(data.splitlines(keepends=True)) == whole
        for seed in range(20):
            assert self.adapter().parse_stream(pieces(data, Random(seed), 3 + seed * 5)) == whole

    def test_what_is_told_on_the_way_is_what_was_said(self) -> None:
        """The events of the feeding are those of the reply, and their words are its words."""
        parser, events = self.adapter().stream(), list[ModelEvent]()
        for piece in pieces(self.stream_bytes(), Random(7), 40):
            events += parser.feed(piece)
        reply = parser.close()

        assert list(reply.events[: len(events)]) == events
        assert "".join(event.text for event in events if isinstance(event, TextChunk)) == reply.message.text

    def test_two_streams_do_not_mix(self) -> None:
        """Every parser is its own."""
        data = self.stream_bytes()
        one, two = self.adapter().stream(), self.adapter().stream()
        one.feed(data[: len(data) // 2])
        two.feed(data)
        one.feed(data[len(data) // 2 :])

        assert one.close() == two.close()

    def test_a_stream_that_is_cut_off_says_no_more_than_was_whole(self) -> None:
        """Cut anywhere it is `Invalid`, or a reply that says a part of the words and gives no reason to stop."""
        data = self.stream_bytes()
        whole = self.adapter().parse_stream([data])
        for end in range(0, len(data), max(1, len(data) // 400)):
            reply = self.heard(data[:end])
            if reply is None:
                continue
            assert whole.message.text.startswith(reply.message.text)
            assert len(reply.message.tool_calls) <= len(whole.message.tool_calls)
            same = (reply.message.content, reply.message.tool_calls) == (
                whole.message.content,
                whole.message.tool_calls,
            )
            assert reply.stop is None or (same and reply.stop == whole.stop)

    @for_each(GARBAGE)
    def test_what_is_no_stream_is_refused(self, garbage: bytes) -> None:
        """What is not of the format is `Invalid`, or gives no reason to stop; it is never another error."""
        reply = self.heard(garbage)

        assert reply is None or reply.stop is None

    def test_a_damaged_stream_is_refused_or_read(self) -> None:
        """Bytes that are lost, doubled or flipped end in a reply or in `Invalid`."""
        data, random = self.stream_bytes(), Random(11)
        for _ in range(300):
            at, size = random.randrange(len(data)), random.randint(1, 30)
            flipped = bytes([data[at] ^ (1 << random.randrange(8))])
            middle = random.choice([b"", data[at : at + size] * 2, flipped + data[at + 1 : at + size]])
            self.heard(data[:at] + middle + data[at + size :])

    def heard(self, data: bytes) -> Reply | None:
        """Return the reply of a stream; None if it was refused."""
        try:
            return self.adapter().parse_stream([data])
        except Invalid:
            return None

    def stream_bytes(self) -> bytes:
        """Return the example of a stream."""
        if self.streamed is None:
            pytest.skip("no example of a stream was given: set `streamed`")
        return self.streamed


class AdapterSuite(RenderLaws, RequestLaws, AnswerLaws, StreamLaws, CapabilityLaws):
    """All laws.  Subclass it, name the subclass `Test…` and write `adapter`."""
