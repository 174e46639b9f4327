"""Folds commits into the transcript of one line: its messages in order, and its turns.

The content of a message is a body of its own, which the caller reads and passes in.  A message
whose content was forgotten stays in the transcript without content, and one that was redacted with what stands in
its place.

A message that was taken back is not in the transcript any more.  Turns say what happened, so a turn has all its
messages, also those that a later commit takes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from perdure.errors import Corrupt, Forgotten
from perdure.model.call import CallCounts
from perdure.model.commit import Changeset, Commit, CommitEvents, is_numbered
from perdure.model.digest import Digest
from perdure.model.event import (
    AgentHandedOff,
    BackendSwitched,
    Event,
    Merged,
    MessageAppended,
    MessageRetracted,
    MomentNamed,
    Picked,
    RunFinished,
    RunStarted,
    ToolCallCompleted,
    ToolCallRequested,
)
from perdure.model.message import Message, Role, ToolCall, decode_message
from perdure.model.redaction import Redaction
from perdure.model.run import IMPORT, Cost, Usage

__all__ = [
    "MessageAt",
    "ReadBody",
    "RedactedBody",
    "Retractions",
    "StepTime",
    "TranscriptEntry",
    "Turn",
    "TurnKind",
    "entries",
    "kind_of",
    "said",
    "said_at_end",
    "turn",
    "in_brief",
    "settled_in",
    "unclear_in",
]

TurnKind: TypeAlias = Literal["message", "switch", "hand-off", "merge", "pick", "call", "edit", "resumed"]
"""What a turn is: an input with its answers, or a switch, hand-off, merge, cherry-pick, direct call or write of its own.

Only messages are counted.  A run that waited or failed, and went on after other commits, has the rest of its turn as `resumed`.
"""


class MessageAt(msgspec.Struct, frozen=True, gc=False):
    """A message by reference: the event that appended it, and the commit that holds the event."""

    event: MessageAppended
    digest: Digest
    commit: Commit | CommitEvents


class RedactedBody(NamedTuple):
    """What stands in the place of the body of a message, and why."""

    body: bytes
    redaction: Redaction


ReadBody: TypeAlias = bytes | RedactedBody | Forgotten | None
"""The body of a message as it was read; None: it is damaged."""

_NO_BODIES: Mapping[Digest, ReadBody] = {}
_BRIEF = 60  # characters of a text in the form that a prompt shows


def in_brief(text: str) -> str:
    """Return the beginning of a text, for one line of a prompt."""
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 1]}…"


class TranscriptEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message of a conversation, and its commit."""

    id: str
    role: Role
    commit: Digest
    state: Digest  # the root of the state at that commit
    at: int  # µs since 1970, UTC
    run: str | None = None
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None  # tokens of the step, if a model wrote it
    cost: float | None = None  # of the step in US dollars; None: it is not known, or no model wrote it
    losses: Digest | None = None  # a body: what the prompt of that step could not express
    words: Message | None = None  # None: forgotten, or damaged where a reader passes damage
    forgotten: str | None = None  # why it was forgotten
    redaction: Redaction | None = None  # who had it, or a call in it, redacted; `words` are then a stand-in
    redacted: Digest | None = None  # of the body that stood there, if it was redacted

    def __repr__(self) -> str:
        """Say who said what, in one line."""
        if self.words is None:
            return f"<{self.role}: {'damaged' if self.is_damaged else 'forgotten'}>"
        calls = [f"→ {call.name}({call.args})" for call in self.words.tool_calls]
        results = [f"← {result.status}" for result in self.words.tool_results]
        said = [repr(self.text)] if self.text else []
        return f"<{self.role}: {in_brief(' '.join((*said, *calls, *results)))}>"

    @property
    def message(self) -> Message:
        """The message; raises `Forgotten` if a policy removed its content, `Corrupt` if it is damaged."""
        if self.is_damaged:
            raise Corrupt(
                f"message '{self.id}' is damaged: its stored bytes are not what was written.",
                code="message_damaged",
                advice="Run `perdure verify`.",
                id=self.id,
            )
        if self.words is None:
            raise Forgotten(f"message '{self.id}'", self.forgotten or "no reason is recorded")
        return self.words

    @property
    def text(self) -> str:
        """The text; empty if it was forgotten, or is damaged."""
        return self.words.text if self.words else ""

    @property
    def is_damaged(self) -> bool:
        """True if its stored bytes are not what was written; only a reader that passes damage returns such a message."""
        return self.words is None and self.forgotten is None


