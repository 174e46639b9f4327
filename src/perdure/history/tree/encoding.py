"""Encodes and decodes the nodes of a map, and decides the shape of the tree.

The bytes of a node:

    leaf      10  varint entries   { varint key length, key, tail } …
    branch    11  varint prefix length * 2, plus 1 if an entry ends there
                  prefix   [ tail of that entry ]
                  varint children   { record } …

    record    the byte that comes next, 32 bytes digest of the child, tally of the child
    tally     varint entries, varint bytes of their full keys, and
              if they are not a leaf: one byte, the branches on the longest path from there

The first byte is format and shape in one.  Keys in a leaf and bytes of the children are in
strictly rising order.  A tally tells a reader what is below without reading it: the weight, so
that the rule can be followed upwards after a deletion, and the height, so that a map too deep
is refused before anything is written.

Decoding trusts nothing.  Bytes that `encode` would not have produced raise `Corrupt`.  The
weights can only be judged from above; `read` checks them.

In a node an entry is its key followed by its *tail*:

    varint   size * 2, plus 1 for bytes
    if bytes: varint length and UTF-8 of the media type
    32 bytes digest of the value

A JSON entry always has the media type `application/json`, so it is not written.  One entry
has one tail, so two entries at a path are equal exactly when their tails are.

A varint writes a whole number in as few bytes as it needs: seven bits a byte, lowest first.
Each number has one encoding: the decoder refuses a longer one, and one beyond 63 bits.

A node in memory holds its entries and children as ready-made bytes beside the sorted list that
finds them, so that changing one of them encodes only that one again.  A node that was read from
storage is shared and never altered; a draft alters its own copies.  A node's keys lack the bytes
that are above it in the tree; `offset` is how many bytes that is.

The rule decides which shape a set of entries takes.  The shape of the map is a pure function of its entries, so the same content has the same
root whatever the order of the writes that led to it.

An entry weighs 48 plus the bytes of its *full* key, wherever it is in the tree.  A set
that weighs at most 2,048 in all, or that has at most one entry, is a **leaf**: its entries
in the order of their keys.  Any other set is a **branch**: the longest prefix that all its
remaining keys share; the entry that ends exactly there, if any; and a child for each byte
that can come next.  That byte is consumed: the keys of a child start *after* it, and the
child follows the same rule on what is left of them.

So a leaf holds at most 41 entries, a branch at most 256 children, and no sequence of keys,
however hostile, can unbalance the tree further than `BRANCHES_MAX` branches on one path:
a map that would need more is refused.

These numbers are part of every root digest.  They cannot change without a new node format.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from operator import lt
from typing import ClassVar, Literal, TypeAlias, cast

import msgspec

from perdure.errors import Corrupt, Invalid
from perdure.model.digest import Digest
from perdure.model.names import PATH_BYTES_MAX
from perdure.model.patch import JSON_TYPE

__all__ = [
    "DIGEST_BYTES",
    "decode",
    "encode",
    "Entry",
    "key_of",
    "make_entry",
    "make_tail",
    "path_of",
    "prefix_of",
    "value_of",
    "read_varint",
    "varint",
    "TALLY_AT",
    "BranchNode",
    "Leaf",
    "Node",
    "make_item",
    "make_record",
    "tally",
    "BRANCHES_MAX",
    "KEY_BYTES_MAX",
    "is_leaf",
]


NUMBER_MAX = 2**63 - 1


def varint(number: int) -> bytes:
    """Return the bytes of `number`, which is not negative."""
    return _SMALL[number] if number < len(_SMALL) else _encode(number)


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Return the number that starts at `at`, and where it ends; raises `Corrupt`, or `IndexError` past the end."""
    first = body[at]
    if first < 0x80:
        return first, at + 1
    second = body[at + 1]
    if 0 < second < 0x80:
        return first & 0x7F | second << 7, at + 2
    return _read_long(body, at)


