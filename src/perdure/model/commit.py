"""Defines changesets, commits and moves: what happened in one step, what is then true, and how a head moved there.

A changeset is accepted whole or not at all.  A commit names its changeset and the root of the state after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.event import CATALOGUE, Event, MessageAppended, RunStarted
from perdure.model.patch import Patch, check_version, plain, unknown_op, unreadable

__all__ = [
    "NO_LEDGER",
    "NO_PATCH",
    "NO_READS",
    "Act",
    "Changeset",
    "ChangesetEvents",
    "Commit",
    "CommitEvents",
    "LedgerRead",
    "MoveRecord",
    "Reads",
    "RunMeta",
    "StateAction",
    "decode_changeset",
    "decode_commit",
    "decode_events",
    "decode_move",
    "encode_changeset",
    "encode_commit",
    "encode_move",
    "is_numbered",
    "unnumbered_after",
]


class RunMeta(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The run that made this step: its version, backend, origin and end."""

    agent_version: str | None = None
    backend: str | None = None
    origin: str | None = None  # on a run's first commit: `input`, or `tool` if a tool of another run began it
    termination: str | None = None  # on its last commit: the state that it ended in


class StateAction(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A named intent behind ops: its payload by digest, and where it came from (`tool:book`)."""

    name: str
    source: str
    payload: Digest | None = None


NO_PATCH = Patch()  # one object: the encoder leaves a default out only where it is this very one


class Changeset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Events, patch and reason of one step."""

    reason: str
    run_id: str | None = None
    parent_run_id: str | None = None
    run_meta: RunMeta | None = None
    events: tuple[Event, ...] = ()
    patch: Patch = NO_PATCH
    state_actions: tuple[StateAction, ...] = ()


_encode = msgspec.json.Encoder(
    order="sorted"
).encode  # as `canonical.encode_struct`, without a call of Python
_changesets: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Changeset)


def encode_changeset(changeset: Changeset) -> bytes:
    """Return the changeset's canonical bytes; an empty patch is left out, however it was made."""
    if not changeset.patch.ops and changeset.patch is not NO_PATCH:
        changeset = msgspec.structs.replace(changeset, patch=NO_PATCH)
    try:
        return _encode(changeset)
    except UnicodeEncodeError:
        return canonical.encode_struct(changeset)  # raises


def decode_changeset(body: bytes) -> Changeset:
    """Return the changeset that `body` holds; raises `Corrupt`, or `Unsupported` if a newer Perdure wrote it."""
    try:
        changeset: Changeset = _changesets.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable("changeset", error, _unknown_name(plain(body))) from error
    if changeset.patch is not NO_PATCH:
        check_version(changeset.patch)
    return changeset


class ChangesetEvents(msgspec.Struct, frozen=True, gc=False):
    """A changeset without its patch: what a reader of messages needs."""

    reason: str
    run_id: str | None = None
    events: tuple[Event, ...] = ()


class _ChangesetMessages(ChangesetEvents, frozen=True, gc=False):
    """The same of a changeset whose events are all messages: one type is decoded sooner than one of many."""

    events: tuple[MessageAppended, ...] = ()


_decode_events = msgspec.json.Decoder(ChangesetEvents).decode
_decode_messages = msgspec.json.Decoder(_ChangesetMessages).decode


def decode_events(bodies: Sequence[bytes]) -> Sequence[ChangesetEvents]:
    """Return the events of the changesets that `bodies` hold; raises `ValueError` if one of them cannot be read."""
    try:
        return [_decode_messages(body) for body in bodies]
    except msgspec.ValidationError:  # not only messages
        return [_decode_events(body) for body in bodies]


def _unknown_name(changeset: Json) -> str | None:
    """Return the first event type, op or verb that this release does not know; None if there is none."""
    if not isinstance(changeset, dict):
        return None
    events = changeset.get("events")
    for event in events if isinstance(events, list) else ():
        name = event.get("type") if isinstance(event, dict) else None
        if isinstance(name, str) and name not in CATALOGUE:
            return name
    return unknown_op(changeset.get("patch"))


