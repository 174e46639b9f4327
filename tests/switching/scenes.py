"""What the rows of switching share: an agent with every kind of thing that a switch looks at, and tools that count."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from collections import Counter
from typing import Any, Literal

import mcp
import msgspec
from mcp.server.mcpserver import MCPServer

import perdure
from perdure import Agent, Image, Message, Policy, Text, Thread, Tool
from perdure.model.digest import Digest
from perdure.runtime.tools.mcp import mcp_tools
from perdure.switching.commit import report_at
from perdure.switching.report import Report
from perdure.testing import Script, say

__all__ = [
    "COMPUTER",
    "PICTURE",
    "Answer",
    "Counting",
    "committed",
    "looked",
    "mcp_lookup",
    "researcher",
]

COMPUTER: dict[str, Any] = {
    "vendor": {"openai-responses": {"tools": [{"type": "computer_use_preview", "environment": "browser"}]}}
}


class Answer(msgspec.Struct):
    """What a run is asked for, where it is asked for JSON."""

    city: str


def _png() -> bytes:
    """One black pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


PICTURE = Image("data:image/png;base64," + base64.b64encode(_png()).decode(), "image/png")


class Counting:
    """An outside world that counts what is done to it."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def tool(self, *, ask: bool = False, guard: Literal["ask", "allow", "deny"] = "ask") -> Tool:
        """A tool that pays somebody, and cannot take it back; `boom` is paid too, and then it raises."""

        @perdure.tool(effect="financial", ask=ask, repeat_guard=guard)
        def pay(to: str) -> str:
            """Pay somebody."""
            self.done[to] += 1
            if to == "boom":
                raise ConnectionError("the bank fell silent")
            return f"paid {to}"

        return pay


def mcp_lookup() -> list[Tool]:
    """The tools of a real MCP server."""
    server = MCPServer("library")

    @server.tool()
    def lookup(word: str) -> str:
        """Look a word up."""
        return word

    async def listed() -> list[Tool]:
        async with mcp.Client(server) as client:
            return await mcp_tools(client, effects={"lookup": "read_only"})

    return asyncio.run(listed())


def researcher(script: Script | None = None, **declared: Any) -> Agent:
    """An agent on OpenAI with MCP tools and a computer-use tool."""
    given: dict[str, Any] = {"tools": mcp_lookup(), "options": COMPUTER, "policy": Policy(), **declared}
    return Agent("researcher", backend=script or Script(say("A dot."), backend="openai:gpt-5.6"), **given)


def looked(thread: Thread) -> Thread:
    """The thread after a turn in which somebody showed a picture."""
    thread.run(Message("user", (Text("What is on this picture?"), PICTURE)))
    return thread


def committed(thread: Thread, commit: Digest | None = None) -> Report:
    """The report that a commit keeps; None: the line's last one."""
    commit = commit or thread.head.commit
    assert commit is not None
    found = report_at(thread._space, commit)  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    return found
