"""The history of an owner's memory: what each commit did to which item, who did it, and the text that it left.

Commands, the server and programs read this one entry, so that they say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from perdure.engines.contract import Step
from perdure.errors import Forgotten, NotFound
from perdure.history import reader
from perdure.history.space import STORE, applied_id
from perdure.memory import OwnerMemory
from perdure.memory.index import read_versions
from perdure.memory.visibility import item_at
from perdure.model.commit import Act, MoveRecord
from perdure.model.digest import Digest
from perdure.model.memory import MemoryItem, item_prefix, items_of
from perdure.model.patch import Clear, Put
from perdure.store.plumbing import directory
from perdure.store.plumbing.revisions import LogEntry

__all__ = [
    "ERASED",
    "Did",
    "MemoryLogEntry",
    "MemoryMove",
    "entries_of",
    "entry_of",
    "is_withdrawn",
    "move_of",
]

Did: TypeAlias = Literal[
    "added", "edited", "confirmed", "kept", "pinned", "unpinned", "restored", "forgotten", "erased"
]
"""What a change did to an item; confirmed: it says what it said, from another source too, or a stronger one."""

ERASED = "memory.erase"
_BY_REASON: dict[str, Did] = {
    "memory.edit": "edited",
    "memory.keep": "kept",
    "memory.pin": "pinned",
    "memory.unpin": "unpinned",
    "memory.restore": "restored",
    ERASED: "erased",
}
_DIRECT = ("memory.add", "memory.forget", *_BY_REASON)
_SHOWN = 60  # letters of a text in the repr of an entry
_Left: TypeAlias = "MemoryItem | Literal['gone'] | None"
"""An item as a commit left it; None: there was none, gone: it was erased, or a policy let it go."""


class MemoryLogEntry(LogEntry, frozen=True, kw_only=True):
    """What one commit of a memory's history did to one item; a commit that changed several items has an entry for each.

    It is a `LogEntry` too, with the digest of the commit, `at`, reason and author.
    """

    did: Did | None  # None: it wrote no item
    item: str | None  # its id
    items: tuple[
        str, ...
    ]  # the ids of all that the commit wrote, forgot or erased, in the order of the writes
    text: str | None  # that it left, or forgot; None: it is erased, or a policy let it go
    thread: str | None  # whose run wrote it; None: it was written directly
    by: str | None  # who wrote it directly, where that was said
    withdrawn: bool  # it counts for nothing now: the turn that made it was undone, or its thread is removed

    def __repr__(self) -> str:
        """Say in one line what was done to which item, and who did it."""
        text = "" if self.text is None else f", {self.text[:_SHOWN]!r}"
        who = f" by thread {self.thread}" if self.thread else f" by {self.by}" if self.by else ""
        withdrawn = ", withdrawn" if self.withdrawn else ""
        return f"<commit {self.digest[:12]}: {self.did or self.reason} {self.item}{text}{who}{withdrawn}>"


class MemoryMove(MoveRecord, frozen=True, kw_only=True, gc=False):
    """One recorded move of a memory's head: a change, or an undo or a redo of changes.

    It also has the fields of a recorded move: `version`, `act`, `from_`, `to`, `at` (when it was made) and `author`.
    """

    changes: int  # that it made, took back or put back
    items: tuple[str, ...]  # the ids of all that those changes were about
    change: MemoryLogEntry | None  # the newest of them, with its first item; None: there are none

    def __repr__(self) -> str:
        """Say in one line what was done to which changes, and who did it."""
        who = f" by {self.author}" if self.author else ""
        return f"<move {self.version}: {self.act} of {self.changes}{who}, {self.change!r}>"


def entries_of(memory: OwnerMemory, step: Step) -> Iterator[MemoryLogEntry]:
    """Yield what a commit of a memory did to each item, in the order of the writes; one that wrote none has one entry."""
    for item in items_of(step.changeset.patch) or [None]:
        yield entry_of(memory, step, item)


def entry_of(memory: OwnerMemory, step: Step, item: str | None = None) -> MemoryLogEntry:
    """Return a commit of a memory with what it did to an item; None: to the first that it wrote."""
    entry = LogEntry.of(step)
    items = tuple(items_of(entry.patch))
    subject = item or next(iter(items), None)
    now = _left(memory, subject, step.digest)
    before = _left(memory, subject, next(iter(entry.parents), None))
    text = next((each.text for each in (now, before) if isinstance(each, MemoryItem)), None)
    is_direct = entry.reason in _DIRECT  # a commit that came from a thread has the thread as its author
    return MemoryLogEntry(
        **{name: getattr(entry, name) for name in LogEntry.__struct_fields__},
        did=None if subject is None else _did(entry, subject, now, before),
        item=subject,
        items=items,
        text=text,
        thread=None if is_direct else entry.author,
        by=entry.author if is_direct else None,
        withdrawn=not is_direct and subject is not None and is_withdrawn(memory, subject, step),
    )


def move_of(memory: OwnerMemory, move: MoveRecord) -> MemoryMove:
    """Return a move of a memory with the newest change that it made, took back or put back."""
    newer, older = (move.from_, move.to) if move.act is Act.UNDO else (move.to, move.from_)
    after, before = (None if each is None else memory.space.step(each) for each in (newer, older))
    change = None if after is None else entry_of(memory, after)
    moved = {name: getattr(move, name) for name in MoveRecord.__struct_fields__}
    if move.act is Act.COMMIT and after is not None:
        moved |= {"at": after.commit.at, "author": after.commit.author}
    depths = [-1 if each is None else each.commit.depth for each in (after, before)]
    changes = depths[0] - depths[1]
    steps = () if newer is None else reader.steps(memory.space, newer, limit=changes)
    items = dict.fromkeys(item for step in steps for item in items_of(step.changeset.patch))
    return MemoryMove(**moved, changes=changes, items=tuple(items), change=change)


def is_withdrawn(memory: OwnerMemory, item: str, step: Step) -> bool:
    """True if a change of an item counts for nothing now: a turn of a thread made it, and no live head reaches it.

    So it is after an undo of that turn, until a redo, and for good once the thread is removed.
    """
    ops = step.changeset.patch.ops
    written = [op.value for op in ops if isinstance(op, Put) and op.path.startswith(item_prefix(item))]
    sources = [each.source for each in read_versions(memory.space, written)]
    if any(source is not None and not memory.reach.holds(source) for source in sources):
        return True
    is_erased = None in memory.space.objects_there(written)
    return is_erased and step.commit.reason not in _DIRECT and not _is_reached(memory, step)


def _is_reached(memory: OwnerMemory, step: Step) -> bool:
    """True if a live head of its thread has the commit that wrote a change: for one whose source was erased with its words."""
    engine, thread = memory.space.engine, step.commit.author
    if thread is None:
        return True
    try:
        record = directory.find(memory.reach.threads(STORE, STORE), thread)
        for wrote in memory.reach.commits_of(record.space, thread, step.commit.run):
            recorded = engine.recorded(memory.space.name, applied_id(wrote))
            if recorded is not None and recorded.receipt.heads[0].commit == step.digest:
                return True
    except NotFound:  # it was removed
        return False
    return False


def _did(entry: LogEntry, item: str, now: _Left, before: _Left) -> Did:
    """Return what a change did to an item, by the item after and before it."""
    is_put = any(isinstance(op, Put) and op.path.startswith(item_prefix(item)) for op in entry.patch.ops)
    if entry.reason != ERASED and (not is_put or now is None):
        return "forgotten"
    if entry.reason in _BY_REASON:
        return _BY_REASON[entry.reason]
    if isinstance(now, MemoryItem) and isinstance(before, MemoryItem):
        if now.says_same(before) and now.pinned is not before.pinned:
            return "pinned" if now.pinned else "unpinned"
        return "confirmed" if now.says_same(before) and now.is_as_trusted(before) else "edited"
    is_cleared = any(isinstance(op, Clear) and op.prefix == item_prefix(item) for op in entry.patch.ops)
    return "edited" if isinstance(before, MemoryItem) or (before == "gone" and is_cleared) else "added"


def _left(memory: OwnerMemory, item: str | None, commit: Digest | None) -> _Left:
    if item is None or commit is None:
        return None
    try:
        return item_at(memory, item, commit)
    except Forgotten:
        return "gone"
    except NotFound:
        return None
