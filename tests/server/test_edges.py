"""What comes from outside and is wrong: it has an answer that says so, and takes nothing from the server."""

from __future__ import annotations

import asyncio
import json
import re
import select
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

import perdure
from perdure.errors import Held, Invalid, PerdureError, RunFailed, ServerChanged, Unavailable, WrongStore
from perdure.runtime.session.result import Result
from perdure.server import streams
from perdure.server.access import Access
from perdure.server.keys import SERVER
from perdure.server.problems import problem_of
from perdure.store.store import Store
from tests.server.client import TOKEN, WAIT_SECONDS, Client, key, serving

THREAD = "/v1/threads/chat"


@pytest.mark.parametrize("origin", ["http://[", "http://", "//", "http://127.0.0.1:1@evil.example"])
def test_an_origin_that_is_no_address_is_another_site(client: Client, origin: str) -> None:
    """It is compared, not read: a read is answered, a change is refused."""
    nobody = Client(client.port, None)

    assert nobody.get("/healthz", Origin=origin).status == 200
    assert nobody.post("/v1/session", {"key": "x"}, Origin=origin).status == 403


@pytest.mark.parametrize("path", ["/" + "a" * 300, "/assets/" + "a" * 300, "/" + "a/" * 3_000])
def test_a_path_that_no_file_can_have_is_not_found(client: Client, path: str) -> None:
    """The file system refuses such a name; the client gets 404."""
    assert Client(client.port, None).get(path).status == 404


@pytest.mark.parametrize(
    "cursor", ["9" * 5000 + ".0." + "a" * 64, "0.0." + "z" * 64, "0.0." + "é" * 64, "٣.0." + "a" * 64, "x"]
)
def test_a_cursor_that_names_no_place_is_a_problem_document(client: Client, cursor: str) -> None:
    """A text of any length that is none, too; no stream begins."""
    reply = client.get(f"{THREAD}/events?wait=false&after={quote(cursor)}")
    named = client.get(f"{THREAD}/events", Last_Event_ID="x")

    assert (reply.status, reply.json["code"]) == (422, "cursor_invalid")
    assert (named.status, named.json["code"]) == (422, "cursor_invalid")
    assert reply.headers["content-type"].startswith("application/problem+json")


def test_what_is_not_there_or_does_not_fit_says_what_to_send(client: Client) -> None:
    """The two errors that everybody meets first carry advice."""
    absent, odd = client.get("/v1/threads/nobody"), client.post("/v1/threads/chat/run", {"tex": "Hello"})

    assert (absent.status, absent.json["code"]) == (404, "thread_not_found")
    assert "POST /v1/threads" in absent.json["advice"]
    assert (odd.status, odd.json["code"]) == (422, "body_invalid")
    assert "/v1/openapi.json" in odd.json["advice"]
    assert "Its fields are text, wait, queue, at." in odd.json["advice"]


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "request_named"),
    [
        ("GET", "/state/none.json", None, "path_not_found", "GET /v1/threads/{thread}/state"),
        ("GET", "/log?timeline=none", None, "timeline_not_found", "GET /v1/threads/{thread}/timelines"),
        ("GET", "/calls/none", None, "call_not_found", "GET /v1/threads/{thread}/calls"),
        ("POST", "/steer", {"text": "Hello"}, "run_to_steer_missing", "POST /v1/threads/{thread}/run"),
        ("POST", "/redo", {}, "nothing_to_redo", "POST /v1/threads/{thread}/undo"),
        ("POST", "/undo", {"turns": 0}, "turns_invalid", "send `to`"),
    ],
)
def test_advice_names_requests_and_not_methods(
    client: Client, method: str, path: str, body: Any, code: str, request_named: str
) -> None:
    """A client has no `paths()` to call; a stream of one's own application keeps what the library says."""
    reply = client.ask(method, f"{THREAD}{path}", body)

    assert reply.json["code"] == code
    assert request_named in reply.json["advice"]
    assert "()" not in reply.json["advice"]


def test_a_body_of_no_declared_type_is_told_which_header_to_send(client: Client) -> None:
    """What `curl -d` sends without a header is not taken for JSON."""
    sent = {"Content-Type": "application/x-www-form-urlencoded"}
    odd = client.ask("POST", "/v1/threads/chat/run", headers=sent, raw=b'{"text": "Hello"}')

    assert (odd.status, odd.json["code"]) == (415, "media_type_unknown")
    assert "Content-Type: application/json" in odd.json["advice"]


