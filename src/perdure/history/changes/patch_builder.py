"""Builds the patch of a step, replays patches, and tracks which paths a step touched.

`Ops` takes the ops one by one and sees its own changes; an op that fails raises and leaves
it as it was.  `finish` returns the patch, the root after it and the new objects.  `replay`
computes the same root from the same patch, from recorded digests alone, so that a history can
be checked, or a step moved onto another, without reading a single value.

`reapply` applies an op to a map that has changed since the op's author read it.  A path to
delete may be absent already, and a document may look different: then a document op is run
again on what is there, and if it no longer fits, the document that the author saw after the
op replaces the present one.

`Touched` is the set of paths that a step wrote or read.  It decides whether two steps can be
applied in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Self

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Forgotten, Invalid, NotFound
from perdure.history.changes import json_edits, values
from perdure.history.changes.json_edits import Place
from perdure.history.changes.values import StoredValue, Value
from perdure.history.space import Space
from perdure.history.tree import EMPTY, Entry, MapDraft, diff
from perdure.history.tree.read import Reader
from perdure.model import canonical, lists, names
from perdure.model.canonical import Json
from perdure.model.commit import NO_PATCH, Changeset
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import ConflictCovered, Event, MessageAppended, MessageRetracted
from perdure.model.patch import JSON_TYPE, Clear, Delete, Edit, Op, Patch, Put, Replace, Stored, Verb

__all__ = [
    "Ops",
    "Patched",
    "own_source",
    "document_faults",
    "replay",
    "UNTOUCHED",
    "Touched",
    "ValueSource",
    "covered",
    "reapply",
]


_BYTES = (bytes, bytearray)


# The document that an edit of each kind needs at least; an object for the others.
_FIRST: Mapping[Verb, str] = {"append": "[]", "insert": "[]", "remove": "[]", "increment": "0"}


class Patched(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A patch, the root after it, and what a write must carry for it."""

    patch: Patch
    root: Digest
    objects: tuple[Object, ...] = ()  # values, arguments and nodes that are new
    cells: tuple[CellWrite, ...] = ()


