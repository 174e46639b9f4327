"""What a switch of a backend keeps and loses, as programs and people read it, and who it is about."""

from __future__ import annotations

from perdure.cli.errors import CODES
from perdure.cli.hints import Subject, advice_for
from perdure.cli.input.user_code import found_in, what_to_type
from perdure.cli.output.display import digest
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid, Refused
from perdure.runtime.agent.agent import Agent
from perdure.shapes.threads import ReportShape
from perdure.store.store import Store
from perdure.switching.report import Report, refusal

__all__ = ["REFUSED", "report_shape", "agent_for", "show_report", "show_switch"]

REFUSED = CODES[Refused]

_STYLES = {"kept": "good", "converted": "warn", "removed": "bad"}


def report_shape(report: Report, *, store: str | None = None) -> ReportShape:
    """Return the report in the shape of --json; the commands that it advises name `store`, if one is given."""
    return ReportShape.of(report, told=str(report) if report.ok else _refusal(report, store))


def _refusal(report: Report, store: str | None) -> str:
    error = refusal(report)
    return f"{error.why} {advice_for(error, Subject(thread=report.thread, store=store))}"


def show_report(screen: Screen, report: ReportShape) -> None:
    """Print the check, a line each; then the reason of a refusal."""
    screen.say("Compatibility check:")
    for item in report.items:
        mark, _, words = item.line.partition(" ")
        screen.wrap(words, indent=2, label=(mark, _STYLES[item.mark]), whole_words=True)
    if None not in (report.from_server, report.to_server):
        screen.wrap((f"Requests go to {report.to_server}.", "quiet"), whole_words=True)
    for note in report.notes:
        screen.wrap((f"Note: {note}.", "quiet"), whole_words=True)
    if not report.ok:
        screen.wrap(("Refused: ", "bad"), report.told, whole_words=True)


def show_switch(screen: Screen, report: ReportShape) -> None:
    """Print the check, and the switch that was made."""
    show_report(screen, report)
    screen.sentence(
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
