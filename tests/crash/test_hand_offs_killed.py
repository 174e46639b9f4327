"""A program that delegates to a child run, hands its thread off and goes on there is killed around any of its writes.

Started again, it ends as if nothing had happened: each payment is made once, and every word is in the transcript once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perdure
from perdure import Agent, Call, Outcome, Tool
from perdure.engines.contract import Write
from perdure.engines.sqlite import SqliteEngine
from perdure.testing import Script, say, step, use
from tests.crash.campaign import sized
from tests.crash.processes import exit_code_of

EVERY = sized(12, 1)  # of the moments before and after a write
FIRST = sized(9, 1)  # so that a moment is among them at which a payment is made and not yet recorded
TEXTS = ["Go.", "Done.", "Bill it.", "Billed."]


def paying(world: Path, effect: Any) -> Tool:
    """A tool that notes each payment in a file, and knows afterwards which were made."""

    @perdure.tool(effect=effect)
    def pay(call: Call, to: str) -> str:
        """Pay a person."""
        with world.open("a") as file:
            file.write(f"{to} {call.key}\n")
        return f"paid {to}"

    @pay.reconcile
    def look(call: Call) -> Outcome:
        made = world.read_text().split() if world.exists() else []
        return call.done("paid before") if call.key in made else call.not_done()

    return pay


def agents(world: Path, effect: Any) -> tuple[Agent, Agent]:
    """An agent that pays and lets a helper pay, and the one that takes over."""
    pay = paying(world, effect)
    helper = Agent("helper", backend=Script(use("pay", to="bob"), say("Helped.")), tools=[pay])

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Let the helper do it."""
        return call.run(helper, "Do it.").text

    both = step(use("pay", to="ann"), use("delegate"))
    first = Agent("first", backend=Script(both, say("Done.")), tools=[delegate, pay])
    return first, Agent("billing", backend=Script(use("pay", to="eve"), say("Billed.")), tools=[pay])


def live(directory: Path, effect: Any = "external_write") -> None:
    """What the program does each time that it is started."""
    first, billing = agents(directory / "world", effect)
    with perdure.open(directory / "store.db") as store:
        begun = any(thread.id == "t" for thread in store.threads())
        if not begun or store.thread("t").agent == "first":
            store.resume(first)
            thread = store.thread("t", agent=first)
            thread.run("Go.", id="m1")
            thread.hand_off(billing, reason="money", by="ann", op_id="h1")
        store.resume(billing)
        store.thread("t", agent=billing).run("Bill it.", id="m2")


def live_and_die(directory: str, moment: int, effect: Any = "external_write") -> None:
    """Live until a moment before or after a write."""
    left = moment
    apply: Callable[..., Any] = SqliteEngine.apply

    def pass_moment() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(9)

    def applied(self: SqliteEngine, write: Write) -> Any:
        pass_moment()
        receipt = apply(self, write)
        pass_moment()
        return receipt

    SqliteEngine.apply = applied
    live(Path(directory), effect)


def check_whole(directory: Path) -> None:
    """Raise unless everything was done once."""
    payments = [line.split()[0] for line in (directory / "world").read_text().splitlines()]
    assert sorted(payments) == ["ann", "bob", "eve"]
    with perdure.open(directory / "store.db") as store:
        thread = store.thread("t")
        assert [each.text for each in thread.transcript() if each.text and each.role != "tool"] == TEXTS
        assert [run.state for run in thread.runs()] == ["succeeded", "succeeded"]
        assert store.verify().ok


def test_a_hand_off_and_a_child_run_are_finished_once(tmp_path: Path) -> None:
    """Killed at a moment of any write, and started again."""
    code, moment, killed = 9, FIRST, 0
    while code == 9:
        directory = tmp_path / f"{moment}"
        directory.mkdir()
        code = exit_code_of(live_and_die, str(directory), moment)

        live(directory)

        check_whole(directory)
        moment, killed = moment + EVERY, killed + 1
    assert code == 0
    assert killed * EVERY > 35, "the moments of its writes"


def test_control_a_payment_that_may_be_repeated_is_made_twice(tmp_path: Path) -> None:
    """At one of these moments it is made and not yet recorded."""
    payments: list[str] = []
    for moment in range(7, 13):
        directory = tmp_path / f"{moment}"
        directory.mkdir()
        assert exit_code_of(live_and_die, str(directory), moment, "none") == 9
        live(directory, "none")
        payments += (directory / "world").read_text().splitlines()
        if len(payments) % 3:
            return
    raise AssertionError("each payment was made once")
