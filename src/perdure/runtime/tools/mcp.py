"""Makes tools of the tools that an MCP server offers.

`mcp_tools` asks a server for its tools.  The hints that the server gives about a tool become its effect; a tool
without hints counts as an external write.  Arguments are checked before anything is sent, against the top level
of the server's schema.  The idempotency key of a call is sent in `_meta`, under `KEY`.

An answer with `isError` is raised like a broken connection: the server says that the tool failed, which is no
proof that nothing happened.  For an external write the outcome is then unknown.

A connection belongs to the event loop that opened it.  A tool may be used from any other loop, as a run in
another thread does: the call is then made in the loop of the connection.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from perdure.errors import Invalid, NotDone, Unsupported
from perdure.ledger.json_schema import with_defaults
from perdure.model.canonical import Json
from perdure.model.effect import Effect, Reach, check_effect
from perdure.model.message import Block, Text
from perdure.model.text import well_formed
from perdure.runtime.tools.call import Call
from perdure.runtime.tools.result import StoredResult
from perdure.runtime.tools.signature import Arguments, integral, json_name, refusal
from perdure.runtime.tools.tool import Ask, Tool

if TYPE_CHECKING:
    import mcp
    from mcp import types

__all__ = ["KEY", "ServerError", "mcp_tools"]

KEY = "perdure/idempotencyKey"

_T = TypeVar("_T")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_./-]")
_PAGES_MAX = 1_000
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class ServerError(Exception):
    """A server answered that its tool failed.  What the tool did before is not known."""


async def mcp_tools(
    client: mcp.Client | mcp.ClientSession,
    *,
    prefix: str = "",
    trust: bool = True,
    effects: Mapping[str, Effect] | None = None,
    timeout: float | None = None,
    ask: Ask = False,
) -> list[Tool]:
    """Return the tools that the server behind an open `client` offers now.

    Their names begin with `prefix`.  `effects` declares effects by the server's tool names and overrides the
    server's hints; without `trust` the hints, which the server need not keep, are ignored.
    """
    server = _Server(client)
    found = {_name(prefix, each.name): each for each in await server.listed()}
    known = effects or {}
    for each in sorted(set(known) - {each.name for each in found.values()}):
        raise Invalid(
            f"the server has no tool {each!r} to declare an effect of; no tool was made.",
            code="mcp_tool_unknown",
            tool=each,
        )
    if len(found) != server.count:
        raise Invalid(
            "two tools of the server have the same name; no tool was made.",
            code="mcp_names_collide",
            advice="Use one server at a time.",
        )
    return [
        _tool(server, name, each, _reach(each, known.get(each.name), trust=trust), timeout, ask)
        for name, each in found.items()
    ]


class _Server:
    """A connection, and the event loop that it belongs to."""

    def __init__(self, client: mcp.Client | mcp.ClientSession) -> None:
        sdk = _sdk()
        if not isinstance(client, sdk.Client | sdk.ClientSession):
            raise Invalid(
                f"tools come from an open mcp.Client or mcp.ClientSession, not from {client!r}; no tool was made.",
                code="mcp_client_invalid",
            )
        self._client = cast("mcp.Client", client) if isinstance(client, sdk.Client) else None
        self._session = cast("mcp.ClientSession", client) if self._client is None else None
        self._home, self._pid = asyncio.get_running_loop(), os.getpid()
        self.count = 0  # of the tools that were listed

    async def listed(self) -> list[types.Tool]:
        """Return all tools, read page by page."""
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(_PAGES_MAX):
            page = await self._page(cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        self.count = len(found)
        return found

    async def call(self, name: str, arguments: dict[str, Any], key: str) -> types.CallToolResult:
        """Return the answer of the server; raises what the connection raises, and `NotDone` if there is none."""
        meta: Any = {KEY: key} if key else None

        def send() -> Awaitable[types.CallToolResult]:
            return self._open().call_tool(name, arguments, meta=meta)

        if asyncio.get_running_loop() is self._home:
            return await send()
        if self._pid != os.getpid():  # the loop seems to run here, but its thread is in the parent process
            raise NotDone(
                "the MCP connection belongs to the process that this one was forked from, so nothing was sent"
            )
        if not self._home.is_running():
            raise NotDone("the event loop of the MCP connection has ended, so nothing was sent")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaiting(send), self._home))

    def _open(self) -> mcp.Client | mcp.ClientSession:
        """Return the connection; raises `NotDone` if it is known to be closed."""
        if self._client is None:
            assert self._session is not None
            return self._session
        try:
            _ = self._client.session
        except RuntimeError as error:
            raise NotDone(f"the MCP client is not connected, so nothing was sent: {error}") from error
        return self._client

    async def _page(self, cursor: str | None) -> types.ListToolsResult:
        if self._client is not None:
            return await self._client.list_tools(cursor=cursor, cache_mode="refresh")
        assert self._session is not None
        return await self._session.list_tools(params=_sdk().types.PaginatedRequestParams(cursor=cursor))


def _sdk() -> Any:
    try:
        import mcp
    except ImportError as error:
        raise Unsupported(
            "tools of MCP servers need the official SDK, which is not installed; no tool was made.",
            code="mcp_sdk_missing",
            advice="Install perdure[mcp].",
        ) from error
    return mcp


async def _awaiting(send: Callable[[], Awaitable[_T]]) -> _T:
    return await send()


def _name(prefix: str, name: str) -> str:
    """Return the server's name for a tool, with '_' for each character that a declared tool cannot have."""
    legal = prefix + _ILLEGAL.sub("_", name)
    return legal if re.match(r"[A-Za-z_]", legal) else "_" + legal


