"""`perdure approvals ls`."""

from __future__ import annotations

from contextlib import suppress

from perdure.cli.input.lookup import is_held, open_on
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyThread, Everywhere, Limit, OnlyTimeline
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.formatting import ago, count, moment
from perdure.cli.output.ledger_words import on_one_line, show_held
from perdure.cli.output.screen import Column, Screen
from perdure.errors import NotFound
from perdure.model.ticket import Ticket
from perdure.shapes.ledger import ApprovalPage, TicketShape
from perdure.shapes.text import now
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["Approvals", "ls"]

_COLUMNS = (
    Column("thread", "name", is_id=True),
    Column("timeline", "line", is_id=True, leaves=3),
    Column("asked", "when", leaves=2),
    Column("tool", "tool", gives_way=True),
    Column("asks", "warn"),
    Column("effect", leaves=4),
    Column("arguments", gives_way=True, wraps=True),
    Column("until", "when", leaves=1),
    Column("call", is_id=True),
)


_REPEATS = {
    "possible": "possible repeat",
    "done": "repeat: was done",
    "not_done": "repeat: was not done",
    "failed": "repeat: failed before",
    "denied": "repeat: was denied",
}


class Approvals(ApprovalPage, Answer, frozen=True, kw_only=True):
    """What waits for a decision, oldest first."""

    held: list[str]  # the threads of these that were copied or restored, and not released

    def show(self, screen: Screen) -> None:
        """Print a table, and how to go on."""
        if not self.approvals:
            screen.say("Nothing waits for a decision.")
            return
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (
                    "" if self.thread else each.thread,
                    each.timeline if each.timeline != "main" else "",
                    ago(each.asked_at, at_now),
                    each.tool,
                    "" if each.repeat is None else _REPEATS[each.repeat],
                    each.effect,
                    on_one_line(each.arguments),
                    "held"
                    if each.thread in self.held
                    else moment(each.expires_at)
                    if each.expires_at
                    else "",
                    each.call,
                )
                for each in self.approvals
            ],
        )
        if self.more:
            screen.say((f"The first {count(len(self.approvals), 'approval')}; --limit 0 lists all.", "quiet"))
        first = self.approvals[0]
        screen.suggest(
            "Look at one: ",
            "approvals",
            "show",
            first.thread,
            screen.short_id(first.call, (each.call for each in self.approvals)),
        )
        show_held(screen, self.held)


def ls(
    thread: AnyThread = None,
    /,
    *,
    limit: Limit = 50,
    timeline: OnlyTimeline = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Approvals:
    """List the calls that wait for a decision"""
    with reading(everywhere) as store:
        found = _all(store, timeline) if thread is None else list(open_on(store, thread, timeline))
        found.sort(key=lambda each: each[1].asked_at)
        kept, more, at_now = *cut_off(found, limit), now()
        return Approvals(
            thread=thread,
            approvals=[TicketShape.of(*each, at_now=at_now) for each in kept],
            held=sorted(id for id, on in {on.id: on for on, _ in kept}.items() if is_held(on)),
            more=more,
        )


def _all(store: Store, timeline: str | None) -> list[tuple[Thread, Ticket]]:
    """Return all approvals that can still be decided: none that was undone, or removed with its thread."""
    found: list[tuple[Thread, Ticket]] = []
    for id in dict.fromkeys(each.thread for each in store.approvals()):
        with suppress(NotFound):
            found += open_on(store, id, timeline)
    return found
