"""Checkpoints as they are kept: objects of a thread's space, named by the events of its line.

A checkpoint never changes; the newest on a line is the one that the newest `checkpoint.created`
among its first parents names.  Which one that is follows from the commit alone, so it is
remembered for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

import msgspec

from perdure.engines.contract import Step
from perdure.errors import NotFound
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import BackendSwitched, CheckpointCreated

__all__ = ["Kept", "last", "last_digest", "listing", "made_by", "name_of", "object_of", "read"]

_KNOWN_MAX = 10_000
_NAME = 12

_known: dict[
    Digest, Digest | Literal[""]
] = {}  # by commit: the newest checkpoint on its line, "" if there is none


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of a line, and the commit that made it part of it."""

    digest: Digest
    commit: Digest
    at: int  # µs since 1970, UTC
    checkpoint: Checkpoint


def object_of(checkpoint: Checkpoint) -> Object:
    """The object that holds a checkpoint."""
    return Object.of(Kind.CHECKPOINT, encode_checkpoint(checkpoint))


def name_of(digest: Digest) -> str:
    """What people call a checkpoint."""
    return f"chk-{digest[:_NAME]}"


def read(space: Space, digest: Digest) -> Checkpoint:
    """The checkpoint of that digest; raises `NotFound` if there is none, or it is something else."""
    found = space.objects((digest,))[0]
    if found.kind is not Kind.CHECKPOINT:
        raise NotFound(f"{digest} is a {found.kind}, not a checkpoint; nothing was read.")
    return decode_checkpoint(found.body)


def made_by(space: Space, commit: Digest) -> Checkpoint | None:
    """The checkpoint that one commit made a part of its line; None if it made none."""
    digest = _created(space.step(commit))
    return None if digest is None else read(space, digest)


def last(space: Space, commit: Digest | None) -> Checkpoint | None:
    """The newest checkpoint on the line that ends at `commit`; None if it has none."""
    digest = last_digest(space, commit)
    return None if digest is None else read(space, digest)


def last_digest(space: Space, commit: Digest | None) -> Digest | None:
    """The digest of the newest checkpoint on the line that ends at `commit`; None if it has none."""
    found: Digest | None = None
    for step in reader.recent(space, commit):
        known = _known.get(step.digest)
        found = _created(step) if known is None else known or None
        if found is not None or known is not None:
            break
    if commit is not None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[commit] = found or ""
    return found


def listing(space: Space, commit: Digest | None, *, limit: int | None = None) -> list[Kept]:
    """The checkpoints of the line that ends at `commit`, newest first; None is all of them."""
    return list(islice(_listed(space, commit), limit))


def _listed(space: Space, commit: Digest | None) -> Iterator[Kept]:
    for step in reader.steps(space, commit):
        digest = _created(step)
        if digest is not None:
            yield Kept(digest=digest, commit=step.digest, at=step.commit.at, checkpoint=read(space, digest))


def _created(step: Step) -> Digest | None:
    for event in reversed(step.changeset.events):
        if isinstance(event, CheckpointCreated):
            return event.checkpoint
        if isinstance(event, BackendSwitched) and event.checkpoint is not None:
            return event.checkpoint
    return None
