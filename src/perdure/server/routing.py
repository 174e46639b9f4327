"""Routes: which function answers which request, and how a request becomes its typed arguments.

A handler is a function of an `HttpCall` and, by the names of its parameters, of a `query` and a `body`, each a struct.  Its
types are the interface: they check what comes in, and the OpenAPI document is made from them.  A plain function reads
or writes the store on a worker thread; a coroutine function runs on the event loop.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, get_type_hints
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from perdure.errors import Invalid, NotFound
from perdure.model import names
from perdure.model.digest import Digest
from perdure.model.head import MAIN, Head
from perdure.server.access import Access, Permission
from perdure.server.keys import SERVER
from perdure.server.problems import HttpProblem
from perdure.shapes.lookup import view_at
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
    "Router",
    "encoded",
    "entity_tag",
    "key_in",
    "no_thread",
    "page_size",
    "read_query",
    "route",
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


def route(
    method: str,
    path: str,
    permission: Permission | None,
    *,
    status: int = 200,
    media: str = "application/json",
    whole_store: bool = False,
    if_match: bool = True,
) -> Callable[[_F], _F]:
    """Let a function answer a method of a path; segments in braces are names of the request."""

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
        if timeline == MAIN:
            return found
        return found.on(names.check_name("timeline", timeline))

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
        advice="Begin it with POST /v1/threads, or list the threads with GET /v1/threads.",
        thread=id,
    )


class Router:
    """Finds the route of a request by the segments of its path."""

    def __init__(self, routes: Sequence[HttpRoute] | None = None) -> None:
        """Route to `routes`; None: to all that were declared."""
        self.routes = tuple(_routes if routes is None else routes)
        self._patterns = [(_pattern(each.path), each) for each in self.routes]

    def find(self, method: str, path: str) -> tuple[HttpRoute, dict[str, str]]:
        """Return the route of a percent-encoded path, and its names; raises `HttpProblem`."""
        allowed: list[str] = []
        for pattern, each in self._patterns:
            match = pattern.match(path)
            if match is None:
                continue
            if each.method == method or (method == "HEAD" and each.method == "GET"):
                return each, {name: _decoded(text) for name, text in match.groupdict().items()}
            allowed.append(each.method)
        if allowed:
            methods = ", ".join(sorted({*allowed, *({"HEAD"} if "GET" in allowed else ())}))
            raise HttpProblem(
                405,
                "method_not_allowed",
                f"this address takes {methods}, not {method}; nothing was done.",
                headers={"Allow": methods},
            )
        raise HttpProblem(404, "address_not_found", "the server has no resource at this address.")


def read_query(kind: type[BaseQuery], text: str) -> BaseQuery:
    """Return the parameters of a query as a struct; raises `Invalid`."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=50)
    except (ValueError, UnicodeDecodeError) as error:
        raise Invalid(
            "the query of this address cannot be read; nothing was done.", code="query_invalid"
        ) from error
    given = dict(pairs)
    if len(given) != len(pairs):
        raise Invalid("a parameter of the query is given twice; nothing was done.", code="query_invalid")
    try:
        return msgspec.convert(given, kind, strict=False)
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


def _pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a path; a last segment called `path` takes the rest, slashes included."""
    parts = _SEGMENT.split(path)
    built = ""
    for at, part in enumerate(parts):
        built += (
            re.escape(part) if at % 2 == 0 else f"(?P<{part}>.+)" if part == "path" else f"(?P<{part}>[^/]+)"
        )
    return re.compile(built + r"\Z")


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            "this address is no text in UTF-8; nothing was done.", code="address_invalid"
        ) from error
