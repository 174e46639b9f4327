"""The history of a path over HTTP: every change, newest first, with what the path held then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

import perdure
from perdure import Agent, Call
from perdure.runtime.tools.call import Outcome
from perdure.server.routes import threads
from perdure.store.store import Store
from perdure.testing.script import Script, say, use
from tests.server.client import Client, serving


def pages(client: Client, **query: Any) -> Iterator[dict[str, Any]]:
    """Yield the pages of the history of a path of `chat`."""
    while True:
        page = client.get("/v1/threads/chat/state-log?" + urlencode(query)).json
        yield page
        if "next" not in page:
            return
        query["after"] = page["next"]


def values(client: Client, **query: Any) -> list[Any]:
    """Return what the path held after each change; "gone": nothing."""
    return [
        each.get("value", "gone")
        for page in pages(client, path="/d.json", **query)
        for each in page["versions"]
    ]


def test_every_change_of_a_path_is_listed(client: Client, store: Store) -> None:
    """Newest first, a removal too; a commit that wrote the same value, or another path, is none."""
    thread = store.thread("chat")
    first = thread.put("/d.json", 1)
    thread.put("/other.json", 5)
    thread.put("/d.json", 1)
    thread.delete("/d.json")
    thread.put("/d.json", 2)

    found = list(pages(client, path="/d.json"))

    assert values(client) == [2, "gone", 1]
    assert found[0]["versions"][-1]["commit"] == first.commit
    assert {each["turn"] for each in found[0]["versions"]} == {1}
    assert all(each["apart"] for each in found[0]["versions"])


def test_the_history_of_a_place_has_only_its_own_changes(client: Client, store: Store) -> None:
    """A document that every turn rewrites is traced by the place that went wrong."""
    for total, items in ((3, 1), (3, 2), (-97, 3), (-97, 4)):
        store.thread("chat").put("/d.json", {"total": total, "items": items})

    assert values(client, place="total") == [-97, 3]
    assert len(values(client)) == 4


def test_a_long_history_is_read_in_pages(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number, and by time: a page that takes long has fewer, and `next` leads on."""
    for number in range(5):
        store.thread("chat").put("/d.json", number)

    assert values(client, limit=2) == values(client) == [4, 3, 2, 1, 0]
    monkeypatch.setattr(threads, "_LIST_SECONDS", -1.0)
    late = list(pages(client, path="/d.json"))

    assert [len(page["versions"]) for page in late][:5] == [1, 1, 1, 1, 1]
    assert [each["value"] for page in late for each in page["versions"]] == [4, 3, 2, 1, 0]


def test_a_large_value_is_described(client: Client, store: Store) -> None:
    """The answer has no value of it, but what is at a place inside is there."""
    store.thread("chat").put("/d.json", {"text": "x" * 5_000, "n": 7})

    version = next(pages(client, path="/d.json"))["versions"][0]

    assert "value" not in version
    assert version["preview"] == "JSON, 5.0 KB"
    assert values(client, place="n") == [7]


@pytest.mark.parametrize("has_hook", [True, False])
def test_a_call_says_whether_its_tool_can_be_asked(store: Store, has_hook: bool) -> None:
    """A tool with a hook, which this server has; a server without the tool cannot ask it either."""

    @perdure.tool(effect="external_write")
    def send() -> str:
        raise TimeoutError

    if has_hook:

        @send.reconcile
        def look(call: Call) -> Outcome:
            return call.dont_know()

    agent = Agent("sender", backend=Script(use("send"), say("no answer")), tools=[send])
    thread = store.thread("post", agent=agent)
    thread.run("send it", id="m1")
    address = f"/v1/threads/post/calls/{next(iter(thread.calls())).id}"

    with serving(store, agent) as client, serving(store) as other:
        found = [each.get(address).json["reconcilable"] for each in (client, other)]

    assert found == [has_hook, False]
