"""Who may do what: every role on every route, ids of others, other sites, other hosts, and tricks with headers and paths."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Semaphore
from time import sleep
from typing import Any
from urllib.parse import quote

import pytest

from perdure.errors import Unavailable
from perdure.server import openapi
from perdure.server.access import Access
from perdure.server.keys import SERVER, Audit, AuditEntry, Keys
from perdure.server.routing import HttpRoute, Router
from perdure.server.streams import EventStream
from perdure.store.store import Store
from tests.server.client import Client, assistant, key, serving

assert openapi.ADDRESS  # importing it declares every route
ROUTES = Router().routes
ALLOWED = {
    "viewer": {"read"},
    "operator": {"read", "operate"},
    "approver": {"read", "decide"},
    "admin": {"read", "operate", "decide", "administer"},
}
BODIES: dict[str, Any] = {
    "run": {"text": "hi"},
    "steer": {"text": "hi"},
    "fork": {"name": "x"},
    "promote": {"name": "x"},
    "merge": {"name": "x"},
    "cherry-pick": {"commit": "HEAD"},
    "switch": {"to": "openai:gpt-5.6"},
    "decide": {"call": "c", "verdict": "deny"},
    "resolve": {"outcome": "done"},
    "ai-sdk": {"messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]},
    "ag-ui": {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]},
}
QUERIES = {
    "diff": "a=HEAD",
    "blame": "path=/x.json",
    "state-log": "path=/x.json",
    "search": "q=secret",
    "objects": "thread=T",
    "artifacts/": "thread=T",
}


def address(route: HttpRoute, thread: str) -> str:
    """An address that the route answers, about a thread."""
    names = {"thread": thread, "owner": "bob", "agent": "other", "digest": "0" * 64, "path": "x.json"}
    path = re.sub(r"\{(\w+)\}", lambda match: quote(names.get(match[1], "x"), safe=""), route.path)
    query = next((text for part, text in QUERIES.items() if part in route.path), "")
    return path + ("?" + query.replace("T", quote(thread, safe="")) if query else "")


def body(route: HttpRoute) -> Any:
    """A body that the route takes."""
    return BODIES.get(
        route.path.rpartition("/")[2], {"agent": "assistant"} if route.path == "/v1/threads" else {}
    )


def tried(client: Client, route: HttpRoute, thread: str = "chat") -> int:
    """The status of one request to a route; of a stream, without reading it."""
    with client.connected() as connection:
        content = None if route.method == "GET" else body(route)
        reply = client._sent(connection, route.method, address(route, thread), content, None, None)
        return reply.status


@pytest.mark.parametrize("role", ALLOWED)
def test_a_role_reaches_the_routes_of_its_permissions_and_no_other(
    client: Client, store: Store, role: str
) -> None:
    """403 on exactly those routes that need a permission which the role does not have."""
    mine = Client(client.port, key(store, "me", role))
    routes = [route for route in ROUTES if route.permission is not None]

    refused = {route.handler.__name__ for route in routes if tried(mine, route, "nothing") == 403}

    assert refused == {each.handler.__name__ for each in routes if each.permission not in ALLOWED[role]}


def test_without_a_credential_every_route_is_401(client: Client) -> None:
    """Only what monitors ask, and signing in, needs none."""
    nobody = Client(client.port, None)

    statuses = {tried(nobody, route) for route in ROUTES if route.permission is not None}

    assert statuses == {401}
    assert Client(client.port, "pk_guessed").get("/v1/threads").status == 401


@pytest.mark.parametrize("limit", [{"owners": ["ann"]}, {"agents": ["assistant"]}, {"threads": ["chat"]}])
def test_what_lies_outside_the_limits_does_not_exist(client: Client, store: Store, limit: Any) -> None:
    """Another owner's thread is answered like a thread that nobody has, on every route; lists leave it out."""
    store.thread("theirs", agent="other", owner="bob").put("/x.json", "secret words")
    with store.thread("theirs").change("say") as change:
        change.say("user", "secret words")
    mine = Client(client.port, key(store, "me", "operator", "approver", **limit))

    for route in ROUTES:
        if "{thread}" in route.path or "thread=" in address(route, "t"):
            status = 403 if route.permission == "administer" else 404
            assert tried(mine, route, "theirs") == tried(mine, route, "nothing") == status, route
    shown = "".join(
        mine.get(path).body.decode()
        for path in (
            "/v1/threads",
            "/v1/search?q=secret",
            "/v1/agents",
            "/v1/memory",
            "/v1/approvals",
            "/v1/runs",
            "/v1/costs",
        )
    )

    assert "theirs" not in shown
    assert "secret words" not in shown
    assert mine.get("/v1/verify").status == mine.get("/metrics").status == 403
    assert "chat" in mine.get("/v1/threads").body.decode()


