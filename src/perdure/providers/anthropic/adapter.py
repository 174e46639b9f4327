"""Builds the adapter for `anthropic-messages`."""

from __future__ import annotations

from perdure.providers.anthropic.capabilities import supports
from perdure.providers.anthropic.parse import VENDOR, AnthropicStream, parse
from perdure.providers.anthropic.render import render
from perdure.providers.anthropic.request import FIELDS, read_request
from perdure.providers.wire.format import Format

__all__ = ["ADAPTER"]

ADAPTER = Format(
    api="anthropic-messages",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=AnthropicStream,
    can=supports,
    fields=FIELDS,
)
