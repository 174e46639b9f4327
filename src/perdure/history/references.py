"""What an object names: the digests that must be there, or must be kept, because of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.model.changeset import Changeset
from perdure.model.digest import Digest
from perdure.model.event import (
    AgentChanged,
    ArtifactCreated,
    BackendSwitched,
    CheckpointCreated,
    Event,
    MemoryWritten,
    MessageAppended,
    ToolCallCompleted,
    ToolCallRequested,
)
from perdure.model.patch import Edit, Op, Put, Replace

__all__ = ["contexts_of", "mentioned", "of_changeset", "values_of"]

_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def of_changeset(changeset: Changeset) -> Iterator[Digest]:
    """Everything that a changeset names and its space must hold: bodies, arguments, values, artifacts.

    What an edit leaves is not among them: only the last document of a patch is kept, and
    the map names that.
    """
    for event in changeset.events:
        yield from _of_event(event)
    for op in changeset.patch.ops:
        yield from values_of(op)
    yield from (action.payload for action in changeset.state_actions if action.payload)


def contexts_of(changeset: Changeset) -> Iterator[Digest]:
    """The recipes of what models were shown, which name more in their turn."""
    for event in changeset.events:
        if isinstance(event, MessageAppended) and event.context is not None:
            yield event.context


def values_of(op: Op) -> Iterator[Digest]:
    """The values that one op brought."""
    match op:
        case Put(value=value):
            yield value
        case Replace(entries):
            yield from (stored.value for stored in entries.values())
        case Edit(argument=str() as argument):
            yield argument
        case _:
            pass


def mentioned(text: bytes) -> Iterator[Digest]:
    """Everything in a JSON text that has the shape of a digest, references to artifacts included."""
    return (Digest(found.group().decode()) for found in _DIGEST.finditer(text))


def _of_event(event: Event) -> Iterator[Digest]:
    match event:
        case MessageAppended(body=body, vendor=vendor, context=context, losses=losses):
            yield body
            yield from (each for each in (vendor, context, losses) if each is not None)
        case ToolCallRequested(args=args):
            yield args
        case ToolCallCompleted(result_ref=str() as reference):
            yield from mentioned(reference.encode())
        case BackendSwitched(checkpoint=checkpoint, report=report):
            yield from (each for each in (checkpoint, report) if each is not None)
        case CheckpointCreated(checkpoint=checkpoint):
            yield checkpoint
        case ArtifactCreated(artifact=artifact):
            yield artifact
        case AgentChanged(patch=patch):
            yield patch
        case MemoryWritten(body=str() as body):
            yield body
        case _:
            pass
