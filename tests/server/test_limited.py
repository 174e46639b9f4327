"""A key for some agents and a thread that other agents have had: no route gives it more than its own lines.

The thread was begun by `triage`, forked, and handed off to `billing`; a later hand-off to `fraud` was undone.  The key is for
`billing`.  What it may not see is on the fork `quietly` and in the undone part of `main`, and has the word CANARY in it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote, urlencode
from uuid import uuid4

import msgspec
import pytest

import perdure
import perdure.server
from perdure import Agent, aio, tool
from perdure.server import openapi
from perdure.server.access import Access
from perdure.server.app import HttpServer
from perdure.server.limited import LimitedArtifacts, LimitedThread, LimitedView
from perdure.server.limited_handle import LimitedHandle
from perdure.server.routing import HttpRoute, Router
from perdure.server.streams import EventStream
from perdure.store.artifacts import Artifacts
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View
from perdure.testing import Script, say, step, use
from tests.server.client import Client, key, serving
from tests.server.test_access import BODIES

assert openapi.ADDRESS  # importing it declares every route
ROUTES = [each for each in Router().routes if each.permission is not None]
LIMITED = Access(name="bill", roles=("admin",), agents=("billing",))
WHOLE = Access(name="bill", roles=("admin",))
CANARY = "CANARY"
CONTENT = "CANARY is the content of a result"


@tool(effect="external_write", ask=True)
def refund(order: str) -> str:
    """Refund an order."""
    return CONTENT


@tool(effect="read_only")
def look(order: str) -> str:
    """Look at an order."""
    return CONTENT


class Handed(NamedTuple):
    """A thread that was handed off, with the names of what a key for `billing` may not see."""

    store: Store
    agents: list[Agent]
    names: dict[str, str]  # by the form of the name
    cursor: str


def agent(name: str, *answers: Any) -> Agent:
    """An agent that gives these answers, then many more."""
    return Agent(name, backend=Script(*answers, *[say("Fine.")] * 20), tools=[refund, look])


def handed_off(store: Store | None = None) -> Handed:
    """Return a store with such a thread; None: one in memory."""
    triage = agent(
        "triage", say("Hello."), step(use("look", order=CANARY)), step(use("refund", order=CANARY))
    )
    billing, fraud = agent("billing"), agent("fraud", say("CANARY was found."))
    # A run's id ends in a letter: eight digits alone would be read as a place in a list, where one is asked for.
    store = store or perdure.open("memory:", ids=lambda: f"{uuid4()}"[:-1] + "a")
    thread = store.thread("t", agent=triage, owner="ann")
    thread.run("Hello", id="msg-1")
    side = thread.fork("quietly")
    with side.change("name it") as change:
        change.name("langgraph:hidden")
        change.put("/secret.json", CANARY)
    waiting = side.run("What about CANARY?", id="msg-side")
    side.artifacts.put(b"CANARY", name="drafts/hidden")
    mine = thread.hand_off(billing)
    mine.run("Bill me", id="msg-2")
    before = mine.head
    theirs = mine.hand_off(fraud)
    undone = theirs.run("Is CANARY fraud?", id="msg-undone")
    theirs.undo(to=before)
    found = {
        "timeline": "quietly",
        "digest": str(side.head.commit),
        "short digest": re.findall(r"^\w{9}\d*[a-f]", str(side.head.commit))[0],  # digits alone are a place
        "message": "msg-side",
        "run": waiting.run,
        "end of a run's id": waiting.run[-8:],
        "foreign name": "langgraph:hidden",
        "version": f"version:{theirs.head.version - 1}",
        "undone digest": str(theirs.at(undone.run).digest),
        "undone run": undone.run,
        "undone message": "msg-undone",
        "call": waiting.approvals[0].call,
        "ticket": waiting.approvals[0].id,
        "artifact": side.artifacts.resolve("artifact://drafts/hidden"),
    }
    (last,) = list(side.follow(side.cursor_before(waiting.run)))[-1:]
    return Handed(store, [triage, billing, fraud], found, str(last.cursor))


# ---- requests, made from the types of the routes


class Request(NamedTuple):
    """One request: where the name is in it, and what it consists of."""

    place: str
    method: str
    target: str
    body: Any
    headers: dict[str, str]


def texts_of(kind: Any) -> list[str]:
    """The fields of a struct that take a text."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return []
    hints = get_type_hints(kind)
    return [each.encode_name for each in msgspec.structs.fields(kind) if _takes_text(hints[each.name])]