def test_a_stream_that_fails_says_so_and_tells_no_more() -> None:
    """The text of an error that is a defect is not sent."""

    async def failing() -> AsyncIterator[Any]:
        raise ValueError("secret words")
        yield

    async def read() -> list[bytes]:
        return [each async for each in streams.frames(failing(), place="")]

    (only,) = asyncio.run(read())

    assert b"server_failed" in only
    assert b"secret words" not in only


@pytest.mark.parametrize("path", ["/readyz", "/v1/threads"])
def test_no_client_is_told_where_a_store_is_that_fails(client: Client, store: Store, path: str) -> None:
    """The error of a closed store names its file, also to those without a key; the log of the server has it."""
    store.close()
    failed = Client(client.port, None if path == "/readyz" else TOKEN).get(path)

    assert (failed.status, failed.json["code"], failed.json["facts"]) == (503, "store_closed", {})
    assert store.url.encode() not in failed.body


@pytest.mark.parametrize(
    ("place", "is_told"),
    [("postgresql://ann@db.internal/agents", False), ("postgresql://ann@db.internal/others", True)],
)
def test_an_error_inside_a_stream_does_not_tell_the_place_of_the_store(place: str, is_told: bool) -> None:
    """Also if it is an address with the name of a user; control: any other text is sent."""

    async def failing() -> AsyncIterator[Any]:
        raise Unavailable(
            "no server answers at postgresql://ann@db.internal/agents", code="server_unreachable"
        )
        yield

    async def read() -> list[bytes]:
        return [each async for each in streams.frames(failing(), place=place)]

    (only,) = asyncio.run(read())

    assert b"server_unreachable" in only
    assert (b"db.internal" in only) is is_told


_MOVED = ServerChanged("openai:gpt-5.2", recorded="https://secret.internal/v1", resolved="http://10.0.0.7")
_RESULT = Result(run="r1", status="failed", why=str(_MOVED), kind="ServerChanged")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Held("t", "/home/ann/secret.db"), "held"),
        (WrongStore("a", "postgresql://ann@db/secret", "/srv/10.0.0.7.db"), "wrong_store"),
        (_MOVED, "server_changed"),
        (RunFailed(_RESULT), "run_failed"),
    ],
)
def test_an_error_about_another_place_does_not_say_where_that_is(error: PerdureError, code: str) -> None:
    """Neither stores nor backends, nor in a failed run's reason; control: the error itself says it."""
    problem, _ = problem_of(error, place="")

    assert problem.code == code
    assert problem.title == type(error).__name__
    assert re.search("secret|10.0.0.7", str(error))
    assert not re.search(b"secret|10.0.0.7", msgspec.json.encode(problem))


@pytest.mark.parametrize(("is_allowed", "sent_more"), [(False, False), (True, True)])
def test_a_busy_stream_asks_whether_its_key_is_still_known(is_allowed: bool, sent_more: bool) -> None:
    """It asks between frames, not only when there is nothing to send; control: a known key reads on."""
    sent: list[bytes] = []

    async def frames() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"event: x\ndata: {}\n\n"

    async def allowed() -> bool:
        return is_allowed

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.sleep(WAIT_SECONDS)

    stream = streams.EventStream(frames(), is_allowed=allowed, check_seconds=0)
    asyncio.run(asyncio.wait_for(stream({"type": "http"}, receive, send), WAIT_SECONDS))

    assert any(sent) is sent_more


def test_the_servers_own_thread_is_in_the_inbox_of_admins_only(client: Client, store: Store) -> None:
    """A reader of the inbox is told of a fork, and not of the request that is recorded for it."""
    reader = Client(client.port, key(store, "vera", "viewer")).events("/v1/events")
    assert next(reader).type == "hello"
    client.post(THREAD + "/fork", {"name": "other"})
    client.post(THREAD + "/undo")

    told: list[str] = []
    for event in reader:
        told += [event.data["thread"]] if event.type == "thread" else []
        if "chat" in told:
            break

    assert SERVER not in told
    assert Access(name="a", roles=("admin",)).sees(SERVER, SERVER, None)
    assert not Access(name="v", roles=("operator", "approver")).sees(SERVER, SERVER, None)


def test_the_same_key_of_two_credentials_is_two_requests(client: Client, store: Store) -> None:
    """Each of them begins a thread and runs an input of its own; control: repeated by the same, it is one."""
    both = [Client(client.port, key(store, name, "operator")) for name in ("olga", "otto")]
    begin = lambda mine: mine.post("/v1/threads", {"agent": "assistant"}, Idempotency_Key="1")  # noqa: E731
    run = lambda mine: mine.post(THREAD + "/run", {"text": "Hi"}, Idempotency_Key="1")  # noqa: E731

    begun = [begin(mine).json["id"] for mine in (*both, *both)]
    runs = [run(mine).json["run"] for mine in (*both, *both)]

    assert begun[:2] == begun[2:]
    assert runs[:2] == runs[2:]
    assert len(set(begun)) == len(set(runs)) == 2


