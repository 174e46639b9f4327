"""Many readers at once: idle followers and live streams of one server, for a while."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any

import pytest

import perdure
from perdure.server.routing import HttpCall
from perdure.server.streams import EventStream, Subscriber
from perdure.store.store import Store
from tests.crash.campaign import DEEP, sized
from tests.forked import PIPE, ForkedProcess, commands
from tests.server.client import Client, assistant, serving
from tests.server.loaded_server import PIECE_SECONDS

FOLLOWERS = sized(20, 500)
LIVE = sized(4, 50)
SECONDS = sized(2, 60)
PIECES = sized(5, 50)  # of one run
WAIT_SECONDS = 120.0
GROWTH_KB_MAX = (
    24 * 1024
)  # from the first third of the time to the end: what caches of rows, nodes and commits hold
ADDED_SECONDS_MAX = 0.020


def test_idle_followers_and_live_streams_share_a_server_for_a_while(tmp_path: Path) -> None:
    """No answer is a 5xx, every stream has all of its pieces, and the followers get the event that they waited for.

    At full size the memory of the server grows by no more than its caches hold, and a piece comes little later than to
    a reader inside the server.
    """
    load = Load(LIVE, FOLLOWERS, SECONDS)

    metrics, inside = load.serve_and_run(tmp_path)
    added = added_seconds(load.delays, inside)
    figures = f"added {added * 1e3:.1f} ms, memory {load.memory}, {len(load.delays)} pieces, {load.runs} runs"
    print(figures)

    assert 'status="5' not in metrics
    assert len(load.delays) == load.runs * PIECES
    assert load.woken == FOLLOWERS
    if DEEP:
        assert added <= ADDED_SECONDS_MAX, figures
        assert load.memory[-1] - load.memory[0] <= GROWTH_KB_MAX, figures


def test_a_server_that_holds_pieces_back_is_found_by_the_same_measure(tmp_path: Path) -> None:
    """Control: each piece leaves the server late, so the reader outside is behind the one inside, however fast either is."""
    load = Load(1, 1, PIECES * PIECE_SECONDS)

    _, inside = load.serve_and_run(tmp_path, held_back_seconds=10 * ADDED_SECONDS_MAX)
    added = added_seconds(load.delays, inside)

    assert added > ADDED_SECONDS_MAX


def added_seconds(outside: list[float], inside: list[float]) -> float:
    """How much later a piece comes to a reader of the server than to one inside it, in the middle of all pieces."""
    return statistics.median(outside) - statistics.median(inside)


@pytest.mark.parametrize("leaks", [False, True])
def test_what_has_ended_leaves_nothing_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch, leaks: bool
) -> None:
    """After any number of rounds the server has as many requests, streams and tasks as after the first ones.

    The control keeps each request in a list, as a leak would, and is found.
    """
    agent, kept = assistant(), list[HttpCall]()
    store.thread("chat", agent=agent)
    begin = HttpCall.__init__

    def keep(self: HttpCall, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        kept.append(self)

    if leaks:
        monkeypatch.setattr(HttpCall, "__init__", keep)
    with serving(store, agent) as client:
        _rounds(client, 2)
        before = min(_counted() for _ in range(10))
        _rounds(client, 4)
        after = _counted()
        end = time.monotonic() + (0 if leaks else WAIT_SECONDS)
        while after > before and time.monotonic() < end:  # the last connections are being closed
            after = _counted()

    assert (after > before, len(kept) > 20) == (leaks, leaks), (before, after)


_OWN = (HttpCall, EventStream, Subscriber, asyncio.Task, AsyncGeneratorType)  # of the server while it answers


def _rounds(client: Client, number: int) -> None:
    """Read and run, follow a run to its end, and leave two streams that have no end."""
    for _ in range(number):
        assert client.get("/v1/threads/chat").status == 200
        assert client.post("/v1/threads/chat/run", {"text": "Go on"}).status == 200
        assert list(client.events("/v1/threads/chat/run", method="POST", body={"text": "Go on"}))
        inbox = client.events("/v1/events")
        next(inbox)
        inbox.close()
        events = client.events("/v1/threads/chat/events")
        client.post("/v1/threads/chat/run", {"text": "Go on", "wait": False})
        events.close()


def _counted() -> int:
    """Count the objects of the server."""
    time.sleep(0.1)
    gc.collect()
    return sum(isinstance(each, _OWN) for each in gc.get_objects())


class Load:
    """Followers that wait, and clients that run an agent again and again and read its words."""

    def __init__(self, live: int, followers: int, seconds: float) -> None:
        """Run agents for so many seconds, then wake the followers."""
        self._live_max, self._followers, self._seconds = live, followers, seconds
        self.delays: list[float] = []
        self.memory: list[int] = []  # kB, after a third of the time and at the end
        self.runs = self.woken = 0

    def serve_and_run(self, directory: Path, *, held_back_seconds: float = 0) -> tuple[str, list[float]]:
        """Load a server in a process of its own; return its metrics, and the delays of the reader inside it."""
        with perdure.open(directory / "store.db") as store:
            for name in ("idle", *(f"live-{number}" for number in range(self._live_max))):
                store.thread(name, agent="clock")
        command = ["-m", "tests.server.loaded_server", str(directory / "store.db"), str(PIECES)]
        with ForkedProcess(commands(), [*command, str(held_back_seconds)], stdout=PIPE) as server:
            assert server.stdout is not None
            port, token = server.stdout.readline().split()
            self._port, self._token, self._pid = int(port), token, server.pid
            asyncio.run(self.run())
            metrics = Client(self._port, token).get("/metrics").body.decode()
            server.terminate()
            return metrics, json.loads(server.stdout.read())

    async def run(self) -> None:
        """Load the server for the time, then wake the followers."""
        idle = [asyncio.create_task(self._follow()) for _ in range(self._followers)]
        end = time.monotonic() + self._seconds
        live = [asyncio.create_task(self._live(number, end)) for number in range(self._live_max)]
        await asyncio.sleep(self._seconds / 3)
        self.memory.append(_memory(self._pid))
        await asyncio.wait_for(asyncio.gather(*live), self._seconds + WAIT_SECONDS)
        self.memory.append(_memory(self._pid))
        async with self._stream("POST", "/v1/threads/idle/run") as events:
            async for _ in events:
                break
        await asyncio.wait_for(asyncio.gather(*idle), WAIT_SECONDS)

    async def _follow(self) -> None:
        async with self._stream("GET", "/v1/threads/idle/events") as events:
            async for _ in events:
                self.woken += 1
                return

    async def _live(self, number: int, end: float) -> None:
        while time.monotonic() < end:
            self.runs += 1
            async with self._stream("POST", f"/v1/threads/live-{number}/run") as events:
                async for event, data in events:
                    if event == "text.delta":
                        self.delays.append(time.monotonic() - float(data["text"]))

    @asynccontextmanager
    async def _stream(self, method: str, path: str) -> AsyncGenerator[AsyncGenerator[tuple[str, Any]]]:
        """Open a stream of events over a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = b'{"text": "What time is it?"}' if method == "POST" else b""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._token}\r\n"
            f"Accept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            writer.write(head.encode() + body)
            status = await reader.readline()
            assert b" 200 " in status, status
            yield _events(reader)
        finally:
            writer.close()


async def _events(reader: asyncio.StreamReader) -> AsyncGenerator[tuple[str, Any]]:
    """Yield the events of a stream until it ends; the lines around the pieces of the transfer are not events."""
    kind = ""
    while line := await reader.readline():
        if line == b"0\r\n":  # the last piece of the transfer
            return
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def _memory(pid: int) -> int:
    """The memory of a process that is in use, in kB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


assert SECONDS > PIECES * PIECE_SECONDS, "a run ends within the time"
