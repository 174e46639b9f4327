"""Large threads, large stores and many readers: an answer costs what it gives."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.store.store import Store
from perdure.testing import Script, say
from tests.crash.campaign import sized
from tests.server.client import Client, serving

WINDOW_BYTES_MAX = 300_000
TURNS = sized(300, 10_000)
THREADS = sized(300, 5_000)
FOLLOWERS = sized(40, 500)
LIVE = sized(4, 50)
WAIT_SECONDS = 120.0


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

    assert all(len(reply.body) <= WINDOW_BYTES_MAX for reply in windows.values())
    assert [reply.json["turns"][-1]["number"] for reply in windows.values()] == [TURNS, TURNS // 2, 10]
    assert earlier["turns"][-1]["number"] == page["turns"][0]["number"] - 1
    assert len(windows[10].json["turns"]) == 10


def test_the_pages_of_a_large_store_have_every_thread_once(store: Store) -> None:
    """A list goes on by its cursor; no page is larger than was asked for."""
    for number in range(THREADS):
        store.thread(f"t{number:05}", agent="assistant", owner=f"owner-{number % 3}")
    seen, after = list[str](), ""
    with serving(store) as client:
        while True:
            reply = client.get(f"/v1/threads?limit=100&owner=owner-1{after}")
            assert len(reply.body) <= WINDOW_BYTES_MAX
            seen += [each["id"] for each in reply.json["threads"]]
            if "next" not in reply.json:
                break
            after = f"&after={reply.json['next']}"
        found = client.get("/v1/threads?q=t00042").json["threads"]

    assert seen == [f"t{number:05}" for number in range(THREADS) if number % 3 == 1]
    assert [each["id"] for each in found] == ["t00042"]


def test_idle_followers_and_live_streams_do_not_disturb_each_other(store: Store) -> None:
    """Many idle streams stay open while runs are streamed to their clients: every stream gets all of its words."""
    agent = Agent("assistant", backend=Script(*[say("one two three four five")] * (LIVE + 1), pieces=5))
    for number in range(LIVE):
        store.thread(f"live-{number}", agent=agent)
    store.thread("idle", agent=agent)
    with serving(store, agent) as client:
        idle = [client.events("/v1/threads/idle/events") for _ in range(FOLLOWERS)]
        readers = [threading.Thread(target=lambda each=each: opened.append(next(each))) for each in idle]
        opened: list[object] = []
        for reader in readers:
            reader.start()
        texts: list[str] = []
        live = [threading.Thread(target=streamed, args=(client, number, texts)) for number in range(LIVE)]
        for each in live:
            each.start()
        for each in live:
            each.join(WAIT_SECONDS)
        client.post("/v1/threads/idle/run", {"text": "Wake up"})
        for reader in readers:
            reader.join(WAIT_SECONDS)
        metrics = client.get("/metrics").body.decode()

    assert texts == ["one two three four five"] * LIVE
    assert len(opened) == FOLLOWERS
    assert 'status="5' not in metrics


def streamed(client: Client, number: int, texts: list[str]) -> None:
    """Run an agent and read the words as they come."""
    events = client.events(f"/v1/threads/live-{number}/run", method="POST", body={"text": "Count"})
    texts.append("".join(event.data["text"] for event in events if event.type == "text.delta"))


@pytest.mark.skipif(
    LIVE < 50, reason="a figure of delay means something only on a machine that does nothing else"
)
def test_the_server_adds_little_delay_to_a_word(tmp_path: Path) -> None:
    """Median delay of a delta over HTTP, over that of a reader in the same process, in milliseconds."""
    from perdure.runtime.session.broadcast import Feed

    told: dict[str, float] = {}
    tell = Feed.tell

    def noting(feed: Feed, item: object) -> None:
        told[getattr(item, "text", "")] = time.perf_counter()
        tell(feed, item)  # pyright: ignore[reportArgumentType]

    words = " ".join(f"word{number}" for number in range(200))
    agent = Agent("assistant", backend=Script(say(words), pieces=200))
    Feed.tell = noting  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with perdure.open(tmp_path / "store.db") as store, serving(store, agent) as client:
            store.thread("chat", agent=agent)
            delays = [
                time.perf_counter() - told[event.data["text"]]
                for event in client.events("/v1/threads/chat/run", method="POST", body={"text": "Speak"})
                if event.type == "text.delta"
            ]
    finally:
        Feed.tell = tell

    assert statistics.median(delays) <= 0.020
