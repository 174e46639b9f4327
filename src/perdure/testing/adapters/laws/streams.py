"""The laws of streams: cut anywhere they say the same, cut off they say no more than was whole."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from perdure.errors import Invalid
from perdure.model.message import Message, ReasoningSummary
from perdure.providers.contract import ModelEvent, Reply, TextDelta
from perdure.testing.adapters.ground import Ground
from perdure.testing.adapters.laws.cases import for_each

__all__ = ["StreamLaws"]

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
    """The same bytes in pieces of any length, some of them empty."""
    at = 0
    while at < len(data):
        size = random.randint(0, longest)
        yield data[at : at + size]
        at += size


def reasoning_of(message: Message) -> str:
    """What the model told of its thinking."""
    return "".join(block.text for block in message.content if isinstance(block, ReasoningSummary))


class StreamLaws(Ground):
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
        parser, told = self.adapter().stream(), list[ModelEvent]()
        for piece in pieces(self.stream_bytes(), Random(7), 40):
            told += parser.feed(piece)
        reply = parser.close()

        assert list(reply.events[: len(told)]) == told
        assert "".join(event.text for event in told if isinstance(event, TextDelta)) == reply.message.text

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
        """What a stream says; None if it was refused."""
        try:
            return self.adapter().parse_stream([data])
        except Invalid:
            return None

    def stream_bytes(self) -> bytes:
        """The example of a stream."""
        if self.streamed is None:
            pytest.skip("no example of a stream was given: set `streamed`")
        return self.streamed
