"""Replays the writes of a space in another store, so that it is equal there: a copy, or a file that is queried in SQL.

Each write is replayed under its own op_id, in its order, with the ledger entries up to its position; what was forgotten
is forgotten there too.  The cells are written afterwards, as they are.  A write that the target has already changes
nothing.  `has_all` and `difference` say how far two stores hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from perdure.engines import loops
from perdure.engines.contract import (
    Buried,
    Engine,
    Fact,
    Move,
    OpOf,
    Rebuilt,
    Recorded,
    Replay,
    Write,
    Written,
)
from perdure.errors import Conflict, Corrupt, Forgotten
from perdure.model.commit import decode_commit, decode_move
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.head import Head

__all__ = [
    "PASSES_MAX",
    "difference",
    "has_all",
    "lacking",
    "replay_store",
    "replay_writes",
    "stored_cells",
    "write_pages",
]

PASSES_MAX = 16
_PAGE = 500  # objects
_CELLS = 1_000


class Replayed(NamedTuple):
    """What was replayed."""

    writes: int
    forgotten: int  # tombstones among their objects


def replay_store(source: Engine, target: Engine, place: str) -> None:
    """Make an empty target equal to the source, which is at `place`: each space as it was at one moment.

    Raises `Corrupt` if the source is damaged, `Conflict` if a space does not stop being written.
    """
    for space in loops.spaces(source):
        for _ in range(PASSES_MAX):
            standing = source.standing(space)
            replay_writes(source, target, space, place=place)
            target.reseal(space, stored_cells(source, space))
            if source.standing(space) == standing:
                break
        else:
            raise Conflict(
                f"'{space}' of {place} was written during each of {PASSES_MAX} passes; it was not read as a whole.",
                code="source_written",
                advice="Try again.",
                source=place,
            )


def replay_writes(
    source: Engine,
    target: Engine,
    space: str,
    *,
    place: str,
    after: int = 0,
    paged: Callable[[int], None] = lambda cursor: None,
) -> Replayed:
    """Replay the writes of a space from a cursor on; `paged` is called with each cursor to go on with.

    Raises `Corrupt` if the source, which is at `place`, is damaged, `Conflict` if the target has other writes.
    """
    position, writes, forgotten = target.ledger(space).position, 0, 0
    tombstones: str | None = None  # why the space was forgotten, while such writes are replayed
    for page, cursor in write_pages(source, space, after):
        for written in page:
            _check_sound(space, place, written)
            if written.forgotten is not None:
                _bury(target, space, written)
                tombstones = written.forgotten
                continue
            if tombstones is not None:
                target.drop(space, why=tombstones)
                tombstones = None
            assert written.recorded is not None
            replay = _replay(source, space, written, written.recorded, position)
            _apply(target, replay, written.recorded)
            position = max(position, written.recorded.receipt.position)
            writes += 1
            forgotten += sum(isinstance(each, Buried) for each in replay.objects)
        if cursor is not None and tombstones is None:
            paged(cursor)
    if tombstones is not None:
        target.drop(space, why=tombstones)
    return Replayed(writes, forgotten)


def write_pages(source: Engine, space: str, after: int) -> Iterator[tuple[Sequence[Written], int | None]]:
    """Yield the writes of a space page by page, each with the cursor to go on with."""
    cursor: int | None = after
    while cursor is not None:
        page, cursor = source.writes(space, after=cursor, limit=_PAGE)
        yield page, cursor


def stored_cells(engine: Engine, space: str) -> list[Rebuilt]:
    """Return every cell of a space that was ever written."""
    return list(
        loops.pages(
            lambda after, _: engine.stored_cells(space, after=after, limit=_CELLS), "", lambda cell: cell.name
        )
    )


def has_all(source: Engine, target: Engine, space: str) -> bool:
    """True if the target has every write of the source's space that can be read."""
    return next(lacking(source, target, space), None) is None


def lacking(source: Engine, target: Engine, space: str) -> Iterator[str]:
    """Yield the op_ids of the writes of the source's space that can be read and that the target lacks.

    A forgotten one is there if both have forgotten it.
    """
    for page, _ in write_pages(source, space, 0):
        readable = [each for each in page if each.op_id and (each.recorded or each.forgotten)]
        questions = [OpOf(space, written.op_id) for written in readable]
        try:
            answers: Sequence[object] = target.answers(questions)
            expected: Sequence[object] = [written.recorded for written in readable]
        except Forgotten:
            answers = [_recorded(target, each) for each in questions]
            expected = [_recorded(source, each) for each in questions]
        for question, answer, wanted in zip(questions, answers, expected, strict=True):
            if answer != wanted:
                yield question.op_id