def test_a_key_without_limits_sees_the_other_thread(client: Client, store: Store) -> None:
    """Control: it is the limit that hides it."""
    store.thread("theirs", agent="other", owner="bob").put("/x.json", "secret words")

    reply = Client(client.port, key(store, "me", "viewer")).get("/v1/threads/theirs/state/x.json")

    assert reply.json["value"] == "secret words"


def test_a_thread_cannot_be_begun_for_another_owner(client: Client, store: Store) -> None:
    """A key of one owner begins threads of that owner only."""
    mine = Client(client.port, key(store, "me", "operator", owners=["ann"]))

    statuses = [
        mine.post("/v1/threads", {"id": f"t{at}", "agent": "assistant", "owner": owner}).status
        for at, owner in enumerate(("ann", "bob", None))
    ]

    assert statuses == [201, 403, 201]
    assert store.thread("t2").owner == "ann"


def test_a_key_of_several_owners_is_told_which_to_give(client: Client, store: Store) -> None:
    """None of them is chosen; control: a key without limits begins a thread of no owner."""
    mine = Client(client.port, key(store, "me", "operator", owners=["ann", "bob"]))

    refused = mine.post("/v1/threads", {"id": "t", "agent": "assistant"})
    begun = client.post("/v1/threads", {"id": "u", "agent": "assistant"})

    assert (refused.status, refused.json["code"]) == (403, "outside_limits")
    assert "ann, bob" in refused.json["advice"]
    assert (begun.status, store.thread("u").owner) == (201, None)


def test_a_removed_key_is_refused(client: Client, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is read again after a second; here at once."""
    monkeypatch.setattr("perdure.server.keys._FRESH_SECONDS", 0)
    from perdure.server.keys import Keys

    mine = Client(client.port, key(store, "me", "viewer"))
    before = mine.get("/v1/threads").status
    Keys(store).rm("me")

    assert (before, mine.get("/v1/threads").status) == (200, 401)


def test_the_servers_own_thread_is_read_by_admins_and_written_by_no_request(
    client: Client, store: Store
) -> None:
    """An undo there would bring a removed key back."""
    secret = key(store, "me", "operator", "approver")
    mine, path = Client(client.port, secret), f"/v1/threads/{SERVER}"

    assert mine.get(path).status == 404
    assert SERVER not in mine.get("/v1/threads").body.decode()
    assert client.get(path).status == 200
    for route in ROUTES:
        if "{thread}" in route.path and route.method != "GET":
            assert tried(client, route, SERVER) in (403, 404), route
    assert secret not in client.get(path + "/state/keys/me.json").body.decode()


def test_another_site_can_change_nothing(client: Client) -> None:
    """A browser sends the origin of the page that caused a request; with the cookie of the user, too."""
    cookie = (
        client.post("/v1/session", {"key": "the token of the start link"})
        .headers["set-cookie"]
        .partition(";")[0]
    )
    nobody = Client(client.port, None)
    mine = f"http://127.0.0.1:{client.port}"
    undo = lambda **headers: nobody.post("/v1/threads/chat/undo", {}, Cookie=cookie, **headers).status  # noqa: E731

    assert undo(Origin="https://evil.example") == 403
    assert undo(Origin="null") == 403
    assert undo(Origin=f"{mine}.evil.example") == 403
    assert undo(Sec_Fetch_Site="cross-site") == 403
    assert undo(Origin=mine, Sec_Fetch_Site="same-origin") == 200


def test_the_cookie_is_kept_from_scripts_and_other_sites(client: Client) -> None:
    """HttpOnly and SameSite=Strict, for every cookie that the server sets."""
    cookies = [
        client.post("/v1/session", {"key": "the token of the start link"}).headers["set-cookie"],
        client.get("/?token=the%20token%20of%20the%20start%20link").headers["set-cookie"],
    ]

    assert all("HttpOnly" in each and "samesite=strict" in each.lower() for each in cookies)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example"])
def test_another_host_name_is_not_answered(client: Client, host: str) -> None:
    """A name that an attacker points to this machine (rebinding) is no name of the server."""
    assert client.get("/v1/threads", Host=host).status == 421


def test_its_own_host_names_are_answered(client: Client) -> None:
    """Control: the name of the machine's loopback address, with any port."""
    assert client.get("/v1/threads", Host="localhost:1").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/threads/chat/../../../etc/passwd",
        "/assets/..%2f..%2f..%2fkeys.py",
        "/..%2f..%2fpyproject.toml",
        "/v1/threads/chat%00/turns",
        "/v1/threads/%ff",
        "/v1/threads/chat/state/..%2f..%2fx",
        "/v1//threads",
    ],
)
def test_tricks_with_paths_lead_nowhere(client: Client, path: str) -> None:
    """No path leaves the page's directory, and none is a server error."""
    reply = client.ask("GET", path)

    assert reply.status in (200, 404, 422), reply
    assert reply.status != 200 or reply.headers["content-type"].startswith(
        "text/html"
    )  # the page, at any address
    assert not any(text in reply.body for text in (b"root:", b"[project]", b"__future__"))


