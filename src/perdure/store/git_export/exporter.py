"""Brings a git repository to the state of a thread.

Each export reads the heads as of one moment, streams the commits that git lacks, and moves the branches at the end of
the stream: all of it or nothing.  A branch follows its timeline's head, also back; commits that it leaves stay under
`refs/perdure/left/`.

A commit writes the files of the values that differ from its first parent, and of its messages, so it costs what
differs and not what there is.  Only if a part of one of the two maps was forgotten, the whole state is written again.

Parents are written before children.  A timeline is written from its oldest new commit on.  If a commit has a second
parent that git lacks, the timeline of that parent is written first; it needs nothing of the first timeline that is not
written yet, because what it needs is behind the waiting commit.  If git has a commit it has everything behind it, so
the first new commit of a timeline is found by binary search, without walking.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from perdure.engines.contract import Step
from perdure.errors import Forgotten
from perdure.history import ancestry, artifacts, reader, timelines
from perdure.history.ancestry import Point
from perdure.history.changes import values
from perdure.history.space import CommitCache, Space
from perdure.history.tree import EMPTY, Entry, NodeCache, Tree, diff
from perdure.model.digest import Digest, Kind
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN, Head
from perdure.projections import git
from perdure.projections.transcript import MessageAt, TranscriptEntry
from perdure.store.git_export.repository import LEFT, Importer, Repository, Tip
from perdure.store.thread import Thread

__all__ = ["GitBranch", "GitExport", "export", "follow"]


class GitMessage(msgspec.Struct, frozen=True):
    """A message of a commit, and its number on the timeline."""

    entry: TranscriptEntry
    sequence: int


class _Layout(msgspec.Struct, frozen=True):
    """The files to delete, and the values to write."""

    deleted: list[str]
    written: list[tuple[str, Entry]]


def messages_of(space: Space, step: Step) -> list[GitMessage]:
    """Read the messages of a commit, with their texts."""
    said = [
        (MessageAt(event, step.digest, step.commit), step.place.sequence + index)
        for index, event in enumerate(step.changeset.events, 1)
        if isinstance(event, MessageAppended)
    ]
    entries = reader.spoken(space, [each for each, _ in said])
    return [GitMessage(entry, sequence) for entry, (_, sequence) in zip(entries, said, strict=True)]


def changed(space: Space, step: Step, said: Iterable[GitMessage]) -> Iterator[bytes]:
    """Yield the part of the stream that turns the files of the first parent into those of this commit."""
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
    """Compute which files to delete and write to get from one state to another.

    A path with the same value may need another file name: if a path below it was added, or the last one removed.
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
    """Yield the paths above this one."""
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
    """Yield a value as a file; a forgotten value becomes a file that says so."""
    try:
        size, pieces = _content(space, entry)
    except Forgotten as gone:
        lost = git.lost_value(entry.value, entry.size, gone.why)
        size, pieces = len(lost), (lost,)
    yield git.put_header(path, size)
    yield from pieces
    yield b"\n"


def _content(space: Space, entry: Entry) -> tuple[int, Iterable[bytes]]:
    """Return the size of a value and its bytes in pieces; raises `Forgotten`."""
    indented = git.is_indented(entry.form, entry.size)
    found = space.objects((entry.value,))[0]
    if found.kind is Kind.ARTIFACT and not indented:
        for _ in artifacts.get(space, entry.value):
            pass  # read it all first, because a file that is begun in the stream cannot be taken back
        return entry.size, artifacts.get(space, entry.value)
    body = values.read_bytes(space, entry.value)
    content = git.indented(body) if indented else body
    return len(content), (content,)


def _put(file: git.PutFile) -> Iterator[bytes]:
    yield git.put_header(file.path, len(file.content))
    yield file.content
    yield b"\n"


_BATCH = 100


