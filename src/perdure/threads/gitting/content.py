"""What one commit changes in the files: the values that differ from its first parent's, and what was said in it.

Costs what differs, not what there is.  The state of a commit is compared with its parent's; only
where a part of one of the two maps was forgotten is the whole state written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from perdure.engines.contract import Step
from perdure.errors import Forgotten
from perdure.history import artifacts, reader
from perdure.history.space import Space
from perdure.history.tree import EMPTY, Entry, Tree, diff
from perdure.model.digest import Digest, Kind
from perdure.model.event import MessageAppended
from perdure.projections import git
from perdure.projections.transcript import Said, TranscriptEntry

__all__ = ["Told", "changed", "told"]


class Told(msgspec.Struct, frozen=True):
    """A message of a commit, and its number on the line."""

    entry: TranscriptEntry
    sequence: int


class _Layout(msgspec.Struct, frozen=True):
    """Which files go, and which values are to be written."""

    deleted: list[str]
    written: list[tuple[str, Entry]]


def told(space: Space, step: Step) -> list[Told]:
    """What was said in a commit, with its words."""
    said = [
        (Said(event, step.digest, step.commit), step.place.sequence + index)
        for index, event in enumerate(step.changeset.events, 1)
        if isinstance(event, MessageAppended)
    ]
    entries = reader.spoken(space, [each for each, _ in said])
    return [Told(entry, sequence) for entry, (_, sequence) in zip(entries, said, strict=True)]


def changed(space: Space, step: Step, said: Iterable[Told]) -> Iterator[bytes]:
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
