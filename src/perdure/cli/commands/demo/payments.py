"""The agent of the story: it pays, and asks first if it is much.

python -m perdure.cli.commands.demo.payments STORE THREAD BANK WORDS [slow]

The first part of the story: an agent that pays, is killed, and does not pay twice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from perdure.cli.commands.approvals.show import diff_of
from perdure.cli.commands.demo.bank import TAKEN, Bank
from perdure.cli.commands.demo.screen import Stage
from perdure.cli.commands.demo.scripted_model import RENT, ROOF, Scripted
from perdure.cli.output.ledger_words import way
from perdure.errors import Decided
from perdure.ledger.trace import Traced
from perdure.model.ticket import Ticket
from perdure.runtime.agent.agent import Agent
from perdure.runtime.tools.call import Call, Outcome
from perdure.runtime.tools.tool import tool
from perdure.shapes.text import in_json
from perdure.store.open_store import open as open_store
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["LIMIT", "payer", "tell"]


LIMIT = 1_000  # above it a person is asked


def payer(bank: Bank) -> Agent:
    """Return an agent that pays through this bank."""

    @tool(effect="external_write", ask=lambda call: int(str(call.arguments["amount"])) > LIMIT)
    def pay(to: str, amount: int, call: Call) -> str:
        """Pay a person."""
        return bank.pay(to, amount, reference=call.key)

    @pay.reconcile
    def find(call: Call) -> Outcome:  # pyright: ignore[reportUnusedFunction]
        receipt = bank.find(call.key)
        return call.not_done() if receipt is None else call.done(receipt)

    return Agent("bookkeeper", backend=Scripted(), tools=[pay])


if __name__ == "__main__":
    place, thread, book, words, *how = sys.argv[1:]
    with open_store(place, create=False) as store:
        agent = payer(Bank(Path(book), slow="slow" in how))
        store.thread(thread, agent=agent).run(words)


ORDINARY = "perdure.cli.commands.demo.naive_agent"
PAYER = "perdure.cli.commands.demo.payments"


class _PaymentsSetting:
    """Where this part happens: two banks, side by side, and the ordinary loop's transcript."""

    def __init__(self, directory: Path) -> None:
        self.transcript = directory / "ordinary.json"
        self.theirs, self.ours = directory / "ordinary.txt", directory / "ours.txt"

    def ordinary(self) -> list[str]:
        """Return the words that start the ordinary loop."""
        return [ORDINARY, str(self.transcript), str(self.theirs), RENT]


def tell(stage: Stage, store: Store, directory: Path) -> None:
    """Progress this part; what it needs beside the store is kept in `directory`."""
    stage.part("Part one: nothing happens twice")
    place = _PaymentsSetting(directory)
    bank = Bank(place.ours)
    agent = payer(bank)
    rent = store.thread("rent", agent=agent, owner="ann")
    _kill(stage, store, rent, place)
    _restart(stage, rent, place)
    _undo(stage, rent, bank)
    _ask(stage, store.thread("roof", agent=agent, owner="ann"), bank)


def _kill(stage: Stage, store: Store, thread: Thread, place: _PaymentsSetting) -> None:
    stage.act(
        "Pay the rent, and be killed",
        "An agent pays through a bank, which is a file here; its model is scripted. Beside it, an ordinary loop does",
        "the same and saves a transcript at every step. Both are killed (SIGKILL) once the bank has the money,",
        "before it could answer.",
    )
    stage.says("user", RENT)
    ended = [
        _killed([*place.ordinary(), "slow"]),
        _killed([PAYER, store.url, thread.id, str(place.ours), RENT, "slow"]),
    ]
    theirs, ours = Bank(place.theirs).payments(), Bank(place.ours).payments()
    _books(stage, theirs, ours)
    stage.prove("both processes were killed, with the rent paid once each", _once(ended, theirs, ours))
    (call,) = thread.calls()
    stage.tells("ledger", *way(_passed(thread.trace(call.id))))
    stage.prove(
        "the ledger knows that the payment had started, and nothing of its end", call.state == "started"
    )


