"""What a request does to the record of an agent, and which run a repeated request is about."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.store.store import Store
from perdure.testing import Script, say, use
from tests.server.client import Client, key, serving

THREAD = "/v1/threads/chat"


def declare_counter(store: Store) -> None:
    """Let a newer program declare the assistant with a merge rule, which the server's declaration does not have."""
    rules = [perdure.state("/count.json", merge="counter")]
    store.thread("chat", agent=Agent("assistant", state=rules))


def merges(store: Store) -> bool:
    """True if both sides of a fork can count, as the recorded rule says."""
    thread = store.thread("chat")
    other = thread.fork("other")
    for each in (thread, other):
        each.put("/count.json", 1)
    try:
        thread.merge("other")
    except perdure.errors.Conflict:
        return False
    return thread.get("/count.json") == 2


@pytest.mark.parametrize(("agents", "status"), [(["billing"], 404), (["billing", "triage"], 200)])
def test_a_key_for_one_agent_runs_no_other_on_a_fork_from_before_a_hand_off(
    store: Store, agents: list[str], status: int
) -> None:
    """The fork stays with the first agent; control: a key for both runs it."""
    both = [Agent(name, backend=Script(*[say("Hi.")] * 3)) for name in ("triage", "billing")]
    thread = store.thread("t", agent=both[0])
    thread.run("Hello")
    thread.hand_off(both[1])
    secret = key(store, "bill", "operator", agents=agents)
    with serving(store, *both) as client:
        bill = Client(client.port, secret)
        forked = bill.post("/v1/threads/t/fork", {"name": "side", "at": "turn:1"})
        ran = bill.post("/v1/threads/t/run?timeline=side", {"text": "Again"})
        own = bill.post("/v1/threads/t/run", {"text": "Again"})

    assert (forked.status, ran.status, own.status) == (201, status, 200)
    assert len(list(store.thread("t").on("side").runs())) == (3 if status == 200 else 2)


def test_a_reader_of_a_context_is_not_shown_a_credential_of_the_agent(store: Store) -> None:
    """The agent of the server's program may have one in its options; control: the rest of them is shown."""
    options: dict[str, Any] = {
        "vendor": {"x": {"mcp_servers": [{"authorization_token": "xyzzy", "name": "shop"}]}}
    }
    agent = Agent("assistant", backend=Script(say("Hi.")), options=options)
    store.thread("chat", agent=agent).run("Hello")
    with serving(store, agent) as client:
        shown = [client.get(f"{THREAD}/context{at}").body for at in ("", "?at=HEAD")]

    assert [(b"xyzzy" in each, b"shop" in each) for each in shown] == [(False, True)] * 2


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/context", None), ("POST", "/switch?dry_run=true", {"to": "openai:gpt-5.6"})],
)
def test_a_request_that_only_reads_leaves_the_rules_of_the_agent(
    client: Client, store: Store, method: str, path: str, body: Any
) -> None:
    """The server's declaration is older than the recorded one, and does not replace it."""
    declare_counter(store)

    reply = client.ask(method, THREAD + path, body)

    assert reply.status == 200
    assert merges(store)


