"""What overviews show: the rows of the list of threads, the pages of a search, and the turns of a graph."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, get_origin

import pytest

import perdure
from perdure import Agent, Stop
from perdure.errors import Corrupt, RunFailed
from perdure.integrations.importers import import_sessions
from perdure.model.run import Usage
from perdure.runtime.session import records
from perdure.runtime.session import result as results
from perdure.server import thread_list
from perdure.server.keys import SERVER
from perdure.server.routes import store as store_routes
from perdure.server.routes import threads as thread_routes
from perdure.server.routing import BaseQuery, Paged, Router
from perdure.shapes.conversation import GraphPage, TurnPage
from perdure.shapes.text import now
from perdure.store.store import Store
from perdure.store.view import View
from perdure.testing import Script, say, use
from tests.forked import commands
from tests.integrations.importers import test_chatgpt
from tests.server.client import Client, assistant, key, serving

JSON = "application/json"


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


def test_the_servers_own_thread_is_listed_only_where_its_agent_is_asked_for(
    client: Client, store: Store
) -> None:
    """Lists, searches and agents are of the user's threads; control: the thread is there and an admin reads it."""
    client.post(
        "/v1/threads/chat/fork", {"name": "other"}
    )  # the request is recorded in the server's own thread

    listed = [client.get(path).json["threads"] for path in ("/v1/threads", f"/v1/threads?agent={SERVER}")]
    agents = client.get("/v1/agents").json["agents"]

    assert [[each["id"] for each in rows] for rows in listed] == [["chat"], [SERVER]]
    assert SERVER not in [each["name"] for each in agents]
    assert SERVER in [each.id for each in store.threads()]


KILLED = """
import sys
import perdure
from perdure.testing import Script, crash, use

@perdure.tool(effect="financial")
def pay(amount: int) -> str:
    return "paid"

agent = perdure.Agent("payer", backend=Script(use("pay", amount=13), crash("after_effect")), tools=[pay])
with perdure.open(sys.argv[1]) as store:
    store.thread("rent", agent=agent).run("Pay")
"""


@pytest.fixture
def cut_off(tmp_path: Path) -> Generator[Client]:
    """A client of a store in which a process was killed after its tool had paid."""
    path = tmp_path / "cut.db"
    ended = commands().run(["-c", KILLED, str(path)])
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with perdure.open(path) as store, serving(store) as client:
        yield client


def test_a_call_that_a_kill_cut_off_needs_attention_everywhere(cut_off: Client) -> None:
    """The list, the calls of unknown outcome and the numbers have it, although its ledger says `started`."""
    (row,) = cut_off.get("/v1/threads").json["threads"]
    (call,) = cut_off.get("/v1/calls").json["calls"]
    numbers = cut_off.get("/metrics").body.decode().splitlines()

    assert (row["running"], row["interrupted"], row["unknown"]) == (False, True, 1)
    assert (call["thread"], call["tool"], call["state"]) == ("rent", "pay", "started")
    assert {"perdure_calls_interrupted 1", "perdure_runs_interrupted 1", "perdure_runs_running 0"} <= set(
        numbers
    )


def test_the_turn_of_a_run_that_a_kill_cut_off_says_so(cut_off: Client) -> None:
    """Nothing runs there, so nothing counts up; that a run lives is said in the next test, the control."""
    (turn,) = cut_off.get("/v1/threads/rent/turns").json["turns"]
    (node,) = cut_off.get("/v1/threads/rent/graph").json["nodes"]

    assert turn["status"] == node["turn"]["status"] == "interrupted"


