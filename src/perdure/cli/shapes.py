"""The shapes that several answers have in common: messages, turns and commits.

Times are written 2026-01-31T12:00:00.000000Z, digests in full; None is null.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.cli.wording import stamp
from perdure.history.diff import StateChange
from perdure.model.message import view
from perdure.projections.transcript import TranscriptEntry, Turn
from perdure.threads.moments import LogEntry
from perdure.threads.view import View

__all__ = ["CommitShape", "MessageShape", "PathShape", "TurnShape"]


class MessageShape(msgspec.Struct, frozen=True, kw_only=True):
    """One message: who said it, in which commit, and what."""

    id: str
    role: str
    text: str
    commit: str
    at: str
    run: str | None
    provider: str | None
    model: str | None
    message: dict[str, Any] | None  # None: forgotten
    forgotten: str | None  # why

    @classmethod
    def of(cls, entry: TranscriptEntry) -> MessageShape:
        """The message as programs read it."""
        return cls(
            id=entry.id,
            role=entry.role,
            text=entry.text,
            commit=entry.commit,
            at=stamp(entry.at),
            run=entry.run,
            provider=entry.provider,
            model=entry.model,
            message=view(entry.words) if entry.words else None,
            forgotten=entry.forgotten,
        )


class PathShape(msgspec.Struct, frozen=True, kw_only=True):
    """One path whose value changed: added, changed or removed."""

    path: str
    what: str

    @classmethod
    def of(cls, change: StateChange) -> PathShape:
        """The change as programs read it."""
        return cls(path=change.path, what=change.what)


class TurnShape(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: the commits it lies between, what was said in it, and which paths it changed."""

    number: int
    before: str | None
    after: str
    reason: str
    at: str
    run: str | None
    backend: str | None
    input: str
    text: str
    messages: list[MessageShape]
    changed: list[PathShape]

    @classmethod
    def of(cls, turn: Turn, seen: View) -> TurnShape:
        """The turn as programs read it; `seen` is a view of its thread."""
        return cls(
            number=turn.number,
            before=turn.before,
            after=turn.after,
            reason=turn.reason,
            at=stamp(turn.at),
            run=turn.run,
            backend=turn.backend,
            input=turn.input,
            text=turn.text,
            messages=[MessageShape.of(entry) for entry in turn.entries],
            changed=[PathShape.of(change) for change in seen.diff(turn.before, turn.after).state],
        )


class CommitShape(msgspec.Struct, frozen=True, kw_only=True):
    """One commit, with its events and the ops of its patch."""

    digest: str
    parents: list[str]
    root: str
    reason: str
    at: str
    depth: int
    turn: int
    run: str | None
    parent_run: str | None
    run_meta: dict[str, str] | None
    author: str | None
    events: list[dict[str, Any]]
    ops: list[dict[str, Any]]

    @classmethod
    def of(cls, entry: LogEntry) -> CommitShape:
        """The commit as programs read it."""
        return cls(
            digest=entry.digest,
            parents=list(entry.parents),
            root=entry.root,
            reason=entry.reason,
            at=stamp(entry.at),
            depth=entry.depth,
            turn=entry.turn,
            run=entry.run,
            parent_run=entry.parent_run,
            run_meta=None if entry.run_meta is None else msgspec.to_builtins(entry.run_meta),
            author=entry.author,
            events=[msgspec.to_builtins(event) for event in entry.events],
            ops=[msgspec.to_builtins(op) for op in entry.patch.ops],
        )
