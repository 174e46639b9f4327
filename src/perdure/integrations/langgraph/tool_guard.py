"""The guard of a graph's tools: each call goes through the ledger of the conversation's own thread.

    guard = ToolGuard(store, {"search": "read_only", "pay": "financial"})
    ToolNode(tools, wrap_tool_call=guard.wrap_tool_call, awrap_tool_call=guard.awrap_tool_call)
    create_agent(model, tools, middleware=[guard.middleware()])

A tool that raises after its effect is settled as unknown, and so is one whose error LangGraph turns into a message: the
message reaches the model, and the ledger has the outcome as unknown.  A tool that pauses the graph, by `interrupt()`, has not
been called yet: LangGraph calls it again from its beginning, so its effect belongs after the pause.

A call is known again after a crash by the message that asks for it: its id, or its place in the list if it has none; a call
that a graph sends to its tools without the message is known by the task.  That
message must be durable before the tool runs, so with any saver the graph has to be called with `durability="sync"`; the
guard refuses a call with an effect otherwise.  It also refuses one that a checkpoint of another store asks for, until the
thread is released here: the graph may go on there, too.

An imported call without a result is of unknown outcome.  If the imported checkpoint shows that its graph waited at an
interrupt before the tool of that call ran, the guard settles it as not done once the graph goes on here.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, cast

from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, Send
from pydantic import ValidationError

from perdure import aio
from perdure.errors import Conflict, Held, Invalid, NotDone, Unsupported
from perdure.history import reader
from perdure.history.space import Space
from perdure.integrations.checkpoint_layout import SESSION_PATH, channel_path, name_of
from perdure.integrations.door import Door
from perdure.integrations.guard import CallGuard, GuardedCall, GuardOutcome
from perdure.integrations.langgraph.checkpoints import FoundCheckpoint, GraphThreads
from perdure.integrations.langgraph.codec import Codec, Serializer
from perdure.integrations.langgraph.saver import Saver
from perdure.integrations.langgraph.task_writes import TaskWrite
from perdure.ledger import settlement
from perdure.ledger.calls import VersionedCall
from perdure.ledger.held import check_released
from perdure.model.canonical import Json
from perdure.model.effect import Effect, Reach
from perdure.model.message import Text, ToolResult
from perdure.runtime.calls.pending_call import encode_result
from perdure.runtime.import_commit import OpenImports
from perdure.runtime.tools.tool import RepeatGuard
from perdure.store.store import Store
from perdure.store.thread import Thread

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware

__all__ = ["ToolGuard"]

_Answer = ToolMessage | Command[Any]
_INTERRUPT, _RESUME, _SENDS = "__interrupt__", "__resume__", "__pregel_tasks"


class _Storing(TypedDict):
    """What the ledger keeps of an answer, and what if that cannot be stored."""

    store: Callable[[_Answer], Json]
    describe: Callable[[_Answer], Json]


class _ErrorMessage(Exception):
    """A tool's error that LangGraph has turned into a message: whether there was an effect is not known."""

    def __init__(self, message: ToolMessage) -> None:
        self.message = message
        super().__init__(str(message.content))


