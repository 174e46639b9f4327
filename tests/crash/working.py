"""A worker process for campaigns, its agents, and tools whose effects an independent file counts.

Started as `python -m tests.crash.working STORE FILE MODE`; `MODE` is `ledger`, or `bare` for the control, whose tool
declares that it reads and so is repeated after every interruption.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import perdure
from perdure import Agent, Call, Outcome, RunLimits, Store
from perdure.context.render.call_summaries import is_note
from perdure.model.context import Context
from perdure.model.message import Message, Text, ToolCall
from perdure.model.run import Usage
from perdure.providers.contract import Finished, ModelEvent
from perdure.runtime.session.environment import StoreRuntime
from perdure.runtime.session.lease_keeper import LeaseKeeper

__all__ = ["AT_ONCE", "LEASE_SECONDS", "agents", "lines_of", "opened", "requests_of"]

LEASE_SECONDS = 3.0
AT_ONCE = 5  # runs of the agent, over all workers


class Planner:
    """A model that reads in the conversation what to do: the words of the input name a tool and a number."""

    backend = "script:planner"

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Call the tool that the last message names, or say that it is done if that is a result, or a note on one."""
        last, used = context.messages[-1], Usage(input_tokens=10, output_tokens=10)
        is_input = last.role == "user" and not is_note(last)
        tool, number = last.text.split() if is_input else ("say", "0")
        if tool == "say":
            yield Finished(message=Message("assistant", (Text("done"),)), usage=used, stop="end")
        else:
            call = ToolCall(f"call-{number}", tool, f'{{"number": {number}}}')
            yield Finished(message=Message("assistant", (), (call,)), usage=used, stop="tool_calls")


def lines_of(file: Path) -> list[str]:
    """The effects that happened, in order."""
    return file.read_text().split() if file.exists() else []


def requests_of(file: Path) -> Path:
    """The file in which runs note their beginning and end."""
    return file.with_suffix(".runs")


def agents(file: Path, *, bare: bool = False) -> list[Agent]:
    """The agent of a campaign, whose tools append to `file`; `bare`: without the protection of the ledger."""

    def note(path: Path, line: str) -> None:
        with path.open("a") as opened:
            opened.write(line + "\n")

    def happen(number: int) -> str:
        note(requests_of(file), f"+{os.getpid()}:{number}")
        time.sleep(0.02)
        note(file, str(number))
        time.sleep(0.5 if bare else 0.02)  # a kill in between leaves an effect without a record
        note(requests_of(file), f"-{os.getpid()}:{number}")
        return f"paid {number}"

    @perdure.tool(effect="read_only" if bare else "external_write")
    def pay(number: int) -> str:
        """Pay, once."""
        return happen(number)

    @perdure.tool(effect="read_only" if bare else "external_write")
    def pay_later(number: int, call: Call) -> str:
        """Pay, once, after a while."""
        if call.decision is None:
            call.suspend(until=0.1 + number % 7 / 10)
        return happen(number)

    @perdure.tool(effect="read_only" if bare else "external_write", ask=True)
    def pay_approved(number: int) -> str:
        """Pay, once, after an approval."""
        return happen(number)

    @perdure.tool(effect="read_only")
    def die(number: int) -> str:
        """End the process."""
        note(requests_of(file), f"died:{number}")
        os._exit(9)

    def found(call: Call) -> Outcome:
        number = str(call.arguments["number"])
        return call.done(f"paid {number}") if number in lines_of(file) else call.not_done()

    if not bare:
        for each in (pay, pay_later, pay_approved):
            each.reconcile(found)
    helper = Agent("helper", backend=Planner(), tools=[pay, pay_later, pay_approved])

    @perdure.tool(effect="read_only")
    def delegate(number: int, call: Call) -> str:
        """Let another agent pay, in a child run."""
        tool = ("pay", "pay_later", "pay_approved")[number % 3]
        return call.run(helper, f"{tool} {number}").text

    tools = [pay, pay_later, pay_approved, delegate, die]
    return [Agent("payer", backend=Planner(), tools=tools, limits=RunLimits(runs=AT_ONCE))]


def opened(path: str) -> Store:
    """A store whose leases end soon, so that a stopped process is taken over."""
    store = perdure.open(path)
    owners = LeaseKeeper(ttl=LEASE_SECONDS, poll=0.1)
    store._resources.runtimes.append(StoreRuntime(owners))  # pyright: ignore[reportPrivateUsage]
    return store


if __name__ == "__main__":
    with opened(sys.argv[1]) as working_on:
        working_on.work(agents(Path(sys.argv[2]), bare=sys.argv[3] == "bare"), at_once=4)
