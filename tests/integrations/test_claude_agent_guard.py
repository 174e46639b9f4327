"""The guard of Claude's tools, told by hooks: an effect happens once, and what is not known is said."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

import perdure
from perdure.integrations.claude_agent import Sessions, ToolGuard
from tests.forked import own

SESSION = "5c1e4f0e-0000-4000-8000-000000000001"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    """A store on disk."""
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


class Claude:
    """Calls the hooks as the SDK does; it is the other process that runs the tools."""

    def __init__(self, guard: ToolGuard, session: str = SESSION) -> None:
        self._hooks, self._session = guard.hooks(), session

    def tell(self, event: Any, **given: Any) -> Any:
        """Call the hooks of an event."""
        told = {
            "hook_event_name": event,
            "session_id": self._session,
            "transcript_path": f"/tmp/x/projects/-home-me/{self._session}.jsonl",
            "cwd": "/home/me",
            **given,
        }
        (matcher,) = self._hooks[event]
        (hook,) = matcher.hooks
        return asyncio.run(cast("Any", hook(cast("Any", told), given.get("tool_use_id"), {"signal": None})))

    def may(self, id: str, tool: str = "pay", **arguments: Any) -> str | None:
        """Ask whether a tool may run; return why it may not, None if it may."""
        told = self.tell("PreToolUse", tool_name=tool, tool_input=arguments, tool_use_id=id)
        if told == {}:
            return None
        output = told["hookSpecificOutput"]
        assert output["permissionDecision"] == "deny"
        return output["permissionDecisionReason"]

    def done(self, id: str, response: Any, tool: str = "pay") -> None:
        """Tell what a tool returned."""
        self.tell("PostToolUse", tool_name=tool, tool_input={}, tool_use_id=id, tool_response=response)

    def failed(self, id: str, error: str, tool: str = "pay") -> None:
        """Tell how a tool failed."""
        self.tell("PostToolUseFailure", tool_name=tool, tool_input={}, tool_use_id=id, error=error)


def claude(store: perdure.Store) -> Claude:
    """A guard whose tools pay, and read."""
    return Claude(ToolGuard(Sessions(store), {"pay": "financial", "Read": "read_only"}))


def thread(store: perdure.Store) -> perdure.Thread:
    """The thread of the session."""
    return Sessions(store).thread({"project_key": "-home-me", "session_id": SESSION})


def states(store: perdure.Store) -> list[str]:
    """The states of the calls in the ledger."""
    return sorted(call.state for call in thread(store).calls())


def test_a_call_is_started_before_the_tool_and_settled_after_it(store: perdure.Store) -> None:
    """In the ledger of the session's own thread: two durable writes."""
    here = claude(store)
    assert here.may("t1", euro=5) is None
    assert states(store) == ["started"]
    here.done("t1", {"stdout": "paid"})

    (call,) = thread(store).calls()
    assert (call.tool, call.state, call.effect) == ("pay", "succeeded", "financial")
    assert store.verify().ok


def test_a_call_that_was_made_is_answered_in_words(store: perdure.Store) -> None:
    """The same id and arguments are not made again; the refusal has the result."""
    here = claude(store)
    here.may("t1", euro=5)
    here.done("t1", {"stdout": "paid 5"})

    assert "paid 5" in (here.may("t1", euro=5) or "")
    assert here.may("t2", euro=5) is None  # the model knows of the first, and asks for another


def test_a_failure_is_unknown_and_the_same_call_under_a_new_id_is_refused(store: perdure.Store) -> None:
    """The tool may have paid; what only reads has simply failed, and may be tried again."""
    here = claude(store)
    here.may("t1", euro=5)
    here.failed("t1", "connection reset")
    assert states(store) == ["unknown"]
    assert "unknown" in (here.may("t2", euro=5) or "")

    assert here.may("r1", "Read", path="a") is None
    here.failed("r1", "no such file", "Read")
    assert here.may("r2", "Read", path="a") is None