class ToolGuard:
    """Takes the tool calls of a graph through the ledger.

    `effects` says what each tool may change; one without an entry counts as an external write.  `thread` names the thread
    whose ledger is used; None: the conversation's own, by the `thread_id` of its config.  Conversations that share a thread
    do not share results.  `types` are further classes that results may have, as in `Saver`; those of the graph's own saver are
    known.
    """

    def __init__(
        self,
        store: Store | aio.Store,
        effects: Mapping[str, Effect | Reach] | None = None,
        *,
        repeat_guard: RepeatGuard = "deny",
        thread: str | None = None,
        types: Collection[type[Any] | tuple[str, str]] = (),
        serializer: Serializer | None = None,
    ) -> None:
        """Use an open store."""
        self._door, self._thread = Door(store), thread
        self._threads = GraphThreads(self._door.store, None)
        self._guard = CallGuard(effects, repeat_guard=repeat_guard)
        self._codec = Codec(types, serializer=serializer)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _Answer]
    ) -> _Answer:
        """Make a call, or answer it from the ledger; for `ToolNode` and as a hook of an agent."""
        call = self._guarded(request)
        if _is_refused(request):
            return handler(request)
        if _is_asked_twice(request):
            return _refuse_duplicate(call)
        self._check_durable(request, call)

        def run() -> _Answer:
            try:
                return _raised(handler(request))
            except GraphInterrupt as cause:
                raise _paused() from cause

        try:
            return self._answer(request, call, self._door.call(partial(self._make, request, call, run)))
        except _ErrorMessage as error:
            return error.message
        except NotDone as error:
            if isinstance(error.__cause__, GraphInterrupt):
                raise error.__cause__ from None
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[_Answer]]
    ) -> _Answer:
        """Make a call whose tool is awaited, or answer it from the ledger."""
        call = self._guarded(request)
        if _is_refused(request):
            return await handler(request)
        if _is_asked_twice(request):
            return _refuse_duplicate(call)
        self._check_durable(request, call)

        async def run() -> _Answer:
            try:
                return _raised(await handler(request))
            except GraphInterrupt as cause:
                raise _paused() from cause

        thread = aio.Thread(self._door.workers, await self._door.acall(partial(self._open, request, call)))
        try:
            outcome = await self._guard.acall(thread, call, run, **self._storing(request, call))
        except _ErrorMessage as error:
            return error.message
        except NotDone as error:
            if isinstance(error.__cause__, GraphInterrupt):
                raise error.__cause__ from None
            raise
        return self._answer(request, call, outcome)

    def middleware(self) -> AgentMiddleware[Any, Any]:
        """Return the guard as a middleware of `langchain.agents.create_agent`."""
        from langchain.agents.middleware import AgentMiddleware

        guard = self

        class GuardMiddleware(AgentMiddleware[Any, Any]):
            """Takes the tool calls of an agent through the ledger."""

            def wrap_tool_call(self, request: Any, handler: Any) -> Any:
                """Make a call, or answer it from the ledger."""
                return guard.wrap_tool_call(request, handler)

            async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
                """Await `wrap_tool_call`."""
                return await guard.awrap_tool_call(request, handler)

        return GuardMiddleware()

    def _make(
        self, request: ToolCallRequest, call: GuardedCall, run: Callable[[], _Answer]
    ) -> GuardOutcome[_Answer]:
        return self._guard.call(self._open(request, call), call, run, **self._storing(request, call))

    def _storing(self, request: ToolCallRequest, call: GuardedCall) -> _Storing:
        codec = self._codec_of(request)
        # An artifact may be of a class that is on no list; the tool has run, and its words are what the model needs.
        return {
            "store": codec.encode,
            "describe": lambda answer: codec.encode(
                ToolMessage(_text(answer, call), tool_call_id=call.id, name=call.tool)
            ),
        }

    def _codec_of(self, request: ToolCallRequest) -> Codec:
        """Return the guard's codec, which also accepts what the saver of the graph accepts."""
        saver = _configurable(request).get("__pregel_checkpointer")
        if not isinstance(saver, Saver):
            return self._codec
        return self._codec.joined(saver._codec)  # pyright: ignore[reportPrivateUsage]

    def _answer(self, request: ToolCallRequest, call: GuardedCall, outcome: GuardOutcome[_Answer]) -> _Answer:
        if outcome.ran and outcome.value is not None:
            return outcome.value
        if outcome.is_result:
            return cast("_Answer", self._codec_of(request).decode(outcome.stored))
        return ToolMessage(outcome.text, tool_call_id=call.id, name=call.tool, status="error")

    def _check_durable(self, request: ToolCallRequest, call: GuardedCall) -> None:
        """Raise `Invalid` if the message that asks for an effect may not be stored yet."""
        given = _configurable(request)
        durability = given.get("__pregel_durability", "async")
        saver = given.get("__pregel_checkpointer")
        if durability == "sync" or saver is None or isinstance(saver, InMemorySaver):
            return  # without a durable checkpoint no graph goes on after a crash
        if self._guard.reach(call).effect != "read_only":
            raise Invalid(
                f"the message that asks for '{call.tool}' may not be durable before the tool runs, and after a crash the "
                "model could ask for it again; nothing was called.",
                code="durability_not_sync",
                advice="Call the graph with durability='sync'.",
                tool=call.tool,
                durability=durability,
            )

    def _guarded(self, request: ToolCallRequest) -> GuardedCall:
        call, given = request.tool_call, _configurable(request)
        asked_by = _asked_by(request)
        if self._thread is not None:  # a run without a thread_id is a conversation of its own
            conversation = given.get("thread_id") or given.get("__pregel_task_id") or ""
            asked_by = json.dumps([str(conversation), asked_by])
        metadata: Mapping[str, Any] = getattr(request.tool, "metadata", None) or {}
        annotations = metadata.get("annotations")
        properties = getattr(request.tool, "args", None)
        return GuardedCall(
            id=str(call.get("id") or ""),
            tool=call["name"],
            arguments=dict(call["args"]),
            asked_by=asked_by,
            annotations=cast("Mapping[str, Any]", annotations) if isinstance(annotations, Mapping) else None,
            schema={"properties": properties},
        )

    def _open(self, request: ToolCallRequest, call: GuardedCall) -> Thread:
        named = self._thread
        if named is None:
            named = _configurable(request).get("thread_id")
        if named is None:
            raise Invalid(
                "a guarded call belongs to a thread, and the config names none; nothing was called.",
                code="thread_not_named",
                advice='Give one: {"configurable": {"thread_id": …}}, or ToolGuard(…, thread=…).',
            )
        thread, given = self._threads.begin(str(named)), _configurable(request)
        saver = given.get("__pregel_checkpointer")
        places = cast("Mapping[str, Any]", given.get("checkpoint_map") or {})  # by namespace
        if self._thread is not None or not isinstance(saver, Saver) or "" not in places:
            return thread
        if self._guard.reach(call).writes:
            self._check_released(thread, str(named), str(places[""]))
        line = self._threads.line_with(thread, name_of("", str(places[""])))
        if self._guard.reach(call).guarded:
            self._settle_waiting(line, str(named), request, str(places[""]))
        return line

    def _settle_waiting(self, thread: Thread, thread_id: str, request: ToolCallRequest, now: str) -> None:
        """Settle the imported call that is asked for again as not done, if the imported checkpoint waited before its tool ran.

        `now` is the checkpoint from which the graph goes on.
        """
        imported = self._imported(thread, thread_id)
        if imported is None:
            return
        writes = self._threads.writes(thread_id, "", imported.record.id)
        if not any(each["channel"] == _INTERRUPT and not each["at"] for each in writes):
            return
        space, id = thread._space, str(request.tool_call.get("id"))  # pyright: ignore[reportPrivateUsage]
        held = OpenImports(space, imported.commit, messages_max=1).take(id)
        if held is None or held.record.state != "unknown":
            return
        if imported.record.id == now:
            waits = _has_paused(request, writes) and self._is_alone(request, imported)
        else:
            waits = self._is_not_reached(request, imported, writes)
        if waits:
            _settle_not_made(space, held)

    def _imported(self, thread: Thread, thread_id: str) -> FoundCheckpoint | None:
        """Return the checkpoint that was imported last, if `thread` goes on from it."""
        session: Any = thread.get(SESSION_PATH, default=None)
        facts: Any = cast("Any", session).get("facts") if isinstance(session, dict) else None
        id: Any = cast("Any", facts).get("checkpoint") if isinstance(facts, dict) else None
        found: FoundCheckpoint | None = None
        with suppress(Unsupported):
            found = self._threads.named(thread_id, "", id) if isinstance(id, str) else None
        if found is None or found.record.holder is not None:
            return None
        space = thread._space  # pyright: ignore[reportPrivateUsage]
        return found if reader.is_ancestor(space, found.commit, thread.head.commit) else None

    def _is_alone(self, request: ToolCallRequest, imported: FoundCheckpoint) -> bool:
        """True if the task makes no other call than this one, so that this one has paused it."""
        asking = _requesting_message(request)
        if asking is not None and len(asking[1].tool_calls) == 1:
            return True
        path = _metadata(request).get("langgraph_path") or ()
        sends = self._sends(request, imported)
        if len(path) < 2 or path[0] != "__pregel_push" or path[1] not in range(len(sends)):
            return False
        arg = cast("Any", sends[path[1]]).arg
        one = cast("Mapping[str, Any]", arg).get("tool_call") if isinstance(arg, Mapping) else None
        made: list[Any] = [one] if one else cast("list[Any]", arg) if isinstance(arg, list) else []
        return len(made) == 1 and made[0].get("id") == request.tool_call.get("id")

    def _is_not_reached(
        self, request: ToolCallRequest, imported: FoundCheckpoint, writes: Sequence[TaskWrite]
    ) -> bool:
        """True if the imported checkpoint waited at other nodes, right after the message, and was not to call tools."""
        node, record = str(_metadata(request).get("langgraph_node")), imported.record
        if any(not each["at"] and each["channel"] != _INTERRUPT for each in writes):
            return False
        codec = self._codec_of(request)
        updated: Any = codec.decode(record.updated)
        if not isinstance(updated, Collection) or "messages" not in updated:
            return False
        seen: Mapping[str, Any] = record.seen.get(node) or {}
        is_due = any(str(record.versions.get(each, "")) > str(version) for each, version in seen.items())
        is_triggered = any(node in each.split(":") for each in (*record.triggers, *record.channels))
        return not (
            is_due or is_triggered or any(each.node == node for each in self._sends(request, imported))
        )

    def _sends(self, request: ToolCallRequest, imported: FoundCheckpoint) -> list[Send]:
        if _SENDS not in imported.record.channels:
            return []
        found: Any = self._codec_of(request).decode(imported.view.get(channel_path(_SENDS)))
        return [each for each in cast("list[Any]", found) if isinstance(each, Send)]

    def _check_released(self, thread: Thread, thread_id: str, id: str) -> None:
        """Raise `Held` if the checkpoint came from another store, where its run may go on, and was not released here."""
        space = thread._space  # pyright: ignore[reportPrivateUsage]
        try:
            check_released(space)
        except Held:
            found = self._threads.named(thread_id, "", id)
            if found is None or found.record.holder != space.engine.holder():
                raise