class Reads(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the step read outside the thread."""

    agent_root: Digest | None = None
    agent_commit: Digest | None = None
    memory_root: Digest | None = None


class LedgerRead(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The position and chain of the ledger when the step was taken."""

    position: int = 0
    chain: Digest | None = None


NO_READS = Reads()  # one object each: the encoder leaves a default out only where it is this very one
NO_LEDGER = LedgerRead()


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One step of a history: its changeset and the state after it, named by one digest."""

    parents: tuple[Digest, ...]
    changeset: Digest
    root: Digest
    thread: str  # the thread's id, or the agent's name for an agent's own map
    depth: int  # commits on the first-parent chain before this one
    reason: str
    at: int  # µs since 1970, UTC; data, never an order
    reads: Reads = NO_READS
    ledger: LedgerRead = NO_LEDGER
    run: str | None = None
    author: str | None = None
    unnumbered: int = 0  # turns up to this commit that have no number: on an agent's own map none is counted

    @property
    def first_parent(self) -> Digest | None:
        """The commit before it on its line; None if the line begins with it."""
        return self.parents[0] if self.parents else None


def unnumbered_after(parent: Commit | None, run: str | None, events: Sequence[Event]) -> int:
    """Return how many turns without a number a thread's line has up to a commit of `run` with these events."""
    if parent is not None and run is not None and run == parent.run:
        return parent.unnumbered
    return (0 if parent is None else parent.unnumbered) + (not is_numbered(run, events))


def is_numbered(run: str | None, events: Sequence[Event]) -> bool:
    """True if the turn that a commit begins counts as a message: a run with its input, or messages without a run.

    A switch, a merge, a direct call and a change of the state alone do not count, nor does the rest of a run that
    goes on, or is retried, after other commits.
    """
    for (
        event
    ) in events:  # by its type: of a struct that is quicker than by `isinstance`, and each commit asks
        if type(event) is MessageAppended:
            if run is None or event.role == "user":
                return True
        elif type(event) is RunStarted:
            return not event.is_retry
    return False


class Act(StrEnum):
    """Why a head moved."""

    COMMIT = "commit"
    UNDO = "undo"
    REDO = "redo"
    FORK = "fork"
    PROMOTE = "promote"
    KEEP = "keep"  # the old main, kept when another line was promoted
    SEAL = "seal"


class MoveRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"from_": "from"}, gc=False
):
    """One recorded move of a head.  Each names the one before it, so a head can be checked against its last move.

    `at` and `author` are those of the move itself.  One to a new commit has neither: they are the commit's.  Stores
    from before these fields have moves without them, whose digests stay as they are.
    """

    timeline: str
    version: int
    act: Act
    op_id: str
    from_: Digest | None = None
    to: Digest | None = None
    previous: Digest | None = None  # None: the first move of this timeline
    sealed: bool = False
    at: int | None = None  # µs since 1970, UTC
    author: str | None = None  # who made it, where that was said


_commits = msgspec.json.Decoder(Commit)
_moves = msgspec.json.Decoder(MoveRecord)


def encode_commit(commit: Commit) -> bytes:
    """Return the commit's canonical bytes; empty reads are left out, however they were made."""
    if commit.reads is not NO_READS and commit.reads == NO_READS:
        commit = msgspec.structs.replace(commit, reads=NO_READS)
    if commit.ledger is not NO_LEDGER and commit.ledger == NO_LEDGER:
        commit = msgspec.structs.replace(commit, ledger=NO_LEDGER)
    try:
        return _encode(commit)
    except UnicodeEncodeError:
        return canonical.encode_struct(commit)  # raises


def decode_commit(body: bytes) -> Commit:
    """Return the commit that `body` holds; raises `Corrupt` if it is not one."""
    return canonical.decode_struct(_commits, body, "commit")


def encode_move(move: MoveRecord) -> bytes:
    """Return the move's canonical bytes."""
    try:
        return _encode(move)
    except UnicodeEncodeError:
        return canonical.encode_struct(move)  # raises


def decode_move(body: bytes) -> MoveRecord:
    """Return the move that `body` holds; raises `Corrupt` if it is not one."""
    return canonical.decode_struct(_moves, body, "move")


class CommitEvents(msgspec.Struct, frozen=True, gc=False):
    """The events of one commit of a history, and of the commit itself what a transcript shows."""

    digest: Digest
    parent: Digest | None  # the first; None: the line begins with it
    thread: str
    root: Digest
    at: int
    run: str | None
    events: tuple[Event, ...]
    bodies: Mapping[Digest, bytes] = {}  # those that are stored with it, where the reader asked for them