def _takes_text(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(map(_takes_text, get_args(hint)))
    return hint is str


def ai_sdk_bodies(name: str) -> dict[str, Any]:
    """What `useChat` sends that has a name in it: an id of a message, answers to a question and to a call."""
    part = {"type": "dynamic-tool", "toolName": "refund", "toolCallId": name, "input": {}}
    approved = part | {"state": "approval-responded", "approval": {"id": name, "approved": True}}
    answered = part | {"state": "output-available", "output": "done"}
    said = {"type": "text", "text": "x"}
    return {
        place: {"messages": [{"id": name, "role": role, "parts": [each]}]}
        for place, role, each in [
            ("id", "user", said),
            ("approval", "assistant", approved),
            ("result", "assistant", answered),
        ]
    }


def ag_ui_bodies(name: str) -> dict[str, Any]:
    """What an AG-UI client sends that has a name in it: ids of a run and a message, and of an interrupt."""
    base = {"threadId": "t", "runId": name, "messages": [{"id": name, "role": "user", "content": "x"}]}
    resume = {"interruptId": name, "status": "resolved", "payload": {"approved": True}}
    return {"id": base, "interrupt": base | {"resume": [resume]}}


CHATS: dict[str, Callable[[str], dict[str, Any]]] = {"ai-sdk": ai_sdk_bodies, "ag-ui": ag_ui_bodies}


def requests(route: HttpRoute, name: str, cursor: str) -> Iterator[Request]:
    """Yield a request for each place of a route that takes a text, with the name there."""
    kind = route.path.rpartition("/")[2]
    plain = BODIES.get(kind, {"agent": "billing"} if route.path == "/v1/threads" else {})
    given = {"diff": {"a": "HEAD"}, "search": {"q": "CANARY"}}
    needed = given.get(kind, {"path": "/x.json"} if kind in ("blame", "state-log") else {})
    needed |= {"thread": "t"} if "thread" in texts_of(route.query) and "{thread}" not in route.path else {}
    names = {"thread": "t", "path": "secret.json", "chat": "t", "agent": "billing", "owner": "ann"}

    def request(
        place: str, *, segment: str = "", query: Any = None, body: Any = None, **headers: str
    ) -> Request:
        taken = names | ({segment: name} if segment else {})
        path = re.sub(r"\{(\w+)\}", lambda match: quote(taken.get(match[1], "x"), safe=""), route.path)
        asked = urlencode(needed | (query or {}) | ({"wait": "false"} if kind == "events" else {}))
        content = None if route.method in ("GET", "DELETE") else plain | (body or {})
        sent = {each.replace("_", "-"): value for each, value in headers.items()}
        return Request(f"{route.method} {route.path} {place}", route.method, f"{path}?{asked}", content, sent)

    yield request("alone")
    for segment in re.findall(r"\{(\w+)\}", route.path):
        if segment not in ("thread", "path", "owner", "agent"):
            yield request(f"segment {segment}", segment=segment)
    for each in texts_of(route.query):
        if each != "thread" or "{thread}" in route.path:
            yield request(f"query {each}", query={each: name})
    for each in texts_of(route.body):
        if each != "id" or route.path != "/v1/threads":
            yield request(f"body {each}", body={each: name})
    if route.media == "text/event-stream":
        yield request("Last-Event-ID", last_event_id=cursor)
        if route.method == "POST":
            yield request("position", last_event_id=f"{cursor}/text.0.5.0/{name}")
    if route.method == "POST" and kind in CHATS:
        yield from (request(place, body=each) for place, each in CHATS[kind](name).items())


class Reply(NamedTuple):
    """What the application answered."""

    status: int
    text: str  # body and headers

    @property
    def code(self) -> str:
        """The code of a problem; empty if it is none."""
        found = re.search(r'"code":"(\w+)"', self.text)
        return found[1] if found else ""


def answer(handed: Handed, access: Access, request: Request) -> Reply:
    """Let the application answer a request, without a socket."""
    path, _, query = request.target.partition("?")
    content = b"" if request.body is None else json.dumps(request.body).encode()
    given = {"host": "127.0.0.1", "content-type": "application/json", **request.headers}
    scope: dict[str, Any] = {
        "type": "http", "method": request.method, "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "scheme": "http", "client": ("127.0.0.1", 1),
        "headers": [(each.lower().encode(), value.encode()) for each, value in given.items()],
    }  # fmt: skip
    sent: list[Any] = []
    received = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Any:
        if received:
            return received.pop()
        await asyncio.sleep(0.2 if path == "/v1/events" else 60)  # the inbox has no end
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def serve() -> None:
        server = HttpServer(handed.store, handed.agents, access=lambda _: access)
        await server(scope, receive, send)
        await server.finish()

    asyncio.run(serve())
    body = b"".join(each.get("body", b"") for each in sent[1:]).decode()
    return Reply(sent[0]["status"], body + str(sent[0]["headers"]))


def leaked(handed: Handed, request: Request, reply: Reply) -> list[str]:
    """Return what of the hidden names and contents an answer has, other than what the request had."""
    asked = unquote(str(request))
    hidden = {CANARY, *handed.names.values()}
    return [each for each in hidden if each not in asked and each in reply.text]


ABSENT = {
    "timeline": "nothing",
    "digest": "ab" * 32,
    "short digest": "abababab12",
    "message": "msg-none",
    "run": "run-none",
    "end of a run's id": "zzzzzzzz",
    "foreign name": "langgraph:none",
    "version": "version:99",
    "undone digest": "cd" * 32,
    "undone run": "run-none",
    "undone message": "msg-none",
    "call": "call-none",
    "ticket": "ticket-none",
    "artifact": "ef" * 32,
}
NO_CURSOR = "3.1." + "ab" * 32
# A client that may make something under a name learns that the name is taken.
TAKEN = {
    ("timeline", "POST /v1/threads/{thread}/fork body name"),
    *(
        (form, f"POST /v1/threads/{{thread}}/{chat} id")
        for form in ("message", "undone message")
        for chat in CHATS
    ),
}


def hidden_heads(handed: Handed) -> list[Any]:
    """Where the timelines are that the key may not see."""
    return [each for each in handed.store.thread("t").timelines() if each.head.timeline == "quietly"]


@pytest.mark.parametrize("form", ABSENT)
def test_no_route_gives_a_key_for_one_agent_what_another_has(form: str) -> None:
    """Every place of every route that takes a text, with a hidden name of this form there.

    The answer has nothing that is hidden, is the one for a name that nothing has, and no hidden timeline has moved.
    """
    handed, absent = handed_off(), handed_off()
    heads = hidden_heads(handed)
    for route in ROUTES:
        places = zip(
            requests(route, handed.names[form], handed.cursor),
            requests(route, ABSENT[form], NO_CURSOR),
            strict=True,
        )
        for request, other in places:
            reply, expected = answer(handed, LIMITED, request), answer(absent, LIMITED, other)

            assert leaked(handed, request, reply) == [], (request, reply)
            if (form, request.place) not in TAKEN:
                assert (reply.status, reply.code) == (expected.status, expected.code), (request, reply)
            assert hidden_heads(handed) == heads, request
            if route.method != "GET" and min(reply.status, expected.status) < 400:
                handed, absent = _again(handed), _again(absent)
                heads = hidden_heads(handed)


def _again(handed: Handed) -> Handed:
    handed.store.close()
    return handed_off()


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ("timeline", "GET /v1/threads/{thread}/transcript query at"),
        ("timeline", "GET /v1/threads/{thread}/transcript query timeline"),
        ("timeline", "GET /v1/threads/{thread}/diff query b"),
        ("digest", "GET /v1/threads/{thread}/state query at"),
        ("short digest", "GET /v1/threads/{thread}/log query after"),
        ("foreign name", "GET /v1/threads/{thread}/state/{path} query at"),
        ("undone digest", "GET /v1/threads/{thread}/turns query at"),
        ("version", "GET /v1/threads/{thread}/transcript query at"),
        ("undone run", "GET /v1/threads/{thread}/runs/{run} segment run"),
        ("end of a run's id", "GET /v1/threads/{thread} query at"),
        ("call", "GET /v1/threads/{thread}/calls/{call} segment call"),
        ("ticket", "GET /v1/threads/{thread}/approvals/{call} segment call"),
        ("undone run", "GET /v1/threads/{thread}/ai-sdk/{chat}/stream query message"),
        ("artifact", "GET /v1/artifacts/{digest} segment digest"),
        ("message", "GET /v1/search query after"),
        ("run", "GET /v1/threads/{thread}/graph alone"),
        ("run", "GET /v1/threads/{thread}/calls alone"),
        ("run", "GET /v1/threads/{thread}/moves alone"),
        ("run", "GET /v1/approvals alone"),
        ("run", "GET /v1/runs alone"),
    ],
)
def test_a_key_without_limits_is_shown_what_the_other_is_not(form: str, place: str) -> None:
    """Control: the same requests lead to what is hidden, so it is the limit that hides it."""
    handed = handed_off()
    sent = [each for route in ROUTES for each in requests(route, handed.names[form], handed.cursor)]
    request = next(each for each in sent if each.place == place)

    reply = answer(handed, WHOLE, request)

    assert reply.status == 200
    assert leaked(handed, request, reply) != []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("promote", {"name": "quietly"}),
        ("merge", {"name": "quietly"}),
        ("cherry-pick", {"commit": "langgraph:hidden"}),
        ("cherry-pick", {"commit": "langgraph:hidden..HEAD", "source": "quietly"}),
        ("undo", {"to": "quietly"}),
        ("fork", {"name": "mine", "at": "msg-side"}),
        ("redo", {}),
        ("run?timeline=quietly", {"text": "go on"}),
        ("seal?timeline=quietly", {}),
    ],
)
def test_a_write_that_names_what_is_hidden_is_made_for_a_key_without_limits_alone(
    path: str, body: Any
) -> None:
    """The limited key is refused and has changed nothing; control: the other key's request is carried out."""
    handed = handed_off()
    request = Request("", "POST", f"/v1/threads/t/{path}", body, {})
    before = handed.store.thread("t").timelines()

    refused = answer(handed, LIMITED, request)
    unchanged = handed.store.thread("t").timelines()
    done = answer(handed, WHOLE, request)

    assert (refused.status, unchanged) == (404, before)
    assert done.status in (200, 201)
    assert handed.store.thread("t").timelines() != before


