"""The guard of an agent's tools: each call goes through the ledger of the conversation's own thread.

    guard = ToolGuard(session, {"search": "read_only", "pay": "financial"})
    agent = Agent(name="travel", tools=guard.wrap([search, pay]))

The SDK turns an exception of a tool into a message for the model.  The guard sees the exception first: the ledger has the
call as unknown, because the tool may have had its effect, and the guard adds that to the SDK's message.  Arguments that
the tool's schema refuses never reach the tool; such a call has failed without an effect.

The guard recognises a call by its id and arguments within one conversation.  OpenAI's ids are unique; another model may
give the same ids in each conversation.  The thread of a `Session` is one conversation.  If several conversations that are
stored elsewhere share the ledger of one thread, each needs a guard that names its `conversation`: the SDK does not tell a
tool in which conversation it was called.  After a crash the SDK asks the model again, and the model asks for the same
call under a new id: the guard stops it by its fingerprint while the outcome of the first is unknown, or if the session
never got its result.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from agents.exceptions import ModelBehaviorError
from agents.tool import (
    FunctionTool,
    Tool,
    set_function_tool_failure_error_function,
    with_function_tool_failure_error_handler,
)
from agents.tool_context import ToolContext
from pydantic import BaseModel

from perdure import aio
from perdure.errors import NotDone
from perdure.integrations import records
from perdure.integrations.door import Workers
from perdure.integrations.guard import CallGuard, GuardedCall
from perdure.integrations.lost_results import mark_lost_results
from perdure.integrations.openai_agents.session import Session, thread_of
from perdure.model.canonical import Json
from perdure.model.effect import Effect, Reach
from perdure.model.message import Text
from perdure.runtime.tools.result import explain
from perdure.runtime.tools.tool import RepeatGuard
from perdure.store.thread import Thread

__all__ = ["ToolGuard"]

_OUTPUT = "output"
_BIND = "__agents_bind_function_tool__"  # what the SDK calls on an invoker that handles errors

_unknown: ContextVar[str | None] = ContextVar(
    "perdure_unknown_tool", default=None
)  # of the call that has just raised


class ToolGuard:
    """Takes the calls of function tools through the ledger.

    `effects` says what each tool may change; one without an entry counts as an external write.  The ledger is that of the
    session's thread, or of the thread that is given.  `conversation` tells apart those that share one thread.
    """

    def __init__(
        self,
        session: Session | Thread | aio.Thread,
        effects: Mapping[str, Effect | Reach] | None = None,
        *,
        repeat_guard: RepeatGuard = "deny",
        trust_annotations: bool = False,
        conversation: str = "",
    ) -> None:
        """Guard tools; with `trust_annotations` the hints of an MCP server count for tools without an entry."""
        self._session = session if isinstance(session, Session) else None
        self._thread = session.thread if isinstance(session, Session) else thread_of(session)
        self._guard = CallGuard(effects, repeat_guard=repeat_guard)
        self._workers, self._trusts = Workers(), trust_annotations
        self._conversation = conversation

    def wrap(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools with each function tool guarded; tools that OpenAI's servers run stay as they are."""
        return [self.tool(each) if isinstance(each, FunctionTool) else each for each in tools]

    def tool(self, tool: FunctionTool) -> FunctionTool:
        """Return a tool whose calls go through the ledger; the given one is not changed."""
        # The inner tool raises what its function raises.
        inner = set_function_tool_failure_error_function(copy.copy(tool), None)

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            return await self._make(inner, context, arguments)

        guarded = copy.copy(tool)
        guarded.on_invoke_tool = invoke
        if hasattr(tool.on_invoke_tool, _BIND):  # the SDK makes a message of an error
            guarded.on_invoke_tool = _Invoker(
                with_function_tool_failure_error_handler(invoke, _report_nothing)
            )
        return copy.copy(guarded)  # a copy binds the handling of errors to itself

    async def _make(self, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
        async def run() -> Any:
            try:
                return await tool.on_invoke_tool(context, arguments)
            except ModelBehaviorError as error:
                if _is_refused(error):
                    raise NotDone("the tool refuses the arguments.", code="arguments_refused") from error
                raise

        thread = aio.Thread(self._workers.workers, self._thread)
        call = self._call(tool, context, arguments)
        await self._mark_lost_results(context, call)
        try:
            outcome = await self._guard.acall(thread, call, run, store=_stored)
        except NotDone as error:
            if isinstance(error.__cause__, ModelBehaviorError):
                raise error.__cause__ from None
            raise
        except Exception:
            if self._guard.reach(call).writes:
                _unknown.set(tool.name)
            raise
        if outcome.ran:
            return outcome.value
        if outcome.is_result and isinstance(outcome.stored, dict):
            return outcome.stored.get(_OUTPUT)
        return outcome.text

    async def _mark_lost_results(self, context: ToolContext[Any], call: GuardedCall) -> None:
        """Note equal calls whose results the session never got."""
        fingerprint, session = self._guard.fingerprint(call), self._session
        if session is None or not fingerprint:
            return

        def is_of_session() -> bool:
            # A run beside the session, as that of an agent which is a tool, has a conversation that is stored nowhere.
            asked = next((each for each in reversed(session.items()) if each.get("role") == "user"), None)
            return asked is not None and asked in cast("list[Any]", context.turn_input)

        await self._workers.acall(
            partial(mark_lost_results, self._thread, fingerprint, applies=is_of_session)
        )

    def _call(self, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> GuardedCall:
        hints = tool.mcp_annotations if self._trusts else None
        return GuardedCall(
            id=context.tool_call_id,
            asked_by=self._conversation,
            tool=tool.name,
            arguments=_parsed(arguments),
            annotations=None if hints is None else hints.model_dump(by_alias=True, exclude_none=True),
            schema=tool.params_json_schema,
        )


class _Invoker:
    """Invokes a tool whose errors the SDK turns into messages; a message says if the outcome is unknown."""

    def __init__(self, handled: Callable[[ToolContext[Any], str], Awaitable[Any]]) -> None:
        self._handled = handled

    def __agents_bind_function_tool__(self, tool: FunctionTool) -> _Invoker:
        """Bind the handling of errors to a tool; the SDK does so for each copy."""
        return _Invoker(getattr(self._handled, _BIND)(tool))

    async def __call__(self, context: ToolContext[Any], input: str) -> Any:
        """Invoke the tool."""
        _unknown.set(None)
        told = await self._handled(context, input)
        unknown = _unknown.get()
        if unknown is None:
            return told
        return f"{told} {''.join(block.text for block in explain('unknown', '', unknown) if isinstance(block, Text))}"


def _report_nothing(_tool: FunctionTool, _error: Exception, _arguments: str) -> None:
    """Report an error that was turned into a message nowhere else: the ledger has it."""


def _parsed(arguments: str) -> Mapping[str, Any]:
    """Return arguments as an object; a text that is none is refused by the tool, and is one argument here."""
    try:
        given: object = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    return cast("Mapping[str, Any]", given) if isinstance(given, dict) else {"arguments": arguments}


def _is_refused(error: ModelBehaviorError) -> bool:
    """True if the SDK raised before it called the tool: no code but its own was entered."""
    trace, modules = error.__traceback__, list[str]()
    while trace is not None:
        modules.append(str(trace.tb_frame.f_globals.get("__name__")))
        trace = trace.tb_next
    return all(module in (__name__, "agents.tool") for module in modules)


def _stored(value: Any) -> Json:
    """Return what the ledger has of a result: as the SDK gives it to the model."""
    return {_OUTPUT: _plain(value)}


def _plain(value: Any) -> Json:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[Any]", value)]
    return records.as_json(value)
