"""Routes: which function answers which request, and how its headers, path and body become typed arguments.

A handler is a function of an `HttpCall` and, by the names of its parameters, of a `query` and a `body`, each a struct.  Its
types are the interface: they check what comes in, and the OpenAPI document is made from them.  A plain function reads
or writes the store on a worker thread, and may leave the rest of its answer to the event loop (`OnLoop`); a coroutine
function runs on the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast, get_type_hints
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure.errors import Conflict, Invalid, NotFound
from perdure.model import names
from perdure.model.canonical import prepared
from perdure.model.digest import Digest
from perdure.model.head import MAIN, Head
from perdure.server.access import Access, Permission
from perdure.server.keys import SERVER
from perdure.server.limited import limited
from perdure.server.problems import HttpProblem
from perdure.shapes.lookup import view_at
from perdure.shapes.text import spelled
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

if TYPE_CHECKING:
    from perdure.server.app import HttpServer

__all__ = [
    "HttpCall",
    "LineQuery",
    "MomentQuery",
    "PageQuery",
    "WindowQuery",
    "Paged",
    "BaseQuery",
    "HttpRoute",
    "JsonResponse",
    "OnLoop",
    "Router",
    "LENT_REQUEST",
    "LentRequest",
    "REPEATED",
    "cookie_name",
    "data_query",
    "decode_body",
    "encoded",
    "entity_tag",
    "headers_of",
    "key_in",
    "lent_request",
    "no_thread",
    "page_size",
    "path_of",
    "read_body",
    "read_cursor",
    "read_query",
    "root_of",
    "route",
    "wants_json",
]

_T = TypeVar("_T", bound=msgspec.Struct)
_F = TypeVar("_F", bound=Callable[..., Any])

_SEGMENT = re.compile(r"\{(\w+)\}")
_TAG = re.compile(r'"([a-z0-9._/-]+):([0-9]{1,18}):([0-9a-f]{64}|-)"\Z')
_PAGE_MAX = 500

_routes: list[HttpRoute] = []


class BaseQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a query; one that is unknown is refused."""


class LineQuery(BaseQuery, frozen=True, kw_only=True):
    """Which timeline."""

    timeline: str = MAIN


class MomentQuery(LineQuery, frozen=True, kw_only=True):
    """Which moment of a timeline; null: now."""

    at: str | None = None


class PageQuery(BaseQuery, frozen=True, kw_only=True):
    """Which part of a list."""

    limit: int = 50
    after: str | None = None  # the `next` of the page before

    @property
    def size(self) -> int:
        """The number of items that are wanted; raises `Invalid` outside 1 to 500."""
        return page_size(self.limit)


class WindowQuery(MomentQuery, frozen=True, kw_only=True):
    """Which part of a history: what leads up to a moment; `after` is the `next` of the page before."""

    limit: int = 50
    after: str | None = None

    @property
    def size(self) -> int:
        """The number of items that are wanted; raises `Invalid` outside 1 to 500."""
        return page_size(self.limit)


def page_size(limit: int) -> int:
    """Return the number of items of a page; raises `Invalid` outside 1 to 500."""
    if not 1 <= limit <= _PAGE_MAX:
        raise Invalid(
            f"a page has 1 to {_PAGE_MAX} items, not {limit}; nothing was read.",
            code="limit_invalid",
            limit=limit,
        )
    return limit


def read_cursor(text: str) -> int:
    """Return the version that the cursor of a list of moves names; raises `Invalid` for another text."""
    if not text.isdecimal() or len(text) > 18:
        raise Invalid(
            f"{text!r} is no cursor of this list; nothing was read.", code="cursor_invalid", cursor=text
        )
    return int(text)


class Paged(Generic[_T]):
    """A page of a list, and the cursor of the next one; None: it is the last."""

    def __init__(self, page: _T, next: str | None) -> None:
        """Pair the page with its cursor."""
        self.page, self.next = page, next


