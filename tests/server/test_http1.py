"""Plain requests are read as h11 reads them; every other form goes to h11, and no answer is framed wrongly."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import h11
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from perdure.server.http1 import ServeProtocol, plain_head
from tests.server.client import TOKEN, Client

KEY = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
HOST = b"Host: localhost\r\n"


def read_by_h11(data: bytes) -> tuple[str, bytes, list[tuple[bytes, bytes]], bytes] | None:
    """Method, target, headers and body as h11 reads them; None if it refuses them, or needs more."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    body = b""
    try:
        request = connection.next_event()
        if not isinstance(request, h11.Request):
            return None
        while isinstance(part := connection.next_event(), h11.Data):
            body += bytes(part.data)
    except h11.RemoteProtocolError:
        return None
    headers = [(bytes(name), bytes(value)) for name, value in request.headers]
    return (
        (request.method.decode(), bytes(request.target), headers, body)
        if isinstance(part, h11.EndOfMessage)
        else None
    )


PIECES = [
    b"GET /a?b=%20 HTTP/1.1\r\n",
    b"POST /v1/x HTTP/1.1\r\n",
    b"POST  /v1/x HTTP/1.1\r\n",
    b"GET http://h/ HTTP/1.1\r\n",
    b"GET /a HTTP/1.0\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"Host: a\r\n",
    b"host:b:80 \r\n",
    b"Host : a\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: 03\r\n",
    b"Content-Length: +3\r\n",
    b"Content-Length: 3, 3\r\n",
    b"Content-Length: 3\n",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding : chunked\r\n",
    b"Connection: keep-alive\r\n",
    b"Connection: close\r\n",
    b"X: one\r\n two\r\n",
    b"X:\t\xe9 \x7f\r\n",
    b"X:\x00\r\n",
    b"X: a\rb\r\n",
    b": empty\r\n",
    b"\r\n",
    b"\n",
    b"abc",
    b"3\r\nabc\r\n0\r\n\r\n",
]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=6), min_size=3, max_size=9))
def test_a_plain_request_is_read_as_h11_reads_it(pieces: list[bytes]) -> None:
    """What h11 would refuse, or frame in another way, is not plain."""
    data = b"".join(pieces)
    head = plain_head(data)
    if head is None:
        return
    method, target, headers, size, length = head
    whole = data[: size + length].ljust(size + length, b".")
    assert read_by_h11(whole) == (method, target, headers, whole[size:])


def test_the_property_meets_plain_requests() -> None:
    """A control: a common request is plain, and h11 takes it too."""
    data = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    assert plain_head(data) == (
        "POST",
        b"/v1/x",
        [(b"host", b"a"), (b"content-length", b"3")],
        len(data) - 3,
        3,
    )
    assert read_by_h11(data) is not None


