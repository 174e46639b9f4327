"""The guard of an agent's tools: each call goes through the ledger of the conversation's own thread.

    agent = Agent(model, tools=[pay], capabilities=[ToolGuard(store, {"pay": "financial"})])

pydantic-ai stores a conversation after a run, and mints ids for calls.  So after a crash nothing that is stored names the
call, and the model asks for it under a new id.  The guard knows it again by its place: the conversation, how many messages
came before the run and from which run the last of them is, what the user says in it, the tool, its arguments, and the number
of this call among equal calls of the run.  A finished call is then answered from the ledger.  One that was cut off is not made again: the guard tells the model that its outcome is unknown.  The same
call at another place is stopped by its fingerprint while that outcome is unknown.

A tool that raises `ModelRetry`, or defers the call, says that it has done nothing yet, and may be called again.  Any other
error leaves the outcome unknown.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_ai import ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
    ToolRetryError,
)
from pydantic_ai.messages import ToolCallPart, UserPromptPart
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_core import to_jsonable_python

from perdure import aio
from perdure.errors import Invalid, NotDone
from perdure.integrations.door import Door
from perdure.integrations.framework_threads import FrameworkThreads
from perdure.integrations.guard import CallGuard, GuardedCall
from perdure.integrations.pydantic_ai.conversations import Conversations
from perdure.integrations.pydantic_ai.records import FRAMEWORK
from perdure.model.canonical import Json
from perdure.model.effect import Effect, Reach
from perdure.runtime.tools.tool import RepeatGuard
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["ToolGuard"]

_NOT_DONE = (ModelRetry, ToolRetryError, CallDeferred, ApprovalRequired, SkipToolExecution)
_RETURN = "$tool-return"
_RUNS_MAX = 10_000  # runs at once whose calls are counted
_returns: TypeAdapter[Any] = TypeAdapter(ToolReturn)


class ToolGuard(AbstractCapability[Any]):
    """Takes the tool calls of an agent through the ledger.

    `effects` says what each tool may change; one without an entry counts as an external write.  `thread` names the thread
    whose ledger is used; None: the conversation's own.  Conversations that share a thread do not share results; a run without
    a conversation is one of its own.
    """

    def __init__(
        self,
        store: Store | aio.Store,
        effects: Mapping[str, Effect | Reach] | None = None,
        *,
        repeat_guard: RepeatGuard = "deny",
        thread: str | None = None,
    ) -> None:
        """Use an open store."""
        self._door, self._thread = Door(store), thread
        self._threads = FrameworkThreads(self._door.store, None, framework=FRAMEWORK)
        self._conversations = Conversations(self._door.store)
        self._guard = CallGuard(effects, repeat_guard=repeat_guard)
        self._run_calls = _RunCalls()

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Any,
    ) -> Any:
        """Make a call, or answer it from the ledger."""
        arguments = cast("dict[str, Any]", to_jsonable_python(args, serialize_unknown=True))

        async def run() -> Any:
            try:
                return await handler(args)
            except _NOT_DONE as cause:
                raise NotDone("the tool asks to be called again.", code="tool_paused") from cause

        thread = aio.Thread(self._door.workers, await self._door.acall(partial(self._open, ctx)))
        number = self._run_calls.number(ctx, call, arguments)
        guarded = _guarded(ctx, call, tool_def, arguments, number)
        try:
            outcome = await self._guard.acall(thread, guarded, run, store=_stored, describe=_described)
        except NotDone as error:
            if isinstance(error.__cause__, _NOT_DONE):
                raise error.__cause__ from None
            raise
        if outcome.ran:
            return outcome.value
        if outcome.is_result:
            return _returned(outcome.stored)
        raise ToolFailed(outcome.text)

    def _open(self, ctx: RunContext[Any]) -> Thread:
        named = ctx.conversation_id if self._thread is None else self._thread
        if named is None:
            raise Invalid(
                "a guarded call belongs to a conversation, and the run has none; nothing was called.",
                code="thread_not_named",
                advice="Give one: agent.run(…, conversation_id=…), or ToolGuard(…, thread=…).",
            )
        found = self._conversations._current(named)  # pyright: ignore[reportPrivateUsage]
        return found.line if found is not None else self._threads.begin(named)


class _RunCalls:
    """Counts the equal calls of each run, in the order in which they come."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, dict[str, list[str]]] = OrderedDict()
        self._lock = Lock()

    def number(self, ctx: RunContext[Any], call: ToolCallPart, arguments: Mapping[str, Any]) -> int:
        """Return the number of this call among the equal ones of its run: the same tool with the same arguments.

        The messages of the run cannot tell it: a program may shorten them while the run goes on.
        """
        key = json.dumps([call.tool_name, arguments], sort_keys=True)
        with self._lock:
            calls = self._runs.setdefault(str(ctx.run_id), {})
            self._runs.move_to_end(str(ctx.run_id))
            if len(self._runs) > _RUNS_MAX:
                self._runs.popitem(last=False)
            equal = calls.setdefault(key, [])
            if call.tool_call_id not in equal:
                equal.append(call.tool_call_id)
            return equal.index(call.tool_call_id) + 1


def _guarded(
    ctx: RunContext[Any],
    call: ToolCallPart,
    tool_def: ToolDefinition,
    arguments: Mapping[str, Any],
    number: int,
) -> GuardedCall:
    own = [each for each in ctx.messages if each.run_id == ctx.run_id]
    said = [
        to_jsonable_python(part.content, serialize_unknown=True)
        for message in own
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    conversation = ctx.run_id if ctx.conversation_id is None else ctx.conversation_id
    before = [each.run_id for each in ctx.messages if each.run_id != ctx.run_id]
    # A program may give the last few messages only: then each run has as many before it, but not those of the same run.
    place = json.dumps([conversation, len(before), before[-1:], said], sort_keys=True)
    metadata: Mapping[str, Any] = tool_def.metadata or {}
    annotations = metadata.get("annotations")
    return GuardedCall(
        id=f"{call.tool_name}-{number}",
        tool=call.tool_name,
        arguments=arguments,
        asked_by=sha256(place.encode("utf-8", "surrogatepass")).hexdigest(),
        annotations=cast("Mapping[str, Any]", annotations) if isinstance(annotations, Mapping) else None,
        schema=tool_def.parameters_json_schema,
    )


def _stored(value: Any) -> Json:
    if isinstance(value, ToolReturn):
        return {_RETURN: _returns.dump_python(value, mode="json", serialize_as_any=True)}
    return cast("Json", to_jsonable_python(value, serialize_unknown=True, bytes_mode="base64"))


def _described(value: Any) -> Json:
    """Return what the model is told of a result that cannot be stored whole."""
    told: Any = cast("Any", value).return_value if isinstance(value, ToolReturn) else value
    try:
        return _stored(told)
    except ValueError:
        return str(told)


def _returned(stored: Json) -> Any:
    if isinstance(stored, dict) and _RETURN in stored:
        return _returns.validate_json(json.dumps(stored[_RETURN]))
    return stored
