"""From intended ops to a patch: what a step means to do to the map, and what the map then is.

`Ops` takes the ops one by one and sees its own changes; an op that fails raises and leaves
it as it was.  `finish` gives the patch, the root it leads to and the new objects.  The way
back is `replay`: the same root from the same patch, from recorded digests alone, so that a
history can be checked, or a step moved onto another, without reading a single value.

Applying ops again where the map has changed since they were meant.

What an op wanted gone may be gone already, and a document may look different: then a document
op is run again on what is there, and where it does not fit any more, what it left in its
author's eyes takes the place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Forgotten, Invalid, NotFound
from perdure.history.changes import json_edits, values
from perdure.history.changes.json_edits import Place
from perdure.history.changes.touched_paths import Touched
from perdure.history.changes.values import StoredValue, Value
from perdure.history.space import Space
from perdure.history.tree import EMPTY, Entry, MapDraft, diff
from perdure.model import canonical, names
from perdure.model.canonical import Json
from perdure.model.changeset import NO_PATCH
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import ConflictCovered
from perdure.model.patch import JSON_TYPE, Clear, Delete, Edit, Op, Patch, Put, Replace, Stored, Verb

__all__ = ["Ops", "Patched", "apply", "document_faults", "replay", "ValueSource", "covered", "reapply"]


class Patched(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A patch, the root that it leads to, and what a write must carry for it."""

    patch: Patch
    root: Digest
    objects: tuple[Object, ...] = ()  # values, arguments and nodes that are new
    cells: tuple[CellWrite, ...] = ()