class Ops:
    """The ops of one step, applied to a draft of the map one by one."""

    __slots__ = (
        "_begun",
        "_bodies",
        "_documents",
        "_earlier",
        "_into",
        "_ops",
        "_own",
        "_root",
        "_space",
        "_values",
    )

    def __init__(
        self,
        space: Space,
        root: Digest,
        *,
        into: Space | None = None,
        earlier: Mapping[Digest, StoredValue] | None = None,
    ) -> None:
        """Begin from the map of that root; new values go `into` another space (None: the same one).

        `earlier` are values that steps before this one add to the same write; `Ops` only reads them.
        """
        self._space = space
        self._into = into or space
        self._root = root
        self._begun: MapDraft | None = None  # the draft of the map; None: no op has needed it
        self._ops: list[Op] = []
        self._earlier: Mapping[Digest, StoredValue] = earlier or {}
        self._bodies: dict[Digest, Object] = {}  # from `put` of JSON
        self._values: dict[Digest, StoredValue] = {}  # from `replace`, other `put` and arguments
        self._documents: dict[str, StoredValue] = {}  # edited documents as they now are, by path
        # The objects of all these; None: no long list has needed them.
        self._own: dict[Digest, Object] | None = None

    def __bool__(self) -> bool:
        """True if there is any op."""
        return bool(self._ops)

    @property
    def _draft(self) -> MapDraft:
        draft = self._begun
        if draft is None:
            space = self._space
            draft = self._begun = MapDraft(Reader(space.nodes, space.cache), self._root)
        return draft

    def entry(self, path: str) -> Entry | None:
        """Return the entry at `path` now; None if there is none."""
        return self._draft.get(names.check_path(path))

    def value(self, path: str) -> Value:
        """Return the value at `path` now; raises `NotFound`."""
        found = self.entry(path)
        if found is None:
            raise NotFound(
                f"there is nothing at {path}.",
                code="path_not_found",
                advice="See what there is with paths().",
                path=path,
            )
        return values.decode(found.form, self._bytes(found.value, path))

    def paths(self, prefix: str) -> list[str]:
        """Return the paths that `prefix` covers now, sorted."""
        return [entry.path for entry in _covered(self._draft, names.check_prefix(prefix))]

    def put(self, path: str, value: object, *, media_type: str | None = None) -> Digest:
        """Set `path` to `value`, whatever it held before; return the digest of the value."""
        names.check_path(path)
        if media_type is not None or isinstance(value, _BYTES):
            new = self._keep_at(path, value, media_type)
            self._put(path, new)
            return new.stored.value
        body = canonical.encode(value)
        size = len(body)
        if size > self._space.limits.value_bytes_max or (
            size >= lists.LIST_BYTES_MIN and isinstance(value, list)
        ):
            new = values.keep_json(self._into, body, base=self._base(path), own=self._unstored())
            self._put(path, new)
            return new.stored.value
        digest = digest_of(Kind.VALUE, body)
        base = self._draft.put_json(path, size, digest)
        edited = self._documents.pop(path, None)
        if self._into is not self._space:
            base = None  # a value of another space
        elif edited is not None:
            base = edited.objects[0].base if len(edited.objects) == 1 else None
        self._ops.append(Put(path, digest, size))
        if digest not in self._values and digest not in self._bodies:
            self._bodies[digest] = new = Object(Kind.VALUE, digest, body, base)
            if self._own is not None:
                self._own[digest] = new
        return digest

    def put_stored(self, path: str, value: StoredValue) -> None:
        """Set `path` to a value that is known by reference."""
        self._put(names.check_path(path), value)

    def delete(self, path: str) -> None:
        """Remove the value of `path`; raises `NotFound` if it has none."""
        self._take(Delete(names.check_path(path)))
        self._documents.pop(path, None)

    def clear(self, prefix: str) -> None:
        """Remove the values of `prefix` and everything below it; '/' is everything."""
        self._take(Clear(names.check_prefix(prefix)))
        self._documents = {
            path: value for path, value in self._documents.items() if not names.under(path, prefix)
        }

    def replace(self, entries: Mapping[str, object], *, keep: Iterable[str] = ()) -> None:
        """Set the map to `entries` and nothing else; paths under Perdure's own prefixes and `keep` stay as they are."""
        if not isinstance(entries, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"`replace` needs paths and their values, not a {type(entries).__name__}; nothing was written.",
                code="entries_not_mapping",
            )
        stored = {names.check_path(path): self._keep_at(path, value, None) for path, value in entries.items()}
        self.replace_stored(stored, keep=keep)

    def replace_stored(self, entries: Mapping[str, StoredValue], *, keep: Iterable[str] = ()) -> None:
        """Do what `replace` does, with values that are known by reference."""
        spared = tuple(names.check_prefix(prefix) for prefix in keep)
        _check_replaced(entries, spared)
        stored = {path: value.stored for path, value in entries.items()}
        self._take(Replace(stored, spared), *entries.values())
        spares = (*names.KERNEL_PREFIXES, *spared)
        self._documents = {path: value for path, value in self._documents.items() if _spared(path, spares)}

    def edit(self, path: str, verb: Verb, at: Place, argument: object = None) -> Digest:
        """Change the JSON document at `path` in one place; return the digest of the document afterwards.

        Raises `NotFound` or `Invalid` if the edit does not fit.
        """
        at = json_edits.check_place(at)
        stored = None if verb == "unset" else values.keep(self._into, argument, None, base=None)
        entry = self._document(path, verb)
        new = None
        if verb == "append" and not at and entry.size >= lists.LIST_BYTES_MIN:
            new = self._longer(entry, argument)
        if new is None:
            before = canonical.decode(self._bytes(entry.value, path))
            after = json_edits.apply(before, verb, at, _plain(argument), path=path)
            new = self._keep_at(path, after, None)
        op = Edit(path, verb, at, new.stored.value, new.stored.size, stored.stored.value if stored else None)
        self._take(op, *((stored,) if stored else ()))
        self._documents[path] = new
        self._know(new)
        return new.stored.value

    def split(self) -> tuple[Patched, Ops]:
        """End this step; return its patch, and the ops of the next step, which see what this one wrote."""
        edited = {value.stored.value: value for value in self._documents.values()}
        patched = self.finish()
        put = {
            digest: StoredValue(Stored(digest, len(each.body)), (each,), body=each.body)
            for digest, each in self._bodies.items()
        }
        earlier = {**self._earlier, **put, **self._values, **edited}
        return patched, Ops(self._space, patched.root, into=self._into, earlier=earlier)

    def finish(self) -> Patched:
        """End the step; return its patch, the root after it and the new objects."""
        if self._begun is None:
            return Patched(patch=NO_PATCH, root=self._root)
        root, nodes = self._begun.finish()
        if not self._ops:
            return Patched(patch=NO_PATCH, root=root, objects=nodes)
        if not self._values and not self._documents:
            return Patched(patch=Patch(tuple(self._ops)), root=root, objects=(*self._bodies.values(), *nodes))
        objects = self._bodies.copy()
        cells: dict[str, CellWrite] = {}
        for each in (*self._values.values(), *self._documents.values()):
            added = each.objects
            if added and added[-1].kind is Kind.LIST:  # without what was only needed between two ops
                added = lists.reachable(each.stored.value, added)
            for item in added:
                objects[item.digest] = item
            for cell in each.cells:
                cells[cell.name] = cell
        return Patched(
            patch=Patch(tuple(self._ops)),
            root=root,
            objects=(*objects.values(), *nodes),
            cells=tuple(cells.values()),
        )

    def _put(self, path: str, value: StoredValue) -> None:
        stored = value.stored
        self._draft.put(Entry(path, stored.form, stored.media_type, stored.size, stored.value))
        self._ops.append(Put(path, stored.value, stored.size, stored.form, stored.media_type))
        self._values.setdefault(stored.value, value)
        self._documents.pop(path, None)
        self._know(value)

    def _take(self, op: Op, *new: StoredValue) -> None:
        """Apply `op` to the draft, and only then add its new values."""
        self._begun = _apply(self._space, self._draft, op)
        self._ops.append(op)
        for each in new:
            self._values.setdefault(each.stored.value, each)
            self._know(each)

    def _keep_at(self, path: str, value: object, media_type: str | None) -> StoredValue:
        own = {} if type(value) is not list else self._unstored()
        return values.keep(self._into, value, media_type, base=self._base(path), own=own)  # pyright: ignore[reportUnknownArgumentType]

    def _longer(self, entry: Entry, item: object) -> StoredValue | None:
        """Return the long list at `entry` with one more element; None: it must be read as a whole."""
        own = self._unstored()
        added = self._values.get(entry.value) or self._earlier.get(entry.value)
        if self._into is not self._space or (added is not None and entry.value not in own):
            return None  # it is in another space, or its objects are known only to the caller
        # In a list, so that it is refused if it makes the list too deep.
        body = canonical.encode([item])[1:-1]
        new = values.append(self._space, entry, body, own=own)
        edited = self._documents.get(entry.path)
        if new is None or edited is None:
            return new
        return msgspec.structs.replace(new, objects=(*edited.objects, *new.objects), cells=edited.cells)

    def _unstored(self) -> dict[Digest, Object]:
        """Return the objects of values that this write adds."""
        if self._own is None:
            added = (*self._earlier.values(), *self._values.values(), *self._documents.values())
            self._own = {**self._bodies, **{item.digest: item for each in added for item in each.objects}}
        return self._own

    def _know(self, new: StoredValue) -> None:
        if self._own is not None:
            self._own.update({each.digest: each for each in new.objects})

    def _document(self, path: str, verb: Verb) -> Entry:
        entry = self.entry(path)
        if entry is None:
            raise NotFound(
                f"there is no document at {path}; nothing was written.",
                code="document_not_found",
                # What it would begin with is the writer's to say: two writers that begin it apart would not merge.
                advice=f"Begin it first: put({path!r}, {_FIRST.get(verb, '{}')}).",
                path=path,
            )
        if entry.form != "json":
            raise Invalid(
                f"{path} holds bytes ({entry.media_type}), not a JSON document; nothing was written.",
                code="value_not_document",
                path=path,
                media_type=entry.media_type,
            )
        return entry

    def _base(self, path: str) -> Digest | None:
        """Return the stored value that a new one at `path` resembles, if both are in one space."""
        if self._into is not self._space:
            return None
        document = self._documents.get(path)
        if document is not None:  # it is written only if nothing replaces it
            if len(document.objects) == 1 and document.objects[0].kind is Kind.VALUE:
                return document.objects[0].base
            entry = self._space.tree(self._root).get(path)
            return None if entry is None else entry.value
        return self._draft.value_at(path)

    def _bytes(self, digest: Digest, path: str) -> bytes:
        if digest in self._bodies:
            return self._bodies[digest].body
        value = self._documents.get(path)
        if value is None or value.stored.value != digest:
            value = self._values.get(digest) or self._earlier.get(digest)
        if value is not None and value.body is not None:
            return value.body
        if value is not None and value.objects and value.objects[-1].kind is Kind.LIST:
            return values.read_bytes(self._space, digest, own=self._unstored())
        if value is not None and self._space.engine.missing(self._space.name, (digest,)):
            raise NotFound(
                f"the value of {path} between two ops of a patch was not stored; nothing was written.",
                code="intermediate_value_not_stored",
                path=path,
            )
        return values.read_bytes(self._space, digest)


