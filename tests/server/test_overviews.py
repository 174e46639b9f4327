"""What overviews show: the rows of the list of threads, the pages of a search, and the turns of a graph."""

from __future__ import annotations

import pytest

from perdure.server.routes import store as store_routes
from perdure.shapes.conversation import GraphPage, TurnPage
from perdure.store.store import Store
from perdure.testing import say
from tests.server.client import Client, assistant, serving


def test_a_row_has_the_state_of_the_newest_run_and_what_was_said_last(client: Client, store: Store) -> None:
    """The state is that of the run, the words those of the newest message that has any."""
    store.thread("empty", agent="writer")

    chat, empty = client.get("/v1/threads").json["threads"]

    assert (chat["id"], chat["state"], chat["last"]) == ("chat", "succeeded", "Answer 0.")
    assert (empty["id"], empty["state"], empty["last"]) == ("empty", None, "")


def test_a_row_has_the_cost_only_if_it_is_asked_for(client: Client, store: Store) -> None:
    """It is what the runs of the thread cost; without the question no history is read for it."""
    without = client.get("/v1/threads").json["threads"][0]
    asked = client.get("/v1/threads?cost=true").json["threads"][0]

    cost = store.thread("chat").cost()
    assert without["cost"] is None
    assert asked["cost"] == {"usd": cost.usd, "steps": cost.steps, "unpriced": cost.unpriced}
    assert cost.steps == 1


def test_a_search_that_takes_long_goes_on_after_a_cursor(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no time left each page reads one thread; all pages together find what one page with enough time finds."""
    agent = assistant(*[say("A tile.")] * 3)
    for name in ("one", "three", "two"):
        store.thread(name, agent=agent).run("Show me a tile")
    with serving(store, agent) as client:
        whole = client.get("/v1/search?q=tile").json

        monkeypatch.setattr(store_routes, "_SEARCH_SECONDS", -1.0)
        pages = [client.get("/v1/search?q=tile").json]
        while "next" in pages[-1]:
            pages.append(client.get(f"/v1/search?q=tile&after={pages[-1]['next']}").json)

    assert (whole["more"], len(whole["found"])) == (False, 6)
    assert [len(page["found"]) for page in pages] == [2, 2, 2]
    assert [hit for page in pages for hit in page["found"]] == whole["found"]


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 100])
def test_the_turns_of_a_graph_are_those_of_its_commits_one_by_one(store: Store, limit: int) -> None:
    """Turns are read together line by line; each is what its commit alone has, also where a fork parts inside a run."""
    thread = store.thread("chat", agent=assistant(), owner="ann")
    for number in range(4):
        thread.run(f"Turn {number}")
    thread.put("/x.json", 1)
    inside = thread.log(limit=4)[-1].digest
    thread.fork("inside", at=inside).put("/y.json", 2)
    thread.fork("other", at="turn:2").run("Elsewhere")

    page = GraphPage.of(thread, limit=limit)
    brief = GraphPage.of(thread, limit=limit, brief=True)

    assert len(page.nodes) == (min(limit, 8) if limit else 8)
    for node, short in zip(page.nodes, brief.nodes, strict=True):
        seen = thread.at(node.commit)
        assert node.turn == TurnPage.of(thread, seen, limit=1).turns[0]
        assert (short.commit, short.parents, short.turn.input) == (node.commit, node.parents, node.turn.input)
        assert (short.turn.messages, short.turn.changed) == ([], [])
