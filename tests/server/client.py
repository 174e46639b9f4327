"""A client for the tests: plain HTTP over a socket, and a real server on a loopback port to talk to."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple

import uvicorn
from starlette.types import ASGIApp

from perdure import Agent
from perdure.server.app import HttpServer
from perdure.server.keys import Keys
from perdure.server.serve import ServeProtocol
from perdure.store.store import Store
from perdure.testing import Script, say

__all__ = ["TOKEN", "Client", "Event", "Reply", "assistant", "key", "serving"]

TOKEN = "the token of the start link"
WAIT_SECONDS = 60.0  # for what comes at once on an idle machine


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class Event(NamedTuple):
    """One server-sent event."""

    id: str | None
    type: str
    data: Any


class Client:
    """Sends requests with one credential."""

    def __init__(self, port: int, secret: str | None = TOKEN) -> None:
        """Talk to the server on `port`; None: without a credential."""
        self.port = port
        self.own = {} if secret is None else {"Authorization": f"Bearer {secret}"}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Reply:
        """Send one request and read the whole answer."""
        with self.connected() as connection:
            response = self._sent(connection, method, path, body, headers, raw)
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())

    def get(self, path: str, **headers: str) -> Reply:
        """Read an address."""
        return self.ask(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        """Ask for a change."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", path, {} if body is None else body, headers=named)

    def events(
        self, path: str, *, last: str | None = None, method: str = "GET", body: Any = None
    ) -> Generator[Event]:
        """Read a stream of events until it ends or the caller leaves."""
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
        with self.connected() as connection:
            response = self._sent(connection, method, path, body, headers, None)
            assert response.status == 200, (response.status, response.read())
            yield from _events(response)

    @contextmanager
    def connected(self) -> Generator[HTTPConnection]:
        """Open a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        try:
            yield connection
        finally:
            connection.close()

    def _sent(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
        raw: bytes | None,
    ) -> HTTPResponse:
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        kind = {} if content is None else {"Content-Type": "application/json"}
        connection.request(method, path, content, {**kind, **self.own, **(headers or {})})
        return connection.getresponse()


def _events(response: HTTPResponse) -> Iterator[Event]:
    fields: dict[str, str] = {}
    while line := response.readline():
        text = line.decode().rstrip("\n")
        if text.startswith(":"):
            continue
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif fields:
            yield Event(fields.get("id"), fields["event"], json.loads(fields["data"]))
            fields = {}


def assistant(*answers: Any, pieces: int = 1, name: str = "assistant", tools: Any = ()) -> Agent:
    """An agent that gives these answers, then many more."""
    more = [say(f"Answer {number}.") for number in range(200)]
    return Agent(name, backend=Script(*answers, *more, pieces=pieces), tools=list(tools))


def key(store: Store, name: str, *roles: str, **limits: Any) -> str:
    """Add a key with these roles."""
    return Keys(store).add(name, roles, **limits)


class _Uvicorn(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Leave signals to the tests."""


@contextmanager
def serving(
    store: Store,
    *agents: Agent,
    within: Callable[[ASGIApp], ASGIApp] | None = None,
    root_path: str = "",
    http: Any = ServeProtocol,
    **options: Any,
) -> Generator[Client]:
    """Serve a store on a loopback port of its own, in a thread; `within` another application, if there is one.

    `http` is what reads connections: that of `perdure serve`, or uvicorn's own.
    """
    application = HttpServer(store, agents, token=TOKEN, **options)
    config = uvicorn.Config(
        application if within is None else within(application),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        http=http,
        root_path=root_path,
    )
    server = _Uvicorn(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), name="server")
    thread.start()
    client = Client(listening.getsockname()[1])
    try:
        yield client
    finally:
        application.drain()
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        application.store.tool_threads.shutdown(wait=True)
        listening.close()