def sent(port: int, *parts: bytes) -> list[tuple[int, bytes]]:
    """Send bytes part by part, each after a pause of the loop, end, and read all answers: status and body."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            connection.sendall(part)
        reader, found = connection.makefile("rb"), list[tuple[int, bytes]]()
        while line := reader.readline():
            headers = dict[bytes, bytes]()
            while (text := reader.readline().rstrip()) != b"":
                name, _, value = text.partition(b": ")
                headers[name.lower()] = value
            found.append((int(line.split()[1]), reader.read(int(headers[b"content-length"]))))
            if headers.get(b"connection") == b"close":
                break
        return found


def asked(method: bytes, path: bytes, body: bytes = b"", *headers: bytes) -> bytes:
    """A request with the credential; a body is JSON."""
    named = [b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)] if body else []
    return b"".join([method, b" ", path, b" HTTP/1.1\r\n", HOST, KEY, *named, *headers, b"\r\n", body])


LAST = asked(b"GET", b"/healthz", b"", b"Connection: close\r\n")  # h11 reads it, and the connection ends


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_requests_that_come_before_an_answer_are_answered_in_order(client: Client, size: int) -> None:
    """However the bytes are divided: a head in pieces and a request after a body go the way that h11 reads."""
    put = asked(b"POST", b"/v1/threads", b'{"agent":"assistant","id":"other"}')
    data = asked(b"GET", b"/v1/threads/chat") + put + asked(b"GET", b"/v1/threads/other") + LAST
    answers = sent(client.port, *(data[at : at + size] for at in range(0, len(data), size)))
    assert [status for status, _ in answers] == [200, 201, 200, 200]
    assert [json.loads(body).get("id") for _, body in answers] == ["chat", "other", "other", None]


def test_a_body_that_nobody_reads_is_not_taken_for_the_next_request(client: Client) -> None:
    """A refusal is answered before the body has come; what comes after is still that body."""
    trap = asked(b"GET", b"/v1/threads/chat")
    head = asked(b"POST", b"/v1/nowhere", trap).removesuffix(trap)
    assert [status for status, _ in sent(client.port, head, trap, LAST)] == [404, 200]


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"GET / HTTP/1.1\r\n" + KEY + b"\r\n", [400]),  # without a host
        (b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n", [400]),
        (asked(b"GET", b"/v1/threads/chat", b"", b"Content-Length: 1, 2\r\n"), [400]),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", [400]),
        (
            asked(b"POST", b"/v1/threads", b"", b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"),
            [400],
        ),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 600_000 + b"\r\n\r\n", [400]),
    ],
    ids=["no host", "two hosts", "two lengths", "no HTTP", "both framings", "a large head"],
)
def test_what_is_not_http_is_refused_and_the_connection_closed(
    client: Client, data: bytes, statuses: list[int]
) -> None:
    """As h11 refuses it; no second request of the connection is read."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        connection.sendall(data + LAST)
        answer = b""
        try:
            while part := connection.recv(65_536):
                answer += part
        except ConnectionError:
            pass
    assert [int(line[9:12]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")] == statuses


class Wire(asyncio.Transport):
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed = b"", False

    def write(self, data: Any) -> None:
        """Keep bytes."""
        self.written += bytes(data)

    def is_closing(self) -> bool:
        """True after the end."""
        return self.closed

    def close(self) -> None:
        """End it."""
        self.closed = True

    def pause_reading(self) -> None:
        """Nothing is read from it."""

    def resume_reading(self) -> None:
        """Nothing is read from it."""


def answered(request: bytes, *messages: dict[str, Any]) -> Wire:
    """Let an application answer one request with these messages, and return what it wrote."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def serve() -> Wire:
        config = uvicorn.Config(application, log_config=None, http=ServeProtocol, ws="none")
        config.load()
        protocol, wire = ServeProtocol(config, state := ServerState(), {}), Wire()
        protocol.connection_made(wire)
        protocol.data_received(request)
        await asyncio.gather(*state.tasks)
        protocol.connection_lost(None)
        return wire

    return asyncio.run(serve())


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    """The head of an answer."""
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(content: bytes, *, more: bool = False) -> dict[str, Any]:
    """A part of its body."""
    return {"type": "http.response.body", "body": content, "more_body": more}


def test_an_answer_without_a_length_is_sent_in_chunks() -> None:
    """An empty part is no chunk: it would end the answer."""
    parts = (start(), body(b"one", more=True), body(b"", more=True), body(b"two"))
    wire = answered(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", *parts)
    assert wire.written == (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    )


def test_head_and_204_have_no_body() -> None:
    """Bytes after such a head would be taken for the next answer."""
    head = answered(
        b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", start((b"content-length", b"3")), body(b"one")
    ).written
    none = answered(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", start(status=204), body(b"one")).written
    assert head == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"
    assert none == b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb", b"a\0"])
def test_a_header_with_a_line_end_is_not_sent(value: bytes) -> None:
    """The answer is an error of the server instead, and the connection ends."""
    wire = answered(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", start((b"x-name", value)), body(b""))
    assert wire.written.startswith(b"HTTP/1.1 500 ")
    assert value not in wire.written
    assert wire.closed