class Ops:
    """The ops of one step, applied as they come to a draft of the map."""

    __slots__ = ("_documents", "_draft", "_earlier", "_into", "_kept", "_ops", "_space")

    def __init__(
        self,
        space: Space,
        root: Digest,
        *,
        into: Space | None = None,
        earlier: Mapping[Digest, StoredValue] | None = None,
    ) -> None:
        """Begin from the map of that root; new values go `into` another space, None is the same one.

        `earlier` are values that steps before this one bring to the same write; they are only read here.
        """
        self._space = space
        self._into = into or space
        self._draft = space.tree(root).edit()
        self._ops: list[Op] = []
        self._earlier: Mapping[Digest, StoredValue] = earlier or {}
        self._kept: dict[Digest, StoredValue] = {}  # what `put`, `replace` and arguments brought
        self._documents: dict[str, StoredValue] = {}  # edited documents as they now are, by path

    def __bool__(self) -> bool:
        """Whether there is any op."""
        return bool(self._ops)

    def entry(self, path: str) -> Entry | None:
        """What the map holds at `path` now."""
        return self._draft.get(names.check_path(path))

    def value(self, path: str) -> Value:
        """The value at `path` now; raises `NotFound`."""
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
        """The paths that `prefix` covers now, sorted."""
        return [entry.path for entry in _covered(self._draft, names.check_prefix(prefix))]

    def put(self, path: str, value: object, *, media_type: str | None = None) -> Digest:
        """Let `path` hold `value`, whatever it held before; the digest of the value."""
        kept = self._keep_at(names.check_path(path), value, media_type)
        self._put(path, kept)
        return kept.stored.value

    def put_stored(self, path: str, kept: StoredValue) -> None:
        """Let `path` hold a value that is known by reference."""
        self._put(names.check_path(path), kept)

    def delete(self, path: str) -> None:
        """Let `path` hold nothing; raises `NotFound` if that is so already."""
        self._take(Delete(names.check_path(path)))
        self._documents.pop(path, None)

    def clear(self, prefix: str) -> None:
        """Let `prefix` and everything below it hold nothing; '/' is everything."""
        self._take(Clear(names.check_prefix(prefix)))
        self._documents = {
            path: kept for path, kept in self._documents.items() if not names.under(path, prefix)
        }

    def replace(self, entries: Mapping[str, object], *, keep: Iterable[str] = ()) -> None:
        """Let the map hold `entries` and nothing else; the kernel's own prefixes and `keep` are left alone."""
        if not isinstance(entries, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"`replace` needs paths and their values, not a {type(entries).__name__}; nothing was written."
            )
        kept = {names.check_path(path): self._keep_at(path, value, None) for path, value in entries.items()}
        self.replace_stored(kept, keep=keep)

    def replace_stored(self, entries: Mapping[str, StoredValue], *, keep: Iterable[str] = ()) -> None:
        """The same for values that are known by reference."""
        spared = tuple(names.check_prefix(prefix) for prefix in keep)
        _check_replaced(entries, spared)
        stored = {path: kept.stored for path, kept in entries.items()}
        self._take(Replace(stored, spared), *entries.values())
        spares = (*names.KERNEL_PREFIXES, *spared)
        self._documents = {path: kept for path, kept in self._documents.items() if _spared(path, spares)}

    def edit(self, path: str, verb: Verb, at: Place, argument: object = None) -> Digest:
        """Change the JSON document at `path` in one place; the digest of the document that this leaves.

        Raises `NotFound` or `Invalid` if the edit does not fit.
        """
        at = json_edits.check_place(at)
        given = None if verb == "unset" else values.keep(self._into, argument, None, base=None)
        before = self._document(path)
        after = json_edits.apply(before, verb, at, _plain(argument), path=path)
        kept = values.keep(self._into, after, None, base=self._base(path))
        op = Edit(path, verb, at, kept.stored.value, kept.stored.size, given.stored.value if given else None)
        self._take(op, *((given,) if given else ()))
        self._documents[path] = kept
        return kept.stored.value

    def split(self) -> tuple[Patched, Ops]:
        """End this step; its patch, and the ops of the next step, which see what this one wrote."""
        edited = {kept.stored.value: kept for kept in self._documents.values()}
        patched = self.finish()
        earlier = {**self._earlier, **self._kept, **edited}
        return patched, Ops(self._space, patched.root, into=self._into, earlier=earlier)

    def finish(self) -> Patched:
        """The patch and what it leads to.  It ends the building."""
        root, nodes = self._draft.finish()
        if not self._ops:
            return Patched(patch=NO_PATCH, root=root, objects=nodes)
        kept = [*self._kept.values(), *self._documents.values()]
        objects: dict[Digest, Object] = {}
        cells: dict[str, CellWrite] = {}
        for each in kept:
            for item in each.objects:
                objects[item.digest] = item
            for cell in each.cells:
                cells[cell.name] = cell
        return Patched(
            patch=Patch(tuple(self._ops)),
            root=root,
            objects=(*objects.values(), *nodes),
            cells=tuple(cells.values()),
        )

    def _put(self, path: str, kept: StoredValue) -> None:
        stored = kept.stored
        self._draft.put(Entry(path, stored.form, stored.media_type, stored.size, stored.value))
        self._ops.append(Put(path, stored.value, stored.size, stored.form, stored.media_type))
        self._kept.setdefault(stored.value, kept)
        self._documents.pop(path, None)

    def _take(self, op: Op, *kept: StoredValue) -> None:
        """Apply `op` to the draft, and only then keep what it brought."""
        self._draft = _apply(self._space, self._draft, op)
        self._ops.append(op)
        for each in kept:
            self._kept.setdefault(each.stored.value, each)

    def _keep_at(self, path: str, value: object, media_type: str | None) -> StoredValue:
        return values.keep(self._into, value, media_type, base=self._base(path))

    def _document(self, path: str) -> Json:
        entry = self.entry(path)
        if entry is None:
            raise NotFound(f"there is no document at {path}; nothing was written. Put one there first.")
        if entry.form != "json":
            raise Invalid(
                f"{path} holds bytes ({entry.media_type}), not a JSON document; nothing was written."
            )
        return canonical.decode(self._bytes(entry.value, path))

    def _base(self, path: str) -> Digest | None:
        """The stored value that a new one at `path` resembles, if both are in one space."""
        if self._into is not self._space:
            return None
        held = self._documents.get(path)
        if held is not None:
            return held.objects[0].base if len(held.objects) == 1 else None
        return self._draft.value_to_change(path)

    def _bytes(self, digest: Digest, path: str) -> bytes:
        held = self._documents.get(path)
        if held is None or held.stored.value != digest:
            held = self._kept.get(digest) or self._earlier.get(digest)
        if held is not None and held.body is not None:
            return held.body
        if held is not None and self._space.engine.missing(self._space.name, (digest,)):
            raise NotFound(f"what {path} held between two ops of a patch was not kept; nothing was written.")
        return values.read_bytes(self._space, digest)


def replay(space: Space, root: Digest, patch: Patch) -> tuple[Digest, tuple[Object, ...]]:
    """The root after `patch`, and the new nodes, from recorded digests alone.

    Raises `NotFound` where the patch does not fit: a path to delete or to edit is not there.
    """
    draft = space.tree(root).edit()
    for op in patch.ops:
        draft = _apply(space, draft, op)
    return draft.finish()


def apply(space: Space, root: Digest, patch: Patch) -> Digest:
    """The root after `patch`; raises `NotFound` where the patch does not fit."""
    return replay(space, root, patch)[0]


