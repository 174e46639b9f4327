"""The server as an ASGI application: checks a request, lets its handler answer, and sends the answer.

It has no rules of its own: every route calls the public classes of a store, through `perdure.aio`.  A request passes
these checks in this order: host name, origin, credential, role, limits, size and type of its body.  A request that is to
change something is recorded in the server's own thread before it is carried out, and refused if that fails.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import mimetypes
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from perdure import aio
from perdure.aio.streaming import runs_under_way
from perdure.engines.registry import place_of
from perdure.errors import Conflict, Invalid, PerdureError, Unavailable, Unsupported
from perdure.runtime.agent.agent import Agent
from perdure.runtime.session.environment import WorkerPool
from perdure.server import openapi
from perdure.server.access import LOOPBACK, Access, bearer, check_origin, host_name, is_own_host, same
from perdure.server.admission import Admission
from perdure.server.keys import Audit, AuditEntry, Keys, QueuedEntry, key_hash
from perdure.server.limited import LimitedThread
from perdure.server.problems import HttpProblem, problem_response
from perdure.server.routing import (
    REPEATED,
    HttpCall,
    HttpRoute,
    JsonResponse,
    LentRequest,
    OnLoop,
    Router,
    cookie_name,
    data_query,
    decode_body,
    encoded,
    entity_tag,
    headers_of,
    key_in,
    lent_request,
    path_of,
    read_body,
    read_query,
    root_of,
    wants_json,
)
from perdure.server.streams import EventStream, Inbox
from perdure.shapes.text import now, spelled, stamp
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.telemetry.metrics import StoreMetrics
from perdure.version import __version__

__all__ = ["HttpServer", "app"]

PAGE = Path(__file__).with_name("page")

_SAFE = frozenset({"GET", "HEAD"})
_BODY_BYTES_MAX = 8 * 1024 * 1024
_OPEN_BODY_BYTES_MAX = 4 * 1024  # of a request that needs no credential
_WORKERS = 16
_RUNS_MAX = 64  # runs whose clients wait for the result; further ones wait for their turn
_LOCAL = "local"  # the name of the credential in the start link
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; sandbox",
    b"cache-control": b"no-store",
}
_HEADER_LINES = b"".join(b"%b: %b\r\n" % each for each in _HEADERS.items())
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_IMMUTABLE = "private, max-age=60, immutable"

_log = logging.getLogger("perdure.server")
_T = TypeVar("_T")


class HttpServer:
    """An ASGI application over one open store."""

    def __init__(
        self,
        store: aio.Store | Store,
        agents: Sequence[Agent] = (),
        *,
        token: str | None = None,
        hosts: Sequence[str] = LOOPBACK,
        access: Callable[[Mapping[str, str]], Access | None] | None = None,
        body_bytes_max: int = _BODY_BYTES_MAX,
        metrics: StoreMetrics | None = None,
    ) -> None:
        """Serve `store`, and run `agents`.

        `token` is a secret that opens everything, None: there is none.  `hosts` are the names that requests may
        address, "*": any.  `access` says by the headers of a request who asks, for an application with a login of its
        own; None: only keys and the token are known.  `metrics` are the numbers of `/metrics`, None: it counts them.
        """
        self.store = (
            store if isinstance(store, aio.Store) else aio.Store(WorkerPool(_WORKERS, "perdure"), store)
        )
        self.agents = {agent.name: agent for agent in agents}
        self.version = __version__
        place = place_of(self.store.target().url)
        self.place = place if "/" in place else ""  # that no client is told; a store in memory has none
        self.inbox = Inbox(self.store)
        self.metrics = metrics or StoreMetrics(self.store)
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.commit_times: dict[str, int] = {}  # of heads, for lists that begin with the newest thread
        self.streams_open = 0
        self.is_draining = False
        self._token, self._hosts, self._access = token, tuple(map(host_name, hosts)), access
        self._body_bytes_max = body_bytes_max
        self._recorded: set[str] = set()  # served agents whose rules this server has recorded
        self._router = Router()
        self._keys, self._audit = Keys(self.store.target()), Audit(self.store.target())
        self._running: set[asyncio.Future[Any]] = set()
        self._run_threads = WorkerPool(_RUNS_MAX, "perdure-run")
        self._runs = Admission(self._run_threads, _RUNS_MAX)
        self._requests = Admission(self.store.tool_threads, _WORKERS)
        self._drained: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mcp_server: Any = None  # once a client of that protocol asks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        self._loop = asyncio.get_running_loop()
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    # ---- what handlers use

    def can_run(self, agent: str) -> bool:
        """True if this server has the agent with its tools, or its definition needs none; on a worker thread."""
        return agent in self.agents or self._defined(agent) is not None

    def declared(self, thread: Thread, *, only_reads: bool = False) -> Thread:
        """Return the same timeline with its agent as far as this server has it; on a worker thread.

        The rules of a served agent are recorded as its latest once for this server, unless the caller `only_reads`.
        """
        agent = self.agents.get(thread.agent) or self._defined(thread.agent)
        if agent is None:
            return thread
        if only_reads or agent.name in self._recorded:
            return thread.with_agent(agent)
        found = self.store.target().thread(thread.id, agent=agent, timeline=thread.timeline)
        if agent.name in self.agents:
            self._recorded.add(agent.name)
        return thread.beside(found) if isinstance(thread, LimitedThread) else found

    def _defined(self, agent: str) -> Agent | None:
        kept = self.store.target().definitions.find(agent)
        return None if kept is None or kept.definition.tools else kept.agent()

    def new_id(self) -> str:
        """Return an id for a message or a thread whose client gave none."""
        return secrets.token_hex(16)

    def cursor_secret(self) -> bytes:
        """Return the secret that seals cursors; on a worker thread."""
        return self._keys.cursor_secret()

    def keep(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Do work that goes on when its client has left; the server waits for it before it ends."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._kept)
        return task

    async def in_own_thread(self, work: Callable[[], _T]) -> _T:
        """Do blocking work that may take long, such as a run, on a thread that reads do not wait for.

        Like the work of `keep`, it goes on when its client has left.
        """
        done = self._runs.hand_over(work)
        self._running.add(done)
        done.add_done_callback(self._kept)
        return await asyncio.shield(done)

    def _kept(self, done: asyncio.Future[Any]) -> None:
        self._running.discard(done)
        if not done.cancelled():
            done.exception()  # the client that waited for it has it, or has left

    def stream(
        self,
        call: HttpCall,
        frames: AsyncIterator[bytes],
        *,
        headers: Iterable[tuple[bytes, bytes]] = (),
        when_cut: bytes | None = None,
    ) -> EventStream:
        """Return a stream that ends when the server drains, or the credential may not read it any more.

        A stream over all threads also ends when the limits of the credential change: the client comes back for the rest.
        `when_cut`: then the connection is closed without an end, for clients that take an end for a whole answer; a server
        that does not lend its connection sends this frame before the end.
        """

        async def is_allowed() -> bool:
            try:
                access = await self._known_by(call.headers)
                if access is None or _refusal(access, call.route) is not None:
                    return False
                if "thread" not in call.segments:
                    return access == call.access
                return await self.store.off_loop(partial(self._sees_line, access, call))
            except (HttpProblem, PerdureError):
                return False

        return EventStream(
            self._counted(frames),
            drained=self._drain_event(),
            is_allowed=is_allowed,
            headers=headers,
            when_cut=when_cut,
        )

    def _sees_line(self, access: Access, call: HttpCall) -> bool:
        """True if a credential may still see the timeline that a request opened; on a worker thread."""
        thread = self.store.target().thread(call.segments["thread"])
        return access.sees_thread(thread) and access.sees_thread(thread.on(call.timeline))

    async def _counted(self, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.streams_open += 1
        try:
            async for each in frames:
                yield each
        finally:
            self.streams_open -= 1

    async def known(self, secret: str, headers: Mapping[str, str]) -> Access | None:
        """Return what a secret may do; None if it is not known."""
        if self._token is not None and same(secret, self._token):
            return Access(name=_LOCAL, roles=("admin",))
        keys = self._keys.recent()
        if keys is None:
            key = await self.store.off_loop(partial(self._keys.find, secret))
        else:
            key = keys.get(key_hash(secret))
        if key is None:
            return None
        person = None if key.person_header is None else headers.get(key.person_header.lower(), "").strip()
        if person is not None and REPEATED in person:
            raise HttpProblem(
                400,
                "header_repeated",
                f"the request has the header {key.person_header} twice; nothing was done.",
            )
        if key.person_header is not None and not person:
            return None  # a request of a proxy is made for a person, whom this one does not name
        return key.access(None if person is None else f"{key.name}:{spelled(person)[:100]}")

    # ---- starting and stopping

    def drain(self) -> None:
        """End streams and take no new work; called from any thread, also from a signal handler."""
        self.is_draining = True
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain_event().set)

    def _drain_event(self) -> asyncio.Event:
        if self._drained is None:
            self._drained = asyncio.Event()
        return self._drained

    async def finish(self) -> None:
        """Wait for the runs that live here, those of streams included, and stop watching."""
        self.is_draining = True
        self._drain_event().set()
        while under_way := self._running | runs_under_way():
            await asyncio.wait(under_way)
        await self.inbox.close()
        self._run_threads.shutdown(wait=False)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.finish()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # ---- one request

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        method: str = scope["method"]
        counted: list[str] = ["other"]
        lent = lent_request(scope, receive, send)
        try:
            answer = await self._answer(scope, receive, counted, lent)
        except Exception as error:  # noqa: BLE001  # the edge: every error is a problem document
            had_precondition = any(name == b"if-match" for name, _ in scope["headers"])
            answer = problem_response(error, place=self.place, had_precondition=had_precondition)
        self.requests[method if method in _METHODS else "OTHER", counted[0], answer.status_code] += 1
        if lent is not None and type(answer) is JsonResponse:
            lines = answer.header_lines(_HEADERS, _HEADER_LINES)
            if lent.send_whole(answer.status_code, lines, answer.body):
                return
        named = {name for name, _ in answer.raw_headers}
        answer.raw_headers += [each for each in _HEADERS.items() if each[0] not in named]
        await answer(scope, receive, send)

    async def _answer(
        self, scope: Scope, receive: Receive, counted: list[str], lent: LentRequest | None
    ) -> Response:
        method: str = scope["method"]
        headers = headers_of(scope)
        host = headers.get("host", "")
        if not is_own_host(host, self._hosts):
            raise HttpProblem(
                421,
                "host_unknown",
                "the server does not answer requests for that host name; nothing was done.",
                advice="Name the host with `--name HOST` of `perdure serve`, or `hosts` of `perdure.server.app`.",
            )
        check_origin(headers, host, is_safe=method in _SAFE)
        path, query = path_of(scope), scope["query_string"].decode("latin-1")
        if path == _MCP:
            counted[0] = path
            return await self._mcp(scope, receive, headers, lent)
        is_view = False
        if not path.startswith("/v1/") and path not in _PLAIN:
            if not wants_json(headers) or method not in _SAFE:
                return self._page(scope, method, path, query, headers)
            path = "/v1" + (path.rstrip("/") or _FIRST_VIEW)
            is_view = True
        if path == openapi.ADDRESS:
            _check_read(method)
            return Response(openapi.document(), media_type="application/json")
        is_open = path in _PLAIN - {"/metrics"} or (path == "/v1/session" and method in ("POST", "DELETE"))
        access = _ANONYMOUS if is_open else await self._allowed(headers)
        route, segments = self._router.find(method, path)
        counted[0] = route.path
        query = data_query(query, route) if is_view else query
        call = HttpCall(self, route, access, segments, headers, root=root_of(scope), key=key_in(headers))
        entry = partial(self._entry, scope, call, path, query)
        self.check_permission(call, entry)
        call.check_precondition()
        arguments, digest = await self._arguments(route, call, query, receive, lent)
        found = await self.perform(route, call, arguments, entry(digest) if route.is_recorded else None)
        return self._response(scope, route, call, found)

    def route(self, method: str, path: str) -> HttpRoute:
        """Return the route that was declared for a method and a path."""
        return next(each for each in self._router.routes if (each.method, each.path) == (method, path))

    async def perform(
        self, route: HttpRoute, call: HttpCall, arguments: dict[str, Any], entry: AuditEntry | None
    ) -> Any:
        """Let the handler of a route answer; a request that is to change something has an entry, recorded first."""
        if entry is not None and self.is_draining:
            raise HttpProblem(
                503,
                "draining",
                "the server is stopping and takes no new changes; nothing was done.",
                advice="Send the request again when the server has started again.",
                headers={"Retry-After": "5"},
            )
        try:
            return await self._performed(route, call, arguments, entry)
        except Conflict as error:
            raise call.reused_key(error) from error.__cause__

    async def _performed(
        self, route: HttpRoute, call: HttpCall, arguments: dict[str, Any], entry: AuditEntry | None
    ) -> Any:
        queued = None if entry is None else self._audit.queue(entry)
        if route.is_async:
            if queued is not None:
                await self.store.off_loop(partial(self._record, queued))
            return await route.handler(call, **arguments)

        def record_and_answer() -> Any:
            if queued is not None:
                self._record(queued)
            return route.handler(call, **arguments)

        takes_long = route.takes_long is not None and route.takes_long(call, arguments["body"])
        if takes_long:
            found = await self.in_own_thread(record_and_answer)
        else:
            found = await self._requests.hand_over(record_and_answer)
        return await found.work() if isinstance(found, OnLoop) else found

    async def _mcp(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], lent: LentRequest | None
    ) -> Response:
        """Answer a client of the Model Context Protocol; each request is whole, so there is nothing to read or end."""
        if scope["method"] != "POST":
            raise HttpProblem(
                405,
                "method_not_allowed",
                "this address takes POST only; nothing was done.",
                headers={"Allow": "POST"},
            )
        access = await self._allowed(headers)
        content = await read_body(receive, headers, self._body_bytes_max, lent)
        try:
            from perdure.server import mcp
        except ImportError as error:
            raise Unsupported(
                "clients of the Model Context Protocol need the official SDK, which is not installed; nothing was done.",
                code="mcp_sdk_missing",
                advice="Install perdure[mcp].",
            ) from error
        if self._mcp_server is None:
            self._mcp_server = mcp.mcp_server(self)
        return await mcp.answer_request(self._mcp_server, scope, content, access)

    def check_permission(self, call: HttpCall, entry: Callable[[], AuditEntry]) -> None:
        """Raise a problem if the credential may not use the route, and record that it tried to change something."""
        refusal = _refusal(call.access, call.route)
        if refusal is None:
            return
        code, why = refusal
        if call.route.is_recorded:
            refused = self._audit.queue(msgspec.structs.replace(entry(), refused=code))
            self.keep(self.store.off_loop(partial(self._record, refused)))
        raise HttpProblem(403, code, f"{why}; nothing was done.")

    async def _arguments(
        self, route: HttpRoute, call: HttpCall, query: str, receive: Receive, lent: LentRequest | None
    ) -> tuple[dict[str, Any], str]:
        """Return the typed arguments of a handler, and the digest of the body."""
        found: dict[str, Any] = {}
        if route.query is not None:
            found["query"] = read_query(route.query, query)
        elif query:
            raise Invalid("this address takes no query; nothing was done.", code="query_invalid")
        if route.method in _SAFE:
            return found, ""
        bytes_max = _OPEN_BODY_BYTES_MAX if route.permission is None else self._body_bytes_max
        content = await read_body(receive, call.headers, min(bytes_max, self._body_bytes_max), lent)
        if route.body is not None:
            found["body"] = decode_body(route.body, content, call)
        return found, sha256(content).hexdigest()

    def _response(self, scope: Scope, route: HttpRoute, call: HttpCall, found: Any) -> Response:
        if isinstance(found, EventStream):
            return found if scope["method"] != "HEAD" else found.without_frames()
        if isinstance(found, Response):
            response = found
        elif found is None:
            response = Response(status_code=route.status)
        else:
            response = JsonResponse(encoded(found), call.status or route.status)
        if call.head is not None:
            response.raw_headers.append((b"etag", entity_tag(call.head).encode()))
        if call.is_by_digest:
            response.headers["cache-control"] = _IMMUTABLE
        if call.cookie is not None:
            self._set_cookie(scope, response, call.cookie)
        if scope["method"] == "HEAD":
            response.body = b""
            if isinstance(response, StreamingResponse):
                return Response(None, response.status_code, dict(response.headers))
        return response

    # ---- who asks

    async def _allowed(self, headers: Mapping[str, str]) -> Access:
        access = await self._known_by(headers)
        if access is None:
            raise HttpProblem(
                401,
                "credential_missing",
                "this request has no valid credential; nothing was done.",
                advice="Send a key as a bearer token, or open the start link of the server.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return access

    async def _known_by(self, headers: Mapping[str, str]) -> Access | None:
        if self._access is not None:
            found = self._access(headers)
            if found is not None:
                return found
        secret = bearer(headers, cookie_name(headers))
        return None if secret is None else await self.known(secret, headers)

    def _set_cookie(self, scope: Scope, response: Response, secret: str) -> None:
        name, path = cookie_name(headers_of(scope)), root_of(scope) or "/"
        if not secret:
            response.delete_cookie(name, path=path, httponly=True, samesite="strict")
            return
        secure = scope["scheme"] == "https" or headers_of(scope).get("x-forwarded-proto") == "https"
        response.set_cookie(name, secret, path=path, httponly=True, samesite="strict", secure=secure)

    # ---- the record of requests

    def _entry(self, scope: Scope, call: HttpCall, path: str, query: str, body: str = "") -> AuditEntry:
        client = scope.get("client")
        return AuditEntry(
            at=stamp(now()),
            by=call.access.name,
            roles=call.access.roles,
            method=scope["method"],
            path=spelled(path)[:500],
            query=spelled(query)[:500],
            op_id=call.key,
            body=body,
            client=None if client is None else str(client[0]),
        )

    def _record(self, entry: QueuedEntry) -> None:
        """Make an entry durable, on a worker thread; raises `Unavailable` if it may not be: then nothing may be done."""
        try:
            self._audit.write(entry)
        except Exception as error:
            _log.error(
                "the server could not record a request, so it did not carry it out: %s", spelled(str(error))
            )
            raise Unavailable(
                "the server could not record the request, so it did not carry it out.",
                code="audit_unavailable",
                advice=(error.advice if isinstance(error, PerdureError) else "")
                or "Make sure that the store can be written, and send the request again.",
                cause=error.code if isinstance(error, PerdureError) else None,
            ) from error

    # ---- the page

    def _page(self, scope: Scope, method: str, path: str, query: str, headers: Mapping[str, str]) -> Response:
        _check_read(method)
        parameters = parse_qsl(query, keep_blank_values=True)
        token = next((value for name, value in parameters if name == "token"), None)
        if token is not None:
            return self._entered(scope, path, parameters, token, headers)
        file = _asset(path)
        is_missing = file is None and "text/html" in headers.get("accept", "")  # a person's: the page says so
        file = PAGE / "index.html" if is_missing else file
        if file is None:
            raise HttpProblem(404, "address_not_found", "the server has no page or file at this address.")
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        is_index = file.name == "index.html"
        caching = "no-cache" if is_index or "/assets/" not in path else "public, max-age=31536000, immutable"
        sent = {"content-security-policy": _PAGE_POLICY, "cache-control": caching, "vary": "accept-encoding"}
        if is_index:
            status = 404 if is_missing else 200
            return Response(_index(root_of(scope)), status, media_type=kind, headers=sent)
        if "gzip" in headers.get("accept-encoding", ""):
            return Response(_compressed(file), media_type=kind, headers=sent | {"content-encoding": "gzip"})
        return FileResponse(file, media_type=kind, headers=sent)

    def _entered(
        self,
        scope: Scope,
        path: str,
        parameters: list[tuple[str, str]],
        token: str,
        headers: Mapping[str, str],
    ) -> Response:
        """Answer the start link: set the cookie, and lead to the same address without the token."""
        if headers.get("sec-fetch-site") == "cross-site":
            raise HttpProblem(
                403,
                "cross_site",
                "another site opened this start link, so the server did not sign the browser in.",
                advice="Copy the link that the server printed into the address bar.",
            )
        if self._token is None or not same(token, self._token):
            raise HttpProblem(
                401,
                "credential_unknown",
                "the server does not know the token of this link; it did not sign the browser in.",
                advice="Each start of the server has a new token: open the link that the last start printed.",
            )
        left = urlencode([each for each in parameters if each[0] != "token"])
        address = root_of(scope) + "/" + path.lstrip("/")  # one slash: two would lead to another host
        response = RedirectResponse(address + (f"?{left}" if left else ""), status_code=303)
        self._set_cookie(scope, response, token)
        return response


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
_PLAIN = frozenset({"/healthz", "/readyz", "/metrics"})
_MCP = "/mcp"
_FIRST_VIEW = "/threads"  # that the page opens with
_ANONYMOUS = Access(name="anonymous", roles=())


def _refusal(access: Access, route: HttpRoute) -> tuple[str, str] | None:
    """Return why a credential may not use a route, as a code and in words; None: it may."""
    if route.permission is None:
        return None
    if route.is_whole_store and access.is_limited:
        return "outside_limits", "this credential is limited to a part of the store"
    if not access.may(route.permission):
        return "role_insufficient", f"the roles of '{access.name}' do not allow to {route.permission}"
    return None


def _check_read(method: str) -> None:
    if method not in _SAFE:
        raise HttpProblem(
            405,
            "method_not_allowed",
            "this address takes GET and HEAD only; nothing was done.",
            headers={"Allow": "GET, HEAD"},
        )


_VIEWS = frozenset(
    {"", "threads", "approvals", "runs", "calls", "memory", "agents", "costs", "verify"}
)  # first parts of addresses


def _asset(path: str) -> Path | None:
    """Return the file of the page at an address; the index for the addresses of its views; None if there is none."""
    try:
        wanted = (PAGE / path.lstrip("/")).resolve()
        if not wanted.is_relative_to(PAGE):
            return None
        is_view = path.lstrip("/").partition("/")[0] in _VIEWS
        found = PAGE / "index.html" if is_view else wanted
        return found if found.is_file() else None
    except (OSError, ValueError):  # no file can have such a name
        return None


def _index(root: str) -> bytes:
    """Return the index of the page for a server below `root`; the scripts find the root in their own address."""
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    for name in ("assets/", "favicon.svg"):
        page = page.replace(f'"/{name}', f'"{escape(root)}/{name}')
    return page.encode()


@cache
def _compressed(file: Path) -> bytes:
    """Return a file of the page after gzip; it does not change while the server runs."""
    return gzip.compress(file.read_bytes(), mtime=0)


def app(
    store: aio.Store | Store,
    agents: Sequence[Agent] = (),
    *,
    hosts: Sequence[str] = LOOPBACK,
    access: Callable[[Mapping[str, str]], Access | None] | None = None,
    token: str | None = None,
) -> HttpServer:
    """Return the server as an ASGI application, to be mounted in one's own or served by any ASGI server.

    Clients present keys of the store (`perdure keys add`).  `access` maps the headers of a request to who asks, for an
    application with a login of its own.  `hosts` are the names that requests may address, "*": any.  The caller opens
    and closes the store.
    """
    return HttpServer(store, agents, hosts=hosts, access=access, token=token)