def _restart(stage: Stage, thread: Thread, place: _PaymentsSetting) -> None:
    stage.act(
        "Start both again",
        "The ordinary loop finds a call without a result, and runs it. Ours does not know either, so it asks the",
        "tool's reconcile hook, which looks for the payment at the bank by the call's key.",
    )
    subprocess.run([sys.executable, "-m", *place.ordinary()], check=False, stderr=subprocess.DEVNULL)
    result = thread.resume()
    theirs, ours = Bank(place.theirs).payments(), Bank(place.ours).payments()
    _books(stage, theirs, ours)
    stage.prove("the ordinary loop paid twice", theirs == ["landlord 900"] * 2)
    stage.prove("ours paid once", ours == ["landlord 900"])
    (call,) = thread.calls()
    passed = _passed(thread.trace(call.id))
    stage.tells("ledger", *way(passed))
    asked = passed[-3:] == ["started", "unknown", "succeeded"] and call.attempt == 1
    stage.prove("one attempt, then unknown, then settled: by asking, not by paying", asked)
    stage.says("assistant", result.text)
    stage.prove("the run went on to its end as if nothing had happened", result.status == "succeeded")


def _undo(stage: Stage, thread: Thread, bank: Bank) -> None:
    stage.act(
        "Undo, and ask for it again",
        "An undo takes back what was said, but no money. The ledger belongs to the thread, not to a timeline.",
    )
    thread.undo()
    forgotten = not thread.transcript()
    result = thread.run(RENT)
    stage.says("user", RENT)
    for ticket in result.approvals:
        stage.tells("asks", ticket.message, style="warn")
    stage.holds("bank", bank.payments())
    stage.prove("the conversation had forgotten the payment, and the repeat guard had not", forgotten)
    asks = result.status == "waiting" and [each.action for each in result.approvals] == ["repeat"]
    stage.prove(
        "it asks before it would pay again, and has not paid", asks and bank.payments() == ["landlord 900"]
    )


def _ask(stage: Stage, thread: Thread, bank: Bank) -> None:
    stage.act("Ask first, and edit", f"Beyond {LIMIT:,} this tool asks. Ann lets it pay, but less.")
    waiting = thread.run(ROOF)
    stage.says("user", ROOF)
    (ticket,) = waiting.approvals
    stage.tells("asks", ticket.message, style="warn")
    stage.prove("the run waits, and nothing was paid", waiting.status == "waiting" and not _to_roofer(bank))
    edited = {"to": "roofer", "amount": 500}
    thread.decide(ticket.call, "edit", value=edited, by="ann", why="the first half")
    _edit(stage, in_json(thread.trace(ticket.call).asked), edited)
    result = thread.resume()
    stage.says("assistant", result.text)
    stage.holds("bank", bank.payments())
    stage.prove("the bank shows the edited amount, once", _to_roofer(bank) == ["roofer 500"])
    told = _refused(thread, ticket)
    stage.tells("bob", "denies it, too late: ", ("Decided", "warn"), f": {told}")
    stage.prove(
        "another decision later is refused: the first one is kept, with who and why", "by ann" in told
    )
    again = thread.decide(ticket.call, "edit", value=edited, by="ann")
    stage.prove(
        "the same decision again changes nothing", _is_settled(thread, again) and len(_to_roofer(bank)) == 1
    )


def _killed(words: list[str]) -> int:
    """Return how a process ended that was killed after the bank had its money."""
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == TAKEN:
                break
        process.kill()
    return process.returncode


def _once(ended: list[int], *books: list[str]) -> bool:
    killed = all(code == -signal.SIGKILL for code in ended)
    return killed and all(book == ["landlord 900"] for book in books)


def _books(stage: Stage, theirs: list[str], ours: list[str]) -> None:
    for name, book in (("ordinary", theirs), ("ours", ours)):
        style = "name" if len(book) == len(set(book)) else "bad"
        stage.tells(name, "its bank has: ", (", ".join(book), style))


def _edit(stage: Stage, before: object, after: object) -> None:
    """Show the lines that an edit changes."""
    label = "ann"
    for part in diff_of(before, after):
        words, style = part if isinstance(part, tuple) else (part, "")
        if style != "quiet":
            stage.tells(label, (words, style))
            label = ""


def _passed(traced: Traced) -> list[str]:
    return [state for each in traced.passed for state in each.states]


def _to_roofer(bank: Bank) -> list[str]:
    return [each for each in bank.payments() if each.startswith("roofer")]


def _refused(thread: Thread, ticket: Ticket) -> str:
    try:
        thread.decide(ticket.call, "deny", by="bob")
    except Decided as decided:
        return str(decided)
    return "no error"


def _is_settled(thread: Thread, ticket: Ticket) -> bool:
    decision = ticket.decision
    settled = thread.calls()[-1].state == "succeeded"
    return settled and decision is not None and decision.why == "the first half"
