"""Serving a store from a process of its own: the address, the start link, a worker beside it, and how both end.

On a loopback address a store without keys is served with a token that only the start link has.  On any other address a
store without keys is not served.  The first SIGTERM or SIGINT ends streams, lets runs end, and then ends the process;
the second ends it at once, and what runs counts as interrupted.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from threading import Event
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure import aio
from perdure.errors import Invalid, PerdureError, Refused, Unavailable
from perdure.runtime.agent.agent import Agent
from perdure.server.access import LOOPBACK, host_name
from perdure.server.app import HttpServer
from perdure.server.keys import Keys
from perdure.server.streams import CONNECTION
from perdure.store.store import Store
from perdure.store.worker import Worked
from perdure.telemetry.metrics import StoreMetrics

__all__ = ["PORT", "ServeProtocol", "Serving", "serve"]

PORT = 7333

_KEEP_ALIVE_SECONDS = 5
_HEAD_BYTES_MAX = 64 * 1024
_HELD_BYTES_MAX = 64 * 1024


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens."""

    url: str  # without a secret
    link: str  # the start link; the same as `url` if clients need keys
    has_keys: bool


def serve(
    store: Store,
    agents: Sequence[Agent] = (),
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    names: Sequence[str] = (),
    root_path: str = "",
    work: bool = False,
    at_once: int = 8,
    metrics: StoreMetrics | None = None,
    started: Callable[[Serving], None] | None = None,
    report: Callable[[Worked], None] | None = None,
) -> None:
    """Serve a store until a signal ends it; with `work` also run what is due of the agents, as `store.work` does.

    `names` are further host names that requests may address, such as that of a proxy.  `root_path` is the path under
    which a proxy shows the server; the proxy removes it from the requests that it passes on.  `metrics` are the numbers
    that telemetry sends, None: the server counts its own.  `started` is called when the server listens.  Raises `Refused`
    on an address that others reach if the store has no key, `Unavailable` if the port is taken.  The caller opens and
    closes the store.
    """
    has_keys = bool(Keys(store).ls())
    if not has_keys and not is_loopback(host):
        raise Refused(
            f"{host} can be reached by others, and the store has no key; nothing is served.",
            code="keys_missing",
            advice="Add one with `perdure keys add NAME --role ROLE`, or serve on 127.0.0.1.",
            host=host,
        )
    if work and not agents:
        raise Invalid(
            "a worker needs agents; nothing is served.", code="code_missing", advice="Name them with --code."
        )
    token = None if has_keys else secrets.token_urlsafe(32)
    hosts = (*LOOPBACK, host, *names)
    with _bound(host, port) as listening:  # also closed if the server does not start
        application = HttpServer(store, agents, token=token, hosts=hosts, metrics=metrics)
        url = f"http://{host_name(host)}:{listening.getsockname()[1]}/"
        place = Serving(url=url, link=url if token is None else f"{url}?token={token}", has_keys=has_keys)
        asyncio.run(
            _serving(
                application,
                listening,
                place,
                root_path=root_path.rstrip("/"),
                work=work,
                at_once=at_once,
                started=started,
                report=report,
            )
        )


def is_loopback(host: str) -> bool:
    """True if only programs on this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises `Unavailable` if the port is taken, `Invalid` for no address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, OverflowError) as error:
        raise Invalid(
            f"{host}:{port} is no address of this machine; nothing is served.", code="address_invalid"
        ) from error
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(1024)
    except OSError as error:
        found.close()
        raise Unavailable(
            f"port {port} of {host} cannot be used ({error.strerror}); nothing is served.",
            code="port_taken",
            advice="Choose another with --port, or 0 for any that is free.",
            host=host,
            port=port,
        ) from error
    found.setblocking(False)
    return found


class _Corked:
    """A transport that sends what is written in one step of the event loop together: head and body are one packet."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._held = transport, bytearray()

    def write(self, data: bytes) -> None:
        """Keep bytes until the step of the loop ends; many are sent at once, so that a slow reader is noticed."""
        if not self._held:
            asyncio.get_running_loop().call_soon(self._flush)
        self._held += data
        if len(self._held) > _HELD_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        held, self._held = self._held, bytearray()
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        """Send what is kept, and close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class ServeProtocol(HttpToolsProtocol):
    """HTTP/1.1 by httptools, which leaves to this class how long a head may be and that it names one host."""

    _head_bytes = 0
    _is_in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin a connection, and lend it to the application."""
        corked = cast("asyncio.Transport", _Corked(transport))
        super().connection_made(corked)
        application = self.app

        async def lending(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("extensions", {})[CONNECTION] = corked
            await application(cast("Any", scope), cast("Any", receive), cast("Any", send))

        self.app = cast("Any", lending)

    def data_received(self, data: bytes) -> None:
        """Read what the client sent; a head that does not end is refused."""
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES_MAX:
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """Begin to answer; an error that is raised here is answered with status 400."""
        self._is_in_head = False
        assert self.parser is not None, "the parser calls this"
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            raise ValueError("a request names one host")
        super().on_headers_complete()


class _Uvicorn(uvicorn.Server):
    """The web server, which tells the application when it is to end."""

    def __init__(self, config: uvicorn.Config, application: HttpServer, stop: Event) -> None:
        super().__init__(config)
        self._application, self._stop = application, stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal, and end the process at the second."""
        if self.should_exit:
            os._exit(128 + sig)  # what runs here counts as interrupted, and can be resumed
        self.should_exit = True  # before the message, whose reader may send the second signal
        os.write(2, b"Stopping: the runs under way end first; once more to stop at once.\n")
        self._stop.set()
        self._application.drain()


async def _serving(
    application: HttpServer,
    listening: socket.socket,
    place: Serving,
    *,
    root_path: str,
    work: bool,
    at_once: int,
    started: Callable[[Serving], None] | None,
    report: Callable[[Worked], None] | None,
) -> None:
    stop = Event()
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        server_header=False,
        root_path=root_path,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        http=ServeProtocol,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    server = _Uvicorn(config, application, stop)
    working = asyncio.create_task(_work(application, stop, at_once, report)) if work else None
    if started is not None:
        started(place)
    try:
        await server.serve(sockets=[listening])
    finally:
        stop.set()
        if working is not None:
            await working
        application.store.tool_threads.shutdown(wait=False)


async def _work(
    application: HttpServer, stop: Event, at_once: int, report: Callable[[Worked], None] | None
) -> None:
    store: aio.Store = application.store
    try:
        await store.work(list(application.agents.values()), at_once=at_once, stop=stop, report=report)
    except PerdureError:
        if not stop.is_set():
            raise
