"""A history checker that knows nothing of Perdure: it compares what writers and readers say with what is left.

Writers say which commit each acknowledged write made, at which version, with which token.
Readers say what they saw at one moment.  At the end the line is one list of commits, the
oldest first, with the token that each brought.  Then

- every acknowledged write stands in the list, at its version, and brought its token (else it was *lost*);
- nothing is there that no writer made, and no token is there twice (else it is a *duplicate*);
- every reader saw a beginning of the list, and never less than it had seen before (else it is *no prefix*).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Line", "Seen", "Wrote", "faults"]


@dataclass(frozen=True, slots=True)
class Wrote:
    """An acknowledged write."""

    version: int  # from 1
    commit: str
    token: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look of a reader showed; the looks of one reader are given in their order."""

    reader: str
    version: int
    commit: str | None  # None: nothing was there
    last: tuple[str, ...]  # the last few commits, newest first
    tokens: tuple[tuple[int, str | None], ...]  # some tokens by version; None where there was none


@dataclass(frozen=True, slots=True)
class Line:
    """What is left at the end: commits and tokens, oldest first."""

    commits: Sequence[str]
    tokens: Sequence[str]


def faults(wrote: Iterable[Wrote], seen: Iterable[Seen], line: Line) -> list[str]:
    """Everything that does not fit together, one sentence each."""
    wrote = list(wrote)
    return [*_lost(wrote, line), *_doubled(wrote, line), *_no_prefix(seen, line)]


def _lost(wrote: Sequence[Wrote], line: Line) -> Iterable[str]:
    for each in wrote:
        at = each.version - 1
        if not (0 <= at < len(line.commits)) or line.commits[at] != each.commit:
            yield f"lost: {each} is not in the history"
        elif line.tokens[at] != each.token:
            yield f"lost: version {each.version} brought {line.tokens[at]!r}, not {each.token!r}"


def _doubled(wrote: Sequence[Wrote], line: Line) -> Iterable[str]:
    made = Counter(each.commit for each in wrote)
    for commit in line.commits:
        if made[commit] != 1:
            yield f"duplicate: {commit} was acknowledged {made[commit]} times"
    for token, times in Counter(line.tokens).items():
        if times > 1:
            yield f"duplicate: {token!r} stands in the history {times} times"


def _no_prefix(seen: Iterable[Seen], line: Line) -> Iterable[str]:
    reached: dict[str, int] = {}
    for look in seen:
        before = reached.get(look.reader, 0)
        if look.version < before:
            yield f"no prefix: {look.reader} went back from version {before} to {look.version}"
        reached[look.reader] = max(before, look.version)
        commits = line.commits[: look.version]
        if len(commits) != look.version or look.commit != (commits[-1] if commits else None):
            yield f"no prefix: {look.reader} saw {look.commit} at version {look.version}"
        elif tuple(reversed(commits))[: len(look.last)] != look.last:
            yield f"no prefix: {look.reader} saw another past at version {look.version}"
        for version, token in look.tokens:
            there = line.tokens[version - 1] if version <= min(look.version, len(line.tokens)) else None
            if token != there:
                yield f"no prefix: at version {look.version} {look.reader} saw {token!r} for {version}, not {there!r}"
