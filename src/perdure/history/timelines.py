"""Timelines: fork, undo, redo, promote and seal, each one recorded move of a head.

Nothing is copied and nothing is removed: a commit that a head has left can be read, forked
and returned to.  Every move raises the version, so a head read before it is stale after it.
A move is written against the whole head that was read; with the same op_id it happens once,
and without one (None) nobody is going to repeat it.
It names a commit without supplying anything, so one whose state was forgotten is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec
from msgspec import UNSET, UnsetType

from perdure.engines.contract import CellWrite, Hold, Move, Write
from perdure.errors import Conflict, Invalid, NotFound, OpReused, Sealed, StaleHead
from perdure.history import gc_generation, reader, revisions, writer
from perdure.history.revisions import Exactly, Name
from perdure.history.space import Space
from perdure.model import names
from perdure.model.commit import Act
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.head import MAIN, Head

__all__ = ["fork", "promote", "redo", "seal", "timelines", "undo", "undo_to"]

_KEPT = re.compile(r"main\.v[0-9]+\Z")
_PAGE = 100


def fork(
    space: Space,
    timeline: str,
    name: str,
    at: Name | UnsetType | None,
    *,
    op_id: str | None,
    cells: tuple[CellWrite, ...] = (),
    meant: tuple[str, ...] = (),
) -> Head:
    """Begin the timeline `name` at a moment of `timeline`: by any name, None before the first commit, unset now.

    Nothing is copied.  `cells` become true with it; `meant` is what they were asked for by.  Raises `Conflict` if there is a timeline of that name, `NotFound` if
    the space has no such moment.
    """
    names.check_name("timeline", name)
    if name == MAIN or _KEPT.match(name):
        raise Invalid(f"'{name}' is a name that Perdure gives itself; nothing was forked. Choose another.")
    intent = _intent("fork", name, timeline, *(() if at is UNSET else (_written(at),)), *meant)

    def wanted(space: Space) -> Move:
        head = reader.head_to_move(space, timeline)
        to = head.commit if at is UNSET else None if at is None else revisions.resolve(space, head, at)
        return Move(act=Act.FORK, timeline=name, expected=None, to=to)

    return _once(space, wanted, op_id=op_id, intent=intent, cells=cells)


def undo(space: Space, timeline: str, *, turns: int = 1, op_id: str | None) -> Head:
    """Move the head back to before the last turns, to commit None before the first one.

    Raises `NotFound`, having moved nothing, if the line has fewer turns.
    """
    if turns < 1:
        raise Invalid(f"undo goes back 1 turn or more, not {turns}; nothing was moved.")
    intent = _intent("undo", timeline, turns)

    def wanted(space: Space) -> Move:
        head = reader.head_to_move(space, timeline)
        return _from(head, Act.UNDO, _before(space, head, turns))

    return _once(space, wanted, op_id=op_id, intent=intent)


def undo_to(space: Space, timeline: str, to: Name | None, *, op_id: str | None) -> Head:
    """Move the head to any commit of the space, by any of its names; None is before the first.

    Raises `Forgotten`, having moved nothing, if the state at that commit was.
    """
    intent = _intent("undo to", timeline, _written(to))

    def wanted(space: Space) -> Move:
        head = reader.head_to_move(space, timeline)
        return _from(head, Act.UNDO, None if to is None else revisions.resolve(space, head, to))

    return _once(space, wanted, op_id=op_id, intent=intent)


def redo(space: Space, timeline: str, *, op_id: str | None) -> Head:
    """Move the head to where the last undo, that was not redone yet, took it from.

    Raises `NotFound`, having moved nothing, if there is none, or something was committed since.
    """
    intent = _intent("redo", timeline)

    def wanted(space: Space) -> Move:
        head = reader.head_to_move(space, timeline)
        return _from(head, Act.REDO, _undone(space, head))

    return _once(space, wanted, op_id=op_id, intent=intent)


def promote(
    space: Space,
    other: Head,
    *,
    op_id: str | None,
    onto: Head | None = None,
    cells: tuple[CellWrite, ...] = (),
) -> Head:
    """Make the other line's commit the one of `main`, in one write; the old main is kept as `main.v<n>`, sealed.

    `cells` become true with it.  `onto` is the head of `main` that they were made for; None reads
    it now.  Raises `StaleHead`, having moved nothing, if `main` has moved since it was read.
    """
    if other.timeline == MAIN:
        raise Invalid(f"'{MAIN}' cannot be promoted over itself; nothing was moved. Name another timeline.")
    intent = _intent("promote", other.timeline)
    name = space.ids() if op_id is None else op_id

    def promoted(space: Space) -> Head:
        main = onto or reader.head_to_move(space, MAIN)
        gc_generation.check_state(space, other.commit)
        kept = Move(
            act=Act.KEEP, timeline=f"{MAIN}.v{main.version}", expected=None, to=main.commit, seal=True
        )
        moves = (kept, _from(main, Act.PROMOTE, other.commit))
        try:
            return writer.submit(space, _write(space, moves, name, intent, cells), main).heads[1]
        except Conflict as conflict:
            # Whoever came first has also taken the name to keep, or written the cells; that is not the news.
            actual = reader.head_to_move(space, MAIN)
            if not isinstance(conflict, StaleHead | Sealed | OpReused) and actual != main:
                raise StaleHead(main, actual) from conflict
            raise

    earlier = None if op_id is None else writer.once(space, op_id, intent)
    return earlier.heads[1] if earlier else gc_generation.fenced(space, promoted)


def seal(space: Space, timeline: str, *, op_id: str | None) -> Head:
    """End writing on the timeline, for everybody and for good.  It can still be read, forked and promoted."""
    intent = _intent("seal", timeline)

    def wanted(space: Space) -> Move:
        head = reader.head_to_move(space, timeline)
        return Move(act=Act.SEAL, timeline=timeline, expected=head, to=head.commit, seal=True)

    return _once(space, wanted, op_id=op_id, intent=intent)


def timelines(space: Space) -> Iterator[Hold]:
    """All timelines by name, `main` first, read as they are asked for."""
    yield reader.hold_of(space, MAIN)
    after = ""
    while page := space.engine.holds(space.name, after=after, limit=_PAGE):
        yield from (hold for hold in page if hold.head.timeline != MAIN)
        after = page[-1].head.timeline


def _from(head: Head, act: Act, to: Digest | None) -> Move:
    return Move(act=act, timeline=head.timeline, expected=head, to=to)


def _written(name: Name | None) -> str | None:
    return name.commit if isinstance(name, Exactly) else name


def _intent(act: str, timeline: str, *how: str | int | None) -> Digest:
    """The digest of a move as it was asked for, whatever it comes to mean."""
    return digest_of(Kind.BODY, msgspec.json.encode((act, timeline, how)))


def _once(
    space: Space,
    wanted: Callable[[Space], Move],
    *,
    op_id: str | None,
    intent: Digest,
    cells: tuple[CellWrite, ...] = (),
) -> Head:
    """Make the move that is `wanted`, unless it was made before; raises `Forgotten` if it leads to what is."""
    name = space.ids() if op_id is None else op_id

    def moved(space: Space) -> Head:
        move = wanted(space)
        if move.expected is None or move.to != move.expected.commit:
            gc_generation.check_state(space, move.to)
        onto = move.expected or Head(move.timeline, 0, move.to)
        write = _write(space, (move,), name, intent, cells, is_new=op_id is None)
        return writer.submit(space, write, onto).heads[0]

    earlier = None if op_id is None else writer.once(space, op_id, intent)
    return earlier.heads[0] if earlier else gc_generation.fenced(space, moved)


def _write(
    space: Space,
    moves: tuple[Move, ...],
    op_id: str,
    intent: Digest,
    cells: tuple[CellWrite, ...] = (),
    *,
    is_new: bool = False,
) -> Write:
    return Write(
        space=space.name,
        op_id=names.check_id("op_id", op_id),
        intent=intent,
        fences=space.fences,
        moves=moves,
        cells=cells,
        is_new=is_new,
    )


def _before(space: Space, head: Head, turns: int) -> Digest | None:
    """The commit before the last `turns` turns of the line."""
    last = 0 if head.commit is None else space.step(head.commit).place.turn
    if head.commit is None or turns > last:
        raise NotFound(
            f"timeline '{head.timeline}' of '{space.label}' has {last} turns to undo, not {turns}; nothing was moved."
        )
    before = space.turn(head.commit, last - turns)
    return before.digest if before else None


def _undone(space: Space, head: Head) -> Digest | None:
    """Where the newest undo came from, leaving out those that were redone."""
    redone, before = 0, None
    while moves := space.engine.moves(space.name, head.timeline, before=before, limit=_PAGE):
        for move in moves:
            if move.act is Act.REDO:
                redone += 1
            elif move.act is not Act.UNDO:
                raise _nothing_to_redo(space, head)
            elif redone:
                redone -= 1
            else:
                return move.from_
        before = moves[-1].version
    raise _nothing_to_redo(space, head)


def _nothing_to_redo(space: Space, head: Head) -> NotFound:
    return NotFound(
        f"timeline '{head.timeline}' of '{space.label}' has no undo to redo, or something was committed after it; "
        "nothing was moved.",
        code="nothing_to_redo",
        advice="Any commit can still be reached by undo(to=…) or fork.",
        timeline=head.timeline,
    )
