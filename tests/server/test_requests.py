"""Requests that are not HTTP are refused, and those of one connection are kept apart."""

from __future__ import annotations

import json
import socket

import pytest

from tests.server.client import TOKEN, Client

KEY = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
HOST = b"Host: localhost\r\n"


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


LAST = asked(b"GET", b"/healthz", b"", b"Connection: close\r\n")


def test_a_person_at_an_unknown_address_is_shown_the_page(client: Client) -> None:
    """The page says that there is none; a program gets a problem.  Both are told 404."""
    shown, told = client.get("/nowhere", accept="text/html,*/*"), client.get("/nowhere", accept="*/*")

    assert (shown.status, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert (told.status, told.json["code"]) == (404, "address_not_found")


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_requests_that_come_before_an_answer_are_answered_in_order(client: Client, size: int) -> None:
    """However the bytes are divided."""
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
    """No second request of the connection is read."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        connection.sendall(data + LAST)
        answer = b""
        try:
            while part := connection.recv(65_536):
                answer += part
        except ConnectionError:
            pass
    assert [int(line[9:12]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")] == statuses