def replay(space: Space, root: Digest, patch: Patch) -> tuple[Digest, tuple[Object, ...]]:
    """Return the root after `patch`, and the new nodes, from recorded digests alone.

    Raises `NotFound` where the patch does not fit: a path to delete or to edit is not there.
    """
    draft = space.tree(root).edit()
    for op in patch.ops:
        draft = _apply(space, draft, op)
    return draft.finish()


def document_faults(space: Space, root: Digest, patch: Patch) -> list[str]:
    """Return what is wrong with the document ops of `patch`: each is run again where its values still exist."""
    draft = space.tree(root).edit()
    known: dict[Digest, Json] = {}
    own: dict[Digest, Object] = {}
    faults: list[str] = []
    for op in patch.ops:
        if isinstance(op, Edit):
            fault = _edit_fault(space, draft.get(op.path), op, known, own)
            faults.extend((fault,) if fault else ())
        draft = _apply(space, draft, op)
    return faults


def _edit_fault(
    space: Space, entry: Entry | None, op: Edit, known: dict[Digest, Json], own: dict[Digest, Object]
) -> str | None:
    """Return what is wrong with one op; `known` and `own` are the documents that ops before it have left."""
    if entry is None or entry.form != "json":
        return f"`{op.verb}` at {op.path}, which holds no document"
    needed = [
        each
        for each in (entry.value, op.argument)
        if each is not None and each not in known and each not in own
    ]
    if space.engine.missing(space.name, needed):
        return None  # the document between two ops of one patch is not kept
    try:
        if op.verb == "append" and not op.at and op.argument is not None and entry.value not in known:
            longer = values.append(space, entry, values.read_bytes(space, op.argument), own=own)
            if longer is not None and longer.stored.value == op.leaves:
                own.update({each.digest: each for each in longer.objects})
                return None
        before = known[entry.value] if entry.value in known else values.read_json(space, entry.value, own=own)
        argument = None if op.argument is None else values.read_json(space, op.argument)
    except Forgotten:
        return None
    try:
        known[op.leaves] = json_edits.apply(before, op.verb, op.at, argument, path=op.path)
        body = canonical.encode(known[op.leaves])
    except (Invalid, NotFound) as error:
        return f"`{op.verb}` at {op.path} cannot be run again: {error}"
    built = lists.build(body)
    if built is not None and built.top.digest == op.leaves:
        return None
    if digest_of(Kind.VALUE, body) == op.leaves or _is_left(space, op.leaves, body):
        return None
    return f"`{op.verb}` at {op.path} does not leave {op.leaves} as recorded"


