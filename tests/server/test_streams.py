"""Streams that were cut go on where they were: each durable event once, in order, and all of the text."""

from __future__ import annotations

import signal
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.history.verify.report import Progress, VerifyReport
from perdure.server import streams
from perdure.shapes.text import now, stamp
from perdure.store.store import Store
from perdure.testing import say
from tests.forked import PIPE, ForkedProcess, commands
from tests.server.client import Client, Event, assistant, serving

WAIT_SECONDS = 60.0
EVENTS = "/v1/threads/chat/events"

RUNNER = """
    import sys, time
    import perdure
    from perdure import Agent
    from perdure.runtime.session.broadcast import Feed
    from perdure.testing import Script, say

    tell = Feed.tell

    def slowly(feed, item):
        time.sleep(0.03)
        tell(feed, item)

    Feed.tell = slowly
    words = " ".join(f"word{number}" for number in range(60))
    agent = Agent("assistant", backend=Script(say(words), pieces=60))
    with perdure.open(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        store.thread("chat", agent=agent).run("Speak", id="long")
"""


def durable(events: list[Event]) -> list[str]:
    """The ids of the durable events."""
    return [event.id for event in events if event.id is not None]


def whole(store: Store) -> list[str]:
    """The ids of all durable events of the thread, as an in-process reader gets them."""
    thread = store.thread("chat")
    first = thread.log()[-1].digest
    return [event.cursor for event in thread.follow(after=f"0.0.{first}")]  # pyright: ignore[reportReturnType]


def test_a_stream_that_is_cut_at_every_event_boundary_misses_and_doubles_nothing(
    client: Client, store: Store
) -> None:
    """A client that leaves after each single event and comes back has the same events as one that stayed."""
    client.post("/v1/threads/chat/run", {"text": "Again"})
    expected = whole(store)
    last, seen = f"0.0.{store.thread('chat').log()[-1].digest}", list[str]()

    while len(seen) < len(expected):
        last = next(iter(durable([next(client.events(EVENTS, last=last))])))
        seen.append(last)

    assert seen == expected


def test_a_stream_without_a_cursor_would_miss_events(client: Client, store: Store) -> None:
    """Control: a client that forgets its place gets nothing of what has passed."""
    events = list(client.events(f"{EVENTS}?wait=false"))

    assert durable(events) == []
    assert whole(store) != []


def test_a_client_goes_on_from_what_it_read_and_hears_of_the_undo_since(client: Client, store: Store) -> None:
    """The cursor is in the answer that was read; the id of the move leads on, and so does the commit of the answer."""
    read = client.get("/v1/threads/chat/transcript").json
    client.post("/v1/threads/chat/undo", {"turns": 1})
    head = store.thread("chat").head

    (moved,) = client.events(f"{EVENTS}?wait=false&after={read['cursor']}")

    assert (moved.type, moved.data["commit"]) == ("head.moved", head.commit)
    assert moved.data["event"] == {"type": "head.moved", "act": "undo", "version": head.version}
    assert list(client.events(f"{EVENTS}?wait=false", last=moved.id)) == []
    assert [each.id for each in client.events(f"{EVENTS}?wait=false&after={read['commit']}")] == [moved.id]
    assert (
        list(client.events(f"{EVENTS}?wait=false")) == []
    )  # the control: without a cursor it begins too late


def test_a_client_that_joins_in_the_middle_gets_the_text_so_far_and_then_deltas(store: Store) -> None:
    """Two readers of one message, of which the second comes late, have the same text."""
    held, go_on = threading.Event(), threading.Event()
    agent = assistant(say("one two three four"), pieces=4)

    with pausing(held, go_on), serving(store, agent) as client:
        thread = store.thread("chat", agent=agent, owner="ann")
        run = threading.Thread(target=lambda: thread.run("Count"))  # on a loop of its own, which may wait
        run.start()
        assert held.wait(WAIT_SECONDS)
        reader = client.events(EVENTS)
        first = next(event for event in reader if event.type == "text.so_far")
        go_on.set()
        text = first.data["text"]
        for event in reader:
            if event.type == "message.appended":
                break
            text += event.data["text"] if event.type == "text.delta" else ""
        run.join()

    assert first.data["text"]
    assert text == "one two three four"


