"""The store as a server of the Model Context Protocol, over stdio and at `/mcp` of the HTTP server.

A tool is a route of the HTTP server under a short name: its arguments are the names in the route's path, its query and
its body, its answer is the route's answer.  So roles, limits and the record of changes are those of the HTTP server;
this module has no rules of its own.  A credential is shown only the tools that its roles allow.

An answer has at most `ANSWER_BYTES_MAX` bytes.  A page that is larger is read again with fewer items, so that its
cursor stays right; if one item is too large, long texts and lists are cut, and `cut` in the answer names each of them.
An error is an answer with `isError` and the problem document of the error.  Nothing is kept between two requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, cast

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from msgspec import Meta
from starlette.responses import Response
from starlette.types import Message, Scope

from perdure.errors import Invalid
from perdure.model.canonical import prepared
from perdure.model.effect import Effect
from perdure.model.memory import ItemKind
from perdure.runtime.tools.call_memory import SaidBy
from perdure.runtime.tools.mcp import KEY
from perdure.server.access import Access
from perdure.server.keys import AuditEntry
from perdure.server.problems import FOR_MCP, problem_of
from perdure.server.routing import HttpCall, HttpRoute, encoded
from perdure.shapes.text import now, spelled, stamp
from perdure.version import __version__

if TYPE_CHECKING:
    from perdure.server.app import HttpServer

__all__ = ["ANSWER_BYTES_MAX", "answer_request", "mcp_server", "serve_stdio"]

ANSWER_BYTES_MAX = 64 * 1024

_ACCESS = "perdure.access"  # under which a request carries who asks
_CUTS_SHOWN = 50
_CUTS = ((4_000, 1_000), (1_000, 200), (250, 40), (60, 8))  # characters of a text, items of a list
_ABOUT = (
    "Reads what AI agents said, did and stored. A moment (at, a, b) is HEAD, HEAD~2, turn:3, a digest, a message id or "
    "the name of a timeline. A list answers with `next` if there is more: give it as `after`."
)

_Context: TypeAlias = ServerRequestContext[Any, Any]


# ---- what tools take


class _ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client gives to a tool; one that is unknown is refused."""


_Thread: TypeAlias = Annotated[str, Meta(description="The id of a thread")]
_Timeline: TypeAlias = Annotated[str | None, Meta(description="A timeline of the thread; null: main")]
_Moment: TypeAlias = Annotated[str | None, Meta(description="A moment of the thread; null: now")]
_Limit: TypeAlias = Annotated[int | None, Meta(description="The number of items at most, 1 to 500")]
_After: TypeAlias = Annotated[str | None, Meta(description="The `next` of the answer before")]


class _ThreadsArguments(_ToolArguments, frozen=True, kw_only=True):
    q: Annotated[str | None, Meta(description="Words of ids, agents and owners")] = None
    owner: str | None = None
    agent: str | None = None
    state: Annotated[Literal["running", "waiting"] | None, Meta(description="The state of a run")] = None
    backend: Annotated[
        str | None, Meta(description="A part of the name of the backend that takes the next turn")
    ] = None
    cost_usd_min: Annotated[float | None, Meta(description="What all runs cost at least, in US dollars")] = (
        None
    )
    cost_usd_max: Annotated[float | None, Meta(description="What all runs cost at most, in US dollars")] = (
        None
    )
    age_days_min: Annotated[float | None, Meta(description="Days since the newest commit, at least")] = None
    age_days_max: Annotated[float | None, Meta(description="Days since the newest commit, at most")] = None
    cost: Annotated[bool | None, Meta(description="True: each thread has what its runs cost")] = None
    newest: Annotated[bool | None, Meta(description="True: those written last come first")] = None
    limit: _Limit = None
    after: _After = None


class _SearchArguments(_ToolArguments, frozen=True, kw_only=True):
    q: Annotated[str, Meta(description="Words that a message has, all of them")]
    thread: Annotated[str | None, Meta(description="Only this thread")] = None
    owner: str | None = None
    agent: str | None = None
    limit: _Limit = None
    after: _After = None


