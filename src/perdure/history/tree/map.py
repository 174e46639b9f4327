"""Reads and edits the versioned map: `Tree` is the immutable map of one root, `MapDraft` a map under edit.

A draft copies the nodes on the path to each change, once, and alters its copies.  After every
step they obey the rule (see `encoding`), so the numbers are true at any time; but nothing is
encoded or hashed until `finish`, and then each node once, however many changes it had.

If the draft refuses a change, it stays as it was.  If the store cannot be read in the middle of
a repair, the draft is lost: every later call raises `Unavailable`.

`build` makes a whole map from entries: `grow` follows the rule downwards over entries in memory,
`seal` turns nodes under edit into objects, children before parents, each encoded and hashed once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from perdure.errors import Invalid, Unavailable
from perdure.history.tree import read
from perdure.history.tree.encoding import (
    BRANCHES_MAX,
    DIGEST_BYTES,
    TALLY_AT,
    BranchNode,
    Entry,
    Leaf,
    Node,
    encode,
    is_leaf,
    key_of,
    make_entry,
    make_item,
    make_record,
    make_tail,
    path_of,
    prefix_of,
    tally,
    value_of,
    varint,
)
from perdure.history.tree.read import EMPTY, NodeCache, Nodes, Reader
from perdure.model.digest import Digest, Kind, Object, digest_of

__all__ = ["Tree", "MapDraft", "build", "grow", "seal"]


_Trail: TypeAlias = list[tuple[BranchNode, int, int]]
"""The branches above a place, from the top: each with its offset and the label that was taken."""

_OnlyPut: TypeAlias = tuple[list[tuple[BranchNode, int]], Leaf, int, bytes, bytes, bytes]
"""Another value for a path: the stored branches and their children, the stored leaf, the place there; item, key, tail."""


class MapDraft:
    """The changes of one patch to a map.  Reads through the draft see its changes; no other reader does."""

    __slots__ = ("_finished", "_only", "_reader", "_root", "_seen", "_top", "_torn")

    def __init__(self, reader: Reader, root: Digest) -> None:
        """Begin from the map with this root."""
        self._reader = reader
        self._root = root
        self._only: _OnlyPut | None = None  # the only change so far, which has copied no node
        self._top: Node | None = None  # None: nothing was changed
        self._seen = {EMPTY, root}  # nodes that need not be stored again
        self._finished: tuple[Digest, tuple[Object, ...]] | None = None
        self._torn = False  # a change began and could not be completed

    def count(self, prefix: str = "") -> int:
        """Return how many paths start with `prefix`, from the counts in the nodes."""
        return read.count(self._reader, self._node(), prefix_of(prefix))

    def get(self, path: str) -> Entry | None:
        """Return the entry at `path`; None if there is none."""
        tail = read.find(self._reader, self._node(), key_of(path))
        return None if tail is None else make_entry(path, tail)

    def value_at(self, path: str) -> Digest | None:
        """Return the value at `path`; None if there is none."""
        tail = read.find(self._reader, self._node(), key_of(path))
        return None if tail is None else value_of(tail)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Yield the entries whose paths start with `prefix`, in order; the draft must not change during the iteration."""
        for key, tail in read.scan(self._reader, self._node(), prefix=prefix_of(prefix)):
            yield make_entry(path_of(key), tail)

    def put(self, entry: Entry) -> None:
        """Let the path of `entry` hold it, whatever it held before; raises `Invalid` if the map cannot."""
        self._put(key_of(entry.path), make_tail(entry))

    def put_json(self, path: str, size: int, value: Digest) -> Digest | None:
        """Let `path` hold a JSON value of that size, whose digest was just computed; return the value that it held."""
        key, tail = key_of(path), varint(2 * size) + bytes.fromhex(value)
        if self._top is None and self._only is None and self._finished is None:
            self._only = only = self._another_value(key, tail)
            if only is not None:
                return Digest(only[1].items[only[2]][-DIGEST_BYTES:].hex())
        trail, node, offset = self._descend(key)
        found = node.tail(key[offset:])
        self._put_at(trail, node, offset, key, tail)
        return None if found is None else value_of(found)

    def _another_value(self, key: bytes, tail: bytes) -> _OnlyPut | None:
        """Return how to give `key`, which is in a leaf, another value; None if it is not.

        Most drafts make one such change.  It leaves the shape of the map as it is, so no node need be copied
        before it is encoded.
        """
        reader, offset = self._reader, 0
        trail: list[tuple[BranchNode, int]] = []
        node = reader.root(self._root)
        while type(node) is BranchNode:
            fork = offset + len(node.prefix)
            at = (
                node.labels.find(key[fork]) if fork < len(key) and key.startswith(node.prefix, offset) else -1
            )
            if at < 0:
                return None
            trail.append((node, at))
            offset = fork + 1
            node = reader.fitting(node.records[at], offset)
        assert type(node) is Leaf
        keys, suffix = node.keys, key[offset:]
        at = bisect_left(keys, suffix)
        if at == len(keys) or keys[at] != suffix:
            return None
        return trail, node, at, varint(len(suffix)) + suffix + tail, key, tail

    def _put(self, key: bytes, tail: bytes) -> None:
        trail, node, offset = self._descend(key)
        self._put_at(trail, node, offset, key, tail)

    def _put_at(self, trail: _Trail, node: Node, offset: int, key: bytes, tail: bytes) -> None:
        grown = _put(node, key, offset, tail, room=BRANCHES_MAX - len(trail))
        if grown is None:
            return
        for branch, _, _ in trail:
            branch.add(1, len(key))
        self._set(trail, grown)
        _raise_heights(trail, grown.height)

    def delete(self, path: str) -> bool:
        """Let `path` hold nothing; False if it held nothing before."""
        key = key_of(path)
        trail, node, offset = self._descend(key)
        if not _delete(node, key, offset):
            return False
        self._shrink(trail, node, key[:offset], gone=1, gone_bytes=len(key))
        return True

    def clear(self, prefix: str) -> int:
        """Remove every path that starts with `prefix` without reading it; return how many there were."""
        key = prefix_of(prefix)
        trail, node, offset = self._descend(key)
        left, gone, gone_bytes = _clear(node, key[offset:], offset)
        if gone:
            self._shrink(trail, left, key[:offset], gone=gone, gone_bytes=gone_bytes, was=node.height)
        return gone

    def finish(self) -> tuple[Digest, tuple[Object, ...]]:
        """End the draft; return the root and those of its nodes that are new, children before parents."""
        if self._finished is not None:
            return self._finished
        if self._torn:
            raise _torn()
        if self._only is not None:
            self._finished = self._finish_only(self._only)
            return self._finished
        new: dict[Digest, Object] = {}
        if self._top is not None:
            sealed: list[tuple[Object, Node]] = []
            _seal(self._top, 0, sealed)
            seen, put = self._seen, self._reader.cache.put
            for thing, node in sealed:
                digest = self._root = thing.digest
                if digest not in seen:
                    new[digest] = thing
                    put(digest, node, len(thing.body))
            self._top = None
        self._finished = self._root, tuple(new.values())
        return self._finished

    def _finish_only(self, only: _OnlyPut) -> tuple[Digest, tuple[Object, ...]]:
        """Return the root and the new nodes after one change of a value, from the leaf up."""
        trail, leaf, at, item, _, entry_tail = only
        if leaf.items[at] == item:
            return self._root, ()  # it holds that value already
        put = self._reader.cache.put
        items = leaf.items.copy()
        items[at] = item
        node = Leaf(leaf.keys, items)  # its keys are the same, and no stored node is ever altered
        node.base, node.fit = leaf.digest, leaf.fit
        after = b"".join(items[at + 1 :])
        before = b"\x10" + varint(len(items)) + b"".join(items[:at])
        body = before + item + after
        node.digest = digest = digest_of(Kind.NODE, body)
        put(digest, node, len(body))
        shared = len(before) + len(item) - len(entry_tail), len(after)  # the key of the entry is the same too
        new = [Object(Kind.NODE, digest, body, leaf.digest, None, shared)]
        for stored, index in reversed(trail):
            branch = stored.copy()
            records = branch.records
            record = records[index]
            records[index] = record[:1] + bytes.fromhex(digest) + record[TALLY_AT:]
            body = encode(branch)
            branch.digest = digest = digest_of(Kind.NODE, body)
            put(digest, branch, len(body))
            tail = sum(map(len, records[index:])) - TALLY_AT
            new.append(Object(Kind.NODE, digest, body, stored.digest, None, (len(body) - tail - 32, tail)))
        return digest, tuple(new)

    def _copy_nodes(self, only: _OnlyPut) -> None:
        """Make the only change so far by copying the nodes on its path, because the draft is read or changed again."""
        self._only = None
        self._put(only[4], only[5])

    def _node(self) -> Node:
        if self._torn:
            raise _torn()
        if self._only is not None:
            self._copy_nodes(self._only)
        return self._reader.root(self._root) if self._top is None else self._top

    def _descend(self, key: bytes) -> tuple[_Trail, Node, int]:
        """Open the path to `key`: return the branches passed, the node where the path ends, and its offset."""
        assert self._finished is None, "a draft is finished once"
        if self._torn:
            raise _torn()
        if self._only is not None:
            self._copy_nodes(self._only)
        if self._top is None:
            self._top = self._reader.root(self._root).copy()
        trail: _Trail = []
        node, offset = self._top, 0
        while type(node) is BranchNode:
            fork = offset + len(node.prefix)
            if fork >= len(key) or not key.startswith(node.prefix, offset):
                break
            label = key[fork]
            child = node.opened.get(label) or self._open(node, label, fork + 1)
            if child is None:
                break
            trail.append((node, offset, label))
            node, offset = child, fork + 1
        return trail, node, offset

    def _open(self, branch: BranchNode, label: int, offset: int) -> Node | None:
        child = branch.opened.get(label)
        if child is None:
            stored = self._reader.child(branch, label, offset)
            if stored is None:
                return None
            branch.opened[label] = child = stored.copy()
            self._seen.add(child.base or EMPTY)
        return child

    def _set(self, trail: _Trail, node: Node) -> None:
        if trail:
            branch, _, label = trail[-1]
            branch.opened[label] = node
        else:
            self._top = node

    def _shrink(
        self, trail: _Trail, node: Node, above: bytes, *, gone: int, gone_bytes: int, was: int | None = None
    ) -> None:
        """Restore the rule after entries have gone from `node`, whose keys all start with `above`."""
        self._torn = True  # until it is done: a repair reads nodes, and reading can fail
        for branch, _, _ in trail:
            branch.add(-gone, -gone_bytes)
        was = node.height if was is None else was
        if trail and isinstance(node, Leaf) and not node.keys:
            node, above, was = _without_child(trail, above, was)
        for at, (branch, offset, _) in enumerate(trail):
            if is_leaf(*branch.weigh(offset)):
                node, above, was = branch, above[:offset], branch.height
                del trail[at:]
                break
        repaired = self._repair(node, above)
        self._set(trail, repaired)
        _lower_heights(trail, was, repaired.height)
        self._torn = False

    def _repair(self, node: Node, above: bytes) -> Node:
        """Return the node that the rule requires instead of `node`, all of whose children obey it."""
        if isinstance(node, Leaf):
            return node
        if is_leaf(*node.weigh(len(above))):
            return self._collapse(node, above)
        if len(node.labels) == 1 and node.end is None:
            return self._join(node, len(above))
        return node

    def _collapse(self, branch: BranchNode, above: bytes) -> Leaf:
        """Return one leaf with all entries of a branch that has become light enough for it."""
        found = list(read.scan(self._reader, branch, at=above))
        keys = [key[len(above) :] for key, _ in found]
        leaf = Leaf(keys, [make_item(key, tail) for key, (_, tail) in zip(keys, found, strict=True)])
        leaf.base = branch.base
        return leaf

    def _join(self, branch: BranchNode, offset: int) -> Node:
        """Return the only child of a branch, with the prefix of the branch in front of its own."""
        label = branch.labels[0]
        child = self._open(branch, label, offset + len(branch.prefix) + 1)
        # A lone leaf would have made its parent a leaf as well: their entries weigh the same.
        assert isinstance(child, BranchNode)
        child.prefix = branch.prefix + bytes((label,)) + child.prefix
        return child


