"""Asking again where it is safe: before anything of an answer has come, and not more often than wanted.

A wait that the backend named is kept, unless it is longer than anybody would wait for; then the
error is raised at once, and says how long the wait is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from perdure.errors import Unavailable
from perdure.providers.transport.contract import Request, Send
from perdure.providers.transport.faults import BackendUnavailable, CutOff

__all__ = ["WAIT_SECONDS_MAX", "answered", "pause"]

WAIT_SECONDS_MAX = 60.0
_FIRST_SECONDS, _GROWTH, _LONGEST_SECONDS = 0.5, 2.0, 8.0


async def answered(send: Send, request: Request, *, retries: int) -> AsyncGenerator[bytes]:
    """The bytes of the answer; asks up to `retries` times more, as long as not one byte has come.

    Raises `BackendUnavailable` if it stays silent for longer than the request's time-out.
    """
    attempt = 0
    while True:
        begun = False
        try:
            async with aclosing(_timed(send, request)) as pieces:
                async for piece in pieces:
                    begun = True
                    yield piece
        except BackendUnavailable as error:
            if begun or attempt >= retries or not await pause(error, attempt):
                raise
            attempt += 1
        else:
            return


async def pause(error: Unavailable, attempt: int) -> bool:
    """Wait as long as is fitting before the next attempt; False, at once, if that is too long."""
    if error.retry_after is not None and error.retry_after > WAIT_SECONDS_MAX:
        return False
    backoff = min(_LONGEST_SECONDS, _FIRST_SECONDS * _GROWTH**attempt)
    jittered = backoff * random.uniform(0.75, 1.0)
    await asyncio.sleep(jittered if error.retry_after is None else error.retry_after)
    return True


async def _timed(send: Send, request: Request) -> AsyncGenerator[bytes]:
    async with aclosing(cast("AsyncGenerator[bytes]", send(request))) as pieces:
        begun = False
        while True:
            try:
                async with asyncio.timeout(request.timeout):
                    piece = await anext(pieces, None)
            except TimeoutError as error:
                raise _silent(request, begun=begun) from error
            if piece is None:
                return
            begun = True
            yield piece


def _silent(request: Request, *, begun: bool) -> BackendUnavailable:
    said = f"{request.backend} was silent for {request.timeout:g} seconds"
    if begun:
        return CutOff(f"{said} in the middle of its answer; nothing of it was kept. Ask again.")
    return BackendUnavailable(f"{said}; nothing was done. Trying again may work.")
