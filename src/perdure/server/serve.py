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
from functools import lru_cache
from threading import Event
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from perdure import aio
from perdure.errors import Invalid, PerdureError, Refused, Unavailable
from perdure.runtime.agent.agent import Agent
from perdure.server.access import LOOPBACK, host_name
from perdure.server.app import HttpServer
from perdure.server.keys import Keys
from perdure.server.routing import LENT_REQUEST
from perdure.server.streams import CONNECTION
from perdure.store.store import Store
from perdure.store.worker import Worked
from perdure.telemetry.metrics import StoreMetrics

__all__ = ["PORT", "ServeProtocol", "Serving", "serve"]

PORT = 7333

_KEEP_ALIVE_SECONDS = 5
_HEAD_BYTES_MAX = 64 * 1024
_HEAD_SECONDS = (
    10.0  # in which the head of a request has to come, from the connection or the answer before it on
)
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

    def write_at_once(self, data: bytes) -> None:
        """Send bytes after what is kept, without waiting for the end of the step."""
        if self._held:
            self._flush()
        self._transport.write(data)

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


class UvicornRequest:
    """One request as uvicorn has it.  Most are read and answered whole, for which the messages of ASGI are a long way."""

    __slots__ = ("_cycle", "_transport")

    def __init__(self, cycle: RequestResponseCycle, transport: _Corked) -> None:
        self._cycle, self._transport = cycle, transport

    def is_behind(self, receive: Receive, send: Send) -> bool:
        """True if an application has the request from uvicorn itself, and not through another application."""
        return receive == self._cycle.receive and send == self._cycle.send

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has come; None: it has to be waited for."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.response_complete:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def send_whole(self, status: int, headers: bytes, body: bytes) -> bool:
        """Send an answer by one write; False if that is left to uvicorn: for HEAD, and if the client reads too slowly.

        It leaves the cycle as the two messages of ASGI would.
        """
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.response_started or cycle.scope["method"] == "HEAD":
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        if not cycle.disconnected:
            end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
            own = _header_lines(tuple(cycle.default_headers))
            self._transport.write_at_once(b"".join((STATUS_LINE[status], own, headers, end, body)))
            if not cycle.keep_alive:
                self._transport.close()
            cycle.on_response()
        return True


@lru_cache(maxsize=8)
def _header_lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return the headers that uvicorn adds, as they are sent; they change once a second."""
    return b"".join(b"%b: %b\r\n" % each for each in headers)


class ServeProtocol(HttpToolsProtocol):
    """HTTP/1.1 by httptools, which leaves to this class how long a head may be and take, and that it names one host.

    uvicorn's own time limit counts from one byte to the next, and only after the first answer.
    """

    _head_bytes = 0
    _is_in_head = False
    _head_awaited_since: float | None = None  # on the clock of the loop; None: a request is under way
    _head_watch: asyncio.TimerHandle | None = None
    _is_idle = False  # no byte came since the last answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin a connection, and lend it to the application."""
        self._corked = _Corked(transport)
        super().connection_made(cast("asyncio.Transport", self._corked))
        self._head_awaited_since = self.loop.time()
        self._head_watch = self.loop.call_later(min(self.timeout_keep_alive, _HEAD_SECONDS), self._check_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        if self._head_watch is not None:
            self._head_watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin the next request if it came before the answer did, else to wait for its head.

        In place of uvicorn's, which sets a timer for each answer.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._head_awaited_since, self._is_idle = self.loop.time(), True

    def _check_head(self) -> None:
        """Close a connection whose client takes too long to send a head, and look again later at any other."""
        since, idle_seconds = self._head_awaited_since, min(self.timeout_keep_alive, _HEAD_SECONDS)
        seconds = idle_seconds if self._is_idle else _HEAD_SECONDS
        left = seconds if since is None else since + seconds - self.loop.time()
        if left > 0:  # a connection that falls idle meanwhile is closed in time
            self._head_watch = self.loop.call_later(min(left, idle_seconds), self._check_head)
            return
        if self._is_in_head:
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Read what the client sent; a head that does not end is refused."""
        self._is_idle = False
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
        self._is_in_head, self._head_awaited_since = False, None
        assert self.parser is not None, "the parser calls this"
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            raise ValueError("a request names one host")
        super().on_headers_complete()
        # The application is called in a later step of the loop.
        lent = UvicornRequest(self.cycle, self._corked)
        cast("Scope", self.scope)["extensions"] = {CONNECTION: self._corked, LENT_REQUEST: lent}


class _Uvicorn(uvicorn.Server):
    """The web server, which tells the application when it is to end."""

    def __init__(
        self, config: uvicorn.Config, application: HttpServer, stop: Event, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._application, self._stop, self._ready = application, stop, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so: from here on a signal is handled."""
        await super().startup(sockets)
        if self.started:
            self._ready()

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
    server = _Uvicorn(config, application, stop, lambda: started(place) if started is not None else None)
    working = asyncio.create_task(_work(application, stop, at_once, report)) if work else None
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
