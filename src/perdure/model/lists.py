"""Stores a long JSON list by element: pieces of it, and nodes that name them.

A list that is the whole value of a path is stored by element if its canonical JSON has at least `LIST_BYTES_MIN` bytes, it
has at least two elements and none of them has more than `ITEM_BYTES_MAX` bytes.  Any other value is stored whole.

A *piece* is an object of kind `value`: the canonical bytes of consecutive elements, each followed by a comma.  A *list node* is
an object of kind `list`:

    one byte height   { 32 bytes digest, u32 elements, u32 bytes } …

Height 0 names pieces, height n names nodes of height n - 1.  The elements and bytes of a child are those of all pieces below it.
The digest of the one node at the top is what the map names.

Where a piece ends depends on the elements alone, and where a node ends on the digests of its children alone:

    piece   it has 4,096 bytes or more, or it has 512 and the CRC-32 of its last element, over 2³², is below
            the bytes of that element with its comma, over 2,048
    node    it has 128 children, or it has 8 and the digest of the last begins with less than hex 08

So one list has one tree whatever the edits that led to it, and an edit changes the pieces near it and the nodes above
these.  A piece ends more often the longer its elements are, so that pieces have about 2 KiB whatever the elements are.

These numbers are part of every digest of a long list.  They cannot change without a new kind.

Decoding trusts nothing.  Bytes that do not fit what is said of them raise `Corrupt`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import lt
from typing import NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from perdure.errors import Corrupt
from perdure.model.digest import Digest, Kind, Object

__all__ = [
    "ITEM_BYTES_MAX",
    "LIST_BYTES_MIN",
    "ListChild",
    "Fetch",
    "ListNode",
    "StoredList",
    "append",
    "build",
    "check_child",
    "decode_node",
    "new_objects",
    "read",
    "reachable",
]

LIST_BYTES_MIN = 4_096  # a shorter list costs no more than the last piece and its node
ITEM_BYTES_MAX = 1024 * 1024

_BYTES_MAX = 2**32 - 1

_PIECE_BYTES_MIN, _PIECE_BYTES_MAX = 512, 4_096
_PER_BYTE = 2**32 // 2_048
_NODE_MIN, _NODE_MAX, _NODE_ENDS_BELOW = 8, 128, "08"
_HEIGHT_MAX = 32
_BATCH = 500  # objects that are read together

_CHILD = struct.Struct(">32sII")
_items = msgspec.json.Decoder(list[msgspec.Raw])

Fetch: TypeAlias = Callable[[Sequence[Digest]], Sequence[Object]]
"""Returns the objects of these digests, in order."""


class ListChild(NamedTuple):
    """A piece or a node, as the node above it names it."""

    digest: Digest
    items: int
    size: int  # bytes of all pieces below it: of each element, with its comma


class ListNode(NamedTuple):
    """A list node."""

    height: int
    children: list[ListChild]


class _LastNode(NamedTuple):
    """A list node as an append needs it: its last child, and the sums over all of them."""

    digest: Digest
    body: bytes
    height: int
    last: ListChild
    items: int
    size: int


class StoredList(NamedTuple):
    """The tree of a list: what the map names, and objects of the tree, the node at the top last."""

    top: ListChild
    objects: dict[Digest, Object]

    @property
    def json_bytes(self) -> int:
        """The size of the list as JSON."""
        return self.top.size + 1  # two brackets, and no comma at the end


def build(body: bytes) -> StoredList | None:
    """Return the whole tree of the list whose canonical bytes are `body`; None: it is stored whole."""
    if not LIST_BYTES_MIN <= len(body) <= _BYTES_MAX or body[:1] != b"[":
        return None
    items = _items.decode(body)
    if len(items) < 2 or max(map(len, items)) > ITEM_BYTES_MAX:  # pyright: ignore[reportArgumentType]
        return None
    objects: dict[Digest, Object] = {}
    return StoredList(_top(_pieces(items, objects), 0, objects), objects)


def append(fetch: Fetch, top: Object, item: bytes) -> StoredList | None:
    """Return the list with one more element, given in canonical bytes, with the objects that are new.

    Reads the last node of each level and the last piece.  None: the list with this element is stored whole.
    """
    end = _last_node(top)
    if len(item) > ITEM_BYTES_MAX or end.size + len(item) >= _BYTES_MAX:
        return None
    path = [end]
    while end.height:
        above, end = end, _last_node(fetch((end.last.digest,))[0])
        if (end.height, end.items, end.size) != (above.height - 1, above.last.items, above.last.size):
            raise _unsound(f"list node {end.digest} is not what the node above it says")
        path.append(end)
    piece = fetch((end.last.digest,))[0]
    objects: dict[Digest, Object] = {}
    children = _pieces([*_elements(end.last, piece), item], objects, base=end.last.digest)
    for node in reversed(path):
        children = _nodes(children, node.height, objects, after=node)
    new = children[0] if len(children) == 1 else _top(children, path[0].height + 1, objects)
    for digest in (piece.digest, *[node.digest for node in path]):
        objects.pop(digest, None)
    return StoredList(new, objects)


def read(fetch: Fetch, top: Object) -> bytes:
    """Return the canonical bytes of the list; raises `Corrupt` if its tree is not sound."""
    level = [_node(top)]
    while level[0].height:
        found = _fetched(fetch, (child.digest for node in level for child in node.children))
        level = [_child_node(node, child, found[child.digest]) for node in level for child in node.children]
    found = _fetched(fetch, (child.digest for node in level for child in node.children))
    for node in level:
        for child in node.children:
            check_child(node, child, found[child.digest])
    whole = b"".join([found[child.digest].body for node in level for child in node.children])
    return b"[%b]" % whole[:-1]


def new_objects(fetch: Fetch, new: StoredList, old: Object) -> tuple[Object, ...]:
    """Return the objects of `new` that the list `old` does not have; nodes that both have are not read.

    Each is based on an object that only `old` has and that is at about the same place.
    """
    left = dict(new.objects)
    gone: list[list[Digest]] = []  # by height; pieces first
    level = [(old.digest, _node(old))] if old.digest not in left else []
    _discard(left, old.digest)
    while level:
        gone.insert(0, [digest for digest, _ in level])
        lost = [
            child.digest
            for _, node in level
            for child in node.children
            if not _discard(left, child.digest) and child.digest not in new.objects
        ]
        if not level[0][1].height:
            gone.insert(0, lost)
            break
        found = _fetched(fetch, lost)
        level = [(digest, _node(found[digest])) for digest in lost]
    return tuple(_based(left.values(), gone))


def reachable(top: Digest, objects: Iterable[Object]) -> tuple[Object, ...]:
    """Return those of `objects` that the list of that digest needs, in their order."""
    known = {bytes.fromhex(each.digest): each for each in objects}
    needed: set[bytes] = set()
    left = {bytes.fromhex(top)} & known.keys()
    while left:
        needed |= left
        nodes = [known[each].body for each in left if known[each].kind is Kind.LIST]
        named = {digest for body in nodes for digest, _, _ in _CHILD.iter_unpack(body[1:])}
        left = (named & known.keys()) - needed
    return tuple([each for digest, each in known.items() if digest in needed])


def decode_node(body: bytes) -> ListNode:
    """Return the list node that `body` holds; raises `Corrupt` if it holds none."""
    if len(body) < 1 + _CHILD.size or len(body) % _CHILD.size != 1 or body[0] > _HEIGHT_MAX:
        raise _unsound("a list node has a length or a height that no list node has")
    children = [
        ListChild(Digest(digest.hex()), items, size) for digest, items, size in _CHILD.iter_unpack(body[1:])
    ]
    if len(children) > _NODE_MAX or not all([0 < items < size for _, items, size in children]):
        raise _unsound("a list node has too many children, or one without elements")
    return ListNode(body[0], children)


def check_child(node: ListNode, child: ListChild, found: Object) -> list[bytes]:
    """Return the elements of a piece, nothing for a node below `node`; raises `Corrupt` if it is not what `child` says."""
    if node.height:
        _child_node(node, child, found)
        return []
    return _elements(child, found)


def _elements(child: ListChild, found: Object) -> list[bytes]:
    """Return the elements of a piece; raises `Corrupt` if it is not what `child` says."""
    if found.kind is not Kind.VALUE or len(found.body) != child.size or found.body[-1:] != b",":
        raise _unsound(f"piece {found.digest} of a list is not what its node says")
    try:
        items = [bytes(item) for item in _items.decode(b"[%b]" % found.body[:-1])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unsound(f"piece {found.digest} of a list cannot be read ({error})") from error
    if len(items) != child.items:
        raise _unsound(f"piece {found.digest} of a list has {len(items)} elements, not {child.items}")
    return items


def _pieces(
    items: Sequence[bytes | msgspec.Raw], objects: dict[Digest, Object], base: Digest | None = None
) -> list[ListChild]:
    """Cut elements into pieces; the first is based on `base`."""
    pieces: list[ListChild] = []
    start = size = 0
    for at, item in enumerate(items, 1):
        length = len(item) + 1  # pyright: ignore[reportArgumentType]
        size += length
        if (
            at == len(items)
            or size >= _PIECE_BYTES_MAX
            or (size >= _PIECE_BYTES_MIN and crc32(item) < length * _PER_BYTE)
        ):
            piece = Object.of(Kind.VALUE, b",".join(items[start:at]) + b",", base=None if pieces else base)
            objects[piece.digest] = piece
            pieces.append(ListChild(piece.digest, at - start, size))
            start, size = at, 0
    return pieces


def _nodes(
    children: Sequence[ListChild],
    height: int,
    objects: dict[Digest, Object],
    *,
    after: _LastNode | None = None,
) -> list[ListChild]:
    """Put children into nodes of that height; the first of them takes the place of the last child of `after`."""
    nodes: list[ListChild] = []
    body, items, size = bytes((height,)), 0, 0
    if after is not None:
        body, items, size = (
            after.body[: -_CHILD.size],
            after.items - after.last.items,
            after.size - after.last.size,
        )
    count, base = len(body) // _CHILD.size, None if after is None else after.digest
    for at, child in enumerate(children, 1):
        body += _CHILD.pack(bytes.fromhex(child.digest), child.items, child.size)
        count, items, size = count + 1, items + child.items, size + child.size
        if (
            at == len(children)
            or count == _NODE_MAX
            or (count >= _NODE_MIN and child.digest < _NODE_ENDS_BELOW)
        ):
            node = Object.of(Kind.LIST, body, base=base)
            objects[node.digest] = node
            nodes.append(ListChild(node.digest, items, size))
            body, count, items, size, base = bytes((height,)), 0, 0, 0, None
    return nodes


def _top(children: Sequence[ListChild], height: int, objects: dict[Digest, Object]) -> ListChild:
    """Add levels of nodes from that height on, until one node is left."""
    children = _nodes(children, height, objects)
    while len(children) > 1:
        height += 1
        children = _nodes(children, height, objects)
    return children[0]


def _node(found: Object) -> ListNode:
    if found.kind is not Kind.LIST:
        raise _unsound(f"{found.kind} {found.digest} is where a list node belongs")
    return decode_node(found.body)


def _last_node(found: Object) -> _LastNode:
    """Return a list node without decoding all of its children; raises `Corrupt` if it is none, or if it ends too late."""
    body = found.body
    count = len(body) // _CHILD.size
    if found.kind is not Kind.LIST or not 0 < count <= _NODE_MAX or len(body) % _CHILD.size != 1:
        _node(found)  # which says what is wrong
    counts = struct.unpack_from(">" + "32xII" * count, body, 1)
    items, sizes = counts[::2], counts[1::2]
    firsts = body[
        1 + _CHILD.size * (_NODE_MIN - 1) : -_CHILD.size : _CHILD.size
    ]  # of those that may end a node
    is_over = min(firsts, default=255) < bytes.fromhex(_NODE_ENDS_BELOW)[0]
    if body[0] > _HEIGHT_MAX or not min(items) or not all(map(lt, items, sizes)) or is_over:
        _node(found)
        raise _unsound(f"list node {found.digest} has children beyond its end")
    last = ListChild(Digest(body[-_CHILD.size : -8].hex()), items[-1], sizes[-1])
    return _LastNode(found.digest, body, body[0], last, sum(items), sum(sizes))


def _child_node(above: ListNode, child: ListChild, found: Object) -> ListNode:
    node = _node(found)
    counted = sum([each.items for each in node.children]), sum([each.size for each in node.children])
    if node.height != above.height - 1 or counted != (child.items, child.size):
        raise _unsound(f"list node {found.digest} is not what the node above it says")
    return node


def _fetched(fetch: Fetch, digests: Iterable[Digest]) -> Mapping[Digest, Object]:
    wanted = list(dict.fromkeys(digests))
    found: dict[Digest, Object] = {}
    for start in range(0, len(wanted), _BATCH):
        found.update({each.digest: each for each in fetch(wanted[start : start + _BATCH])})
    return found


def _discard(left: dict[Digest, Object], digest: Digest) -> bool:
    """Take an object, and everything below it, out of `left`; return whether it was there."""
    found = left.pop(digest, None)
    if found is None:
        return False
    if found.kind is Kind.LIST:
        for child in decode_node(found.body).children:
            _discard(left, child.digest)
    return True


def _based(objects: Iterable[Object], gone: Sequence[Sequence[Digest]]) -> Iterable[Object]:
    """Yield the objects, which are sorted by height, each based on the one that it replaces, as far as there is one."""

    def height(each: Object) -> int:
        return 1 + each.body[0] if each.kind is Kind.LIST else 0

    for level, group in groupby(objects, height):
        bases = iter(gone[level] if level < len(gone) else ())
        for each in group:
            yield msgspec.structs.replace(each, base=next(bases, None))


def _unsound(what: str) -> Corrupt:
    return Corrupt(f"{what}; it was not returned.", code="list_unsound", advice="Run `perdure verify`.")