def _configurable(request: ToolCallRequest) -> Mapping[str, Any]:
    runtime: Any = cast("Any", request).runtime
    config: Mapping[str, Any] = getattr(runtime, "config", None) or {}
    return config.get("configurable") or {}


def _metadata(request: ToolCallRequest) -> Mapping[str, Any]:
    runtime: Any = cast("Any", request).runtime
    config: Mapping[str, Any] = getattr(runtime, "config", None) or {}
    return config.get("metadata") or {}


def _has_paused(request: ToolCallRequest, writes: Sequence[TaskWrite]) -> bool:
    """True if the task of this call paused before the import, and no answer to it has been taken since.

    An answer that the run itself brings is taken after this, when the tool asks for it.
    """
    task = _configurable(request).get("__pregel_task_id")
    own = {str(each["channel"]) for each in writes if each["task"] == task}
    resumed = any(each["channel"] == _RESUME and not each["at"] for each in writes)
    return own == {_INTERRUPT} and not resumed


def _settle_not_made(space: Space, held: VersionedCall) -> None:
    why = "the imported checkpoint waited at an interrupt before the tool ran"
    shown = ToolResult(held.record.id, "error", (Text(f"It was not made: {why}."),))
    with suppress(Conflict):  # another process has settled it
        settlement.resolve(
            space, held.record.id, "not_done", by="langgraph", why=why, preview=encode_result(shown)
        )


