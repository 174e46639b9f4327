"""Resolves the name of a moment, as a person types it or a program holds it, to one commit.

A name is tried as a digest, a digest's beginning, `HEAD` and `HEAD~n`, `version:n`,
`turn:n`, `turn:n~1` (before that turn), `position:n`, a timeline's name (its head), a message id, a run id, and a name that another framework gave
the commit.  A whole digest of a commit means that commit, even if a message has the same id.  Any other name that fits
two kinds is refused, naming both: a guess here could fork, or undo to, the wrong moment.  A
program that holds a commit passes `Exactly`.

A name that fits nothing so far may be a part of a message id or a run id, as listings show it: one of this line, and
if none fits, one of the whole thread.

Several commits may have the same name: on a line it means the newest that has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import HeadOf, LabelOf, Step
from perdure.errors import Invalid, NotFound
from perdure.history import gc_generation, reader
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.model.head import Head
from perdure.model.names import id_meant, moment_label
from perdure.model.run import RUN

__all__ = ["Exactly", "Name", "no_moment", "resolve"]

PREFIX_MIN = 4

_HEX = re.compile(r"[0-9a-f]{4,64}\Z")
_WHOLE = re.compile(r"[0-9a-f]{64}\Z")
_BACK = re.compile(r"HEAD(?:~([0-9]{1,12}))?\Z")
_VERSION = re.compile(r"version:([0-9]{1,12})\Z")
_TURN = re.compile(r"turn:([0-9]{1,12})(?:~([0-9]{1,12}))?\Z")
_POSITION = re.compile(r"position:([0-9]{1,12})\Z")
_SHOWN = 8

_Found = Iterator[Digest | None]  # the moments that a name fits as one kind


class Exactly(msgspec.Struct, frozen=True):
    """A commit that a program holds, so that it is not a name to be resolved."""

    commit: Digest


Name: TypeAlias = str | Exactly


def resolve(space: Space, head: Head, name: Name) -> Digest | None:
    """Return the commit that `name` means, seen from `head`; None is the moment before the first.

    Raises `NotFound` if it fits nothing, `Invalid` if it fits two things.
    """
    whole = name.commit if isinstance(name, Exactly) else name
    if _WHOLE.match(whole) and (found := _stored(space, Digest(whole))) is not None:
        return found
    if isinstance(name, Exactly):
        raise no_moment(space, head, whole)
    labelled, named, other = space.ask(
        LabelOf(space.name, name), LabelOf(space.name, moment_label(name)), HeadOf(space.name, name)
    )
    kinds = {kind: find(space, head, name) for kind, find in _PLACES.items()}
    kinds["a message id"] = _message(space, head, name, labelled)
    kinds["a run id"] = _run(space, head, name, labelled)
    kinds["a name"] = _named(space, head, named)
    fits: dict[str, Digest | None] = {}
    for kind, commits in kinds.items():
        found = list(dict.fromkeys(commits))
        if len(found) > 1:
            raise _ambiguous(name, kind, found)
        if found:
            fits[kind] = found[0]
    if other is not None and other.head.commit not in fits.values():
        fits["a timeline"] = other.head.commit
    if len(fits) > 1:
        both = " and ".join(f"{kind} ({_shown(commit)})" for kind, commit in fits.items())
        raise Invalid(
            f"{name!r} fits two kinds of name: {both}; nothing was done.",
            code="revision_ambiguous",
            advice="Give the full digest.",
            name=name,
            kinds=tuple(fits),
        )
    if not fits:
        whole = id_meant(name, _ids(space, head), what="message or run")
        whole = whole or id_meant(name, _ids_elsewhere(space, head), what="message or run")
        if whole is None or whole == name:
            raise no_moment(space, head, name)
        return resolve(space, head, whole)
    return next(iter(fits.values()))


def _ids(space: Space, head: Head) -> Iterator[str]:
    """Yield the ids of the runs and messages of a line, newest first."""
    for step in reader.steps(space, head.commit):
        if step.commit.run is not None:
            yield step.commit.run
        yield from (event.id for event in step.changeset.events if isinstance(event, MessageAppended))


def _ids_elsewhere(space: Space, head: Head) -> Iterator[str]:
    """Yield the ids of all runs of the space, undone ones too, and of the messages of the other timelines."""
    for cell in loops.cells(space.engine, space.name, prefix=RUN):
        yield cell.name.removeprefix(RUN)
    seen: set[Digest] = set()
    for hold in loops.holds(space.engine, space.name):
        for step in reader.steps(space, hold.head.commit) if hold.head.timeline != head.timeline else ():
            if step.digest in seen:
                break
            seen.add(step.digest)
            yield from (event.id for event in step.changeset.events if isinstance(event, MessageAppended))


def _stored(space: Space, commit: Digest) -> Digest | None:
    """Return the commit of that digest if the store has it; the cache counts if nothing was ever forgotten."""
    step = space.find(commit, remembered=gc_generation.is_whole(space))
    return None if step is None else step.digest


def _digests(space: Space, head: Head, name: str) -> _Found:
    if _HEX.match(name):
        yield from space.engine.commits(space.name, name, limit=_SHOWN + 1)


def _back(space: Space, head: Head, name: str) -> _Found:
    match = _BACK.match(name)
    if match is None:
        return
    count, depth = int(match[1] or 0), _depth(space, head.commit)
    if head.commit is None or count == depth + 1:
        yield from (None,) if count <= depth + 1 else ()
    elif count <= depth:
        yield space.back(head.commit, skip=count, limit=1)[0].digest


def _version(space: Space, head: Head, name: str) -> _Found:
    match = _VERSION.match(name)
    if match is None:
        return
    version = int(match[1])
    moves = space.engine.moves(space.name, head.timeline, before=version + 1, limit=1)
    if moves and moves[0].version == version:
        yield moves[0].to
    elif version == 0 and not moves:
        yield None


def _turn(space: Space, head: Head, name: str) -> _Found:
    match = _TURN.match(name)
    if match is None or head.commit is None:
        return
    number, back = int(match[1]), int(match[2] or 0)
    step = space.message(head.commit, number) if back <= number else None
    if step is None:
        return
    if not back:
        yield _end_of_run(space, step, head.commit)
        return
    first = space.message(head.commit, number - back + 1)  # of the turns that are left out
    assert first is not None, "the messages before one have numbers"
    before = space.turn(head.commit, first.place.turn - 1)
    yield None if before is None else before.digest


def _position(space: Space, head: Head, name: str) -> _Found:
    match = _POSITION.match(name)
    step = None if match is None or head.commit is None else space.turn(head.commit, int(match[1]))
    if step is not None:
        yield step.digest


def _message(space: Space, head: Head, name: str, labelled: Sequence[Digest]) -> _Found:
    said = [digest for digest in labelled if _appends(space, digest, name)]
    here = [digest for digest in said if reader.is_ancestor(space, digest, head.commit)]
    yield from here or said


def _named(space: Space, head: Head, named: Sequence[Digest]) -> _Found:
    if len(named) > 1:
        here = (digest for digest in reversed(named) if reader.is_ancestor(space, digest, head.commit))
        newest = next(here, None)
        named = named if newest is None else (newest,)
    yield from named


def _run(space: Space, head: Head, name: str, labelled: Sequence[Digest]) -> _Found:
    begun = [digest for digest in labelled if space.step(digest).commit.run == name]
    here = [digest for digest in begun if reader.is_ancestor(space, digest, head.commit)]
    if here and head.commit is not None:
        yield _end_of_run(space, space.step(here[0]), head.commit)
        return
    for digest in begun:
        yield from _ends_elsewhere(space, digest)


def _ends_elsewhere(space: Space, begun: Digest) -> _Found:
    """Yield where a run ended on each timeline that has it; its first commit if none has it any more."""
    heads = (hold.head.commit for hold in loops.holds(space.engine, space.name) if hold.head.commit)
    step = space.step(begun)
    ends = [_end_of_run(space, step, top) for top in heads if reader.is_ancestor(space, begun, top)]
    yield from ends or [begun]


def _end_of_run(space: Space, step: Step, top: Digest) -> Digest:
    """Return the last commit, on the line of `top`, of the run of a commit; of its turn if it belongs to no run.

    A run that waited or failed, and went on after other commits, has several turns, and each begins with its label.
    """
    turn = step.place.turn
    if step.commit.run is not None and space.step(top).commit.unnumbered > step.commit.unnumbered:
        parts = (space.step(each) for each in space.engine.labelled(space.name, step.commit.run))
        turns = (each.place.turn for each in parts if reader.is_ancestor(space, each.digest, top))
        turn = max(turn, *turns)
    last = space.turn(top, turn)
    assert last is not None, "a commit on a line has a turn there"
    return last.digest


_PLACES: dict[str, Callable[[Space, Head, str], _Found]] = {
    "a digest": _digests,
    "a place before the head": _back,
    "a version": _version,
    "a turn": _turn,
    "a position": _position,
}


def _appends(space: Space, digest: Digest, message: str) -> bool:
    events = space.step(digest).changeset.events
    return any(isinstance(event, MessageAppended) and event.id == message for event in events)


def _depth(space: Space, commit: Digest | None) -> int:
    return -1 if commit is None else space.step(commit).commit.depth


def _ambiguous(name: str, kind: str, found: Sequence[Digest | None]) -> Invalid:
    shown = ", ".join(_shown(commit) for commit in found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    return Invalid(
        f"{name!r} is {kind} of more than one commit: {shown}; nothing was done.",
        code="revision_ambiguous",
        advice="Give more digits." if kind == "a digest" else "Give the digest.",
        name=name,
        kinds=(kind,),
    )


def no_moment(space: Space, head: Head, name: str) -> NotFound:
    """Return the error for a name that no moment has, seen from `head`."""
    turns = 0 if head.commit is None else space.step(head.commit).turn_number
    return NotFound(
        f"{name!r} names no moment of '{space.label}' on timeline '{head.timeline}', which is at version "
        f"{head.version} (commits: {_depth(space, head.commit) + 1}, turns: {turns}); nothing was done.",
        code="revision_not_found",
        advice=f"Use a digest or its first {PREFIX_MIN} digits, HEAD~n, version:n, turn:n, turn:n~1, position:n, a timeline's name, a message id, a run id or a name.",
        name=name,
        timeline=head.timeline,
        turns=turns,
    )


def _shown(commit: Digest | None) -> str:
    return commit[:16] if commit else "before the first commit"