def test_a_call_under_way_needs_no_attention(store: Store) -> None:
    """Control: while its process lives, the call is as it should be."""
    seen: list[Any] = []

    @perdure.tool(effect="financial")
    def pay(amount: int) -> str:
        turns = client.get("/v1/threads/rent/turns").json["turns"]
        seen.append(
            (client.get("/v1/threads").json["threads"][0], client.get("/v1/calls").json["calls"], turns)
        )
        return "paid"

    with serving(store) as client:
        agent = Agent("payer", backend=Script(use("pay", amount=13), say("Done.")), tools=[pay])
        store.thread("rent", agent=agent).run("Pay")

    ((row, calls, (turn,)),) = seen
    assert (row["running"], row["interrupted"], row["unknown"], calls) == (True, False, 0, [])
    assert turn["status"] == "running"


def test_a_list_has_the_threads_whose_last_run_failed_or_with_an_unknown_call(store: Store) -> None:
    """Each state has its own thread; control: a thread of which all went well is in neither list."""

    @perdure.tool(effect="financial")
    def pay(amount: int) -> str:
        raise TimeoutError

    for name, steps in (
        ("fine", [say("Done.")]),
        ("failed", []),
        ("unclear", [use("pay", amount=1), say("?")]),
    ):
        thread = store.thread(name, agent=Agent("payer", backend=Script(*steps), tools=[pay]))
        with suppress(RunFailed):
            thread.run("Pay")

    with serving(store) as client:
        listed = {
            state: [each["id"] for each in client.get(f"/v1/threads?state={state}").json["threads"]]
            for state in ("failed", "unknown")
        }

    assert listed == {"failed": ["failed"], "unknown": ["unclear"]}


NAMES = ("cheap", "dear", "old")


@pytest.fixture
def different(tmp_path: Path) -> Generator[Client]:
    """A client that sees threads which differ in backend, cost and age."""
    days_ago = [0.0]
    clock = lambda: now() - round(days_ago[0] * 86_400_000_000)  # noqa: E731
    with perdure.open(tmp_path / "different.db", clock=clock) as store:
        for name in NAMES:
            days_ago[0] = 40.0 if name == "old" else 0.5
            answer = say("Hello.", usage=Usage(input_tokens=1_000, output_tokens=0))
            model = Script(answer, backend="lab:large" if name == "dear" else "lab:small")
            price = 2.0 if name == "dear" else 0.25
            agent = Agent(name, backend=model, stop=Stop(price=lambda usage, usd=price: usd))
            store.thread(name, agent=agent).run("Hi")
        with serving(store) as client:
            yield client


def listed(client: Client, query: str) -> list[str]:
    """The ids of all threads that a query lists, over all pages."""
    found, after = list[str](), ""
    while True:
        reply = client.get(f"/v1/threads?{query}{after}")
        assert reply.status == 200, reply.body
        found += [row["id"] for row in reply.json["threads"] if row["id"] in NAMES]
        if "next" not in reply.json:
            return found
        after = f"&after={reply.json['next']}"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=2", ["cheap", "dear", "old"]),
        ("backend=LARGE", ["dear"]),
        ("backend=lab:small", ["cheap", "old"]),
        ("cost_usd_min=1", ["dear"]),
        ("cost_usd_min=0.1&cost_usd_max=0.3", ["cheap", "old"]),
        ("age_days_min=30", ["old"]),
        ("age_days_max=7", ["cheap", "dear"]),
        ("age_days_max=7&backend=small&cost_usd_max=1&limit=1", ["cheap"]),
        ("age_days_min=30&cost_usd_min=1", []),
    ],
)
@pytest.mark.parametrize("seconds", [2.0, -1.0], ids=["with time", "without time"])
def test_threads_are_found_by_backend_cost_and_age(
    different: Client, monkeypatch: pytest.MonkeyPatch, query: str, expected: list[str], seconds: float
) -> None:
    """A page that has no time left looks at one thread; all pages together find the same."""
    monkeypatch.setattr(thread_routes, "_LIST_SECONDS", seconds)

    assert listed(different, query) == expected


