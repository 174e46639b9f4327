"""The examples of the three documents that running agents make real: when commits are made, scopes, tool events."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

import perdure
from perdure import Agent, Call, Plugin, Store, Thread
from perdure.errors import PerdureError, RunFailed, Unavailable
from perdure.history import writer
from perdure.model.event import ToolCallCompleted, ToolCallRequested
from perdure.model.patch import Clear, Replace
from perdure.runtime.tools.call import scratch_prefix
from perdure.testing import Script, fail, say, step, use
from perdure.testing.script import ScriptStep

ARGS: dict[str, Any] = {"repo": "org/joch", "query": "memory migration"}


@perdure.tool(effect="read_only", name="github.search_issues")
def search(repo: str, query: str) -> list[str]:
    """Search the issues of a repository."""
    return [f"{repo}#1: {query}"]


@perdure.tool(
    effect="external_write", name="zendesk.create", key="zendesk-create-{ticket}", key_scope="store"
)
def create(ticket: int, call: Call) -> str:
    """Create a ticket."""
    call.put("/tickets.json", [ticket])
    call.scratch.put("/draft", ticket)
    return "created"


@perdure.tool(effect="local_write", idempotent=True)
def ask(call: Call) -> str:
    """Ask somebody."""
    if call.decision is None:
        call.scratch.put("/draft", "half")
        call.suspend("What shall it be?")
    return str(call.scratch.get("/draft"))


def agent(*steps: ScriptStep, **options: Any) -> Agent:
    """The agent of the examples, whose model takes these steps."""
    return Agent("researcher", backend=Script(*steps), tools=[search, create, ask], **options)


def reasons(thread: Thread) -> list[str]:
    """Why each commit was made, oldest first."""
    return [commit.reason for commit in reversed(thread.log())]


# ---- Persistence and Versioning: checkpoint timing


def test_the_checkpoints_of_a_run_have_the_documents_reasons(store: Store) -> None:
    """UserMessage, AssistantTurnCommitted, ToolResultsCommitted, AssistantTurnCommitted, RunFinished."""
    thread = store.thread("conv-123", agent=agent(use("github.search_issues", **ARGS), say("One issue.")))

    thread.run("Search")

    assert reasons(thread) == [
        "user_message",
        "assistant_turn_committed",
        "tool_results_committed",
        "assistant_turn_committed",
        "run_finished",
    ]


def test_streaming_follows_the_same_schedule(store: Store) -> None:
    """`run_stream` persists as `run` does: the same reasons and roots in the same order."""
    noting = Plugin("noting", after_inference=_note)
    steps = (use("github.search_issues", **ARGS), say("Done."))
    run, streamed = (store.thread(id, agent=agent(*steps, plugins=[noting])) for id in ("run", "streamed"))

    run.run("Search")
    list(streamed.stream("Search"))

    assert [(each.reason, each.root) for each in run.log()] == [
        (each.reason, each.root) for each in streamed.log()
    ]


def test_the_effects_of_run_start_are_persisted_before_any_replay(store: Store) -> None:
    """A second UserMessage checkpoint holds them; without any there is none."""
    start = Plugin("start", run_start=lambda moment: moment.put("/started.json", moment.run))
    with_effects = store.thread("with", agent=agent(say("Hello."), plugins=[start]))
    without = store.thread("without", agent=agent(say("Hello.")))

    with_effects.run("Hi")
    without.run("Hi")

    assert reasons(with_effects)[:3] == ["user_message", "user_message", "assistant_turn_committed"]
    assert reasons(without)[:2] == ["user_message", "assistant_turn_committed"]


def test_replayed_decisions_are_persisted_as_tool_results(store: Store) -> None:
    """If the outbox is replayed at the start, its outputs are committed before the model is asked."""
    thread = store.thread("conv-123", agent=agent(use("ask"), say("Thanks.")))
    (ticket,) = thread.run("Ask").approvals
    before = len(thread.log())

    thread.decide(ticket.call, "approve")
    thread.resume()

    assert reasons(thread)[before:] == ["tool_results_committed", "assistant_turn_committed", "run_finished"]


def test_the_end_is_committed_even_if_nothing_is_new(store: Store) -> None:
    """A forced commit marks the end of the run; other commits without content are left out."""
    thread = store.thread("conv-123", agent=agent(say("Hello.")))

    thread.run("Hi")

    last = thread.log()[0]
    assert (last.reason, last.patch.ops, last.root) == ("run_finished", (), thread.log()[1].root)
    assert len(thread.log()) == 3


def test_inbound_messages_are_deduplicated_and_may_replace_the_state(store: Store) -> None:
    """The inbound checkpoint holds each message once, and a snapshot only where state was handed in."""
    thread = store.thread("conv-123", agent=agent(say("Hello."), say("Hello again.")))
    thread.put("/old.json", 1)

    thread.run("Hi", id="msg-1", state={"/new.json": 2})
    thread.run("Hi", id="msg-1", state={"/new.json": 2})
    thread.run("And?", id="msg-2")

    assert [entry.id for entry in thread.transcript() if entry.role == "user"] == ["msg-1", "msg-2"]
    assert thread.paths() == ["/new.json"]
    snapshots = [op for commit in thread.log() for op in commit.patch.ops if isinstance(op, Replace)]
    assert len(snapshots) == 1


# ---- Persistence and Versioning: failure semantics


def failing_at(reason: str, commit: Callable[..., Any]) -> Callable[..., Any]:
    """The writer, as it is when the store cannot be written just when that commit is due."""

    def refused(space: Any, head: Any, *proposals: Any, **options: Any) -> Any:
        if any(each.reason == reason for each in proposals):
            raise Unavailable("the disk is full; nothing was written.")
        return commit(space, head, *proposals, **options)

    return refused


@pytest.mark.parametrize("reason", ["assistant_turn_committed", "tool_results_committed", "run_finished"])
def test_a_checkpoint_that_fails_fails_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """A state error; of a final checkpoint that failed, no finish is told, for it was not confirmed durable."""
    thread = store.thread("conv-123", agent=agent(use("github.search_issues", **ARGS), say("One issue.")))
    seen: list[str] = []

    with monkeypatch.context() as patched, pytest.raises(PerdureError) as failed:
        patched.setattr(writer, "commit", failing_at(reason, writer.commit))
        seen.extend(event.type for event in thread.stream("Search"))

    assert isinstance(failed.value, RunFailed | Unavailable)
    assert "run.ended" not in seen
    finished = [
        event
        for commit in thread.log()
        for event in commit.events
        if event.__class__.__name__ == "RunFinished"
    ]
    assert not any(getattr(event, "status", None) == "succeeded" for event in finished)


def test_no_checkpoint_fails_if_the_store_can_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: where no commit of that reason is due, the run succeeds and its finish is told."""
    thread = store.thread("conv-123", agent=agent(use("github.search_issues", **ARGS), say("One issue.")))
    monkeypatch.setattr(writer, "commit", failing_at("never", writer.commit))

    seen = [event.type for event in thread.stream("Search")]

    assert seen[-1] == "run.ended"
    assert reasons(thread)[-1] == "run_finished"


