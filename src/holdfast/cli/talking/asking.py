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

__all__ = ["CHOICES", "ask", "decide"]

_ANSWERS: dict[str, Verdict] = {
    "a": "approve", "approve": "approve", "y": "approve", "yes": "approve",
    "d": "deny", "deny": "deny", "n": "deny", "no": "deny",
    "e": "edit", "edit": "edit",
    "r": "answer", "answer": "answer",
}  # fmt: skip


CHOICES = "approve, deny, edit, answer or later? "

_LATER = ("l", "later", "")


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


def decide(screen: Screen, thread: Thread, ticket: Ticket) -> str | None:
    """Put one question to the person and record the decision; None: it is decided.

    Otherwise what was said instead: a command about the conversation, or nothing, and it waits.
    """
    traced = thread.trace(ticket.id, history=False)
    screen.gap()
    screen.say(("? ", "warn"), ticket.message or f"may {ticket.tool} go on?")
    screen.say("  ", (ticket.tool, "tool"))
    show_json(screen, in_json(traced.asked))
    if not sys.stdin.isatty():
        screen.say((CHOICES, "quiet"))
    while True:
        said = (ask(CHOICES) or "later").strip()
        verdict = _ANSWERS.get(said.lower())
        if verdict is None:
            if said.startswith("/") or said.lower() in _LATER:
                screen.suggest("It waits. Decide it any time: ", "approvals", "show", thread.id, ticket.call)
                return said if said.startswith("/") else ""
            screen.say((f"'{said}' is none of these.", "warn"))
            continue
        try:
            thread.decide(ticket.call, verdict, value=_value(verdict), by="chat")
        except (HoldfastError, ValueError) as error:
            screen.say((str(error), "warn"))
            continue
        return None


def _value(verdict: Verdict) -> object:
    """What goes with an edit or an answer, as JSON; raises `ValueError` if it is none."""
    if verdict not in ("edit", "answer"):
        return None
    said = ask("new arguments, as JSON: " if verdict == "edit" else "the result, as JSON: ")
    try:
        return json.loads(said or "")
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}; nothing was decided.") from error