def test_a_hidden_timeline_is_not_there_to_be_dropped() -> None:
    """Control: a key without limits is told what is open on it, and drops it no more than the other."""
    handed = handed_off()
    request = Request("", "POST", "/v1/threads/t/drop?timeline=quietly", {}, {})

    refused, told = (answer(handed, each, request) for each in (LIMITED, WHOLE))

    assert refused.status == 404
    assert (told.status, "timeline_open" in told.text) == (409, True)


def test_a_key_for_the_next_agent_has_the_whole_conversation_of_its_own_line() -> None:
    """What the first agent said before the hand-off is the next one's to read, to fork from and to go back to."""
    handed = handed_off()
    ask = lambda method, path, body=None: answer(  # noqa: E731
        handed, LIMITED, Request("", method, f"/v1/threads/t{path}", body, {})
    )

    assert "Hello." in ask("GET", "/transcript").text
    assert ask("GET", "/transcript?at=turn:1").status == 200
    assert ask("GET", "/diff?a=msg-1").status == 200
    assert ask("GET", "/runs").text.count('"id"') >= 2
    assert ask("POST", "/fork", {"name": "mine"}).status == 201
    assert ask("POST", "/merge", {"name": "mine"}).status == 200
    assert ask("POST", "/undo", {"turns": 1}).status == 200


