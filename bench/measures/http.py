"""Requests per second of the server against the same work in process: reading a thread, and running a scripted agent.

Eight clients each, one connection a client.  The server is a process of its own, as in use; the clients are threads of
this one, so on a machine with one core they take time from the server.  Both sides work for a while before they are timed,
so that a process which has just started is not compared with one that has run for long, and then in turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path

import msgspec

import perdure
from bench.ground import Ground, median, take_turns
from bench.table import Result
from perdure import Agent
from perdure.shapes.ledger import RunResult
from perdure.shapes.threads import ThreadDetail
from perdure.testing import Script, say

_CLIENTS = 8
_BAR = 0.7
_TURNS = 6
_WARM_TURNS = 3
_ids = count()


def agent() -> Agent:
    return Agent("assistant", backend=Script(*[say("Done, and nothing more to say.")] * 200_000))


def measure(ground: Ground) -> Iterable[Result]:
    each = max(1, ground.sizes.writer_turns // 3)
    for name, make_own, make_http in (
        ("GET thread", _read_here, _read_there),
        ("POST run", _run_here, _run_there),
    ):
        own: list[float] = []
        http: list[float] = []
        for _ in range(ground.sizes.repetitions):
            here, there = ground.fresh(), ground.fresh()
            _prepare(here)
            _prepare(there)
            with perdure.open(here / "store.db") as store, _served(there) as (port, token):
                connections = [HTTPConnection("127.0.0.1", port) for _ in range(_CLIENTS)]
                seconds = _seconds(
                    [make_own(store, number) for number in range(_CLIENTS)],
                    [make_http(each_one, token, number) for number, each_one in enumerate(connections)],
                    each,
                )
                for connection in connections:
                    connection.close()
            own.append(_TURNS * _CLIENTS * each / seconds[0])
            http.append(_TURNS * _CLIENTS * each / seconds[1])
            ground.drop(here, there)
        yield Result(
            measure=f"HTTP: {name}, {_CLIENTS} clients",
            ours=median(http),
            baseline=median(own),
            baseline_is="in process",
            unit="requests/s",
            bound="at least",
            bar=_BAR,
            given_ratio=median([a / b for a, b in zip(http, own, strict=True)]),
        )


def _prepare(directory: Path) -> None:
    with perdure.open(directory / "store.db") as store:
        for number in range(_CLIENTS):
            thread = store.thread(f"chat-{number}", agent=agent())
            for turn in range(5):
                thread.run(f"Turn {turn}")


def _seconds(own: list[Callable[[], None]], http: list[Callable[[], None]], each: int) -> tuple[float, float]:
    """What each side takes for all its turns, in which every client makes `each` requests."""

    def loop(work: Callable[[], None]) -> None:
        for _ in range(each):
            work()

    def side(works: list[Callable[[], None]]) -> Callable[[int], object]:
        return lambda _: list(clients.map(loop, works))

    with ThreadPoolExecutor(_CLIENTS) as clients:
        sides = [side(own), side(http)]
        take_turns(sides, range(_WARM_TURNS))
        here, there = take_turns(sides, range(_TURNS))
    return here.total, there.total


def _read_here(store: perdure.Store, number: int) -> Callable[[], None]:
    def work() -> None:
        thread = store.thread(f"chat-{number}")
        msgspec.json.encode(ThreadDetail.of(thread, thread.at()))

    return work


def _run_here(store: perdure.Store, number: int) -> Callable[[], None]:
    runner = agent()

    def work() -> None:
        thread = store.thread(f"chat-{number}", agent=runner)
        msgspec.json.encode(RunResult.of(thread, thread.run("Go on", id=f"here-{next(_ids)}")))

    return work


@contextmanager
def _served(directory: Path) -> Generator[tuple[int, str]]:
    """Serve the store of a directory; the port and the token are yielded."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.children.serve", str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port, token = process.stdout.readline().split()
    try:
        yield int(port), token
    finally:
        process.terminate()
        process.communicate()


def _read_there(connection: HTTPConnection, token: str, number: int) -> Callable[[], None]:
    return lambda: _asked(connection, token, "GET", f"/v1/threads/chat-{number}", None)


def _run_there(connection: HTTPConnection, token: str, number: int) -> Callable[[], None]:
    return lambda: _asked(
        connection, token, "POST", f"/v1/threads/chat-{number}/run", json.dumps({"text": "Go on"}).encode()
    )


def _asked(connection: HTTPConnection, token: str, method: str, path: str, body: bytes | None) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    content = reply.read()
    assert reply.status == 200, content