class _StateArguments(_ToolArguments, frozen=True, kw_only=True):
    thread: _Thread
    path: Annotated[str | None, Meta(description="One path, such as /plan.json; null: a list")] = None
    prefix: Annotated[str | None, Meta(description="Only paths under this one, such as /notes")] = None
    at: _Moment = None
    timeline: _Timeline = None
    limit: _Limit = None
    after: _After = None


class _HistoryArguments(_ToolArguments, frozen=True, kw_only=True):
    thread: _Thread
    at: _Moment = None
    timeline: _Timeline = None
    limit: _Limit = None
    after: _After = None


class _DiffArguments(_ToolArguments, frozen=True, kw_only=True):
    thread: _Thread
    a: Annotated[str, Meta(description="A moment of the thread")]
    b: _Moment = None
    prefix: Annotated[str | None, Meta(description="Only state under this path")] = None
    timeline: _Timeline = None


class _ForkArguments(_ToolArguments, frozen=True, kw_only=True):
    thread: _Thread
    name: Annotated[str, Meta(description="The name of the new timeline")]
    at: _Moment = None
    timeline: _Timeline = None
    effect_max: Annotated[
        Effect | None, Meta(description="The strongest effect of calls there; null: not bounded")
    ] = None


class _ApprovalsArguments(_ToolArguments, frozen=True, kw_only=True):
    limit: _Limit = None
    after: _After = None


class _DecideArguments(_ToolArguments, frozen=True, kw_only=True):
    thread: _Thread
    ticket: Annotated[str, Meta(description="The id of the question, which `approvals` has as `id`")]
    verdict: Literal["approve", "deny"]
    why: Annotated[str | None, Meta(description="The reason; if the call is denied, the model gets it")] = (
        None
    )


_Owner: TypeAlias = Annotated[str, Meta(description="Whose memory")]
_Item: TypeAlias = Annotated[str, Meta(description="The id of an item of memory")]
_Kind: TypeAlias = Annotated[ItemKind | None, Meta(description="The kind of the item")]
_Scope: TypeAlias = Annotated[str | None, Meta(description="What the item is about, such as user or project")]
_Trust: TypeAlias = Annotated[SaidBy, Meta(description="Whose words they are: model is yours")]
_Expires: TypeAlias = Annotated[
    Annotated[datetime, Meta(tz=True)] | None,
    Meta(description="When it ends, in ISO 8601 with a zone"),
]


class _MemorySearchArguments(_ToolArguments, frozen=True, kw_only=True):
    owner: Annotated[
        str | None, Meta(description="Whose memory; null: a list of the owners that have one")
    ] = None
    q: Annotated[str | None, Meta(description="What to look for; null: a list of all items")] = None
    kind: _Kind = None
    scope: _Scope = None
    limit: _Limit = None
    after: _After = None


class _MemoryGetArguments(_ToolArguments, frozen=True, kw_only=True):
    owner: _Owner
    item: _Item
    at: Annotated[str | None, Meta(description="A moment of the memory's history; null: now")] = None


class _MemoryAddArguments(_ToolArguments, frozen=True, kw_only=True):
    owner: _Owner
    text: Annotated[str, Meta(description="What to remember, one fact")]
    kind: _Kind = None
    scope: _Scope = None
    id: Annotated[str | None, Meta(description="Its id; that of an item corrects it; null: a new one")] = None
    trust: _Trust = "model"
    expires_at: _Expires = None


class _MemoryEditArguments(_ToolArguments, frozen=True, kw_only=True):
    owner: _Owner
    item: _Item
    text: Annotated[str, Meta(description="What is right")]
    kind: _Kind = None
    scope: _Scope = None
    trust: _Trust = "model"
    expires_at: _Expires = None


class _MemoryForgetArguments(_ToolArguments, frozen=True, kw_only=True):
    owner: _Owner
    item: _Item


# ---- the tools


class _McpTool(NamedTuple):
    """One tool: the routes that answer it, the first that fits, and what clients are told about it."""

    name: str
    description: str
    arguments: type[_ToolArguments]
    method: str
    paths: tuple[str, ...]
    hints: types.ToolAnnotations
    shrinks: bool = False  # a page that is too large is read again with fewer items


_READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
_DECIDES = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True
)
_REPLACES = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
_OF_THREAD = "/v1/threads/{thread}"
_OF_OWNER = "/v1/memory/{owner}"

