"""The bytes of nodes: one encoding for each node, and `Corrupt` for all other bytes."""

from __future__ import annotations

import pytest

from perdure.errors import Corrupt, Invalid
from perdure.history.tree.encoding import (
    BranchNode,
    Entry,
    Leaf,
    decode,
    encode,
    make_entry,
    make_item,
    make_record,
    make_tail,
    read_varint,
    varint,
)
from perdure.model.digest import Digest
from tests.coded import raises
from tests.history.tree.maps import blob, entry

TAIL = make_tail(entry("/a"))
CHILD = Digest("ab" * 32)
LIGHT = varint(3) + varint(30)
HEAVY = varint(50) + varint(500)


def leaf(*keys: bytes) -> bytes:
    """The bytes of a leaf with these keys, in this order."""
    return b"\x10" + varint(len(keys)) + b"".join(make_item(key, TAIL) for key in keys)


def branch(*records: bytes, prefix: bytes = b"/a") -> bytes:
    """The bytes of a branch with these records, in this order."""
    return b"\x11" + varint(len(prefix) * 2) + prefix + varint(len(records)) + b"".join(records)


def record(label: int, told: bytes = LIGHT) -> bytes:
    """A record of a child."""
    return make_record(label, CHILD, told)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 2**31, 2**56, 2**63 - 1])
def test_a_number_comes_back_from_its_bytes(number: int) -> None:
    """From one byte to nine."""
    body = varint(number)

    assert read_varint(b"x" + body + b"y", 1) == (number, 1 + len(body))


@pytest.mark.parametrize("body", [b"\x80\x00", b"\xff\x80\x00", b"\x80" * 9 + b"\x01"])
def test_a_number_has_one_encoding(body: bytes) -> None:
    """Longer than it need be, or longer than 63 bits."""
    with raises(Corrupt, "node_malformed"):
        read_varint(body, 0)


@pytest.mark.parametrize("body", [b"", b"\x80", b"\xff\xff"])
def test_a_number_that_is_cut_off_runs_past_the_end(body: bytes) -> None:
    """What `decode` turns into `Corrupt`."""
    with pytest.raises(IndexError):
        read_varint(body, 0)


@pytest.mark.parametrize("given", [entry("/a"), entry("/a", 10**9), blob("/a"), blob("/a", "ü" * 63, 0)])
def test_an_entry_comes_back_from_its_tail(given: Entry) -> None:
    """JSON and bytes, small and large."""
    assert make_entry("/a", make_tail(given)) == given


def test_a_json_entry_spends_nothing_on_its_media_type() -> None:
    """Two bytes of size and the digest."""
    assert len(make_tail(entry("/a"))) == 2 + 32


@pytest.mark.parametrize(
    "given",
    [
        Entry("/a", "json", "text/json", 1, CHILD),
        Entry("/a", "bytes", "", 1, CHILD),
        Entry("/a", "bytes", "x" * 128, 1, CHILD),
        Entry("/a", "bytes", "\ud800", 1, CHILD),
        Entry("/a", "json", "application/json", -1, CHILD),
        Entry("/a", "json", "application/json", 2**63, CHILD),
        Entry("/a", "json", "application/json", 1, Digest(CHILD.upper())),
        Entry("/a", "json", "application/json", 1, Digest(CHILD[:-2])),
        Entry("/a", "json", "application/json", 1, Digest("not hex")),
    ],
)
def test_an_entry_that_breaks_a_rule_is_refused(given: Entry) -> None:
    """Nothing that could not be read back is written."""
    with raises(Invalid, "entry_invalid", path=given.path):
        make_tail(given)


def test_a_leaf_comes_back_from_its_bytes() -> None:
    """Keys of any length, the empty one included."""
    keys = [b"", b"a", b"b" * 130]

    node = decode(leaf(*keys))

    assert isinstance(node, Leaf)
    assert (node.keys, node.tails()) == (keys, [TAIL] * 3)


def test_a_branch_comes_back_from_its_bytes() -> None:
    """Its numbers are those of its children, and its own end entry."""
    body = b"\x11" + varint(5) + b"/a" + TAIL + varint(2) + record(0x30) + record(0x31, HEAVY + b"\x04")

    node = decode(body)

    assert isinstance(node, BranchNode)
    assert (node.prefix, node.end, node.labels) == (b"/a", TAIL, b"01")
    assert (node.weigh(10), node.height, encode(node)) == ((54, 542), 5, body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x12\x00", id="unknown shape"),
        pytest.param(b"\x20\x00", id="unknown format"),
        pytest.param(leaf(b"b", b"a"), id="keys out of order"),
        pytest.param(leaf(b"a", b"a"), id="key twice"),
        pytest.param(leaf(b"a" * 513), id="key too long"),
        pytest.param(leaf(b"a") + b"\x00", id="bytes after a leaf"),
        pytest.param(leaf(b"a")[:-1], id="leaf cut off"),
        pytest.param(b"\x10" + varint(2**62), id="more entries than bytes"),
        pytest.param(b"\x10\x81\x00" + make_item(b"a", TAIL), id="count longer than need be"),
        pytest.param(b"\x10\x01\x01a\x80\x00" + b"0" * 32, id="size longer than need be"),
        pytest.param(b"\x10\x01\x01a\x01\x02\xff\xfe" + b"0" * 32, id="media type that is not text"),
        pytest.param(b"\x10\x01\x01a\x01\x00" + b"0" * 32, id="media type that is empty"),
        pytest.param(branch(), id="no children"),
        pytest.param(branch(record(0x30)), id="one child and no end"),
        pytest.param(branch(record(0x31), record(0x30)), id="children out of order"),
        pytest.param(branch(record(0x30), record(0x30)), id="child twice"),
        pytest.param(branch(record(0x30), record(0x31, b"\x00\x00")), id="child without entries"),
        pytest.param(
            branch(record(0x30), record(0x31, b"\x01\x81\x04")), id="more key bytes than keys can have"
        ),
        pytest.param(branch(record(0x30), record(0x31, HEAVY)), id="heavy child without height"),
        pytest.param(branch(record(0x30), record(0x31, HEAVY + b"\x00")), id="heavy child of no height"),
        pytest.param(branch(record(0x30), record(0x31, HEAVY + b"\x40")), id="too deep"),
        pytest.param(branch(record(0x30), record(0x31, LIGHT + b"\x01")), id="light child with height"),
        pytest.param(branch(record(0x30), record(0x31), prefix=b"a" * 513), id="prefix too long"),
        pytest.param(branch(record(0x30), record(0x31))[:-1], id="branch cut off"),
        pytest.param(branch(record(0x30), record(0x31)) + b"\x00", id="bytes after a branch"),
    ],
)
def test_bytes_that_no_node_has_are_corrupt(body: bytes) -> None:
    """Hostile bytes raise one error, whatever is wrong with them."""
    with pytest.raises(Corrupt):
        decode(body)
