"""Requests that are not HTTP are refused, and those of one connection are kept apart."""

from __future__ import annotations

import json
import re
import socket
from functools import partial

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.server.serve import ServeProtocol
from perdure.store.store import Store
from tests.server.client import TOKEN, Client, assistant, serving

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


ALIKE = {
    "a thread": asked(b"GET", b"/v1/threads/chat"),
    "a moment by its digest": b"",
    "the head of an answer": asked(b"HEAD", b"/v1/threads/chat"),
    "a problem": asked(b"GET", b"/v1/threads/nothing"),
    "a change": asked(b"PUT", b"/v1/threads/chat/state/x.json", b"1"),
    "a cookie": asked(b"POST", b"/v1/session", json.dumps({"key": TOKEN}).encode()),
    "no content": asked(b"DELETE", b"/v1/session"),
    "the last one": asked(b"GET", b"/healthz", b"", b"Connection: close\r\n"),
    "an old client": b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n",
    "a body in pieces": asked(b"POST", b"/v1/threads", b"", b"Transfer-Encoding: chunked\r\n"),
}
CHANGING = re.compile(
    rb'date: [^\r]+\r\n|server: [^\r]+\r\n|perdure_\d+|\d{4}-\d\d-\d\dT[^"]+|[0-9a-f]{64}|:\d+:|"version":\d+'
)


def answered(port: int, data: bytes) -> bytes:
    """Everything that a server sends for a request, without what differs from one moment to the next."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data if b"close" in data or b"HTTP/1.0" in data else data + LAST)
        got = b"".join(iter(partial(connection.recv, 65_536), b""))
    head, _, body = got.partition(b"\r\n\r\n")
    return CHANGING.sub(b"", b"\r\n".join(sorted(head.split(b"\r\n"))) + b"\r\n" + body)


@pytest.mark.parametrize("kind", ALIKE)
def test_an_answer_in_one_piece_is_the_one_of_the_web_server(client: Client, store: Store, kind: str) -> None:
    """`perdure serve` reads and answers most requests without the messages of ASGI, and with the same bytes."""
    path = f"/v1/threads/chat/state?at={store.thread('chat').head.commit}".encode()
    data = ALIKE[kind] or asked(b"GET", path)
    if b"chunked" in data:
        body = b'{"agent":"assistant","id":"new"}'
        data = data.replace(b"\r\n\r\n", b"\r\nContent-Type: application/json\r\n\r\n")
        data += b"".join(b"1\r\n%b\r\n" % body[at : at + 1] for at in range(len(body))) + b"0\r\n\r\n"
    with serving(store, assistant(), http="httptools") as other:
        own = answered(client.port, data)
        if kind == "a body in pieces":
            store.thread("new").rm()
        expected = answered(other.port, data)

    assert own == expected
    assert b"HTTP/1.1 " in own


def test_an_application_around_the_server_has_its_say(store: Store) -> None:
    """What sends answers in one piece is used only where no other application is between."""

    def around(application: ASGIApp) -> ASGIApp:
        async def marked(scope: Scope, receive: Receive, send: Send) -> None:
            async def marking(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"x-around", b"1")]
                await send(message)

            await application(scope, receive, marking if scope["type"] == "http" else send)

        return marked

    with serving(store, within=around) as around_it, serving(store) as alone:
        marked, plain = around_it.get("/healthz"), alone.get("/healthz")

    assert (marked.headers.get("x-around"), plain.headers.get("x-around")) == ("1", None)
    assert marked.json == plain.json == {"status": "ok"}


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(client: Client) -> None:
    """`Expect: 100-continue`: the body has not come, so it is asked for and waited for."""
    body = b'{"agent":"assistant","id":"later"}'
    head = asked(b"POST", b"/v1/threads", body, b"Expect: 100-continue\r\n").removesuffix(body)
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        connection.sendall(head)
        leave = connection.recv(65_536)
        connection.sendall(body)
        answer = connection.recv(65_536)

    assert leave.startswith(b"HTTP/1.1 100 Continue")
    assert answer.startswith(b"HTTP/1.1 201 ")


def test_an_idle_connection_is_closed(store: Store) -> None:
    """After the time that a connection is kept alive, counted from the last answer; before that it is used again."""
    protocol = type(
        "Protocol", (ServeProtocol,), {"timeout_keep_alive": property(lambda _: 0.3, lambda *_: None)}
    )
    with (
        serving(store, http=protocol) as client,
        socket.create_connection(("127.0.0.1", client.port)) as connection,
    ):
        request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answers = list[bytes]()
        for _ in range(3):
            connection.sendall(request)
            answers.append(connection.recv(65_536)[:12])
        closed = connection.recv(65_536)

    assert answers == [b"HTTP/1.1 200"] * 3
    assert closed == b""