def encoded(found: Any) -> bytes:
    """Return the answer of a handler as JSON; a page has its cursor as `next`, unless it is the last."""
    if not isinstance(found, Paged):
        return msgspec.json.encode(found)
    paged = cast("Paged[msgspec.Struct]", found)
    body = msgspec.json.encode(paged.page)
    return body if paged.next is None else body[:-1] + b',"next":' + msgspec.json.encode(paged.next) + b"}"


class OnLoop(NamedTuple):
    """What a plain function leaves to the event loop; the answer is what `work` returns."""

    work: Callable[[], Awaitable[Any]]


LENT_REQUEST = (
    "perdure.request"  # the extension of ASGI by which `perdure serve` lends what it has of a request
)


class LentRequest(Protocol):
    """What a web server may offer beside ASGI for requests and answers that are whole."""

    def is_behind(self, receive: Receive, send: Send) -> bool:
        """True if these are the server's own, and no other application is between."""
        ...

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has come; None: it has to be waited for."""
        ...

    def send_whole(self, status: int, headers: bytes, body: bytes) -> bool:
        """Send an answer, whose headers are lines; False: it has to be sent by ASGI."""
        ...


def lent_request(scope: Scope, receive: Receive, send: Send) -> LentRequest | None:
    """Return what the web server offers for a request; None: it offers nothing."""
    lent: LentRequest | None = scope["extensions"].get(LENT_REQUEST) if "extensions" in scope else None
    return lent if lent is not None and lent.is_behind(receive, send) else None


class JsonResponse(Response):
    """An answer in JSON.  It is what most requests get, so its headers are made without the general way."""

    def __init__(self, body: bytes, status: int) -> None:
        """Answer with text that is JSON already."""
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
        ]

    def header_lines(self, others: Mapping[bytes, bytes], whole: bytes) -> bytes:
        """Return its headers as they are sent, with `others` unless it has them; `whole` is all the others as lines."""
        own = b"".join([b"%b: %b\r\n" % each for each in self.raw_headers])
        if len(self.raw_headers) <= 2 or all(name not in others for name, _ in self.raw_headers[2:]):
            return own + whole
        named = {name for name, _ in self.raw_headers}
        return own + b"".join([b"%b: %b\r\n" % each for each in others.items() if each[0] not in named])


class HttpRoute(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    permission: Permission | None  # None: no credential is needed
    handler: Callable[..., Any]
    status: int
    media: str  # of the answer
    is_async: bool
    query: type[BaseQuery] | None
    body: type[Any] | None
    answer: Any
    is_whole_store: bool  # a credential with limits is refused
    takes_if_match: bool  # what it changes is a head; else an If-Match is refused
    # True of a request that gets a thread of its own, which reads do not wait for; None: no request does.
    takes_long: Callable[[HttpCall, Any], bool] | None

    @property
    def is_recorded(self) -> bool:
        """True if the server records who asked before it answers: the request is to change something."""
        return self.method != "GET" and self.permission is not None


def route(
    method: str,
    path: str,
    permission: Permission | None,
    *,
    status: int = 200,
    media: str = "application/json",
    whole_store: bool = False,
    if_match: bool = True,
    takes_long: Callable[[HttpCall, Any], bool] | None = None,
) -> Callable[[_F], _F]:
    """Let a function answer a method of a path; segments in braces are names of the request.

    `takes_long` says of a request and its body whether the function may take long.
    """

    def add(handler: _F) -> _F:
        hints = get_type_hints(handler)
        _routes.append(
            HttpRoute(
                method,
                path,
                permission,
                handler,
                status,
                media,
                inspect.iscoroutinefunction(handler),
                hints.get("query"),
                hints.get("body"),
                hints.get("return"),
                whole_store,
                if_match and method != "GET" and permission is not None,
                takes_long,
            )
        )
        return handler

    return add


class HttpCall:
    """One request: the store, who asks, the names in its path, and what its headers say."""

    def __init__(
        self,
        server: HttpServer,
        route: HttpRoute,
        access: Access,
        segments: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        root: str = "",
        key: str | None = None,
    ) -> None:
        """Take a request that passed the checks of access; `root` is the path under which clients reach the server.

        `key` is the idempotency key, None: the client gave none.  Raises `Invalid` if it is no op_id.
        """
        self.server, self.route, self.access = server, route, access
        self.segments, self.headers = segments, headers
        self.root = root
        self.timeline = MAIN  # that the handler opened last
        self.head: Head | None = None  # of the timeline that the answer is about; it becomes the ETag
        self.is_by_digest = False  # the answer is named by a digest, so that it may be cached for a while
        self.status: int | None = None  # None: that of the route
        self.media_type: str | None = None  # of a body that is bytes; None: it is JSON
        self.cookie: str | None = (
            None  # the secret to set as a cookie; "" removes it; None: no cookie is sent
        )
        self.expected = read_tag(headers.get("if-match"))
        self.key = None if key is None else names.check_op_id(key)  # as the client gave it
        self.op_id = None if self.key is None else _op_id(access.name, self.key)

    def reused_key(self, error: Conflict) -> Conflict:
        """Return an error about the id that was made of the client's key as one about the key; any other as it is."""
        if self.op_id is None or self.op_id not in error.message or not error.code.endswith("reused"):
            return error
        return Conflict(
            f"the idempotency key '{self.key}' came before with another request; nothing was done.",
            code=error.code,
            advice="Use a new key for a new intent.",
            key=self.key,
        )

    @property
    def store(self) -> Store:
        """The store, for a handler on a worker thread."""
        return self.server.store.target()

    @property
    def served(self) -> list[str]:
        """The agents that this server can run and that the credential may know of."""
        limit = self.access.agents
        return sorted(name for name in self.server.agents if limit is None or name in limit)

    def thread(self, timeline: str = MAIN, *, id: str | None = None) -> Thread:
        """Open the thread of the path, or another; raises `NotFound` for one that the credential may not see."""
        wanted = self.segments["thread"] if id is None else id
        try:
            found = self.store.thread(wanted)
        except NotFound as error:
            if error.code != "thread_not_found":
                raise
            raise no_thread(wanted) from None
        self.check_seen(found)
        self.timeline = timeline
        found = limited(found, self.access)
        return found if timeline == MAIN else found.on(names.check_name("timeline", timeline))

    def check_seen(self, thread: Thread) -> None:
        """Raise `NotFound` for a thread outside the limits, and for the server's own unless an admin asks."""
        if not self.access.sees_thread(thread):
            raise no_thread(thread.id)

    def target(self, timeline: str = MAIN) -> Thread:
        """Open the thread for a change, from the head that If-Match names; raises `NotFound` as `thread` does."""
        self.check_changeable()
        found = self.thread(timeline)
        return found if self.expected is None else found.expecting(self.expected)

    def check_changeable(self) -> None:
        """Raise a problem if the request would change the server's own thread."""
        if self.segments.get("thread") == SERVER:
            raise HttpProblem(
                403, "own_thread", "no request may change the server's own thread; nothing was done."
            )

    def check_precondition(self) -> None:
        """Raise `Invalid` if If-Match asks for a check that the route does not make."""
        if self.expected is not None and self.route.method != "GET" and not self.route.takes_if_match:
            raise Invalid(
                "this request moves no head, so the server cannot check its If-Match; nothing was done.",
                code="if_match_not_taken",
            )

    def seen(self, query: MomentQuery) -> tuple[Thread, View]:
        """Return the thread, and a view of the moment that the query names."""
        thread = self.thread(query.timeline)
        view = view_at(thread, query.at)
        self.head = view.head
        self.is_by_digest = query.at is not None and query.at == view.digest
        return thread, view


