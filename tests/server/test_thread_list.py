"""Lists over threads for a key that may see few of them: what one request looks at, and what its cursor tells."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.engines.contract import Engine
from perdure.server import thread_list
from perdure.server.access import Access
from perdure.server.keys import SERVER
from perdure.server.thread_list import seal_cursor, unseal_cursor
from perdure.shapes.store import AgentPage
from perdure.store.store import Store
from perdure.testing import Script, say
from tests.server.client import Client, key, serving

FOREIGN = 600
LIMIT = 100
PATHS = ["/v1/threads?limit=5", "/v1/search?q=secret&limit=5"]


class CountedReads:
    """How many cells were read, and by how many calls of the engine."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count what `cells` returns."""
        self.cells = self.calls = 0
        read = engine.cells

        def counted(*args: Any, **options: Any) -> Any:
            found = read(*args, **options)
            self.cells += len(found)
            self.calls += 1
            return found

        monkeypatch.setattr(engine, "cells", counted)


@pytest.fixture(scope="module")
def store() -> Generator[Store]:
    """A store with many threads of Ann, and two of Bob behind them."""
    with perdure.open("memory:") as opened:
        for number in range(FOREIGN):
            opened.thread(f"ann-{number:04}", agent="assistant", owner="ann")
        for number in range(2):
            with opened.thread(f"bob-{number}", agent="assistant", owner="bob").change("say") as change:
                change.say("user", "a secret")
        yield opened