class KnownCommits:
    """The commits that git has, or will have after the stream, with their names in git."""

    def __init__(self, space: Space, tips: Mapping[str, Tip]) -> None:
        """Begin with the commits of the repository: `tips`, and everything behind them."""
        self._space = space
        self._marks: dict[Digest, int] = {}
        named = {tip.commit: tip.git for tip in tips.values()}
        points = [(ancestry.point(space, commit), git_name) for commit, git_name in named.items()]
        self._tips = sorted(points, key=lambda tip: tip[0].depth, reverse=True)

    def __len__(self) -> int:
        """The number of commits in the stream."""
        return len(self._marks)

    def add(self, commit: Digest) -> int:
        """Add a commit that the stream has now, and return its mark."""
        mark = len(self._marks) + 1
        self._marks[commit] = mark
        return mark

    def mark(self, commit: Digest) -> int | None:
        """Return the mark of a commit; None if it is not in the stream."""
        return self._marks.get(commit)

    def name(self, commit: Digest) -> str | None:
        """Return git's name of a commit: its mark, or a place behind a tip; None if git does not have it."""
        mark = self._marks.get(commit)
        return f":{mark}" if mark else self._behind(commit) if self._tips else None

    def floor(self, tip: Point) -> int:
        """Return the depth of the last commit behind `tip` that git has; -1 if it has none."""
        low, high = -1, tip.depth + 1
        for other, _ in self._tips:
            if other.depth <= low:
                break  # the deepest tips come first, so no other tip can share more
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
    """Yield the commits behind `tip`, and `tip` itself, that git does not have, parents first.

    The caller adds each commit to `known` before it asks for the next.
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
    """The new commits of one timeline, the oldest first, read a batch at a time."""

    def __init__(self, space: Space, tip: Digest, known: KnownCommits) -> None:
        self._space = space
        self._tip = ancestry.point(space, tip)
        self._depth = known.floor(self._tip) + 1  # of the next commit to read
        self._batch: list[Step] = []  # in reverse: the next commit is the last

    @property
    def next(self) -> Step | None:
        if not self._batch and self._depth <= self._tip.depth:
            top = min(self._depth + _BATCH - 1, self._tip.depth)
            skip, limit = self._tip.depth - top, top - self._depth + 1
            self._batch = list(self._space.back(self._tip.digest, skip=skip, limit=limit))
            self._depth = top + 1
            for step in self._batch:
                self._space.steps.put(step)  # each is soon read again, as a parent
        return self._batch[-1] if self._batch else None

    def drop(self) -> None:
        self._batch.pop()


_WAIT_SECONDS = 60.0
_READS_MAX = 20
_CACHE_BYTES = 2 << 20

_Progress = Callable[[int], None]  # called with the number of commits written so far


class GitBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline as a branch."""

    timeline: str
    name: str  # the timeline's name, in a form that git accepts
    commit: Digest
    git: str  # the same commit in git
    commits: int  # the number of commits on the timeline
    moved: bool  # True: this export moved it
    subject: str  # of the git commit: its reason, and the first words of its first message


class GitExport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    directory: Path
    commits: int  # the number of commits that it wrote
    branches: tuple[GitBranch, ...]
    removed: tuple[str, ...]  # timelines whose branch was deleted, because they have no commit any more


def export(
    thread: Thread, directory: str | os.PathLike[str], *, progress: _Progress | None = None
) -> GitExport:
    """Export the thread to the git repository in `directory`, which is created if it is missing.

    Raises `Conflict`, having touched nothing, if the directory has anything but an export of this
    thread; `Unsupported` without git; `Unavailable`, with no branch moved, if git fails.
    """
    space = _space(thread)
    repository = Repository(directory, thread.id, space.name)
    with repository.held():
        return _Export(space, repository).advance(progress)


def follow(
    thread: Thread, directory: str | os.PathLike[str], *, progress: _Progress | None = None
) -> Iterator[GitExport]:
    """Export the thread, and again whenever it has changed, until the caller stops reading; yield each export."""
    space = _space(thread)
    repository = Repository(directory, thread.id, space.name)
    with repository.held():
        exporting, seen = _Export(space, repository), -1
        while True:
            standing = space.engine.wait({space.name: seen}, _WAIT_SECONDS).get(space.name)
            if standing is not None:
                written = exporting.advance(progress)
                if seen < 0 or written.removed or any(branch.moved for branch in written.branches):
                    yield written
                seen = standing


class _Export:
    """A locked repository, and its thread."""

    def __init__(self, space: Space, repository: Repository) -> None:
        self._space, self._repository = space, repository
        self._tips = repository.tips(self._has)

    def advance(self, progress: _Progress | None) -> GitExport:
        """Write the new commits, and move the branches."""
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
        """Write the commits behind `to`, and `to` itself, that git does not have."""
        for step in unwritten(self._space, to, known):
            messages = messages_of(self._space, step)
            author, committer = git.author_of(step.commit)
            parents = [known.name(parent) or "" for parent in step.commit.parents]
            header = git.begin_commit(
                ref,
                known.add(step.digest),
                author=author,
                committer=committer,
                message=_message(step, messages),
                parents=parents,
            )
            stream.write(header)
            for part in changed(self._space, step, messages):
                stream.write(part)
            stream.write(git.end_commit())
            if progress is not None:
                progress(len(known))

    def _left(self, moving: Mapping[str, Digest | None]) -> dict[str, Digest]:
        """Return refs for the commits that branches leave behind: those that are not behind the new commit."""
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
        assert name is not None, "git has the commit that a ref was moved to"
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
            subject=_message(step, messages_of(self._space, step)).partition("\n")[0],
        )

    def _commit(self, ref: str) -> Digest | None:
        tip = self._tips.get(ref)
        return tip.commit if tip else None

    def _has(self, commit: Digest) -> bool:
        return self._space.find(commit) is not None


def _message(step: Step, said: Sequence[GitMessage]) -> str:
    return git.message_of(step.digest, step.commit, step.changeset, [each.entry for each in said])


def _heads(space: Space) -> list[Head]:
    """Read the heads of all timelines as of one moment: a promote moves two of them at once."""
    heads: list[Head] = []
    for _ in range(_READS_MAX):
        standing = space.engine.standing(space.name)
        heads = [hold.head for hold in timelines.timelines(space)]
        if space.engine.standing(space.name) == standing:
            break
    return heads


def _space(thread: Thread) -> Space:
    """Return the thread's space with a small cache of its own, because an export reads each commit once.

    Raises `NotFound` if the thread was removed.
    """
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    reader.head_of(space, MAIN)
    return msgspec.structs.replace(space, cache=NodeCache(_CACHE_BYTES), steps=CommitCache())