def _torn() -> Unavailable:
    return Unavailable(
        "an earlier change to this draft could not read the nodes that it needed, so the draft is lost; "
        "nothing was written.",
        code="draft_lost",
        advice="Begin again from the map.",
    )


def _put(node: Node, key: bytes, offset: int, tail: bytes, *, room: int) -> Node | None:
    """Return the node that replaces `node` once `key` is added; None if only the value of `key` changed."""
    if isinstance(node, Leaf):
        return _put_in_leaf(node, key[offset:], tail, offset, room)
    fork = offset + len(node.prefix)
    if not key.startswith(node.prefix, offset):
        if node.height >= room:
            raise _too_deep()
        node = _split(node, _shared(node.prefix, key[offset:]), offset)
    elif len(key) == fork and node.end is not None:
        node.end = tail
        return None
    _add(node, key[offset + len(node.prefix) :], tail, offset)
    return node


def _put_in_leaf(leaf: Leaf, suffix: bytes, tail: bytes, offset: int, room: int) -> Node | None:
    at, item = bisect_left(leaf.keys, suffix), make_item(suffix, tail)
    if at < len(leaf.keys) and leaf.keys[at] == suffix:
        leaf.items[at] = item
        return None
    leaf.keys.insert(at, suffix)
    leaf.items.insert(at, item)
    leaf.fit = None
    if is_leaf(*leaf.weigh(offset)):
        return leaf
    try:
        return grow(leaf.keys, leaf.tails(), offset=offset, room=room)
    except Invalid:
        del leaf.keys[at], leaf.items[at]
        raise