def _encode(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _read_long(body: bytes, at: int) -> tuple[int, int]:
    number, shift = body[at] & 0x7F, 7
    while True:
        at += 1
        group = body[at]
        number |= (group & 0x7F) << shift
        shift += 7
        if group < 0x80:
            break
        if shift > 56:
            raise _malformed("a number in a node is longer than 63 bits")
    if not group:
        raise _malformed("a number in a node is longer than necessary")
    return number, at + 1


def _malformed(what: str) -> Corrupt:
    return Corrupt(what, code="node_malformed")


_SMALL = tuple(_encode(number) for number in range(4_096))


ENTRY_WEIGHT = 48
LEAF_WEIGHT_MAX = 2_048
BRANCHES_MAX = 64
KEY_BYTES_MAX = PATH_BYTES_MAX


def is_leaf(count: int, key_bytes: int) -> bool:
    """True if `count` entries whose full keys have `key_bytes` bytes in all are a leaf."""
    return count <= 1 or ENTRY_WEIGHT * count + key_bytes <= LEAF_WEIGHT_MAX


MEDIA_TYPE_BYTES_MAX = 127
DIGEST_BYTES = 32


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One path of a map, and the value it holds by reference."""

    path: str  # the full path
    form: Literal["json", "bytes"]
    media_type: str
    size: int  # of the value, in bytes
    value: Digest


def key_of(path: str) -> bytes:
    """Return the key of `path`: its UTF-8 bytes; raises `Invalid` for what cannot be a key."""
    key = path.encode() if path.isascii() else prefix_of(path)
    if len(key) > KEY_BYTES_MAX:
        raise Invalid(
            f"path {path[:60]!r}… is longer than {KEY_BYTES_MAX} bytes; nothing was written.",
            code="path_too_long",
            limit=KEY_BYTES_MAX,
        )
    return key


def prefix_of(text: str) -> bytes:
    """Return the bytes that keys starting with `text` start with; raises `Invalid` if it is not text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            f"path {text[:60]!r} holds a lone surrogate; nothing was written.", code="lone_surrogate"
        ) from error


def path_of(key: bytes) -> str:
    """Return the path whose key this is; raises `Corrupt` if it is none."""
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(
            f"the map holds the key {key[:60]!r}, which is not text.",
            code="key_not_text",
            advice="Run `perdure verify`.",
            key=key,
        ) from error


def make_tail(entry: Entry) -> bytes:
    """Return the bytes that follow the key of `entry` in a node; raises `Invalid` if it breaks a rule."""
    try:
        value = bytes.fromhex(entry.value)
    except ValueError:
        value = b""
    if value.hex() != entry.value or len(value) != DIGEST_BYTES:
        raise _refused(entry, f"{entry.value!r} is not the digest of a value")
    if not 0 <= entry.size <= NUMBER_MAX // 2:
        raise _refused(entry, f"{entry.size} is not a size")
    if entry.form == "json":
        if entry.media_type != JSON_TYPE:
            raise _refused(entry, f"a JSON value has the media type {JSON_TYPE}, not {entry.media_type!r}")
        return varint(entry.size * 2) + value
    return varint(entry.size * 2 + 1) + _media_type(entry) + value


def make_entry(path: str, tail: bytes) -> Entry:
    """Return the entry at `path` whose tail this is."""
    number, at = read_varint(tail, 0)
    value = value_of(tail)
    if not number & 1:
        return Entry(path, "json", JSON_TYPE, number >> 1, value)
    _, start = read_varint(tail, at)
    return Entry(path, "bytes", tail[start:-DIGEST_BYTES].decode(), number >> 1, value)


def value_of(tail: bytes) -> Digest:
    """Return the value that an entry with this tail holds."""
    return Digest(tail[-DIGEST_BYTES:].hex())


def tail_end(body: bytes, at: int) -> int:
    """Return where the tail that starts at `at` ends; raises `Corrupt`, or `IndexError` past the end."""
    number, at = read_varint(body, at)
    if number & 1:
        length, at = read_varint(body, at)
        _check_media_type(body[at : at + length])
        at += length
    return at + DIGEST_BYTES


def _media_type(entry: Entry) -> bytes:
    try:
        text = entry.media_type.encode()
    except UnicodeEncodeError as error:
        raise _refused(entry, "its media type holds a lone surrogate") from error
    if not 1 <= len(text) <= MEDIA_TYPE_BYTES_MAX:
        raise _refused(entry, f"its media type has {len(text)} bytes, not 1 to {MEDIA_TYPE_BYTES_MAX}")
    return varint(len(text)) + text


def _check_media_type(text: bytes) -> None:
    try:
        fits = 1 <= len(text) <= MEDIA_TYPE_BYTES_MAX and text.decode()
    except UnicodeDecodeError:
        fits = False
    if not fits:
        raise _malformed(f"an entry has the media type {text[:60]!r}")


def _refused(entry: Entry, why: str) -> Invalid:
    return Invalid(
        f"the entry at {entry.path[:60]!r} cannot be stored: {why}; nothing was written.",
        code="entry_invalid",
        path=entry.path,
        why=why,
    )


TALLY_AT = 1 + DIGEST_BYTES  # in a record