_TOOLS = (
    _McpTool(
        "threads",
        "List threads: their agents, owners, last messages, and what waits or runs in them.",
        _ThreadsArguments,
        "GET",
        ("/v1/threads",),
        _READS,
        shrinks=True,
    ),
    _McpTool(
        "search",
        "Search the newest messages of threads, their calls and results included, for words.",
        _SearchArguments,
        "GET",
        ("/v1/search",),
        _READS,
    ),
    _McpTool(
        "state",
        "Read the state of a thread at any moment: the value at one path, or a list of paths with their values.",
        _StateArguments,
        "GET",
        (f"{_OF_THREAD}/state/{{path}}", f"{_OF_THREAD}/state"),
        _READS,
        shrinks=True,
    ),
    _McpTool(
        "transcript",
        "Read the messages of a thread up to a moment, oldest first; `after` leads to older ones.",
        _HistoryArguments,
        "GET",
        (f"{_OF_THREAD}/transcript",),
        _READS,
        shrinks=True,
    ),
    _McpTool(
        "log",
        "Read the commits of a thread up to a moment, newest first: events, changes of state, reasons.",
        _HistoryArguments,
        "GET",
        (f"{_OF_THREAD}/log",),
        _READS,
        shrinks=True,
    ),
    _McpTool(
        "diff",
        "Compare two moments of a thread from their last common commit: state, messages and tool calls.",
        _DiffArguments,
        "GET",
        (f"{_OF_THREAD}/diff",),
        _READS,
    ),
    _McpTool(
        "memory_search",
        "Search what is remembered for an owner across threads, the best match first; without words, list it.",
        _MemorySearchArguments,
        "GET",
        (_OF_OWNER, "/v1/memory"),
        _READS,
        shrinks=True,
    ),
    _McpTool(
        "memory_get",
        "Read one item of an owner's memory, now or as a moment of its history left it.",
        _MemoryGetArguments,
        "GET",
        (f"{_OF_OWNER}/items/{{item}}",),
        _READS,
    ),
    _McpTool(
        "fork",
        "Fork a thread at any moment; nothing is copied, and nothing runs.",
        _ForkArguments,
        "POST",
        (f"{_OF_THREAD}/fork",),
        _ADDS,
    ),
    _McpTool(
        "memory_add",
        "Remember something for an owner; what is there already, in other case too, is not added again.",
        _MemoryAddArguments,
        "POST",
        (f"{_OF_OWNER}/items",),
        _ADDS,
    ),
    _McpTool(
        "memory_edit",
        "Correct an item of an owner's memory; its past stays in the history.",
        _MemoryEditArguments,
        "PUT",
        (f"{_OF_OWNER}/items/{{item}}",),
        _REPLACES,
    ),
    _McpTool(
        "memory_forget",
        "Forget an item of an owner's memory; its past stays in the history, and a person can bring it back.",
        _MemoryForgetArguments,
        "DELETE",
        (f"{_OF_OWNER}/items/{{item}}",),
        _REPLACES,
    ),
    _McpTool(
        "approvals",
        "List the tool calls that wait for a decision, with their arguments, oldest first.",
        _ApprovalsArguments,
        "GET",
        ("/v1/approvals",),
        _READS,
        shrinks=True,
    ),
    _McpTool(
        "decide",
        "Approve or deny a tool call that waits; an approved call is made when its run goes on.",
        _DecideArguments,
        "POST",
        (f"{_OF_THREAD}/decide",),
        _DECIDES,
    ),
)
_BY_NAME = {each.name: each for each in _TOOLS}


def _is_shown(tool: _McpTool, access: Access) -> bool:
    match tool.name:
        case "approvals" | "decide":
            return access.may("decide")
        case "fork" | "memory_add" | "memory_edit" | "memory_forget":
            return access.may("operate")
        case _:
            return access.may("read")


def _described(tool: _McpTool) -> types.Tool:
    _, kinds = msgspec.json.schema_components((tool.arguments,))
    schema = dict(next(iter(kinds.values())))
    schema.pop("title", None)
    schema.pop("description", None)
    return types.Tool(
        name=tool.name, description=tool.description, input_schema=schema, annotations=tool.hints
    )


