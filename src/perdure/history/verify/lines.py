"""Checking timelines: every head stands where its moves, taken one after another, leave it."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engines.contract import Hold
from perdure.errors import Corrupt, NotFound
from perdure.history.scan import pages
from perdure.history.space import Space
from perdure.history.verify.report import DAMAGE, Findings
from perdure.model.commit import MoveRecord, decode_move, encode_move
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.head import MAIN

__all__ = ["check_lines"]

_PAGE = 200


def check_lines(space: Space, commits: int, findings: Findings) -> None:
    """Check every timeline that the space lists; where the list cannot be read, every one that has moves.

    `commits` is how many came by when everything stored was gone over: no line can have more.
    """
    after = ""
    try:
        while page := space.engine.holds(space.name, after=after, limit=_PAGE):
            for hold in page:
                _check_timeline(space, hold.head.timeline, commits, findings)
            after = page[-1].head.timeline
    except Corrupt as error:
        findings.add("head", f"{error} So timelines cannot be listed.", name=f"after '{after}'")
        _check_by_moves(space, commits, findings)


def _check_by_moves(space: Space, commits: int, findings: Findings) -> None:
    """Check every timeline whose first move is stored."""
    for page in pages(space.engine, space.name):
        for fact in page:
            if fact.kind == Kind.MOVE and fact.object is not None:
                with findings.watching("move", digest=fact.digest):
                    move = decode_move(fact.object.body)
                    if move.previous is None:
                        _check_timeline(space, move.timeline, commits, findings)


def _check_timeline(space: Space, timeline: str, commits: int, findings: Findings) -> None:
    """Check one head against all its moves, the newest first."""
    findings.count("head")
    with findings.watching("head", name=timeline):
        hold = space.engine.hold(space.name, timeline)
        if hold is None:
            raise NotFound("it has moved, but where it stands is not recorded")
        _check_tip(space, hold, commits, findings)
        _check_moves(space, hold, findings)


def _check_tip(space: Space, hold: Hold, commits: int, findings: Findings) -> None:
    """Check that the line can be read from its head to its first commit."""
    if hold.head.commit is None:
        return
    tip = space.engine.steps(space.name, hold.head.commit, limit=1)[0]
    if tip.commit.depth >= commits and tip.commit.depth >= (stored := _stored_commits(space)):
        what = f"its line has {tip.commit.depth + 1} commits, but only {stored} were found in storage"
        findings.add("head", what, name=hold.head.timeline)
    first = space.engine.steps(space.name, hold.head.commit, skip=tip.commit.depth, limit=2)
    if len(first) != 1 or first[0].commit.parents or first[0].commit.depth:
        findings.add("head", "its line does not begin where its depth says", name=hold.head.timeline)


def _stored_commits(space: Space) -> int:
    """How many commits are stored by now: some may have been written since they were counted."""
    return sum(fact.kind == Kind.COMMIT for page in pages(space.engine, space.name) for fact in page)


def _check_moves(space: Space, hold: Hold, findings: Findings) -> None:
    newer: MoveRecord | None = None
    name = hold.head.timeline
    before = hold.head.version + 1
    while page := space.engine.moves(space.name, name, before=before, limit=_PAGE):
        if newer is None:
            _check_last(hold, page[0], findings)
        for move in page:
            if newer is not None:
                _check_pair(move, newer, findings)
            newer = move
        _check_targets(space, page, findings)
        if page[-1].version >= before:
            findings.add("head", "its moves do not count down", name=name)
            return
        before = page[-1].version
    _check_first(hold, newer, findings)


def _check_last(hold: Hold, last: MoveRecord, findings: Findings) -> None:
    if (last.version, last.to, last.sealed) != (hold.head.version, hold.head.commit, hold.sealed):
        findings.add("head", "it is not where its last move left it", name=hold.head.timeline)
    if _address(last) != hold.move:
        findings.add("head", "it names another move as its last", name=hold.head.timeline)


def _check_pair(move: MoveRecord, newer: MoveRecord, findings: Findings) -> None:
    what = None
    if newer.version != move.version + 1:
        what = f"version {newer.version} comes after version {move.version}"
    elif newer.from_ != move.to:
        what = f"version {newer.version} does not begin where version {move.version} ended"
    elif newer.previous != _address(move):
        what = f"version {newer.version} names another move as the one before it"
    elif move.sealed:
        what = f"it moved on to version {newer.version} after it was sealed"
    if what:
        findings.add("move", what, digest=_address(newer), name=newer.timeline)


def _check_first(hold: Hold, first: MoveRecord | None, findings: Findings) -> None:
    """Check that the chain of moves goes back to the beginning: version 1 of `main`, 0 of any other."""
    name = hold.head.timeline
    begun = 1 if name == MAIN else 0
    if first is None:
        if hold.head.version or hold.move:
            findings.add("head", "none of its moves is recorded", name=name)
    elif first.version != begun or first.previous is not None or first.from_ is not None:
        findings.add("head", f"its moves go back to version {first.version} only", name=name)


def _check_targets(space: Space, moves: Sequence[MoveRecord], findings: Findings) -> None:
    targets = {move.to: move for move in moves if move.to}
    for target in space.engine.missing(space.name, list(targets)):
        move = targets[target]
        findings.add(
            "move",
            f"it leads to commit {target}, which is missing",
            digest=_address(move),
            name=move.timeline,
        )


def _address(move: MoveRecord) -> Digest:
    try:
        return digest_of(Kind.MOVE, encode_move(move))
    except DAMAGE:
        return Digest("")  # text that cannot be encoded was never a move of ours
