"""Finds the model that takes the steps of a timeline, and has it take one.

The history decides, not the code: editing `backend=` moves no thread that has begun.  A recorded name is
resolved to an object that was given under it (by the agent, its route, or a switch on the same
handle), else to the backend that the name itself means.  Among objects of one name, the one at the
recorded server is used; if none leads there, nothing is sent: `ServerChanged` names both servers.

Text is handed to watchers while the model writes it.  Nothing is durable before the step is whole.
A backend may take the request and answer later.  Its caller records the id of the answer before anything
else happens, so that another process fetches the same answer instead of asking for a second one.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from perdure.errors import Invalid, NotFound, PerdureWarning, ServerChanged, Unavailable, Unsupported
from perdure.history import reader
from perdure.model.context import Context
from perdure.model.digest import Digest
from perdure.model.message import Message, ToolCall
from perdure.model.run import StopReason, Usage
from perdure.providers.contract import (
    CallDelta,
    Finished,
    Loss,
    Model,
    ModelEvent,
    PendingReply,
    ReasoningChunk,
    TextChunk,
    sent_by,
    server_of,
    stop_reason,
)
from perdure.providers.profile import BackendRef, name_of, same
from perdure.providers.transport.address import UNRESOLVED
from perdure.runtime import events
from perdure.runtime.agent.agent import Agent, model_of, taking_steps
from perdure.runtime.events import CallProgress
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.tools.tool import Tool
from perdure.switching.current_backend import RecordedBackend, server_on_record

__all__ = [
    "current_model",
    "ActiveModel",
    "ModelStep",
    "PendingAnswer",
    "StepReply",
    "check_server",
    "check_price",
    "check_server_on_record",
    "declared_names",
    "given_as",
    "given_for",
    "is_on",
    "is_same_server",
    "line_backend",
    "model_for",
    "step_cost",
    "warn_of_end",
]

_POLL_SECONDS, _POLL_GROWTH, _POLL_SECONDS_MAX = 0.25, 1.5, 5.0
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


class ActiveModel(msgspec.Struct, frozen=True):
    """The model that takes the steps of a run, and its backend as the history names it."""

    model: Model
    recorded: RecordedBackend

    @property
    def backend(self) -> str:
        return self.model.backend


def warn_of_end(env: RunEnvironment, model: Model) -> None:
    """Warn, once per store and backend, if the vendor stops or has stopped serving the model of a run."""
    sent = sent_by(model)
    if sent is None or not env.lines.is_first_run(model.backend):
        return
    ends = env.models().card(sent.provider, sent.model).ends
    if ends is None:
        return
    today = datetime.fromtimestamp(env.space.clock() / 1_000_000, UTC).date().isoformat()
    when = f"is served until {ends}" if today <= ends else f"was served until {ends}"
    warnings.warn(
        PerdureWarning(
            f"{model.backend} {when}, as its vendor announced.",
            code="model_ends",
            advice="Move its threads to another model; `perdure models ls` lists those that stay.",
            backend=model.backend,
            ends=ends,
        ),
        stacklevel=2,
    )


def step_cost(env: RunEnvironment, model: Model, usage: Usage) -> float | None:
    """Return what a step cost, by the agent's own price or the catalog's; None if the price or the usage is not known."""
    stop = env.agent.stop
    if stop.price is not None:
        return stop.price(usage) if usage else None
    sent = sent_by(model)
    prices = None if sent is None else env.models().card(sent.provider, sent.model).prices
    if prices is None or sent is None or not usage:
        return None
    return prices.cost(usage)


def check_price(env: RunEnvironment, model: Model) -> None:
    """Raise `Invalid` if the price of the model's steps is not known; for a run that has a limit of cost."""
    if env.agent.stop.price is not None:
        return
    sent = sent_by(model)
    if sent is None or env.models().card(sent.provider, sent.model).prices is None:
        raise Invalid(
            f"the price of {model.backend} is not known, so a limit of cost cannot be kept; no request was sent.",
            code="price_unknown",
            advice="Give Stop(price=…), or put the price into your file of models.",
            backend=model.backend,
        )


def line_backend(env: RunEnvironment, *, line: str | None = None) -> RecordedBackend | None:
    """Return the backend that the history of a timeline names; None if it names none: then it is the agent's."""
    timeline = line or env.timeline
    head = reader.head_of(env.space, timeline)
    return env.lines.backend(env.space, timeline, head.commit)


def current_model(env: RunEnvironment, *, line: str | None = None, sure: bool = False) -> Model:
    """Return the model that takes the next step on the timeline.

    Unless `sure`, the backend that was found last is used without a look at the store.
    Raises `Invalid` if the agent has no backend, or nothing takes steps for the timeline's, and
    `ServerChanged` if that model would send to another server than the recorded one.
    """
    if env.agent.backend is None and not env.handed:
        return model_of(env.agent)  # which raises `Invalid`
    known = None if sure else env.lines.last(env.space, env.timeline)
    found = known[1] if known is not None else None
    if found is None or found.name != _own(env):  # a switch to it may have been undone
        found = line_backend(env, line=line)
        known = None
    try:
        return model_of(env.agent) if found is None else model_for(env, found)
    except ServerChanged:
        if known is None:
            raise
        return current_model(env, line=line, sure=True)  # the run that named that server may have been undone