class StepTime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When a model took one step: from the commit before it to the commit of what the model said."""

    message: str  # the id of what it said
    begun_at: int  # µs since 1970, UTC
    ended_at: int  # µs since 1970, UTC


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The commits of one input: a run, or one direct change."""

    number: int  # of the message, from 1; a turn of another kind has that of the message before it
    position: int  # among all turns of its line, of any kind, from 1
    before: Digest | None  # the commit it began from; None: the line began with it
    after: Digest  # its last commit
    reason: str
    at: int  # µs since 1970, UTC, of its first commit
    ended_at: int  # µs since 1970, UTC, of its last commit
    run: str | None = None
    backend: str | None = None  # provider:model, if one acted or took over
    entries: tuple[TranscriptEntry, ...] = ()
    steps: tuple[StepTime, ...] = ()  # of the models that its run asked, as far as they began in it
    names: tuple[str, ...] = ()  # that other frameworks have for its commits
    kind: TurnKind = "message"
    status: str | None = None  # the state that its run ended in; None: it has not ended, or there was none
    why: str | None = None  # in words, if the run did not simply succeed
    handed: AgentHandedOff | None = None  # the hand-off, if it is one
    failed_calls: tuple[str, ...] = ()  # the tool calls that failed in it
    unclear_calls: tuple[str, ...] = ()  # those that ended with an unknown outcome, which may be known by now

    def __repr__(self) -> str:
        """Say which turn it is, how it ended, and what was said first and last, in one line."""
        which = f"turn {self.number}" if self.kind == "message" else f"{self.kind} after turn {self.number}"
        said = f"{in_brief(repr(self.input))} → {in_brief(repr(self.text))}" if self.entries else self.reason
        ended = self.status or ("by hand" if self.run is None else "not ended")
        return f"<{which}, {ended}: {said}>"

    @property
    def input(self) -> str:
        """The text of the user in this turn."""
        return "\n".join(entry.text for entry in self.entries if entry.role == "user")

    @property
    def text(self) -> str:
        """The text of the assistant's last message."""
        spoken = [entry.text for entry in self.entries if entry.role == "assistant"]
        return spoken[-1] if spoken else ""

    @property
    def usage(self) -> Usage:
        """The tokens that models used in it."""
        return sum((entry.usage for entry in self.entries if entry.usage is not None), Usage())

    @property
    def cost(self) -> Cost:
        """What the steps of models in it cost."""
        spoken = (entry for entry in self.entries if entry.run is not None and entry.role == "assistant")
        return sum((Cost.of(entry.cost) for entry in spoken), Cost())

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that the model requested in it."""
        return tuple(call for entry in self.entries if entry.words for call in entry.words.tool_calls)


def said(digest: Digest, commit: Commit, changeset: Changeset) -> Iterator[MessageAt]:
    """Yield the messages that one commit appended, in order."""
    for event in changeset.events:
        if isinstance(event, MessageAppended):
            yield MessageAt(event, digest, commit)


class Retractions:
    """The messages that a line has taken back, as they are met by a reader that goes backwards along it."""

    __slots__ = ("_messages", "is_all")

    def __init__(self) -> None:
        """Begin at the end of a line."""
        self.is_all = False  # every message before was taken back
        self._messages: set[str] = set()

    def left(self, events: Sequence[Event]) -> Iterator[tuple[int, Event]]:
        """Yield the events of one commit with their indexes, last first, without messages that were taken back."""
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            if isinstance(event, MessageRetracted):
                if event.message is None:
                    self.is_all = True
                else:
                    self._messages.add(event.message)
            elif isinstance(event, MessageAppended) and (self.is_all or event.id in self._messages):
                continue
            yield index, event

    def said(self, commits: Iterable[CommitEvents]) -> list[MessageAt]:
        """Return the messages of commits, newest first, without those that were taken back."""
        found: list[MessageAt] = []
        for commit in commits:
            events = commit.events
            if (
                len(events) == 1
                and type(events[0]) is MessageAppended
                and not (self.is_all or self._messages)
            ):
                found.append(MessageAt(events[0], commit.digest, commit))  # as of most
                continue
            for _, event in self.left(events):
                if type(event) is MessageAppended:
                    found.append(MessageAt(event, commit.digest, commit))
        return found


def said_at_end(steps: Sequence[tuple[Digest, Commit, Changeset]]) -> list[MessageAt]:
    """Return the messages of the last commits of a line, oldest first, without those that were taken back."""
    taken_back, found = Retractions(), list[MessageAt]()
    for digest, commit, changeset in reversed(steps):
        for _, event in taken_back.left(changeset.events):
            if isinstance(event, MessageAppended):
                found.append(MessageAt(event, digest, commit))
    found.reverse()
    return found


def entries(
    messages: Iterable[MessageAt], bodies: Mapping[Digest, ReadBody] | None = None
) -> list[TranscriptEntry]:
    """Return the transcript of `messages` with their `bodies`.

    Without `bodies` they are those that came with the commits; raises `KeyError` if one did not.
    """
    found: list[TranscriptEntry] = []
    for each in messages:
        event, commit = each.event, each.commit
        beside = (
            commit.bodies if bodies is None and isinstance(commit, CommitEvents) else bodies or _NO_BODIES
        )
        body, vendor = beside[event.body], beside[event.vendor] if event.vendor else None
        redaction = None
        if isinstance(body, RedactedBody):
            body, redaction = body
        if isinstance(body, bytes):
            words, why = decode_message(body, vendor if isinstance(vendor, bytes) else None), None
        else:
            words, why = None, None if body is None else body.why
        found.append(
            TranscriptEntry(
                id=event.id,
                role=event.role,
                commit=each.digest,
                state=commit.root,
                at=commit.at,
                run=commit.run,
                provider=event.provider,
                model=event.model,
                usage=event.usage,
                cost=event.cost,
                losses=event.losses,
                words=words,
                forgotten=why,
                redaction=redaction,
                redacted=None if redaction is None else event.body,
            )
        )
    return found


def turn(
    number: int,
    position: int,
    steps: Sequence[tuple[Digest, Commit, Changeset]],
    said: Iterable[TranscriptEntry],
) -> Turn:
    """Return the turn of these commits, oldest first; `said` are their messages."""
    first, last = steps[0], steps[-1]
    spoken = tuple(said)
    ends = [event for _, _, each in steps for event in each.events if isinstance(event, RunFinished)]
    ended = ends[-1] if ends else None
    counts = CallCounts.of(settled_in(changeset for _, _, changeset in steps))
    return Turn(
        number=number,
        position=position,
        before=first[1].first_parent,
        after=last[0],
        reason=first[1].reason,
        at=first[1].at,
        ended_at=last[1].at,
        run=last[1].run,
        backend=_backend([changeset for _, _, changeset in steps], spoken),
        entries=spoken,
        steps=tuple(_step_times(steps)),
        names=tuple(
            event.name for _, _, each in steps for event in each.events if isinstance(event, MomentNamed)
        ),
        kind=kind_of(steps[0][1], steps[0][2]),
        status=None if ended is None else ended.status,
        why=None if ended is None else ended.why,
        handed=next(
            (each for _, _, one in steps for each in one.events if isinstance(each, AgentHandedOff)), None
        ),
        failed_calls=counts.failed_calls,
        unclear_calls=counts.unclear_calls,
    )


def _step_times(steps: Sequence[tuple[Digest, Commit, Changeset]]) -> Iterator[StepTime]:
    """Yield when the models of a run took their steps; an imported conversation does not say."""
    for (_, before, _), (_, commit, changeset) in pairwise(steps):
        if commit.run is None or commit.run.startswith(IMPORT):
            continue
        for event in changeset.events:
            if isinstance(event, MessageAppended) and event.role == "assistant":
                yield StepTime(message=event.id, begun_at=min(before.at, commit.at), ended_at=commit.at)


def kind_of(commit: Commit, changeset: Changeset) -> TurnKind:
    """Return the kind of the turn that a commit begins."""
    if is_numbered(commit.run, changeset.events):
        return "message"
    kinds = {type(event) for event in changeset.events}
    if AgentHandedOff in kinds:
        return "hand-off"
    if BackendSwitched in kinds:
        return "switch"
    if Merged in kinds or Picked in kinds:
        return "merge" if Merged in kinds else "pick"
    if commit.run is not None and not kinds.isdisjoint((MessageAppended, RunStarted, RunFinished)):
        return "edit" if commit.run.startswith(IMPORT) else "resumed"
    return "call" if ToolCallRequested in kinds or ToolCallCompleted in kinds else "edit"


def _backend(changesets: Sequence[Changeset], spoken: Sequence[TranscriptEntry]) -> str | None:
    for changeset in reversed(changesets):
        for event in changeset.events:
            if isinstance(event, BackendSwitched):
                return event.to_backend
        if changeset.run_meta is not None and changeset.run_meta.backend is not None:
            return changeset.run_meta.backend
    named = [f"{entry.provider}:{entry.model}" for entry in spoken if entry.provider and entry.model]
    return named[-1] if named else None


def settled_in(changesets: Iterable[Changeset]) -> dict[str, str]:
    """Return the calls that ended in these commits, by id, each with the state that it ended in."""
    events = (event for each in changesets for event in each.events)
    return {event.call: event.status for event in events if isinstance(event, ToolCallCompleted)}


def unclear_in(changeset: Changeset) -> tuple[str, ...]:
    """Return the calls that ended in a commit with an unknown outcome."""
    return CallCounts.of(settled_in((changeset,))).unclear_calls
