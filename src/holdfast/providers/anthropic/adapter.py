"""The adapter for `anthropic-messages`."""

from __future__ import annotations

from holdfast.providers.anthropic.capabilities import supports
from holdfast.providers.anthropic.parse import VENDOR, parse
from holdfast.providers.anthropic.render import render
from holdfast.providers.anthropic.request import FIELDS, read_request
from holdfast.providers.anthropic.stream import Stream
from holdfast.providers.wire.format import Format

__all__ = ["ADAPTER"]

ADAPTER = Format(
    api="anthropic-messages",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=Stream,
    can=supports,
    fields=FIELDS,
)
