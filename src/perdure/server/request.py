"""Reads what a client sends: the headers, path and body of a request, before anything of a store is read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from starlette.types import Receive, Scope

from perdure.errors import Invalid
from perdure.server.problems import HttpProblem
from perdure.server.routing import HttpCall, HttpRoute
from perdure.shapes.text import spelled

__all__ = [
    "REPEATED",
    "cookie_name",
    "data_query",
    "decode_body",
    "headers_of",
    "path_of",
    "read_body",
    "root_of",
    "wants_json",
]

_SINGLE = frozenset(
    {
        "host",
        "authorization",
        "content-length",
        "content-type",
        "if-match",
        "idempotency-key",
        "origin",
        "last-event-id",
    }
)
REPEATED = "\n"  # no value of a header has it
_BETWEEN = {"cookie": "; "}  # HTTP/2 lets a client divide it
_VIEW_PARAMETERS = frozenset({"tab", "path", "call", "focus"})  # of the page's addresses
_RECEIVE_SECONDS = 60.0  # for a whole body


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers of a request by name; raises a problem if one that decides something comes twice.

    Another one that comes twice has both values, with a line end between them.
    """
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        if name in found and name in _SINGLE:
            raise HttpProblem(
                400, "header_repeated", f"the request has the header {name} twice; nothing was done."
            )
        value = raw_value.decode("latin-1")
        found[name] = f"{found[name]}{_BETWEEN.get(name, REPEATED)}{value}" if name in found else value
    return found


def path_of(scope: Scope) -> str:
    """Return the path as the client sent it, percent-encoded, without the part under which the server is mounted."""
    raw: bytes | None = scope.get("raw_path")
    path = raw.decode("latin-1").partition("?")[0] if raw is not None else quote(scope["path"], safe="/%")
    # A proxy may have taken its part of the prefix away; then only the part of the application above is in the path.
    above = quote(scope.get("app_root_path", ""), safe="/%")
    for prefix in (root_of(scope), root_of(scope).removeprefix(above)):
        if prefix and (path + "/").startswith(prefix + "/"):
            return path[len(prefix) :] or "/"
    return path


def root_of(scope: Scope) -> str:
    """Return the path under which clients reach the server, percent-encoded; empty at the root of its host."""
    root = "/" + quote(scope.get("root_path", ""), safe="/%").strip(
        "/"
    )  # one slash: two would be another host
    return "" if root == "/" else root


def wants_json(headers: Mapping[str, str]) -> bool:
    """True if the client asks for data and not for a page."""
    accept = headers.get("accept", "")
    return ("application/json" in accept or "text/event-stream" in accept) and "text/html" not in accept


def data_query(query: str, route: HttpRoute) -> str:
    """Return the query of a page's address as the route of its data takes it.

    Parameters that only choose what of the data is in view are left out.
    """
    taken = () if route.query is None else msgspec.structs.fields(route.query)
    unused = _VIEW_PARAMETERS - {each.name for each in taken}
    pairs = parse_qsl(query, keep_blank_values=True, encoding="latin-1")
    return urlencode([each for each in pairs if each[0] not in unused], encoding="latin-1")


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the cookie: a host's cookies are shared by all its ports, so the name has the port."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"perdure_{port}" if port.isdecimal() else "perdure"


async def read_body(receive: Receive, headers: Mapping[str, str], bytes_max: int) -> bytes:
    """Read the body of a request; raises a problem if it is too large or does not come."""
    try:
        async with asyncio.timeout(_RECEIVE_SECONDS):
            return await _received(receive, headers, bytes_max)
    except TimeoutError as error:
        raise HttpProblem(
            408, "body_too_slow", "the client did not send the whole body in time; nothing was done."
        ) from error


async def _received(receive: Receive, headers: Mapping[str, str], bytes_max: int) -> bytes:
    length = headers.get("content-length", "0")
    too_large = HttpProblem(
        413, "body_too_large", f"the body is larger than {bytes_max} bytes; nothing was done."
    )
    if len(length) > 18 or (length.isdecimal() and int(length) > bytes_max):
        raise too_large
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpProblem(
                400, "body_cut_off", "the client left before its body was whole; nothing was done."
            )
        found += message.get("body", b"")
        if len(found) > bytes_max:
            raise too_large
        if not message.get("more_body", False):
            return bytes(found)


def decode_body(kind: Any, content: bytes, call: HttpCall) -> Any:
    """Return the body as the type that the route takes; raises `Invalid`, or a problem for another media type."""
    media = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind is Any and media != "application/json":
        call.media_type = media or "application/octet-stream"
        return content
    if media != "application/json" and content:
        raise HttpProblem(
            415, "media_type_unknown", "the body is not declared as application/json; nothing was done."
        )
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(
            f"the body does not fit this request: {spelled(str(error))[:300]}; nothing was done.",
            code="body_invalid",
            advice="GET /v1/openapi.json describes the body of every request.",
        ) from error