def test_a_start_link_leads_to_this_host_only(client: Client) -> None:
    """A path that begins with two slashes would be the address of another host."""
    reply = client.get("//evil.example/?token=the%20token%20of%20the%20start%20link")

    assert reply.headers["location"] == "/evil.example/"


def test_repeated_headers_and_large_bodies_are_refused(client: Client) -> None:
    """Two headers that a proxy and the server could read differently, and a body beyond the limit."""
    with client.connected() as connection:
        connection.putrequest("GET", "/v1/threads")
        for secret in ("the token of the start link", "other"):
            connection.putheader("Authorization", f"Bearer {secret}")
        connection.endheaders()
        repeated = connection.getresponse().status

    large = client.ask("PUT", "/v1/threads/chat/state/x.json", raw=b"1" * (8 * 1024 * 1024 + 1))

    assert (repeated, large.status) == (400, 413)


def test_artifacts_are_attachments_and_text_is_never_html(client: Client, store: Store) -> None:
    """A page in an artifact is downloaded, not shown, whatever its media type says."""
    digest = store.thread("chat").artifacts.put(b"<script>alert(1)</script>", media_type="text/html")

    reply = client.get(f"/v1/artifacts/{digest}?thread=chat")

    assert reply.body == b"<script>alert(1)</script>"
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"].startswith("attachment")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in reply.headers["content-security-policy"]


def test_each_change_is_recorded_under_the_name_of_its_credential(client: Client, store: Store) -> None:
    """Who asked for what, also if it was refused; the record is verified like the rest."""
    operator = Client(client.port, key(store, "olga", "operator"))
    viewer = Client(client.port, key(store, "vera", "viewer"))
    operator.post("/v1/threads/chat/undo", {}, Idempotency_Key="u1")
    viewer.post("/v1/threads/chat/redo")
    client.get("/v1/threads")

    expected = {
        ("olga", "/v1/threads/chat/undo", "u1", None),
        ("vera", "/v1/threads/chat/redo", None, "role_insufficient"),
    }
    entries: set[object] = set()
    for _ in range(3_000):  # a refusal is recorded after its answer
        entries = {
            (each["by"], each["path"], each["op_id"], each["refused"]) for each in Audit(store).read(10)
        }
        if expected <= entries:
            break
        sleep(0.01)
    assert expected <= entries
    assert store.verify().ok