def no_thread(id: str) -> NotFound:
    """Return the error for a thread that is not there, or not for this credential; no other id is named."""
    return NotFound(
        f"there is no thread '{id}'; nothing was done.",
        code="thread_not_found",
        thread=id,
    )


class Router:
    """Finds the route of a request by the segments of its path; of two routes that fit, the one declared first."""

    def __init__(self, routes: Sequence[HttpRoute] | None = None) -> None:
        """Route to `routes`; None: to all that were declared."""
        self.routes = tuple(_routes if routes is None else routes)
        methods = {each.method for each in self.routes}
        self._tables = {
            method: _MethodRoutes([r for r in self.routes if r.method == method]) for method in methods
        }

    def find(self, method: str, path: str) -> tuple[HttpRoute, Mapping[str, str]]:
        """Return the route of a percent-encoded path, and its names; raises `HttpProblem`."""
        table = self._tables.get("GET" if method == "HEAD" else method)
        found = None if table is None else table.find(path)
        if found is not None:
            return found
        allowed = {each for each, table in self._tables.items() if table.find(path) is not None}
        if allowed:
            methods = ", ".join(sorted({*allowed, *({"HEAD"} if "GET" in allowed else ())}))
            raise HttpProblem(
                405,
                "method_not_allowed",
                f"this address takes {methods}, not {method}; nothing was done.",
                headers={"Allow": methods},
            )
        raise HttpProblem(404, "address_not_found", "the server has no resource at this address.")


