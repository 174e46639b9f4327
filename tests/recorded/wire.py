"""Recorded traffic as the tests look at it: one record an exchange, one fact sheet an answer.

The traffic is no part of the project.  The tests look for it in the folder `shared/wire` beside the project or
further up, and a test that needs it says so when it skips.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from perdure.model.run import Usage

__all__ = ["Facts", "Record", "Wire", "pieces"]

_PLACES = [folder / "shared" / "wire" for folder in Path(__file__).resolve().parents[3:]]
FOLDER = next((place for place in _PLACES if place.exists()), _PLACES[0])


class Record(msgspec.Struct, frozen=True):
    """One request and its answer."""

    id: str
    conversation_id: str
    provider: str
    api: str
    request: dict[str, Any] | None
    response: Any
    response_format: str | None = None
    model: str | None = None
    status: int | None = None
    continues: str | None = None
    features: list[str] = []
    notes: Any = None
    request_headers: dict[str, Any] | None = None
    response_raw_b64: str | None = None

    @property
    def is_stream(self) -> bool:
        """Whether the answer came in pieces."""
        return self.response_format in ("sse", "ndjson", "json-events", "aws-eventstream")

    @property
    def body(self) -> bytes:
        """The bytes of a streamed answer."""
        match self.response_format:
            case "sse" | "ndjson":
                return str(self.response).encode("utf-8", "surrogatepass")
            case "json-events":
                return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in self.response)
            case _:
                return base64.b64decode(self.response_raw_b64 or "")


class Facts(msgspec.Struct, frozen=True):
    """What an answer contains, as others read it."""

    id: str
    api: str
    text: Any = None  # words; an object where the answer held one
    thinking: Any = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] = []
    server_items: list[str] = []
    stop: Any = None  # a word; some report a number
    input_tokens: float | None = None
    output_tokens: float | None = None
    response_id: str | None = None


class Wire:
    """The folder of recorded traffic."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Look there."""
        self.folder = folder

    def records(self, *apis: str) -> list[Record]:
        """All exchanges of these formats, in the order of their files."""
        return [record for api in apis for record in _records(self.folder / f"{api}.jsonl.gz")]

    def answers(self, *apis: str) -> list[Record]:
        """Those with an answer that says something: accepted, and not empty."""
        return [each for each in self.records(*apis) if each.status in (200, None) and each.response]

    def requests(self, *apis: str) -> list[Record]:
        """Those with a request that was accepted."""
        return [each for each in self.records(*apis) if each.status in (200, None) and each.request]

    @property
    def facts(self) -> Mapping[str, Facts]:
        """The fact sheets, by the id of the record."""
        return _facts(self.folder / "facts.jsonl.gz")


def pieces(body: bytes, *, seed: int) -> Iterator[bytes]:
    """The bytes, cut at places that the seed decides; seed 0 cuts everywhere."""
    if seed == 0:
        yield from (body[at : at + 1] for at in range(len(body)))
        return
    chance = random.Random(seed)
    at = 0
    while at < len(body):
        size = chance.choice((1, 2, 7, 40, 300, 2_000))
        yield body[at : at + size]
        at += size


@cache
def _records(path: Path) -> tuple[Record, ...]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(msgspec.convert(json.loads(line), Record) for line in lines)


@cache
def _facts(path: Path) -> dict[str, Facts]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        sheets = [msgspec.convert(json.loads(line), Facts) for line in lines]
    return {sheet.id: sheet for sheet in sheets}


def beside_cache(usage: Usage) -> tuple[int, int]:
    """Return input and output as a vendor reports them that counts a cache beside the input."""
    return usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens, usage.output_tokens
