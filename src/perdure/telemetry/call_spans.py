"""Turns one call into spans, from its entries in the ledger: the call, its attempts, and what it waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.engines.contract import Step
from perdure.model.artifact import parse_reference
from perdure.model.call import SETTLED, UNCLEAR, CallRecord, CallState
from perdure.model.ticket import CHILD_RUN, Ticket
from perdure.projections.calls import Transition
from perdure.telemetry import convention as names
from perdure.telemetry.spans import (
    Attributes,
    Content,
    Span,
    SpanLink,
    SpanRef,
    call_ref,
    span_id,
    trace_id,
)

__all__ = ["CallHistory", "call_spans"]


_NO_SUCH_TOOL = "no_such_tool"  # why a call failed that names no tool of the agent


class CallHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One call: its record, and its entries of the ledger, oldest first."""

    record: CallRecord
    entries: tuple[tuple[int, Transition], ...]  # with their positions
    tickets: tuple[Ticket, ...] = ()
    arguments: str | None = None  # JSON text, if content was asked for
    result: str | None = None  # what the model is shown, if content was asked for


def call_spans(
    thread: str,
    space: str,
    call: CallHistory,
    content: Content = "none",
    *,
    parent: SpanRef | None = None,
    run_end: Step | None = None,
    links: tuple[SpanLink, ...] = (),
) -> list[Span]:
    """Return the ended spans of a call.

    `parent` is the span of the run that requested it, None: no run did, and its trace is its own.  `run_end` is the
    commit that ended the run, None: it has not ended.
    """
    return list(_CallSpans(thread, space, call, content, parent, run_end, links).spans())


class _CallSpans:
    """The spans of one call."""

    def __init__(
        self,
        thread: str,
        space: str,
        call: CallHistory,
        content: Content,
        parent: SpanRef | None,
        run_end: Step | None,
        links: tuple[SpanLink, ...],
    ) -> None:
        self._thread, self._space, self._call, self._record = thread, space, call, call.record
        self._content: Content = content
        # A name that no tool has is a model's own words.
        is_made_up = call.record.why == _NO_SUCH_TOOL and content != "text"
        self._tool = "unknown" if is_made_up else call.record.tool
        self._parent, self._run_end, self._links = parent, run_end, links
        trace = trace_id("call", space, call.record.id) if parent is None else parent.trace
        self.ref = call_ref(trace, space, call.record.id)

    def spans(self) -> Iterator[Span]:
        end = self._end()
        if end is not None:
            yield self._own(*end)
            yield from self._resolution(*end)
        yield from self._attempts()
        yield from self._approvals()

    def _end(self) -> tuple[int, CallState] | None:
        """Return when the call's span ends, and its state then; None: it is open.

        It ends when the call is settled.  A call whose outcome is still unknown at the end of its run ends then; one
        without a run ends when its outcome is known to be unknown.
        """
        state: CallState | None = None
        limit = None if self._run_end is None else self._run_end.commit.ledger.position
        for position, entry in self._call.entries:
            if self._run_end is not None and limit is not None and position > limit and state in UNCLEAR:
                return max(self._run_end.commit.at, self._start()), state
            state = entry.to or state
            if state in SETTLED or (self._parent is None and state in UNCLEAR):
                return entry.at, state
        if self._run_end is not None and state in UNCLEAR:
            return max(self._run_end.commit.at, self._start()), state
        return None

    def _start(self) -> int:
        return self._call.entries[0][1].at

    def _own(self, end: int, state: CallState) -> Span:
        record = self._record
        attributes: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            **self._common(),
            names.TOOL_TYPE: "function",
            "perdure.call.state": state,
            "perdure.call.effect": record.effect,
        }
        if self._content != "none":
            attributes["perdure.arguments.digest"] = record.args
            if record.result is not None:
                attributes["perdure.result.digest"] = parse_reference(record.result)
        if self._content == "text":
            texts = {names.TOOL_ARGUMENTS: self._call.arguments, names.TOOL_RESULT: self._call.result}
            attributes |= {name: text for name, text in texts.items() if text is not None}
        is_error = state in UNCLEAR or state == "failed"
        if is_error:
            attributes[names.ERROR_TYPE] = state
        return Span(
            ref=self.ref,
            parent=self._parent,
            name=f"{names.EXECUTE_TOOL} {self._tool}",
            start=self._start(),
            end=max(end, self._start()),
            attributes=attributes,
            links=self._links,
            is_error=is_error,
        )

    def _common(self) -> Attributes:
        return {
            names.CONVERSATION: self._thread,
            names.TOOL_NAME: self._tool,
            names.TOOL_CALL: self._record.id,
        }

    def _part(
        self, what: str, number: str, start: int, end: int, attributes: Attributes, **more: Any
    ) -> Span:
        span = Span(
            ref=SpanRef(self.ref.trace, span_id(what, self._space, self._record.id, number)),
            parent=self.ref,
            name=f"{what} {self._tool}",
            start=start,
            end=max(start, end),
            attributes={**self._common(), "perdure.operation": what, **attributes},
        )
        return msgspec.structs.replace(span, **more)

    def _attempts(self) -> Iterator[Span]:
        """Yield each time that the tool was called: until its outcome, or until it was called again."""
        started: int | None = None
        number, before = 0, self._start()
        for _, entry in self._call.entries:
            for state in (*entry.via, *((entry.to,) if entry.to else ())):
                if started is not None:
                    yield self._attempt(
                        number, started, entry.at, "repeated" if state == "started" else state
                    )
                    started = None
                if state == "started":
                    # An entry that has both was written when the tool had returned.
                    number, started = number + 1, entry.at if state == entry.to else before
            before = entry.at

    def _attempt(self, number: int, start: int, end: int, outcome: str) -> Span:
        is_error = outcome in ("failed", "unknown", "repeated")  # repeated: it failed, or its process ended
        attributes: Attributes = {"perdure.attempt": number, "perdure.attempt.outcome": outcome}
        if is_error:
            attributes[names.ERROR_TYPE] = outcome
        earlier = SpanRef(self.ref.trace, span_id("attempt", self._space, self._record.id, str(number - 1)))
        links = (SpanLink(earlier, "retry"),) if number > 1 else ()
        return self._part("attempt", str(number), start, end, attributes, links=links, is_error=is_error)

    def _approvals(self) -> Iterator[Span]:
        for ticket in self._call.tickets:
            decision = ticket.decision
            if decision is None or ticket.action == CHILD_RUN:
                continue
            what = "timer" if ticket.is_timer else "approval"
            attributes: Attributes = {f"perdure.{what}.decision": decision.verdict}
            if self._content != "none" and decision.by is not None:
                attributes["perdure.approval.by"] = decision.by
            yield self._part(what, ticket.id, ticket.asked_at, decision.at, attributes)

    def _resolution(self, ended: int, state: CallState) -> Iterator[Span]:
        """Yield what became of an outcome that was unknown when the call's span ended."""
        last = self._call.entries[-1][1]
        if state in UNCLEAR and self._record.state in SETTLED:
            yield self._part("resolution", "", ended, last.at, {"perdure.call.state": self._record.state})
