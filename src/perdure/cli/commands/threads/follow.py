"""`perdure threads follow`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest, words_of
from perdure.cli.output.screen import Screen
from perdure.model.head import MAIN
from perdure.runtime.events import Committed, Happened, HeadMoved
from perdure.shapes.ledger import EventShape
from perdure.shapes.text import shortened

__all__ = ["Event", "follow"]

_NAME_WIDTH = 21
_SHOWN_FIELDS = (
    "tool",
    "agent",
    "backend",
    "status",
    "decision",
    "by",
    "path",
    "name",
    "call",
    "why",
)  # what people look for
_LENGTH = 200


class Event(EventShape, Answer, frozen=True, kw_only=True):
    """One durable event of a timeline, the commit that holds those before it, or a move; one JSON object a line."""

    def show(self, screen: Screen) -> None:
        """Print one line."""
        if self.type == "head.moved":
            act = str((self.event or {}).get("act"))
            where = digest(self.commit) if self.commit else "before the first commit"
            screen.cut((act.ljust(_NAME_WIDTH), "quiet"), "the timeline is now at ", where)
        elif self.event is None:
            screen.cut(("committed".ljust(_NAME_WIDTH), "quiet"), f"{self.reason}  ", digest(self.commit))
        elif self.message is not None:
            role = str(self.event.get("role", "message"))
            screen.cut((role.ljust(_NAME_WIDTH), role), shortened(words_of(self.message), _LENGTH))
        else:
            shown = [str(self.event[name]) for name in _SHOWN_FIELDS if self.event.get(name)]
            screen.cut((self.type.ljust(_NAME_WIDTH), "name"), "  ".join(shown))


def follow(
    thread: ThreadId,
    /,
    *,
    after: Annotated[
        str | None,
        Parameter(metavar="CURSOR", help="Begin after this event or commit; with the live run if left out"),
    ] = None,
    wait: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Wait for the next run, until interrupted")
    ] = False,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Iterator[Event]:
    """Print the events of a timeline as they are committed

    Each event comes once, in order, from whichever process wrote it, and so does an undo, a redo
    or a promote. It ends when no run lives there. To continue later, give --after the cursor of
    the last event, which --json prints, or the commit that was read.
    """
    with reading(everywhere) as store:
        for event in store.thread(thread, timeline=timeline).follow(after, wait=wait):
            if isinstance(event, Happened | Committed | HeadMoved):
                yield Event.of(event)
