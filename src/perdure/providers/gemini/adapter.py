"""Builds the adapter for `gemini-generate`."""

from __future__ import annotations

from perdure.providers.gemini.capabilities import supports
from perdure.providers.gemini.parse import VENDOR, GeminiStream, parse
from perdure.providers.gemini.render import render
from perdure.providers.gemini.request import FIELDS, read_request
from perdure.providers.wire.format import Format

__all__ = ["ADAPTER"]

ADAPTER = Format(
    api="gemini-generate",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=GeminiStream,
    can=supports,
    fields=FIELDS,
)
