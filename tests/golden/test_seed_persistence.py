"""The examples of the document *Persistence and Versioning*: changesets, exact versions, reasons and scopes."""

from __future__ import annotations

import msgspec
import pytest

import perdure
from perdure import Store, Thread
from perdure.errors import Conflict, Invalid, StaleHead
from perdure.model.commit import Changeset, RunMeta, StateAction, encode_changeset
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.model.patch import Patch, Put, Replace, Stored
from perdure.runtime.agent.agent import Scope
from tests.coded import raises


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread at version 1."""
    begun = store.thread("trip", agent="planner")
    begun.put("/trip.json", {"to": "Oslo"})
    return begun


def test_append_with_the_exact_version_gives_the_next(thread: Thread) -> None:
    """Load thread and version, build the delta, append with the expected version, get the committed one."""
    loaded = thread.head

    with thread.change("delta", head=loaded) as change:
        change.say("user", "Make it Bergen.")
        change.put("/trip.json", {"to": "Bergen"})

    assert change.head is not None
    assert (loaded.version, change.head.version) == (1, 2)
    assert thread.head == change.head


def test_append_with_another_version_writes_nothing(thread: Thread) -> None:
    """It prevents silent lost updates under concurrent writers."""
    loaded = thread.head
    thread.put("/trip.json", {"to": "Bergen"})

    with pytest.raises(StaleHead) as stale, thread.change("delta", head=loaded) as change:
        change.put("/trip.json", {"to": "Tromsø"})

    assert (stale.value.expected, stale.value.actual) == (loaded, thread.head)
    assert thread.get("/trip.json") == {"to": "Bergen"}


def test_a_snapshot_replaces_the_base_state_and_no_history(thread: Thread) -> None:
    """A frontend hands in a whole state; what was before can still be read."""
    thread.put("/notes/a.json", 1)
    before = thread.head

    with thread.change("inbound") as change:
        change.replace({"/trip.json": {"to": "Bergen"}})

    assert thread.paths() == ["/trip.json"]
    assert thread.at(before).paths() == ["/notes/a.json", "/trip.json"]
    assert isinstance(thread.log()[0].patch.ops[0], Replace)


def test_a_changeset_has_the_names_of_the_document() -> None:
    """run_id, parent_run_id, run_meta, reason, state_actions; messages are events, patches one patch."""
    digest = Digest("ab" * 32)
    changeset = Changeset(
        reason="user_message",
        run_id="run-2",
        parent_run_id="run-1",
        run_meta=RunMeta(backend="openai:gpt-5.6"),
        events=(MessageAppended(id="m-1", role="user", body=digest, size=1),),
        patch=Patch((Put("/a.json", digest, 1), Replace({"/a.json": Stored(digest, 1)}))),
        state_actions=(StateAction("book", "tool:book", digest),),
    )

    shape = msgspec.json.decode(encode_changeset(changeset))

    assert set(shape) == {"run_id", "parent_run_id", "run_meta", "reason", "events", "patch", "state_actions"}
    assert [event["type"] for event in shape["events"]] == ["message.appended"]
    assert [op["op"] for op in shape["patch"]["ops"]] == ["put", "replace"]


def test_inbound_messages_are_told_apart_by_id(thread: Thread) -> None:
    """The same message twice is refused; under another id it is another message."""
    with thread.change("inbound") as change:
        change.say("user", "Hello.", id="msg-1")

    with raises(Conflict, "message_exists", message_id="msg-1"), thread.change("inbound") as change:
        change.say("user", "Hello.", id="msg-1")
    with thread.change("inbound") as change:
        change.say("user", "Hello.", id="msg-2")

    assert [entry.id for entry in thread.transcript()] == ["msg-1", "msg-2"]


@pytest.mark.parametrize(
    "reason", ["user_message", "assistant_turn_committed", "tool_results_committed", "run_finished"]
)
def test_the_reasons_of_the_schedule_belong_to_runs(thread: Thread, reason: str) -> None:
    """A change by hand gives a reason of its own; a step of a run may have these."""
    with raises(Invalid, "reason_reserved"):
        thread.change(reason)

    with thread.change(reason, run="run-1") as change:
        change.put("/step.json", 1)

    assert (thread.log()[0].reason, thread.log()[0].run) == (reason, "run-1")


def test_the_steps_of_a_run_are_one_turn(thread: Thread) -> None:
    """Every checkpoint of the runtime is a commit; the turn is what they make together."""
    for reason in ("user_message", "assistant_turn_committed", "tool_results_committed", "run_finished"):
        with thread.change(reason, run="run-1") as change:
            change.put("/step.json", reason)

    assert [turn.reason for turn in thread.turns()] == ["put", "user_message"]
    assert thread.turns()[-1].run == "run-1"
    thread.undo()
    assert thread.paths() == ["/trip.json"]


@pytest.mark.parametrize("scope", ["thread", "run", "call"])
def test_state_is_declared_with_a_scope(scope: Scope) -> None:
    """The three scopes of the document; there is no other."""
    assert perdure.state("/trip.json", scope=scope).scope == scope
    with raises(Invalid, "state_scope_invalid", scope="forever", prefix="/trip.json"):
        perdure.state("/trip.json", scope="forever")  # pyright: ignore[reportArgumentType]


def test_replacing_the_state_leaves_what_belongs_to_runs_and_calls(thread: Thread) -> None:
    """`__run`, `__kernel` and `__tool_call_scope` are not part of the state that a frontend may hand in."""
    kept = ["/__kernel/stop_policy_runtime", "/__run/step", "/__tool_call_scope/call_1/draft"]
    with thread.change("a run at work", run="run-1") as change:
        for path in kept:
            change.put(path, 1)

    with thread.change("inbound") as change:
        change.replace({"/trip.json": {"to": "Bergen"}})

    assert thread.paths() == [*kept, "/trip.json"]
    with raises(Invalid, "path_kept_by_replace", path="/__run/step"), thread.change("inbound") as change:
        change.replace({"/__run/step": 2})