@pytest.fixture
def client(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a server for this store, whose requests look at few threads."""
    monkeypatch.setattr(thread_list, "LOOKED_AT_MAX", LIMIT)
    with serving(store) as found:
        yield found


def pages(client: Client, path: str) -> list[Any]:
    """Read all pages of a list."""
    found = [client.get(path).json]
    while "next" in found[-1]:
        found.append(client.get(f"{path}&after={found[-1]['next']}").json)
    return found


def listed(page: Any) -> set[str]:
    """The threads of a page."""
    return {each.get("thread") or each["id"] for each in page.get("threads", page.get("found"))}


@pytest.mark.parametrize("path", PATHS)
def test_a_request_looks_at_a_bounded_number_of_threads(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Bob's threads are found after several pages, none of which reads the whole directory."""
    bob = Client(client.port, key(store, f"bob-{len(path)}", "viewer", owners=["bob"]))
    bob.get(path)  # makes the secret of cursors
    reads = CountedReads(store._resources.engine, monkeypatch)
    each: list[int] = []
    found = [bob.get(path).json]
    while "next" in found[-1]:
        before = reads.cells
        found.append(bob.get(f"{path}&after={found[-1]['next']}").json)
        each.append(reads.cells - before)

    assert set().union(*map(listed, found)) == {"bob-0", "bob-1"}
    assert len(found) > FOREIGN // LIMIT
    assert max(each) < 4 * LIMIT  # the last page of the directory is read whole; the keys are cells, too


@pytest.mark.parametrize("path", PATHS)
def test_a_larger_bound_reads_more(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Control: without the bound one request reads the whole directory."""
    monkeypatch.setattr(thread_list, "LOOKED_AT_MAX", 10 * FOREIGN)
    bob = Client(client.port, key(store, f"bob-free-{len(path)}", "viewer", owners=["bob"]))
    reads = CountedReads(store._resources.engine, monkeypatch)

    page = bob.get(path).json

    assert ("next" in page, listed(page)) == (False, {"bob-0", "bob-1"})
    assert reads.cells > FOREIGN


@pytest.mark.parametrize("path", PATHS)
def test_a_cursor_tells_nothing_and_is_good_for_its_own_key_alone(
    client: Client, store: Store, path: str
) -> None:
    """It is sealed, as long as any other, and refused from another key, in another form and if it is changed."""
    bob = Client(client.port, key(store, f"bob-own-{len(path)}", "viewer", owners=["bob"]))
    eve = Client(client.port, key(store, f"eve-{len(path)}", "viewer", owners=["eve"]))
    cursor = bob.get(path).json["next"]
    changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")

    refused = [
        reader.get(f"{path}&after={after}")
        for reader, after in [
            (eve, cursor),
            (bob, "ann-0100"),
            (bob, changed),
            (bob, cursor[:-4]),
            (bob, "%C3%A9"),
        ]
    ]

    assert "ann" not in cursor
    assert [(each.status, each.json["code"]) for each in refused] == [(422, "cursor_invalid")] * 5
    assert bob.get(f"{path}&after={cursor}").status == 200


def test_a_key_without_limits_chooses_where_a_list_begins(client: Client) -> None:
    """Control: what it may see it may also be told, so its cursors are ids."""
    page = client.get("/v1/threads?limit=5&after=ann-0100").json

    assert (page["threads"][0]["id"], page["next"]) == ("ann-0101", "ann-0105")


def test_a_key_for_named_threads_looks_at_those_alone(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is not read."""
    mine = Client(client.port, key(store, "named", "viewer", threads=["bob-1", "ann-0500"]))
    mine.get("/v1/threads")
    reads = CountedReads(store._resources.engine, monkeypatch)

    page = mine.get("/v1/threads").json

    assert ([each["id"] for each in page["threads"]], "next" in page) == (["ann-0500", "bob-1"], False)
    assert reads.cells < LIMIT


def test_another_server_of_the_store_takes_the_cursor(client: Client, store: Store) -> None:
    """The secret is in the store, in the server's own thread."""
    secret = key(store, "bob-twice", "viewer", owners=["bob"])
    cursor = Client(client.port, secret).get(PATHS[0]).json["next"]
    with serving(store) as other:
        page = Client(other.port, secret).get(f"{PATHS[0]}&after={cursor}")

    assert page.status == 200


def test_sealed_cursors_have_one_length_and_differ_for_each_credential() -> None:
    """The id, its length and the credential that it was sealed for cannot be read from a cursor."""
    bob, eve = (Access(name=name, roles=("viewer",), owners=(name,)) for name in ("bob", "eve"))
    wider = Access(name="bob", roles=("viewer",), owners=("bob", "ann"))
    secret = b"s" * 32
    found = [seal_cursor(secret, access, id) for access in (bob, eve, wider) for id in ("a", "é" * 100)]

    assert len({len(each) for each in found}) == 1
    assert len(set(found)) == len(found)
    assert unseal_cursor(secret, bob, found[1]) == "é" * 100
    respelled = found[1][:-1] + chr(ord(found[1][-1]) + 1)  # the same bytes in other words
    for other, cursor in ((eve, found[1]), (wider, found[1]), (bob, respelled)):
        with pytest.raises(perdure.errors.Invalid) as refused:
            unseal_cursor(secret, other, cursor)
        assert refused.value.code == "cursor_invalid"


def test_an_agent_outside_the_limits_is_refused_before_anything_is_read(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its definitions nor the directory; control: a key for it lists its threads."""
    mine, other = (
        Client(client.port, key(store, f"of-{agent}", "viewer", agents=[agent]))
        for agent in ("assistant", "other")
    )
    other.get("/v1/agents/assistant")
    reads = CountedReads(store._resources.engine, monkeypatch)
    refused = other.get("/v1/agents/assistant")
    read_for_a_refusal = reads.cells

    assert (refused.status, refused.json["code"]) == (404, "agent_not_found")
    assert read_for_a_refusal < 20  # keys, if they are read again
    assert len(mine.get("/v1/agents/assistant").json["threads"]) == 50


OVERVIEWS = {"/v1/agents?limit=5": 12, "/v1/agents/assistant?limit=5": 60, "/v1/costs?limit=5": 70}


@pytest.mark.parametrize("path", OVERVIEWS)
def test_an_overview_reads_what_it_returns(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Agents, the threads of one and costs are read page by page, whatever the store has beside."""
    client.get(path)
    reads = CountedReads(store._resources.engine, monkeypatch)

    reply = client.get(path)

    assert reply.status == 200
    assert reads.calls + reads.cells < OVERVIEWS[path], (reads.calls, reads.cells)


@pytest.mark.parametrize("path", list(OVERVIEWS)[1:])
def test_an_overview_of_everything_is_found_by_the_same_count(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Control: all pages together read the whole directory; each thread is on one of them."""
    reads = CountedReads(store._resources.engine, monkeypatch)

    found = pages(client, path.replace("limit=5", "limit=500"))

    assert reads.calls + reads.cells > FOREIGN
    if "agents" in path:
        names = [name for page in found for name in page["threads"]]
        assert names == [each.id for each in store.threads(agent="assistant")]


def test_a_list_of_agents_that_counts_threads_is_found_by_the_same_count(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the command line has one user, and its list says how many threads each agent has."""
    reads = CountedReads(store._resources.engine, monkeypatch)

    AgentPage.of(store)

    assert reads.calls + reads.cells > FOREIGN


@pytest.mark.parametrize("limit", [1, 2, 500])
@pytest.mark.parametrize("agents", [None, ["a", "b", "nowhere", "ab"]])
def test_the_pages_of_agents_have_each_once(limit: int, agents: list[str] | None) -> None:
    """A name that begins with another is another agent; the server's own is none; a key sees those of its limits."""
    with perdure.open("memory:") as opened, serving(opened) as own:
        for name in ("b", "a", "abc", "ab"):
            opened.thread(f"t-{name}", agent=name)
        own.post("/v1/threads/t-a/fork", {"name": "other"})  # is recorded in the server's own thread
        reader = own if agents is None else Client(own.port, key(opened, "some", "viewer", agents=agents))

        found = pages(reader, f"/v1/agents?limit={limit}")
        shown = [reader.get(f"/v1/agents/{name}").status for name in ("a", "abc", "nowhere", SERVER)]

    assert [each["name"] for page in found for each in page["agents"]] == (
        ["a", "ab", "abc", "b"] if agents is None else ["a", "ab", "b"]
    )
    assert shown == [200, 200 if agents is None else 404, 404, 404]


@pytest.mark.parametrize("by", ["thread", "owner", "agent"])
def test_the_pages_of_costs_add_up_to_all(by: str) -> None:
    """Each thread is counted on one page; a page has the sum of its own threads."""
    with perdure.open("memory:") as opened:
        for number in range(5):
            agent = Agent(f"agent-{number % 2}", backend=Script(say("Hello.")))
            opened.thread(f"t{number}", agent=agent, owner=f"owner-{number % 3}").run("Hi")
        expected = {of: cost.steps for of, cost in opened.costs(by).items()}  # pyright: ignore[reportArgumentType]
        with serving(opened) as own:
            found = pages(own, f"/v1/costs?by={by}&limit=2")
            of_one = own.get(f"/v1/costs?by={by}&thread=t3").json

    rows = [row for page in found for row in page["costs"]]
    assert len(found) > 2
    assert {of: sum(row["cost"]["steps"] for row in rows if row["of"] == of) for of in expected} == expected
    assert [page["total"]["cost"]["steps"] for page in found] == [2, 2, 1]
    assert (len(of_one["costs"]), of_one["total"]["cost"]["steps"]) == (1, 1)
