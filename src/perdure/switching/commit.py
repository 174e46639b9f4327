"""The commit of a switch: from it on another backend takes the turns.

It has the checkpoint that the new backend begins with and the report of the check and the policy, and nothing else: no
message, no state, no call.  So the five layers of state do not change, and an undo takes the switch back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Step
from perdure.errors import Forgotten
from perdure.history import reader
from perdure.history.ancestry import present
from perdure.history.space import Space
from perdure.ledger import snapshot, trace
from perdure.model import canonical
from perdure.model.call import UNCLEAR, CallRecord
from perdure.model.checkpoint import Checkpoint
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import BackendSwitched, CheckpointCreated, Event
from perdure.model.head import Head
from perdure.providers.transport.address import is_vendor
from perdure.switching.checkpoint import stored
from perdure.switching.current_backend import RecordedBackend
from perdure.switching.policy import Gate, Policy
from perdure.switching.report import Item, Report, decode_report, encode_report

__all__ = [
    "REASON",
    "checkpoint_name",
    "gated",
    "intent",
    "report_at",
    "reports",
    "reports_of",
    "server_items",
    "switched",
    "unfinished",
    "unfinished_items",
]

REASON = "backend_switched"  # the reason of the commit

_SHOWN = 3


class SwitchCommit(msgspec.Struct, frozen=True):
    """The content of the commit of a switch."""

    events: tuple[Event, ...]
    objects: tuple[Object, ...]


def switched(report: Report, checkpoint: Checkpoint, ids: Callable[[], str]) -> SwitchCommit:
    """Return the events and objects of the commit by which `report.to_backend` takes over with that checkpoint."""
    checkpoint_object = stored.object_of(checkpoint)
    report_object = Object.of(Kind.BODY, encode_report(report))
    provider, _, model = report.to_backend.partition(":")
    events = (
        CheckpointCreated(id=ids(), checkpoint=checkpoint_object.digest),
        BackendSwitched(
            id=ids(),
            provider=provider,
            model=model or None,
            from_backend=report.from_backend,
            to_backend=report.to_backend,
            checkpoint=checkpoint_object.digest,
            why=report.reason,
            report=report_object.digest,
            by=report.approved_by,
            from_server=report.from_server,
            to_server=report.to_server,
        ),
    )
    return SwitchCommit(events, (checkpoint_object, report_object))


def checkpoint_name(report: Report) -> str | None:
    """Return the name of a report's checkpoint; None if the report has none."""
    if report.checkpoint is None:
        return None
    return stored.name_of(stored.object_of(report.checkpoint).digest)


def intent(report: Report) -> Digest:
    """Return the digest of a switch's intent.  It is the same when the switch is repeated, whatever the check finds."""
    intended = [
        REASON,
        report.timeline,
        report.to_backend,
        report.to_server,
        report.reason,
        report.approved_by,
    ]
    return digest_of(Kind.BODY, canonical.encode(intended))


def gated(report: Report, policy: Policy) -> Report:
    """Return the report with the policy's gate for each item."""
    items = tuple(
        msgspec.structs.replace(item, gate=_gate(item, policy)) if item.gate == "pass" else item
        for item in report.items
    )
    return msgspec.structs.replace(report, items=items)


def _gate(item: Item, policy: Policy) -> Gate:
    if item.topic == "unfinished" and policy.unfinished == "approve":
        return "approve"
    return policy.gate(item.topic, item.mark)


def unfinished(space: Space, head: Head, ledger: LedgerRead) -> list[CallRecord]:
    """Return the calls of a timeline that are under way, or whose outcome is unknown.

    Calls that were imported are not this store's to settle: no run here made one, and a model is shown that its outcome
    is unknown, whichever backend asks.
    """
    found = {known.record.id: known.record for known in snapshot.stand(space, ledger).calls}
    unclear = loops.pages(
        lambda after, limit: trace.unclear(space.engine, after=after, limit=limit),
        ("", ""),
        lambda each: (each[1].id, each[0]),
    )
    found |= {record.id: record for name, record in unclear if name == space.name}
    return [
        record
        for record in found.values()
        if record.reach.writes
        and record.origin != "import"
        and (record.state == "started" or record.state in UNCLEAR)
        and (record.timeline == head.timeline or present(space, record.label, head.commit))
    ]


def unfinished_items(left: Iterable[CallRecord]) -> tuple[Item, ...]:
    """Return the report's item for unfinished calls; none if there are none."""
    named = [f"{record.tool} '{record.id}' is {record.state}" for record in left]
    if not named:
        return ()
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return (
        Item(
            topic="unfinished",
            mark="removed",
            says=f"Unfinished tool call: {', '.join(named[:_SHOWN])}{more}",
            why="the new backend could not be told its outcome",
        ),
    )


def server_items(before: RecordedBackend | None, to: RecordedBackend) -> tuple[Item, ...]:
    """Return the report's item for a change of server; none between vendors, whose names say where it goes."""
    if before is None or None in (before.server, to.server) or before.server == to.server:
        return ()
    if before.name != to.name and is_vendor(before.server) and is_vendor(to.server):
        return ()
    return (
        Item(
            topic="server",
            mark="converted",
            says=f"Conversation leaves its server {before.server} for {to.server}",
            why="the operator of the other server can read the whole conversation",
        ),
    )


def report_at(space: Space, commit: Digest) -> Report | None:
    """Read the report and the checkpoint of the switch that one commit made; None if it made none."""
    report = _report(space, space.step(commit))
    if report is None:
        return None
    try:
        return msgspec.structs.replace(report, checkpoint=stored.made_by(space, commit))
    except Forgotten:
        note = "the checkpoint is not there any more"
        return msgspec.structs.replace(report, notes=(*report.notes, note))


def reports(space: Space, at: Digest | None) -> Iterator[Report]:
    """Yield the switches of the timeline that ends at `at`, newest first."""
    for step in reader.steps(space, at):
        report = _report(space, step)
        if report is not None:
            yield report


def reports_of(space: Space, run: str, at: Digest | None) -> list[Report]:
    """Read the switches that a run made, oldest first; `at` is its last commit, or a later one of its timeline."""
    first = next(
        (each for each in space.engine.labelled(space.name, run) if reader.is_ancestor(space, each, at)), None
    )
    found: list[Report] = []
    for step in reader.steps(space, at if first else None):
        report = _report(space, step) if step.commit.run == run else None
        if report is not None:
            found.append(report)
        if step.digest == first:
            break
    return found[::-1]


def _report(space: Space, step: Step) -> Report | None:
    for event in step.changeset.events:
        if isinstance(event, BackendSwitched):
            return msgspec.structs.replace(_stored_report(space, event), commit=step.digest)
    return None


def _stored_report(space: Space, event: BackendSwitched) -> Report:
    """Read the report that an event names; if it was forgotten, build one from the event itself."""
    rest = Report(
        thread=space.label,
        timeline="",
        from_backend=event.from_backend,
        to_backend=event.to_backend,
        from_server=event.from_server,
        to_server=event.to_server,
        approved_by=event.by,
        reason=event.why,
        notes=("the rest of the report is not there any more",),
    )
    if event.report is None:
        return rest
    try:
        return decode_report(space.body(event.report))
    except Forgotten:
        return rest
