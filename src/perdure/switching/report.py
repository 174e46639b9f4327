"""Reports: what another backend keeps, converts and removes of a conversation, as data and in words.

    Compatibility check:
    ✓ Text conversation supported
    ⚠ JSON schema strict mode differs (loose-parse fallback)
    ✗ Computer-use tool unavailable; tool will be removed for this conversation

Each item is about one topic: kept (✓), converted with a named fallback (⚠), or removed (✗).  The policy gives each a
gate.  The whole report is stored with the commit of a switch.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from perdure.errors import Corrupt, Refused
from perdure.model import canonical
from perdure.model.checkpoint import Checkpoint
from perdure.model.digest import Digest
from perdure.providers.contract import Loss
from perdure.switching.policy import MARKS, Gate, Mark, Topic

__all__ = ["Report", "Item", "Outcome", "refusal", "decode_report", "encode_report"]

Outcome: TypeAlias = Literal["allowed", "approval", "blocked"]


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a switch does with one thing."""

    topic: Topic
    mark: Mark
    says: str  # the line that people read
    fallback: str | None = None  # what is done instead, if anything
    why: str = ""  # in words
    gate: Gate = "pass"  # as the policy says

    @property
    def line(self) -> str:
        """The item as it is printed."""
        return f"{MARKS[self.mark]} {self.says}"


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a switch to another backend keeps, converts and removes, and whether the policy allows it."""

    thread: str
    timeline: str
    from_backend: str | None
    to_backend: str
    from_server: str | None = None  # None: a model object of the program, or no backend took a turn yet
    to_server: str | None = None  # where the conversation goes; None: a model object of the program
    items: tuple[Item, ...] = ()
    losses: tuple[Loss, ...] = ()  # of the next request, one by one
    notes: tuple[str, ...] = ()  # further remarks
    checkpoint: Checkpoint | None = None  # with which the new backend begins
    approved_by: str | None = None  # the person who approved what needs an approval
    reason: str | None = None  # why the caller asked for it
    commit: Digest | None = None  # of the switch; None: it was not made

    @property
    def outcome(self) -> Outcome:
        """The policy's verdict on the switch."""
        gates = {item.gate for item in self.items}
        if "block" in gates:
            return "blocked"
        return "approval" if "approve" in gates and self.approved_by is None else "allowed"

    @property
    def ok(self) -> bool:
        """True if the switch may be made, or was."""
        return self.outcome == "allowed"

    @property
    def switched(self) -> bool:
        """True if the switch was made."""
        return self.commit is not None

    def of(self, topic: Topic) -> Item | None:
        """Return the item about one topic; None: the conversation has nothing of it."""
        return next((item for item in self.items if item.topic == topic), None)

    @property
    def lines(self) -> tuple[str, ...]:
        """The report as it is printed."""
        return ("Compatibility check:", *(item.line for item in self.items))

    def __str__(self) -> str:
        """Say in one sentence what stands in the way and what to change, or that nothing does."""
        if self.ok:
            return f"{self.to_backend} can take over {self._where}"
        why = refusal(self)
        return f"{why.why} {why.advice}"

    @property
    def _where(self) -> str:
        return f"'{self.thread}'" if self.timeline == "main" else f"'{self.timeline}' of '{self.thread}'"


def refusal(report: Report) -> Refused:
    """Return the error for a switch that the policy does not let pass."""
    stops = "block" if report.outcome == "blocked" else "approve"
    items = [item for item in report.items if item.gate == stops]
    topics = ", ".join(sorted({f"'{item.topic}'" for item in items}))
    if stops == "approve":
        code, advice = (
            "switch_needs_approval",
            "Give approved_by=… with the name of a person who approves it.",
        )
    elif topics == "'unfinished'":
        code = "switch_unfinished"
        advice = "Settle it first (resume, reconcile, resolve), or let the policy wait."
    else:
        code = "switch_blocked"
        advice = f"Choose another backend, or let the agent's policy pass {topics}: Policy(warn=…) or Policy(approve=…)."
    where = report._where  # pyright: ignore[reportPrivateUsage]
    lines = "; ".join(item.line for item in items)
    return Refused(
        report,
        why=f"{report.to_backend} does not take over {where}: {lines}.",
        code=code,
        advice=advice,
        topics=topics,
    )


_reports = msgspec.json.Decoder(Report)


def encode_report(report: Report) -> bytes:
    """Encode the report canonically, without the checkpoint, which is an object of its own."""
    return canonical.encode_struct(msgspec.structs.replace(report, checkpoint=None, commit=None))


def decode_report(body: bytes) -> Report:
    """Decode a report; raises `Corrupt` if `body` is none."""
    try:
        return _reports.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(
            f"a stored report cannot be read: {error}.", code="report_damaged", advice="Run `perdure verify`."
        ) from error