def _split(branch: BranchNode, at: int, offset: int) -> BranchNode:
    """Return a branch that forks after the first `at` bytes of the prefix of `branch`, its only child so far."""
    above = BranchNode(branch.prefix[:at])
    label, branch.prefix = branch.prefix[at], branch.prefix[at + 1 :]
    above.attach(label, branch, offset)
    return above


def _add(branch: BranchNode, rest: bytes, tail: bytes, offset: int) -> None:
    """Add an entry whose key continues with `rest` after the prefix of `branch`, where no child or entry is."""
    if rest:
        branch.attach(rest[0], Leaf([rest[1:]], [make_item(rest[1:], tail)]), offset)
    else:
        branch.end = tail
        branch.add(1, 0)


def _delete(node: Node, key: bytes, offset: int) -> bool:
    """Take the entry with this key out of `node`; False if it is not there."""
    if isinstance(node, Leaf):
        at = bisect_left(node.keys, key[offset:])
        if at == len(node.keys) or node.keys[at] != key[offset:]:
            return False
        del node.keys[at], node.items[at]
        node.fit = None
        return True
    if node.end is None or key[offset:] != node.prefix:
        return False
    node.end = None
    node.add(-1, 0)
    return True


def _clear(node: Node, rest: bytes, offset: int) -> tuple[Node, int, int]:
    """Return what is left of `node` without the keys that start with `rest`; how many went, and their bytes."""
    if isinstance(node, BranchNode):
        if not node.prefix.startswith(rest):
            return node, 0, 0
        return Leaf([], []), *node.weigh(offset)
    low = bisect_left(node.keys, rest)
    high = next(
        (at for at in range(low, len(node.keys)) if not node.keys[at].startswith(rest)), len(node.keys)
    )
    gone_bytes = sum(map(len, node.keys[low:high])) + offset * (high - low)
    del node.keys[low:high], node.items[low:high]
    node.fit = None
    return node, high - low, gone_bytes