def line(number: int, role: str, content: Any) -> Any:
    """One line of the session's transcript."""
    before = None if number == 1 else f"u{number - 1}"
    about = {"type": role, "uuid": f"u{number}", "parentUuid": before, "sessionId": SESSION}
    return {**about, "timestamp": "2026-01-01T00:00:00Z", "message": {"role": role, "content": content}}


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_payment_that_the_session_never_got_is_not_made_again(tmp_path: Path, is_stored: bool) -> None:
    """The program ends before the lines of the turn are stored; if they are, the control, Claude may want another."""
    key: Any = {"project_key": "-home-me", "session_id": SESSION}
    paid = [{"type": "tool_use", "id": "t1", "name": "pay", "input": {"euro": 5}}]
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "paid"}]
    with perdure.open(tmp_path / "a.db") as store:
        asyncio.run(Sessions(store).append(key, [line(1, "user", "hello")]))
        here = claude(store)
        assert here.may("t1", euro=5) is None
        here.done("t1", "paid")
        if is_stored:
            asyncio.run(Sessions(store).append(key, [line(2, "assistant", paid), line(3, "user", result)]))
    with perdure.open(tmp_path / "a.db") as store:
        refusal = claude(store).may("t2", euro=5)

        assert (refusal is None) == is_stored
        assert refusal is None or "not in this conversation" in refusal
        assert store.verify().ok


