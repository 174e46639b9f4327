"""Two clients, one head; one request, sent twice: HTTP's own means carry Perdure's promises."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import Agent
from perdure.model.context import Context
from perdure.providers.contract import ModelEvent
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.testing import Script, fail, say
from tests.server.client import TOKEN, Client, Reply, serving

THREAD = "/v1/threads/chat"


def both(*acts: Any) -> list[Reply]:
    """Do two things at the same time."""
    found: list[Reply] = []
    gate = threading.Barrier(len(acts))

    def act(each: Any) -> None:
        gate.wait()
        found.append(each())

    threads = [threading.Thread(target=act, args=(each,)) for each in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_run_that_fails_is_one_document_everywhere(store: Store) -> None:
    """Where the answer is a document it has the status 502, and where it is a stream it is the last event."""
    agent = Agent("broken", backend=Script(fail(), fail()))
    store.thread("chat", agent=agent)

    with serving(store, agent) as client:
        answered = client.ask("POST", THREAD + "/run", {"text": "Hello"}, {"Idempotency-Key": "one"})
        events = {"Accept": "text/event-stream", "Idempotency-Key": "two"}
        streamed = client.ask("POST", THREAD + "/run", {"text": "Hello"}, events)

    last = streamed.body.decode().strip().rpartition("\n\n")[2]
    told = json.loads(last.partition("data: ")[2])
    assert last.startswith("event: error\n")
    for document in (answered.json, told):
        assert (document["status"], document["code"]) == (502, "run_failed")
        assert document["facts"]["run"]["status"] == "failed"
    assert answered.status == 502


@pytest.mark.parametrize("wants_events", [False, True], ids=["result", "events"])
def test_a_key_that_came_with_another_request_is_named_as_the_client_gave_it(
    client: Client, wants_events: bool
) -> None:
    """Not by the id that the server made of it, and the advice is about the key."""
    more = {"Accept": "text/event-stream"} if wants_events else {}
    client.post(THREAD + "/run", {"text": "First"}, Idempotency_Key="known")

    refused = client.post(THREAD + "/run", {"text": "Second"}, **{"Idempotency-Key": "known", **more})

    assert (refused.status, refused.json["code"]) == (409, "input_id_reused")
    assert refused.json["facts"] == {"key": "known"}
    assert "http-" not in refused.body.decode()
    assert "key" in refused.json["advice"]


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({"If-Match": '"main:1:-"', "Idempotency-Key": "new"}, 412, "stale_head"),
        ({"Idempotency-Key": "known"}, 409, "input_id_reused"),
    ],
)
def test_a_stream_that_cannot_begin_is_answered_with_a_status(
    client: Client, store: Store, sent: dict[str, str], status: int, code: str
) -> None:
    """A client that wants events learns the same as one that waits for the result, and no run is begun."""
    client.post(THREAD + "/run", {"text": "First"}, Idempotency_Key="known")
    before = store.thread("chat").head
    reply = client.ask("POST", THREAD + "/run", {"text": "Other"}, {"Accept": "text/event-stream", **sent})
    assert (reply.status, reply.json["code"]) == (status, code)
    assert store.thread("chat").head == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/undo", {}),
        ("/seal", {}),
        ("/run", {"text": "Go on"}),
        ("/switch", {"to": "script:test"}),
        ("/merge", {"name": "other"}),
        ("/promote", {"name": "other"}),
    ],
)
def test_of_two_writers_with_one_etag_the_second_gets_412_with_both_heads(
    client: Client, store: Store, path: str, body: dict[str, Any]
) -> None:
    """A head is good for one move; the refusal has the head that was expected and the one that is there."""
    if path in ("/merge", "/promote"):
        store.thread("chat").fork("other").put("/there.json", 1)
    tag = client.get(THREAD).headers["etag"]
    client.ask("PUT", THREAD + "/state/a.json", 1, headers={"If-Match": tag})

    late = client.post(THREAD + path, body, If_Match=tag)

    assert late.status == 412
    now = store.thread("chat").head.version
    assert [late.json["facts"][side]["version"] for side in ("expected", "actual")] == [now - 1, now]


def test_of_two_simultaneous_writers_with_one_etag_one_wins(client: Client, store: Store) -> None:
    """The engine decides between them, not the server."""
    before = store.thread("chat").head.version
    tag = client.get(THREAD).headers["etag"]
    put = lambda value: client.ask("PUT", THREAD + "/state/a.json", value, headers={"If-Match": tag})  # noqa: E731

    replies = both(lambda: put(1), lambda: put(2))

    assert sorted(reply.status for reply in replies) == [200, 412]
    assert store.thread("chat").head.version == before + 1


def test_without_if_match_both_writers_succeed(client: Client, store: Store) -> None:
    """Control: the precondition is what refuses the second writer."""
    before = store.thread("chat").head.version

    for value in (1, 2):
        assert client.ask("PUT", THREAD + "/state/a.json", value).status == 200

    assert store.thread("chat").head.version == before + 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/run", {"text": "Book it"}),
        ("/undo", {}),
        ("/fork", {"name": "what-if"}),
        ("/promote", {"name": "other"}),
        ("/merge", {"name": "other"}),
    ],
)
def test_a_post_that_is_repeated_after_its_answer_was_cut_has_one_effect(
    client: Client, store: Store, path: str, body: dict[str, Any]
) -> None:
    """The client hangs up without reading, asks again with the same key, and twice gets the first answer."""
    store.thread("chat").fork("other").put("/there.json", 1)
    before = len(_moves(store, "main"))
    headers = {"Idempotency-Key": "once", "If-Match": client.get(THREAD).headers["etag"]}
    _cut(client, THREAD + path, body, headers)

    first, second = (client.ask("POST", THREAD + path, body, headers=headers) for _ in range(2))

    assert (first.status, first.json) == (second.status, second.json)
    assert first.status in (200, 201)
    moved = len(_moves(store, "main")) - before + len(_moves(store, "what-if"))
    assert moved == (
        2 if path == "/run" else 1
    )  # a run of one step moves the head at its start and at its end


def test_without_a_key_a_repeated_post_has_two_effects(client: Client, store: Store) -> None:
    """Control: the key is what makes the second request a repetition."""
    for _ in range(2):
        client.post(THREAD + "/run", {"text": "Book it"})

    assert len(store.thread("chat").runs()) == 3


def test_the_name_of_a_decision_cannot_be_given_by_the_client(client: Client) -> None:
    """A body with `by` is refused."""
    reply = client.post(THREAD + "/decide", {"call": "c", "verdict": "approve", "by": "the boss"})

    assert (reply.status, reply.json["code"]) == (422, "body_invalid")


def _moves(store: Store, line: str) -> list[Any]:
    thread = store.thread("chat")
    names = {hold.head.timeline for hold in thread.timelines()}
    return thread.on(line).moves() if line in names else []


def _cut(client: Client, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    """Send a request and hang up when the first byte of the answer is there."""
    content = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{client.port}",
        f"Authorization: Bearer {TOKEN}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        connection.recv(1)


class WaitingModel(Script):
    """A model that says a little, and the rest when it is told to."""

    def __init__(self, *items: Any) -> None:
        """Wait after the first piece."""
        super().__init__(*items, pieces=2)
        self.may_end = threading.Event()

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Say a piece, and wait."""
        async for event in super().step(context):
            yield event
            await asyncio.to_thread(self.may_end.wait, 60)