def _without_child(trail: _Trail, above: bytes, gone_height: int) -> tuple[BranchNode, bytes, int]:
    """Remove the last child on the path, which is empty; return its parent, the parent's place and old height."""
    branch, offset, label = trail.pop()
    was = branch.height
    branch.detach(label)
    if was == gone_height + 1 and branch.labels:
        branch.measure()
    return branch, above[:offset], was


def _raise_heights(trail: _Trail, height: int) -> None:
    for branch, _, _ in reversed(trail):
        height += 1
        if branch.height >= height:
            break
        branch.height = height


def _lower_heights(trail: _Trail, was: int, now: int) -> None:
    """Correct the heights on the path after a child's height has changed."""
    for branch, _, _ in reversed(trail):
        if was == now or branch.height != was + 1:
            break
        was = branch.height
        branch.measure()
        now = branch.height


class Tree:
    """The map with one root.  It never changes; reading it reads only the nodes on the path."""

    __slots__ = ("reader", "root")

    def __init__(self, nodes: Nodes, root: Digest = EMPTY, *, cache: NodeCache | None = None) -> None:
        """Read by `nodes`; the maps of a store should share one `cache`.  None: the tree makes its own."""
        self.reader = Reader(nodes, NodeCache() if cache is None else cache)
        self.root = root

    @property
    def top(self) -> Node:
        """The node at the root."""
        return self.reader.root(self.root)

    def count(self, prefix: str = "") -> int:
        """Return how many paths start with `prefix`, from the counts in the nodes."""
        return read.count(self.reader, self.top, prefix_of(prefix))

    def get(self, path: str) -> Entry | None:
        """Return the entry at `path`; None if there is none."""
        tail = read.find(self.reader, self.top, key_of(path))
        return None if tail is None else make_entry(path, tail)

    def get_many(self, paths: Iterable[str]) -> dict[str, Entry]:
        """Return the entries at those of `paths` that have one; each level of the tree is one read."""
        wanted = {key_of(path): path for path in paths}
        found = dict(read.find_many(self.reader, self.top, wanted))
        return {path: make_entry(path, found[key]) for key, path in wanted.items() if key in found}

    def entries(self, prefix: str = "", *, after: str | None = None) -> Iterator[Entry]:
        """Yield the entries whose paths start with `prefix`, in the order of their bytes, read as they are asked for.

        `after` starts behind that path, whether or not it is there; None starts at the first.
        """
        start = prefix_of(prefix)
        low = start if after is None else max(start, prefix_of(after) + b"\0")
        for key, tail in read.scan(self.reader, self.top, prefix=start, low=low):
            yield make_entry(path_of(key), tail)

    def edit(self) -> MapDraft:
        """Return a draft that begins as this map."""
        return MapDraft(self.reader, self.root)


