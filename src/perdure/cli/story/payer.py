"""The agent of the story: it pays, and asks first if it is much.

python -m perdure.cli.story.payer STORE THREAD BANK WORDS [slow]
"""

from __future__ import annotations

import sys
from pathlib import Path

from perdure.cli.story.bank import Bank
from perdure.cli.story.scripted import Scripted
from perdure.runtime.agent import Agent
from perdure.runtime.call import Call, Outcome
from perdure.runtime.tool import tool
from perdure.threads.opening import open as open_store

__all__ = ["LIMIT", "payer"]

LIMIT = 1_000  # beyond it somebody is asked


def payer(bank: Bank) -> Agent:
    """An agent that pays through this bank."""

    @tool(effect="external_write", ask=lambda call: int(str(call.arguments["amount"])) > LIMIT)
    def pay(to: str, amount: int, call: Call) -> str:
        """Pay somebody."""
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
