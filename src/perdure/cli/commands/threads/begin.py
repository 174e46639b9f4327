"""`perdure threads begin`.

`perdure threads rm`.

`perdure threads redact`.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter

from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.terminal import is_agreed
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, DryRun, Everywhere, NewOwner, ThreadId
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen
from perdure.errors import NotFound, Refused
from perdure.model.names import id_meant
from perdure.shapes.text import inline, size
from perdure.shapes.threads import BegunThread
from perdure.store.plumbing.run_fence import check_removable

if TYPE_CHECKING:
    from perdure.store.thread import Thread
    from perdure.store.upkeep.redact import Elsewhere, RedactionReport

__all__ = ["ThreadBeginAnswer", "begin", "Removed", "rm", "Redacted", "redact"]


class ThreadBeginAnswer(BegunThread, Answer, frozen=True, kw_only=True):
    """A thread that is there now, whether it was before or not."""

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what to do next."""
        state = f"at version {self.head.version}" if self.head.version else "with nothing in it yet"
        screen.say("Thread ", (self.id, "name"), f" of agent {self.agent} is open, {state}.")
        if not self.head.version:
            screen.suggest("Write to its state: ", "state", "put", self.id, "/todos.json", "[]")


def begin(
    thread: ThreadId,
    /,
    *,
    agent: Annotated[str, Parameter(metavar="NAME", completer=in_store, help="The agent whose thread it is")],
    owner: NewOwner = None,
    everywhere: Everywhere = EVERYWHERE,
) -> ThreadBeginAnswer:
    """Begin a thread for an agent, or open the existing one

    A thread that exists already and is another agent's or owner's is a conflict.
    """
    with writing(everywhere) as store:
        found = store.thread(thread, agent=agent, owner=owner)
        return ThreadBeginAnswer.of(found)


class Removed(Answer, frozen=True, kw_only=True):
    """A thread that is not there any more, or one of its timelines that was dropped."""

    id: str
    timeline: str | None  # that was dropped; null: the whole thread was removed

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what it leaves behind."""
        if self.timeline is not None:
            screen.sentence(
                "Dropped ", (self.timeline, "line"), " of ", (self.id, "name"), ", which is sealed now"
            )
        else:
            screen.say("Removed thread ", (self.id, "name"), ".")
        screen.suggest("Its content is kept until: ", "gc", "--removed", "--apply")


def rm(
    thread: ThreadId,
    /,
    *,
    timeline: Annotated[
        str | None, Parameter(metavar="NAME", completer=in_store, help="Drop this timeline, and nothing else")
    ] = None,
    yes: Annotated[bool, Parameter(negative=(), show_default=False, help="Do not ask first")] = False,
    force: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Remove it even if calls are not settled or runs wait"
        ),
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Removed:
    """Remove a thread with all its timelines, or drop one timeline

    A thread cannot be opened again, and its ledger goes with it. Its id can be used again, for another
    thread. A thread with a run that is queued, under way, interrupted or waiting, or with calls
    that are not settled, is kept. On a terminal you are asked first.

    With --timeline only that one is dropped: it takes no more writes, its name stays in use and its calls stay in
    the ledger. Until `gc --removed` takes what no other timeline needs, it can be read, forked and promoted.
    """
    with writing(everywhere) as store:
        found = store.thread(thread)
        if timeline is not None:
            found.drop(timeline, author=os_user())
            return Removed(id=thread, timeline=timeline)
        if not (force or yes):
            check_removable(found._space)  # pyright: ignore[reportPrivateUsage]
        if not (yes or everywhere.json or is_agreed(f"Remove thread {inline(thread)} for good")):
            raise Refused(
                f"thread '{thread}' is still there, as you did not say yes",
                code="not_confirmed",
                thread=thread,
            )
        found.rm(force=force)
        return Removed(id=thread, timeline=None)


_SHOWN = 20
_WHAT_ELSE = {
    "message": "Another message has them: redact it too",
    "call": "Another call has them: redact it too",
    "artifact": "An artifact has them, such as the original of an import: redact it by this reference",
    "memory": "A memory has them: perdure memory forget ITEM --owner WHO --erase",
    "state": "The state has them: write another value, then perdure gc --superseded-older-than 0d --apply",
    "context": "A model was shown them in a note",
    "checkpoint": "A checkpoint of a switch has them",
    "history": "The reason of a commit, or of what happened in it, has them",
    "record": "The record of a call, a run or a question has them",
}
_WITH_THREAD = "What cannot be redacted goes with its thread: perdure threads rm, then perdure gc --removed."


class ElsewhereShape(msgspec.Struct, frozen=True, kw_only=True):
    """A place that holds the same words and is not redacted with them."""

    space: str
    place: str
    what: str  # message, call, artifact, memory, state, context, checkpoint, history or record
    id: str  # empty: it has none

    @classmethod
    def of(cls, found: Elsewhere) -> ElsewhereShape:
        """Return the place in the shape of --json."""
        return cls(space=found.space, place=found.place, what=found.what, id=found.id)


class Redacted(Answer, frozen=True, kw_only=True):
    """What a redaction removed, or would remove."""

    thread: str
    id: str
    subject: str  # message, call or artifact
    messages: list[str]  # that say now that they were redacted, or a part of them was
    objects: int
    bytes: int  # before compression
    freed: int  # at rest
    kept: list[str]  # artifacts that stay because something else of the thread holds them
    elsewhere: list[ElsewhereShape]
    dry_run: bool

    @classmethod
    def of(cls, report: RedactionReport) -> Redacted:
        """Return the report as the command's answer."""
        return cls(
            thread=report.thread,
            id=report.id,
            subject=report.subject,
            messages=list(report.messages),
            objects=report.count,
            bytes=report.bytes,
            freed=report.freed,
            kept=list(report.kept),
            elsewhere=[ElsewhereShape.of(each) for each in report.elsewhere],
            dry_run=report.dry_run,
        )

    def show(self, screen: Screen) -> None:
        """Print what went, what stays, and where the words are besides."""
        what = f"{self.subject} {self.id} of {self.thread}"
        gone = f"{count(self.objects, 'object')}, {size(self.bytes)}"
        if not self.objects:
            screen.sentence(f"Nothing is left to redact of {what}.")
        elif self.dry_run:
            screen.sentence(f"Would redact {what}: {gone}.")
        else:
            screen.sentence(f"Redacted {what}: {gone}.")
        for each in self.kept:
            screen.wrap(("! ", "warn"), f"{each} stays: the state or another message holds it.")
        if self.elsewhere:
            screen.wrap(("! ", "warn"), "The same words are also here:")
            for each in self.elsewhere[:_SHOWN]:
                screen.say("  ", f"{each.place}  {each.what} {each.id}".rstrip())
            if len(self.elsewhere) > _SHOWN:
                screen.say((f"  … and {len(self.elsewhere) - _SHOWN} more; --json names them.", "quiet"))
            for kind in dict.fromkeys(each.what for each in self.elsewhere):
                screen.wrap((f"{_WHAT_ELSE[kind]}.", "quiet"), whole_words=True)
            screen.wrap((_WITH_THREAD, "quiet"), whole_words=True)


