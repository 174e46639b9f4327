"""The handle on an owner's memory.

An item that is added here belongs to no thread: `undo` takes it back like any other commit.  Items that threads of
this owner have written are here too, as long as the commit that wrote them can be reached.

`undo` and `redo` move the whole memory, a change at a time; `restore` puts one item back by a change of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from perdure.engines import loops
from perdure.engines.contract import Step
from perdure.errors import Conflict, Forgotten, Invalid, NotFound
from perdure.history import ancestry, gc_generation, reader, timelines
from perdure.history.revisions import Exactly
from perdure.history.space import Space
from perdure.history.writer import CommitOutcome
from perdure.memory import OwnerMemory, Recall, relevant, write
from perdure.memory.visibility import Judged, Visibility, as_of, check_not_expired, resolve
from perdure.memory.write import End, given_fields
from perdure.model import names
from perdure.model.digest import Digest
from perdure.model.head import MAIN, Head
from perdure.model.memory import (
    ItemKind,
    MemoryItem,
    Remembered,
    Trust,
    Version,
    check_item,
    check_item_id,
    item_prefix,
    items_of,
    parse_version_path,
    remade,
)
from perdure.model.names import made_at_of
from perdure.store.plumbing import revisions
from perdure.store.plumbing.handles import blocking, deferred
from perdure.store.plumbing.memory_log import (
    ERASED,
    MemoryLogEntry,
    MemoryMove,
    entries_of,
    entry_of,
    is_withdrawn,
    move_of,
)
from perdure.store.plumbing.revisions import Moment, Wanted

if TYPE_CHECKING:
    from perdure.store.upkeep import retention
    from perdure.store.upkeep.retention import Erasure
else:
    retention = deferred("perdure.store.upkeep.retention")

__all__ = ["Memory"]

_BEGAN = datetime(1970, 1, 1, tzinfo=UTC)
_CHANGES_READ = 16  # of an item at first, for the value that it had before
_LOOKED_BACK_MAX = 1_000  # commits, for an earlier life of an item
_CLOCKS_DIFFER_US = 3_600_000_000  # how far, at most, the clocks of two writers are apart
_NAMED_MAX = 4  # items, in an error
_UNTRUSTED = ("model", "tool", "import")  # their texts are repaired where they are not valid Unicode


@blocking
class Memory:
    """The memory of one owner, across all threads and agents of that owner."""

    def __init__(self, memory: OwnerMemory, deliver: Callable[[], None]) -> None:
        """Wrap a memory; programs get one from `store.memory`.  Reading it writes nothing.

        `deliver` writes what threads have committed for any memory and an ended process has not delivered.
        """
        self._memory, self._deliver = memory, deliver
        self.owner = memory.owner

    def __repr__(self) -> str:
        """Name the owner."""
        return f"<Memory of '{self.owner}'>"

    @property
    def head(self) -> Head:
        """The head of the memory's own history."""
        return reader.head_of(self._memory.space, MAIN)

    def add(
        self,
        text: str,
        *,
        kind: ItemKind | UnsetType = UNSET,
        scope: str | UnsetType = UNSET,
        id: str | None = None,
        trust: Trust = "user",
        expires: End = UNSET,
        pinned: bool | UnsetType = UNSET,
        op_id: str | None = None,
        author: str | None = None,
    ) -> Remembered:
        """Add an item, semantic and of scope `user` unless said otherwise, which stays until `forget`.

        Under the `id` of an item that is there, `text` takes the place of that item's words: its kind, scope, end and pin
        stay unless they are given, and `expires=None` removes the end.  `edit` does so too, and raises where there is no
        item.  A `pinned` item is shown to every run of this owner, whatever the input says.

        Without an `id`, an item that says the same is returned instead: the same text but for case and white space, of the
        same kind and scope, neither of which expires, from a source that is as strong or stronger (system, user, model,
        tool, import).  It no longer depends on a thread that wrote it.  If its source is weaker, it gets these words
        and their source, under its id: what a model noted is a user's once the user says it.

        `trust` is the source of this text, so it is never taken from an item that was there.  `expires` is the time when
        the item ends, or its lifetime.  `author` is recorded as the person or program that did this.  With `op_id` the
        call can be repeated safely, also without an `id`.  Raises `Invalid`, having written nothing, for a text with a
        lone surrogate; in texts of a `model`, a `tool` or an `import` U+FFFD replaces it.
        """
        space = self._memory.space
        now, said = space.clock(), remade(text) if trust in _UNTRUSTED else text
        fields = given_fields(
            now, text=said, trust=trust, kind=kind, scope=scope, expires=expires, pinned=pinned
        )
        wanted = check_item(MemoryItem(at=now, **fields))
        if op_id is not None and id is None:
            id = self._written_by(op_id)
        if id is not None:
            return self._put(check_item_id(id), wanted, fields, op_id, author)
        judge = self._judge()
        equal = judge.equal_to(wanted)
        there = None if equal is None else equal.version.item
        if equal is None or there is None or not there.is_as_trusted(wanted):
            return self._put(equal.id if equal else space.ids(), wanted, fields, op_id, author)
        if there.pinned is not fields.get("pinned", there.pinned):
            return self._with_pin(equal.id, wanted.pinned, op_id=None, author=author)
        if judge.is_kept(equal.id, wanted):
            return judge.remembered(equal)
        if there.trust == trust:
            return self.keep(equal.id, author=author)
        # The words stay if that thread takes them back, but then as those of this weaker source.
        beside = Version(item=msgspec.structs.replace(wanted, pinned=there.pinned))
        return self._written(equal.id, beside, "memory.add", op_id, author, beside=True)

    def edit(
        self,
        id: str,
        text: str | None = None,
        *,
        kind: ItemKind | UnsetType = UNSET,
        scope: str | UnsetType = UNSET,
        trust: Trust | UnsetType = UNSET,
        expires: End = UNSET,
        pinned: bool | UnsetType = UNSET,
        op_id: str | None = None,
        author: str | None = None,
    ) -> Remembered:
        """Change an item: what is not given stays as it is, the words too if `text` is None; `expires=None` removes the end.

        `trust` is the source of the new words, a user unless another is given; without a `text` it stays.  The item no
        longer depends on a thread that wrote it.  If nothing would change, the item is returned and nothing is written.
        Raises `NotFound`, having written nothing, if there is no such item now: it was forgotten or withdrawn, or it
        expired.
        """
        space = self._memory.space
        said: Trust | UnsetType = "user" if text is not None and isinstance(trust, UnsetType) else trust
        if text is not None and said in _UNTRUSTED:
            text = remade(text)
        now = space.clock()
        fields = given_fields(
            now, text=text, trust=said, kind=kind, scope=scope, expires=expires, pinned=pinned
        )

        def edited(commit: Digest | None) -> Version:
            found = self._standing(
                Visibility(self._memory, None, None, commit=commit), check_item_id(id)
            ).version
            assert found.item is not None, "an item that counts has words"
            item = check_item(msgspec.structs.replace(found.item, at=now, **fields))
            return Version(item=item, origin=None if text is not None else found.source or found.origin)

        if op_id is None or space.engine.recorded(space.name, names.check_op_id(op_id)) is None:
            there, item = self.get(id), edited(self.head.commit).item
            if item is not None and _is_equal(item, there):
                return there
        meant = [str(each) for each in (text, kind, scope, trust, expires, pinned)]
        done = write.write(
            space, id, edited, reason="memory.edit", op_id=op_id, author=_checked(author), meant=meant
        )
        return self._as_written(id, done)

    def search(
        self,
        query: str,
        *,
        limit: int = 8,
        kind: ItemKind | None = None,
        scope: str | None = None,
        similarity_min: float | None = None,
    ) -> Recall:
        """Find the items that match `query`, the best first, each with its score and the searches that found it.

        `legs` says how it was searched: by words alone unless the store was opened with `embed`.
        With `similarity_min` nothing of less similarity is found, by its words either, unless it or the query has no
        vector.  None: by its words an item is found whatever its similarity, by meaning from 0.22 on with "minilm" and
        from -1 on with a function.
        """
        found = relevant(
            self._memory, query, limit=limit, kind=kind, scope=scope, similarity_min=similarity_min
        )
        logging = sys.modules.get("logging")  # a program that has not loaded it has no handler
        if logging is not None:
            how = "words and meaning" if "vector" in found.legs else "words alone"
            logging.getLogger("perdure.memory").info("searched a memory by %s: %d found", how, len(found))
        return found

    def get(self, id: str, *, at: Wanted = UNSET) -> Remembered:
        """Read one item, as a moment of this memory's history left it, unset is now.

        Raises `NotFound` if there is none; now also if it was withdrawn or has expired (`memory_item_expired`).
        """
        if at is UNSET:
            judge = self._judge()
            return judge.remembered(self._standing(judge, id))
        found = self._at(check_item_id(id), at)
        if found is None:
            raise NotFound(
                f"'{self.owner}' had no item '{id}' in memory at that moment; nothing was done.",
                code="memory_item_not_found",
                advice="See what there was with at().",
                item=id,
                owner=self.owner,
            )
        return found

    def items(
        self, *, kind: ItemKind | None = None, scope: str | None = None, expired: bool = False
    ) -> Iterator[Remembered]:
        """Yield all items, sorted by id; with `expired` those that are not there because they expired."""
        yield from self._judge().listed(kind=kind, scope=scope, expired=expired)

    ls = items

    def forget(self, id: str, *, op_id: str | None = None, author: str | None = None) -> Head:
        """Remove an item, also one that a thread wrote; raises `NotFound` if there is none.  `undo` takes it back."""
        space = self._memory.space
        if op_id is None or space.engine.recorded(space.name, names.check_op_id(op_id)) is None:
            self._standing(self._judge(), id)
        return write.write(space, id, None, reason="memory.forget", op_id=op_id, author=_checked(author)).head

    def erase(self, id: str, *, author: str | None = None) -> Erasure:
        """Remove an item with all that the memory's history holds of it, also one that was forgotten before.

        Other items stay at every moment; moments that had this one are read without it.  The result
        names the threads of this owner that hold its words too, because they wrote it or a model was shown it.  Raises
        `NotFound` if there never was such an item.  No `undo` takes it back.
        """
        check_item_id(id)
        self._deliver()  # else it would come back with what is delivered later
        erased = retention.erase(self._memory, id, author=_checked(author))
        if erased is None:
            raise self._no_item(id)
        return erased

    def forget_all(self, *, op_id: str | None = None, author: str | None = None) -> Head:
        """Remove every item that is there, also those that threads wrote, by one change, which `undo` takes back.

        Where there is none, nothing is written.  Their words stay in the history: `erase_all` removes these too.
        """

        def there(commit: Digest | None) -> list[str]:
            return [found.id for found in Visibility(self._memory, None, None, commit=commit).items()]

        return write.remove(
            self._memory.space,
            there,
            reason="memory.forget",
            op_id=None if op_id is None else names.check_op_id(op_id),
            author=_checked(author),
        )

    def erase_all(self, *, author: str | None = None) -> Erasure:
        """Remove every item there ever was with all that the memory's history holds of it, as `erase` does with one.

        Forgotten, undone and expired items go too.  The result has their ids, and names the threads of this owner that
        hold their words, which a later erasure does not know any more.  Raises `NotFound` if nothing was ever remembered for this owner.  No `undo` takes it back.
        """
        self._deliver()
        erased = retention.erase(self._memory, None, author=_checked(author))
        if erased is None:
            raise NotFound(
                f"nothing was ever remembered for '{self.owner}'; nothing was erased.",
                code="memory_owner_not_found",
                advice="Check the name of the owner.",
                owner=self.owner,
            )
        return erased

    def keep(self, id: str, *, op_id: str | None = None, author: str | None = None) -> Remembered:
        """Make an item that a thread wrote independent of that thread, so that an undo there does not remove it."""
        found = self._standing(self._judge(), id).version
        version = Version(item=found.item, origin=found.source or found.origin)
        return self._written(id, version, "memory.keep", op_id, author)

    def pin(self, id: str, *, op_id: str | None = None, author: str | None = None) -> Remembered:
        """Show an item to every run of this owner from now on, whatever the input says, and return it.

        It no longer depends on the thread that wrote it, as after `keep`.  An item that is pinned already stays as it
        is.  Raises `NotFound` if there is none.
        """
        return self._with_pin(id, True, op_id=op_id, author=author)

    def unpin(self, id: str, *, op_id: str | None = None, author: str | None = None) -> Remembered:
        """Show an item only to runs whose input it matches from now on, as one that was never pinned; see `pin`."""
        return self._with_pin(id, False, op_id=op_id, author=author)

    def restore(
        self,
        id: str,
        *,
        at: Wanted = UNSET,
        expires: End = UNSET,
        op_id: str | None = None,
        author: str | None = None,
    ) -> Remembered:
        """Put one item back as it was before its last change, or as a moment `at` left it; other items stay as they are.

        A forgotten item comes back, an edited one gets its former text, kind, scope, trust and pin.  It is a change of this
        memory, which `undo` takes back.  The item no longer depends on the thread that wrote it, as after `keep`.  An
        item that is as it was at that moment is returned, and nothing is written.  Without `at`, changes of turns that
        were undone are passed over; an item of which there are no others comes back as the last of them left it.

        The item ends when it did then; `expires` sets another end, None removes it.  Raises `Invalid` if its end has
        passed, `NotFound` if it has no such value, and `Forgotten` if its words were erased.
        """
        check_item_id(id)
        moment = "the last change" if isinstance(at, UnsetType) else revisions.name_of(at)
        meant = [moment.commit if isinstance(moment, Exactly) else moment, str(expires)]
        how = partial(
            write.write, id=id, reason="memory.restore", op_id=op_id, author=_checked(author), meant=meant
        )

        def put_back(space: Space) -> Remembered:
            if op_id is not None and space.engine.recorded(space.name, names.check_op_id(op_id)) is not None:
                return self._as_written(id, how(space, version=None))
            judge = self._judge()
            found = judge.item(id)
            now = judge.remembered(found) if found is not None and found.counts else None
            then = self._value_to_restore(id, now, at)
            item = _with_end(then, expires, space.clock())
            if now is not None and _is_equal(item, now):
                return now
            return self._as_written(id, how(space, version=Version(item=item, origin=then.source)))

        # Fenced: an erasure between the read and the write would else be taken back by it.
        return gc_generation.fenced(self._memory.space, put_back)

    def resolve(self, reference: str) -> Remembered:
        """Read the item that `mem://<scope>/<owner>/<id>@<commit>` names; raises `NotFound`, also for another owner's."""
        return resolve(self._memory, reference)

    def log(self, *, limit: int | None = None) -> list[MemoryLogEntry]:
        """Read the changes of this memory, newest first, each with what it did to which item; with a `limit` the last ones.

        A commit that changed several items, as a call may, has an entry for each, in the order of the writes; `limit`
        counts entries.  Those that were undone here are not among them: `moves` has the undo.
        """
        reader.check_limit(limit)
        steps = reader.steps(self._memory.space, self.head.commit, limit=limit)
        return list(islice((each for step in steps for each in entries_of(self._memory, step)), limit))

    def changes_of(self, id: str, *, limit: int | None = None) -> tuple[list[MemoryLogEntry], bool]:
        """Read the changes of an item, newest first, and whether there may be older ones: a list and a truth value.

        With a `limit` only the last ones are read, and the search for older ones ends 1,000 commits before the oldest
        that was found.
        """
        steps, more = self._steps_of(id, limit)
        return [entry_of(self._memory, step, id) for step in steps], more

    def moves(self, *, before: int | None = None, limit: int | None = None) -> list[MemoryMove]:
        """Read the moves of this memory's head, newest first, with versions below `before` (None: all).

        A move is a change, or an undo or a redo of changes; each has its time and who made it.  What was undone is found
        here, also after a new change ended the way of `redo`: `restore(id, at=…)` takes its commit.  With a `limit` only
        so many are read.
        """
        reader.check_limit(limit)
        space = self._memory.space
        found = islice(loops.moves(space.engine, space.name, MAIN, before=before), limit)
        return [move_of(self._memory, move) for move in found]

    def ids_ever(self, *, changes: int | None = None) -> list[str]:
        """Return the ids of the items that the last changes were about, also of those that were forgotten; None: of all."""
        steps = reader.steps(self._memory.space, self.head.commit, limit=changes)
        return list(dict.fromkeys(id for step in steps for id in items_of(step.changeset.patch)))

    def _steps_of(self, id: str, limit: int | None) -> tuple[list[Step], bool]:
        """Return the commits that wrote, forgot or erased an item, newest first, and whether there may be older ones."""
        reader.check_limit(limit)
        space, found = self._memory.space, list[Step]()
        commit, made_at = self.head.commit, made_at_of(check_item_id(id))
        while commit is not None and (limit is None or len(found) < limit):
            step = self._last_write(id, commit)
            if (
                step is None
            ):  # it is not there: it was forgotten after the commit that is looked for, or never written
                looked_at = reader.steps(space, commit, limit=_LOOKED_BACK_MAX if found and limit else None)
                oldest: Step | None = None
                for oldest in looked_at:
                    if id in items_of(oldest.changeset.patch):
                        step = oldest
                        break
                    if made_at is not None and oldest.commit.at < made_at - _CLOCKS_DIFFER_US:
                        return found, False
                if step is None:
                    return found, oldest is not None and oldest.commit.first_parent is not None
            found.append(step)
            commit = step.commit.first_parent
        return found, commit is not None

    def _value_to_restore(self, id: str, now: Remembered | None, at: Wanted) -> Remembered:
        """Return an item as a moment left it, unset is before its last change; `now` is what it is, None: it is not there."""
        try:
            then = self._before(id, now) if at is UNSET else self._at(id, at)
        except Forgotten as error:
            what = f"nothing was restored: the text of item '{id}' of '{self.owner}'"
            raise Forgotten(what, error.why, advice="Add the item again if it is needed.") from error
        if then is None:
            had = "has no earlier value to put back" if at is UNSET else "was not there at that moment"
            raise NotFound(
                f"item '{id}' of '{self.owner}' {had}; nothing was restored.",
                code="nothing_to_restore",
                advice="changes_of() lists its changes; restore(at=…) takes one that wrote it.",
                item=id,
                owner=self.owner,
            )
        return then

    def _before(self, id: str, now: Remembered | None) -> Remembered | None:
        """Return the last other value of an item that counts; of one that is not there also one that was withdrawn."""
        withdrawn = None
        for limit in (_CHANGES_READ, None):
            changes, more = self._steps_of(id, limit)
            for change in changes:
                then = as_of(self._memory, id, change.digest)
                if then is None or (now is not None and _is_equal(_item_of(then), now)):
                    continue
                if not is_withdrawn(self._memory, id, change):
                    return then
                withdrawn = withdrawn or then
            if not changes:
                raise self._no_item(id)
            if not more:
                break
        return withdrawn if now is None else None

    def _at(self, id: str, at: Wanted) -> Remembered | None:
        """Return an item as a moment left it; None: it was not there."""
        commit = revisions.resolve(self._memory.space, self.head, at)
        return None if commit is None else as_of(self._memory, id, commit)

    def _last_write(self, id: str, commit: Digest) -> Step | None:
        """Return the commit that wrote the newest version of an item that a commit has; None: it has none."""
        space = self._memory.space
        try:
            versions = list(space.tree_at(commit).entries(item_prefix(id)))
        except Forgotten:
            return None
        if not versions:
            return None
        depth = max(parse_version_path(each.path)[1] for each in versions)
        wrote = ancestry.ancestor(space, ancestry.point(space, commit), depth)
        return None if wrote is None else space.step(wrote.digest)

    def at(self, moment: Moment) -> list[Remembered]:
        """Read the items at a moment of this memory's history, as far as they can be reached now."""
        commit = revisions.resolve(self._memory.space, self.head, moment)
        if commit is None:
            return []
        judge = Visibility(self._memory, None, None, commit=commit)
        return [judge.remembered(found) for found in judge.items()]

    def undo(self, turns: int = 1, *, op_id: str | None = None, author: str | None = None) -> Head:
        """Take back the last change of this memory, by a program or by a thread; return the new head.

        Raises `Conflict`, having moved nothing, if it is an erasure, which no undo takes back: `undo(2)` also takes back
        the change before it.
        """
        space = self._memory.space
        if op_id is None or space.engine.recorded(space.name, names.check_op_id(op_id)) is None:
            self._check_undoable(turns)
        return timelines.undo(space, MAIN, turns=turns, op_id=op_id, author=author)

    def _check_undoable(self, turns: int) -> None:
        """Raise `Conflict` if the last changes are erasures alone: to move the head back over them brings nothing back."""
        erased: list[str] = []
        changes = 0
        for step in reader.steps(self._memory.space, self.head.commit):
            if step.commit.reason != ERASED:
                break
            changes += 1
            erased += items_of(step.changeset.patch)
        if changes >= max(turns, 1):
            many = len(erased) > _NAMED_MAX
            what = f"{len(erased)} items" if many else " and ".join(map(repr, erased))
            raise Conflict(
                f"the last change of the memory of '{self.owner}' is the erasure of {what}, "
                "which no undo takes back; nothing was moved.",
                code="erasure_not_undone",
                advice=f"undo({changes + 1}) also takes back the change before it.",
                owner=self.owner,
                items=tuple(erased),
                changes=changes + 1,
            )

    def redo(self, *, op_id: str | None = None, author: str | None = None) -> Head:
        """Take back the last undo and return the new head; raises `NotFound` if there is none, or after a write."""
        return timelines.redo(
            self._memory.space, MAIN, op_id=op_id and names.check_op_id(op_id), author=author
        )

    def _judge(self) -> Visibility:
        return Visibility(self._memory, None, None)

    def _standing(self, judge: Visibility, id: str) -> Judged:
        found = judge.item(check_item_id(id))
        check_not_expired(self._memory, found)
        if found is None:
            raise self._no_item(id)
        return found

    def _no_item(self, id: str) -> NotFound:
        return NotFound(
            f"'{self.owner}' has no item '{id}' in memory: there never was one, or it was forgotten or withdrawn; nothing was done.",
            code="memory_item_not_found",
            advice="See what there is with items().",
            item=id,
            owner=self.owner,
        )

    def _written_by(self, op_id: str) -> str | None:
        """Return the item that the write of an op_id is about; None: there is no such write yet."""
        space = self._memory.space
        done = space.engine.recorded(space.name, names.check_op_id(op_id))
        commit = None if done is None else done.receipt.heads[0].commit
        return None if commit is None else next(iter(items_of(space.step(commit).changeset.patch)), None)

    def _put(
        self, id: str, wanted: MemoryItem, given: Mapping[str, Any], op_id: str | None, author: str | None
    ) -> Remembered:
        """Write an item; in one of that id that is there only what was `given` is changed."""

        def put(commit: Digest | None) -> Version:
            found = Visibility(self._memory, None, None, commit=commit).item(id)
            there = found.version.item if found is not None and found.counts else None
            item = wanted if there is None else msgspec.structs.replace(there, at=wanted.at, **given)
            return Version(item=item)

        # What was given, not what the item has: that differs once it was changed.  Not the time, for the same reason.
        meant = [wanted.text, wanted.kind, wanted.scope, wanted.trust]
        meant += [f"pinned: {wanted.pinned}"] if "pinned" in given else []
        named = None if op_id is None else names.check_op_id(op_id)
        done = write.write(
            self._memory.space,
            id,
            put,
            reason="memory.add",
            op_id=named,
            author=_checked(author),
            meant=meant,
        )
        return self._as_written(id, done)

    def _with_pin(self, id: str, pinned: bool, *, op_id: str | None, author: str | None) -> Remembered:
        """Pin or unpin an item as it is; nothing is written if it is so already."""

        def changed(commit: Digest | None) -> Version:
            found = self._standing(Visibility(self._memory, None, None, commit=commit), id).version
            assert found.item is not None, "an item that counts has words"
            item = msgspec.structs.replace(found.item, pinned=pinned)
            return Version(item=item, origin=found.source or found.origin)

        space = self._memory.space
        if op_id is None or space.engine.recorded(space.name, names.check_op_id(op_id)) is None:
            there = self.get(id)
            if there.pinned is pinned:
                return there
        reason = "memory.pin" if pinned else "memory.unpin"
        done = write.write(space, id, changed, reason=reason, op_id=op_id, author=_checked(author), meant=[])
        return self._as_written(id, done)

    def _written(
        self,
        id: str,
        version: Version,
        reason: str,
        op_id: str | None,
        author: str | None,
        *,
        beside: bool = False,
    ) -> Remembered:
        named = None if op_id is None else names.check_op_id(op_id)
        done = write.write(
            self._memory.space,
            id,
            version,
            reason=reason,
            op_id=named,
            author=_checked(author),
            beside=beside,
        )
        return self._as_written(id, done)

    def _as_written(self, id: str, done: CommitOutcome) -> Remembered:
        judge = Visibility(self._memory, None, None, commit=done.head.commit)
        found = judge.item(id)
        if found is None:
            raise Conflict(
                f"item '{id}' was written by that op_id before; nothing was done.",
                code="item_written_before",
                item=id,
            )
        return judge.remembered(found)


