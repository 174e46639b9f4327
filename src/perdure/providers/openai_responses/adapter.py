"""The adapter for `openai-responses`."""

from __future__ import annotations

from perdure.providers.openai_responses.capabilities import supports
from perdure.providers.openai_responses.parse import VENDOR, parse
from perdure.providers.openai_responses.render import render
from perdure.providers.openai_responses.request import read_request
from perdure.providers.openai_responses.stream import ResponsesStream
from perdure.providers.wire.format import Format

__all__ = ["ADAPTER"]

ADAPTER = Format(
    api="openai-responses",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=ResponsesStream,
    can=supports,
)