def test_a_repeated_input_is_answered_while_its_run_goes_on(store: Store) -> None:
    """A client that does not wait for the end, and lost the first answer, gets the same run at once."""
    model = WaitingModel(say("Done."))
    agent = Agent("assistant", backend=model)
    store.thread("chat", agent=agent, owner="ann")

    with serving(store, agent) as client:
        body = {"text": "Go", "wait": False}
        try:
            found = [client.post(f"{THREAD}/run", body, Idempotency_Key="k") for _ in range(2)]
        finally:
            model.may_end.set()

    assert [each.status for each in found] == [202, 202]
    assert [each.json["run"]["state"] for each in found] == ["running", "running"]
    assert found[0].json["run"]["id"] == found[1].json["run"]["id"]


class SilentModel(WaitingModel):
    """A model that says nothing until it may end."""

    has_spoken = False

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Wait, and then say everything."""
        await asyncio.to_thread(self.may_end.wait, 30)
        self.has_spoken = True
        async for event in super().step(context):
            yield event


def test_a_request_that_does_not_wait_is_answered_before_the_model_speaks(store: Store) -> None:
    """The answer comes when the run has begun: its input is durable then, and nothing else has to be."""
    model = SilentModel(say("Done."))
    agent = Agent("assistant", backend=model)
    store.thread("chat", agent=agent, owner="ann")

    with serving(store, agent) as client:
        try:
            reply = client.post(f"{THREAD}/run", {"text": "Go", "wait": False})
            has_spoken = model.has_spoken
        finally:
            model.may_end.set()

    assert (reply.status, reply.json["run"]["state"], has_spoken) == (202, "running", False)


def test_the_etag_of_a_switch_is_its_own_head(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another writer commits before the answer is sent is not undone under the ETag of the switch."""
    switch = Thread.switch

    def overtaken(self: Thread, *args: Any, **options: Any) -> Any:
        report = switch(self, *args, **options)
        store.thread("chat").put("/other.json", "of another writer")
        return report

    monkeypatch.setattr(Thread, "switch", overtaken)
    tag = client.post(f"{THREAD}/switch", {"to": "openai:gpt-5.6"}).headers["etag"]

    reply = client.post(f"{THREAD}/undo", {"turns": 1}, If_Match=tag)

    assert reply.status == 412, reply.body
    assert tag == f'"main:{store.thread("chat").moves()[1].version}:{store.thread("chat").moves()[1].to}"'
    assert store.thread("chat").get("/other.json") == "of another writer"


