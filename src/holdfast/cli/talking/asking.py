"""Asking the person at the terminal: the next words, or a decision about a call that waits."""

from __future__ import annotations

import contextlib
import json
import sys

from holdfast.cli.calls.show import show_json
from holdfast.cli.records import in_json
from holdfast.cli.screen import Screen
from holdfast.errors import HoldfastError
from holdfast.model.ticket import Ticket, Verdict
from holdfast.threads.thread import Thread

__all__ = ["ask", "decide"]

_ANSWERS: dict[str, Verdict] = {
    "a": "approve", "approve": "approve", "y": "approve", "yes": "approve",
    "d": "deny", "deny": "deny", "n": "deny", "no": "deny",
    "e": "edit", "edit": "edit",
    "r": "answer", "answer": "answer",
}  # fmt: skip


def ask(prompt: str) -> str | None:
    """What the person says next, on one line; None: nothing more comes."""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]  # lets lines be edited
        try:
            return input(prompt)
        except EOFError:
            return None
    line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None


def decide(screen: Screen, thread: Thread, ticket: Ticket) -> bool:
    """Put one question to the person and record the decision; False if it is left for later."""
    traced = thread.trace(ticket.id, history=False)
    screen.gap()
    screen.say(("? ", "warn"), ticket.message or f"may {ticket.tool} go on?")
    screen.say("  ", (ticket.tool, "tool"))
    show_json(screen, in_json(traced.asked))
    while True:
        said = ask("approve, deny, edit, answer or later? ")
        verdict = _ANSWERS.get((said or "later").strip().lower())
        if verdict is None:
            if said is None or said.strip().lower() in ("l", "later", ""):
                screen.suggest("It waits. Decide it any time: ", "approvals", "show", thread.id, ticket.call)
                return False
            screen.say((f"'{said}' is none of these.", "warn"))
            continue
        try:
            value = _value(verdict)
            thread.decide(ticket.call, verdict, value=value, by="chat")
        except (HoldfastError, ValueError) as error:
            screen.say((str(error), "warn"))
            continue
        return True


def _value(verdict: Verdict) -> object:
    """What goes with an edit or an answer, as JSON; raises `ValueError` if it is none."""
    if verdict not in ("edit", "answer"):
        return None
    said = ask("new arguments, as JSON: " if verdict == "edit" else "the result, as JSON: ")
    try:
        return json.loads(said or "")
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}; nothing was decided.") from error
