"""Mistral's chat against recorded traffic: answers, facts, chunks, round trips."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from perdure.model.message import ReasoningSummary
from perdure.providers import Adapter
from tests.recorded.chat_rows import ChatRows, read
from tests.recorded.wire import Record, Wire


def by_hand(record: Record) -> tuple[str, str]:
    """The words and the thinking of a streamed answer, put together without the adapter."""
    words, thoughts = "", ""
    for line in record.body.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        for content in [choice["delta"].get("content") for choice in json.loads(line[6:])["choices"]]:
            parts: list[dict[str, Any]] = (
                [{"type": "text", "text": content}] if isinstance(content, str) else content or []
            )
            for part in parts:
                words += part.get("text", "")
                thoughts += "".join(each["text"] for each in part.get("thinking", []))
    return words, thoughts


class TestMistralChat(ChatRows):
    """Every row."""

    api = "mistral-chat"
    apis = ("mistral-chat",)
    records = 90
    no_answers: ClassVar = {"ac0c08045cfc-j": "a transcript of sound, which is another endpoint"}
    # `by_hand` reads the same in the recordings.
    otherwise: ClassVar = {
        "4cdafd332109-000": (["thinking"], "thinking that is streamed in parts is thinking too"),
        "77b57ec2047a-000": (["text", "thinking"], "words that are streamed in parts are words too"),
    }

    def test_what_is_read_otherwise_is_what_the_recording_says(self, adapter: Adapter, wire: Wire) -> None:
        """Where a fact sheet says less, the recording read by hand says what the adapter does."""
        disputed = [record for record in wire.answers(*self.apis) if record.id in self.otherwise]

        for record in disputed:
            message = read(adapter, record).message
            thoughts = "".join(block.text for block in message.content if isinstance(block, ReasoningSummary))
            assert (message.text, thoughts) == by_hand(record)