def test_a_misspelled_agent_begins_no_thread(client: Client, store: Store) -> None:
    """The answer names the one that is meant; control: a worker may have another agent, or one that the store knows."""
    refused = client.post("/v1/threads", {"agent": "asistant", "id": "new"})
    store.thread("theirs", agent="assistant-2")
    begun = [
        client.post("/v1/threads", {"agent": name}).status
        for name in ("translator", "assistant-2", "assistant")
    ]

    assert (refused.status, refused.json["code"]) == (404, "agent_not_found")
    assert "Did you mean 'assistant'?" in refused.json["detail"]
    assert begun == [201] * 3
    assert "new" not in [each.id for each in store.threads()]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("run", {"text": "Hi"}),
        ("ai-sdk", {"messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]}),
        (
            "ag-ui",
            {"threadId": "odd", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hi"}]},
        ),
    ],
)
def test_a_stream_of_a_misspelled_agent_is_refused_with_the_name_that_is_meant(
    client: Client, store: Store, path: str, body: Any
) -> None:
    """The stream does not begin, and nothing waits for a worker."""
    store.thread("odd", agent="asistant")

    reply = client.post(f"/v1/threads/odd/{path}", body, Accept="text/event-stream")

    assert (reply.status, reply.json["code"]) == (422, "agent_not_served")
    assert "Did you mean 'assistant'?" in reply.json["detail"]
    assert store.thread("odd").runs() == []


def test_a_run_records_the_agent_that_it_runs(client: Client, store: Store) -> None:
    """Control: a run does declare its agent, so the rule is gone."""
    declare_counter(store)

    client.post(THREAD + "/run", {"text": "Go on"})

    assert not merges(store)


@pytest.mark.parametrize("path", ["/cancel", "/resume"])
def test_a_request_that_may_be_repeated_names_its_run(client: Client, path: str) -> None:
    """By the time it is repeated, another run may be on the timeline."""
    reply = client.post(THREAD + path, {}, Idempotency_Key="once")

    assert (reply.status, reply.json["code"]) == (422, "run_required")


def test_a_repeated_input_is_answered_with_its_own_run(client: Client) -> None:
    """Not with the newest run, although that is on the same timeline."""
    ask = lambda key: client.post(THREAD + "/run", {"text": key, "wait": False}, Idempotency_Key=key)  # noqa: E731
    first = ask("one").json["run"]["id"]
    follow_to_end(client)
    second = ask("two").json["run"]["id"]
    follow_to_end(client)

    again = ask("one").json["run"]["id"]

    assert again == first != second


def test_a_decision_that_is_sent_again_is_answered_as_the_first_time(store: Store) -> None:
    """After the run has ended, too, if the run is named; another verdict is told what was decided."""

    @perdure.tool(effect="financial", ask=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    payer = Agent("payer", backend=Script(use("pay"), say("Paid.")), tools=[pay])
    (asked,) = store.thread("bill", agent=payer).run("Pay").approvals
    path, body = "/v1/threads/bill", {"call": asked.call, "verdict": "approve", "why": "agreed"}
    with serving(store, payer) as client:
        decided = [client.post(f"{path}/decide", body).json for _ in range(2)]
        named = {"run": decided[0]["call"]["run"]}
        first, again = (client.post(f"{path}/resume", named) for _ in range(2))
        unnamed = client.post(f"{path}/resume", {})
        other = client.post(f"{path}/decide", body | {"verdict": "deny"})

    assert [each["decision"] for each in decided] == [decided[0]["decision"]] * 2
    assert (first.status, first.json["text"], again.json) == (200, "Paid.", first.json)
    assert (unnamed.status, unnamed.json["code"], "`run`" in unnamed.json["advice"]) == (
        404,
        "open_run_missing",
        True,
    )
    assert (other.status, other.json["code"]) == (409, "decided")
    assert "approve" in other.json["detail"]
    assert "agreed" in other.json["detail"]


@perdure.tool(effect="financial")
def wire(*, call: perdure.Call) -> str:
    """Send money, after two questions."""
    if call.decision is None:
        call.suspend("Send it?")
    if not call.scratch.get("/checked", default=None):
        call.scratch.put("/checked", True)
        call.suspend("A second pair of eyes: really?")
    return "sent"


@pytest.mark.parametrize(
    ("named", "headers", "status"),
    [("id", {}, 200), ("call", {"Idempotency-Key": "click-1"}, 200), ("call", {}, 409)],
)
def test_a_decision_that_is_sent_again_does_not_answer_a_later_question(
    store: Store, named: str, headers: dict[str, str], status: int
) -> None:
    """It gets the first decision if it names the question or has a key; a call alone names no later question."""
    payer = Agent("payer", backend=Script(use("wire"), say("Sent.")), tools=[wire])
    thread = store.thread("bill", agent=payer)
    thread.run("Pay")
    with serving(store, payer) as client:
        (asked,) = client.get("/v1/approvals").json["approvals"]
        body = {"ticket" if named == "id" else "call": asked[named], "verdict": "approve"}
        first = client.post("/v1/threads/bill/decide", body, **headers)
        client.post("/v1/threads/bill/resume", {})
        (second,) = client.get("/v1/approvals").json["approvals"]
        again = client.post("/v1/threads/bill/decide", body, **headers)
        left = client.get("/v1/approvals").json["approvals"]

    assert (first.status, second["call"], again.status) == (200, asked["call"], status)
    assert [each["id"] for each in left] == [second["id"]]
    if status == 200:
        assert (again.json["decision"], again.json["ticket"]) == (first.json["decision"], asked["id"])
        assert again.json["again"]
    else:
        assert (again.json["code"], second["id"] in again.json["detail"]) == ("question_not_named", True)


@pytest.mark.parametrize(
    ("named", "status", "code"),
    [
        ({}, 422, "question_missing"),
        ({"ticket": "CALL"}, 404, "ticket_not_found"),
        ({"ticket": "TICKET", "call": "other"}, 422, "options_conflict"),
        ({"ticket": "TICKET", "call": "CALL"}, 200, None),
    ],
)
def test_a_decision_names_one_question(
    store: Store, named: dict[str, str], status: int, code: str | None
) -> None:
    """Without one, with a call in its place, or with the question of another call nothing is decided."""
    payer = Agent("payer", backend=Script(use("wire"), say("Sent.")), tools=[wire])
    thread = store.thread("bill", agent=payer)
    (asked,) = thread.run("Pay").approvals
    thread.call(wire, {}, id="other")
    ids = {"TICKET": asked.id, "CALL": asked.call, "other": "other"}
    body = {name: ids[value] for name, value in named.items()} | {"verdict": "approve"}
    with serving(store, payer) as client:
        reply = client.post("/v1/threads/bill/decide", body)

    assert (reply.status, reply.json.get("code")) == (status, code)
    assert len(thread.approvals()) == (1 if status == 200 else 2)


def follow_to_end(client: Client) -> None:
    """Read the events of the thread until no run is live."""
    list(client.events(THREAD + "/events?wait=false"))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/threads", {"agent": "assistant"}),
        (THREAD + "/decide", {"call": "c", "verdict": "deny"}),
        (THREAD + "/calls/c/resolve", {"outcome": "done"}),
        (THREAD + "/calls/c/reconcile", {}),
        (THREAD + "/steer", {"text": "hi"}),
        (THREAD + "/cancel", {}),
    ],
)
def test_a_precondition_that_is_not_checked_is_refused(client: Client, path: str, body: Any) -> None:
    """A client that sends If-Match must not believe that it was heeded."""
    reply = client.post(path, body, If_Match=client.get(THREAD).headers["etag"])

    assert (reply.status, reply.json["code"]) == (422, "if_match_not_taken")