def build(entries: Iterable[Entry]) -> tuple[Digest, tuple[Object, ...]]:
    """Return the root of the map of `entries`, which come in any order, and its nodes, children before parents.

    Raises `Invalid` if a path is given twice, or if the map would be too deep.
    """
    tails: dict[bytes, bytes] = {}
    for entry in entries:
        key = key_of(entry.path)
        if key in tails:
            raise Invalid(
                f"path {entry.path[:60]!r} is given twice; nothing was written.",
                code="path_repeated",
                path=entry.path,
            )
        tails[key] = make_tail(entry)
    keys = sorted(tails)
    sealed = seal(grow(keys, [tails[key] for key in keys]), 0)
    objects = {thing.digest: thing for thing, _ in sealed}
    root = sealed[-1][0].digest
    return root, () if root == EMPTY else tuple(objects.values())


def grow(keys: Sequence[bytes], tails: Sequence[bytes], *, offset: int = 0, room: int = BRANCHES_MAX) -> Node:
    """Return the node for sorted entries whose keys have `offset` bytes above them.

    Raises `Invalid` if a path would lead through more than `room` branches.
    """
    try:
        return _Growth(keys, tails, offset).node(0, len(keys), 0, room)
    except _TooDeep:
        raise _too_deep() from None


def seal(node: Node, offset: int) -> list[tuple[Object, Node]]:
    """Return all nodes under edit from `node` down as objects, children before parents; `node` itself is the last."""
    sealed: list[tuple[Object, Node]] = []
    _seal(node, offset, sealed)
    return sealed


