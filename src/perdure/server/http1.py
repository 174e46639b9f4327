"""HTTP/1.1 for `perdure serve`: plain requests are read and answered here, all others by h11.

Parsing and framing by h11 takes more processor time than all other work of the server on a request.  A plain request has
a common method, a path, and a head that arrives whole, in a strict form; its body has a length and is small.  The first
request of a connection that is not plain hands the whole connection to h11, which reads every form and refuses what is
wrong; it also bounds the size of a head.  A property test compares what both read.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast
from urllib.parse import unquote

from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle

from perdure.server.streams import CONNECTION

__all__ = ["ServeProtocol", "plain_head"]

_BODY_BYTES_MAX = 64 * 1024
_HEAD_BYTES_MAX = 16 * 1024
_HEAD = re.compile(
    rb"(GET|HEAD|POST|PUT|DELETE) (/[!-~]*) HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)+)\r\n"
)
_LENGTH = re.compile(rb"[0-9]{1,5}\Z")
# These change how a message is framed, or what becomes of the connection.
_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"proxy-connection"})
_NO_BODY = frozenset({204, 304})


def plain_head(data: bytes) -> tuple[str, bytes, list[tuple[bytes, bytes]], int, int] | None:
    """Read the head of a request: method, target, headers, its size and the length of the body; None if it is not plain."""
    found = _HEAD.match(data, 0, _HEAD_BYTES_MAX)
    if found is None:
        return None
    method, target, lines = found.groups()
    headers: list[tuple[bytes, bytes]] = []
    length = hosts = 0
    has_length = False
    for line in lines.split(b"\r\n")[:-1]:
        raw_name, _, raw_value = line.partition(b":")
        name, value = raw_name.lower(), raw_value.strip(b" \t")
        headers.append((name, value))
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            if has_length or _LENGTH.match(value) is None:
                return None
            has_length, length = True, int(value)
        elif name in _UNUSUAL or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
    if hosts != 1 or length > _BODY_BYTES_MAX:
        return None
    return method.decode(), target, headers, found.end(), length


class ServeProtocol(H11Protocol):
    """One connection of a client, which the application is lent so that it can cut a stream off."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin a connection."""
        super().connection_made(transport)
        self._is_plain = True  # h11 has not seen a byte of this connection
        self._missing = 0  # bytes of the body of the request under way
        self._held = b""  # what the client sent after that request
        self._extensions: dict[str, Any] = {CONNECTION: transport}
        application = self._application = self.app

        async def lending(scope: Scope, receive: Receive, send: Send) -> None:
            scope["extensions"] = self._extensions
            await application(cast("Any", scope), cast("Any", receive), cast("Any", send))

        self.app = cast("Any", lending)

    def data_received(self, data: bytes) -> None:
        """Read what the client sent: the body of the request under way, or the next request."""
        if self._missing:
            data = self._add_body(data)
        if not data:
            return
        if not self._is_plain:
            super().data_received(data)
        elif self.cycle and not self.cycle.response_complete:
            self._held += data  # the next request, before the answer to this one
            self.flow.pause_reading()
        elif (head := plain_head(data)) is not None:
            self._begin(data, *head)
        else:
            self._is_plain = False
            super().data_received(data)

    def _begin(
        self,
        data: bytes,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        size: int,
        length: int,
    ) -> None:
        self._unset_keepalive_if_required()
        path, _, query = target.partition(b"?")
        self.headers = headers
        self.scope = cast(
            "Any",
            {
                "type": "http",
                "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
                "http_version": "1.1",
                "server": self.server,
                "client": self.client,
                "scheme": self.scheme,
                "method": method,
                "root_path": self.root_path,
                "path": self.root_path + unquote(path.decode("ascii")),
                "raw_path": self.root_path.encode("ascii") + path,
                "query_string": query,
                "headers": headers,
                "state": self.app_state.copy(),
                "extensions": self._extensions,
            },
        )
        self.cycle = _PlainCycle(
            scope=self.scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        self._missing = length
        if length == 0:
            self.cycle.more_body = False
            self.cycle.message_event.set()
        task = self.loop.create_task(self.cycle.run_asgi(self._application))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        if len(data) > size:
            self.data_received(data[size:])

    def _add_body(self, data: bytes) -> bytes:
        """Give the request under way its part of `data`, and return the rest; nobody reads it after the answer."""
        part, rest = data[: self._missing], data[self._missing :]
        self._missing -= len(part)
        if not self.cycle.response_complete:
            self.cycle.body += part
            self.cycle.more_body = self._missing > 0
            self.cycle.message_event.set()
        return rest

    def on_response_complete(self) -> None:
        """Go on with what the client sent before it had the answer."""
        super().on_response_complete()
        held, self._held = self._held, b""
        if held and not self.transport.is_closing():
            self.loop.call_soon(self.data_received, held)


class _PlainCycle(RequestResponseCycle):
    """A plain request and its answer, which has a length or is sent in chunks."""

    _framing = b""  # that ends a chunk; empty: the answer has a length, or no body
    _head: bytes | None = None  # that waits for the body, so that both are one packet
    _has_body = True

    async def send(self, message: Message) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Send a part of the answer."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started and message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        elif self.response_started and not self.response_complete and message["type"] == "http.response.body":
            self._part(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"the application sent {message['type']!r} out of turn")

    def _start(self, status: int, headers: Any) -> None:
        sent = [*self.default_headers, *headers]
        names = {name for name, _ in sent}
        self._has_body = self.scope["method"] != "HEAD" and status not in _NO_BODY
        if self._has_body and b"content-length" not in names:
            self._framing = b"\r\n"
            sent.append((b"transfer-encoding", b"chunked"))
        if CLOSE_HEADER in sent:
            self.keep_alive = False
        elif not self.keep_alive:
            sent.append(CLOSE_HEADER)
        lines = [b"HTTP/1.1 %d %s" % (status, STATUS_PHRASES[status])]
        lines += [name + b": " + value for name, value in sent]
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
            raise RuntimeError("a header of the answer has a line end in it")
        self.response_started = True
        self._head = head + b"\r\n\r\n"
        if self._framing:
            self.transport.write(self._head)
            self._head = None

    def _part(self, body: bytes, *, is_last: bool) -> None:
        if not self._has_body:
            body = b""
        elif self._framing and body:
            body = b"%x\r\n%b\r\n" % (len(body), body)
        if is_last and self._framing:
            body += b"0\r\n\r\n"
        if self._head is not None:
            body, self._head = self._head + body, None
        if body:
            self.transport.write(body)
        if not is_last:
            return
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