# ---- Persistence and Versioning: state scope lifecycle


def test_each_scope_lives_as_long_as_the_document_says(store: Store) -> None:
    """Thread across runs; run until the next is prepared; call until the call completes."""
    declared = [perdure.state("/plan", scope="run"), perdure.state("/notes")]
    first = Plugin("first", after_inference=_note)
    thread = store.thread("conv-123", agent=agent(say("Noted."), state=declared, plugins=[first]))
    thread.run("Note it")
    assert thread.paths() == ["/notes/a.json", "/plan/steps.json"]

    thread = store.thread("conv-123", agent=agent(use("ask"), state=declared))
    (ticket,) = thread.run("Ask").approvals
    scratch = scratch_prefix(ticket.call)
    assert thread.paths() == [f"{scratch}/draft", "/notes/a.json"]

    thread.decide(ticket.call, "approve")
    store.thread("conv-123", agent=agent(use("ask"), say("Thanks."), state=declared)).resume()
    assert thread.paths() == ["/notes/a.json"]


def _note(moment: Any) -> None:
    moment.put("/notes/a.json", 1)
    moment.put("/plan/steps.json", ["search"])


def test_run_scoped_paths_are_deleted_when_a_run_is_prepared(store: Store) -> None:
    """Only those that are present, by ordinary ops; `__run` is always of run scope."""
    declared = [perdure.state("/plan", scope="run"), perdure.state("/absent", scope="run")]
    planner = agent(say("Once."), say("Twice."), state=declared)
    assert planner.run_scoped_paths() == ("/__run", "/plan", "/absent")
    thread = store.thread("conv-123", agent=planner)
    thread.put("/plan/steps.json", ["search"])

    thread.run("Go")

    cleared = [op.prefix for commit in thread.log() for op in commit.patch.ops if isinstance(op, Clear)]
    assert (cleared, thread.paths()) == (["/plan"], [])


# ---- State Portability: tool calls as events


def test_a_tool_call_is_persisted_as_the_documents_two_events(store: Store) -> None:
    """tool.call.requested with tool and arguments; tool.call.completed with result_ref, status, side_effects."""
    thread = store.thread("conv-123", agent=agent(use("github.search_issues", **ARGS), say("One issue.")))

    thread.run("Search")

    events = [event for commit in reversed(thread.log()) for event in commit.events]
    (requested,) = [each for each in events if isinstance(each, ToolCallRequested)]
    (completed,) = [each for each in events if isinstance(each, ToolCallCompleted)]
    assert (requested.tool, requested.side_effects) == ("github.search_issues", "read_only")
    assert (completed.call, completed.status, completed.side_effects) == (
        requested.call,
        "succeeded",
        "read_only",
    )
    kept = str(completed.result_ref).removeprefix("artifact://sha256/")
    assert b"".join(thread.artifacts.get(kept)) == b'["org/joch#1: memory migration"]'


