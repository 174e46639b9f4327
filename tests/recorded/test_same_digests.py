"""A parsed conversation has the same canonical bytes however it came: in what pieces, in which order of keys, in which process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from perdure.model.context import Context
from perdure.model.digest import Kind, digest_of
from perdure.model.message import Message, encode_message
from perdure.providers import adapter
from perdure.providers.registry import APIS
from tests.crash.campaign import sized
from tests.recorded.frames import frames_of
from tests.recorded.pairs import sampled
from tests.recorded.test_there_and_back import TRANSCRIPT
from tests.recorded.wire import Record, Wire, pieces

FRAMED = ("bedrock-converse", "json-events")  # events that came without their frames
ROOT = Path(__file__).resolve().parents[2]


def digest(message: Message) -> str:
    """The digest of a message as it is stored, and of what is kept beside it."""
    beside = (message.vendor_metadata or "").encode("utf-8", "surrogatepass")
    return f"{digest_of(Kind.BODY, encode_message(message))} {sha256(beside).hexdigest()}"


def digests(context: Context) -> list[str]:
    """Those of a conversation."""
    return [digest(message) for message in context.messages]


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same JSON with its keys in another order."""
    if isinstance(value, Mapping):
        items = list(cast("Mapping[str, Any]", value).items())
        chance.shuffle(items)
        return {name: shuffled(each, chance) for name, each in items}
    return [shuffled(each, chance) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def asked(record: Record, body: Mapping[str, Any]) -> list[str]:
    """The digests of a request."""
    return digests(adapter(record.api).read_request(body, model=record.model, provider=record.provider))


def streams(wire: Wire, api: str) -> list[Record]:
    """Streamed answers."""
    return [each for each in wire.answers(api) if each.status == 200 and each.is_stream]


@pytest.mark.parametrize("api", APIS)
def test_chunks_do_not_matter(wire: Wire, api: str) -> None:
    """A stream in any pieces is the same message, byte for byte."""
    for record in sampled(streams(wire, api), every=6):
        body = frames_of(record.response) if (api, record.response_format) == FRAMED else record.body
        whole = adapter(api).parse_stream([body], provider=record.provider).message
        cut = adapter(api).parse_stream(pieces(body, seed=5), provider=record.provider).message

        assert (record.id, digest(cut)) == (record.id, digest(whole))


@pytest.mark.parametrize("api", APIS)
def test_the_order_of_keys_does_not_matter(wire: Wire, api: str) -> None:
    """Requests and answers with their keys shuffled are the same messages, byte for byte."""
    chance = random.Random(7)

    for record in sampled([each for each in wire.requests(api) if each.status == 200], every=8):
        body = record.request or {}
        assert (record.id, asked(record, shuffled(body, chance))) == (record.id, asked(record, body))
    for record in sampled([each for each in wire.answers(api) if each.id in wire.facts], every=8):
        if not record.is_stream and record.id != TRANSCRIPT:
            answered = shuffled(record.response, chance)
            assert (record.id, said(record, answered)) == (record.id, said(record, record.response))


def said(record: Record, body: Any) -> str:
    """The digest of an answer."""
    return digest(adapter(record.api).parse(body, provider=record.provider).message)


def told(wire: Wire) -> Iterator[str]:
    """The digests of some recorded conversations of every format, a line each."""
    for api in APIS:
        for record in wire.requests(api)[::40]:
            yield f"{record.id} {asked(record, record.request or {})}"
        for record in wire.answers(api)[::40]:
            if record.status == 200 and record.id != TRANSCRIPT and not record.is_stream:
                yield f"{record.id} {said(record, record.response)}"


def test_the_process_does_not_matter(wire: Wire) -> None:
    """Another process, with other hashes of text, finds the same digests."""
    script = "from tests.recorded.test_same_digests import told; from tests.recorded.wire import Wire; print(*told(Wire()), sep='\\n')"

    lines = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()
        for seed in sized(("1",), ("1", "2"))
    ]

    assert [*lines, list(told(wire))] == [lines[0]] * (len(lines) + 1)
    assert len(lines[0]) > 150


def test_another_word_is_another_digest() -> None:
    """Control: digests tell messages apart, and what is beside them."""
    hello = {"messages": [{"role": "user", "content": "Hello."}]}
    other = {"messages": [{"role": "user", "content": "Hello!"}]}
    reading = adapter("openai-chat")

    assert digests(reading.read_request(hello)) != digests(reading.read_request(other))
