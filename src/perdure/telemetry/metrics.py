"""Counts what happens in a store: the one source of `/metrics` of the server and of the metrics that OpenTelemetry sends.

Commits, tokens, cost, ended runs, switches, refusals and stops of guards are counted from the history, so they are those of all
processes, from the moment when the counting began.  Conflicts and writes in doubt leave no trace in a history: they are
those of this opening of the store.  What waits is read when it is asked for.  Writers do nothing for any of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Literal

import msgspec

from perdure import aio
from perdure.history.space import Space
from perdure.ledger import calls, tickets
from perdure.model.call import CallRecord
from perdure.model.event import (
    BackendSwitched,
    Event,
    GuardRefused,
    MessageAppended,
    RunFinished,
    ToolCallCompleted,
    ToolCallSuspended,
)
from perdure.shapes.lookup import interrupted_calls, interrupted_runs
from perdure.store.store import Store
from perdure.telemetry import convention as names
from perdure.telemetry.history import HistoryFollower

__all__ = ["METRICS", "Metric", "MetricPoint", "StoreMetrics", "prometheus_text"]


class MetricPoint(msgspec.Struct, frozen=True):
    """One number, with what it is the number of."""

    value: float
    attributes: Mapping[str, str] = {}


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A counter, which only grows, or a gauge."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    description: str
    points: tuple[MetricPoint, ...] = ()


METRICS: tuple[Metric, ...] = (
    Metric(name="perdure.commits", kind="counter", unit="{commit}", description="Commits of all threads."),
    Metric(
        name="perdure.tokens",
        kind="counter",
        unit="{token}",
        description="Tokens that steps of models read (input) and wrote (output).",
    ),
    Metric(
        name="perdure.cost.usd",
        kind="counter",
        unit="{USD}",
        description="What the steps cost whose price was known.",
    ),
    Metric(
        name="perdure.steps.unpriced",
        kind="counter",
        unit="{step}",
        description="Steps whose price was not known: they are not in the cost.",
    ),
    Metric(
        name="perdure.runs.ended",
        kind="counter",
        unit="{run}",
        description="Runs that ended, by their state.",
    ),
    Metric(
        name="perdure.switches", kind="counter", unit="{switch}", description="Changes to another backend."
    ),
    Metric(
        name="perdure.guard.refusals",
        kind="counter",
        unit="{refusal}",
        description="Inputs, answers and arguments that a guard refused.",
    ),
    Metric(
        name="perdure.guard.stops",
        kind="counter",
        unit="{call}",
        description="Calls that may repeat another, or go beyond the effects of their timeline: asked about, or denied.",
    ),
    Metric(name="perdure.runs.running", kind="gauge", unit="{run}", description="Runs that run now."),
    Metric(
        name="perdure.runs.waiting", kind="gauge", unit="{run}", description="Runs that wait for something."
    ),
    Metric(
        name="perdure.runs.queued", kind="gauge", unit="{run}", description="Runs that have not begun yet."
    ),
    Metric(
        name="perdure.approvals.waiting",
        kind="gauge",
        unit="{approval}",
        description="Calls that wait for a decision.",
    ),
    Metric(
        name="perdure.runs.interrupted",
        kind="gauge",
        unit="{run}",
        description="Runs whose process ended before they did, and that no other carries on.",
    ),
    Metric(
        name="perdure.calls.interrupted",
        kind="gauge",
        unit="{call}",
        description="Calls that were under way when the process of their run ended.",
    ),
    Metric(
        name="perdure.calls.unknown",
        kind="gauge",
        unit="{call}",
        description="Calls whose outcome is unknown.",
    ),
)

_Series = tuple[str, tuple[tuple[str, str], ...]]  # a metric and its attributes


class StoreMetrics:
    """The numbers of one open store, counted from the first time that they are read.  Thread-safe."""

    def __init__(self, store: Store | aio.Store) -> None:
        """Count in `store`; nothing is read yet."""
        self._store = store.target() if isinstance(store, aio.Store) else store
        self._follower: HistoryFollower | None = None
        self._counts: Counter[_Series] = Counter()
        self._lock = Lock()

    def read(self) -> list[Metric]:
        """Return all numbers as they are now."""
        with self._lock:
            self._advance()
            counts = dict(self._counts)
        counts |= {(name, ()): value for name, value in self._gauges().items()}
        found = [
            msgspec.structs.replace(metric, points=tuple(_points(metric.name, counts))) for metric in METRICS
        ]
        return found + [
            Metric(
                name=f"perdure.store.{name}",
                kind="counter",
                unit="1",
                description=f"{name.replace('_', ' ')} of this opening of the store.".capitalize(),
                points=(MetricPoint(value),),
            )
            for name, value in sorted(self._store.counters().items())
        ]

    def _advance(self) -> None:
        if self._follower is None:
            self._follower = HistoryFollower(self._store)
            for name in ("perdure.commits", "perdure.cost.usd", "perdure.steps.unpriced"):
                self._counts[name, ()] = 0
        for news in self._follower.read():
            for step in news.steps:
                self._counts["perdure.commits", ()] += 1
                for event in step.changeset.events:
                    self._count(event, is_of_run=step.commit.run is not None)
                    self._count_stop(news.space, event)

    def _count(self, event: Event, *, is_of_run: bool) -> None:
        match event:
            case MessageAppended(role="assistant") if is_of_run:
                self._count_step(event)
            case RunFinished(status=status):
                self._add("perdure.runs.ended", {"perdure.run.status": status})
            case GuardRefused(guard=guard, subject=subject):
                refused = {"perdure.guard.name": guard, "perdure.guard.subject": subject}
                self._add("perdure.guard.refusals", refused)
            case BackendSwitched():
                self._add("perdure.switches", {})
            case _:
                pass

    def _count_stop(self, space: Space, event: Event) -> None:
        """Count a call that the repeat guard, or the effect limit of its timeline, stopped."""
        match event:
            case ToolCallSuspended(ticket=ticket):
                asked = tickets.find(space, ticket)
                if asked is not None and asked.ticket.action == "repeat":
                    self._add("perdure.guard.stops", {"perdure.guard.stop": "asked"})
            case ToolCallCompleted(call=call, status="denied"):
                denied = calls.find(space, call)
                if denied is not None and not _is_denied_otherwise(space, denied.record):
                    self._add("perdure.guard.stops", {"perdure.guard.stop": "denied"})
            case _:
                pass

    def _count_step(self, event: MessageAppended) -> None:
        model = {
            names.PROVIDER: names.provider_name(event.provider or ""),
            names.REQUEST_MODEL: event.model or "",
        }
        if event.usage is not None:
            used = {"input": event.usage.input_tokens, "output": event.usage.output_tokens}
            for kind, tokens in used.items():
                self._add("perdure.tokens", {**model, names.TOKEN_TYPE: kind}, tokens)
        if event.cost is None:
            self._add("perdure.steps.unpriced", {})
        else:
            self._add("perdure.cost.usd", {}, event.cost)

    def _add(self, name: str, attributes: Mapping[str, str], value: float = 1) -> None:
        self._counts[name, tuple(attributes.items())] += value  # pyright: ignore[reportArgumentType]

    def _gauges(self) -> dict[str, int]:
        runs = Counter(record.state for _, record in self._store.open_runs())
        cut_off = interrupted_runs(self._store)
        return {
            "perdure.runs.running": max(0, runs["running"] - len(cut_off)),
            "perdure.runs.interrupted": len(cut_off),
            "perdure.calls.interrupted": len(interrupted_calls(self._store, cut_off)),
            "perdure.runs.waiting": runs["waiting"],
            "perdure.runs.queued": runs["created"],
            "perdure.approvals.waiting": len(self._store.approvals()),
            "perdure.calls.unknown": len(self._store.unclear_calls()),
        }


def _is_denied_otherwise(space: Space, record: CallRecord) -> bool:
    """True if a person denied the call, or a guard of the agent refused its arguments."""
    asked = tickets.find(space, record.ticket) if record.ticket else None
    decision = asked.ticket.decision if asked else None
    return not record.fingerprint or (decision is not None and decision.verdict == "deny")


def _points(name: str, counts: Mapping[_Series, float]) -> Iterator[MetricPoint]:
    for (counted, attributes), value in sorted(counts.items()):
        if counted == name:
            yield MetricPoint(value, dict(attributes))


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Return the numbers in the text format of Prometheus."""
    lines: list[str] = []
    for metric in metrics:
        name = metric.name.replace(".", "_") + ("_total" if metric.kind == "counter" else "")
        lines += [f"# HELP {name} {metric.description}", f"# TYPE {name} {metric.kind}"]
        lines += [f"{name}{_labels(point.attributes)} {_number(point.value)}" for point in metric.points]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Return a number with all its digits."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _labels(attributes: Mapping[str, str]) -> str:
    if not attributes:
        return ""
    pairs = (f'{key.replace(".", "_")}="{_escaped(value)}"' for key, value in attributes.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    text = value.encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