def test_leaving_the_stream_of_a_run_does_not_stop_it(client: Client, store: Store) -> None:
    """The client reads one event of its own run and hangs up."""
    before = len(store.thread("chat").runs())

    next(client.events("/v1/threads/chat/run", method="POST", body={"text": "Go on"}))

    until(lambda: [run.state for run in store.thread("chat").runs()] == ["succeeded"] * (before + 1))


def test_the_text_of_a_run_in_another_process_is_complete(store: Store, tmp_path: Path) -> None:
    """The server has neither the agent nor the run; its followers get the words as they are written."""
    with serving(store) as client, runner(tmp_path) as process:
        reader = client.events(EVENTS)
        seen, text, live = list[str](), "", 0
        start(process)
        for event in reader:
            seen += durable([event])
            if event.type in ("text.so_far", "text.delta"):
                live += 1
                writing = event.data["message"]
                text = event.data["text"] if event.type == "text.so_far" else text + event.data["text"]
            if event.type == "message.appended" and event.data["event"]["role"] == "assistant":
                said = event.data["message"]["content"][0]["text"]
                assert event.data["event"]["id"] == writing  # pyright: ignore[reportPossiblyUnboundVariable]
            if event.type == "run.finished":
                break

    assert live > 2
    assert text == said  # pyright: ignore[reportPossiblyUnboundVariable]
    assert seen == [each for each in whole(store) if each in set(seen)]


