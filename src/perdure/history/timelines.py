"""Moves the heads of timelines: fork, undo, redo, promote and seal are one recorded move each.

A move copies nothing and removes nothing: a commit that a head has left can be read, forked
and returned to.  Every move raises the version, so a head read before it is stale after it.
The write expects the whole head that was read.  The move has its own time and, where it was said, its author.  With the
same op_id a move happens once; without one (None) it is never repeated.  A move names a commit without supplying its
objects, so a move to a commit whose state was forgotten is refused, and so is one to a line with messages that were
forgotten, as far as the line that is left does not have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from perdure.engines import loops
from perdure.engines.contract import GC, CellOf, CellWrite, Hold, Move, OpOf, Question, Write
from perdure.errors import Conflict, Forgotten, Invalid, NotFound, OpReused, Sealed, StaleHead
from perdure.history import ancestry, gc_generation, reader, revisions, writer
from perdure.history.revisions import Exactly, Name
from perdure.history.space import Space
from perdure.model import canonical, names
from perdure.model.commit import Act
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN, Head

__all__ = [
    "commit_before_turns",
    "commit_to_redo",
    "drop",
    "fork",
    "is_forgotten",
    "move_questions",
    "nothing_to_redo",
    "promote",
    "redo",
    "seal",
    "timelines",
    "undo",
    "undo_to",
]

_OLD_MAIN = re.compile(r"main\.v[0-9]+\Z")


def fork(
    space: Space,
    timeline: str,
    name: str,
    at: Name | UnsetType | None,
    *,
    op_id: str | None,
    cells: tuple[CellWrite, ...] = (),
    meant: tuple[str, ...] = (),
    author: str | None = None,
) -> Head:
    """Begin the timeline `name` at a moment of `timeline`: by any name, None before the first commit, unset now.

    Nothing is copied.  `cells` are written with the move; `meant` is the caller's intent for them.  Raises
    `Conflict` if there is a timeline of that name, `NotFound` if the space has no such moment.
    """
    names.check_name("timeline", name)
    if name == MAIN or _OLD_MAIN.match(name):
        raise Invalid(
            f"'{name}' is a name that Perdure gives itself; nothing was forked.",
            code="timeline_name_reserved",
            advice="Choose another.",
            name=name,
        )
    intent = _intent("fork", name, timeline, *(() if at is UNSET else (_written(at),)), *meant)

    def next_move(space: Space) -> tuple[Head, Move]:
        head = reader.head_to_move(space, timeline)
        to = head.commit if at is UNSET else None if at is None else revisions.resolve(space, head, at)
        return head, Move(act=Act.FORK, timeline=name, expected=None, to=to)

    return _once(space, next_move, op_id=op_id, intent=intent, cells=cells, author=author)


def undo(
    space: Space, timeline: str, *, turns: int = 1, op_id: str | None, author: str | None = None
) -> Head:
    """Move the head back to before the last turns, to commit None before the first one.

    Raises `NotFound`, having moved nothing, if the line has fewer turns.
    """
    if turns < 1:
        raise Invalid(
            f"undo goes back 1 turn or more, not {turns}; nothing was moved.",
            code="turns_invalid",
            turns=turns,
        )
    intent = _intent("undo", timeline, turns)

    def next_move(space: Space) -> tuple[Head, Move]:
        head = reader.head_to_move(space, timeline)
        return head, _from(head, Act.UNDO, commit_before_turns(space, head, turns))

    return _once(space, next_move, op_id=op_id, intent=intent, author=author)


def undo_to(
    space: Space, timeline: str, to: Name | None, *, op_id: str | None, author: str | None = None
) -> Head:
    """Move the head to any commit of the space, by any of its names; None is before the first.

    Raises `Forgotten`, having moved nothing, if the state at that commit was forgotten.
    """
    intent = _intent("undo to", timeline, _written(to))

    def next_move(space: Space) -> tuple[Head, Move]:
        head = reader.head_to_move(space, timeline)
        return head, _from(head, Act.UNDO, None if to is None else revisions.resolve(space, head, to))

    return _once(space, next_move, op_id=op_id, intent=intent, author=author)


def redo(space: Space, timeline: str, *, op_id: str | None, author: str | None = None) -> Head:
    """Move the head back to the commit that the last undo, not yet redone, moved it from.

    Raises `NotFound`, having moved nothing, if there is none, or something was committed since.
    """
    intent = _intent("redo", timeline)

    def next_move(space: Space) -> tuple[Head, Move]:
        head = reader.head_to_move(space, timeline)
        return head, _from(head, Act.REDO, commit_to_redo(space, head))

    return _once(space, next_move, op_id=op_id, intent=intent, author=author)


def promote(
    space: Space,
    other: Head,
    *,
    op_id: str | None,
    onto: Head | None = None,
    cells: tuple[CellWrite, ...] = (),
    author: str | None = None,
) -> Head:
    """Make the other line's commit the one of `main`, in one write; the old main is kept as `main.v<n>`, sealed.

    `cells` are written with the move.  `onto` is the head of `main` that they depend on; None reads
    it now.  Raises `StaleHead`, having moved nothing, if `main` has moved since it was read.
    """
    if other.timeline == MAIN:
        raise Invalid(
            f"'{MAIN}' cannot be promoted over itself; nothing was moved.",
            code="promoted_over_itself",
            advice="Name another timeline.",
        )
    intent = _intent("promote", other.timeline)
    name = space.ids() if op_id is None else op_id

    def promoted(space: Space) -> Head:
        main = onto or reader.head_to_move(space, MAIN)
        _check_kept(space, other.commit, main.commit)
        old_main = Move(
            act=Act.KEEP, timeline=f"{MAIN}.v{main.version}", expected=None, to=main.commit, seal=True
        )
        moves = (old_main, _from(main, Act.PROMOTE, other.commit))
        try:
            return writer.submit(space, _write(space, moves, name, intent, cells, author=author), main).heads[
                1
            ]
        except Conflict as conflict:
            # A writer that was first has also taken the name of the old main, or written the cells: the cause is the
            # moved head, so report that.
            actual = reader.head_to_move(msgspec.structs.replace(space, known={}), MAIN)
            if not isinstance(conflict, StaleHead | Sealed | OpReused) and actual != main:
                raise StaleHead(main, actual) from conflict
            raise

    earlier = None if op_id is None else writer.once(space, op_id, intent)
    return earlier.heads[1] if earlier else gc_generation.fenced(space, promoted)


def seal(space: Space, timeline: str, *, op_id: str | None, author: str | None = None) -> Head:
    """End writing on the timeline for ever.  It can still be read, forked and promoted."""
    intent = _intent("seal", timeline)

    def next_move(space: Space) -> tuple[Head, Move]:
        head = reader.head_to_move(space, timeline)
        return head, Move(act=Act.SEAL, timeline=timeline, expected=head, to=head.commit, seal=True)

    return _once(space, next_move, op_id=op_id, intent=intent, author=author)


def drop(space: Space, timeline: str, *, op_id: str | None, author: str | None = None) -> Head:
    """Seal the timeline, if it is not, and mark it, so that retention may take what no other timeline needs.

    The mark is a cell of the space.  Raises `Invalid` for `main`.
    """
    if timeline == MAIN:
        raise Invalid(
            f"'{MAIN}' cannot be dropped; nothing was changed.",
            code="main_not_dropped",
            advice="Promote another timeline first, or remove the whole thread.",
        )
    intent = _intent("drop", timeline)
    name = space.ids() if op_id is None else op_id

    def dropped(space: Space) -> Head:
        hold = reader.hold_to_move(space, timeline)
        (cell,) = space.ask(CellOf(space.name, reader.DROPPED + timeline))
        if cell is not None:
            return hold.head
        mark = CellWrite(
            name=reader.DROPPED + timeline, expected=0, value=canonical.encode({"at": space.clock()})
        )
        if hold.sealed:
            space.engine.apply(_write(space, (), name, intent, (mark,)))
            return hold.head
        move = Move(act=Act.SEAL, timeline=timeline, expected=hold.head, to=hold.head.commit, seal=True)
        return writer.submit(
            space, _write(space, (move,), name, intent, (mark,), author=author), hold.head
        ).heads[0]

    earlier = None if op_id is None else writer.once(space, op_id, intent)
    return reader.hold_of(space, timeline).head if earlier else gc_generation.fenced(space, dropped)


def is_forgotten(space: Space, head: Head) -> bool:
    """True if retention has taken the state at a head, or something that was said since its line parted from `main`."""
    if head.timeline == MAIN or head.commit is None:
        return False
    main = reader.hold_of(space, MAIN).head.commit
    try:
        gc_generation.fenced(space, lambda space: _check_kept(space, head.commit, main))
    except Forgotten:
        return True
    return False


def move_questions(space: Space, op_id: str | None) -> list[Question]:
    """Return what every move of a head asks beside its heads, for a caller that asks more in the same call."""
    generation = CellOf(space.name, GC)
    return [generation] if op_id is None else [generation, OpOf(space.name, op_id)]


def timelines(space: Space) -> Iterator[Hold]:
    """Yield all timelines by name, `main` first, reading lazily."""
    yield reader.hold_of(space, MAIN)
    yield from (hold for hold in loops.holds(space.engine, space.name) if hold.head.timeline != MAIN)


def _from(head: Head, act: Act, to: Digest | None) -> Move:
    return Move(act=act, timeline=head.timeline, expected=head, to=to)


def _written(name: Name | None) -> str | None:
    return name.commit if isinstance(name, Exactly) else name


def _intent(act: str, timeline: str, *how: str | int | None) -> Digest:
    """Return the digest of a move as the caller asked for it, before its names are resolved."""
    return digest_of(Kind.BODY, msgspec.json.encode((act, timeline, how)))


def _once(
    space: Space,
    next_move: Callable[[Space], tuple[Head, Move]],
    *,
    op_id: str | None,
    intent: Digest,
    cells: tuple[CellWrite, ...] = (),
    author: str | None,
) -> Head:
    """Apply the move that `next_move` returns with the head that it begins from, unless it was applied before.

    Raises `Forgotten` as `_check_kept` does.
    """
    name = space.ids() if op_id is None else op_id

    def moved(space: Space) -> Head:
        head, move = next_move(space)
        if move.expected is None or move.to != head.commit:
            _check_kept(space, move.to, head.commit)
        onto = move.expected or Head(move.timeline, 0, move.to)
        write = _write(space, (move,), name, intent, cells, is_new=op_id is None, author=author)
        return writer.submit(space, write, onto).heads[0]

    earlier = None if op_id is None else writer.once(space, op_id, intent)
    return earlier.heads[0] if earlier else gc_generation.fenced(space, moved)


def _check_kept(space: Space, to: Digest | None, left: Digest | None) -> None:
    """Raise `Forgotten` if the state at `to`, or a message that its line has and that of `left` has not, was forgotten."""
    gc_generation.check_state(space, to)
    if to is None or gc_generation.is_whole(space):
        return
    tip = ancestry.point(space, to)
    parted = ancestry.meet(space, tip, None if left is None else ancestry.point(space, left))
    for step in ancestry.walk(space, ancestry.Stretch(tip, parted.depth if parted else -1)):
        said = [event.body for event in step.changeset.events if isinstance(event, MessageAppended)]
        try:
            _check_said(space, said)
        except Forgotten as error:
            what = f"nothing was moved: what was said in turn {step.turn_number} (commit {step.digest[:12]})"
            advice = (
                "Its changes of state can be taken over by a merge or a cherry-pick, as far as they are kept."
            )
            raise Forgotten(what, error.why, advice=advice) from error


def _check_said(space: Space, bodies: Sequence[Digest]) -> None:
    """Raise `Forgotten` if any of these bodies was forgotten; what stands in the place of a redacted one will do."""
    try:
        gc_generation.check_kept(space, bodies)
    except Forgotten:
        for body in bodies:
            space.body(body)


def _write(
    space: Space,
    moves: tuple[Move, ...],
    op_id: str,
    intent: Digest,
    cells: tuple[CellWrite, ...] = (),
    *,
    is_new: bool = False,
    author: str | None = None,
) -> Write:
    if author is not None:
        names.check_label("author", author)
    at = space.clock()
    return Write(
        space=space.name,
        op_id=names.check_id("op_id", op_id),
        intent=intent,
        fences=space.fences,
        moves=tuple(msgspec.structs.replace(move, at=at, author=author) for move in moves),
        cells=cells,
        is_new=is_new,
    )


def commit_before_turns(space: Space, head: Head, turns: int) -> Digest | None:
    """Return the commit before the last `turns` turns of the line; raises `NotFound` if it has fewer."""
    last = 0 if head.commit is None else space.step(head.commit).place.turn
    if head.commit is None or turns > last:
        raise NotFound(
            f"timeline '{head.timeline}' of '{space.label}' has fewer turns to undo ({last}) than {turns}; nothing was moved.",
            code="too_few_turns",
            timeline=head.timeline,
            turns=last,
        )
    before = space.turn(head.commit, last - turns)
    return before.digest if before else None


def commit_to_redo(space: Space, head: Head) -> Digest | None:
    """Return the commit that the newest undo moved the head from, without those that were redone.

    Raises `NotFound` if there is none.
    """
    redone = 0
    for move in loops.moves(space.engine, space.name, head.timeline):
        if move.act is Act.REDO:
            redone += 1
        elif move.act is not Act.UNDO:
            break
        elif redone:
            redone -= 1
        else:
            return move.from_
    raise nothing_to_redo(space, head)


def nothing_to_redo(space: Space, head: Head) -> NotFound:
    """Return the error for a timeline that has no undo to redo."""
    return NotFound(
        f"timeline '{head.timeline}' of '{space.label}' has no undo to redo, or something was committed after it; "
        "nothing was moved.",
        code="nothing_to_redo",
        advice="Any commit can still be reached by undo(to=…) or fork.",
        timeline=head.timeline,
    )