def model_for(env: RunEnvironment, recorded: RecordedBackend) -> Model:
    """Return the model of a recorded backend; warn if the agent is declared on another.

    Raises `ServerChanged` if no model of that name leads to the recorded server.
    """
    elsewhere: Model | None = None  # of that name, at another server
    for each in _known(env):
        if is_on(env, name_of(each), recorded.name):
            model = taking_steps(each)
            if is_same_server(recorded.server, server_of(model)):
                return model
            elsewhere = elsewhere or model
    if elsewhere is not None:
        raise _changed(env, recorded, elsewhere)
    try:
        found = taking_steps(recorded.name)
    except (Invalid, NotFound, Unsupported) as error:
        raise Invalid(
            f"'{env.space.label}' is on {recorded.name}, and nothing takes steps for that here; nothing was run: "
            f"{error.message}",
            code="backend_not_given",
            advice="Give the agent that backend, or move the thread to another with switch(…); a run that was cut off "
            "has to be ended first, with cancel().",
            thread=env.space.label,
            backend=recorded.name,
        ) from error
    _warn(env.agent, env.space.label, recorded.name)
    check_server(env, recorded, found)
    return found


def given_as(env: RunEnvironment, given: BackendRef) -> BackendRef:
    """Return the object that was given under a name on this handle, else the name."""
    if not isinstance(given, str):
        return given
    return next((each for each in _known(env) if is_on(env, name_of(each), given)), given)


def given_for(env: RunEnvironment, recorded: RecordedBackend) -> BackendRef:
    """Return the object that was given for a recorded backend: one at its server, else of its name, else the name."""
    found = [each for each in _known(env) if is_on(env, name_of(each), recorded.name)]
    there = (each for each in found if server_of(taking_steps(each)) == recorded.server)
    return next(there, found[0] if found else recorded.name)


def check_server(env: RunEnvironment, recorded: RecordedBackend, model: Model) -> None:
    """Raise `ServerChanged` if the model would send to another server than the recorded one."""
    if not is_same_server(recorded.server, server_of(model)):
        raise _changed(env, recorded, model)


def check_server_on_record(env: RunEnvironment, at: Digest | None, model: Model) -> None:
    """Raise `ServerChanged` if the timeline was on this backend before, at another server than the model's."""
    recorded = server_on_record(env.space, at, lambda name: is_on(env, name, model.backend))
    if recorded is not None:
        check_server(env, recorded, model)


def is_same_server(recorded: str | None, resolved: str | None) -> bool:
    """True if a step may go to `resolved`.  An unresolved address is as good: nothing was ever sent there."""
    return recorded in (resolved, UNRESOLVED)


def _changed(env: RunEnvironment, recorded: RecordedBackend, model: Model) -> ServerChanged:
    return ServerChanged(
        recorded.name, recorded=recorded.server, resolved=server_of(model), thread=env.space.label
    )


def is_on(env: RunEnvironment, one: str, other: str) -> bool:
    """True if two names mean the same backend."""
    return one == other or same(one, other, env.models())


def _own(env: RunEnvironment) -> str | None:
    return None if env.agent.backend is None else name_of(env.agent.backend)


def _known(env: RunEnvironment) -> Iterator[BackendRef]:
    """Yield every backend that this handle was given; those of the latest switches come first."""
    yield from reversed(tuple(env.handed.values()))
    if env.agent.backend is not None:
        yield env.agent.backend
    if env.agent.route is not None:
        yield from env.agent.route.order(None)


def _warn(agent: Agent, label: str, name: str) -> None:
    if agent.backend is not None:
        declared = name_of(agent.backend)
        warnings.warn(
            PerdureWarning(
                f"agent '{agent.name}' is declared on {declared}, but '{label}' is on {name}, which is used.",
                code="backend_differs",
                advice=f"A thread that has begun is moved by thread.switch('{declared}'), after a check.",
                agent=agent.name,
                thread=label,
                backend=name,
                declared=declared,
            ),
            stacklevel=2,
        )


class StepReply(msgspec.Struct, frozen=True):
    """The whole answer of a model to one step."""

    message: Message  # its calls have our ids
    vendor_ids: tuple[str, ...]  # the vendor's ids of the same calls
    usage: Usage
    stop: StopReason
    losses: tuple[Loss, ...] = ()  # what the request, or the answer, could not carry over unchanged


class PendingAnswer(msgspec.Struct, frozen=True):
    """The backend works on the answer and will give it by this id."""

    id: str