def redact(
    thread: ThreadId,
    id: Annotated[
        str,
        Parameter(name="ID", help="The id of a message or a call, a part of it, or artifact://sha256/…"),
    ],
    /,
    *,
    why: Annotated[str, Parameter(metavar="TEXT", help="Why; recorded, and shown in its place")],
    part: Annotated[
        Literal["arguments", "result"] | None,
        Parameter(help="Only this part of a call"),
    ] = None,
    words: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="TEXT",
            negative=(),
            show_default=False,
            allow_leading_hyphen=True,
            help="Look for these words elsewhere, not for all that is redacted; - reads them from the input",
        ),
    ] = (),
    dry_run: DryRun = False,
    yes: Annotated[bool, Parameter(negative=(), show_default=False, help="Do not ask first")] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Redacted:
    """Redact a message, a call or an artifact: its words go for good

    They go from every timeline and every moment of the thread, and no undo brings them back; so on a terminal you
    are asked first. In their place people and models read that they were redacted. The command names what else in the
    store holds the same words. Backups, copies and exports that were made before keep what they have.
    """
    with writing(everywhere) as store:
        found = store.thread(thread)
        whole = _whole(found, id)
        wanted = tuple(sys.stdin.readline().strip() if each == "-" else each for each in words)
        act = f"Redact {inline(whole)} of {inline(thread)} for good"
        if not (dry_run or yes or everywhere.json or is_agreed(act)):
            raise Refused(
                f"{whole} of thread '{thread}' is as it was, as you did not say yes",
                code="not_confirmed",
                thread=thread,
                id=whole,
            )
        done = found.redact(whole, why=why, part=part, words=wanted, author=os_user(), dry_run=dry_run)
        return Redacted.of(done)


def _whole(thread: Thread, id: str) -> str:
    """Return the whole id of a message or a call that is named by a part; what fits none is returned as it is."""
    if "/" in id:
        return id
    with suppress(NotFound):
        return thread.trace(id, history=False).record.id
    said = (entry.id for hold in thread.timelines() for entry in thread.on(hold.head.timeline).transcript())
    return id_meant(id, said, what="message", beginnings=True) or id
