"""A TCP proxy between clients and a server that loses requests and answers: what a network does around a commit.

It reads the protocol as far as it must: what a client sends up to its next Sync is one request, and what the server
sends up to ReadyForQuery is the answer.  A fault strikes one request in five, and ends the client's connection:

- *dropped*: the server never gets the request;
- *hidden*: the server executes it, and the answer is lost;
- *late*: the server gets it after the client has lost its connection, and executes it then;
- *half*: the server gets a part of it, and hears only later that the client has gone.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from threading import Lock, Thread
from urllib.parse import unquote

__all__ = ["FAULTS", "Proxy", "proxy_to"]

FAULTS = ("dropped", "hidden", "late", "half")
_PLEASE_SECURE = (80_877_103, 80_877_104)  # requests for TLS and GSSAPI


class Proxy:
    """Passes requests on, but for one in five once `rate` is set; the seed decides which."""

    def __init__(self, server: str, seed: int) -> None:
        """Listen on a port of this host for clients of the server with this socket."""
        self.server, self._draw, self._lock = server, random.Random(seed), Lock()
        self.rate = 0.0  # how many of the requests are struck
        self.faults: tuple[str, ...] = FAULTS
        self.late_seconds = (0.01, 0.08)
        self.delay_seconds = 0.0  # how long each request takes to the server
        self.struck: Counter[str] = Counter()
        self.requests = 0  # that were answered: round trips
        self._served: list[tuple[socket.socket, Thread]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more clients, and wait until nothing is on its way any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client, thread in self._served:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with suppress(OSError):  # it has gone already
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                thread = Thread(target=self._serve, args=(client,), daemon=True)
                self._served.append((client, thread))
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with closing(client), closing(server), suppress(OSError, EOFError):
            server.connect(self.server)
            while struct.unpack(">II", (start := _first(client))[:8])[1] in _PLEASE_SECURE:
                client.sendall(b"N")
            server.sendall(start)
            client.sendall(_upto(server, b"Z"))
            while True:
                request = _upto(client, b"QSX")
                fault = self._next_fault()
                if fault is not None:
                    self._strike(fault, request, client, server)
                    return
                time.sleep(self.delay_seconds)
                server.sendall(request)
                answer = _upto(server, b"Z")
                with self._lock:
                    self.requests += 1
                client.sendall(answer)

    def _next_fault(self) -> str | None:
        with self._lock:
            if self._draw.random() >= self.rate:
                return None
            fault = self._draw.choice(self.faults)
            self.struck[fault] += 1
            return fault

    def _strike(self, fault: str, request: bytes, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            pause = self._draw.uniform(*self.late_seconds)
        if fault == "hidden":
            server.sendall(request)
            _upto(server, b"Z")
        client.shutdown(socket.SHUT_RDWR)
        if fault == "late":
            time.sleep(pause)
            server.sendall(request)
            _upto(server, b"Z")
        elif fault == "half":
            server.sendall(request[: len(request) // 2])
            time.sleep(pause)


def _first(stream: socket.socket) -> bytes:
    """Read what a client sends first, which has no kind."""
    size = _exactly(stream, 4)
    return size + _exactly(stream, struct.unpack(">I", size)[0] - 4)


def _upto(stream: socket.socket, kinds: bytes) -> bytes:
    """Read messages up to one of these kinds."""
    found = b""
    while True:
        head = _exactly(stream, 5)
        found += head + _exactly(stream, struct.unpack(">I", head[1:])[0] - 4)
        if head[:1] in kinds:
            return found


def _exactly(stream: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = stream.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


@contextmanager
def proxy_to(url: str, seed: int) -> Generator[tuple[Proxy, str]]:
    """A proxy to the server of that address, and the address of its other end."""
    base, _, query = url.partition("?")
    options = dict(option.split("=", 1) for option in query.split("&"))
    host, port = unquote(options.pop("host")), options.pop("port", "5432")
    with closing(Proxy(f"{host}/.s.PGSQL.{port}", seed)) as proxy:
        rest = "&".join([f"{name}={value}" for name, value in options.items()])
        yield proxy, f"{base.replace('@/', f'@127.0.0.1:{proxy.port}/')}?{rest}"
