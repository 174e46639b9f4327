"""What a switch of a backend keeps and loses, as programs and people read it, and who it is about."""

from __future__ import annotations

import msgspec

from perdure.cli.errors import CODES
from perdure.cli.hints import Subject, advice_for
from perdure.cli.input.user_code import found_in, what_to_type
from perdure.cli.output.display import digest
from perdure.cli.output.screen import Screen
from perdure.cli.output.shapes import LossShape, losses_of
from perdure.errors import Invalid, Refused
from perdure.runtime.agent.agent import Agent
from perdure.store.store import Store
from perdure.switching.commit import checkpoint_name
from perdure.switching.report import Report, refusal

__all__ = ["REFUSED", "GradeShape", "ReportShape", "agent_for", "show_report", "show_switch"]

REFUSED = CODES[Refused]

_STYLES = {"kept": "good", "converted": "warn", "removed": "bad"}


class GradeShape(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the check: kept, converted with a fallback, or removed; and what the policy decides."""

    topic: str
    mark: str
    line: str
    fallback: str | None
    why: str
    gate: str


class ReportShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a switch keeps, converts and removes, and whether it may be made, or was."""

    thread: str
    timeline: str
    from_backend: str | None
    to_backend: str
    from_server: str | None  # that the conversation is at; null: a model of the program's own, or none yet
    to_server: str | None  # that it goes to
    ok: bool
    outcome: str
    items: list[GradeShape]
    losses: list[LossShape]
    notes: list[str]
    approved_by: str | None
    checkpoint: str | None
    commit: str | None  # of the switch; null: none was made
    told: str  # in one sentence

    @classmethod
    def of(cls, report: Report, *, store: str | None = None) -> ReportShape:
        """Return the report in the shape of --json; the commands that it advises name `store`, if one is given."""
        return cls(
            thread=report.thread,
            timeline=report.timeline,
            from_backend=report.from_backend,
            to_backend=report.to_backend,
            from_server=report.from_server,
            to_server=report.to_server,
            ok=report.ok,
            outcome=report.outcome,
            items=[
                GradeShape(
                    topic=item.topic,
                    mark=item.mark,
                    line=item.line,
                    fallback=item.fallback,
                    why=item.why,
                    gate=item.gate,
                )
                for item in report.items
            ],
            losses=losses_of(report.losses),
            notes=list(report.notes),
            approved_by=report.approved_by,
            checkpoint=checkpoint_name(report),
            commit=report.commit,
            told=str(report) if report.ok else _refusal(report, store),
        )


def _refusal(report: Report, store: str | None) -> str:
    error = refusal(report)
    return f"{error.why} {advice_for(error, Subject(thread=report.thread, store=store))}"


def show_report(screen: Screen, report: ReportShape) -> None:
    """Print the check, a line each; then the reason of a refusal."""
    screen.say("Compatibility check:")
    for item in report.items:
        mark, _, words = item.line.partition(" ")
        screen.say((mark, _STYLES[item.mark]), f" {words}")
    for note in report.notes:
        screen.say((f"Note: {note}.", "quiet"))
    if not report.ok:
        screen.say(("Refused: ", "bad"), report.told)


def show_switch(screen: Screen, report: ReportShape) -> None:
    """Print the check, and the switch that was made."""
    show_report(screen, report)
    screen.say(
        "Switched ",
        (report.timeline, "line"),
        " of ",
        (report.thread, "name"),
        f" to {report.to_backend}, with {report.checkpoint}, at ",
        digest(report.commit),
    )


def agent_for(store: Store, name: str, code: str | None) -> Agent:
    """Return the agent of that name: as `code` declares it, else as the store has it, else by its name alone."""
    kept = store.definitions.find(name)
    if code is None:
        if kept is None:
            return Agent(name)
        if kept.definition.tools:  # they are in the code: what is known of them is what a turn was shown last
            return Agent(name, policy=kept.definition.policy, version=kept.digest)
        return kept.agent()
    found = found_in(code)
    if name in found.agents:
        return found.agents[name]
    if kept is None:
        others = ", ".join(f"'{each}'" for each in sorted(found.agents)) or "none"
        raise Invalid(
            f"--code {code} holds no agent '{name}' (there: {others}), and no definition of it is kept; nothing "
            "was done.",
            code="agent_not_in_code",
            advice=what_to_type(name),
            code_name=code,
            agent=name,
        )
    return kept.agent(found.tools.values())