def _asked_by(request: ToolCallRequest) -> str:
    """Return the id of the message that asks for the call, or its place; without one the task of the graph's step.

    Empty if there is neither: a graph without checkpoints gives a task another id in each run.
    """
    found = _requesting_message(request)
    if found is not None:
        return str(getattr(found[1], "id", None) or f"#{found[0]}")
    given = _configurable(request)
    has_saver = given.get("__pregel_checkpointer") is not None
    return f"task:{given.get('__pregel_task_id')}" if has_saver else ""


def _requesting_message(request: ToolCallRequest) -> tuple[int, Any] | None:
    """Return the newest message that asks for the call, with its place, whichever list of the state it is in."""
    state, id = cast("Any", request).state, request.tool_call.get("id")
    fields = cast(
        "Mapping[str, Any]", state if isinstance(state, Mapping) else getattr(state, "__dict__", {})
    )
    every: list[Any] = [state, fields.get("messages"), *fields.values()]
    for messages in (cast("list[Any]", each) for each in every if isinstance(each, list)):
        for place in reversed(range(len(messages))):
            calls: list[Mapping[str, Any]] = getattr(messages[place], "tool_calls", None) or []
            if any(each.get("id") == id for each in calls):
                return place, messages[place]
    return None


def _is_asked_twice(request: ToolCallRequest) -> bool:
    """True if one message has two such calls under one id: what becomes of one would be taken for both."""
    call = request.tool_call
    found = _requesting_message(request)
    asked = (
        []
        if found is None
        else [(each.get("id"), each["name"], each["args"]) for each in found[1].tool_calls]
    )
    return asked.count((call.get("id"), call["name"], call["args"])) > 1