def test_a_dry_run_with_a_conflict_shows_its_values_to_a_limited_key() -> None:
    """A merge and a pick of a line that the key sees; both answers have all three values."""
    handed = handed_off()
    thread = handed.store.thread("t")
    thread.put("/n.json", 0)
    fork = thread.fork("mine")
    thread.put("/n.json", 1)
    picked = fork.put("/n.json", 2).commit
    bodies = {"merge": {"name": "mine"}, "cherry-pick": {"commit": picked}}

    answers = [
        answer(handed, LIMITED, Request("", "POST", f"/v1/threads/t/{act}?dry_run=true", body, {}))
        for act, body in bodies.items()
    ]

    assert [each.status for each in answers] == [200, 200]
    found = [json.JSONDecoder().raw_decode(each.text)[0]["conflicts"][0] for each in answers]
    assert [[each[side]["value"] for side in ("base", "ours", "theirs")] for each in found] == [[0, 1, 2]] * 2


def test_an_event_of_an_undone_hand_off_is_not_told() -> None:
    """A follower is told of commits that were undone before it came; those of another agent are left out."""
    handed = handed_off()
    thread = handed.store.thread("t")
    begin = thread.cursor_before(thread.runs()[0].id)
    request = Request("", "GET", f"/v1/threads/t/events?wait=false&after={begin}", None, {})

    limited, whole = (answer(handed, access, request) for access in (LIMITED, WHOLE))

    assert ("Bill me" in limited.text, CANARY in limited.text) == (True, False)
    assert CANARY in whole.text  # control


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/graph",
        "/turns",
        "/transcript",
        "/diff?a=turn:1",
        "/moves",
        "/calls",
        "/runs",
        "/blame?path=/secret.json",
    ],
)
def test_a_merge_brings_the_state_and_not_the_runs_of_another_agents_line(path: str) -> None:
    """A key without limits merged the hidden timeline into main: its state is main's now, its calls and messages are not.

    Who wrote a value there is not told.  Control: the other key is told.
    """
    handed = handed_off()
    merged = answer(handed, WHOLE, Request("", "POST", "/v1/threads/t/merge", {"name": "quietly"}, {}))
    ask = lambda access, path: answer(handed, access, Request("", "GET", f"/v1/threads/t{path}", None, {}))  # noqa: E731
    hidden = [handed.names[each] for each in ("call", "ticket", "run", "message", "digest")]
    limited, whole = ask(LIMITED, path), ask(WHOLE, path)

    assert (merged.status, whole.status) == (200, 200)
    assert CANARY in ask(LIMITED, "/state/secret.json").text
    assert (limited.status, limited.code) == ((403, "outside_limits") if "blame" in path else (200, ""))
    assert not [each for each in hidden if each in limited.text]


