"""A campaign of tries to get more than is allowed: roles, guessed ids, other sites, rebinding, headers and paths."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from perdure.server.access import Access, Permission
from perdure.server.keys import SERVER, Keys
from perdure.server.routing import HttpRoute
from perdure.store.store import Store
from tests.crash.campaign import SEED, sized
from tests.server.client import Client, key
from tests.server.test_access import ALLOWED, ROUTES, address, body

TRIES = sized(300, 10_000)
SECRET = "kingfisher"  # what only those may see whose credential reaches the thread of another owner
LIMITS: tuple[dict[str, list[str]], ...] = (
    {},
    {"owners": ["ann"]},
    {"agents": ["assistant"]},
    {"threads": ["chat"]},
)
GUARDED = [route for route in ROUTES if route.permission is not None]
STREAMS = "text/event-stream"
TOOLS: dict[str, tuple[Permission, dict[str, str]]] = {
    "threads": ("read", {}),
    "search": ("read", {"q": "secret word"}),
    "state": ("read", {"thread": "T", "path": "/x.json"}),
    "transcript": ("read", {"thread": "T"}),
    "log": ("read", {"thread": "T"}),
    "diff": ("read", {"thread": "T", "a": "HEAD~1"}),
    "fork": ("operate", {"thread": "T", "name": "taken-over"}),
    "decide": ("decide", {"thread": "T", "ticket": "c", "verdict": "approve"}),
}


class Credential(NamedTuple):
    """A secret, what it allows, and whether it reaches the thread of another owner."""

    secret: str | None
    permissions: frozenset[str]
    is_limited: bool
    is_known: bool


class Trick(NamedTuple):
    """Headers that should get no more than the request without them, and the status that they must have; None: its own."""

    headers: dict[str, str]
    status: int | None
    only_changes: bool = False


TRICKS = (
    Trick({}, None),
    Trick({"Host": "evil.example"}, 421),
    Trick({"Host": "127.0.0.1.evil.example"}, 421),
    Trick({"Host": "localhost@evil.example"}, 421),
    Trick({"Origin": "https://evil.example"}, 403, only_changes=True),
    Trick({"Origin": "null"}, 403, only_changes=True),
    Trick(
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-For": "127.0.0.1", "Forwarded": "host=localhost"},
        None,
    ),
    Trick({"X-HTTP-Method-Override": "GET", "X-Method-Override": "GET"}, None),
    Trick({"X-Original-URL": "/healthz", "X-Rewrite-URL": "/healthz"}, None),
    Trick({"X-User": "admin", "X-Forwarded-User": "admin", "Remote-User": "admin"}, None),
    Trick({"Cookie": "perdure=guessed; perdure_7333=guessed"}, None),
)


def spellings(id: str) -> tuple[str, ...]:
    """The id of a thread as a path may spell it: as it is, encoded, and in ways that another program could read alike."""
    every = "".join(f"%{byte:02x}" for byte in id.encode())
    return (
        quote(id, safe=""),
        every,
        id.upper(),
        f"chat/../{id}",
        f"chat%2f..%2f{id}",
        f"./{id}",
        f"{id}%00",
        f"{id};a=b",
        f"{id}%20",
        f"/{id}",
        quote(every, safe=""),
    )


def test_no_try_gets_more_than_is_allowed(client: Client, store: Store) -> None:
    """Each credential has what its role and its limits say, however the request is spelled; no try is a server error."""
    theirs = prepared(store)
    credentials = every_credential(store)
    before = theirs.head, theirs.transcript()
    generator = random.Random(SEED)
    seen: Counter[str] = Counter()

    for number in range(TRIES):
        seen[tried(client, generator, credentials, f"seed {SEED}, try {number}")] += 1

    assert (theirs.head, theirs.transcript()) == before
    assert [hold.head.timeline for hold in theirs.timelines()] == ["main"]
    assert set(seen) == {"refused", "shown", "empty"}, seen
    print(dict(seen))


@pytest.mark.parametrize("hole", ["sees", "may"])
def test_a_hole_would_be_found(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, hole: str
) -> None:
    """Control: without limits, or without roles, a try gets more."""
    prepared(store)
    credentials = every_credential(store)
    generator = random.Random(SEED)
    monkeypatch.setattr(Access, hole, lambda *_: True)

    with pytest.raises(AssertionError, match="seed"):
        for number in range(2_000):
            tried(client, generator, credentials, f"seed {SEED}, try {number}")


def prepared(store: Store) -> Any:
    """A thread of another owner and another agent, with words that must not be seen."""
    theirs = store.thread("theirs", agent="other", owner="bob")
    theirs.put("/x.json", SECRET)
    with theirs.change("say") as change:
        change.say("user", f"The secret word is {SECRET}.")
    store.memory("bob").add(f"Bob's word is {SECRET}.")
    return theirs


def every_credential(store: Store) -> list[Credential]:
    """Every role with every limit, no credential, and two that are not known."""
    found = [Credential(None, frozenset(), True, False), Credential("pk_guessed", frozenset(), True, False)]
    for role, permissions in ALLOWED.items():
        for at, limit in enumerate(LIMITS):
            secret = key(store, f"{role}-{at}", role, **limit)
            found.append(Credential(secret, frozenset(permissions), bool(limit), True))
    removed = key(store, "removed", "admin")
    Keys(store).rm("removed")
    return [*found, Credential(removed, frozenset(), True, False)]


def tried(client: Client, generator: random.Random, credentials: list[Credential], told: str) -> str:
    """Make one try, and check its answer; returns what came of it."""
    credential, trick = generator.choice(credentials), generator.choice(TRICKS)
    sender = Client(client.port, credential.secret)
    if generator.random() < 0.2:
        return called(sender, generator, credential, trick, told)
    route = generator.choice(GUARDED)
    changes = route.method != "GET"
    may_change = changes and not credential.is_limited and route.permission in credential.permissions
    id = "nothing" if may_change else generator.choice(("theirs", SERVER, "nothing"))
    path = spelled(route, id, generator)
    status, content = sent(sender, route, path, trick.headers)
    told = f"{told}: {route.method} {path} {trick.headers} by {credential}: {status} {content[:200]!r}"
    check(route.permission, credential, trick, status, content, told, changes=changes)
    if route.is_whole_store and credential.is_limited:
        assert status >= 400, told
    return "refused" if status >= 400 else "shown" if SECRET in content else "empty"


def check(
    permission: Permission | None,
    credential: Credential,
    trick: Trick,
    status: int,
    content: str,
    told: str,
    *,
    changes: bool,
) -> None:
    """Compare an answer with what the credential may have."""
    assert status < 500, told
    if trick.status is not None and (changes or not trick.only_changes):
        assert status in (trick.status, 404), (
            told
        )  # a path that no route has is not found before its headers count
        assert SECRET not in content, told
    if not credential.is_known or permission not in credential.permissions:
        assert status >= 400 or content.startswith("<!doctype html>"), told  # the page itself holds nothing
    if credential.is_limited or not credential.is_known:
        assert SECRET not in content, told


def spelled(route: HttpRoute, id: str, generator: random.Random) -> str:
    """An address of the route with one of the spellings of the id."""
    if "{thread}" not in route.path:
        return address(route, id)
    marked = address(route, "THREAD")
    return marked.replace("THREAD", generator.choice(spellings(id)), 1).replace("THREAD", quote(id, safe=""))


def sent(sender: Client, route: HttpRoute, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """The status and the body of one request; of a stream only the status, since it does not end."""
    with sender.connected() as connection:
        content = None if route.method == "GET" else body(route)
        reply = sender._sent(connection, route.method, path, content, headers, None)
        if (reply.getheader("content-type") or "").startswith(STREAMS):
            return reply.status, ""
        return reply.status, reply.read().decode("utf-8", "replace")


def called(sender: Client, generator: random.Random, credential: Credential, trick: Trick, told: str) -> str:
    """Try a tool of the MCP server; an answer with `isError` is a refusal."""
    tool, (permission, arguments) = generator.choice(list(TOOLS.items()))
    may_change = permission != "read" and not credential.is_limited and permission in credential.permissions
    id = "nothing" if may_change else generator.choice(("theirs", SERVER, "THEIRS", "./theirs", "theirs\0"))
    given = {name: id if value == "T" else value for name, value in arguments.items()}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": given}}
    headers = {"Accept": "application/json", **trick.headers}
    reply = sender.ask("POST", "/mcp", asked, headers)
    content = reply.body.decode()
    told = f"{told}: {asked} {headers} by {credential}: {reply.status} {content[:300]}"
    is_refused = reply.status >= 400 or json.loads(content)["result"]["isError"]
    check(
        permission,
        credential,
        trick,
        400 if is_refused and reply.status == 200 else reply.status,
        content,
        told,
        changes=False,
    )
    return "refused" if is_refused else "shown" if f"is {SECRET}" in content else "empty"