def _reach(found: types.Tool, known: Effect | None, *, trust: bool) -> tuple[Reach, bool]:
    """Return the reach of a tool, and whether it was declared or only assumed."""
    hints = found.annotations if trust else None
    idempotent = bool(hints and hints.idempotent_hint)
    if known is not None:
        return Reach(check_effect(known), idempotent), True
    if hints is None:
        return Reach(), False
    if hints.read_only_hint:
        return Reach("read_only"), True
    given = (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint)
    return Reach("external_write", idempotent), any(hint is not None for hint in given)


def _tool(
    server: _Server, name: str, found: types.Tool, reach: tuple[Reach, bool], timeout: float | None, ask: Ask
) -> Tool:
    schema = cast("dict[str, Json]", found.input_schema)

    async def run(arguments: Arguments, call: Call) -> object:
        return _result_of(await server.call(found.name, dict(arguments.values), call.key))

    async def direct(**given: Any) -> object:
        return _result_of(await server.call(found.name, given, ""))

    return Tool(
        name=name,
        description=found.description or "",
        parameters=schema,
        function=direct,
        take=lambda given: _validate(name, schema, given),
        run=run,
        runs_async=True,
        reach=reach[0],
        declared=reach[1],
        timeout=timeout,
        ask=ask,
        origin="mcp",
    )


def _validate(tool: str, schema: Mapping[str, Json], given: dict[str, Json]) -> Arguments:
    """Return `given` as arguments if it fits the top level of the schema; the server checks the rest.  Raises `Invalid`."""
    properties = _mapping(schema.get("properties"))
    for name in cast("Sequence[str]", schema.get("required") or ()):
        if name not in given:
            raise refusal(tool, f"missing required field `{name}`")
    if schema.get("additionalProperties") is False:
        for name in given:
            if name not in properties:
                raise refusal(tool, f"unknown field `{name}`")
    values = {
        name: _fitting(tool, name, _mapping(properties.get(name)), value) for name, value in given.items()
    }
    # The server fills its own defaults in; here they only give equal calls equal fingerprints.
    return Arguments(values, cast("dict[str, Json]", with_defaults(dict(schema), values)))


def _fitting(tool: str, name: str, schema: Mapping[str, Json], value: Json) -> Json:
    """Return `value` if its JSON type is one that the schema names; 1.0 counts as the integer 1."""
    named = schema.get("type")
    kinds = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if "number" not in kinds and "integer" in kinds:
        value = integral(value) if isinstance(value, float) else value
    if kinds and not any(_is(value, str(kind)) for kind in kinds):
        raise refusal(tool, f"`{name}`: expected {' or '.join(map(str, kinds))}, got {json_name(value)}")
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        raise refusal(tool, f"`{name}`: expected one of {choices}")
    return value


def _is(value: Json, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS.get(kind, (object,)))


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _result_of(answer: types.CallToolResult) -> object:
    """Return the tool's result for this answer; raises `ServerError` if the answer says that it failed."""
    if answer.is_error:
        raise ServerError(
            "\n".join(_as_text(each) for each in answer.content) or "the server does not say why"
        )
    if len(answer.content) == 1 and answer.structured_content is None:
        alone = _bytes(answer.content[0])
        if alone is not None:
            return alone
    if answer.structured_content is None and all(each.type == "text" for each in answer.content):
        return [Text(_as_text(each)) for each in answer.content] or ""
    if not answer.content:
        return answer.structured_content
    blocks: tuple[Block, ...] = tuple(
        Text(well_formed(_as_text(each)) or "(empty)") for each in answer.content
    )
    content = answer.model_dump_json(by_alias=True, exclude_none=True).encode()
    return StoredResult(content=content, media_type="application/json", blocks=blocks)


def _bytes(block: types.ContentBlock) -> bytes | None:
    """Return the bytes of a picture, a recording or a file; None if it is none, or they cannot be decoded."""
    data: str | None = None
    if block.type == "image" or block.type == "audio":
        data = block.data
    elif block.type == "resource":
        data = cast("str | None", getattr(block.resource, "blob", None))
    try:
        return None if data is None else base64.b64decode(data, validate=True)
    except ValueError:
        return None


def _as_text(block: types.ContentBlock) -> str:
    """Return a block as text; a block that is no text is named, and is in the whole result."""
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.mime_type}, in the whole result]"
        case "resource_link":
            return f"[a link to {block.uri}: {block.name}]"
        case "resource":
            text = cast("str | None", getattr(block.resource, "text", None))
            return text if text is not None else f"[the file {block.resource.uri}, in the whole result]"