def _refuse_duplicate(call: GuardedCall) -> ToolMessage:
    text = (
        f"Error: this message asks twice for the same call to {call.tool} under one id. Neither was made. "
        "Ask for each under an id of its own."
    )
    return ToolMessage(text, tool_call_id=call.id, name=call.tool, status="error")


def _is_refused(request: ToolCallRequest) -> bool:
    """True if the tool will not be called, because there is none or its schema refuses the arguments: LangGraph says so.

    The schema is the one that the tool itself validates with.  The schema that the model is shown lacks its validators and
    aliases, so it also refuses arguments with which the tool runs.
    """
    if request.tool is None:
        return True
    validate = getattr(request.tool.args_schema, "model_validate", None)
    if validate is None:
        return False
    try:
        validate(dict(request.tool_call["args"]))
    except ValidationError as error:
        shown: Any = request.tool.tool_call_schema
        injected = cast("Any", request.tool.args_schema).model_fields.keys() - shown.model_fields.keys()
        # LangGraph adds what is injected.  What a model as a whole refuses may depend on it, so the ledger has that call.
        return any(each["loc"] and each["loc"][0] not in injected for each in error.errors())
    except Exception:  # noqa: BLE001  # a validator of the program raises anything, and does so again where it counts
        return False
    return False


def _text(answer: _Answer, call: GuardedCall) -> str:
    """Return the words of an answer; those of a command are in the message that answers the call."""
    found: Any = answer
    if isinstance(answer, Command):
        update: Any = answer.update
        messages: Any = (
            cast("Mapping[str, Any]", update).get("messages") if isinstance(update, Mapping) else None
        )
        given = cast("list[Any]", messages) if isinstance(messages, list) else [messages]
        own = (each for each in given if getattr(each, "tool_call_id", None) == call.id)
        found = next(own, None)
    if not isinstance(found, ToolMessage):
        return "The tool has run; its result is not stored."
    return str(found.text) or str(found.content)


def _paused() -> NotDone:
    return NotDone(
        "the tool has paused the graph, and is called again when the graph goes on.", code="tool_paused"
    )


def _raised(answer: _Answer) -> _Answer:
    """Return the answer of a tool; raises if it tells of an error, because the tool may have had its effect."""
    if isinstance(answer, ToolMessage) and answer.status == "error":
        raise _ErrorMessage(answer)
    return answer