def _item_of(found: Remembered) -> MemoryItem:
    return MemoryItem(
        text=found.text,
        kind=found.kind,
        scope=found.scope,
        trust=found.trust,
        at=found.at,
        expires_at=found.expires_at,
        pinned=found.pinned,
    )


def _is_equal(item: MemoryItem, found: Remembered) -> bool:
    """True if nothing but the time when it was written differs."""
    return msgspec.structs.replace(item, at=found.at) == _item_of(found)


def _with_end(then: Remembered, expires: End, now: int) -> MemoryItem:
    """Return the item with the end that it had, or another; raises `Invalid` if that is not in the future."""
    item = _item_of(then)
    if not isinstance(expires, UnsetType):
        return msgspec.structs.replace(item, expires_at=write.until(expires, now))
    if item.expires_at is not None and item.expires_at <= now:
        ended = _BEGAN + timedelta(microseconds=item.expires_at)
        raise Invalid(
            f"the end of item '{then.id}' of '{then.owner}' has passed ({ended:%Y-%m-%d %H:%M:%S} UTC), so it would "
            "not be found; nothing was restored.",
            code="item_expired",
            advice="Give it another end with expires=…, or None for none.",
            item=then.id,
            owner=then.owner,
            expired_at=item.expires_at,
        )
    return item


def _checked(author: str | None) -> str | None:
    return None if author is None else names.check_label("author", author)