def _shared(one: bytes, other: bytes) -> int:
    """Return how many bytes the two have in common at the start."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(at for at in range(length) if one[at] != other[at])


def _too_deep() -> Invalid:
    """Return the refusal of a map whose paths branch too often."""
    return Invalid(
        f"these paths share their beginnings in more than {BRANCHES_MAX} nested ways, "
        "which no map can hold; nothing was written.",
        code="map_too_deep",
        advice="Use fewer paths that extend each other.",
        limit=BRANCHES_MAX,
    )


def _seal(node: Node, offset: int, sealed: list[tuple[Object, Node]]) -> tuple[Digest, bytes]:
    if type(node) is BranchNode:
        below = offset + len(node.prefix) + 1
        for label, child in node.opened.items():
            digest, child_tally = _seal(child, below, sealed)
            node.records[node.labels.find(label)] = make_record(label, digest, child_tally)
        node.opened = {}
    body = encode(node)
    digest = digest_of(Kind.NODE, body)
    fit = node.fit
    if fit is None or fit[0] != offset:
        node.fit = fit = offset, tally(node, offset)
    node.digest = digest
    sealed.append((Object(Kind.NODE, digest, body, node.base), node))
    return digest, fit[1]


class _TooDeep(Exception):
    """Another branch would be too deep; `grow` turns it into `Invalid` without this traceback."""


class _Growth:
    """Makes nodes from sorted entries."""

    def __init__(self, keys: Sequence[bytes], tails: Sequence[bytes], offset: int) -> None:
        self._keys = keys
        self._tails = tails
        self._sums = list(accumulate((len(key) + offset for key in keys), initial=0))

    def node(self, low: int, high: int, at: int, room: int) -> Node:
        """Return the node for the entries from `low` to `high`, whose keys are consumed up to `at`."""
        if is_leaf(high - low, self._sums[high] - self._sums[low]):
            return self._leaf(low, high, at)
        if not room:
            raise _TooDeep
        return self._branch(low, high, at, room - 1)

    def _leaf(self, low: int, high: int, at: int) -> Leaf:
        keys = [key[at:] for key in self._keys[low:high]]
        return Leaf(keys, list(map(make_item, keys, self._tails[low:high])))

    def _branch(self, low: int, high: int, at: int, room: int) -> BranchNode:
        first, last = self._keys[low], self._keys[high - 1]
        fork = at + _shared(first[at:], last[at:])
        branch = BranchNode(first[at:fork])
        branch.count, branch.below = high - low, self._sums[high] - self._sums[low]
        if len(first) == fork:
            branch.end = self._tails[low]
            branch.below -= self._sums[low + 1] - self._sums[low]
            low += 1
        while low < high:
            label, until = self._keys[low][fork], self._until(low, high, fork)
            child = self.node(low, until, fork + 1, room)
            branch.labels += bytes((label,))
            branch.records.append(b"")
            branch.opened[label] = child
            branch.height = max(branch.height, child.height + 1)
            low = until
        return branch

    def _until(self, low: int, high: int, at: int) -> int:
        """Return where the keys that have the same byte at `at` as the one at `low` end."""
        key = self._keys[low]
        if key[at] == 0xFF:
            return high
        return bisect_left(self._keys, key[:at] + bytes((key[at] + 1,)), low, high)