def test_a_call_that_a_person_denies_was_not_made(store: perdure.Store) -> None:
    """It has failed without an effect, so that it may be asked for again; what is permitted stays started."""
    guard = ToolGuard(Sessions(store), {"pay": "financial"})
    here, answers = Claude(guard), iter([PermissionResultDeny(message="too much"), PermissionResultAllow()])

    async def person(tool: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
        return next(answers)

    for id in ("t1", "t2"):
        assert here.may(id, euro=5) is None
        asyncio.run(
            cast("Any", guard.asking(person)("pay", {"euro": 5}, ToolPermissionContext(tool_use_id=id)))
        )
    assert states(store) == ["failed", "started"]
    here.tell("Stop", stop_hook_active=False)
    assert states(store) == [
        "failed",
        "unknown",
    ]  # Control: without an answer that denies it, the first is unknown too
    assert "too much" in str(next(call.why for call in thread(store).calls() if call.state == "failed"))
    assert store.verify().ok


def test_a_call_that_the_command_line_denies_was_not_made(store: perdure.Store) -> None:
    """It reports the id of the call and the reason."""
    here = claude(store)
    here.may("t1", euro=5)
    here.tell("PermissionDenied", tool_name="pay", tool_input={}, tool_use_id="t1", reason="by a rule")
    here.tell("Stop", stop_hook_active=False)

    assert states(store) == ["failed"]
    assert here.may("t1", euro=5) is None


def test_a_call_that_nobody_settles_is_unknown_when_the_turn_stops(store: perdure.Store) -> None:
    """After an interrupt, say; another session is not touched."""
    here = claude(store)
    here.may("t1", euro=5)
    here.tell("Stop", stop_hook_active=False)
    here.done("t1", "late")
    assert states(store) == ["unknown"]


def test_a_call_in_flight_is_not_started_twice(store: perdure.Store) -> None:
    """Asked for again while the tool runs, under the same id or a new one."""
    here = claude(store)
    assert here.may("t1", euro=5) is None
    assert here.may("t1", euro=5) is not None
    assert here.may("t2", euro=5) is not None
    assert here.may("t3", euro=6) is None
    here.done("t1", "paid")
    assert states(store) == ["denied", "started", "succeeded"]


def test_an_outcome_of_a_call_that_is_not_known_changes_nothing(store: perdure.Store) -> None:
    """A report for a call that was never started here."""
    here = claude(store)
    here.may("t1", euro=5)
    here.done("t9", "paid")
    here.failed("t8", "no")
    assert states(store) == ["started"]


def test_a_ledger_that_cannot_be_written_refuses_the_call(store: perdure.Store, tmp_path: Path) -> None:
    """Nothing with an effect runs that is not recorded; the matcher also blocks if the hook itself fails."""
    claude(store).may("t1", euro=5)
    with perdure.open(tmp_path / "agents.db", read_only=True) as reading:
        guard = ToolGuard(Sessions(reading), {"pay": "financial"})
        assert "could not be recorded" in (Claude(guard).may("t2", euro=6) or "")
        assert guard.hooks()["PreToolUse"][0].on_failure == "block"


def test_a_thread_can_be_named(store: perdure.Store) -> None:
    """Then the calls of every session are in its ledger, and one session stops the other."""
    guard = ToolGuard(Sessions(store), thread=store.thread("payments", agent="pays"))
    Claude(guard, "one").may("t1", euro=5)

    assert Claude(guard, "two").may("t2", euro=5) is not None
    assert [call.state for call in store.thread("payments").calls()] == ["started", "denied"]


def test_sessions_that_share_a_thread_do_not_share_results(store: perdure.Store) -> None:
    """An id that two sessions have for a call names two calls; in each it names the same one."""
    shared = store.thread("payments", agent="travel")
    guard = ToolGuard(Sessions(store), {"pay": "financial"}, thread=shared)
    ann, bob = Claude(guard), Claude(guard, SESSION[:-1] + "2")
    for each, text in ((ann, "paid for Ann"), (bob, "paid for Bob")):
        assert each.may("t1", euro=5) is None
        each.done("t1", {"stdout": text})

    assert "paid for Ann" in (ann.may("t1", euro=5) or "")
    assert "paid for Bob" in (bob.may("t1", euro=5) or "")


@pytest.mark.parametrize("arguments", [{"x": float("nan")}, {"x": "\ud800"}, {"x": [[[]] * 3] * 3}, {}])
def test_hostile_arguments_are_recorded_or_refused(store: perdure.Store, arguments: Any) -> None:
    """A hook never raises."""
    here = claude(store)
    refusal = here.may("t" * 4096, "a tool\x00" * 900, **arguments)
    assert refusal is None or refusal
    here.done("t" * 4096, object(), "a tool\x00" * 900)
    assert store.verify().ok


KILLED = """
import asyncio, os, signal, sys
from claude_agent_sdk.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

import perdure
from perdure.integrations.claude_agent import Sessions, ToolGuard
path, effects, how, id = sys.argv[1:5]
def pay():
    with open(effects, "a") as file:
        file.write("paid\\n"); file.flush(); os.fsync(file.fileno())
    if len(open(effects).readlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
given = {"session_id": "s", "transcript_path": "/x/p/s.jsonl", "cwd": "/x", "tool_name": "pay",
         "tool_input": {"euro": 5}, "tool_use_id": id}
async def main(guard):
    told = await guard.before({**given, "hook_event_name": "PreToolUse"}, id, {}) if how == "guarded" else {}
    if told:
        print(told["hookSpecificOutput"]["permissionDecisionReason"])
    else:
        pay()
        await guard.after({**given, "hook_event_name": "PostToolUse", "tool_response": "paid"}, id, {})
with perdure.open(path) as store:
    sessions = Sessions(store)
    asyncio.run(main(ToolGuard(sessions, {"pay": "financial"})))
    if how == "guarded":
        calls = sessions.thread({"project_key": "p", "session_id": "s"}).calls()
        print(sorted(call.state for call in calls))
"""


@pytest.mark.parametrize(
    ("how", "second", "paid"), [("guarded", "t1", 1), ("guarded", "t2", 1), ("unguarded", "t2", 2)]
)
def test_a_kill_after_the_effect_and_another_ask(tmp_path: Path, how: str, paid: int, second: str) -> None:
    """Under the same id or a new one: the effect happens once and the outcome is said to be unknown; unguarded, twice."""
    effects = tmp_path / "effects"
    command = ["-c", KILLED, str(tmp_path / "a.db"), str(effects), how]
    killed = own().run([*command, "t1"])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = own().run([*command, second], check=True)
    assert effects.read_text().count("paid") == paid
    assert ("is unknown" in again.stdout) == (how == "guarded")
    assert ("'unknown'" in again.stdout) == (how == "guarded")


def test_errors_of_the_store_are_ours(store: perdure.Store) -> None:
    """A closed store: a refusal in words, and no exception reaches the SDK."""
    here = claude(store)
    here.may("t1", euro=5)
    store.close()
    assert here.may("t2", euro=6)
    here.done("t1", "paid")
