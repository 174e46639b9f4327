"""What `perdure import` answers: the sessions and conversations that it added, and what was lost or refused."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import count as count_from
from pathlib import Path

import msgspec

from perdure.cli.errors import CODES
from perdure.cli.hints import Subject, explain
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.ledger_words import show_losses
from perdure.cli.output.screen import Column, Screen
from perdure.cli.usage import to_be_named
from perdure.errors import Conflict, PerdureError, Refused
from perdure.integrations.importers.import_sessions import ImportReport
from perdure.integrations.importers.report import CopyEnd, SessionReport
from perdure.model.head import MAIN
from perdure.providers.contract import Loss
from perdure.shapes.conversation import LossShape, losses_of
from perdure.shapes.threads import HeadShape
from perdure.store.thread import Thread

__all__ = [
    "OVERLAPS",
    "Imported",
    "ImportedSession",
    "ImportedSessions",
    "RefusedShape",
    "both_kept",
    "of_conversation",
    "unused",
]

OVERLAPS = ("import_overlaps", "import_overlaps_from_start", "import_not_a_continuation")  # codes

_NAMED = 5  # of the lines that were edited, and of the files that are not complete
_OTHERS_NAMED = 3  # of the files of a directory that are no saved conversations
_COLUMNS = (
    Column("file", "quiet", is_id=True),
    Column("thread", "name", is_id=True),
    Column("messages", right=True),
    Column("calls", right=True),
    Column("timelines", "quiet", gives_way=True),
)


class Imported(Answer, frozen=True, kw_only=True):
    """A conversation that is in a thread now, and what was lost on the way."""

    thread: str
    agent: str
    format: str
    messages: int
    calls: int
    calls_unknown: int  # of them, those without a result
    repeated: int  # messages of the file that were left out, because the thread has them
    head: HeadShape
    losses: list[LossShape]
    store_made: str | None = None  # the store, if there was none before
    looks_like: str | None = None  # the format that its content has, if another one was named

    def show(self, screen: Screen) -> None:
        """Print one sentence, the losses, and what to do next."""
        _say_made(screen, self.store_made)
        if self.repeated and not self.messages:
            had = count(self.repeated, "message")
            screen.wrap("Nothing was added: ", (self.thread, "name"), f" has the {had} already.")
            screen.wrap(("--again adds them once more.", "quiet"))
            if self.losses:
                show_losses(screen, self.losses)
            return
        said = count(self.messages, "message")
        with_calls = f" and {count(self.calls, 'call')}" if self.calls else ""
        screen.say(
            f"Added {said}{with_calls} to ",
            (self.thread, "name"),
            f" of agent {self.agent}: ",
            ((self.head.commit or "")[:12], "digest"),
        )
        if self.repeated:
            had = count(self.repeated, "message")
            screen.wrap((f"{had} of it were there already, and were left out.", "quiet"))
        _say_unknown(screen, self.calls_unknown)
        if self.losses:
            show_losses(screen, self.losses)
        if self.looks_like is not None:
            screen.wrap(
                ("! ", "warn"), f"This looks like {self.looks_like}: take it back, and name that format."
            )
        place = () if self.head.timeline == MAIN else ("--timeline", self.head.timeline)
        screen.suggest("See it: ", "threads", "log", self.thread, *place)


class ImportedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session of another tool."""

    format: str
    session: str
    source: str
    thread: str | None  # null: it has no message, so it made no thread
    timelines: list[str]  # that have new messages
    messages: int
    calls: int
    calls_unknown: int  # of them, those without a result
    unmapped: dict[str, int]  # what has no place in a transcript, by kind
    losses: list[LossShape]
    edited: list[str]  # places in the source that say something else than when they were imported
    torn: bool  # the last line was not complete
    current: str | None  # the timeline with the line that is current in the source; null: main has it
    older_copy: CopyEnd | None  # where a source ends that has nothing new, and less than one before

    @classmethod
    def of(cls, report: SessionReport) -> ImportedSession:
        """Return the report of one session as programs read it."""
        return cls(
            format=report.format,
            session=report.session,
            source=report.source,
            thread=report.thread,
            timelines=list(report.timelines),
            messages=report.messages,
            calls=report.calls,
            calls_unknown=report.calls_unknown,
            unmapped=dict(report.unmapped),
            losses=losses_of(report.losses),
            edited=list(report.edited),
            torn=report.torn,
            current=report.current,
            older_copy=report.older_copy,
        )


