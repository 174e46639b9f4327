"""A proxy that shows a server below a path, as nginx does with `proxy_pass http://127.0.0.1:7333/;`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

__all__ = ["proxied"]

_HOP_BY_HOP = {"connection", "transfer-encoding"}


@contextmanager
def proxied(link: str, below: str) -> Generator[str]:
    """Pass requests below a path on to the server of a start link, without the path; yield the link through the proxy."""
    to = urlsplit(link)

    class Proxy(BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            if not self.path.startswith(f"{below}/"):
                self.send_error(404)
                return
            with (
                closing(HTTPConnection("127.0.0.1", to.port)) as upstream,
                suppress(OSError),
            ):  # the browser left
                path = self.path.removeprefix(below)
                upstream.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    upstream.putheader(name, value)
                upstream.endheaders(self.rfile.read(int(self.headers.get("content-length", "0"))))
                self.answer(upstream.getresponse())

        def answer(self, answer: HTTPResponse) -> None:
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.end_headers()
            with closing(answer):
                while piece := answer.read1():
                    self.wfile.write(piece)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = pass_on  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        server.daemon_threads = True  # a stream that the server keeps open does not keep the test
        server.block_on_close = False
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{below}/?{to.query}"
        server.shutdown()
