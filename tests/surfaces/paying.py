"""An agent that pays, for the tests of runs, calls and approvals; `--code tests.surfaces.paying:payer` names it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import perdure
from perdure import Agent, Call, Outcome, Store
from perdure.testing import Script, crash, say, step, use
from tests.surfaces.shell import opened

__all__ = ["ANSWERS", "CODE", "asker", "both", "cut_off", "house", "payer", "sent"]

CODE = "tests.surfaces.paying:payer"

sent: list[str] = []  # what was paid in this process
ANSWERS = ["dont_know"]  # what the reconcile hook says


@perdure.tool(effect="financial", ask=lambda call: call.arguments["amount"] > 1_000)
def pay(to: str, amount: int) -> str:
    """Pay somebody; the cat's bank never answers."""
    print("paying")
    sent.append(f"{to} {amount}")
    if to == "cat":
        raise ConnectionError("reset by peer")
    return f"receipt for {to}, {amount}"


@pay.reconcile
def find(call: Call) -> Outcome:
    """Say what the test wants to hear."""
    match ANSWERS[0]:
        case "done":
            return call.done({"receipt": 7})
        case "not_done":
            return call.not_done()
        case _:
            return call.dont_know("the bank is closed")


@perdure.tool(effect="read_only")
def colour(call: Call) -> str:
    """Ask which colour it should be."""
    if call.decision is None:
        schema = {"type": "string", "enum": ["red", "blue"]}
        call.suspend("Which colour?", action="choose", response_schema=schema)
    return f"{call.decision.value} it is"


_ROUND = step(use("pay", to="roofer", amount=5000), use("pay", to="cat", amount=13))

payer = Agent("payer", backend=Script(_ROUND, say("All is paid.")), tools=[pay])
asker = Agent("asker", backend=Script(use("colour"), say("Painted.")), tools=[colour])
both = [asker, payer]


def house(path: Path) -> None:
    """Make a store with a thread whose run waits for one approval, and has one call that needs a person."""
    with opened(path) as store:
        _begin(store)


def _begin(store: Store) -> None:
    store.thread("house", agent=payer, owner="ann").run("Pay the roofer and the cat.", id="m1")


def cut_off(path: Path) -> None:
    """Make a store with a thread whose run was killed after it had paid."""
    child = os.fork()
    if child == 0:
        script = Script(use("pay", to="baker", amount=3), say("Paid."), crash("after_effect"))
        with perdure.open(path) as store:
            store.thread("bread", agent=payer.on(script)).run("Pay the baker.")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
