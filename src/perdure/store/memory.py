"""An owner's memory, as a program holds it.

What is added here by hand stands by itself: `undo` takes it back, as anything else in a history.  What threads of this
owner have written is here too, for as long as the commit that wrote it can be reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from perdure.errors import Conflict, Invalid, NotFound
from perdure.history import reader, timelines
from perdure.memory import OwnerMemory, Recall, relevant, write
from perdure.memory.visibility import Judged, Visibility, resolve
from perdure.model.head import MAIN, Head
from perdure.model.memory import Item, ItemKind, Remembered, Trust, Version, check_item, check_item_id, remade
from perdure.store.change import check_op_id
from perdure.store.plumbing import revisions
from perdure.store.plumbing.loop_guard import blocking
from perdure.store.plumbing.revisions import LogEntry, Moment

__all__ = ["Memory"]

_OTHERS = ("model", "tool", "import")  # whose words are taken as they come, half a character included


@blocking
class Memory:
    """What is remembered for one owner, across all threads and agents of that owner."""

    def __init__(self, recollection: OwnerMemory) -> None:
        """Hold a memory; `store.memory` is the way to get one.  Reading it begins nothing."""
        self._held = recollection
        self.owner = recollection.owner

    def __repr__(self) -> str:
        """Whose it is."""
        return f"<Memory of '{self.owner}'>"

    @property
    def head(self) -> Head:
        """Where the memory's own history stands."""
        return reader.head_of(self._held.space, MAIN)

    def add(
        self,
        text: str,
        *,
        kind: ItemKind = "semantic",
        scope: str = "user",
        id: str | None = None,
        trust: Trust = "user",
        expires: datetime | timedelta | None = None,
        op_id: str | None = None,
    ) -> Remembered:
        """Remember something; under an `id` that there is, in place of what it was.

        `trust` is who said it.  `expires` is when it ends, or in how long; None: it is kept until it is
        forgotten.  With `op_id` it can be repeated safely.  Raises `Invalid`, having written nothing, for a
        text with a lone surrogate; in words of a `model`, a `tool` or an `import` U+FFFD takes its place.
        """
        space = self._held.space
        now = space.clock()
        wanted = Item(
            text=remade(text) if trust in _OTHERS else text,
            kind=kind,
            scope=scope,
            trust=trust,
            at=now,
            expires_at=write.until(expires, now),
        )
        named = space.ids() if id is None else check_item_id(id)
        version = Version(item=check_item(wanted))
        if op_id is not None and id is None:
            raise Invalid(
                "what may be repeated needs an id of its own as well as op_id; nothing was remembered."
            )
        return self._written(named, version, "memory.add", op_id)

    def search(
        self, query: str, *, limit: int = 8, kind: ItemKind | None = None, scope: str | None = None
    ) -> Recall:
        """What is remembered about `query`, the best first: each with its score and the legs that found it."""
        return relevant(self._held, query, limit=limit, kind=kind, scope=scope)

    def get(self, id: str) -> Remembered:
        """One item; raises `NotFound` if there is none, it was withdrawn or its time is over."""
        judge = self._judge()
        return judge.remembered(self._standing(judge, id))

    def items(self, *, kind: ItemKind | None = None, scope: str | None = None) -> Iterator[Remembered]:
        """All that is remembered, by id, read as it is asked for."""
        judge = self._judge()
        for found in judge.items():
            item = found.version.item
            if item is not None and kind in (None, item.kind) and scope in (None, item.scope):
                yield judge.remembered(found)

    ls = items

    def forget(self, id: str, *, op_id: str | None = None) -> Head:
        """Let there be no such item, whoever wrote it; raises `NotFound` if there is none.  `undo` takes it back."""
        space = self._held.space
        if op_id is None or space.engine.recorded(space.name, check_op_id(op_id)) is None:
            self._standing(self._judge(), id)
        return write.write(space, id, None, reason="memory.forget", op_id=op_id).head

    def keep(self, id: str, *, op_id: str | None = None) -> Remembered:
        """Let an item that a thread wrote stand by itself, whatever becomes of the thread."""
        found = self._standing(self._judge(), id).version
        version = Version(item=found.item, origin=found.source or found.origin)
        return self._written(id, version, "memory.keep", op_id)

    def resolve(self, reference: str) -> Remembered:
        """What `mem://<scope>/<owner>/<id>@<commit>` names; raises `NotFound`, also for another owner's."""
        return resolve(self._held, reference)

    def log(self, *, limit: int | None = None) -> list[LogEntry]:
        """The commits of this memory, newest first; with a `limit` the last so many."""
        return [LogEntry.of(step) for step in reader.log(self._held.space, self.head.commit, limit=limit)]

    def at(self, moment: Moment) -> list[Remembered]:
        """What was remembered at a moment of its own history, as far as it can be reached now."""
        commit = revisions.resolve(self._held.space, self.head, moment)
        if commit is None:
            return []
        judge = Visibility(self._held, None, None, commit=commit)
        return [judge.remembered(found) for found in judge.items()]

    def undo(self, turns: int = 1, *, op_id: str | None = None) -> Head:
        """Take back the last change of this memory, by hand or by a thread; the head afterwards."""
        return timelines.undo(self._held.space, MAIN, turns=turns, op_id=op_id and check_op_id(op_id))

    def redo(self, *, op_id: str | None = None) -> Head:
        """Take back the last undo; raises `NotFound` if there is none, or something was written since."""
        return timelines.redo(self._held.space, MAIN, op_id=op_id and check_op_id(op_id))

    def _judge(self) -> Visibility:
        return Visibility(self._held, None, None)

    def _standing(self, judge: Visibility, id: str) -> Judged:
        found = judge.item(check_item_id(id))
        if found is None or not found.counts:
            raise NotFound(
                f"'{self.owner}' has no item '{id}' in memory, or it was withdrawn; nothing was done.",
                code="item_not_found",
                advice="See what there is with items().",
                owner=self.owner,
                item=id,
            )
        return found

    def _written(self, id: str, version: Version, reason: str, op_id: str | None) -> Remembered:
        named = None if op_id is None else check_op_id(op_id)
        done = write.write(self._held.space, id, version, reason=reason, op_id=named)
        judge = Visibility(self._held, None, None, commit=done.head.commit)
        found = judge.item(id)
        if found is None:
            raise Conflict(f"item '{id}' was written by that op_id before; nothing was done.")
        return judge.remembered(found)
