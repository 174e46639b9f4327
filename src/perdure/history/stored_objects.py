"""Lists the digests that a changeset or op refers to, and all objects that are stored for a space.

The references decide what must be stored (`verify`) and what must stay (`retention`).  The smaller
the objects are, the longer is a page, so that memory does not depend on what the store holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perdure.engines.contract import Engine, Fact
from perdure.errors import Corrupt
from perdure.model.artifact import decode_artifact
from perdure.model.commit import Changeset
from perdure.model.digest import Digest, Kind, Object
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
from perdure.model.lists import decode_node
from perdure.model.patch import Edit, Op, Put, Replace

__all__ = ["contexts_of", "mentioned", "parts_of", "of_changeset", "pages", "standing_pages", "whole_pages"]


_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def of_changeset(changeset: Changeset) -> Iterator[Digest]:
    """Yield every digest that a changeset names and its space must hold: bodies, arguments, values, artifacts.

    Documents after edits are not among them: only the last document of a patch is stored, and
    the map names that.
    """
    for event in changeset.events:
        yield from _of_event(event)
    for op in changeset.patch.ops:
        yield from values_of(op)
    yield from (action.payload for action in changeset.state_actions if action.payload)


def contexts_of(changeset: Changeset) -> Iterator[Digest]:
    """Yield the recipes of the prompts; each recipe names further objects."""
    for event in changeset.events:
        if isinstance(event, MessageAppended) and event.context is not None:
            yield event.context


def values_of(op: Op) -> Iterator[Digest]:
    """Yield the values that one op added."""
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
    """Yield everything in a JSON text that has the shape of a digest, also inside references to artifacts."""
    return (Digest(found.group().decode()) for found in _DIGEST.finditer(text))


def parts_of(found: Object) -> tuple[Digest, ...]:
    """Return the objects that an artifact or a list node consists of; none for an object of another kind."""
    if found.kind is Kind.ARTIFACT:
        return decode_artifact(found.body).chunks
    if found.kind is Kind.LIST:
        return tuple([child.digest for child in decode_node(found.body).children])
    return ()


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


_PAGE_BYTES = 6 * 1024 * 1024
_PAGE_MIN, _PAGE_MAX = 4, 8_000


def pages(engine: Engine, space: str, *, after: int = 0, upto: int | None = None) -> Iterator[Sequence[Fact]]:
    """Yield everything stored for a space, in pages of about the same number of bytes; see `standing_pages`."""
    return (page for page, _ in standing_pages(engine, space, after=after, upto=upto))


def standing_pages(
    engine: Engine, space: str, *, after: int = 0, upto: int | None = None
) -> Iterator[tuple[Sequence[Fact], int | None]]:
    """Yield everything stored for a space, in pages of about the same number of bytes, each with its cursor.

    `after` and `upto` are standings of the space: what was written before the one is left out, and the page in which the
    other is reached is the last (None: read on to the end).
    """
    cursor: int | None = after
    limit = _PAGE_MIN
    while cursor is not None and (upto is None or cursor < upto or cursor == after == 0):
        before = cursor
        page, cursor = engine.scan(space, after=cursor, limit=limit)
        yield page, cursor
        if cursor is not None and cursor <= before:
            raise Corrupt(
                f"the scan of space '{space}' does not advance; the rest was not read.",
                code="scan_stuck",
                space=space,
            )
        size = sum(len(fact.object.body) for fact in page if fact.object) // max(1, len(page))
        limit = min(max(_PAGE_BYTES // max(1, size), _PAGE_MIN), _PAGE_MAX)


def whole_pages(engine: Engine, space: str) -> Iterator[Sequence[Fact]]:
    """Yield what `pages` yields; raises `Corrupt` at the first object that is damaged."""
    for page in pages(engine, space):
        for fact in page:
            if fact.fault is not None:
                raise Corrupt(
                    f"space '{space}' is damaged ({fact.fault}); it was left as it is.",
                    code="space_damaged",
                    advice="Run `perdure verify`.",
                    space=space,
                )
        yield page
