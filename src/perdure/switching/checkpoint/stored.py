"""Reads stored checkpoints: objects of a thread's space, which events on its timelines name.

A checkpoint never changes.  The newest on a timeline is the one that the newest `checkpoint.created` among its first
parents names.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from perdure.engines.contract import Step
from perdure.errors import NotFound
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import BackendSwitched, CheckpointCreated

__all__ = ["StoredCheckpoint", "last", "listing", "made_by", "name_of", "object_of"]

_NAME = 12


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of a timeline, and the commit that names it."""

    digest: Digest
    commit: Digest
    at: int  # µs since 1970, UTC
    checkpoint: Checkpoint


def object_of(checkpoint: Checkpoint) -> Object:
    """Return the object that stores a checkpoint."""
    return Object.of(Kind.CHECKPOINT, encode_checkpoint(checkpoint))


def name_of(digest: Digest) -> str:
    """Return the name of a checkpoint for people."""
    return f"chk-{digest[:_NAME]}"


def read(space: Space, digest: Digest) -> Checkpoint:
    """Read the checkpoint of that digest; raises `NotFound` if there is none, or the object is something else."""
    found = space.objects((digest,))[0]
    if found.kind is not Kind.CHECKPOINT:
        raise NotFound(
            f"{digest} is a {found.kind}, not a checkpoint; nothing was read.",
            code="not_a_checkpoint",
            digest=digest,
        )
    return decode_checkpoint(found.body)


def made_by(space: Space, commit: Digest) -> Checkpoint | None:
    """Read the checkpoint that one commit names; None if it names none."""
    digest = _created(space.step(commit))
    return None if digest is None else read(space, digest)


def last(space: Space, commit: Digest | None, *, limit: int) -> Checkpoint | None:
    """Read the newest checkpoint that one of the last `limit` commits up to `commit` names; None if they name none."""
    for step in islice(reader.recent(space, commit), limit):
        digest = _created(step)
        if digest is not None:
            return read(space, digest)
    return None


def listing(space: Space, commit: Digest | None, *, limit: int | None = None) -> list[StoredCheckpoint]:
    """Read the checkpoints of the timeline that ends at `commit`, newest first; None reads all."""
    return list(islice(_listed(space, commit), limit))


def _listed(space: Space, commit: Digest | None) -> Iterator[StoredCheckpoint]:
    for step in reader.steps(space, commit):
        digest = _created(step)
        if digest is not None:
            yield StoredCheckpoint(
                digest=digest, commit=step.digest, at=step.commit.at, checkpoint=read(space, digest)
            )


def _created(step: Step) -> Digest | None:
    for event in reversed(step.changeset.events):
        if isinstance(event, CheckpointCreated):
            return event.checkpoint
        if isinstance(event, BackendSwitched) and event.checkpoint is not None:
            return event.checkpoint
    return None