def test_a_request_that_needs_no_credential_has_a_small_body(client: Client) -> None:
    """Anybody can send it; control: a body of that size is taken where a credential is needed."""
    large = "k" * 5_000

    assert Client(client.port, None).post("/v1/session", {"key": large}).status == 413
    assert client.ask("PUT", THREAD + "/state/x.json", large).status == 200


def test_a_body_that_comes_byte_by_byte_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of time is one for the whole body, however often something comes."""
    monkeypatch.setattr(sys.modules["perdure.server.routing"], "_RECEIVE_SECONDS", 0.2)
    with client.connected() as connection:
        connection.putrequest("POST", "/v1/session")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "4000")
        connection.endheaders(b"{")
        for _ in range(3_000):
            if select.select([connection.sock], [], [], 0.01)[0]:
                break
            connection.send(b" ")

        assert connection.getresponse().status == 408


def test_a_large_artifact_comes_whole_and_in_pieces(client: Client, store: Store) -> None:
    """Its size is told first; HEAD tells it without the content."""
    content = bytes(range(256)) * 20_000
    digest = store.thread("chat").artifacts.put(content, media_type="image/png")
    path = f"/v1/artifacts/{digest}?thread=chat"

    whole, head = client.get(path), client.ask("HEAD", path)

    assert whole.body == content
    assert head.body == b""
    assert whole.headers["content-length"] == head.headers["content-length"] == str(len(content))


def test_a_limit_to_nothing_is_refused(store: Store) -> None:
    """It would otherwise be a key without a limit."""
    with pytest.raises(Invalid) as raised:
        key(store, "me", "viewer", threads=[])

    assert raised.value.code == "limit_empty"


def test_a_proxy_that_names_two_persons_is_refused(client: Client, store: Store) -> None:
    """One of the two headers came from the person."""
    secret = key(store, "sso", "viewer", person_header="X-User")
    with client.connected() as connection:
        connection.putrequest("GET", "/v1/session")
        connection.putheader("Authorization", f"Bearer {secret}")
        for person in ("ann", "mallory"):
            connection.putheader("X-User", person)
        connection.endheaders()
        reply = connection.getresponse()

        assert (reply.status, json.load(reply)["code"]) == (400, "header_repeated")


def test_the_refusal_of_a_run_names_only_agents_within_the_limits(client: Client, store: Store) -> None:
    """The server also has the assistant, which does not exist for this key."""
    store.thread("theirs", agent="other")
    mine = Client(client.port, key(store, "me", "operator", agents=["other"]))

    reply = mine.post("/v1/threads/theirs/run", {"text": "Hi"})

    assert (reply.json["code"], reply.json["facts"]["served"]) == ("agent_not_served", [])


def test_only_admins_are_told_where_the_store_is(client: Client, store: Store) -> None:
    """Others get its name."""
    mine = Client(client.port, key(store, "me", "viewer"))

    assert mine.get("/v1/session").json["store"] == "store.db"
    assert client.get("/v1/session").json["store"] == store.url


def test_the_start_link_takes_only_its_own_token(client: Client, store: Store) -> None:
    """A key in an address would stay in the history of a browser."""
    nobody, secret = Client(client.port, None), key(store, "me", "viewer")

    assert nobody.get(f"/?token={secret}").status == 401
    assert nobody.get(f"/?token={quote(TOKEN)}").status == 303


def test_another_site_cannot_sign_a_browser_in(client: Client) -> None:
    """The start link is typed or opened from outside the browser, not followed from another site."""
    reply = Client(client.port, None).get(f"/?token={quote(TOKEN)}", Sec_Fetch_Site="cross-site")

    assert (reply.status, "set-cookie" in reply.headers) == (403, False)


def test_the_description_of_the_interface_is_only_read(client: Client) -> None:
    """Anybody may read it, so nobody may send it a body."""
    statuses = [client.ask(method, "/v1/openapi.json").status for method in ("GET", "HEAD", "POST", "DELETE")]

    assert statuses == [200, 200, 405, 405]


def test_an_ipv6_address_is_a_name_of_the_server(store: Store) -> None:
    """A Host header has it in brackets, whichever way the server was told."""
    with serving(store, hosts=("127.0.0.1", "FD00::1")) as client:
        statuses = [client.get("/healthz", Host=host).status for host in ("[fd00::1]:7333", "[fd00::2]:7333")]

    assert statuses == [200, 421]


def test_a_place_inside_a_document_is_blamed(client: Client, store: Store) -> None:
    """By one key or by a JSON list of keys and indexes; a place that is not there is not found."""
    thread = store.thread("chat")
    heads = [thread.put("/d.json", {"a": 1, "n": [number]}) for number in range(2)]

    blamed = [
        client.get(f"/v1/threads/chat/blame?path=/d.json{place}").json["commit"]
        for place in ("", "&place=a", "&place=%5B%22n%22,0%5D")
    ]

    assert blamed == [heads[1].commit, heads[0].commit, heads[1].commit]
    assert client.get("/v1/threads/chat/blame?path=/d.json&place=b").status == 404


def test_the_first_commit_is_compared_with_nothing(client: Client, store: Store) -> None:
    """Without `a` a moment is compared with the empty state before the first commit; an empty `a` names no moment."""
    store.thread("begun", agent="planner").put("/list.json", ["milk"])

    found = client.get("/v1/threads/begun/diff?b=HEAD").json

    assert [(each["path"], each["what"], each["before"]) for each in found["state"]] == [
        ("/list.json", "added", None)
    ]
    assert (found["base"], found["a"]["commit"]) == (None, None)
    assert client.get("/v1/threads/begun/diff?a=&b=HEAD").status == 404


def test_a_dry_run_of_a_merge_or_a_pick_writes_nothing(client: Client, store: Store) -> None:
    """The answer has what would change, and the conflicts."""
    thread = store.thread("chat")
    fork = thread.fork("other")
    picked = fork.put("/a.json", 1)
    head = thread.put("/a.json", 2)

    answers = [
        client.post("/v1/threads/chat/merge?dry_run=true", {"name": "other"}).json,
        client.post("/v1/threads/chat/cherry-pick?dry_run=true", {"commit": picked.commit}).json,
    ]

    assert [[each["path"] for each in answer["conflicts"]] for answer in answers] == [["/a.json"]] * 2
    assert thread.head == head


def test_a_conflict_by_key_is_answered_with_the_keys(client: Client, store: Store) -> None:
    """A dry run with their values, a refusal with their places; a side for the path settles them alone."""
    clerk = perdure.Agent("clerk", state=[perdure.state("/trip.json", merge="keys")])
    thread = store.thread("by-key", agent=clerk)
    thread.put("/trip.json", {"city": "Oslo"})
    thread.fork("other").put("/trip.json", {"city": "Rome", "days": 2})
    thread.put("/trip.json", {"city": None, "cost": 5})
    asked = "/v1/threads/by-key/merge"

    (planned,) = client.post(f"{asked}?dry_run=true", {"name": "other"}).json["conflicts"]
    refused = client.post(asked, {"name": "other"}).json["facts"]["conflicts"][0]
    client.post(asked, {"name": "other", "prefer": {"/trip.json": "theirs"}})

    assert planned["keys"] == [
        {"place": ["city"], "base": {"value": "Oslo"}, "ours": {"value": None}, "theirs": {"value": "Rome"}}
    ]
    assert refused["keys"] == [["city"]]
    assert thread.get("/trip.json") == {"city": "Rome", "cost": 5, "days": 2}


def test_a_range_of_turns_is_picked_by_one_request(client: Client, store: Store) -> None:
    """One write for all of them, made once for each key, or none; the answer has each; a dry run has the same paths."""
    thread = store.thread("chat")
    thread.fork("other", at=None).put("/own.json", 1)
    for number in (1, 2, 3):
        with thread.change("add") as change:
            change.say("user", f"Add {number}.")
            change.put(f"/{number}.json", number)
    other = thread.on("other")
    first, asked = thread.turns(limit=3)[0].number, "/v1/threads/chat/cherry-pick?timeline=other"
    body = {"commit": [f"turn:{first}", f"{first + 1}..{first + 2}"], "source": "main"}

    planned = client.post(f"{asked}&dry_run=true", body).json
    done = [client.post(asked, body, Idempotency_Key="pick-1").json for _ in range(2)]
    other.put("/2.json", "mine")
    version = other.head.version
    refused = client.post(asked, {"commit": f"{first}..{first + 2}", "source": "main"})

    assert [each["path"] for each in planned["changed"]] == ["/1.json", "/2.json", "/3.json"]
    assert [(each["picked"], each["paths"]) for each in done[0]["picks"]] == [
        (f"turn {first + number}", 1) for number in range(3)
    ]
    assert (done[0]["commit"], done[0]["paths"]) == (done[0]["picks"][-1]["commit"], 3)
    assert done[0] == done[1]
    assert (refused.status, refused.json["code"], refused.json["facts"]["picked"]) == (
        409,
        "merge_conflict",
        f"turn {first + 1}",
    )
    assert other.head.version == version