def test_the_threads_that_were_written_last_come_first(client: Client, store: Store) -> None:
    """Page by page, also for a key that sees few of them; a cursor of the other order is refused."""
    for number in (2, 0, 3, 1):
        store.thread(f"t{number}", agent="assistant", owner="ann").put("/n.json", number)
    store.thread("t0").put("/n.json", 9)
    ann = Client(client.port, key(store, "ann", "viewer", owners=["ann"]))

    seen = list[list[str]]()
    for reader in (client, ann):
        pages = [reader.get("/v1/threads?newest=true&limit=2").json]
        while "next" in pages[-1]:
            pages.append(reader.get(f"/v1/threads?newest=true&limit=2&after={pages[-1]['next']}").json)
        seen.append([each["id"] for page in pages for each in page["threads"] if each["id"][0] == "t"])

    assert seen == [["t0", "t1", "t3", "t2"]] * 2
    assert client.get("/v1/threads?newest=true&after=t1").json["code"] == "cursor_invalid"


def test_a_list_of_the_newest_reads_no_commit_twice(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order follows a new commit, and an undo; the times of commits that were read before are known."""
    for number in range(3):
        store.thread(f"t{number}", agent="assistant").put("/n.json", number)
    read = list[str]()
    log = View.log
    monkeypatch.setattr(View, "log", lambda self, **limit: read.append(self.digest) or log(self, **limit))

    def order() -> list[str]:
        rows = client.get("/v1/threads?newest=true").json["threads"]
        return [each["id"] for each in rows if each["id"][0] == "t"]

    first, once = order(), len(read)
    store.thread("t0").put("/n.json", 9)
    second, twice = order(), len(read) - once

    assert (first, second) == (["t2", "t1", "t0"], ["t0", "t2", "t1"])
    assert (
        once - twice == 3
    )  # the row of each thread reads its last commit; sorting has read all but that of t0
    store.thread("t0").undo()
    assert order() == first


def test_a_list_that_would_look_at_too_many_threads_is_refused(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a list of everything can begin with the newest; control: by id it begins, and one thread fewer is listed."""
    monkeypatch.setattr(thread_list, "LOOKED_AT_MAX", 3)
    for number in range(2):
        store.thread(f"t{number}", agent="assistant")
    few = client.get("/v1/threads?newest=true")
    store.thread("t3", agent="assistant")

    for path in ("/v1/threads?newest=true", "/v1/runs?state=failed", "/v1/runs?state=ended"):
        reply = client.get(path)
        assert (reply.status, reply.json["code"]) == (422, "too_many_threads"), reply.body

    assert len(few.json["threads"]) == 3
    assert client.get("/v1/threads").status == client.get("/v1/runs?newest=true").status == 200
    assert len(client.get("/v1/runs?state=ended&thread=chat").json["runs"]) == 1


@pytest.fixture
def ran(store: Store) -> None:
    """The runs below."""
    run_some(store)


def run_some(store: Store) -> None:
    """Make runs of several ends on threads of two owners, one after another, and two that have not begun."""
    broken = Agent("assistant", backend=Script())
    for id, owner in (("ailing", "ann"), ("other", "bob"), ("well", "ann")):
        with suppress(RunFailed):
            store.thread(id, agent=broken, owner=owner).run("Hi")
    answers = [say("Hello.", usage=Usage(input_tokens=7, output_tokens=2)) for _ in range(2)]
    model = Script(*answers)
    well = store.thread("well", agent=Agent("assistant", backend=model, stop=Stop(price=lambda _: 0.25)))
    well.run("Hi again")
    well.fork("aside").run("And again")
    for id in ("queued", "later"):
        store.thread(id, agent=broken, owner="ann").start("Later")


def listed_runs(client: Client, query: str) -> list[str]:
    """The threads of all runs that a query lists, over all pages of two."""
    found, after = list[str](), ""
    while True:
        reply = client.get(f"/v1/runs?limit=2{query}{after}")
        assert reply.status == 200, reply.body
        found += [each["thread"] for each in reply.json["runs"]]
        if "next" not in reply.json:
            return found
        after = f"&after={reply.json['next']}"


def test_runs_that_have_ended_are_listed_over_all_threads(ran: None, store: Store) -> None:
    """All of them, on every timeline, the newest first, in pages; those that have not ended are another list."""
    with serving(store) as client:
        ann = Client(client.port, key(store, "ann", "viewer", owners=["ann"]))

        assert listed_runs(client, "&state=ended") == ["well", "well", "well", "other", "ailing"]
        assert listed_runs(client, "&state=succeeded") == ["well", "well"]
        assert listed_runs(client, "&state=failed") == ["well", "other", "ailing"]
        assert listed_runs(client, "&state=cancelled") == []
        assert listed_runs(client, "&newest=true") == listed_runs(client, "&state=open&newest=true")
        assert listed_runs(client, "&newest=true") == ["later", "queued"]
        assert listed_runs(ann, "&state=failed") == ["well", "ailing"]
        assert listed_runs(client, "&state=ended&thread=other") == ["other"]
        assert listed_runs(client, "&state=created&thread=queued") == ["queued"]
        refused = [ann.get(f"/v1/runs?thread=other{state}").status for state in ("", "&state=ended")]
        assert refused == [404, 404]


def test_a_list_of_runs_has_what_each_cost_if_it_is_asked_for(ran: None, store: Store) -> None:
    """Of its own steps; a run that asked no model cost nothing.  Control: without the question nothing is read."""
    with serving(store) as client:
        asked, without = (
            client.get(f"/v1/runs?state=ended{cost}").json["runs"] for cost in ("&cost=true", "")
        )

    spent = {(each["timeline"], each["state"]): (each["cost"], each["usage"]) for each in asked}
    assert spent["main", "succeeded"] == spent["aside", "succeeded"]
    assert spent["main", "succeeded"][0] == {"usd": 0.25, "steps": 1, "unpriced": 0}
    assert spent["main", "succeeded"][1]["input_tokens"] == 7
    assert spent["main", "failed"][0] == {"usd": 0.0, "steps": 0, "unpriced": 0}
    assert [(each["cost"], each["usage"]) for each in without] == [(None, None)] * 5


def test_a_page_of_runs_costs_what_it_has_beside_one_run_of_each_thread(
    many: None, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that are further back are not read, nor the line after them; control: the whole list reads them all."""
    read, steps = list[Any](), list[Any]()
    runs, of_run = records.last, results.of_run
    monkeypatch.setattr(records, "last", lambda *of, **how: read.extend(found := runs(*of, **how)) or found)
    monkeypatch.setattr(results, "of_run", lambda *of: steps.extend(found := of_run(*of)) or found)
    monkeypatch.setattr(results, "spent_by", None)
    with serving(store) as client:
        first = client.get("/v1/runs?state=ended&limit=2&cost=true").json
        once, read_once = len(read), len(steps)
        following = client.get(f"/v1/runs?state=ended&limit=2&after={first['next']}").json
        twice = len(read) - once
        client.get("/v1/runs?state=ended&limit=500")

    threads = 6  # with `noting`, whose five runs came before those of the others
    assert {each["thread"] for each in first["runs"] + following["runs"]} == {
        f"sending-{number}" for number in range(1, 5)
    }
    assert max(once, twice) <= threads + 12
    assert len(read) - once - twice >= 15
    assert read_once < 30


def test_a_state_that_few_runs_have_is_looked_for_a_bounded_time(
    ran: None, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no time left each page looks at one run; all pages together find what one page with enough time finds."""
    monkeypatch.setattr(store_routes, "_RUNS_SECONDS", -1.0)
    with serving(store) as client:
        first = client.get("/v1/runs?state=failed").json

        assert (first["runs"], first["more"]) == ([], True)
        assert listed_runs(client, "&state=failed") == ["well", "other", "ailing"]


def test_a_thread_whose_runs_are_damaged_does_not_hide_the_others(tmp_path: Path) -> None:
    """The list names it; control: a program reads its runs as `Corrupt`."""
    path = tmp_path / "damaged.db"
    with perdure.open(path) as store:
        run_some(store)
    with closing(sqlite3.connect(path)) as file, file:
        changed = file.execute(
            "UPDATE cells SET value = replace(value, 'failed', 'failxd') WHERE name GLOB 'run/*' AND space = "
            "(SELECT space FROM cells WHERE name GLOB 'run/*' ORDER BY space LIMIT 1)"
        )
        assert changed.rowcount == 1

    with perdure.open(path) as store, serving(store) as client:
        page = client.get("/v1/runs?state=ended").json
        with pytest.raises(Corrupt):
            store.thread("ailing").runs()

    assert page["damaged"] == ["ailing"]
    assert [each["thread"] for each in page["runs"]] == ["well", "well", "well", "other"]


def test_a_cursor_names_no_thread_that_the_key_may_not_see(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that has no time left looks at one thread of this owner; the pages together have all of them."""
    monkeypatch.setattr(thread_routes, "_LIST_SECONDS", -1.0)
    for id, owner in [
        ("a-ann", "ann"),
        ("b-bob", "bob"),
        ("c-ann", "ann"),
        ("d-bob", "bob"),
        ("e-ann", "ann"),
    ]:
        store.thread(id, agent="assistant", owner=owner)
    bob = Client(client.port, key(store, "bob", "viewer", owners=["bob"]))

    pages = [bob.get("/v1/threads").json]
    while "next" in pages[-1]:
        pages.append(bob.get(f"/v1/threads?after={pages[-1]['next']}").json)

    assert not any(
        id in (pages[0]["next"] + bob.get("/v1/threads").body.decode()) for id in ("a-ann", "c-ann")
    )
    assert len(pages) == 2
    assert [each["id"] for page in pages for each in page["threads"]] == ["b-bob", "d-bob"]


@pytest.mark.parametrize(
    ("page", "data"),
    [
        ("/", "/v1/threads"),
        ("/?focus=1&q=chat", "/v1/threads?q=chat"),
        ("/threads/chat?at=HEAD&tab=calls&call=c1", "/v1/threads/chat?at=HEAD"),
        ("/threads/chat?at=HEAD&tab=state&path=%2Fpl%C3%A4n.json", "/v1/threads/chat?at=HEAD"),
        ("/threads/chat?path=%2Fpl%C3%A4n.json&place=%5B%22a%22%5D", "/v1/threads/chat"),
        ("/threads/chat/calls?effect=financial&call=c1", "/v1/threads/chat/calls?effect=financial"),
        ("/threads/chat/blame?path=%2Fpl%C3%A4n.json", "/v1/threads/chat/blame?path=%2Fpl%C3%A4n.json"),
        ("/approvals?call=chat%2Fc1", "/v1/approvals"),
    ],
)
def test_each_address_of_the_page_gives_its_data(client: Client, store: Store, page: str, data: str) -> None:
    """What only chooses what is in view does not change the data, unless the data are asked for by it."""
    store.thread("chat").put("/plän.json", 1)

    reply = client.get(page, Accept="application/json")

    assert (reply.status, reply.body) == (200, client.get(data).body)


@pytest.mark.parametrize("amount", [13, 14])
def test_the_inbox_marks_a_repeat_that_another_opening_may_have_made(
    store: Store, tmp_path: Path, amount: int
) -> None:
    """The tool asks by itself as well; control: another payment is no repeat."""

    @perdure.tool(effect="financial", ask=True)
    def pay(amount: int) -> str:
        raise TimeoutError("no answer")

    thread = store.thread("rent", agent=assistant(use("pay", amount=13), say("Hm."), tools=[pay]))
    thread.decide(thread.run("Pay").approvals[0].call, "approve", by="ann")
    thread.resume()
    with perdure.open(tmp_path / "store.db") as other:
        agent = assistant(use("pay", amount=amount), tools=[pay])
        other.thread("rent", agent=agent).run("Pay again")
        with serving(other, agent) as client:
            (listed,) = client.get("/v1/approvals").json["approvals"]

    is_repeat = amount == 13
    assert listed["repeat"] == ("possible" if is_repeat else None)
    assert ("it may have happened" in listed["message"]) == is_repeat


def test_an_unknown_parameter_of_a_page_is_refused(client: Client) -> None:
    """Control: only what the page itself uses is left out, and only at its own addresses."""
    statuses = [
        client.get(path, Accept="application/json").status
        for path in ("/threads?sort=cost", "/v1/threads?focus=1", "/v1/threads/chat?tab=calls")
    ]

    assert statuses == [422] * 3


@pytest.mark.parametrize("outcome", ["done", "not_done", None])
def test_the_inbox_says_of_a_repeat_what_its_card_says(store: Store, outcome: str | None) -> None:
    """The earlier call was settled after the question was asked; control: it was not, so it may have happened."""
    sent: list[int] = []

    @perdure.tool(effect="financial")
    def pay(amount: int) -> str:
        sent.append(amount)
        raise TimeoutError("no answer")

    agent = assistant(use("pay", amount=13), say("Hm."), use("pay", amount=13), tools=[pay])
    thread = store.thread("rent", agent=agent)
    earlier = thread.run("Pay").unclear_calls[0]
    thread.run("Pay again")
    with serving(store, agent) as client:
        if outcome is not None:
            client.post(f"/v1/threads/rent/calls/{earlier}/resolve", {"outcome": outcome, "why": "a letter"})
        (listed,) = client.get("/v1/approvals").json["approvals"]
        card = client.get(f"/v1/threads/rent/approvals/{listed['call']}").json["ticket"]

    assert sent == [13]
    assert (listed["repeat"], card["repeat"]) == (outcome or "possible",) * 2
    assert listed["message"] == card["message"]


def test_the_turns_say_as_what_an_unclear_call_was_settled(store: Store) -> None:
    """Beside the error that the model was shown then; the result of its run does not name it any more."""

    @perdure.tool(effect="financial")
    def pay(amount: int) -> str:
        raise TimeoutError("no answer")

    agent = assistant(use("pay", amount=13), say("Hm."), tools=[pay])
    store.thread("rent", agent=agent)
    with serving(store, agent) as client:

        def pays() -> list[str]:
            return client.post("/v1/threads/rent/run", {"text": "Pay"}, Idempotency_Key="pay").json["unclear"]

        (call,) = pays()
        before = client.get("/v1/threads/rent/turns").json
        client.post(f"/v1/threads/rent/calls/{call}/resolve", {"outcome": "done", "why": "a letter"})
        after = client.get("/v1/threads/rent/turns").json
        assert pays() == []

    assert before["turns"][0]["unclear"] == after["turns"][0]["unclear"] == [call]
    assert (before["settled"], after["settled"]) == ({}, {call: "done"})


def test_calls_are_listed_by_effect(store: Store) -> None:
    """Those of another effect are left out; control: without the filter they are there."""
    agent = assistant(use("look"), say("Seen."), tools=[look])
    store.thread("chat", agent=agent).run("Look")
    with serving(store) as client:
        found = [
            len(client.get(f"/v1/threads/chat/calls{query}").json["calls"])
            for query in ("", "?effect=read_only", "?effect=financial")
        ]

    assert found == [1, 1, 0]


@perdure.tool(effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


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


def test_a_search_of_one_timeline_goes_back_to_its_first_turn(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page begins before the one before it; a message that only another timeline has is not found."""
    thread = store.thread("chat")
    for number in range(5):
        with thread.change("say") as change:
            change.say("user", f"tile {number}")
    with thread.fork("other", at="turn:4").change("say") as change:
        change.say("user", "tile elsewhere")
    monkeypatch.setattr(store_routes, "_SEARCH_SECONDS", -1.0)
    monkeypatch.setattr("perdure.shapes.search._TURNS_AT_ONCE", 2)
    path = "/v1/search?q=tile&thread=chat&timeline=other"

    pages = [client.get(path).json]
    while "next" in pages[-1]:
        pages.append(client.get(f"{path}&after={pages[-1]['next']}").json)

    said = [[hit["message"]["text"] for hit in page["found"]] for page in pages]
    assert said == [["tile elsewhere", "tile 2"], ["tile 1", "tile 0"], []]


@pytest.mark.parametrize("of", ["", "&thread=notes"])
def test_a_search_passes_over_a_damaged_message(tmp_path: Path, of: str) -> None:
    """The others are found; control: the damaged one is read as `Corrupt` by a program."""
    with perdure.open(tmp_path / "perdure.db") as store:
        for text in ("tile one", "tile two", "tile three"):
            with store.thread("notes", agent="a").change("said") as change:
                change.say("user", text)
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as file, file:
        file.execute("UPDATE log SET bodies = replace(bodies, 'two', 'owt')")

    with perdure.open(tmp_path / "perdure.db") as store, serving(store) as client:
        found = client.get(f"/v1/search?q=tile{of}").json["found"]
        with pytest.raises(Corrupt):
            store.thread("notes").turns()

    assert [each["message"]["text"] for each in found] == ["tile three", "tile one"]


@pytest.mark.parametrize(("limit", "nodes"), [(0, 8), (1, 2), (3, 3), (4, 4), (100, 8)])
def test_the_turns_of_a_graph_are_those_of_its_commits_one_by_one(
    store: Store, limit: int, nodes: int
) -> None:
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

    assert len(page.nodes) == nodes  # with the end of another timeline, where it is older
    for node, short in zip(page.nodes, brief.nodes, strict=True):
        seen = thread.at(node.commit)
        assert node.turn == TurnPage.of(thread, seen, limit=1).turns[0]
        assert (short.commit, short.parents, short.turn.input) == (node.commit, node.parents, node.turn.input)
        assert (short.turn.messages, short.turn.changed) == ([], [])


@pytest.fixture
def many(store: Store) -> None:
    """Runs with calls of one result, calls of unknown outcome and queued runs: five of each."""

    @perdure.tool(effect="external_write")
    def note(number: int) -> str:
        return "noted"

    @perdure.tool(effect="external_write")
    def send(number: int) -> str:
        raise TimeoutError("no answer")

    answers = [answer for number in range(5) for answer in (use("note", number=number), say("Noted."))]
    noting = store.thread("noting", agent=Agent("noter", backend=Script(*answers), tools=[note]))
    for _ in range(5):
        noting.run("Note it")
    for number in range(5):
        sender = Agent("sender", backend=Script(use("send", number=number), say("Sent?")), tools=[send])
        sending = store.thread(f"sending-{number}", agent=sender)
        sending.run("Send it")
        sending.start("Later")
        store.memory("ann").add(f"Ann likes {number} lumps of sugar.")


@pytest.mark.parametrize(
    ("path", "items", "is_newest_first"),
    [
        ("/v1/threads/noting/calls", "calls", True),
        ("/v1/threads/noting/calls?state=succeeded", "calls", True),
        ("/v1/threads/noting/runs", "runs", True),
        ("/v1/threads/noting/artifacts?calls=true", "artifacts", False),
        ("/v1/calls", "calls", False),
        ("/v1/runs", "runs", False),
        ("/v1/runs?state=created", "runs", False),
        ("/v1/runs?state=ended", "runs", False),
        ("/v1/runs?state=ended&thread=noting", "runs", False),
        ("/v1/memory/ann", "items", False),
    ],
)
def test_a_list_in_pages_has_each_of_its_items_once(
    client: Client, many: None, path: str, items: str, is_newest_first: bool
) -> None:
    """The pages of two are those of the whole list; artifacts of one digest are several items."""
    and_ = "&" if "?" in path else "?"
    pages, after = list[list[Any]](), ""
    while len(pages) < 20:
        page = client.get(f"{path}{and_}limit=2{after}").json
        pages.append(page[items])
        if not page["more"]:
            break
        after = f"&after={page['next']}"

    found = [each for part in (reversed(pages) if is_newest_first else pages) for each in part]
    assert found == client.get(f"{path}{and_}limit=500").json[items]
    assert len(found) >= 5  # control: there is more than one page


def test_a_page_after_what_is_listed_no_more_is_no_empty_one(client: Client, many: None) -> None:
    """An artifact may be forgotten between two pages; without the error a client takes the list for read."""
    path = "/v1/threads/noting/artifacts?calls=true&limit=2"
    following = client.get(path).json["next"]

    reply = client.get(f"{path}&after={following.replace(following[:4], 'gone', 1)}")

    assert (reply.status, reply.json["code"]) == (422, "cursor_invalid")
    assert "`next`" in reply.json["advice"]
    assert client.get(f"{path}&after={following}").json["artifacts"]  # control


def test_a_list_that_takes_a_cursor_gives_one() -> None:
    """No route takes an `after` that it passes over; control: most lists take one."""
    pages = [each for each in Router().routes if each.query and "after" in fields_of(each.query)]

    assert len(pages) > 15
    assert [each.path for each in pages if get_origin(each.answer) is not Paged and each.media == JSON] == []


def fields_of(query: type[BaseQuery]) -> tuple[str, ...]:
    """The names of the parameters that a route takes."""
    return query.__struct_fields__


def test_costs_are_added_up_by_model(client: Client, many: None, store: Store) -> None:
    """Over HTTP as in Python; control: by thread the same steps have other names."""
    pages = [client.get(f"/v1/costs?by=model{of}").json for of in ("", "&thread=noting")]

    counted = [{each["of"]: each["cost"]["steps"] for each in page["costs"]} for page in pages]
    assert counted[0] == {name: cost.steps for name, cost in store.costs("model").items()}
    assert counted[1] == {"script:test": 10}
    assert "script:test" not in store.costs("thread")


def test_threads_are_found_by_the_titles_that_they_were_imported_with(store: Store, tmp_path: Path) -> None:
    """In the list and in a search, with the time when they were said last; control: other words find none."""
    titled: list[dict[str, Any]] = [
        test_chatgpt.conversation(f"c-{number}") | {"title": f"Trip to {city}"}
        for number, city in enumerate(("Oslo", "Rome"))
    ]
    titled[1]["mapping"]["a3"]["message"]["create_time"] += 86_400
    import_sessions(store, test_chatgpt.saved(tmp_path, *titled))

    with serving(store) as client:
        found = [
            client.get(f"/v1/threads?q={words}").json["threads"] for words in ("trip+chatgpt", "oslo+hats")
        ]
        newest = [each["title"] for each in client.get("/v1/threads?q=trip&newest=true").json["threads"]]
        searched = client.get("/v1/search?q=rome").json["titles"]
        shown = client.get("/v1/threads/chatgpt:c-0").json

    assert [[each["title"] for each in rows] for rows in found] == [["Trip to Oslo", "Trip to Rome"], []]
    assert found[0][0]["said_at"] == shown["said_at"] == "2023-11-14T22:13:20.500000Z"
    assert (newest, shown["title"]) == (["Trip to Rome", "Trip to Oslo"], "Trip to Oslo")
    assert searched == [{"thread": "chatgpt:c-1", "title": "Trip to Rome"}]
