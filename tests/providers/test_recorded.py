"""Recorded answers, played over HTTP through the real SDKs, say what they say when they are parsed directly."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import Invalid
from perdure.model.message import Message
from perdure.providers import adapter
from perdure.providers.contract import Reply
from tests.crash.campaign import sized
from tests.providers.asking import asked, finished
from tests.providers.playing import Answer, playing, streamed, whole
from tests.providers.vendors import VENDORS, Vendor
from tests.recorded.pairs import sampled
from tests.recorded.wire import FOLDER, Record, Wire

EACH = sized(3, 12)  # records of either kind


def chosen(vendor: Vendor, *, is_stream: bool) -> list[Record]:
    """Some answers, taken evenly from all over the file, that end as an answer should."""
    formats = ("sse", "aws-eventstream", "ndjson") if is_stream else ("json",)
    records = [each for each in Wire().answers(vendor.api) if each.response_format in formats]
    thinned = sampled(records, every=max(1, len(records) // (2 * EACH)))
    ended = [each for each in thinned if is_ended(vendor, each)]
    return ended[:: max(1, len(ended) // EACH)]


def is_ended(vendor: Vendor, record: Record) -> bool:
    """Whether it is an answer, and no error that was recorded without its status."""
    try:
        reply = direct(vendor, record)
    except Invalid:
        return False
    return reply.stop not in (None, "failed") and reply.pending is None


def direct(vendor: Vendor, record: Record) -> Reply:
    """The answer, parsed without a transport."""
    speaks = adapter(vendor.api)
    return speaks.parse_stream([record.body]) if record.is_stream else speaks.parse(record.response)


def said(message: Message) -> tuple[object, ...]:
    """Return what does not depend on the transport: words, media, and calls with their arguments."""
    return message.content, tuple((call.name, call.args) for call in message.tool_calls)


def played(vendor: Vendor, record: Record) -> Answer:
    """The answer as the server plays it."""
    return streamed(record.body, kind=vendor.kind, piece=501) if record.is_stream else whole(record.response)


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.api)
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "whole"])
def test_a_recorded_answer_comes_through_the_sdk_unchanged(vendor: Vendor, *, is_stream: bool) -> None:
    """Words, reasoning, calls, stop and usage are those of the direct parse."""
    if not (FOLDER / "facts.jsonl.gz").exists():
        pytest.skip(f"the recorded traffic is not there: {FOLDER}")
    records = chosen(vendor, is_stream=is_stream)

    async def heard() -> list[str]:
        return [record.id for record in records if not await is_same(record)]

    async def is_same(record: Record) -> bool:
        with playing(played(vendor, record)) as place:
            last = finished(await asked(vendor.at(place, options={"stream": is_stream})))
        wanted = direct(vendor, record)
        return (said(last.message), last.stop, last.usage) == (
            said(wanted.message),
            wanted.stop,
            wanted.usage,
        )

    assert records
    assert asyncio.run(heard()) == []