def test_a_side_effecting_call_is_flagged_with_key_and_level(store: Store) -> None:
    """idempotencyKey zendesk-create-12345, level external_write, not idempotent."""
    thread = store.thread("conv-123", agent=agent(use("zendesk.create", ticket=12345), say("Created.")))

    thread.run("Create it")

    (call,) = thread.calls()
    assert (call.key, call.effect, call.idempotent) == ("zendesk-create-12345", "external_write", False)
    (requested,) = [e for c in thread.log() for e in c.events if isinstance(e, ToolCallRequested)]
    assert (requested.idempotency_key, requested.side_effects) == ("zendesk-create-12345", "external_write")


@pytest.mark.parametrize(("backend", "status"), [("other:model", "waiting"), ("script:test", "succeeded")])
def test_another_provider_cannot_repeat_it_by_accident(store: Store, backend: str, status: str) -> None:
    """The guard asks a new backend; control: the one that did it may do it again, for that is its business."""

    @perdure.tool(effect="communication")
    def mail(to: str) -> str:
        """Send an e-mail."""
        return "sent"

    again = Script(use("mail", to="ann"), say("Sent."), backend=backend)
    once = Agent("mailer", backend=Script(use("mail", to="ann"), say("Sent.")), tools=[mail])
    store.thread("conv-123", agent=once).run("Mail Ann")

    thread = store.thread("conv-123", agent=once.on(again))
    thread.switch(again)

    assert thread.run("Mail Ann").status == status


def test_the_table_of_tool_events_is_filled_by_a_run(tmp_path: Path) -> None:
    """tool_name, args_json, result_ref, idempotency_key and side_effect_level, in stock SQLite."""
    steps = (step(use("github.search_issues", **ARGS), use("zendesk.create", ticket=12345)), say("Done."))
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("conv-123", agent=agent(*steps))
        thread.run("Go")
        refs = [call.result for call in thread.calls()]
        keys = [call.key for call in thread.calls()]

    with closing(sqlite3.connect(tmp_path / "agents.db")) as connection:
        columns = "tool_name, args_json, result_ref, idempotency_key, side_effect_level"
        found = list(connection.execute(f"SELECT {columns} FROM tool_events ORDER BY tool_name"))

    assert found == [
        (
            "github.search_issues",
            '{"repo": "org/joch", "query": "memory migration"}',
            refs[0],
            keys[0],
            "read_only",
        ),
        ("zendesk.create", '{"ticket": 12345}', refs[1], "zendesk-create-12345", "external_write"),
    ]


# ---- State Store: the pointer of a run


@pytest.mark.parametrize(
    ("last", "moved"), [(say("Done."), True), (fail(), False)], ids=["success", "failure"]
)
@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_on_success_the_pointer_advances_and_on_failure_it_stays(
    store: Store, last: ScriptStep, policy: Literal["each_step", "on_success"], *, moved: bool
) -> None:
    """HEAD → commit_c, or the state as it was; the input is kept either way."""
    thread = store.thread("ses-001", agent=agent(use("zendesk.create", ticket=1), last))
    thread.put("/tickets.json", [])

    try:
        thread.run("Create it", head_policy=policy)
    except RunFailed:
        assert not moved

    assert thread.get("/tickets.json") == ([1] if moved else [])
    assert thread.transcript()[0].text == "Create it"


def test_a_fork_of_an_earlier_turn_runs_with_the_state_of_that_turn(store: Store) -> None:
    """All reads of the agent there resolve through the historical snapshot."""
    seen: list[object] = []

    @perdure.tool(effect="local_write", idempotent=True)
    def add(item: str, call: Call) -> str:
        """Add something to the list."""
        found = call.get("/todos.json", default=[])
        seen.append(found)
        call.put("/todos.json", [*found, item])
        return "added"

    todo = Agent("todoapp", tools=[add])
    for item in ("milk", "dog"):
        store.thread("ses-001", agent=todo.on(Script(use("add", item=item), say("Added.")))).run(item)
    thread = store.thread("ses-001")
    thread.fork("again", at="turn:1")

    fork = store.thread("ses-001", agent=todo.on(Script(use("add", item="cat"), say("."))), timeline="again")
    fork.run("cat")

    assert seen == [[], ["milk"], ["milk"]]
    assert (fork.get("/todos.json"), thread.get("/todos.json")) == (["milk", "cat"], ["milk", "dog"])