class ModelStep:
    """One step of a model.  Ask for its `answer` until that is a `StepReply`."""

    def __init__(
        self,
        model: Model,
        context: Context,
        feed: Feed,
        ids: Callable[[], str],
        names: Mapping[str, str],
        message_id: str,
    ) -> None:
        """Show `context` to the model; `names` maps a vendor's names of tools to ours."""
        self._model, self._context, self._feed, self._ids, self._names = model, context, feed, ids, names
        self._message_id = message_id
        self._events: AsyncIterator[ModelEvent] | None = None  # None: the request is not sent yet
        self._pending: str | None = None  # the id that the backend gave in answer to this request
        self._finished: Finished | None = None
        self._poll_seconds = _POLL_SECONDS
        self._is_streamed = False  # True: the deltas of the answer were handed to watchers

    async def answer(self) -> StepReply | PendingAnswer:
        """Return the reply, or the id of an answer that the backend still works on.

        A new id is returned as soon as it is known; the caller makes it durable before it asks again.  The same
        id is returned after each poll without a reply.
        Raises what the model raises, and `Invalid` if the model stops without a whole message.
        """
        if self._events is None:
            self._events = self._model.step(self._context)
        asked = self._context.pending
        try:
            async for event in self._events:
                if isinstance(event, Finished):
                    self._finished = event
                elif isinstance(event, PendingReply):
                    is_new = event.id not in (asked, self._pending)
                    self._pending = event.id
                    if is_new:
                        return PendingAnswer(event.id)
                elif asked is None or not self._is_streamed:  # a poll may repeat what was streamed before
                    _stream(self._feed, event, self._message_id)
        except Unavailable:
            if self._pending is None or asked is not None:
                raise
        if self._finished is not None:
            return _reply(self._model, self._finished, self._ids, self._names)
        return await self._poll_later()

    async def close(self) -> None:
        """End the request if its answer was not read to the end; an answer that was is left as it is."""
        close = getattr(self._events, "aclose", None)
        if close is not None:
            with suppress(Exception):  # the answer is given up: an error at its end changes nothing
                await close()

    async def _poll_later(self) -> PendingAnswer:
        pending = self._pending
        if pending is None:
            raise Invalid(
                f"{self._model.backend} stopped in the middle of a step; nothing of it was kept.",
                code="step_incomplete",
                backend=self._model.backend,
            )
        self._is_streamed = self._is_streamed or self._context.pending is None
        self._context = msgspec.structs.replace(self._context, pending=pending)
        self._events, self._pending = None, None
        await asyncio.sleep(self._poll_seconds)
        self._poll_seconds = min(_POLL_SECONDS_MAX, self._poll_seconds * _POLL_GROWTH)
        return PendingAnswer(pending)


def _stream(feed: Feed, event: ModelEvent, message: str) -> None:
    match event:
        case TextChunk(text):
            feed.tell(events.TextDelta(text, message=message))
        case ReasoningChunk(text):
            feed.tell(events.ReasoningDelta(text, message=message))
        case CallDelta(index, name, arguments):
            feed.tell(CallProgress(str(index), name, "writing", arguments))
        case PendingReply() | Finished():
            pass


def declared_names(tools: Mapping[str, Tool]) -> dict[str, str]:
    """Map the names that vendors make of tools to the tools: few formats take a dot or a slash in a name.

    A vendor's own tool is mapped to the tool that serves it.
    """
    made: dict[str, str] = {}
    served: dict[str, str] = {}
    for name, tool in tools.items():
        if tool.serves is not None:
            served[tool.serves] = name
        if not (name.isascii() and name.isidentifier()):  # most names are legal everywhere
            plain = _ILLEGAL.sub("_", name)
            if plain != name and plain not in tools:
                made[plain] = "" if plain in made else name
    unambiguous = {plain: name for plain, name in made.items() if name}
    return {**unambiguous, **served}


def _reply(model: Model, finished: Finished, ids: Callable[[], str], names: Mapping[str, str]) -> StepReply:
    """Return the reply with our ids in its calls; vendors' ids repeat and collide, so they are only metadata."""
    message = finished.message
    if message.role != "assistant" or message.tool_results:
        raise Invalid(
            f"{model.backend} answered as {message.role}, not as an assistant; nothing of it was kept.",
            code="reply_not_assistant",
            backend=model.backend,
            role=message.role,
        )
    stop = stop_reason(finished.stop, finished.stop_kind, has_calls=bool(message.tool_calls))
    if stop.reason == "failed":
        raise Unavailable(
            f"{model.backend} ended its answer with an error ({stop.word}); nothing of it was kept.",
            code="step_failed",
            advice="Ask again.",
            backend=model.backend,
            word=stop.word,
        )
    if not message.tool_calls:
        return StepReply(message, (), finished.usage, stop, finished.losses)
    calls = tuple(
        [ToolCall(ids(), names.get(each.name, each.name), each.args) for each in message.tool_calls]
    )
    vendor_ids = tuple([call.id for call in message.tool_calls])
    message = msgspec.structs.replace(message, tool_calls=calls)
    return StepReply(message, vendor_ids, finished.usage, stop, finished.losses)