def _is_left(space: Space, leaves: Digest, body: bytes) -> bool:
    """True if `leaves` holds `body` as an artifact; True if it cannot be checked, because the artifact is not stored."""
    is_large = len(body) > space.limits.value_bytes_max
    if space.engine.missing(space.name, (leaves,)):
        return is_large
    try:
        return values.read_bytes(space, leaves) == body
    except Forgotten:
        return is_large


def _apply(space: Space, draft: MapDraft, op: Op) -> MapDraft:
    """Return the draft after `op`; if it raises, `draft` is as it was."""
    match op:
        case Put(path, value, size, form, media_type):
            draft.put(Entry(path, form, media_type, size, value))
        case Delete(path):
            if not draft.delete(path):
                raise NotFound(
                    f"there is nothing at {path} to delete; nothing was written.",
                    code="path_not_found",
                    path=path,
                )
        case Clear(prefix):
            _clear(draft, prefix)
        case Replace():
            return _replaced(space, draft, op)
        case Edit(path, _, _, leaves, size):
            if draft.get(path) is None:
                raise NotFound(
                    f"there is no document at {path}; nothing was written.",
                    code="document_not_found",
                    path=path,
                )
            draft.put(Entry(path, "json", JSON_TYPE, size, leaves))
    return draft


def _clear(draft: MapDraft, prefix: str) -> None:
    own, below = names.prefixes_of(prefix)
    if own is not None:
        draft.delete(own)
    draft.clear(below)