class RefusedShape(msgspec.Struct, frozen=True, kw_only=True):
    """A source that was not imported, or not to its end."""

    source: str
    code: str
    why: str

    @classmethod
    def of(cls, source: str, error: PerdureError, store: str) -> RefusedShape:
        """Return the error for a source as programs read it, with the store in its commands if they need it."""
        why = " ".join(explain(error, Subject(store=to_be_named(store)))).rstrip()
        return cls(source=source, code=error.code, why=why if source in why else f"{source}: {why}")


class ImportedSessions(Answer, frozen=True, kw_only=True):
    """The report of an import: each session at a path, and the sources that were refused."""

    sessions: list[ImportedSession]
    refused: list[RefusedShape]
    others: int  # files that are no sessions
    others_first: list[str]  # the first few of them
    passed_over: list[str]  # all of them
    conversations: list[str]  # of them, saved conversations beside sessions
    messages: int
    calls: int
    sources: int  # paths that were named, and files of a directory with saved conversations
    store_made: str | None = None  # the store, if there was none before

    @classmethod
    def of(
        cls,
        reports: Sequence[ImportReport],
        refused: list[RefusedShape],
        others: Sequence[str],
        *,
        conversations: list[str],
        sources: int,
        made: str | None,
    ) -> ImportedSessions:
        """Return the reports of several sources as one; `others` are files that no report has."""
        first = [*others[:_OTHERS_NAMED], *(name for report in reports for name in report.others_first)]
        return cls(
            sessions=[ImportedSession.of(each) for report in reports for each in report.sessions],
            refused=refused,
            others=len(others) + sum(report.others for report in reports),
            others_first=first,
            passed_over=[*others, *(name for report in reports for name in report.passed_over)],
            conversations=conversations,
            messages=sum(each.messages for each in reports),
            calls=sum(each.calls for each in reports),
            sources=sources,
            store_made=made,
        )

    @property
    def exit_code(self) -> int:
        """Return 5 if a source was refused, else 4 if one was edited after it was imported."""
        if self.refused:
            return CODES[Refused]
        return CODES[Conflict] if any(each.edited for each in self.sessions) else 0

    def show(self, screen: Screen) -> None:
        """Print one sentence, a row for each session with something new, and what has no place in a transcript.

        If several paths were named, every session has a row, with its file.
        """
        _say_made(screen, self.store_made)
        said, made = count(self.messages, "message"), count(self.calls, "call")
        empty = sum(each.thread is None for each in self.sessions)
        also = f"; {count(empty, 'other')} without a message" if empty else ""
        screen.say(f"Added {said} and {made} of {count(len(self.sessions) - empty, 'session')}{also}.")
        several = self.sources > 1
        rows = [
            (
                each.source if several else "",
                each.thread or "",
                str(each.messages),
                str(each.calls),
                ", ".join(each.timelines),
            )
            for each in self.sessions
            if each.messages or several
        ]
        if rows:
            screen.table(_COLUMNS, rows, indent=2)
        unmapped = sum((Counter(each.unmapped) for each in self.sessions), Counter[str]())
        if unmapped:
            told = ", ".join(f"{kind} ({times})" for kind, times in sorted(unmapped.items()))
            screen.wrap(("Kept in the originals, and not in a transcript: " + told, "quiet"))
        if torn := [Path(each.source).name for each in self.sessions if each.torn]:
            named = ", ".join([*torn[:_NAMED], *(["…"] if len(torn) > _NAMED else [])])
            told = f"{count(len(torn), 'last line')} not complete yet, of {named}; import again later."
            screen.wrap((told, "quiet"))
        _say_unknown(screen, sum(each.calls_unknown for each in self.sessions))
        losses = [loss for each in self.sessions for loss in self._placed(each)]
        if losses:
            show_losses(screen, losses)
        for each in self.sessions:
            _say_edited(screen, each)
            _say_current(screen, each)
        if self.others:
            named = ", ".join([*self.others_first, *(["…"] if self.others > len(self.others_first) else [])])
            told = f"{count(self.others, 'other file')} passed over, because no session begins there: {named}"
            screen.wrap((told, "quiet"))
        for each in self.conversations[:_NAMED]:
            screen.wrap(("! ", "warn"), f"{each} is a saved conversation, and was not imported.")
            screen.suggest("Import it by itself: ", "import", each, "--agent", "NAME")
        if len(self.conversations) > _NAMED:
            more = count(len(self.conversations) - _NAMED, "more saved conversation")
            screen.wrap(("! ", "warn"), f"{more} passed over; --json names all.")
        for each in self.refused:
            screen.wrap(("✗ ", "bad"), each.why)
        new = next((each for each in self.sessions if each.messages), None)
        if new is not None:
            place = () if MAIN in new.timelines else ("--timeline", new.timelines[0])
            screen.suggest("See it: ", "threads", "log", new.thread or "", *place)

    def _placed(self, session: ImportedSession) -> list[LossShape]:
        """Return the losses of a session; with its file and its thread if there are several."""
        if len(self.sessions) == 1:
            return session.losses
        place = f"{session.source} ({session.thread})"
        return [msgspec.structs.replace(each, where=f"{place}: {each.where}") for each in session.losses]


