"""The adapter for `gemini-interactions`."""

from __future__ import annotations

from perdure.providers.interactions.capabilities import supports
from perdure.providers.interactions.parse import VENDOR, parse
from perdure.providers.interactions.render import render
from perdure.providers.interactions.request import read_request
from perdure.providers.interactions.stream import Stream
from perdure.providers.wire.format import Format

__all__ = ["ADAPTER"]

ADAPTER = Format(
    api="gemini-interactions",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=Stream,
    can=supports,
)