# ---- one call


def mcp_server(application: HttpServer, access: Access | None = None) -> Server[Any]:
    """Return a server of the protocol for what `application` serves; `access` None: the request carries it."""

    def asker(context: _Context) -> Access:
        return access if access is not None else _scope(context)[_ACCESS]

    async def list_tools(
        context: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        allowed = asker(context)
        return types.ListToolsResult(tools=[_described(each) for each in _TOOLS if _is_shown(each, allowed)])

    async def call_tool(context: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = _BY_NAME.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {spelled(params.name)[:100]!r}")
        try:
            return _result(await _called(application, asker(context), tool, params, context))
        except Exception as error:  # noqa: BLE001  # the edge: every error is an answer of the tool
            document, _ = problem_of(error, place=application.place, advice=FOR_MCP)
            return _result(msgspec.to_builtins(document), is_error=True)

    return Server(
        "perdure",
        version=__version__,
        instructions=_ABOUT,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _scope(context: _Context) -> Scope:
    """Return the scope of the HTTP request that a call came in; it is empty over stdio."""
    return {} if context.request is None else context.request.scope


async def _called(
    application: HttpServer,
    access: Access,
    tool: _McpTool,
    params: types.CallToolRequestParams,
    context: _Context,
) -> Any:
    given = _given(tool, params.arguments or {})
    method, path = tool.method, next(each for each in tool.paths if _fits(each, given))
    route = application.route(method, path)
    parts = _divided(route, given)
    meta: Mapping[str, Any] = params.meta or {}
    key = meta[KEY] if isinstance(meta.get(KEY), str) else None

    async def answered(limit: int | None) -> Any:
        call = HttpCall(application, route, access, parts.segments, {}, key=key)
        entry = partial(_entry, call, path.format_map(parts.segments), parts, context)
        application.check_permission(call, entry)
        query = parts.query if limit is None else parts.query | {"limit": limit}
        arguments = _converted(route, query, parts.body)
        return await application.perform(route, call, arguments, entry() if route.is_recorded else None)

    return await _bounded(answered, can_shrink=tool.shrinks and "limit" in _query_names(route))


def _given(tool: _McpTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a client gave, without those that are null; raises `Invalid`."""
    try:
        found = msgspec.convert(arguments, prepared(tool.arguments))
    except msgspec.ValidationError as error:
        raise Invalid(
            f"the arguments of '{tool.name}' do not fit it: {spelled(str(error))[:300]}; nothing was done.",
            code="body_invalid",
            advice="The list of tools has the schema of its arguments.",
        ) from error
    return {name: value for name, value in msgspec.structs.asdict(found).items() if value is not None}


class _RequestParts(NamedTuple):
    """Where the arguments of a tool go in the request of its route."""

    segments: dict[str, str]
    query: dict[str, Any]
    body: dict[str, Any]


def _fits(path: str, given: Mapping[str, Any]) -> bool:
    return all(name in given for name in _names(path))


def _names(path: str) -> list[str]:
    return [each[1:-1] for each in path.split("/") if each.startswith("{")]


def _divided(route: HttpRoute, given: Mapping[str, Any]) -> _RequestParts:
    """Divide arguments by where the route takes them; raises `Invalid` for one that it does not take."""
    parts, named = _RequestParts({}, {}, {}), _names(route.path)
    taken = () if route.body is None else msgspec.structs.fields(route.body)
    for name, value in given.items():
        if name in named:
            parts.segments[name] = value.removeprefix("/") if name == "path" else value
        elif name in {each.name for each in taken}:
            parts.body[name] = value
        elif name in _query_names(route):
            parts.query[name] = value
        else:
            raise Invalid(
                f"'{name}' cannot be given together with the others; nothing was done.",
                code="options_conflict",
                option=name,
            )
    return parts


def _query_names(route: HttpRoute) -> set[str]:
    return set() if route.query is None else {each.name for each in msgspec.structs.fields(route.query)}


def _converted(route: HttpRoute, query: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if route.query is not None:
        found["query"] = msgspec.convert(query, prepared(route.query))
    if route.body is not None:
        found["body"] = msgspec.convert(body, prepared(route.body))
    return found


def _entry(call: HttpCall, path: str, parts: _RequestParts, context: _Context) -> AuditEntry:
    """Return what the server's own thread records of a call that is to change something."""
    client = _scope(context).get("client")
    return AuditEntry(
        at=stamp(now()),
        by=call.access.name,
        roles=call.access.roles,
        method="MCP",
        path=spelled(path)[:500],
        query=spelled("&".join(f"{name}={value}" for name, value in parts.query.items()))[:500],
        op_id=call.key,
        body=sha256(msgspec.json.encode(parts.body)).hexdigest(),
        client=None if client is None else str(client[0]),
    )


# ---- bounded answers


def _result(answer: Any, *, is_error: bool = False) -> types.CallToolResult:
    text = msgspec.json.encode(answer).decode()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=answer, is_error=is_error
    )


async def _bounded(answered: Callable[[int | None], Awaitable[Any]], *, can_shrink: bool) -> Any:
    """Return the answer of a tool within the bound; raises `Invalid` if it cannot be made to fit.

    `can_shrink`: it is a page, which can be read again with fewer items.
    """
    content = encoded(await answered(None))
    fewer = len(_items(content)) if can_shrink and len(content) > ANSWER_BYTES_MAX else 0
    while fewer > 1 and len(content) > ANSWER_BYTES_MAX:
        fewer = max(1, min(fewer // 2, fewer * ANSWER_BYTES_MAX // len(content)))
        content = encoded(await answered(fewer))
    answer = msgspec.json.decode(content)
    if len(content) <= ANSWER_BYTES_MAX:
        return answer
    for characters, items in _CUTS:
        cuts: list[dict[str, Any]] = []
        shorter = _cut(answer, "", characters, items, cuts) | {
            "cut": cuts[:_CUTS_SHOWN],
            "cuts": len(cuts),
        }
        if len(msgspec.json.encode(shorter)) <= ANSWER_BYTES_MAX:
            return shorter
    raise Invalid(
        f"the answer has {len(content)} bytes, more than {ANSWER_BYTES_MAX}; nothing was changed.",
        code="answer_too_large",
        advice="Ask for a path, a prefix or a smaller part.",
        size=len(content),
    )


def _items(content: bytes) -> list[Any]:
    """Return the list that a page consists of."""
    lists: list[list[Any]] = [
        each for each in msgspec.json.decode(content).values() if isinstance(each, list)
    ]
    return max(lists, key=len) if lists else []


def _cut(value: Any, path: str, characters: int, items: int, cuts: list[dict[str, Any]]) -> Any:
    """Return a JSON value whose texts and lists have at most so many characters and items; `cuts` gets the others."""
    if isinstance(value, str):
        if len(value) <= characters:
            return value
        cuts.append({"path": path, "whole": len(value), "kept": characters})
        return value[:characters]
    if not isinstance(value, list | dict):
        return value
    whole = cast("list[Any] | dict[str, Any]", value)
    if len(whole) > items:
        cuts.append({"path": path, "whole": len(whole), "kept": items})
    if isinstance(whole, list):
        return [_cut(each, f"{path}/{at}", characters, items, cuts) for at, each in enumerate(whole[:items])]
    kept = list(whole.items())[:items]
    return {name: _cut(each, f"{path}/{name}", characters, items, cuts) for name, each in kept}


# ---- the two ways to it


async def answer_request(server: Server[Any], scope: Scope, content: bytes, access: Access) -> Response:
    """Answer one request that was posted to `/mcp`, whose body is `content`, for a credential that is known."""
    sent: list[Message] = []
    received: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Message:
        return received.pop() if received else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    manager = StreamableHTTPSessionManager(
        server, json_response=True, stateless=True, max_request_body_size=max(1, len(content))
    )
    async with manager.run():
        await manager.handle_request({**scope, _ACCESS: access}, receive, send)
    body = b"".join(each.get("body", b"") for each in sent[1:])
    response = Response(body, sent[0]["status"])
    response.raw_headers = [*sent[0]["headers"]]
    return response


async def serve_stdio(application: HttpServer, access: Access) -> None:
    """Serve one client over the standard input and output of this process, until it closes them."""
    server = mcp_server(application, access)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())
