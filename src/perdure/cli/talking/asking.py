"""Asking the person at the terminal for a decision about a call that waits.

A decision is a whole word, typed after the question was shown.  New arguments and results may be pasted:
they are shown, and count once the person has typed the word that confirms them.
"""

from __future__ import annotations

import json

from perdure.cli.approvals.show import diff_of, until
from perdure.cli.calls.show import show_json
from perdure.cli.records import in_json
from perdure.cli.screen import Screen
from perdure.cli.terminal import Terminal
from perdure.cli.users import os_user
from perdure.cli.wording import stamp
from perdure.errors import PerdureError
from perdure.ledger.tracing import Traced
from perdure.model.ticket import Ticket, Verdict
from perdure.threads.thread import Thread

__all__ = ["ask_decision", "show_question", "show_waiting"]

_VERDICTS: dict[str, Verdict] = {"approve": "approve", "deny": "deny", "edit": "edit", "answer": "answer"}
_LATER = "later"
_CHOICES = f"{', '.join(_VERDICTS)} or {_LATER}? "


def show_question(screen: Screen, thread: Thread, ticket: Ticket) -> Traced:
    """Show what a call waits for: the question, tool, effect, arguments, and until when."""
    traced = thread.trace(ticket.id, history=False)
    screen.gap()
    screen.say(("? ", "warn"), ticket.message or f"may {ticket.tool} go on?")
    expires_at = None if ticket.expires_at is None else stamp(ticket.expires_at)
    limit = until(expires_at, ticket.on_timeout)
    screen.say("  ", (ticket.tool, "tool"), (f"  {traced.record.effect}, waits until {limit}", "quiet"))
    show_json(screen, in_json(traced.asked))
    return traced


def ask_decision(screen: Screen, terminal: Terminal, thread: Thread, ticket: Ticket) -> str | None:
    """Put one question to the person and record the decision; None: it is decided.

    Otherwise what the person typed instead: a command about the conversation, or nothing, and it waits.
    """
    traced = show_question(screen, thread, ticket)
    while True:
        said = terminal.ask_word(_CHOICES, (*_VERDICTS, _LATER), takes_commands=True) or _LATER
        if said not in _VERDICTS:
            show_waiting(screen, thread, ticket)
            return said if said.startswith("/") else ""
        try:
            value = None if said in ("approve", "deny") else _value(screen, terminal, said, traced)
            thread.decide(ticket.call, _VERDICTS[said], value=value, by=os_user())
        except (PerdureError, ValueError) as error:
            screen.say((str(error), "warn"))
            continue
        return None


def show_waiting(screen: Screen, thread: Thread, ticket: Ticket) -> None:
    """Say that the call waits, and how it can be decided."""
    screen.suggest("It waits. Decide it any time: ", "approvals", "show", thread.id, ticket.call)


def _value(screen: Screen, terminal: Terminal, verdict: str, traced: Traced) -> object:
    """Ask for what goes with an edit or an answer, show it, and have it confirmed; raises `ValueError` if it is not."""
    entry = terminal.ask_text("new arguments, as JSON: " if verdict == "edit" else "the result, as JSON: ")
    try:
        value: object = json.loads(entry.text if entry else "")
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}; nothing was decided.") from error
    if verdict == "edit":
        for line in diff_of(in_json(traced.asked), value):
            screen.cut("  ", line)
    else:
        show_json(screen, value)
    if terminal.ask_word(f"confirm or {_LATER}? ", ("confirm", _LATER)) != "confirm":
        raise ValueError("it was not confirmed; nothing was decided.")
    return value
