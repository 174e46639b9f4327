"""Builds the adapter for `bedrock-converse`."""

from __future__ import annotations

from perdure.providers.bedrock.capabilities import supports
from perdure.providers.bedrock.parse import VENDOR, parse
from perdure.providers.bedrock.render import render
from perdure.providers.bedrock.request import FIELDS, read_request
from perdure.providers.bedrock.stream import BedrockStream
from perdure.providers.wire.format import Format

__all__ = ["ADAPTER"]

ADAPTER = Format(
    api="bedrock-converse",
    vendor=VENDOR,
    renders=render,
    reads=read_request,
    parses=parse,
    opens=BedrockStream,
    can=supports,
    fields=FIELDS,
)
