"""Turns the history of a run into spans, from its commits and its part of the ledger alone.

    invoke_agent      a run, from its start to its end; a retry is a further span
      chat            a step: from the commit before it to the commit of the model's message
      execute_tool    a call, from its request until it is settled
        attempt       one time that the tool was called
        approval      from the question to the decision
        resolution    from the end of a run that left the outcome unknown until it was settled
        invoke_agent  a child run that the tool started
      memory          an item that was written to the owner's memory

A span is made when nothing about it can change any more: what is still open is left out.
Without `content` no text, argument or result is in a span, and no name of a person.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from perdure.engines.contract import Step
from perdure.model.digest import Digest
from perdure.model.event import (
    BackendSwitched,
    Event,
    GuardRefused,
    MemoryWritten,
    MessageAppended,
    RunFinished,
    RunStarted,
    ToolCallRequested,
)
from perdure.model.message import Message, ReasoningSummary, Text
from perdure.model.run import Cost, RunRecord, Usage
from perdure.telemetry import convention as names
from perdure.telemetry.call_spans import CallHistory, call_spans
from perdure.telemetry.spans import (
    Attributes,
    Content,
    Span,
    SpanEvent,
    SpanLink,
    SpanRef,
    call_ref,
    run_ref,
    span_id,
)

__all__ = ["RunHistory", "run_spans"]


class RunHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its record, its commits, oldest first, its calls, and the spans that it belongs to."""

    thread: str
    space: str
    owner: str | None = None
    record: RunRecord
    steps: tuple[Step, ...]
    calls: tuple[CallHistory, ...] = ()
    root: str  # the run that its trace is named after: itself, or the first run above it
    parent: SpanRef | None = None  # the call that started it
    links: tuple[SpanLink, ...] = ()


_E = TypeVar("_E", bound=Event)
_Words: TypeAlias = Callable[[Digest], Message | None]  # reads a message; None: it was forgotten


def run_spans(run: RunHistory, content: Content = "none", words: _Words = lambda _: None) -> list[Span]:
    """Return the ended spans of a run: of the run itself, its steps, its calls and its writes to memory."""
    starts = [place for place, step in enumerate(run.steps) if _event(step, RunStarted)]
    starts[:1] = [0] if starts else []  # where a plug-in hooks the start, the input is a commit before it
    found: list[Span] = []
    attempt_of: dict[
        str, tuple[SpanRef, Step | None]
    ] = {}  # by call: the run's span, and the commit of its end
    for attempt, first in enumerate(starts, 1):
        is_last = attempt == len(starts)
        steps = run.steps[first:] if is_last else run.steps[first : starts[attempt]]
        one = _RunAttempt(run, attempt, steps, content, words, is_last=is_last)
        found += one.spans()
        for step in steps:
            for event in step.changeset.events:
                if isinstance(event, ToolCallRequested):
                    attempt_of[event.call] = one.ref, one.end
    for call in run.calls:
        parent, end = attempt_of.get(call.record.id) or (run_ref(run.root, run.record.id), None)
        found += call_spans(run.thread, run.space, call, content, parent=parent, run_end=end)
    return found


