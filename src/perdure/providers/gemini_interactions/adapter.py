"""The adapter for `gemini-interactions`."""

from __future__ import annotations

from perdure.providers.gemini_interactions.capabilities import supports
from perdure.providers.gemini_interactions.parse import VENDOR, parse
from perdure.providers.gemini_interactions.render import render
from perdure.providers.gemini_interactions.request import read_request
from perdure.providers.gemini_interactions.stream import Stream
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
