"""The adapter for `gemini-generate`."""

from __future__ import annotations

from holdfast.providers.gemini.capabilities import supports
from holdfast.providers.gemini.parse import VENDOR, parse
from holdfast.providers.gemini.render import render
from holdfast.providers.gemini.request import FIELDS, read_request
from holdfast.providers.gemini.stream import Stream
from holdfast.providers.wire.format import Format

__all__ = ["ADAPTER"]

ADAPTER = Format(
    api="gemini-generate",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=Stream,
    can=supports,
    fields=FIELDS,
)