class _MethodRoutes:
    """The routes of one method as one pattern, which has a group for each name and an empty one at the end of each path."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._ends: dict[int, tuple[HttpRoute, tuple[str, ...]]] = {}
        groups, built = 0, list[str]()
        for each in routes:
            names = tuple(_SEGMENT.findall(each.path))
            groups += len(names) + 1
            self._ends[groups] = each, names
            built.append(_pattern(each.path) + "()")
        self._pattern = re.compile(rf"(?:{'|'.join(built)})\Z")

    def find(self, path: str) -> tuple[HttpRoute, dict[str, str]] | None:
        match = self._pattern.match(path)
        if match is None:
            return None
        end = match.lastindex or 0
        route, names = self._ends[end]
        texts = match.groups()[end - 1 - len(names) : end - 1]
        return route, {name: _decoded(text) for name, text in zip(names, texts, strict=True)}


def read_query(kind: type[BaseQuery], text: str) -> BaseQuery:
    """Return the parameters of a query as a struct; raises `Invalid`."""
    if not text:
        return _no_parameters(kind)
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=50)
    except (ValueError, UnicodeDecodeError) as error:
        raise Invalid(
            "the query of this address cannot be read; nothing was done.", code="query_invalid"
        ) from error
    given = dict(pairs)
    if len(given) != len(pairs):
        raise Invalid("a parameter of the query is given twice; nothing was done.", code="query_invalid")
    return _parameters(kind, given)


@cache
def _no_parameters(kind: type[BaseQuery]) -> BaseQuery:
    return _parameters(kind, {})


def _parameters(kind: type[BaseQuery], given: Mapping[str, str]) -> BaseQuery:
    try:
        return msgspec.convert(given, prepared(kind), strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(
            f"the query is not as it should be: {error}; nothing was done.", code="query_invalid"
        ) from error


def entity_tag(head: Head) -> str:
    """Return a head as an ETag."""
    return f'"{head.timeline}:{head.version}:{head.commit or "-"}"'


def read_tag(text: str | None) -> Head | None:
    """Return the head that an If-Match names; None if there is no such header, or it accepts any head."""
    if text is None or text.strip() == "*":
        return None
    match = _TAG.match(text.strip())
    if match is None:
        raise Invalid(
            "the If-Match header is not one ETag of a timeline; nothing was done.",
            code="etag_invalid",
            advice="Send the ETag of an earlier answer.",
        )
    commit = None if match[3] == "-" else Digest(match[3])
    return Head(match[1], int(match[2]), commit)


def _op_id(credential: str, key: str) -> str:
    """Return the op_id of a credential's key: the same key of another credential is another request."""
    return "http-" + sha256(f"{credential}\0{key}".encode()).hexdigest()[:40]