class Leaf:
    """A few entries, in the order of their keys."""

    __slots__ = ("base", "digest", "fit", "items", "keys")
    height: ClassVar[int] = 0

    def __init__(self, keys: list[bytes], items: list[bytes]) -> None:
        """Hold entries by what is left of their keys; an item is an entry's bytes, key included."""
        self.keys = keys
        self.items = items
        self.digest: Digest | None = None  # None: not stored
        self.base: Digest | None = None  # the stored node that this one began as
        self.fit: tuple[int, bytes] | None = None  # an offset, and the tally there; None: not known

    def weigh(self, offset: int) -> tuple[int, int]:
        """Return the number of entries, and the bytes of their full keys."""
        count = len(self.keys)
        return count, sum(map(len, self.keys)) + count * offset

    def tail(self, suffix: bytes) -> bytes | None:
        """Return the tail of the entry with this key."""
        at = bisect_left(self.keys, suffix)
        if at == len(self.keys) or self.keys[at] != suffix:
            return None
        return _tail_of(self.items[at], suffix)

    def tails(self) -> list[bytes]:
        """Return the tails of all entries, in order."""
        return [_tail_of(item, key) for item, key in zip(self.items, self.keys, strict=True)]

    def copy(self) -> Leaf:
        """Return the same entries, for a draft to alter."""
        mine = Leaf(self.keys.copy(), self.items.copy())
        mine.base, mine.fit = self.digest, self.fit
        return mine


class BranchNode:
    """A fork in the keys: what they share, and a child for each byte that comes next."""

    __slots__ = (
        "base",
        "below",
        "count",
        "digest",
        "end",
        "fit",
        "height",
        "labels",
        "opened",
        "prefix",
        "records",
    )

    def __init__(self, prefix: bytes, end: bytes | None = None) -> None:
        """Begin without children; `end` is the tail of the entry whose key ends with `prefix`."""
        self.prefix = prefix
        self.end = end
        self.labels = b""
        self.records: list[bytes] = []
        self.opened: dict[int, Node] = {}  # children under edit, by label; their records are out of date
        self.count = 0 if end is None else 1
        self.below = 0  # bytes of the full keys of all children
        self.height = 1  # branches on the longest path from here, this one included
        self.digest: Digest | None = None
        self.base: Digest | None = None
        self.fit: tuple[int, bytes] | None = None

    def weigh(self, offset: int) -> tuple[int, int]:
        """Return the number of entries, and the bytes of their full keys."""
        return self.count, self.below + (0 if self.end is None else offset + len(self.prefix))

    def tail(self, rest: bytes) -> bytes | None:
        """Return the tail of the entry whose key ends here, where `rest` is the rest of the key; None if the key is longer."""
        return self.end if rest == self.prefix else None

    def attach(self, label: int, child: Node, offset: int) -> None:
        """Add a child under edit, with everything it holds; `offset` is this branch's own."""
        at = bisect_left(self.labels, label)
        self.labels = self.labels[:at] + bytes((label,)) + self.labels[at:]
        self.records.insert(at, b"")
        self.opened[label] = child
        self.add(*child.weigh(offset + len(self.prefix) + 1))
        self.height = max(self.height, child.height + 1)

    def add(self, count: int, key_bytes: int) -> None:
        """Count entries that were added below, or removed if the numbers are negative."""
        self.count += count
        self.below += key_bytes
        self.fit = None

    def detach(self, label: int) -> None:
        """Remove a child under edit that has no entries left."""
        at = self.labels.index(label)
        self.labels = self.labels[:at] + self.labels[at + 1 :]
        del self.records[at], self.opened[label]

    def measure(self) -> None:
        """Compute the height again from the heights of the children."""
        children = zip(self.labels, self.records, strict=True)
        self.height = 1 + max(
            self.opened[label].height if label in self.opened else _height_of(record)
            for label, record in children
        )

    def copy(self) -> BranchNode:
        """Return the same children, for a draft to alter."""
        mine = BranchNode(self.prefix, self.end)
        mine.labels, mine.records = self.labels, self.records.copy()
        mine.count, mine.below, mine.height = self.count, self.below, self.height
        mine.base, mine.fit = self.digest, self.fit
        return mine


Node: TypeAlias = Leaf | BranchNode


def make_item(suffix: bytes, tail: bytes) -> bytes:
    """Return the bytes of one entry in a leaf."""
    return varint(len(suffix)) + suffix + tail


def make_record(label: int, digest: Digest, child_tally: bytes) -> bytes:
    """Return the bytes by which a branch names one child."""
    return bytes((label,)) + bytes.fromhex(digest) + child_tally


