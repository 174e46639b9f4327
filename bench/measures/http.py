"""Requests per second of the server against the same work in process: reading a thread, and running a scripted agent.

Eight clients each, one connection a client.  The server is a process of its own, as in use; the clients are threads of
this one, so on a machine with one core they take time from the server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count
from pathlib import Path

import msgspec

import perdure
from bench.ground import Ground, median
from bench.table import Result
from perdure import Agent
from perdure.shapes.ledger import RunResult
from perdure.shapes.threads import ThreadDetail
from perdure.testing import Script, say

_CLIENTS = 8
_BAR = 0.7
_ids = count()


def agent() -> Agent:
    return Agent("assistant", backend=Script(*[say("Done, and nothing more to say.")] * 200_000))


def measure(ground: Ground) -> Iterable[Result]:
    each = max(5, ground.sizes.writer_turns // 2)
    for name, make_own, make_http in (
        ("GET thread", _read_here, _read_there),
        ("POST run", _run_here, _run_there),
    ):
        own: list[float] = []
        http: list[float] = []
        for _ in range(ground.sizes.repetitions):
            directory = ground.fresh()
            _prepare(directory)
            with perdure.open(directory / "store.db") as store:
                own.append(_rate([make_own(store, number) for number in range(_CLIENTS)], each))
            http.append(_served(directory, make_http, each))
            ground.drop(directory)
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


def _rate(works: list[Callable[[], None]], each: int) -> float:
    def loop(work: Callable[[], None]) -> None:
        for _ in range(each):
            work()

    with ThreadPoolExecutor(len(works)) as pool:
        list(pool.map(lambda work: work(), works))  # warm
        start = time.perf_counter()
        list(pool.map(loop, works))
        return each * len(works) / (time.perf_counter() - start)


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


def _served(
    directory: Path, make: Callable[[HTTPConnection, str, int], Callable[[], None]], each: int
) -> float:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.children.serve", str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port, token = process.stdout.readline().split()
    connections = [HTTPConnection("127.0.0.1", int(port)) for _ in range(_CLIENTS)]
    try:
        return _rate([make(each_one, token, number) for number, each_one in enumerate(connections)], each)
    finally:
        for connection in connections:
            connection.close()
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
