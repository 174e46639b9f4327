"""Packs: what goes into a row comes out of it, and damaged rows say so."""

from __future__ import annotations

import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.engines.shared_rules import difference
from perdure.engines.sqlite.format import pack, rows
from perdure.engines.sqlite.format.pack import (
    Op,
    PackForm,
    PackItem,
    buried,
    buried_of,
    decode_framed,
    decode_pack,
    deflated,
    encode_pack,
    joined,
    why_of,
)
from perdure.errors import Corrupt
from perdure.model.digest import Digest
from tests.coded import raises

if TYPE_CHECKING:
    from backports import zstd
elif sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_decompress = zstd.decompress


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_a_difference_gives_the_new_bytes_back(old: bytes, new: bytes) -> None:
    """Whatever the two are, the old bytes and the difference make the new ones."""
    head, tail, middle = difference(old, new)

    item = PackItem(0, PackForm.DIFFERENCE, middle, head=head, tail=tail)

    assert joined(old, item) == new


@given(st.binary(max_size=9_000), st.binary(max_size=9_000))
def test_what_was_deflated_comes_back(old: bytes, new: bytes) -> None:
    """Whatever the two are, the old bytes and the squeezed ones make the new ones."""
    item = PackItem(0, PackForm.DEFLATED, deflated(old, new))

    assert joined(old, item) == new


@given(st.binary(min_size=1, max_size=400), st.binary(max_size=400))
def test_what_cannot_be_inflated_is_corrupt(old: bytes, data: bytes) -> None:
    """Damaged bytes raise one error, or give others, which no digest fits."""
    with suppress(Corrupt):
        joined(old, PackItem(0, PackForm.DEFLATED, data))


@given(st.binary(min_size=40, max_size=400), st.integers(0, 39), st.binary(min_size=1, max_size=4))
def test_a_small_edit_makes_a_small_difference(old: bytes, at: int, patch: bytes) -> None:
    """Only what changed is kept."""
    new = old[:at] + patch + old[at + len(patch) :]

    _, _, middle = difference(old, new)

    assert len(middle) <= len(patch)


@pytest.mark.parametrize("size", [0, 100, 511, 512, 5_000])
def test_a_pack_comes_back_whatever_its_size(size: int) -> None:
    """Small packs are kept plain, larger ones compressed; both read the same."""
    op = Op(b"op", b"i" * 32, revisions=(1, 2), position=7, chain=b"c" * 32)

    found = decode_pack(encode_pack([(0, PackForm.WHOLE, b"x" * size)], op))

    assert found.items == (PackItem(0, PackForm.WHOLE, b"x" * size),)
    assert found.op == op


def test_objects_of_several_kinds_come_back_in_their_order() -> None:
    """Values are compressed together; nodes and commits stay beside them, readable without decompressing."""
    items = [(0, b"v" * 400), (1, b"n" * 900), (2, b"w" * 400), (4, b"c" * 900)]

    data = encode_pack([(kind, PackForm.WHOLE, body) for kind, body in items], None)

    assert decode_pack(data).items == tuple(PackItem(kind, PackForm.WHOLE, body) for kind, body in items)
    assert [(each.form, each.data) for each in decode_framed(data).items] == [
        (PackForm.FRAMED, b""),
        (PackForm.WHOLE, b"n" * 900),
        (PackForm.FRAMED, b""),
        (PackForm.WHOLE, b"c" * 900),
    ]


def test_a_pack_that_begins_with_another_byte_is_corrupt() -> None:
    """The checksum does not cover the first byte, so a reader compares it."""
    plain = encode_pack([(0, PackForm.WHOLE, b"x" * 500)], None)

    with raises(Corrupt, "row_damaged"):
        decode_pack(b"\x01" + plain[1:])


@pytest.mark.parametrize(
    ("sizes", "frame"),
    [((600,), b"no frame"), ((600, 1), zstd.compress(b"x" * 600)), ((599,), zstd.compress(b"x" * 600))],
)
def test_a_frame_that_does_not_fit_its_items_is_corrupt(sizes: tuple[int, ...], frame: bytes) -> None:
    """A checksum can be made to fit; what the items list must then still be there, and no more."""
    items = [(0, PackForm.FRAMED, b"", size) for size in sizes]
    record = msgspec.msgpack.encode((items, None, None, frame))

    with raises(Corrupt, "row_damaged"):
        decode_pack(b"\x00" + zlib.crc32(record).to_bytes(4) + record)


@given(st.data())
def test_a_damaged_pack_is_corrupt_or_equal(data: st.DataObject) -> None:
    """No flipped byte can raise anything else."""
    good = encode_pack([(0, PackForm.WHOLE, bytes(range(256)) * 4)], Op(b"op", b"i" * 32))
    at = data.draw(st.integers(0, len(good) - 1))
    bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]

    try:
        decode_pack(bad)
    except Corrupt:
        return


def test_a_tombstone_names_what_it_buried_and_why() -> None:
    """The digest stays readable after the bytes are gone."""
    digest = Digest("ab" * 32)

    item = buried(0, digest, "user asked")

    assert (buried_of(item), why_of(item)) == (digest, "user asked")


def test_reading_a_line_decompresses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compressed are values, which the commits and messages of a line do not need; reading a value does."""
    with perdure.open(tmp_path / "s.db") as store:
        thread = store.thread("t", agent="a")
        for at in range(9):
            with thread.change("note") as change:
                change.say("user", f"message {at}")
                change.put(f"/notes/{at}", {"text": f"{at} " * 1_000})
    decompressed: list[int] = []
    monkeypatch.setattr(pack.zstd, "decompress", lambda data: decompressed.append(1) or _decompress(data))
    with perdure.open(tmp_path / "s.db") as store:
        thread = store.thread("t", agent="a")
        decompressed.clear()  # the last row is read whole when the thread is first used

        assert len(thread.transcript()) == 9
        assert len(thread.log()) == 9
        assert decompressed == []

        assert thread.get("/notes/3") == {"text": "3 " * 1_000}
        assert decompressed


def test_a_node_is_read_without_the_values_of_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing paths decompresses nothing; the control, reading a value, does."""
    path = str(tmp_path / "agents.db")
    with perdure.open(path) as store, store.thread("t", agent="a").change("fill") as change:
        for number in range(200):
            change.put(f"/n/{number}.json", {"number": number, "words": "words " * 20})
    opened: list[int] = []
    unframed = rows.unframed
    monkeypatch.setattr(rows, "unframed", lambda pack: opened.append(1) or unframed(pack))

    with perdure.open(path) as store:
        thread = store.thread("t")
        listed, before = len(thread.paths("/")), len(opened)
        read = thread.get("/n/7.json")

    assert (listed, before) == (200, 0)
    assert read["number"] == 7
    assert opened