def _recorded(engine: Engine, question: OpOf) -> object:
    """Return what an engine has recorded of a write: its intent and receipt, None, or the reason why it was forgotten."""
    try:
        return engine.answers([question])[0]
    except Forgotten as error:
        return error.why


def difference(source: Engine, target: Engine, space: str) -> str | None:
    """Return what of a space is not the same in both stores; None if all is."""
    if list(loops.holds(source, space)) != list(loops.holds(target, space)):
        return "timelines"
    if source.ledger(space) != target.ledger(space):
        return "ledger"
    if stored_cells(source, space) != stored_cells(target, space):
        return "cells"
    for page, _ in write_pages(source, space, 0):
        written = [each for each in page if each.forgotten is None]
        if list(target.answers([OpOf(space, each.op_id) for each in written])) != [
            each.recorded for each in written
        ]:
            return "writes"
        facts = [fact for each in written for fact in each.facts if fact.kind != Kind.MOVE]
        digests = [fact.digest for fact in facts if fact.digest is not None]
        if target.missing(space, digests):
            return "objects"
    return None


def _apply(target: Engine, replay: Replay, recorded: Recorded) -> None:
    try:
        found = target.apply(replay)
    except Conflict as error:
        raise _diverged(replay.space) from error
    if found != recorded.receipt:
        raise _diverged(replay.space)


def _replay(source: Engine, space: str, written: Written, recorded: Recorded, position: int) -> Replay:
    """Return the replay of one write, for a target whose ledger ends at `position`."""
    receipt = recorded.receipt
    entries: tuple[bytes, ...] = ()
    if receipt.position > position:
        read = loops.entries(source, space, after=position, before=receipt.position + 1)
        entries = tuple(entry.body for entry in read)
    objects, moves = _parts(source, space, written.facts)
    return Replay(
        space=space,
        op_id=written.op_id,
        intent=recorded.intent,
        objects=objects,
        moves=moves,
        entries=entries,
        revisions=receipt.revisions,
    )


def _parts(source: Engine, space: str, facts: Sequence[Fact]) -> tuple[tuple[Object, ...], tuple[Move, ...]]:
    """Return the objects and the moves of a write."""
    objects: list[Object] = []
    moves: list[Move] = []
    changesets: set[Digest] = set()
    for fact in facts:
        found = fact.object
        if found is None:
            assert fact.digest is not None
            objects.append(Buried(Kind(fact.kind), fact.digest, b"", why=fact.forgotten or ""))
            continue
        if found.kind is Kind.MOVE:
            moves.append(_move(found))
            continue
        if found.kind is Kind.CHANGESET:
            changesets.add(found.digest)
        elif found.kind is Kind.COMMIT:
            changeset = decode_commit(found.body).changeset
            if changeset not in changesets:  # an earlier write has stored the same one
                objects += source.objects(space, (changeset,))
                changesets.add(changeset)
        objects.append(found)
    return tuple(objects), tuple(moves)


def _move(found: Object) -> Move:
    record = decode_move(found.body)
    expected = None if record.version == 0 else Head(record.timeline, record.version - 1, record.from_)
    return Move(
        act=record.act,
        timeline=record.timeline,
        expected=expected,
        to=record.to,
        seal=record.sealed,
        at=record.at,
        author=record.author,
    )


def _bury(target: Engine, space: str, written: Written) -> None:
    """Write an op_id whose space was forgotten, to be forgotten in the target too."""
    try:
        target.apply(Write(space=space, op_id=written.op_id, intent=digest_of(Kind.BODY, b"forgotten")))
    except Forgotten:
        return


def _check_sound(space: str, place: str, written: Written) -> None:
    fault = next((fact.fault for fact in written.facts if fact.fault is not None), None)
    if fault is None and (written.recorded is not None or written.forgotten is not None):
        return
    raise Corrupt(
        f"'{space}' in {place} is damaged: {fault or 'a write cannot be read'}; the copy stopped there.",
        code="source_damaged",
        advice="Run `perdure verify` on the source, and repair it or restore a backup.",
        space=space,
        fault=fault or "a write cannot be read",
    )


def _diverged(space: str) -> Conflict:
    return Conflict(
        f"'{space}' in the target was written by others since the copy began; the copy is not complete.",
        code="copy_diverged",
        advice="Copy into a new store.",
        space=space,
    )
