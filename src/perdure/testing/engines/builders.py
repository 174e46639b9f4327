"""Builders of writes, with which every law of the suite is stated.

first = made("milk")                                   # a changeset and a commit, not stored yet
engine.apply(write("op-1", first, moved(START, first)))

pen = Pen(engine)                                      # the same, where only the history matters
pen.commit("milk")
pen.commit("eggs", run="run-1")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from perdure.engines.contract import CellWrite, Engine, Fence, Move, Write
from perdure.model.commit import (
    Act,
    Changeset,
    Commit,
    MoveRecord,
    encode_changeset,
    encode_commit,
    encode_move,
)
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import MessageAppended, MessageRetracted, MomentNamed
from perdure.model.head import MAIN, Head

__all__ = [
    "ROOT",
    "SPACE",
    "START",
    "Made",
    "Part",
    "Pen",
    "begun",
    "made",
    "move_digest",
    "moved",
    "portrait",
    "value",
    "write",
]

SPACE = "thread-1"
START = Head(MAIN, 0, None)
ROOT = digest_of(Kind.NODE, b"a root")  # an engine does not look at roots
_ALL = 100_000


class Made(msgspec.Struct, frozen=True):
    """A commit and its changeset, ready to be written."""

    digest: Digest
    commit: Commit
    changeset: Changeset
    objects: tuple[Object, ...]


Part: TypeAlias = Made | Object | Move | CellWrite | Fence | bytes


def value(text: str | bytes, *, base: Object | None = None) -> Object:
    """Return a value of these bytes, which names `base` as similar."""
    body = text.encode() if isinstance(text, str) else text
    return Object.of(Kind.VALUE, body, base=base.digest if base else None)


def made(
    text: str,
    after: Made | None = None,
    *,
    also: Made | None = None,
    run: str | None = None,
    messages: Sequence[str] = (),
    names: Sequence[str] = (),
    retracts: Sequence[str | None] = (),
    at: int = 0,
) -> Made:
    """Return a commit after `after` (None: the first), and after `also` if it is a merge, that appends `messages`.

    `names` are those that other frameworks have for it, `retracts` the messages that it takes back (None: all).
    """
    bodies = [Object.of(Kind.BODY, f"{text}: {message}".encode()) for message in messages]
    said = [_appended(message, body) for message, body in zip(messages, bodies, strict=True)]
    named = [MomentNamed(id=f"{text} is {name}", name=name) for name in names]
    gone = [MessageRetracted(id=f"{text} without {each}", message=each) for each in retracts]
    changeset = Changeset(reason=text, run_id=run, events=(*said, *named, *gone))
    recorded = Object.of(Kind.CHANGESET, encode_changeset(changeset))
    commit = Commit(
        parents=tuple(parent.digest for parent in (after, also) if parent),
        changeset=recorded.digest,
        root=ROOT,
        thread=SPACE,
        depth=after.commit.depth + 1 if after else 0,
        reason=text,
        at=at,
        run=run,
    )
    stored = Object.of(Kind.COMMIT, encode_commit(commit))
    return Made(stored.digest, commit, changeset, (*bodies, recorded, stored))


def moved(
    expected: Head,
    to: Made | Digest | None,
    *,
    act: Act = Act.COMMIT,
    seal: bool = False,
    previous: Digest | None = None,
) -> Move:
    """Return the move of the timeline that `expected` was read from."""
    digest = to.digest if isinstance(to, Made) else to
    return Move(
        act=act, timeline=expected.timeline, expected=expected, to=digest, seal=seal, previous=previous
    )


def begun(timeline: str, at: Made | None, *, act: Act = Act.FORK, seal: bool = False) -> Move:
    """Return the move that begins a timeline."""
    return Move(act=act, timeline=timeline, expected=None, to=at.digest if at else None, seal=seal)


def write(op_id: str, *parts: Part, space: str = SPACE, intent: str | None = None) -> Write:
    """Return the write of these parts.  Its intent is the same whenever its op_id is, unless `intent` says otherwise."""
    made_objects = [part.objects if isinstance(part, Made) else (part,) for part in parts]
    return Write(
        space=space,
        op_id=op_id,
        intent=digest_of(Kind.BODY, (intent or op_id).encode()),
        fences=tuple(part for part in parts if isinstance(part, Fence)),
        objects=tuple(each for group in made_objects for each in group if isinstance(each, Object)),
        moves=tuple(part for part in parts if isinstance(part, Move)),
        cells=tuple(part for part in parts if isinstance(part, CellWrite)),
        entries=tuple(part for part in parts if isinstance(part, bytes)),
    )


class Pen:
    """Writes commits on one timeline, one after another, and remembers its head."""

    def __init__(
        self, engine: Engine, *, space: str = SPACE, head: Head = START, tip: Made | None = None
    ) -> None:
        """Go on from `head`, whose commit is `tip`."""
        self.engine, self.space, self.head, self.tip = engine, space, head, tip

    def commit(
        self,
        text: str,
        *,
        run: str | None = None,
        messages: Sequence[str] = (),
        names: Sequence[str] = (),
        retracts: Sequence[str | None] = (),
        also: Made | None = None,
        at: int = 0,
    ) -> Made:
        """Commit on the tip and move the head there."""
        new = made(
            text, self.tip, run=run, messages=messages, names=names, retracts=retracts, also=also, at=at
        )
        self._apply(new, moved(self.head, new))
        self.tip = new
        return new

    def move(self, to: Made | None, act: Act = Act.UNDO, *, seal: bool = False) -> Head:
        """Move the head to a commit that is there already."""
        self._apply(moved(self.head, to, act=act, seal=seal))
        self.tip = to
        return self.head

    def fork(self, timeline: str, at: Made | None = None) -> Pen:
        """Begin a timeline at `at` (None: at the tip)."""
        tip = at or self.tip
        receipt = self.engine.apply(write(f"fork {timeline}", begun(timeline, tip), space=self.space))
        return Pen(self.engine, space=self.space, head=receipt.heads[0], tip=tip)

    def _apply(self, *parts: Part) -> None:
        op_id = f"{self.head.timeline} {self.head.version + 1}"
        self.head = self.engine.apply(write(op_id, *parts, space=self.space)).heads[0]


def move_digest(record: MoveRecord) -> Digest:
    """Return the digest of a recorded move."""
    return digest_of(Kind.MOVE, encode_move(record))


def portrait(engine: Engine, space: str = SPACE) -> dict[str, object]:
    """Return everything that can be read of a space: equal portraits mean that nothing was written in between."""
    holds = engine.holds(space, limit=_ALL)
    facts, _ = engine.scan(space, limit=_ALL)
    return {
        "spaces": list(engine.spaces(limit=_ALL)),
        "holds": list(holds),
        "moves": [list(engine.moves(space, hold.head.timeline, limit=_ALL)) for hold in holds],
        "commits": list(engine.commits(space, "", limit=_ALL)),
        "cells": list(engine.cells(space, limit=_ALL)),
        "listed": list(engine.listed(prefix="", limit=_ALL)),
        "entries": list(engine.entries(space, limit=_ALL)),
        "objects": _digests(fact.digest for fact in facts),
    }


def _digests(digests: Iterable[Digest | None]) -> list[Digest]:
    return sorted({digest for digest in digests if digest is not None})


def _appended(message: str, body: Object) -> MessageAppended:
    return MessageAppended(id=message, role="user", body=body.digest, size=len(body.body))
