"""`perdure work`."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Container, Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from threading import Event, Lock
from types import FrameType
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.commands.runs.show import suggest_retry
from perdure.cli.input.stores import telemetry, writing
from perdure.cli.input.user_code import Code, found_in, what_to_type
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.ledger_words import show_held, state
from perdure.cli.output.screen import Screen, console
from perdure.cli.usage import to_be_named
from perdure.errors import Invalid, PerdureError
from perdure.model.call import UNCLEAR
from perdure.shapes.text import safe_json
from perdure.store.store import Store
from perdure.store.worker import Worked

__all__ = ["CarriedOn", "WorkEnded", "work"]


class CarriedOn(Answer, frozen=True, kw_only=True):
    """One run that a worker has worked on, and its state then; one JSON object a line."""

    thread: str
    run: str
    status: str | None  # null: it was not carried on
    why: str | None
    approvals: list[str]  # the calls that wait for a decision
    unclear: list[str]  # the calls whose outcome is unknown, although the run may have ended

    @classmethod
    def of(cls, worked: Worked, unclear: Sequence[str]) -> CarriedOn:
        """Return what a worker did in the shape of --json."""
        result, error = worked.result, worked.error
        why = result.why if result is not None else None
        return cls(
            thread=worked.thread,
            run=worked.run,
            status=None if result is None else result.status,
            why=why or (error.message if error is not None else None),
            approvals=[each.call for each in result.approvals] if result is not None else [],
            unclear=list(unclear),
        )

    def show(self, screen: Screen) -> None:
        """Print one line; for a run that waits for decisions also their calls, and the command that lists them."""
        why = f"  {self.why}" if self.why else ""
        run = (screen.short_id(self.run), "name")
        screen.cut(state(self.status or "not run"), f"  {self.thread}  ", run, (why, "quiet"))
        if self.status == "failed":
            suggest_retry(screen, self.thread, self.run, indent="  ")
        if self.approvals:
            calls = ", ".join(screen.short_id(each, self.approvals) for each in self.approvals)
            screen.wrap(("Waits for a decision on ", "quiet"), calls, indent=2)
            screen.suggest("  List them: ", "approvals", "ls", self.thread)
        if self.unclear:
            calls = count(len(self.unclear), "call")
            screen.wrap((f"The outcome of {calls} is unknown; a person has to settle it.", "warn"), indent=2)
            screen.suggest("  List them: ", "calls", "ls", self.thread)


class WorkEnded(Answer, frozen=True, kw_only=True):
    """How many times a worker carried a run on, until it was stopped."""

    runs: int

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        done = count(self.runs, "run") if self.runs else "No run"
        screen.say(f"Stopped. {done} {'was' if self.runs < 2 else 'were'} carried on here.")


def work(
    *,
    code: Code = None,
    at_once: Annotated[int, Parameter(metavar="N", help="How many runs are carried on side by side")] = 8,
    until_idle: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Stop when nothing is due, instead of waiting")
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Iterator[WorkEnded]:
    """Work: begin queued runs, resume interrupted and decided ones, and act on timers, until stopped

    Start as many workers as you like, on any machine that reaches the store: each run is carried on by one of them.
    On SIGTERM or Ctrl-C it takes nothing more and ends when its runs have ended or wait; a second signal ends it at
    once, and another worker resumes what it leaves. A run that ends its worker three times is set aside: see `perdure
    runs ls`, and `perdure runs release`. With perdure[otel] installed it sends telemetry where the OTEL_* environment
    says.
    """
    if code is None:
        raise Invalid(
            "this needs --code: what the tools of an agent do is known only to the program that declares it; nothing "
            "was done.",
            code="code_missing",
            advice=what_to_type(),
        )
    agents = list(found_in(code).agents.values())
    if not agents:
        raise Invalid(
            f"--code {code} holds no Agent; nothing was done.",
            code="agent_not_in_code",
            advice=what_to_type(),
            code_name=code,
        )
    screen, output, lock = Screen(console(), store=to_be_named(everywhere.store)), sys.stdout, Lock()

    def report(worked: Worked) -> None:
        answer = CarriedOn.of(worked, _unclear(store, worked))
        with lock:
            if everywhere.json:
                print(safe_json(msgspec.to_builtins(answer), indent=None), file=output, flush=True)
            else:
                answer.show(screen)
                output.flush()

    stop = Event()
    with writing(everywhere) as store, telemetry(store), _stopped_by_signals(stop):
        if not everywhere.json:
            names = ", ".join(each.name for each in agents)
            ends = "ends when nothing is due" if until_idle else "Ctrl-C stops it"
            screen.say(("Working", "good"), f" for {names}; {ends}.")
            for other, runs in _waiting_for_others(store, {each.name for each in agents}).items():
                waiting = f"{count(runs, 'queued run')} {'is' if runs == 1 else 'are'} for agent '{other}'"
                screen.wrap(("! ", "warn"), f"{waiting}, which --code {code} does not have.")
            with suppress(PerdureError):  # damage is reported with the run that has it
                show_held(screen, store.held(open_only=True))
            output.flush()
        with redirect_stdout(sys.stderr):  # what the code prints goes elsewhere
            done = store.work(agents, at_once=at_once, until_idle=until_idle, stop=stop, report=report)
    yield WorkEnded(runs=done)


def _waiting_for_others(store: Store, names: Container[str]) -> dict[str, int]:
    """Return how many runs are queued for agents that this worker does not have."""
    found = Counter[str]()
    with suppress(
        PerdureError
    ):  # damage does not keep a worker from the other threads; it reports each run itself
        for id, record in store.open_runs():
            if record.state == "created" and not record.scheduled:
                agent = store.thread(id).agent
                found[agent] += agent not in names
    return +found


def _unclear(store: Store, worked: Worked) -> list[str]:
    """Return the calls of a run whose outcome is unknown."""
    with suppress(PerdureError):  # the thread was removed, or is damaged: the line of the run says so
        calls = store.thread(worked.thread).calls(run=worked.run)
        return [each.id for each in calls if each.state in UNCLEAR]
    return []


@contextmanager
def _stopped_by_signals(stop: Event) -> Generator[None]:
    """Set `stop` at the first SIGTERM or SIGINT, and end the process at the second."""

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)  # what runs here counts as interrupted, and another worker resumes it
        stop.set()
        os.write(2, b"Stopping: the runs under way end first; once more to stop at once.\n")

    before = {each: signal.signal(each, ask) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
