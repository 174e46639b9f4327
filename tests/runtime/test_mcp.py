"""Tools of MCP servers, by the official SDK: in this process, and in another by stdio."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import mcp
import pytest
from mcp import types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from perdure.errors import Invalid, Unsupported
from perdure.model.effect import Reach
from perdure.model.message import Image, Text
from perdure.runtime.tools import mcp as module
from perdure.runtime.tools.call import Call
from perdure.runtime.tools.execution import ToolOutcome, attempt
from perdure.runtime.tools.mcp import KEY, mcp_tools
from perdure.runtime.tools.result import keep, preview
from perdure.runtime.tools.tool import Tool
from tests.coded import raises

_T = TypeVar("_T")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
REF = "artifact://sha256/" + "ab" * 32

LOCAL = """
import os
from mcp.server.mcpserver import MCPServer

server = MCPServer("local")

@server.tool()
def add(a: int, b: int = 2) -> str:
    return str(a + b)

@server.tool()
def vanish() -> str:
    os._exit(1)

server.run("stdio")
"""


@pytest.fixture
def tool_threads() -> Iterator[Executor]:
    """A worker that no async tool needs."""
    with ThreadPoolExecutor(1) as tool_threads:
        yield tool_threads


@pytest.fixture
def server() -> MCPServer:
    """A server with tools of every kind."""
    server = MCPServer("test")

    def add(name: str, function: Callable[..., object], **hints: Any) -> None:
        said = types.ToolAnnotations(**hints) if hints else None
        server.add_tool(function, name=name, annotations=said, structured_output=False)

    def look(city: str, days: int = 3) -> str:
        """Look at the weather."""
        return f"{city}: {days} days of rain"

    def key(ctx: Context[Any]) -> str:
        meta: Any = ctx.request_context.meta
        return str((meta or {}).get(KEY))

    def fail() -> str:
        raise ToolError("out of order")

    def picture() -> types.ImageContent:
        return types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")

    def both() -> list[Any]:
        return ["see", picture()]

    add("look", look, read_only_hint=True)
    add("key", key)
    add("fail", fail, destructive_hint=True)
    add("again", look, idempotent_hint=True, destructive_hint=False)
    add("abroad", look, open_world_hint=True)
    add("say", look, idempotent_hint=True)
    add("picture", picture)
    add("both", both)
    add("an odd:name", look)
    return server


def within(server: object, work: Callable[[dict[str, Tool]], Awaitable[_T]], **options: Any) -> _T:
    """What `work` makes of the server's tools, while a client is connected."""

    async def run() -> _T:
        async with mcp.Client(server) as client:  # pyright: ignore[reportArgumentType]
            return await work({each.name: each for each in await mcp_tools(client, **options)})

    return asyncio.run(run())


def called(server: object, tool_threads: Executor, name: str, raw: str = "", key: str = "") -> ToolOutcome:
    """What comes of one attempt at a tool of the server."""

    async def work(tools: dict[str, Tool]) -> ToolOutcome:
        call = Call(id="c", tool=name, key=key)
        return await attempt(tools[name], tools[name].validated(raw), call, tool_threads=tool_threads)

    return within(server, work)


def tools_of(server: MCPServer, **options: Any) -> dict[str, Tool]:
    """The tools, without a connection any more."""

    async def work(tools: dict[str, Tool]) -> dict[str, Tool]:
        return tools

    return within(server, work, **options)


def test_hints_become_effects(server: MCPServer) -> None:
    """A server that says nothing is taken for one that writes, and it is remembered that it said nothing."""
    found = {name: (each.reach, each.declared) for name, each in tools_of(server).items()}

    assert found["look"] == (Reach("read_only"), True)
    assert found["key"] == (Reach("external_write"), False)
    assert found["fail"] == (Reach("external_write"), True)
    assert found["again"] == (Reach("external_write", idempotent=True), True)
    assert found["abroad"] == (Reach("external_write"), True)
    assert found["say"] == (Reach("external_write", idempotent=True), False)


def test_hints_of_a_server_that_is_not_trusted_count_for_nothing(server: MCPServer) -> None:
    """They bind it to nothing; what the program says itself counts."""
    found = tools_of(server, trust=False, effects={"look": "none"})

    assert (found["look"].reach, found["look"].declared) == (Reach("none"), True)
    assert (found["again"].reach, found["again"].declared) == (Reach("external_write"), False)


