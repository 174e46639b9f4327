"""The adapter for `bedrock-converse`."""

from __future__ import annotations

from holdfast.providers.bedrock.capabilities import supports
from holdfast.providers.bedrock.parse import VENDOR, parse
from holdfast.providers.bedrock.render import render
from holdfast.providers.bedrock.request import FIELDS, read_request
from holdfast.providers.bedrock.stream import Stream
from holdfast.providers.wire.format import Format

__all__ = ["ADAPTER"]

ADAPTER = Format(
    api="bedrock-converse",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=Stream,
    can=supports,
    fields=FIELDS,
)