def test_a_dropped_timeline_is_sealed_and_marked(client: Client, store: Store) -> None:
    """From the head that was read, and once for one key; control: a seal alone marks nothing."""
    thread = store.thread("chat")
    thread.fork("other").put("/there.json", 1)
    thread.fork("archive")
    tag = client.get(THREAD + "?timeline=other").headers["etag"]
    thread.on("other").put("/there.json", 2)

    late = client.post(THREAD + "/drop?timeline=other", If_Match=tag)
    kept = thread.removal_state("other")
    tag = client.get(THREAD + "?timeline=other").headers["etag"]
    headers = {"Idempotency-Key": "once", "If-Match": tag}
    _cut(client, THREAD + "/drop?timeline=other", {}, headers)
    dropped = [client.ask("POST", THREAD + "/drop?timeline=other", {}, headers) for _ in range(2)]
    client.post(THREAD + "/seal?timeline=archive")
    listed = client.get(THREAD + "/timelines").json["timelines"]

    assert (late.status, kept) == (412, None)
    assert [each.status for each in dropped] == [200, 200]
    assert dropped[0].json == dropped[1].json
    assert [(each["timeline"], each["sealed"], each["removal"]) for each in listed] == [
        ("main", False, None),
        ("archive", True, None),
        ("other", True, "dropped"),
    ]


@pytest.mark.parametrize(
    ("timeline", "status", "code"),
    [("main", 422, "main_not_dropped"), ("nowhere", 404, "timeline_not_found")],
)
def test_what_cannot_be_dropped_is_left_as_it_is(
    client: Client, store: Store, timeline: str, status: int, code: str
) -> None:
    """Main is replaced by promotion, not dropped."""
    before = store.thread("chat").timelines()

    refused = client.post(f"{THREAD}/drop?timeline={timeline}")

    assert (refused.status, refused.json["code"]) == (status, code)
    assert store.thread("chat").timelines() == before


