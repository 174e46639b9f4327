"""A server that plays answers: what each request is answered with is written down before.

    with playing(whole({"choices": [...]})) as place:
        ...  # ask place.url
        place.requests[0].body

It speaks plain HTTP on a port of 127.0.0.1.  After the last answer it plays the last one again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

__all__ = ["Answer", "Asked", "Place", "broken", "cut", "playing", "silence", "streamed", "whole"]

SSE = "text/event-stream"


@dataclass(frozen=True)
class Answer:
    """What one request is answered with."""

    body: bytes = b""
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_cut: bool = False  # the connection breaks before the end
    delay: float = 0.0  # seconds before it begins
    piece: int = 0  # bytes in each piece; 0: all in one


@dataclass(frozen=True)
class Asked:
    """What was asked."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Place:
    """Where the server is, and what it was asked."""

    def __init__(self, url: str, requests: list[Asked]) -> None:
        """Name the address."""
        self.url, self.requests = url, requests


def whole(body: object, **more: Any) -> Answer:
    """A whole answer."""
    return Answer(json.dumps(body).encode(), **more)


def streamed(body: bytes, *, kind: str = SSE, piece: int = 17) -> Answer:
    """A stream, in small pieces."""
    return Answer(body, kind=kind, piece=piece)


def cut(body: bytes, *, kind: str = SSE) -> Answer:
    """A stream that breaks off in its middle."""
    return Answer(body, kind=kind, is_cut=True, piece=64)


def broken(kind: str = "application/json") -> Answer:
    """What is no JSON."""
    return Answer(b'data: {"id": "x", "choices": [{]}\n\n' if kind == SSE else b'{"id": "x", ', kind=kind)


def silence(seconds: float) -> Answer:
    """An answer that is late."""
    return whole({}, delay=seconds)


@contextmanager
def playing(*answers: Answer) -> Generator[Place]:
    """A server that plays `answers` one after the other."""
    requests: list[Asked] = []
    server = _Server(("127.0.0.1", 0), _Handler)
    server.answers, server.requests = list(answers), requests
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Place(f"http://127.0.0.1:{server.server_address[1]}", requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answers: list[Answer]
    requests: list[Asked]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that is gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Play the next answer to a request that fetches one."""
        self.do_POST()

    def do_POST(self) -> None:
        """Play the next answer."""
        server = cast("_Server", self.server)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        server.requests.append(Asked(self.command, self.path, headers, json.loads(body or b"null")))
        answer = server.answers[min(len(server.requests), len(server.answers)) - 1]
        time.sleep(answer.delay)
        self._play(answer)

    def _play(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("content-type", answer.kind)
        self.send_header("transfer-encoding", "chunked")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        body = answer.body[: len(answer.body) // 2] if answer.is_cut else answer.body
        size = answer.piece or max(1, len(body))
        for at in range(0, len(body), size):
            piece = body[at : at + size]
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        if answer.is_cut:
            self.close_connection = True
            self.connection.shutdown(2)
        else:
            self.wfile.write(b"0\r\n\r\n")