def _replaced(space: Space, draft: MapDraft, op: Replace) -> MapDraft:
    """Return a new draft: the entries of the old one that `op` keeps, and the new entries."""
    new = space.tree(EMPTY).edit()
    for prefix in (*names.KERNEL_PREFIXES, *op.keep):
        for entry in _covered(draft, prefix):
            new.put(entry)
    for path, stored in op.entries.items():
        new.put(Entry(path, stored.form, stored.media_type, stored.size, stored.value))
    return new


def _check_replaced(entries: Iterable[str], keep: tuple[str, ...]) -> None:
    for path in entries:
        if _spared(path, (*names.KERNEL_PREFIXES, *keep)):
            raise Invalid(
                f"{path} is left alone by this `replace`, so it cannot be given; nothing was written.",
                code="path_kept_by_replace",
                path=path,
            )


def _spared(path: str, prefixes: Iterable[str]) -> bool:
    return any(names.under(path, prefix) for prefix in prefixes)


def _covered(draft: MapDraft, prefix: str) -> Iterator[Entry]:
    """Yield the entries that `prefix` covers, in order."""
    own, below = names.prefixes_of(prefix)
    found = draft.get(own) if own is not None else None
    if found is not None:
        yield found
    yield from draft.entries(below)


def _plain(argument: object) -> Json:
    return argument  # pyright: ignore[reportReturnType]  # `values.keep` has refused what is not JSON


_COVERED_MAX = 500


class ValueSource(msgspec.Struct, frozen=True):
    """Reads the values that ops name by digest."""

    stored: Callable[[Stored], StoredValue]  # a value with what the write must carry for it
    body: Callable[[Digest], bytes]  # raises `NotFound`


def own_source(space: Space, own: Mapping[Digest, Object]) -> ValueSource:
    """Return a source of values that are in the store or among `own`, the objects that the same write adds."""

    def body(digest: Digest) -> bytes:
        return values.read_bytes(space, digest, own=own)

    def stored(value: Stored) -> StoredValue:
        new = own.get(value.value)
        is_new = new is not None and new.kind in (Kind.VALUE, Kind.LIST)
        return StoredValue(value, (), body=body(value.value) if is_new else None)

    return ValueSource(stored, body)


