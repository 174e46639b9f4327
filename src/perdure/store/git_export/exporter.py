"""What one commit changes in the files: the values that differ from its first parent's, and what was said in it.

Costs what differs, not what there is.  The state of a commit is compared with its parent's; only
where a part of one of the two maps was forgotten is the whole state written again.

Exporting: bring a repository to where the thread stands, and keep it there.

Each time the heads are read as of one moment, what git does not have is streamed, and the branches
are moved at the end of the stream: all of it or nothing.  A branch goes where its timeline's head
is, also back; what it has left stays under `refs/perdure/left/`.

Which commits are still to be written, and in which order: parents before children.

A line is written from its oldest new commit on.  Where one of its commits has a second parent
that is not there yet, that line comes first; it cannot need anything of the first line that is
not written yet, for what it needs is behind the commit that waits.

Nothing is looked up by walking: along a line everything behind a commit that is there is there
too, so where the new ones begin is found by halving.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from perdure.engines.contract import Step
from perdure.errors import Forgotten
from perdure.history import ancestry, artifacts, reader, timelines
from perdure.history.ancestry import Point
from perdure.history.space import CommitCache, Space
from perdure.history.tree import EMPTY, Entry, NodeCache, Tree, diff
from perdure.model.digest import Digest, Kind
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN, Head
from perdure.projections import git
from perdure.projections.transcript import MessageAt, TranscriptEntry
from perdure.store.git_export.repository import LEFT, Importer, Repository, Tip
from perdure.store.thread import Thread

__all__ = [
    "GitMessage",
    "changed",
    "told",
    "GitBranch",
    "GitExport",
    "export",
    "follow",
    "KnownCommits",
    "unwritten",
]


class GitMessage(msgspec.Struct, frozen=True):
    """A message of a commit, and its number on the line."""

    entry: TranscriptEntry
    sequence: int


class _Layout(msgspec.Struct, frozen=True):
    """Which files go, and which values are to be written."""

    deleted: list[str]
    written: list[tuple[str, Entry]]


def told(space: Space, step: Step) -> list[GitMessage]:
    """What was said in a commit, with its words."""
    said = [
        (MessageAt(event, step.digest, step.commit), step.place.sequence + index)
        for index, event in enumerate(step.changeset.events, 1)
        if isinstance(event, MessageAppended)
    ]
    entries = reader.spoken(space, [each for each, _ in said])
    return [GitMessage(entry, sequence) for entry, (_, sequence) in zip(entries, said, strict=True)]


def changed(space: Space, step: Step, said: Iterable[GitMessage]) -> Iterator[bytes]:
    """The part of the stream that turns the files of the first parent into those of this commit."""
    parent = step.commit.first_parent
    yield from _state(space, space.root_at(parent), step.commit.root)
    for each in said:
        for file in git.message_files(each.entry, each.sequence):
            yield from _put(file)


def _state(space: Space, before: Digest, after: Digest) -> Iterator[bytes]:
    if before == after:
        return
    try:
        layout = _differing(space.tree(before), space.tree(after))
    except Forgotten:
        yield git.delete_file(git.STATE)
        try:
            layout = _differing(space.tree(EMPTY), space.tree(after))
        except Forgotten as gone:
            yield from _put(git.lost_state(after, gone.why))
            return
    yield from map(git.delete_file, layout.deleted)
    for path, entry in layout.written:
        yield from _value(space, path, entry)


def _differing(a: Tree, b: Tree) -> _Layout:
    """What leads from the files of one state to those of another.

    A path whose value is the same may need another file: if something came to be below it, or
    nothing is there any more.
    """
    pairs = {change.path: (change.before, change.after) for change in diff(a, b)}
    moved = [path for path, (old, new) in pairs.items() if old is None or new is None]
    above = {each for path in moved for each in _above(path)} - pairs.keys()
    before, after = a.get_many(above), b.get_many(above)
    pairs |= {path: (before.get(path), after.get(path)) for path in sorted(above)}
    deleted: list[str] = []
    written: list[tuple[str, Entry]] = []
    for path, (old, new) in pairs.items():
        was, now = _file(a, path, old), _file(b, path, new)
        if was is not None and was != now:
            deleted.append(was)
        if now is not None and new is not None and (was != now or old != new):
            written.append((now, new))
    return _Layout(deleted, written)


def _above(path: str) -> Iterator[str]:
    """The paths that have this one below them."""
    at = path.rfind("/")
    while at > 0:
        path = path[:at]
        yield path
        at = path.rfind("/")


def _file(tree: Tree, path: str, entry: Entry | None) -> str | None:
    if entry is None:
        return None
    return git.state_file(path, above=next(tree.entries(path + "/"), None) is not None)


def _value(space: Space, path: str, entry: Entry) -> Iterator[bytes]:
    """A value as a file; of one that was forgotten, that it was."""
    try:
        size, pieces = _content(space, entry)
    except Forgotten as gone:
        lost = git.lost_value(entry.value, entry.size, gone.why)
        size, pieces = len(lost), (lost,)
    yield git.put_header(path, size)
    yield from pieces
    yield b"\n"


def _content(space: Space, entry: Entry) -> tuple[int, Iterable[bytes]]:
    """The bytes of a value, in pieces, and how many there are; raises `Forgotten`."""
    indented = git.is_indented(entry.form, entry.size)
    found = space.objects((entry.value,))[0]
    if found.kind is Kind.ARTIFACT and not indented:
        for _ in artifacts.get(space, entry.value):
            pass  # is all of it there?  A file that was begun could not be taken back
        return entry.size, artifacts.get(space, entry.value)
    body = b"".join(artifacts.get(space, entry.value)) if found.kind is Kind.ARTIFACT else found.body
    content = git.indented(body) if indented else body
    return len(content), (content,)


def _put(file: git.PutFile) -> Iterator[bytes]:
    yield git.put_header(file.path, len(file.content))
    yield file.content
    yield b"\n"


_BATCH = 100


class KnownCommits:
    """The commits that git has, or will have once the stream has been read, and what git calls them."""

    def __init__(self, space: Space, tips: Mapping[str, Tip]) -> None:
        """Begin with what the repository has: `tips`, and the lines behind them."""
        self._space = space
        self._marks: dict[Digest, int] = {}
        named = {tip.commit: tip.git for tip in tips.values()}
        points = [(ancestry.point(space, commit), git_name) for commit, git_name in named.items()]
        self._tips = sorted(points, key=lambda tip: tip[0].depth, reverse=True)

    def __len__(self) -> int:
        """How many the stream has."""
        return len(self._marks)

    def add(self, commit: Digest) -> int:
        """Take up a commit that the stream has now; its mark."""
        mark = len(self._marks) + 1
        self._marks[commit] = mark
        return mark

    def mark(self, commit: Digest) -> int | None:
        """The mark of a commit; None if it is not in the stream."""
        return self._marks.get(commit)

    def name(self, commit: Digest) -> str | None:
        """What git calls a commit: its mark, or a place behind a tip; None if git does not have it."""
        mark = self._marks.get(commit)
        return f":{mark}" if mark else self._behind(commit) if self._tips else None

    def floor(self, tip: Point) -> int:
        """The depth of the last commit on the line of `tip` that git has; -1 if it has none."""
        low, high = -1, tip.depth + 1
        for other, _ in self._tips:
            if other.depth <= low:
                break  # the deepest come first: none of the others can reach further
            met = ancestry.meet(self._space, tip, other)
            low = max(low, met.depth if met else -1)
        while high - low > 1:
            middle = (low + high) // 2
            found = ancestry.ancestor(self._space, tip, middle)
            if found and found.digest in self._marks:
                low = middle
            else:
                high = middle
        return low

    def _behind(self, commit: Digest) -> str | None:
        wanted = ancestry.point(self._space, commit)
        for tip, git_name in self._tips:
            if wanted.depth <= tip.depth and ancestry.ancestor(self._space, tip, wanted.depth) == wanted:
                return f"{git_name}~{tip.depth - wanted.depth}"
        return None


def unwritten(space: Space, tip: Digest, known: KnownCommits) -> Iterator[Step]:
    """The commits behind `tip`, and itself, that git does not have, parents first.

    Whoever takes one adds it to `known` before asking for the next.
    """
    waiting = [_NewCommits(space, tip, known)]
    while waiting:
        step = waiting[-1].next
        if step is None:
            waiting.pop()
            continue
        missing = [parent for parent in step.commit.parents[1:] if known.name(parent) is None]
        if missing:
            waiting.append(_NewCommits(space, missing[0], known))
        else:
            waiting[-1].drop()
            yield step


class _NewCommits:
    """The new commits of one line, the oldest first, read a batch at a time."""

    def __init__(self, space: Space, tip: Digest, known: KnownCommits) -> None:
        self._space = space
        self._tip = ancestry.point(space, tip)
        self._depth = known.floor(self._tip) + 1  # of the next one that was not read
        self._batch: list[Step] = []  # the next last

    @property
    def next(self) -> Step | None:
        if not self._batch and self._depth <= self._tip.depth:
            top = min(self._depth + _BATCH - 1, self._tip.depth)
            skip, limit = self._tip.depth - top, top - self._depth + 1
            self._batch = list(self._space.back(self._tip.digest, skip=skip, limit=limit))
            self._depth = top + 1
            for step in self._batch:
                self._space.steps.put(step)  # each is soon asked for again, as a parent
        return self._batch[-1] if self._batch else None

    def drop(self) -> None:
        self._batch.pop()


_POLL_SECONDS = 0.2
_READS_MAX = 20
_CACHE_BYTES = 2 << 20

_Progress = Callable[[int], None]  # told how many commits were written so far


class GitBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline as a branch."""

    timeline: str
    name: str  # the timeline's, so that git takes it
    commit: Digest
    git: str  # the same commit in git
    commits: int  # on its line
    moved: bool  # by this export
    subject: str  # of the git commit: its reason, and the first words that were said in it