def test_tools_are_told_as_the_server_tells_them(server: MCPServer) -> None:
    """With a prefix where several servers are used, and with names that a backend takes."""
    found = tools_of(server, prefix="test/", ask=True, timeout=3)

    assert found["test/look"].description == "Look at the weather."
    assert found["test/look"].parameters["required"] == ["city"]
    assert (found["test/look"].ask, found["test/look"].timeout) == (True, 3)
    assert "test/an_odd_name" in found


def test_a_call_goes_to_the_server_under_its_own_name(server: MCPServer, tool_threads: Executor) -> None:
    """And its answer comes back as blocks."""
    done = called(server, tool_threads, "an_odd_name", '{"city": "Oslo"}')

    assert (done.kind, done.value) == ("returned", [Text("Oslo: 3 days of rain")])


def test_the_idempotency_key_travels_with_the_request(server: MCPServer, tool_threads: Executor) -> None:
    """A server that knows it can tell a repetition."""
    assert called(server, tool_threads, "key", key="pd-1").value == [Text("pd-1")]


def test_an_answer_that_says_error_is_raised(server: MCPServer, tool_threads: Executor) -> None:
    """It is no proof that nothing happened."""
    done = called(server, tool_threads, "fail")

    assert done.kind == "raised"
    assert "out of order" in done.why


def test_a_picture_alone_is_its_bytes(server: MCPServer, tool_threads: Executor) -> None:
    """So that it is kept as what it is, and shown by reference."""
    kept = keep(called(server, tool_threads, "picture").value)

    assert (kept.content, kept.media_type) == (PNG, "image/png")
    assert preview(kept, REF)[1] == Image(REF, "image/png")


def test_an_answer_of_several_kinds_is_kept_whole(server: MCPServer, tool_threads: Executor) -> None:
    """The words are shown; what is none is named, and is in what is kept."""
    kept = keep(called(server, tool_threads, "both").value)

    assert base64.b64encode(PNG) in kept.content
    assert preview(kept, REF) == (Text("see"), Text("[image/png, in the whole result]"))


def test_a_structured_answer_is_kept_with_its_structure(tool_threads: Executor) -> None:
    """The words that stand for it are what a model is shown."""
    server = MCPServer("structured")
    server.add_tool(_structured, name="find")

    kept = keep(called(server, tool_threads, "find").value)

    assert kept.media_type == "application/json"
    assert b'"structuredContent":{"n":3}' in kept.content
    assert "3" in "".join(block.text for block in preview(kept, REF) if isinstance(block, Text))


def _structured() -> dict[str, int]:
    return {"n": 3}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("{}", "missing required field `city`"),
        ('{"city": 3}', "`city`: expected string, got an integer"),
        ('{"city": "x", "days": "3"}', "`days`: expected integer, got a string"),
        ('{"city": "x", "days": true}', "`days`: expected integer, got a boolean"),
        ("[]", "they are an array"),
        ('{"city": "x", "city": "y"}', "appears twice"),
    ],
)
def test_arguments_are_checked_before_anything_is_sent(server: MCPServer, raw: str, words: str) -> None:
    """A refusal after the fact would leave an outcome unknown for nothing."""
    with raises(Invalid, "arguments_refused", tool="look") as refused:
        tools_of(server)["look"].validated(raw)
    assert words in str(refused.value.facts["why"])


def test_the_server_s_defaults_make_the_same_call_the_same(server: MCPServer) -> None:
    """They count for the fingerprint, and the server fills them in itself; 1.0 passes for 1."""
    look = tools_of(server)["look"]

    assert look.validated('{"city": "x"}').normal == look.validated('{"city": "x", "days": 3.0}').normal
    assert look.validated('{"city": "x"}').values == {"city": "x"}


def test_schemas_are_read_at_their_top_alone() -> None:
    """Several types, choices and closed objects are known; what is deeper is the server's to check."""
    schema: dict[str, Any] = {
        "properties": {"a": {"type": ["string", "null"]}, "b": {"enum": ["x", "y"]}, "c": True},
        "additionalProperties": False,
    }

    assert module._validate("t", schema, {"a": None, "b": "x", "c": {"deep": [1]}}).values["a"] is None
    for given, words in (
        ({"a": 1}, "string or null"),
        ({"b": "z"}, "one of"),
        ({"d": 1}, "unknown field `d`"),
    ):
        with raises(Invalid, "arguments_refused") as refused:
            module._validate("t", schema, given)  # pyright: ignore[reportArgumentType]
        assert words in str(refused.value.facts["why"])


