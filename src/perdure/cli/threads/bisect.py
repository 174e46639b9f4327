"""`perdure threads bisect`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.answer import Answer
from perdure.cli.moments import resolve, view_at
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.screen import Screen
from perdure.cli.shapes import CommitShape
from perdure.cli.showing import digest
from perdure.cli.stores import reading
from perdure.cli.threads.question import Question
from perdure.cli.wording import moment
from perdure.model.head import MAIN

__all__ = ["Turned", "bisect"]


class Turned(Answer, frozen=True, kw_only=True):
    """The first commit at which it is true."""

    thread: str
    timeline: str
    path: str
    question: str
    commit: CommitShape

    def show(self, screen: Screen) -> None:
        """Print which turn it was, and how to look at it."""
        found = self.commit
        told = f" first {self.question} in turn {found.turn}, '{found.reason}', {moment(found.at)}, "
        screen.say((self.path, "name"), told, digest(found.digest))
        before = found.parents[0][:12] if found.parents else "version:0"
        screen.suggest("See it: ", "threads", "diff", self.thread, before, found.digest[:12])


def bisect(
    thread: ThreadId,
    /,
    *,
    question: Question,
    good: Annotated[
        str | None,
        Parameter(
            metavar="REF", help="A moment when it was not true yet; before the first commit if left out"
        ),
    ] = None,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Turned:
    """Find the first moment at which something became true

    Ask one thing about the value at one path. It must be false at the old end of the line and
    true at the new end; a line of n commits takes about log2(n) looks.
    """
    words, asked = question.words, question.asked_of()
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        old = None if good is None else resolve(found, good)
        first = view_at(found, at).bisect(asked, good=old)
        return Turned(
            thread=found.id,
            timeline=timeline,
            path=question.path,
            question=words,
            commit=CommitShape.of(first),
        )
