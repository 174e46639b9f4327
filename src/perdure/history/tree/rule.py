"""The rule: which shape a set of entries takes.

The shape of the map is a pure function of its entries, so the same content has the same
root whatever the order of the writes that led to it.

An entry weighs 48 plus the bytes of its *full* key, wherever it stands in the tree.  A set
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

from perdure.model.names import PATH_BYTES_MAX

__all__ = ["BRANCHES_MAX", "ENTRY_WEIGHT", "KEY_BYTES_MAX", "LEAF_WEIGHT_MAX", "is_leaf"]

ENTRY_WEIGHT = 48
LEAF_WEIGHT_MAX = 2_048
BRANCHES_MAX = 64
KEY_BYTES_MAX = PATH_BYTES_MAX


def is_leaf(count: int, key_bytes: int) -> bool:
    """Whether `count` entries whose full keys have `key_bytes` bytes in all are a leaf."""
    return count <= 1 or ENTRY_WEIGHT * count + key_bytes <= LEAF_WEIGHT_MAX