def tally(node: Node, offset: int) -> bytes:
    """Return what the parent of `node` records about it: its weight and, if it is a branch, its height."""
    fit = node.fit  # once: other threads may look at the same node at another offset
    if fit is not None and fit[0] == offset:
        return fit[1]
    count, key_bytes = node.weigh(offset)
    height = bytes((node.height,)) if node.height else b""
    return varint(count) + varint(key_bytes) + height


def _height_of(record: bytes) -> int:
    count, at = read_varint(record, TALLY_AT)
    key_bytes, at = read_varint(record, at)
    return 0 if is_leaf(count, key_bytes) else record[at]


def _tail_of(item: bytes, key: bytes) -> bytes:
    return item[len(varint(len(key))) + len(key) :]


_LEAF, _BRANCH = 0x10, 0x11


def encode(node: Node) -> bytes:
    """Return the bytes of `node`, none of whose children is under edit."""
    if type(node) is Leaf:
        return b"\x10" + _SMALL[len(node.items)] + b"".join(node.items)
    assert isinstance(node, BranchNode)
    head = varint(len(node.prefix) * 2 + (node.end is not None)) + node.prefix + (node.end or b"")
    return b"\x11" + head + varint(len(node.records)) + b"".join(node.records)


def decode(body: bytes) -> Node:
    """Return the node whose bytes these are; raises `Corrupt` for any other bytes."""
    try:
        node, end = _decode(body)
    except IndexError:
        end = -1
        node = None
    if node is None or end != len(body):
        raise _malformed("a node ends too early or too late")
    return node


def _decode(body: bytes) -> tuple[Node, int]:
    match body[0]:
        case 0x10:
            return _decode_leaf(body)
        case 0x11:
            return _decode_branch(body)
        case other:
            raise _malformed(f"a node has the unknown format {other:#04x}")


def _decode_leaf(body: bytes) -> tuple[Leaf, int]:
    count, at = read_varint(body, 1)
    keys: list[bytes] = []
    items: list[bytes] = []
    for _ in range(count):
        start = at
        length = body[at]
        at += 1
        if length > 0x7F:
            length, at = read_varint(body, start)
        key, at = body[at : at + length], at + length
        # Most tails are JSON with a size of one or two bytes; stepping over those here halves the time.
        first = body[at]
        if not first & 1 and (first < 0x80 or 0 < body[at + 1] < 0x80):
            at += 33 if first < 0x80 else 34
        else:
            at = tail_end(body, at)
        keys.append(key)
        items.append(body[start:at])
    if not _rises(keys) or max(map(len, keys), default=0) > KEY_BYTES_MAX:
        raise _malformed("the keys of a leaf are out of order or too long")
    return Leaf(keys, items), at


def _decode_branch(body: bytes) -> tuple[BranchNode, int]:
    number, at = read_varint(body, 1)
    branch = BranchNode(body[at : at + (number >> 1)])
    at += number >> 1
    if number & 1:
        start, at = at, tail_end(body, at)
        branch.end, branch.count = body[start:at], 1
    children, at = read_varint(body, at)
    at = _decode_records(branch, children, body, at)
    if not _rises(branch.labels) or children + (number & 1) < 2 or not children:
        raise _malformed("the children of a branch are out of order or too few")
    if len(branch.prefix) > KEY_BYTES_MAX or branch.height > BRANCHES_MAX:
        raise _malformed("a branch is too long or too deep")
    return branch, at


def _decode_records(branch: BranchNode, children: int, body: bytes, at: int) -> int:
    """Add the children whose records start at `at` to `branch`; return where the last one ends."""
    total = below = tallest = 0
    for _ in range(children):
        start = at
        count, at = read_varint(body, at + TALLY_AT)
        key_bytes, at = read_varint(body, at)
        if not 0 < count * KEY_BYTES_MAX >= key_bytes:
            raise _malformed("a branch has a child that cannot be")
        if count > 1 and ENTRY_WEIGHT * count + key_bytes > LEAF_WEIGHT_MAX:
            tallest = max(tallest, _height(body[at]))
            at += 1
        branch.records.append(body[start:at])
        total += count
        below += key_bytes
    branch.labels = bytes([record[0] for record in branch.records])
    branch.count, branch.below, branch.height = branch.count + total, below, tallest + 1
    return at


def _height(number: int) -> int:
    if not number:
        raise _malformed("a branch has a child of no height")
    return number


def _rises(items: Sequence[bytes] | bytes) -> bool:
    """True if each item is greater than the one before it."""
    return all(map(lt, items, islice(cast("Sequence[bytes]", items), 1, None)))