class HeldAudit(Audit):
    """A record whose commits wait until they may be made, and fail if they are told to."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.entries_begun: SimpleQueue[int] = SimpleQueue()
        self.may_go_on = Semaphore(0)
        self.failure: Exception | None = None

    def _commit(self, entries: Sequence[AuditEntry]) -> None:
        self.entries_begun.put(len(entries))
        self.may_go_on.acquire()
        if self.failure is not None:
            raise self.failure
        super()._commit(entries)

    def wait_for(self, number: int) -> None:
        """Wait until so many entries wait for a commit that is under way."""
        while len([each for each in self._queued if each.woken is not None]) < number:
            sleep(0.001)


def entry(by: str) -> AuditEntry:
    """Return the entry of a request."""
    return AuditEntry(
        at="", by=by, roles=(), method="POST", path="/v1", query="", op_id=None, body="", client=None
    )


def test_requests_that_come_together_are_recorded_in_one_commit(store: Store) -> None:
    """Those that come while an entry is written share the next commit, and each is durable when its write returns.

    One of them has no worker yet: the others do not wait for it, and write its entry.
    """
    audit = HeldAudit(store)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(audit.write, audit.queue(entry("ann")))
        assert audit.entries_begun.get() == 1
        without_worker = audit.queue(entry("zoe"))
        others = [pool.submit(audit.write, audit.queue(entry(by))) for by in ("bob", "eve")]
        audit.wait_for(2)
        audit.may_go_on.release()
        first.result()
        together, found = audit.entries_begun.get(), [each["by"] for each in audit.read(10)]
        audit.may_go_on.release()
    audit.write(without_worker)

    assert (together, found) == (3, ["ann"])
    assert [each.result() for each in others] == [None] * 2
    assert [each["by"] for each in audit.read(10)] == ["eve", "bob", "zoe", "ann"]
    assert [each.reason for each in store.thread(SERVER).log()] == ["request", "request"]


def test_a_commit_of_the_record_that_fails_refuses_all_its_requests(store: Store) -> None:
    """Each of the requests that shared it raises, and the next one is recorded."""
    audit = HeldAudit(store)
    audit.failure = Unavailable("the disk is full; nothing was written.", code="disk_full")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(audit.write, audit.queue(entry("ann")))
        audit.entries_begun.get()
        second = pool.submit(audit.write, audit.queue(entry("bob")))
        audit.wait_for(1)
        audit.may_go_on.release(2)
    audit.failure = None
    audit.may_go_on.release()
    audit.write(audit.queue(entry("eve")))

    assert [type(each.exception()) for each in (first, second)] == [Unavailable, Unavailable]
    assert [each["by"] for each in audit.read(10)] == ["eve"]


def test_a_key_that_was_read_lately_is_known_without_a_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop finds it; after a second the keys have to be read again, so that a removed one is refused."""
    keys = Keys(store)
    secret = keys.add("ann", ["viewer"])
    before = keys.recent()
    keys.find(secret)
    after = keys.recent()
    monkeypatch.setattr("perdure.server.keys._FRESH_SECONDS", -1.0)

    assert (before, keys.recent()) == (None, None)
    assert after is not None
    assert [after[each].name for each in after] == ["ann"]
    assert secret not in after


def test_a_proxys_key_names_the_person_who_asks(client: Client, store: Store) -> None:
    """Without the header that the proxy sets, its key opens nothing."""
    proxy = Client(client.port, key(store, "sso", "viewer", person_header="X-Forwarded-Email"))

    assert proxy.get("/v1/session", X_Forwarded_Email="ann@example.org").json["name"] == "sso:ann@example.org"
    assert proxy.get("/v1/session").status == 401


def test_an_application_with_its_own_login_says_who_asks(store: Store) -> None:
    """`access` maps the headers of a request to a name and its roles."""
    known = {"ann": Access(name="ann", roles=("viewer",), owners=("ann",))}
    store.thread("hers", agent="a", owner="ann")
    store.thread("his", agent="a", owner="bob")

    with serving(store, assistant(), access=lambda headers: known.get(headers.get("x-user", ""))) as client:
        nobody = Client(client.port, None)
        threads = nobody.get("/v1/threads", X_User="ann").json["threads"]

        assert [each["id"] for each in threads] == ["hers"]
        assert nobody.get("/v1/threads", X_User="eve").status == 401


VIEWER = Access(name="ann", roles=("viewer",), owners=("team", "ann"))


@pytest.mark.parametrize("path", ["/v1/threads/team/events", "/v1/events"])
@pytest.mark.parametrize(
    ("later", "is_told"),
    [
        (VIEWER, True),
        (Access(name="ann", roles=("viewer",), owners=("ann",)), False),
        (Access(name="ann", roles=(), owners=("team", "ann")), False),
        (None, False),
    ],
    ids=["control: it has them still", "without the owner", "without the role", "signed out"],
)
def test_a_stream_ends_with_the_right_to_read_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, path: str, later: Access | None, is_told: bool
) -> None:
    """A credential that lost its role, or its limit to the thread, is told nothing that happens after that."""
    monkeypatch.setitem(EventStream.__init__.__kwdefaults__ or {}, "check_seconds", 0)
    thread = store.thread("team", agent="a", owner="team")
    granted: list[Access | None] = [VIEWER]
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            thread.put("/secret.json", "words")

    writer = threading.Thread(target=write)
    with serving(store, access=lambda headers: granted[-1]) as client, client.connected() as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        hello = response.readline() + response.readline() if path == "/v1/events" else b""
        granted.append(later)
        writer.start()
        told = b""
        while b"team" not in told and b"committed" not in told and (line := response.readline()):
            told += line
        stop.set()
        writer.join()

    assert b"team" not in hello
    assert (b"event: " in told) is is_told
