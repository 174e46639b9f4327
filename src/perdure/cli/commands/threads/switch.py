"""`perdure threads switch`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.models.shapes import meant_backend
from perdure.cli.commands.switch_report import REFUSED, ReportShape, agent_for, show_report, show_switch
from perdure.cli.input.stores import reading, writing
from perdure.cli.input.user_code import SwitchCode
from perdure.cli.options import (
    EVERYWHERE,
    ApprovedBy,
    DryRun,
    Everywhere,
    OpId,
    ThreadId,
    Timeline,
    ToBackend,
)
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.cli.usage import to_be_named
from perdure.errors import Refused
from perdure.model.head import MAIN
from perdure.switching.report import Report

__all__ = ["SwitchAnswer", "switch"]


class SwitchAnswer(Answer, frozen=True, kw_only=True):
    """A thread that another backend has taken over, or would."""

    dry_run: bool
    switched: bool
    report: ReportShape

    @property
    def exit_code(self) -> int:
        """Return 5 if the switch was refused, or would be."""
        return 0 if self.report.ok else REFUSED

    def show(self, screen: Screen) -> None:
        """Print the check, and what was done."""
        (show_switch if self.switched else show_report)(screen, self.report)


def switch(
    thread: ThreadId,
    /,
    *,
    to: ToBackend,
    dry_run: DryRun = False,
    reason: Annotated[
        str | None, Parameter(name="--reason", metavar="TEXT", help="The reason to record")
    ] = None,
    approved_by: ApprovedBy = None,
    code: SwitchCode = None,
    timeline: Timeline = MAIN,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> SwitchAnswer:
    """Switch a thread to another backend, after a check of what that keeps and loses

    A switch is one commit: undo takes it back. With --dry-run nothing is changed. Exits with 5 if the agent's
    policy refuses it, also on a dry run. Without --code the agent is the one that the store has, or as its last turn
    recorded it.
    """
    backend = meant_backend(to)
    with reading(everywhere) if dry_run else writing(everywhere) as store:
        agent = agent_for(store, store.thread(thread).agent, code)
        found = store.thread(thread, agent=agent, timeline=timeline)
        if dry_run:
            report = found.check_switch(backend)
        else:
            try:
                report = found.switch(backend, reason=reason, approved_by=approved_by, op_id=op_id)
            except Refused as refused:
                if not isinstance(refused.report, Report):
                    raise
                report = refused.report
        shape = ReportShape.of(report, store=to_be_named(everywhere.store))
        return SwitchAnswer(dry_run=dry_run, switched=report.switched, report=shape)
