"""The adapter for `gemini-interactions`."""

from __future__ import annotations

from holdfast.providers.interactions.capabilities import supports
from holdfast.providers.interactions.parse import VENDOR, parse
from holdfast.providers.interactions.render import render
from holdfast.providers.interactions.request import read_request
from holdfast.providers.interactions.stream import Stream
from holdfast.providers.wire.format import Format

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
