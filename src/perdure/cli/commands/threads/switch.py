"""`perdure threads switch`.

`perdure threads hand-off`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.commands.models.shapes import meant_backend
from perdure.cli.commands.switch_report import REFUSED, agent_for, report_shape, show_report, show_switch
from perdure.cli.commands.threads.moves import MoveAnswer
from perdure.cli.input.stores import reading, writing
from perdure.cli.input.user_code import SwitchCode
from perdure.cli.options import (
    EVERYWHERE,
    ApprovedBy,
    BaseUrl,
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
from perdure.errors import PerdureError, Refused
from perdure.model.head import MAIN
from perdure.providers.backend import Backend
from perdure.providers.contract import server_of
from perdure.providers.profile import name_of
from perdure.runtime.agent.agent import Agent, taking_steps
from perdure.shapes.threads import SwitchShape
from perdure.switching.report import Report

__all__ = ["HandedOff", "SwitchAnswer", "hand_off", "switch"]


class SwitchAnswer(SwitchShape, Answer, frozen=True, kw_only=True):
    """A thread that another backend has taken over, or would."""

    declare: (
        str | None
    )  # the `Backend` that the code has to declare for the next run; null: none is known to miss

    @property
    def exit_code(self) -> int:
        """Return 5 if the switch was refused, or would be."""
        return 0 if self.report.ok else REFUSED

    def show(self, screen: Screen) -> None:
        """Print the check, and what was done."""
        (show_switch if self.switched else show_report)(screen, self.report)
        if self.switched and self.declare:
            told = f"The code that runs it has to declare {self.declare}; else the next run is refused: ServerChanged."
            screen.wrap(("! ", "warn"), told, whole_words=True)


def switch(
    thread: ThreadId,
    /,
    *,
    to: ToBackend,
    base_url: BaseUrl = None,
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
    recorded it. A conversation that is at a server of its own stays there only if --base-url or --code names that server.
    """
    backend = meant_backend(to)
    target = backend if base_url is None else Backend(backend, base_url=base_url)
    with reading(everywhere) if dry_run else writing(everywhere) as store:
        agent = agent_for(store, store.thread(thread).agent, code)
        found = store.thread(thread, agent=agent, timeline=timeline)
        if dry_run:
            report = found.check_switch(target)
        else:
            try:
                report = found.switch(target, reason=reason, approved_by=approved_by, op_id=op_id)
            except Refused as refused:
                if not isinstance(refused.report, Report):
                    raise
                report = refused.report
        shape = report_shape(report, store=to_be_named(everywhere.store))
        declare = None if base_url is None else _to_declare(agent, backend, base_url, report.to_server)
        return SwitchAnswer(dry_run=dry_run, switched=report.switched, report=shape, declare=declare)


def _to_declare(agent: Agent, name: str, base_url: str, server: str | None) -> str | None:
    """Return the `Backend` that leads to the server; None: one of the agent's leads there, or else the name alone."""
    known = () if agent.backend is None else (agent.backend,)
    known = (*known, *(() if agent.route is None else agent.route.order(None)))
    with suppress(PerdureError):  # what would send there is not installed here
        for each in [each for each in known if name_of(each) == name] or [name]:
            if server_of(taking_steps(each)) == server:
                return None
    return f"Backend({json.dumps(name)}, base_url={json.dumps(base_url)})"


class HandedOff(MoveAnswer, frozen=True, kw_only=True):
    """The head of the timeline after a hand-off."""

    from_agent: str
    to_agent: str
    backend: str | None  # that takes the next turn

    @property
    def summary(self) -> str:
        """Return what happened."""
        return f"Handed off from {self.from_agent} to {self.to_agent}"


def hand_off(
    thread: ThreadId,
    /,
    *,
    to: Annotated[str, Parameter(name="--to", metavar="AGENT", help="The agent that gets the conversation")],
    reason: Annotated[
        str | None, Parameter(name="--reason", metavar="TEXT", help="The reason to record")
    ] = None,
    by: Annotated[
        str | None,
        Parameter(name="--by", metavar="WHO", help="Who decides it, and approves the switch of the backend"),
    ] = None,
    code: SwitchCode = None,
    timeline: Timeline = MAIN,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> HandedOff:
    """Hand a thread off to another agent, which gets the conversation

    A hand-off is one commit: undo takes it back. The next agent has its own tools and its own map, never
    the map of another agent. If --code, or the store, says that it has another backend, the commit switches to it.
    A run that has not ended is in the way: decide or cancel it first.
    """
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        after = found.hand_off(agent_for(store, to, code), reason=reason, by=by, op_id=op_id)
        moved = MoveAnswer.by(after, after.head)
        return HandedOff(
            **msgspec.structs.asdict(moved),
            from_agent=found.agent,
            to_agent=after.agent,
            backend=after.backend,
        )