def test_a_call_without_a_connection_did_not_happen(server: MCPServer, tool_threads: Executor) -> None:
    """Nothing was sent: that is proof."""
    look = tools_of(server)["look"]

    done = asyncio.run(
        attempt(look, look.validated('{"city": "x"}'), Call(id="c", tool="look"), tool_threads=tool_threads)
    )

    assert done.kind == "not_done"
    assert "nothing was sent" in done.why


def test_a_closed_client_sends_nothing(server: MCPServer, tool_threads: Executor) -> None:
    """Also within the loop that it lived in."""

    async def run() -> ToolOutcome:
        async with mcp.Client(server) as client:
            (look,) = [each for each in await mcp_tools(client) if each.name == "look"]
        return await attempt(
            look, look.validated('{"city": "x"}'), Call(id="c", tool="look"), tool_threads=tool_threads
        )

    done = asyncio.run(run())
    assert (done.kind, "nothing was sent" in done.why) == ("not_done", True)


def test_a_tool_can_be_used_from_another_loop(server: MCPServer, tool_threads: Executor) -> None:
    """A run in another thread reaches the connection where it lives."""
    made: list[ToolOutcome] = []

    async def work(tools: dict[str, Tool]) -> None:
        look = tools["look"]

        def elsewhere() -> None:
            arguments = look.validated('{"city": "Oslo"}')
            made.append(
                asyncio.run(attempt(look, arguments, Call(id="c", tool="look"), tool_threads=tool_threads))
            )

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join, 10)

    within(server, work)

    assert [done.value for done in made] == [[Text("Oslo: 3 days of rain")]]


def test_a_connection_is_not_used_in_a_forked_child(server: MCPServer, tool_threads: Executor) -> None:
    """Its loop looks as if it ran, but nothing runs there: the child sends nothing and does not wait."""

    async def work(tools: dict[str, Tool]) -> int:
        look, pid = tools["look"], os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        signal.alarm(60)
        asyncio.events._set_running_loop(None)
        call = attempt(
            look, look.validated('{"city": "x"}'), Call(id="c", tool="look"), tool_threads=tool_threads
        )
        os._exit(0 if asyncio.run(call).kind == "not_done" else 1)

    assert within(server, work) == 0


def test_a_tool_can_be_called_directly(server: MCPServer) -> None:
    """As any tool can."""

    async def work(tools: dict[str, Tool]) -> object:
        return await tools["look"](city="Rome", days=1)

    assert within(server, work) == [Text("Rome: 1 days of rain")]


def test_a_server_in_another_process_is_called_and_its_death_is_raised(
    tmp_path: Path, tool_threads: Executor
) -> None:
    """By stdio, with a plain session; what a dead server did, nobody knows."""
    (tmp_path / "local.py").write_text(LOCAL)
    local = mcp.StdioServerParameters(command=sys.executable, args=[str(tmp_path / "local.py")])

    async def run() -> list[ToolOutcome]:
        async with (
            mcp.stdio_client(local) as (reading, writing),
            mcp.ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            tools = {each.name: each for each in await mcp_tools(session)}
            return [
                await attempt(
                    tools[name],
                    tools[name].validated(raw),
                    Call(id="c", tool=name),
                    tool_threads=tool_threads,
                )
                for name, raw in (("add", '{"a": 1}'), ("vanish", ""))
            ]

    added, gone = asyncio.run(run())

    assert "3" in str(added.value)
    assert gone.kind == "raised"


def test_what_is_no_client_is_refused() -> None:
    """In words, at once."""
    with raises(Invalid, "mcp_client_invalid"):
        asyncio.run(mcp_tools("http://localhost"))  # pyright: ignore[reportArgumentType]


def test_an_effect_of_a_tool_that_is_not_there_is_refused(server: MCPServer) -> None:
    """A misspelt name must not leave the real tool undeclared."""

    async def run() -> None:
        async with mcp.Client(server) as client:
            with raises(Invalid, "mcp_tool_unknown", tool="fly"):
                await mcp_tools(client, effects={"fly": "none"})

    asyncio.run(run())


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "mcp", None)

    with raises(Unsupported, "mcp_sdk_missing"):
        asyncio.run(mcp_tools(object()))  # pyright: ignore[reportArgumentType]