def key_in(headers: Mapping[str, str]) -> str | None:
    """Return the Idempotency-Key of a request, whose headers are UTF-8 read as Latin-1; None if it has none."""
    text = headers.get("idempotency-key")
    try:
        return None if text is None else text.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            "the Idempotency-Key is no text in UTF-8; nothing was done.", code="op_id_invalid"
        ) from error


def _pattern(path: str) -> str:
    """Return the pattern of a path; a last segment called `path` takes the rest, slashes included."""
    parts = _SEGMENT.split(path)
    return "".join(
        re.escape(part) if at % 2 == 0 else "(.+)" if part == "path" else "([^/]+)"
        for at, part in enumerate(parts)
    )


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            "this address is no text in UTF-8; nothing was done.", code="address_invalid"
        ) from error


# ---- what a client sends, before anything of a store is read

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
_VIEW_PARAMETERS = frozenset({"tab", "path", "place", "call", "focus"})  # of the page's addresses
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
    if not scope.get("root_path"):
        return path
    # A proxy may have taken its part of the prefix away; then only the part of the application above is in the path.
    above = quote(scope.get("app_root_path", ""), safe="/%")
    for prefix in (root_of(scope), root_of(scope).removeprefix(above)):
        if prefix and (path + "/").startswith(prefix + "/"):
            return path[len(prefix) :] or "/"
    return path


def root_of(scope: Scope) -> str:
    """Return the path under which clients reach the server, percent-encoded; empty at the root of its host."""
    if not scope.get("root_path"):
        return ""
    # One slash: two would be another host.
    root = "/" + quote(scope["root_path"], safe="/%").strip("/")
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


async def read_body(
    receive: Receive, headers: Mapping[str, str], bytes_max: int, lent: LentRequest | None
) -> bytes:
    """Read the body of a request; raises a problem if it is too large or does not come."""
    body = None if lent is None else lent.whole_body()
    if body is not None:
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
        return body
    try:
        async with asyncio.timeout(_RECEIVE_SECONDS):
            return await _received(receive, headers, bytes_max)
    except TimeoutError as error:
        raise HttpProblem(
            408, "body_too_slow", "the client did not send the whole body in time; nothing was done."
        ) from error


async def _received(receive: Receive, headers: Mapping[str, str], bytes_max: int) -> bytes:
    length = headers.get("content-length", "0")
    if len(length) > 18 or (length.isdecimal() and int(length) > bytes_max):
        raise _too_large(bytes_max)
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpProblem(
                400, "body_cut_off", "the client left before its body was whole; nothing was done."
            )
        found += message.get("body", b"")
        if len(found) > bytes_max:
            raise _too_large(bytes_max)
        if not message.get("more_body", False):
            return bytes(found)


def _too_large(bytes_max: int) -> HttpProblem:
    return HttpProblem(413, "body_too_large", f"the body is larger than {bytes_max} bytes; nothing was done.")


def decode_body(kind: Any, content: bytes, call: HttpCall) -> Any:
    """Return the body as the type that the route takes; raises `Invalid`, or a problem for another media type."""
    media = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind is Any and media != "application/json":
        call.media_type = media or "application/octet-stream"
        return content
    if media != "application/json" and content:
        raise HttpProblem(
            415,
            "media_type_unknown",
            "the body is not declared as application/json; nothing was done.",
            advice="Send it with the header Content-Type: application/json.",
        )
    try:
        return msgspec.json.decode(content or b"{}", type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(
            f"the body does not fit this request: {spelled(str(error))[:300]}; nothing was done.",
            code="body_invalid",
            advice=f"{_fields_of(kind)}GET /v1/openapi.json describes the body of every request.",
        ) from error


def _fields_of(kind: Any) -> str:
    """Return a sentence with the fields of a body; empty: any JSON is one, or it has none."""
    names: tuple[str, ...] = getattr(kind, "__struct_encode_fields__", ())
    return f"Its fields are {', '.join(names)}. " if names else ""
