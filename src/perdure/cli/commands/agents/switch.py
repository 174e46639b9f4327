"""`perdure agents switch`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.commands.models.shapes import meant_backend
from perdure.cli.commands.switch_report import REFUSED, agent_for, report_shape, show_report
from perdure.cli.completion import in_store
from perdure.cli.errors import code_of
from perdure.cli.hints import Subject, explain
from perdure.cli.input.stores import reading, writing
from perdure.cli.input.suggestions import no_agent
from perdure.cli.input.user_code import SwitchCode
from perdure.cli.options import EVERYWHERE, ApprovedBy, BaseUrl, DryRun, Everywhere, ToBackend
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen
from perdure.cli.usage import to_be_named
from perdure.providers.backend import Backend
from perdure.shapes.threads import ReportShape
from perdure.store.runs import ThreadMoved, moved
from perdure.store.store import Store

__all__ = ["AgentSwitched", "ThreadSwitched", "switch"]


class ThreadSwitched(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one thread."""

    thread: str
    switched: bool
    report: ReportShape | None
    error: str | None  # why it was not moved
    exit_code: int


class AgentSwitched(Answer, frozen=True, kw_only=True):
    """An agent whose threads another backend has taken over, or would."""

    agent: str
    to_backend: str
    dry_run: bool
    default: str  # which backend new threads begin with, in a sentence
    threads: list[ThreadSwitched]

    @property
    def exit_code(self) -> int:
        """Return 5 if any thread was refused, or would be; else the code of the first that could not be switched."""
        codes = [each.exit_code for each in self.threads if each.exit_code]
        return REFUSED if REFUSED in codes else next(iter(codes), 0)

    def show(self, screen: Screen) -> None:
        """Print one report per thread, and the backend of new threads."""
        for at, each in enumerate(self.threads):
            if len(self.threads) > 1:
                if at:
                    screen.gap()
                screen.say(("thread ", "quiet"), (each.thread, "title"))
            if each.report is not None:
                show_report(screen, each.report)
            elif each.error is not None:
                screen.say(("Not switched: ", "bad"), each.error)
        if self.dry_run:
            return
        done = sum(each.switched for each in self.threads)
        screen.say(
            f"Switched {done} of {count(len(self.threads), 'thread')} to {self.to_backend}. {self.default}"
        )


def switch(
    agent: Annotated[str, Parameter(name="NAME", completer=in_store, help="The agent's name")],
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
    everywhere: Everywhere = EVERYWHERE,
) -> AgentSwitched:
    """Switch every open thread of an agent to another backend, each after a check

    New threads of an agent that is defined in a file begin on the new backend too, if no thread is refused; for an
    agent that is declared in code the code decides. Exits with 5 if any thread is refused, also on a dry run.
    """
    backend = meant_backend(to)
    target = backend if base_url is None else Backend(backend, base_url=base_url)
    with reading(everywhere) if dry_run else writing(everywhere) as store:
        declared = agent_for(store, agent, code)
        results = [
            moved(
                store.thread(id, agent=declared),
                target,
                id=id,
                dry_run=dry_run,
                reason=reason,
                approved_by=approved_by,
            )
            for id in _open(store, agent)
        ]
        default = _default(store, agent, target, results, dry_run=dry_run)
    return AgentSwitched(
        agent=agent,
        to_backend=backend,
        dry_run=dry_run,
        default=default,
        threads=[_shape(each, to_be_named(everywhere.store)) for each in results],
    )


def _open(store: Store, agent: str) -> list[str]:
    """Return the threads of the agent that are not sealed."""
    found = list(store.threads(agent=agent))
    if not found and store.definitions.find(agent) is None:
        raise no_agent(store, agent, "nothing was switched")
    return [thread.id for thread in found if not thread.timelines()[0].sealed]


def _default(
    store: Store, agent: str, backend: str | Backend, results: list[ThreadMoved], *, dry_run: bool
) -> str:
    """Return a sentence that says which backend new threads begin with; change it if every thread was switched."""
    kept = store.definitions.find(agent)
    if kept is None:
        return f"New threads begin on what the code of {agent} says: it is declared there."
    if isinstance(backend, Backend):
        return f"New threads begin on {kept.definition.backend} still: a definition holds no address."
    if kept.definition.backend == backend:
        return f"New threads begin on {backend}, as before."
    if not all(each.ok for each in results):
        return f"New threads begin on {kept.definition.backend} still, as not every thread was switched."
    if not dry_run:
        store.definitions.apply(agent, kept.definition.on(backend), reason="switch")
    return f"New threads begin on {backend}."


def _shape(each: ThreadMoved, store: str | None) -> ThreadSwitched:
    code = code_of(each.error) if each.error is not None else 0
    if each.report is not None and not each.report.ok:
        code = REFUSED
    return ThreadSwitched(
        thread=each.thread,
        switched=each.report is not None and each.report.switched,
        report=None if each.report is None else report_shape(each.report, store=store),
        error=None
        if each.error is None
        else " ".join(explain(each.error, Subject(thread=each.thread, store=store))).rstrip(),
        exit_code=code,
    )
