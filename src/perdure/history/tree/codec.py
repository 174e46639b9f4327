"""The bytes of nodes.

    leaf      10  varint entries   { varint key length, key, tail } …
    branch    11  varint prefix length * 2, plus 1 if an entry ends there
                  prefix   [ tail of that entry ]
                  varint children   { record } …

    record    the byte that comes next, 32 bytes digest of the child, tally of the child
    tally     varint entries, varint bytes of their full keys, and
              if they are not a leaf: one byte, the branches on the longest path from there

The first byte is format and shape in one.  Keys in a leaf and bytes of the children stand in
strictly rising order.  From a tally a reader knows what is below without reading it: the
weight, so that the rule can be followed upwards after a deletion, and the height, so that a
map too deep is refused before anything is written.

Decoding trusts nothing.  Bytes that `encode` would not have produced raise `Corrupt`; what
can only be judged from above (the weights) is the reader's to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import lt
from typing import cast

from perdure.errors import Corrupt
from perdure.history.tree.entry import tail_end
from perdure.history.tree.node import TALLY_AT, Branch, Leaf, Node
from perdure.history.tree.rule import BRANCHES_MAX, ENTRY_WEIGHT, KEY_BYTES_MAX, LEAF_WEIGHT_MAX
from perdure.history.tree.varint import read_varint, varint

__all__ = ["decode", "encode"]

_LEAF, _BRANCH = 0x10, 0x11


def encode(node: Node) -> bytes:
    """The bytes of `node`, none of whose children is under edit."""
    if isinstance(node, Leaf):
        return b"\x10" + varint(len(node.items)) + b"".join(node.items)
    head = varint(len(node.prefix) * 2 + (node.end is not None)) + node.prefix + (node.end or b"")
    return b"\x11" + head + varint(len(node.records)) + b"".join(node.records)


def decode(body: bytes) -> Node:
    """The node whose bytes these are; raises `Corrupt` for any other bytes."""
    try:
        node, end = _decode(body)
    except IndexError:
        end = -1
        node = None
    if node is None or end != len(body):
        raise Corrupt("a node ends too early or too late")
    return node


def _decode(body: bytes) -> tuple[Node, int]:
    match body[0]:
        case 0x10:
            return _decode_leaf(body)
        case 0x11:
            return _decode_branch(body)
        case other:
            raise Corrupt(f"a node has the unknown format {other:#04x}")


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
        raise Corrupt("the keys of a leaf are out of order or too long")
    return Leaf(keys, items), at


def _decode_branch(body: bytes) -> tuple[Branch, int]:
    number, at = read_varint(body, 1)
    branch = Branch(body[at : at + (number >> 1)])
    at += number >> 1
    if number & 1:
        start, at = at, tail_end(body, at)
        branch.end, branch.count = body[start:at], 1
    children, at = read_varint(body, at)
    at = _decode_records(branch, children, body, at)
    if not _rises(branch.labels) or children + (number & 1) < 2 or not children:
        raise Corrupt("the children of a branch are out of order or too few")
    if len(branch.prefix) > KEY_BYTES_MAX or branch.height > BRANCHES_MAX:
        raise Corrupt("a branch is too long or too deep")
    return branch, at


def _decode_records(branch: Branch, children: int, body: bytes, at: int) -> int:
    """Add the children whose records start at `at` to `branch`; where the last one ends."""
    total = below = tallest = 0
    for _ in range(children):
        start = at
        count, at = read_varint(body, at + TALLY_AT)
        key_bytes, at = read_varint(body, at)
        if not 0 < count * KEY_BYTES_MAX >= key_bytes:
            raise Corrupt("a branch has a child that cannot be")
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
        raise Corrupt("a branch has a child of no height")
    return number


def _rises(items: Sequence[bytes] | bytes) -> bool:
    """Whether each item is greater than the one before it."""
    return all(map(lt, items, islice(cast("Sequence[bytes]", items), 1, None)))
