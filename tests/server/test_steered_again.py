"""A request that steered a run is sent again, by whatever route: it is the same input, and nothing is paid twice."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.model.context import Context
from perdure.store.store import Store
from perdure.testing import Script, say, use
from perdure.testing.script import ScriptStep
from tests.server.client import Client, Reply, serving
from tests.server.test_chat_streams import AG_UI, AI_SDK, asked, frames, said

THREAD = "/v1/threads/chat"
WORDS = "Pay tom 60"


class Desk:
    """A client of a server whose agent was steered in its first run, and what was paid and answered."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.way = "route"  # how the run is steered: over HTTP, or by the program under the id of a message
        self.paid: list[str] = []
        self.answers: list[Reply] = []

    def ask(self, path: str, text: str = WORDS, key: str = "key-2", **more: Any) -> Reply:
        """Send a request about these words, with an Idempotency-Key."""
        assert self.client is not None
        return self.client.post(f"{THREAD}/{path}", {"text": text, **more}, Idempotency_Key=key)


@pytest.fixture
def desk(store: Store) -> Generator[Desk]:
    """A server whose agent looks around first, and pays when it is asked to."""
    desk = Desk()

    @perdure.tool(effect="read_only")
    def look() -> str:
        if desk.way == "route":
            desk.answers.append(desk.ask("steer"))
        else:
            store.thread("chat").steer(WORDS, id="msg-2")
        return "three bills"

    @perdure.tool(effect="financial")
    def pay(to: str) -> str:
        desk.paid.append(to)
        return "paid"

    def model(context: Context) -> ScriptStep:
        last = context.messages[-1]
        if last.role == "tool":
            return say("Done.")
        return use("pay", to="tom") if last.text.startswith("Pay") else use("look")

    agent = Agent("clerk", backend=Script(then=model), tools=[look, pay])
    store.thread("chat", agent=agent)
    with serving(store, agent) as client:
        desk.client = client
        yield desk


def test_steer_again_gives_the_first_answer_though_its_run_has_ended(desk: Desk, store: Store) -> None:
    """Nothing is queued and nothing runs; control: a key that steered nothing is refused."""
    desk.ask("run", "Look", "key-1")
    again, new = desk.ask("steer"), desk.ask("steer", key="key-3")

    assert (again.status, again.json) == (200, desk.answers[0].json)
    assert (new.status, new.json["code"]) == (409, "run_to_steer_missing")
    assert (len(store.thread("chat").runs()), desk.paid) == (1, ["tom"])


@pytest.mark.parametrize(
    ("more", "status"), [({}, 200), ({"wait": False}, 202), ({"queue": True}, 202), ({"at": "1h"}, 202)]
)
def test_run_with_the_key_that_steered_gives_that_run(
    desk: Desk, store: Store, more: dict[str, Any], status: int
) -> None:
    """However it is to be run."""
    first = desk.ask("run", "Look", "key-1").json["run"]
    again = desk.ask("run", **more)

    found = again.json["run"]
    assert (again.status, found if isinstance(found, str) else found["id"]) == (status, first)
    assert (len(store.thread("chat").runs()), desk.paid) == (1, ["tom"])


def test_a_stream_with_the_key_that_steered_is_that_runs(desk: Desk, store: Store) -> None:
    """It has its result, and no new run."""
    first = desk.ask("run", "Look", "key-1").json["run"]
    assert desk.client is not None
    events = [
        event
        for event in desk.client.ask(
            "POST",
            f"{THREAD}/run",
            {"text": WORDS},
            {"Accept": "text/event-stream", "Idempotency-Key": "key-2"},
        )
        .body.decode()
        .split("\n\n")
        if first in event
    ]

    assert "run.ended" in events[-1]
    assert (len(store.thread("chat").runs()), desk.paid) == (1, ["tom"])


@pytest.mark.parametrize("verb", ["run", "steer"])
def test_other_words_under_the_key_that_steered_are_a_conflict(desk: Desk, verb: str) -> None:
    """A key names one request."""
    desk.ask("run", "Look", "key-1")
    reply = desk.ask(verb, "Pay ben 70")

    code = "input_id_reused" if verb == "run" else "message_id_reused"
    assert (reply.status, reply.json["code"], desk.paid) == (409, code, ["tom"])


@pytest.mark.parametrize(
    ("path", "body"), [(AI_SDK, said(WORDS, "msg-2")), (AG_UI, asked(WORDS, id="msg-2"))]
)
def test_a_chat_client_that_sends_the_message_reads_the_run_that_heard_it(
    desk: Desk, store: Store, path: str, body: Any
) -> None:
    """The program had steered by that id, and the client sends the message as one of its own."""
    desk.way = "program"
    desk.ask("run", "Look", "key-1")
    assert desk.client is not None
    reply = desk.client.post(path, body)

    told = "".join(each.data.get("delta", "") for each in frames(reply.body))
    assert (reply.status, told.endswith("Done.")) == (200, True)
    assert (len(store.thread("chat").runs()), desk.paid) == (1, ["tom"])