def document_faults(space: Space, root: Digest, patch: Patch) -> list[str]:
    """What is wrong with the document ops of `patch`: each is run again where its values still exist."""
    draft = space.tree(root).edit()
    known: dict[Digest, Json] = {}
    faults: list[str] = []
    for op in patch.ops:
        if isinstance(op, Edit):
            fault = _edit_fault(space, draft.get(op.path), op, known)
            faults.extend((fault,) if fault else ())
        draft = _apply(space, draft, op)
    return faults


def _edit_fault(space: Space, entry: Entry | None, op: Edit, known: dict[Digest, Json]) -> str | None:
    if entry is None or entry.form != "json":
        return f"`{op.verb}` at {op.path}, which holds no document"
    needed = [each for each in (entry.value, op.argument) if each is not None and each not in known]
    if space.engine.missing(space.name, needed):
        return None  # the document between two ops of one patch is not kept
    try:
        before = known[entry.value] if entry.value in known else values.read_json(space, entry.value)
        argument = None if op.argument is None else values.read_json(space, op.argument)
    except Forgotten:
        return None
    try:
        known[op.leaves] = json_edits.apply(before, op.verb, op.at, argument, path=op.path)
        body = canonical.encode(known[op.leaves])
    except (Invalid, NotFound) as error:
        return f"`{op.verb}` at {op.path} cannot be run again: {error}"
    if digest_of(Kind.VALUE, body) == op.leaves or _is_left(space, op.leaves, body):
        return None
    return f"`{op.verb}` at {op.path} does not leave {op.leaves} as recorded"


def _is_left(space: Space, leaves: Digest, body: bytes) -> bool:
    """Whether `leaves` holds `body` as an artifact; True where that is not kept, so that nobody can tell."""
    is_large = len(body) > space.limits.value_bytes_max
    if space.engine.missing(space.name, (leaves,)):
        return is_large
    try:
        return values.read_bytes(space, leaves) == body
    except Forgotten:
        return is_large


def _apply(space: Space, draft: MapDraft, op: Op) -> MapDraft:
    """The draft after `op`; if it raises, the one that was given is as it was."""
    match op:
        case Put(path, value, size, form, media_type):
            draft.put(Entry(path, form, media_type, size, value))
        case Delete(path):
            if not draft.delete(path):
                raise NotFound(f"there is nothing at {path} to delete; nothing was written.")
        case Clear(prefix):
            _clear(draft, prefix)
        case Replace():
            return _replaced(space, draft, op)
        case Edit(path, _, _, leaves, size):
            if draft.get(path) is None:
                raise NotFound(f"there is no document at {path}; nothing was written.")
            draft.put(Entry(path, "json", JSON_TYPE, size, leaves))
    return draft


def _clear(draft: MapDraft, prefix: str) -> None:
    own, below = names.prefixes_of(prefix)
    if own is not None:
        draft.delete(own)
    draft.clear(below)


def _replaced(space: Space, draft: MapDraft, op: Replace) -> MapDraft:
    """A new draft: what is spared of the old one, and the new entries."""
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
                f"{path} is left alone by this `replace`, so it cannot be given; nothing was written."
            )


def _spared(path: str, prefixes: Iterable[str]) -> bool:
    return any(names.under(path, prefix) for prefix in prefixes)


def _covered(draft: MapDraft, prefix: str) -> Iterator[Entry]:
    """The entries that `prefix` covers, in order."""
    own, below = names.prefixes_of(prefix)
    found = draft.get(own) if own is not None else None
    if found is not None:
        yield found
    yield from draft.entries(below)


def _plain(argument: object) -> Json:
    return argument  # pyright: ignore[reportReturnType]  # `values.keep` has refused what is not JSON


_COVERED_MAX = 500


class ValueSource(msgspec.Struct, frozen=True):
    """Where the values are that the ops name."""

    kept: Callable[[Stored], StoredValue]  # a value, as it is to be kept
    body: Callable[[Digest], bytes]  # raises `NotFound`


def reapply(ops: Ops, op: Op, source: ValueSource) -> None:
    """Apply one op on top of what `ops` has come to."""
    match op:
        case Put(path, value, size, form, media_type):
            ops.put_stored(path, source.kept(Stored(value, size, form, media_type)))
        case Delete(path):
            if ops.entry(path) is not None:
                ops.delete(path)
        case Clear(prefix):
            ops.clear(prefix)
        case Replace(entries, keep):
            ops.replace_stored({path: source.kept(each) for path, each in entries.items()}, keep=keep)
        case Edit():
            _edit_again(ops, op, source)


def covered(space: Space, seen: Digest, now: Digest, patch: Patch) -> Iterator[ConflictCovered]:
    """The paths of `patch` that somebody else has changed between the roots `seen` and `now`."""
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
            ops.put_stored(op.path, source.kept(left))
        except NotFound:
            return  # a document between two ops of one patch, which is not kept; the last one is
