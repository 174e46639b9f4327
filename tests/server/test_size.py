"""Large threads and large stores: an answer costs what it gives."""

from __future__ import annotations

from perdure.store.store import Store
from tests.crash.campaign import sized
from tests.server.client import Client, Reply, serving

WINDOW_BYTES_MAX = 300_000
TURNS = sized(300, 10_000)
THREADS = sized(1_200, 5_000)


def test_a_window_of_a_long_thread_has_the_size_of_the_window(store: Store) -> None:
    """The end, the middle and the beginning of a long thread are read without reading what lies between."""
    thread = store.thread("long", agent="assistant")
    for number in range(TURNS):
        with thread.change("say") as change:
            change.say("user", f"message {number} " + "x" * 200)
    with serving(store) as client:
        windows = {
            at: client.get(f"/v1/threads/long/turns?limit=50{f'&at=turn:{at}' if at else ''}")
            for at in (None, TURNS // 2, 10)
        }
        page = windows[None].json
        earlier = client.get(f"/v1/threads/long/turns?limit=50&after={page['next']}").json
        history = pages(client, "/v1/threads/long/turns?limit=50")

    assert [is_window(reply) for reply in windows.values()] == [True, True, True]
    assert not is_window(*history), (
        "control: a client that reads the whole history is found by the same measure"
    )
    assert [reply.json["turns"][-1]["number"] for reply in windows.values()] == [TURNS, TURNS // 2, 10]
    assert earlier["turns"][-1]["number"] == page["turns"][0]["number"] - 1
    assert len(windows[10].json["turns"]) == 10


def test_the_pages_of_a_large_store_have_every_thread_once(store: Store) -> None:
    """A list goes on by its cursor; no page is larger than was asked for."""
    for number in range(THREADS):
        store.thread(f"t{number:05}", agent="assistant", owner=f"owner-{number % 3}")
    with serving(store) as client:
        own = pages(client, "/v1/threads?limit=100&owner=owner-1")
        every = pages(client, "/v1/threads?limit=100")
        found = client.get("/v1/threads?q=t00042").json["threads"]

    seen = [each["id"] for reply in own for each in reply.json["threads"]]
    assert seen == [f"t{number:05}" for number in range(THREADS) if number % 3 == 1]
    assert [each["id"] for each in found] == ["t00042"]
    assert all(is_window(reply) for reply in every)
    assert not is_window(*every), "control: a client that reads the whole list is found by the same measure"


def is_window(*replies: Reply) -> bool:
    """True if replies have together no more bytes than a view of the page may fetch."""
    return sum(len(reply.body) for reply in replies) <= WINDOW_BYTES_MAX


def pages(client: Client, path: str) -> list[Reply]:
    """Read a list from its beginning to its end."""
    found = [client.get(path)]
    while "next" in found[-1].json:
        found.append(client.get(f"{path}&after={found[-1].json['next']}"))
    return found