def reapply(ops: Ops, op: Op, source: ValueSource) -> None:
    """Apply one op on top of the present state of `ops`."""
    match op:
        case Put(path, value, size, form, media_type):
            ops.put_stored(path, source.stored(Stored(value, size, form, media_type)))
        case Delete(path):
            if ops.entry(path) is not None:
                ops.delete(path)
        case Clear(prefix):
            ops.clear(prefix)
        case Replace(entries, keep):
            ops.replace_stored({path: source.stored(each) for path, each in entries.items()}, keep=keep)
        case Edit():
            _edit_again(ops, op, source)


def covered(space: Space, seen: Digest, now: Digest, patch: Patch) -> Iterator[ConflictCovered]:
    """Yield the paths of `patch` that another writer has changed between the roots `seen` and `now`."""
    if seen == now:
        return
    touched = Touched()
    touched.add_ops(patch.ops)
    changed = (change for change in diff(space.tree(seen), space.tree(now)) if touched.covers(change.path))
    for change in islice(changed, _COVERED_MAX):
        value = change.after.value if change.after else None
        yield ConflictCovered(id=space.ids(), path=change.path, covered=value)


def _edit_again(ops: Ops, op: Edit, source: ValueSource) -> None:
    try:
        argument = None if op.argument is None else canonical.decode(source.body(op.argument))
        ops.edit(op.path, op.verb, op.at, argument)
    except (Invalid, NotFound):
        left = Stored(op.leaves, op.size, "json", JSON_TYPE)
        try:
            ops.put_stored(op.path, source.stored(left))
        except NotFound:
            return  # a document between two ops of one patch, which is not kept; the last one is


class Touched:
    """A growing set of paths and prefixes, and whether the transcript is in it.

    The transcript counts as a path: a writer that adds messages has read it.  `clear` and a listing touch everything
    under their prefix, `replace` touches everything.
    """

    __slots__ = ("paths", "prefixes", "transcript")

    def __init__(self) -> None:
        """Begin empty."""
        self.paths: set[str] = set()
        self.prefixes: set[str] = set()
        self.transcript = False

    @classmethod
    def by(cls, changesets: Iterable[Changeset]) -> Self:
        """Return what these changesets wrote."""
        touched = cls()
        for changeset in changesets:
            touched.add_ops(changeset.patch.ops)
            touched.add_events(changeset.events)
        return touched

    def add_ops(self, ops: Iterable[Op]) -> None:
        """Add what `ops` write."""
        for op in ops:
            match op:
                case Clear(prefix):
                    self.prefixes.add(prefix)
                case Replace():
                    self.prefixes.add("/")
                case _:
                    self.paths.add(op.path)

    def add_events(self, events: Iterable[Event]) -> None:
        """Add the transcript if a message was added or taken back by `events`."""
        talk = (MessageAppended, MessageRetracted)
        self.transcript = self.transcript or any(isinstance(event, talk) for event in events)

    def meets(self, other: Touched) -> bool:
        """True if anything is in both."""
        return (
            (self.transcript and other.transcript)
            or not self.paths.isdisjoint(other.paths)
            or _covers(self.prefixes, other.paths)
            or _covers(other.prefixes, self.paths)
            or _overlap(self.prefixes, other.prefixes)
        )

    def covers(self, path: str) -> bool:
        """True if `path` is in it, by itself or under a prefix."""
        return path in self.paths or _covers(self.prefixes, (path,))


UNTOUCHED = Touched()  # shared by all steps that read nothing; a caller that adds to it makes its own first


def _covers(prefixes: Iterable[str], paths: Iterable[str]) -> bool:
    return any(names.under(path, prefix) for prefix in prefixes for path in paths)


def _overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    return any(
        one.startswith(below) or below.startswith(one)
        for one in (names.prefixes_of(prefix)[1] for prefix in some)
        for below in (names.prefixes_of(prefix)[1] for prefix in others)
    )