class _RunAttempt:
    """One start of a run, and what happened until its end or the next start."""

    def __init__(
        self,
        run: RunHistory,
        attempt: int,
        steps: Sequence[Step],
        content: Content,
        words: _Words,
        *,
        is_last: bool,
    ) -> None:
        self._run, self._steps, self._words = run, steps, words
        self._content: Content = content
        self._number, self._is_last = attempt, is_last
        self.ref = run_ref(run.root, run.record.id, attempt)
        self.end = next((step for step in reversed(steps) if _event(step, RunFinished)), None)

    def spans(self) -> Iterator[Span]:
        if self.end is not None:
            yield self._own(self.end)
        yield from self._model_steps()
        for step in self._steps:
            for event in step.changeset.events:
                if isinstance(event, MemoryWritten):
                    yield self._memory(step, event)

    def _own(self, end: Step) -> Span:
        run, began = self._run, self._steps[0]
        started = next(event for step in self._steps for event in _events(step, RunStarted))
        finished = next(_events(end, RunFinished))
        links = run.links if self._number == 1 else ()
        if self._number > 1:
            links = (SpanLink(run_ref(run.root, run.record.id, self._number - 1), "retry"),)
        attributes: Attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: started.agent,
            **self._common(),
            "perdure.run.status": finished.status,
            "perdure.run.attempt": self._number,
            "perdure.timeline": run.record.timeline,
            "perdure.commit": end.digest,
            **_backend(started.backend),
            **_server(started.server),
            **self._totals(),
            **self._messages(),
        }
        meta = began.changeset.run_meta
        if meta is not None and meta.agent_version is not None:
            attributes[names.AGENT_VERSION] = meta.agent_version
        is_error = finished.status == "failed"
        if is_error:
            kind = run.record.kind if self._is_last and run.record.state == "failed" else None
            attributes[names.ERROR_TYPE] = kind or "failed"
        return Span(
            ref=self.ref,
            parent=run.parent,
            name=f"{names.INVOKE_AGENT} {started.agent}",
            start=began.commit.at,
            end=max(end.commit.at, began.commit.at),
            attributes=attributes,
            links=links,
            events=tuple(self._events()),
            is_error=is_error,
        )

    def _common(self) -> Attributes:
        return {names.CONVERSATION: self._run.thread, "perdure.run.id": self._run.record.id}

    def _totals(self) -> Attributes:
        """Return tokens and cost of all steps."""
        said = [event for _, event in self._said()]
        usage = sum((event.usage for event in said if event.usage is not None), Usage())
        cost = sum((Cost.of(event.cost) for event in said), Cost())
        found = _usage(usage)
        if cost.steps > cost.unpriced:
            found["perdure.cost.usd"] = cost.usd
        return found

    def _messages(self) -> Attributes:
        """Return what was said to the run and by it, as far as content was asked for."""
        if self._content == "none":
            return {}
        events = [each for step in self._steps for each in _events(step, MessageAppended)]
        inputs = [each for each in events if each.role in ("user", "system")]
        answers = [event for _, event in self._said()][-1:]
        found: Attributes = {"perdure.input.digests": tuple(each.body for each in inputs)}
        if self._run.owner is not None:
            found[names.USER] = self._run.owner
        if self._content == "text":
            found |= self._texts(names.INPUT_MESSAGES, inputs) | self._texts(names.OUTPUT_MESSAGES, answers)
        return found

    def _texts(self, name: str, events: Iterable[MessageAppended]) -> Attributes:
        said = [message for each in events if (message := self._words(each.body)) is not None]
        return {name: _json([_message_of(each) for each in said])} if said else {}

    def _said(self) -> Iterator[tuple[Step, MessageAppended]]:
        for step in self._steps:
            for event in _events(step, MessageAppended):
                if event.role == "assistant":
                    yield step, event

    def _model_steps(self) -> Iterator[Span]:
        """Yield the steps of the model; each begins with the run's commit before it."""
        before, previous, switched = self._steps[0].commit.at, None, False
        for step in self._steps:
            for event in step.changeset.events:
                if isinstance(event, BackendSwitched):
                    switched = True
                elif isinstance(event, MessageAppended) and event.role == "assistant":
                    links = (SpanLink(previous, "switch"),) if switched and previous else ()
                    span = self._model_step(step, event, before, links)
                    previous, switched = span.ref, False
                    yield span
            before = step.commit.at

    def _model_step(
        self, step: Step, event: MessageAppended, start: int, links: tuple[SpanLink, ...]
    ) -> Span:
        model = event.model or ""
        attributes: Attributes = {
            names.OPERATION: names.CHAT,
            **self._common(),
            "perdure.message.id": event.id,
            "perdure.commit": step.digest,
            **_backend(f"{event.provider}:{model}" if event.provider else None),
            **(_usage(event.usage) if event.usage is not None else {}),
        }
        if event.cost is not None:
            attributes["perdure.cost.usd"] = event.cost
        if self._content != "none":
            attributes["perdure.message.digest"] = event.body
            if event.context is not None:
                attributes["perdure.context.digest"] = event.context
        if self._content == "text":
            attributes |= self._texts(names.OUTPUT_MESSAGES, [event])
        return Span(
            ref=SpanRef(self.ref.trace, span_id("step", self._run.space, event.id)),
            parent=self.ref,
            name=f"{names.CHAT} {model}".rstrip(),
            is_client=True,
            start=min(start, step.commit.at),
            end=step.commit.at,
            attributes=attributes,
            links=links,
        )

    def _memory(self, step: Step, event: MemoryWritten) -> Span:
        is_forgotten = event.body is None
        attributes: Attributes = {
            **self._common(),
            "perdure.operation": "memory",
            "perdure.memory.item": event.item,
            "perdure.memory.act": "forget" if is_forgotten else "write",
        }
        if self._content != "none":
            attributes[names.USER] = event.owner
            if event.body is not None:
                attributes["perdure.memory.digest"] = event.body
        parent = self.ref if event.call is None else call_ref(self.ref.trace, self._run.space, event.call)
        return Span(
            ref=SpanRef(self.ref.trace, span_id("memory", self._run.space, event.id)),
            parent=parent,
            name="memory forget" if is_forgotten else "memory write",
            start=step.commit.at,
            end=step.commit.at,
            attributes=attributes,
        )

    def _events(self) -> Iterator[SpanEvent]:
        """Yield what a run's span says of single moments: switches of the backend and refusals of guards."""
        for step in self._steps:
            for event in step.changeset.events:
                if isinstance(event, BackendSwitched):
                    places = {"from": event.from_backend or "", "to": event.to_backend}
                    switched = {f"perdure.switch.{end}": name for end, name in places.items() if name}
                    yield SpanEvent("perdure.backend.switched", step.commit.at, switched)
                elif isinstance(event, GuardRefused):
                    refused = {"perdure.guard.name": event.guard, "perdure.guard.subject": event.subject}
                    yield SpanEvent("perdure.guard.refused", step.commit.at, refused)


