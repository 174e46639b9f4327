"""The guard of Claude's tools: each call is in the ledger of the session's own thread before the tool runs.

    guard = ToolGuard(sessions, {"Read": "read_only", "mcp__bank__pay": "financial"})
    ClaudeAgentOptions(session_store=sessions, hooks=guard.hooks())

The tools run in another process, so the guard is told twice: `PreToolUse` makes the start of a call durable, or refuses it and
says why in words; `PostToolUse` and `PostToolUseFailure` record the outcome.  A tool that failed may have had its effect:
its outcome is unknown, unless it only reads.  A call that was not permitted has failed without an effect: `PermissionDenied`
reports those that the command line itself denied, and `asking` notes what your own `can_use_tool` answers.  When a turn
stops, the outcome of each of its calls that nothing has reported is unknown.

If this process dies, a call that it had started is unknown.  Asked for again, under a new id, the call is refused while that is
so, and also if it was done and the session never got its result.  If the ledger cannot be written, a call is refused: nothing with an effect runs that is not in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import PurePath
from threading import Lock
from typing import Any, TypeAlias, cast

from claude_agent_sdk import HookMatcher, project_key_for_directory
from claude_agent_sdk.types import (
    CanUseTool,
    HookContext,
    HookEvent,
    HookInput,
    HookJSONOutput,
    PermissionResult,
    PermissionResultDeny,
    ToolPermissionContext,
)

from perdure import aio
from perdure.errors import PerdureError
from perdure.integrations import records
from perdure.integrations.claude_agent.sessions import Sessions, key_of
from perdure.integrations.guard import BegunCall, CallGuard, GuardedCall, GuardOutcome
from perdure.integrations.lost_results import mark_lost_results
from perdure.model.effect import Effect, Reach
from perdure.runtime.tools.tool import RepeatGuard
from perdure.store.thread import Thread

__all__ = ["ToolGuard"]

_log = logging.getLogger("perdure.integrations")
_TEXT_MAX = 8000  # characters of a stored result that a refusal repeats

_NOT_PERMITTED = "the call was not permitted"
# The command line sends it with the id of the call; the SDK passes every event on, and lacks its name in the type.
_PERMISSION_DENIED = cast("HookEvent", "PermissionDenied")

_Begun: TypeAlias = "tuple[str, str]"  # the session, and the id of the call


class ToolGuard:
    """Takes the tool calls of sessions through the ledger.

    `effects` says what each tool may change, by the name that Claude has for it (`mcp__server__tool`); one without an entry
    counts as an external write.  `thread` is whose ledger is used; None: the session's own.  Sessions that share a thread do
    not share results.
    """

    def __init__(
        self,
        sessions: Sessions,
        effects: Mapping[str, Effect | Reach] | None = None,
        *,
        repeat_guard: RepeatGuard = "deny",
        thread: Thread | aio.Thread | None = None,
    ) -> None:
        """Guard the tools of the sessions in a store."""
        self._sessions, self._door = sessions, sessions.door
        self._guard = CallGuard(effects, repeat_guard=repeat_guard)
        self._named = thread.target() if isinstance(thread, aio.Thread) else thread
        self._begun: dict[_Begun, BegunCall] = {}
        self._lock = Lock()

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """Return the hooks, for `ClaudeAgentOptions(hooks=…)`; add your own matchers to the lists."""
        return {
            "PreToolUse": [HookMatcher(hooks=[self.before], on_failure="block")],
            "PostToolUse": [HookMatcher(hooks=[self.after])],
            "PostToolUseFailure": [HookMatcher(hooks=[self.after])],
            _PERMISSION_DENIED: [HookMatcher(hooks=[self.after])],
            "Stop": [HookMatcher(hooks=[self.stopped])],
        }

    def asking(self, can_use_tool: CanUseTool) -> CanUseTool:
        """Return what to give to `ClaudeAgentOptions(can_use_tool=…)`: it asks yours, and records a call that yours denied.

        If the denial cannot be recorded, the call stays denied, and is unknown when the turn stops.
        """

        async def asked(tool: str, given: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
            answer = await can_use_tool(tool, given, context)
            if isinstance(answer, PermissionResultDeny):
                with self._lock:  # the context names no session; ids of calls are unique
                    place = next((each for each in self._begun if each[1] == context.tool_use_id), None)
                begun = None if place is None else self._take(place)
                if begun is not None:
                    await self._record(partial(begun.refuse, answer.message or _NOT_PERMITTED))
            return answer

        return asked

    async def before(self, given: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """Start a call durably, and let the SDK go on with it; or refuse it in words."""
        asked = cast("Mapping[str, Any]", given)
        try:
            refusal = await self._door.acall(partial(self._begin, asked, tool_use_id))
        except PerdureError as error:
            refusal = f"The call was not made, because it could not be recorded: {error}"
        if refusal is None:
            return {}
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": refusal,
            }
        }

    async def after(self, given: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        """Record the outcome of a call."""
        told = cast("Mapping[str, Any]", given)
        begun = self._take(_place(told, tool_use_id))
        if begun is not None:
            await self._record(partial(_settle, begun, told))
        return {}

    async def stopped(
        self, given: HookInput, tool_use_id: str | None, context: HookContext
    ) -> HookJSONOutput:
        """Record that no report will come of the calls that are still open in a session."""
        session = str(cast("Mapping[str, Any]", given).get("session_id"))
        with self._lock:
            left = [place for place in self._begun if place[0] == session]
        for place in left:
            begun = self._take(place)
            if begun is not None:
                await self._record(begun.abandon)
        return {}

    async def _record(self, work: Any) -> None:
        try:
            await self._door.acall(work)
        except PerdureError as error:  # the call stays started, and is unknown once this process has ended
            _log.error("the outcome of a call was not recorded (%s)", error.code)

    def _take(self, place: _Begun) -> BegunCall | None:
        with self._lock:
            return self._begun.pop(place, None)

    def _begin(self, asked: Mapping[str, Any], tool_use_id: str | None) -> str | None:
        """Start a call; return in words why it is not to be made, None if it is."""
        place = _place(asked, tool_use_id)
        arguments: Any = asked.get("tool_input")
        call = GuardedCall(
            id=place[1],
            tool=str(asked.get("tool_name")),
            arguments=cast("Mapping[str, Any]", arguments) if isinstance(arguments, Mapping) else {},
            asked_by="" if self._named is None else place[0],
        )
        thread, fingerprint = self._thread(asked), self._guard.fingerprint(call)
        if fingerprint and self._named is None:
            # The lines of a turn are stored when it ends, and a session without lines cannot be resumed.
            mark_lost_results(
                thread, fingerprint, applies=lambda: bool(thread.transcript(limit=1)), needs_end=True
            )
        begun = self._guard.begin(thread, call)
        if isinstance(begun, GuardOutcome):
            return _refusal(begun)
        with self._lock:
            self._begun[place] = begun
        return None

    def _thread(self, asked: Mapping[str, Any]) -> Thread:
        if self._named is not None:
            return self._named
        # The transcript of a session is <project>/<session>.jsonl, also where the SDK has put it for a resume.
        project = PurePath(str(asked.get("transcript_path") or "")).parent.name
        session = asked.get("session_id")
        key = key_of({"project_key": project or _project(asked), "session_id": session})
        return self._sessions.open(key, begin=True)


def _project(asked: Mapping[str, Any]) -> str:
    return project_key_for_directory(str(asked.get("cwd") or "."))


def _place(told: Mapping[str, Any], tool_use_id: str | None) -> _Begun:
    return str(told.get("session_id")), str(told.get("tool_use_id") or tool_use_id or "")


def _settle(begun: BegunCall, told: Mapping[str, Any]) -> object:
    if told.get("hook_event_name") == _PERMISSION_DENIED:
        return begun.refuse(str(told.get("reason") or _NOT_PERMITTED))
    if told.get("hook_event_name") == "PostToolUseFailure":
        return begun.fail(str(told.get("error") or "the tool failed"))
    return begun.settle(records.as_json(told.get("tool_response")))


def _refusal(outcome: GuardOutcome[Any]) -> str:
    if not outcome.is_result:
        return outcome.text
    stored = (
        outcome.stored if isinstance(outcome.stored, str) else json.dumps(outcome.stored, ensure_ascii=False)
    )
    return f"This call was made before and is not made again. Its result was: {stored[:_TEXT_MAX]}"