class GitExport(msgspec.Struct, frozen=True, kw_only=True):
    """What an export came to."""

    directory: Path
    commits: int  # that it wrote
    branches: tuple[GitBranch, ...]
    removed: tuple[str, ...]  # timelines whose branch went, since nothing is committed there any more


def export(
    thread: Thread, directory: str | os.PathLike[str], *, progress: _Progress | None = None
) -> GitExport:
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
) -> Iterator[GitExport]:
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

    def advance(self, progress: _Progress | None) -> GitExport:
        """Write what is new, and move the branches."""
        heads = {git.BRANCHES + git.branch_of(head.timeline): head for head in _heads(self._space)}
        wanted = {ref: head.commit for ref, head in heads.items()}
        moving = {ref: to for ref, to in wanted.items() if to != self._commit(ref)}
        written = self._stream(moving, progress) if moving else 0
        branches = [
            self._branch(ref, head, moved=ref in moving) for ref, head in heads.items() if head.commit
        ]
        removed = [heads[ref].timeline for ref, to in moving.items() if to is None]
        return GitExport(
            directory=self._repository.directory,
            commits=written,
            branches=tuple(branches),
            removed=tuple(removed),
        )

    def _stream(self, moving: Mapping[str, Digest | None], progress: _Progress | None) -> int:
        known = KnownCommits(self._space, self._tips)
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
        self, stream: Importer, ref: str, to: Digest, known: KnownCommits, progress: _Progress | None
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

    def _tip(self, stream: Importer, commit: Digest, known: KnownCommits) -> Tip:
        mark = known.mark(commit)
        if mark is not None:
            stream.write(git.get_mark(mark))
            return Tip(stream.answer(), commit)
        name = known.name(commit)
        assert name is not None, "what a ref was moved to, git has"
        found = self._repository.git.ask("rev-parse", "--verify", "--quiet", name)
        return Tip(found.decode().strip(), commit)

    def _branch(self, ref: str, head: Head, *, moved: bool) -> GitBranch:
        assert head.commit is not None
        step = self._space.step(head.commit)
        return GitBranch(
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


def _message(step: Step, said: Sequence[GitMessage]) -> str:
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
    return msgspec.structs.replace(space, cache=NodeCache(_CACHE_BYTES), steps=CommitCache())