def test_a_stream_tells_nothing_of_an_agent_that_gets_the_thread_while_it_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even before the server asks again whether the key may read it; control: what came before is told."""
    monkeypatch.setitem(EventStream.__init__.__kwdefaults__ or {}, "check_seconds", 60.0)
    monkeypatch.setitem(EventStream.__init__.__kwdefaults__ or {}, "idle_seconds", 1.0)
    billing, fraud = agent("billing"), agent("fraud", say("CANARY was found."))
    thread = store.thread("t", agent=billing)
    secret = key(store, "bill", "viewer", agents=["billing"])
    with serving(store, billing, fraud) as client, Client(client.port, secret).connected() as connection:
        connection.request("GET", "/v1/threads/t/events", headers={"Authorization": f"Bearer {secret}"})
        response = connection.getresponse()
        thread.run("Bill me", id="msg-2")
        told = b""
        while b'"reason":"finish"' not in told and b"run.finished" not in told:
            told += response.readline()
        thread.hand_off(fraud).run("Is CANARY fraud?", id="msg-3")
        while line := response.readline():
            told += line

    assert (b"Bill me" in told, CANARY.encode() in told, b"fraud" in told) == (True, False, False)


def test_an_undo_that_gives_the_timeline_back_to_another_agent_is_refused() -> None:
    """The moment can be read, so the refusal says why; control: an undo that stays with the agent is made.

    Repeated with the same Idempotency-Key, the undo has its first answer, though another would be refused.
    """
    handed = handed_off()
    undo = lambda body, **headers: answer(  # noqa: E731
        handed, LIMITED, Request("", "POST", "/v1/threads/t/undo", body, headers)
    )
    head = handed.store.thread("t").head

    refused = [undo({"to": "turn:1"}), undo({"turns": 2})]
    unmoved = handed.store.thread("t").head
    made = [undo({"turns": 1}, **{"Idempotency-Key": "once"}) for _ in range(2)]

    assert [(each.status, each.code) for each in refused] == [(403, "outside_limits")] * 2
    assert unmoved == head
    assert [each.status for each in made] == [200, 200]
    assert undo({"turns": 1}).status == 403


def test_the_inbox_counts_the_approvals_that_the_key_may_see() -> None:
    """One call waits, on a timeline of another agent; control: a key without limits is told of it."""
    handed = handed_off()
    request = Request("", "GET", "/v1/events", None, {})

    limited, whole = (answer(handed, access, request) for access in (LIMITED, WHOLE))

    assert '"approvals":0' in limited.text
    assert '"approvals":1' in whole.text


# ---- what a later method, or a later route, cannot forget

# What reads or writes the handle's own timeline alone, and takes no name of another moment, run or call.
HARMLESS = {
    Thread: {
        "add", "agent_map", "approvals", "backend", "call", "change", "check_switch", "checkpoint", "checkpoints",
        "context", "costs", "cursor", "delete", "digest", "entries", "entry", "export", "get", "given", "hand_off", "head", "log",
        "losses", "paths", "plan", "put", "render", "replay", "rm", "root", "run", "schedule", "seal", "server", "shown",
        "start", "steer", "stream", "switch", "transcript", "turns", "values", "cherry_pick",
    },
    View: {
        "agent_map", "backend", "checkpoint", "checkpoints", "context", "cursor", "digest", "entries", "entry", "get", "head",
        "log", "losses", "paths", "root", "server", "transcript", "turns", "values",
    },
    Artifacts: {"put"},
    aio.Thread: {"call", "replay", "run", "stream", "change", "get", "off_loop", "target"},
}  # fmt: skip
# No route calls these: they read the ledger of all timelines.
UNUSED = {"layers"}


@pytest.mark.parametrize(
    ("kind", "twin"),
    [
        (Thread, LimitedThread),
        (View, LimitedView),
        (Artifacts, LimitedArtifacts),
        (aio.Thread, LimitedHandle),
    ],
)
def test_each_method_has_a_limited_twin_or_takes_no_name(kind: type, twin: type) -> None:
    """A method that is added to a handle is either limited, or listed here as one that needs no limit."""
    public = {name for name in dir(kind) if not name.startswith("_")}
    own = {name for each in twin.__mro__ if each not in kind.__mro__ for name in vars(each)}
    calls_the_target = {
        name
        for name in public
        if kind is aio.Thread and not inspect.isfunction(inspect.getattr_static(kind, name))
    }

    assert public - own - calls_the_target - UNUSED == HARMLESS[kind]


def test_only_one_place_opens_threads_for_requests() -> None:
    """Routes get threads from `HttpCall` and from lists that put the limits on them."""
    opening: set[tuple[str, str]] = set()
    root = Path(perdure.server.__file__).parent
    for file in root.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                opening |= {(file.stem, function.name) for node in ast.walk(function) if _opens(node)}

    assert opening == {
        ("actions", "begin_thread"),  # checks what it has begun, and answers with its head
        ("actions", "is_misnamed"),  # looks whether an agent has another thread, and shows none
        ("app", "_sees_line"),  # checks a stream
        ("app", "declared"),  # gives the limits of the handle on
        ("keys", "ls"),
        ("keys", "rm"),
        ("keys", "server_thread"),
        ("routing", "thread"),
        ("streams", "_heads_of"),
        ("streams", "_now"),
        ("streams", "_questions"),
        ("thread_list", "_candidates"),
        ("thread_list", "_opened"),
    }
    assert not any(name in file.read_text() for file in root.rglob("*.py") for name in (".layers(",))


def _opens(node: ast.AST) -> bool:
    """True of a call of `thread` or `threads` of a store."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    of = ast.unparse(node.func.value)
    return node.func.attr in ("thread", "threads") and of.endswith(("store", "store.target()", "_store"))
