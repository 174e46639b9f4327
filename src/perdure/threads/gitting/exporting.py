"""Exporting: bring a repository to where the thread stands, and keep it there.

Each time the heads are read as of one moment, what git does not have is streamed, and the branches
are moved at the end of the stream: all of it or nothing.  A branch goes where its timeline's head
is, also back; what it has left stays under `refs/perdure/left/`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from perdure.engines.contract import Step
from perdure.history import ancestry, reader, timelines
from perdure.history.space import Space, Steps
from perdure.history.tree import Cache
from perdure.model.digest import Digest
from perdure.model.head import MAIN, Head
from perdure.projections import git
from perdure.threads.gitting.content import Told, changed, told
from perdure.threads.gitting.ordering import Known, unwritten
from perdure.threads.gitting.process import Importer
from perdure.threads.gitting.repository import LEFT, Repository, Tip
from perdure.threads.thread import Thread

__all__ = ["Branch", "Written", "export", "follow"]

_POLL_SECONDS = 0.2
_READS_MAX = 20
_CACHE_BYTES = 2 << 20

_Progress = Callable[[int], None]  # told how many commits were written so far


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline as a branch."""

    timeline: str
    name: str  # the timeline's, so that git takes it
    commit: Digest
    git: str  # the same commit in git
    commits: int  # on its line
    moved: bool  # by this export
    subject: str  # of the git commit: its reason, and the first words that were said in it


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What an export came to."""

    directory: Path
    commits: int  # that it wrote
    branches: tuple[Branch, ...]
    removed: tuple[str, ...]  # timelines whose branch went, since nothing is committed there any more


def export(
    thread: Thread, directory: str | os.PathLike[str], *, progress: _Progress | None = None
) -> Written:
    """Bring the git repository in `directory`, made if need be, to where the thread stands; what that came to.

    Raises `Conflict`, having touched nothing, if the directory holds anything but an export of this
    thread; `Unsupported` without git; `Unavailable`, with no branch moved, if git fails.
    """
    space = _space(thread)
    repository = Repository(directory, thread.id, space.name)
    with repository.held():
        return _Export(space, repository).advance(progress)


def follow(
    thread: Thread, directory: str | os.PathLike[str], *, progress: _Progress | None = None
) -> Iterator[Written]:
    """The same, and again whenever the thread has moved, until nobody asks for more."""
    space = _space(thread)
    repository = Repository(directory, thread.id, space.name)
    with repository.held():
        exporting, seen = _Export(space, repository), -1
        while True:
            standing = space.engine.standing(space.name)
            if standing != seen:
                written = exporting.advance(progress)
                if seen < 0 or written.removed or any(branch.moved for branch in written.branches):
                    yield written
                seen = standing
            else:
                time.sleep(_POLL_SECONDS)


class _Export:
    """A repository that is held, and the thread that it is of."""

    def __init__(self, space: Space, repository: Repository) -> None:
        self._space, self._repository = space, repository
        self._tips = repository.tips(self._has)

    def advance(self, progress: _Progress | None) -> Written:
        """Write what is new, and move the branches."""
        heads = {git.BRANCHES + git.branch_of(head.timeline): head for head in _heads(self._space)}
        wanted = {ref: head.commit for ref, head in heads.items()}
        moving = {ref: to for ref, to in wanted.items() if to != self._commit(ref)}
        written = self._stream(moving, progress) if moving else 0
        branches = [
            self._branch(ref, head, moved=ref in moving) for ref, head in heads.items() if head.commit
        ]
        removed = [heads[ref].timeline for ref, to in moving.items() if to is None]
        return Written(
            directory=self._repository.directory,
            commits=written,
            branches=tuple(branches),
            removed=tuple(removed),
        )

    def _stream(self, moving: Mapping[str, Digest | None], progress: _Progress | None) -> int:
        known = Known(self._space, self._tips)
        with self._repository.git.importing() as stream:
            for ref, to in moving.items():
                if to is not None:
                    self._write(stream, ref, to, known, progress)
            refs = {**moving, **self._left(moving)}
            for ref, to in refs.items():
                stream.write(git.move_ref(ref, None if to is None else known.name(to)))
            tips = {ref: self._tip(stream, to, known) for ref, to in refs.items() if to is not None}
            stream.write(git.DONE)
        self._tips = {ref: tip for ref, tip in self._tips.items() if ref not in refs} | tips
        self._repository.record(self._tips)
        return len(known)

    def _write(
        self, stream: Importer, ref: str, to: Digest, known: Known, progress: _Progress | None
    ) -> None:
        """Write the commits that git does not have behind `to`, and itself."""
        for step in unwritten(self._space, to, known):
            said = told(self._space, step)
            author, committer = git.author_of(step.commit)
            parents = [known.name(parent) or "" for parent in step.commit.parents]
            header = git.begin_commit(
                ref,
                known.add(step.digest),
                author=author,
                committer=committer,
                message=_message(step, said),
                parents=parents,
            )
            stream.write(header)
            for part in changed(self._space, step, said):
                stream.write(part)
            stream.write(git.end_commit())
            if progress is not None:
                progress(len(known))

    def _left(self, moving: Mapping[str, Digest | None]) -> dict[str, Digest]:
        """Refs for the commits that branches move away from, and that are not behind where they go."""
        left: dict[str, Digest] = {}
        for ref, to in moving.items():
            old = self._commit(ref)
            if old is not None and not self._is_behind(old, to):
                left[LEFT + old] = old
        return {ref: old for ref, old in left.items() if ref not in self._tips}

    def _is_behind(self, old: Digest, to: Digest | None) -> bool:
        if to is None:
            return False
        one, other = ancestry.point(self._space, old), ancestry.point(self._space, to)
        return one.depth <= other.depth and ancestry.ancestor(self._space, other, one.depth) == one

    def _tip(self, stream: Importer, commit: Digest, known: Known) -> Tip:
        mark = known.mark(commit)
        if mark is not None:
            stream.write(git.get_mark(mark))
            return Tip(stream.answer(), commit)
        name = known.name(commit)
        assert name is not None, "what a ref was moved to, git has"
        found = self._repository.git.ask("rev-parse", "--verify", "--quiet", name)
        return Tip(found.decode().strip(), commit)

    def _branch(self, ref: str, head: Head, *, moved: bool) -> Branch:
        assert head.commit is not None
        step = self._space.step(head.commit)
        return Branch(
            timeline=head.timeline,
            name=ref.removeprefix(git.BRANCHES),
            commit=head.commit,
            git=self._tips[ref].git,
            commits=step.place.depth + 1,
            moved=moved,
            subject=_message(step, told(self._space, step)).partition("\n")[0],
        )

    def _commit(self, ref: str) -> Digest | None:
        tip = self._tips.get(ref)
        return tip.commit if tip else None

    def _has(self, commit: Digest) -> bool:
        return self._space.find(commit) is not None


def _message(step: Step, said: Sequence[Told]) -> str:
    return git.message_of(step.digest, step.commit, step.changeset, [each.entry for each in said])


def _heads(space: Space) -> list[Head]:
    """Where all timelines stand, as of one moment: a promote moves two of them at once."""
    heads: list[Head] = []
    for _ in range(_READS_MAX):
        standing = space.engine.standing(space.name)
        heads = [hold.head for hold in timelines.timelines(space)]
        if space.engine.standing(space.name) == standing:
            break
    return heads


def _space(thread: Thread) -> Space:
    """The thread's space, with a small cache of its own: every commit is passed once and not returned to.

    Raises `NotFound` if the thread was removed.
    """
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    reader.head_of(space, MAIN)
    return msgspec.structs.replace(space, cache=Cache(_CACHE_BYTES), steps=Steps())
