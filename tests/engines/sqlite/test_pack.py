"""Packs: what goes into a row comes out of it, and damaged rows say so."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.engines.sqlite.format.pack import (
    Op,
    PackForm,
    PackItem,
    buried,
    buried_of,
    decode_pack,
    deflated,
    difference,
    encode_pack,
    joined,
    why_of,
)
from perdure.errors import Corrupt
from perdure.model.digest import Digest


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

    pack = decode_pack(encode_pack([(0, PackForm.WHOLE, b"x" * size)], op))

    assert pack.items == (PackItem(0, PackForm.WHOLE, b"x" * size),)
    assert pack.op == op


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
