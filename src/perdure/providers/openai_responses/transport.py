"""Sends Responses by OpenAI's SDK; addresses, keys and errors are as for Chat Completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from perdure.providers.openai_chat.transport import address, client_of, sent
from perdure.providers.transport.contract import Request

__all__ = ["SDK", "address", "send"]

SDK = ("openai", "openai.resources.responses", "httpx2")  # the modules that a request needs


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send to `/responses`, or fetch from there the answer that the server has worked on."""
    client = await client_of(request)
    async with aclosing(sent(request, client, _created)) as pieces:
        async for piece in pieces:
            yield piece


def _created(client: Any, request: Request) -> Any:
    if request.pending is not None:
        return client.responses.with_streaming_response.retrieve(request.pending, timeout=request.timeout)
    return client.responses.with_streaming_response.create(
        model=request.model, stream=request.stream, extra_body=request.body, timeout=request.timeout
    )