def test_without_the_spool_the_words_of_another_process_come_only_at_the_end(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: what carries the text between processes is the spool."""
    monkeypatch.setattr("perdure.runtime.session.broadcast.Feeds.listen", lambda *_: None)

    with serving(store) as client, runner(tmp_path) as process:
        reader = client.events(EVENTS)
        start(process)
        types = [event.type for event in reading_until(reader, "run.finished")]

    assert "message.appended" in types
    assert "text.delta" not in types


def test_a_server_that_is_killed_in_the_middle_of_a_run_loses_no_event(tmp_path: Path) -> None:
    """The client comes back to another server with its last id; what it has is what the store has."""
    with perdure.open(tmp_path / "store.db") as made:
        made.thread("chat", agent="assistant")
    with runner(tmp_path) as process:
        first = served_by(tmp_path)
        seen: list[str] = []
        client = client_of(first)
        reader = client.events(EVENTS)
        start(process)
        for event in reader:
            seen += durable([event])
            if event.type == "text.delta" and seen:  # words may come before what is read from the store
                first.send_signal(signal.SIGKILL)
                break
        reader.close()
        first.communicate()
        second = served_by(tmp_path)
        later = list(reading_until(client_of(second).events(EVENTS, last=seen[-1]), "run.finished"))
        second.terminate()
        second.communicate()

    with perdure.open(tmp_path / "store.db") as store:
        expected = whole(store)
    seen += durable(later)
    assert seen == expected[: len(seen)]
    assert len(expected) - len(seen) <= 1  # the notice of the last commit follows its last event
    assert [event.data["message"]["role"] for event in later if event.type == "message.appended"] == [
        "assistant"
    ]


def test_a_client_that_does_not_read_is_cut_off(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A send that takes too long ends the stream, so that no server keeps what a dead client does not take."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if len(sent) > 2:
            await asyncio_sleep()

    async def frames() -> AsyncIterator[bytes]:
        while True:
            yield b"event: x\ndata: {}\n\n"

    import asyncio

    async def asyncio_sleep() -> None:
        await asyncio.sleep(WAIT_SECONDS)

    async def receive() -> Any:
        await asyncio.sleep(WAIT_SECONDS)

    stream = streams.EventStream(frames(), slow_seconds=0.05)
    asyncio.run(asyncio.wait_for(stream({"type": "http"}, receive, send), WAIT_SECONDS))

    assert sent == ["http.response.start", "http.response.body", "http.response.body"]


def reading_until(events: Any, last: str) -> Generator[Event]:
    """The events up to the first of that type."""
    for event in events:
        yield event
        if event.type == last:
            return


def until(holds: Any) -> None:
    """Wait until something holds."""
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def pausing(held: threading.Event, go_on: threading.Event) -> Generator[None]:
    """Let the model stop after its second piece of text until it may go on."""
    from perdure.runtime.session.broadcast import Feed

    tell, told = Feed.tell, list[Any]()

    def pause(feed: Feed, item: Any) -> None:
        tell(feed, item)
        told.append(item)
        if len(told) == 2:
            held.set()
            go_on.wait(WAIT_SECONDS)

    Feed.tell = pause  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        Feed.tell = tell


@contextmanager
def runner(place: Path) -> Generator[ForkedProcess]:
    """A process that will run the assistant on thread `chat`, slowly."""
    with perdure.open(place / "store.db") as opened:
        opened.thread("chat", agent="assistant")
    command = ["-c", textwrap.dedent(RUNNER), str(place / "store.db")]
    process = ForkedProcess(commands(), command, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield process
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


def start(process: ForkedProcess) -> None:
    """Let the process begin its run."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def served_by(place: Path) -> ForkedProcess:
    """A server in a process of its own."""
    command = ["-m", "perdure", "serve", "--port", "0", "--json", "--store", str(place / "store.db")]
    return ForkedProcess(commands(), command, stdout=PIPE)


def client_of(process: ForkedProcess) -> Client:
    """A client with the token of the server's start link."""
    import json

    assert process.stdout is not None
    place = json.loads(process.stdout.readline())
    return Client(int(place["url"].rstrip("/").rpartition(":")[2]), place["link"].partition("token=")[2])


def test_a_check_of_the_store_tells_how_far_it_is(client: Client, store: Store) -> None:
    """The parts only grow up to the whole, and the result says what was checked and when the check began."""
    before = stamp(now())

    *progress, last = client.events("/v1/verify")

    parts = [(event.data["done"], event.data["total"]) for event in progress]
    assert parts
    assert parts == sorted(parts)
    assert all(0 <= done <= total for done, total in parts)
    assert (last.type, last.data["result"]["ok"]) == ("verify.finished", True)
    assert last.data["result"]["checked"] == store.verify().checked
    assert before <= last.data["result"]["began_at"] <= last.data["result"]["ended_at"]


@pytest.mark.parametrize("is_left", [True, False])
def test_a_check_stops_when_its_reader_leaves(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    """Without a reader the check ends at its next step; the control reads on, and the check ends with a report."""
    verify, go_on, ended = Store.verify, threading.Event(), list[bool]()
    store.thread("chat", agent="assistant").put("/x.json", 1)

    def paused(self: Store, *, progress: Progress) -> VerifyReport:
        def step(space: str, done: int, total: int) -> None:
            progress(space, done, total)
            go_on.wait(WAIT_SECONDS)

        try:
            report = verify(self, progress=step)
        except Exception:
            ended.append(False)
            raise
        ended.append(True)
        return report

    monkeypatch.setattr(Store, "verify", paused)
    with serving(store) as client:
        events = client.events("/v1/verify")
        next(events)
        if is_left:
            events.close()
            while b"perdure_streams_open 0" not in client.get("/metrics").body:
                time.sleep(0.02)
        go_on.set()
        list(events)

    assert ended == [not is_left]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/threads/chat/events"])
def test_the_head_of_a_stream_is_answered_without_the_stream(client: Client, path: str) -> None:
    """HEAD has the headers of GET and an end, and no stream stays open for it."""
    reply = client.ask("HEAD", path)

    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert "perdure_streams_open 0" in client.get("/metrics").body.decode()
