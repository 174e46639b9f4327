"""A server in a process of its own whose agent says the time, piece by piece, and a reader inside that process.

    python -m tests.server.loaded_server STORE PIECES [HELD_BACK_SECONDS]

It prints its address and its token.  After SIGTERM it prints the delays that the reader inside measured, as JSON.
With HELD_BACK_SECONDS each frame of a stream leaves the server that much later, which the reader inside does not notice.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import perdure
from perdure import Agent
from perdure.errors import Unavailable
from perdure.model.message import Message, Text
from perdure.providers.contract import Finished, TextChunk
from perdure.runtime.events import TextDelta
from perdure.server.app import HttpServer
from perdure.server.routing import HttpCall
from perdure.server.serve import Serving, serve
from perdure.server.streams import EventStream
from perdure.store.store import Store
from perdure.testing import Script

PIECE_SECONDS = 0.1
WATCHED = "live-0"  # the thread that is read inside, too


class Clock(Script):
    """A model that says what time it is, so that a reader knows how old each piece is."""

    def __init__(self, pieces: int) -> None:
        """Say so many pieces in each step."""
        super().__init__(backend="script:clock")
        self._said = pieces

    async def step(self, context: Any) -> AsyncIterator[Any]:
        """Take a step."""
        text = ""
        for _ in range(self._said):
            await asyncio.sleep(PIECE_SECONDS)
            piece = f"{time.monotonic()} "
            text += piece
            yield TextChunk(piece)
        yield Finished(message=Message("assistant", (Text(text),)))


def main(place: str, pieces: str, held_back_seconds: str = "0") -> None:
    """Serve until SIGTERM."""
    if float(held_back_seconds):
        _hold_back(float(held_back_seconds))

    def started(serving: Serving) -> None:
        print(serving.url.rstrip("/").rpartition(":")[2], serving.link.partition("token=")[2], flush=True)

    delays: list[float] = []
    with perdure.open(place) as store:
        threading.Thread(target=_read, args=(store, delays), daemon=True).start()
        serve(store, [Agent("clock", backend=Clock(int(pieces)))], port=0, started=started)
        print(json.dumps(delays), flush=True)


def _hold_back(seconds: float) -> None:
    """Let each frame of a stream leave the server later."""
    stream = HttpServer.stream

    async def late(frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for each in frames:
            await asyncio.sleep(seconds)
            yield each

    def held_back(
        self: HttpServer, call: HttpCall, frames: AsyncIterator[bytes], **options: Any
    ) -> EventStream:
        return stream(self, call, late(frames), **options)

    HttpServer.stream = held_back


def _read(store: Store, delays: list[float]) -> None:
    with suppress(Unavailable):  # the store is closed when the server has ended
        happenings = store.thread(WATCHED).follow(wait=True)
        delays.extend(
            time.monotonic() - float(event.text) for event in happenings if isinstance(event, TextDelta)
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