@pytest.mark.parametrize(
    ("path", "body", "line"),
    [
        ("/undo", {}, "main"),
        ("/fork", {"name": "new"}, "new"),
        ("/promote", {"name": "other"}, "main"),
        ("/seal", {}, "main"),
        ("/drop?timeline=new", {}, "new"),
    ],
)
def test_a_move_is_recorded_under_the_name_of_the_key(
    client: Client, store: Store, path: str, body: dict[str, Any], line: str
) -> None:
    """With the time of the request; the fork by a program before, the control, has a time alone."""
    store.thread("chat").fork("other")
    if "drop" in path:
        store.thread("chat").fork("new")
    client.post(THREAD + path, body)

    (made,) = client.get(f"{THREAD}/moves?timeline={line}&limit=1").json["moves"]
    (before,) = client.get(f"{THREAD}/moves?timeline=other&limit=1").json["moves"]

    act = "seal" if "drop" in path else path[1:]
    name = "local"  # of the token of the start link
    assert (made["act"], made["author"], before["author"]) == (act, name, None)
    assert made["at"] > before["at"]


@pytest.mark.parametrize("more", [{"queue": True}, {"at": "1h"}, {}])
def test_an_input_is_queued_behind_a_live_run(store: Store, more: dict[str, Any]) -> None:
    """With `queue`, or for a later time; control: without them the timeline is busy.  The same key queues one run."""
    model = WaitingModel(say("Done."))
    agent = Agent("assistant", backend=model)
    thread = store.thread("chat", agent=agent, owner="ann")

    with serving(store, agent) as client:
        try:
            client.post(f"{THREAD}/run", {"text": "Go", "wait": False}, Idempotency_Key="a")
            body = {"text": "And this", "wait": False} | more
            replies = [client.post(f"{THREAD}/run", body, Idempotency_Key="b") for _ in range(2)]
        finally:
            model.may_end.set()

    assert [each.status for each in replies] == ([202, 202] if more else [423, 423])
    assert ["retry-after" in each.headers for each in replies] == [not more] * 2
    if more:
        assert replies[0].json["run"]["id"] == replies[1].json["run"]["id"]
        assert [run.state for run in thread.runs() if run.id == replies[0].json["run"]["id"]] == ["created"]


def test_a_failed_run_is_queued_again_by_its_key(store: Store) -> None:
    """A worker beside the server retries it; control: another key queues another run."""
    agent = Agent("broken", backend=Script(fail()))
    thread = store.thread("chat", agent=agent)

    with serving(store, agent) as client:
        failed = client.post(f"{THREAD}/run", {"text": "Hello"}, Idempotency_Key="a")
        again, other = [
            client.post(f"{THREAD}/run", {"text": "Hello", "queue": True}, Idempotency_Key=key).json["run"]
            for key in ("a", "b")
        ]
        store.work(Agent("broken", backend=Script(then=say("Hello."))), until_idle=True)

    assert failed.status == 502
    assert (again["id"], again["state"]) == (failed.json["facts"]["run"]["run"], "created")
    assert [run.state for run in thread.runs()] == ["succeeded", "succeeded"]
    assert thread.runs()[1].id == other["id"]


def test_what_is_no_time_is_refused(client: Client) -> None:
    """Nothing is queued."""
    reply = client.post(f"{THREAD}/run", {"text": "Later", "at": "soon"})

    assert (reply.status, reply.json["code"]) == (422, "time_invalid")


@pytest.mark.parametrize("verb", ["run", "steer"])
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_no_input(client: Client, verb: str, text: str) -> None:
    """Nothing is run or queued, and the conversation has no empty message."""
    reply = client.post(f"{THREAD}/{verb}", {"text": text})

    assert (reply.status, reply.json["code"]) == (422, "input_empty")