def _event(step: Step, kind: type[_E]) -> _E | None:
    return next(iter(_events(step, kind)), None)


def _events(step: Step, kind: type[_E]) -> Iterator[_E]:
    return (event for event in step.changeset.events if isinstance(event, kind))


def _usage(usage: Usage) -> Attributes:
    return {name: count for field, name in names.USAGE.items() if (count := getattr(usage, field))}


def _backend(backend: str | None) -> Attributes:
    if backend is None:
        return {}
    provider, _, model = backend.partition(":")
    found: Attributes = {names.PROVIDER: names.provider_name(provider)}
    if model:
        found[names.REQUEST_MODEL] = model
    return found


def _server(server: str | None) -> Attributes:
    """Return the host and the port of a server's address; a name that a program gave it is no address."""
    try:
        parts = urlsplit(server or "")
        host, port = parts.hostname, parts.port
    except ValueError:  # such as a port that is no number
        return {}
    if host is None:
        return {}
    port = port or {"http": 80, "https": 443}.get(parts.scheme)
    found: Attributes = {names.SERVER_ADDRESS: host}
    if port is not None:
        found[names.SERVER_PORT] = port
    return found


def _message_of(message: Message) -> dict[str, object]:
    """Return a message as the convention writes it."""
    parts: list[dict[str, object]] = []
    for block in message.content:
        match block:
            case Text(text=text):
                parts.append({"type": "text", "content": text})
            case ReasoningSummary(text=text):
                parts.append({"type": "reasoning", "content": text})
            case _:
                parts.append({"type": "uri", "uri": block.uri, "mime_type": block.mime_type})
    parts.extend(
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.args}
        for call in message.tool_calls
    )
    return {"role": message.role, "parts": parts}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