def _say_edited(screen: Screen, session: ImportedSession) -> None:
    """Print which lines of a source say something else than when they were imported."""
    if not session.edited:
        return
    kind = session.edited[0].partition(" ")[0]
    places = [place.removeprefix(kind).strip() for place in session.edited]
    named = ", ".join([*places[:_NAMED], *(["…"] if len(places) > _NAMED else [])])
    screen.sentence(
        ("! ", "warn"),
        f"{count(len(places), kind)} of {Path(session.source).name} {'says' if len(places) == 1 else 'say'} something else "
        f"than when {session.thread} was imported, which stays as it is: {kind} {named}",
    )
    named = ("--format", session.format, "--session", session.session, "--thread", "NAME")
    screen.suggest("Have the edited one too: ", "import", session.source, *named)


def _say_current(screen: Screen, session: ImportedSession) -> None:
    """Print that main does not have the line that is current in the source, and the command that makes it main."""
    if (end := session.older_copy) is not None:
        at = f"message {end.message} of {end.messages} of {end.timeline}"
        screen.sentence(
            f"{Path(session.source).name} is an older copy of {session.thread}: it ends at {at}; it has nothing new"
        )
    if session.current is None or session.thread is None:
        return
    screen.sentence(
        ("! ", "warn"),
        f"The source of {session.thread} now goes on with the timeline {session.current}; main has other messages",
    )
    screen.suggest("Make it main: ", "threads", "promote", session.thread, session.current)


def _say_unknown(screen: Screen, calls: int) -> None:
    """Print how many calls came without a result."""
    if calls:
        have, its = ("has", "its outcome is") if calls == 1 else ("have", "their outcomes are")
        screen.wrap(("! ", "warn"), f"{count(calls, 'call')} {have} no result: {its} unknown.")


def _say_made(screen: Screen, store: str | None) -> None:
    """Print that a store was made, which a mistyped --store would show."""
    if store is not None:
        screen.say("Made a new store: ", (store, "name"))


def of_conversation(added: Imported, file: str) -> ImportReport:
    """Return the report of a saved conversation that came with other sources."""
    session = SessionReport(
        format=added.format,
        session=added.thread,
        source=file,
        thread=added.thread,
        timelines=(MAIN,) if added.messages else (),
        messages=added.messages,
        calls=added.calls,
        calls_unknown=added.calls_unknown,
        losses=tuple(msgspec.convert(added.losses, list[Loss], from_attributes=True)),
    )
    return ImportReport(sessions=(session,))


def both_kept(
    thread: Thread, error: PerdureError, file: str, format: str, *, agent: str | None, other: str
) -> str:
    """Return the commands that take a conversation which parts from its thread; no thread is named `other` yet."""
    this = shlex.join(["perdure", "import", file, "--format", format, "--thread"])
    here, on = shlex.quote(thread.id), f" --timeline {error.facts['timeline']}"
    if error.code == "import_not_a_continuation":
        return f"Give the whole conversation, or have what is new of it found: `{this} {here}{on}`."
    other = shlex.quote(other)
    apart = f"import it to another thread with `{this} {other} --agent {shlex.quote(agent or thread.agent)}`, or all of "
    apart += f"it once more with `{this} {here}{on} --again`."
    if error.code == "import_overlaps_from_start":
        return f"No moment is before the change, so nothing can be forked: {apart}"
    fork = unused("edited", {hold.head.timeline for hold in thread.timelines()})
    forked = f"`perdure threads fork {here} {fork} --at {error.facts['after']}`"
    return f"To have both, fork the moment before with {forked}, and import it with `{this} {here} --timeline {fork}`; else {apart}"


def unused(name: str, taken: Collection[str]) -> str:
    """Return `name` if it is not taken, else with the first number that makes it new."""
    numbered = (f"{name}-{number}" for number in count_from(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)
