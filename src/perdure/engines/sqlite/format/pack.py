"""Packs: what one row holds beside its plain columns.

A row has many small objects, so they share one record: a list of items in the order of
the row's keys.  An item is kept whole, as the difference to an earlier object that it
resembles, or not at all because its bytes stand in a plain column of the same row.
Everything here is at rest only: what is hashed are the objects' own bytes.

Whole objects are compressed together, with zstd.  An object that is stored against an
earlier one is compressed by itself, with deflate, which knows that one's words: on a few
hundred bytes it is a third of the time and smaller than zstd, which has to set up more.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING

import msgspec

from perdure.engines.sqlite.format.records import StoredMove
from perdure.errors import Corrupt
from perdure.model.digest import Digest, Kind

if TYPE_CHECKING:
    from backports import zstd
elif sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "KINDS",
    "PackForm",
    "PackItem",
    "Op",
    "Pack",
    "buried",
    "buried_of",
    "decode_pack",
    "deflated",
    "difference",
    "encode_pack",
    "is_against",
    "joined",
    "why_of",
]

KINDS = tuple(Kind)  # an item names its kind by position: append only
_NODE = KINDS.index(Kind.NODE)
_ZSTD_FROM_BYTES = (
    512  # of whole objects; nodes and the rest are digests, and bytes that are squeezed already
)
_RAW, _ZSTD = b"\x00", b"\x01"
_HEAD_BYTES = 5  # the form and the checksum
_NEAR_BYTES, _NEAR_BITS, _FAR_BITS = 4_096, 12, 15  # how far back deflate looks; looking far costs a set-up


class PackForm:
    """Where an item's bytes are.  Plain numbers: members of an enumeration cost more than all else here."""

    WHOLE = 0
    DIFFERENCE = 1  # `data` replaces what lies between the first `head` and last `tail` bytes of another item
    BODIES = 2  # the next `size` bytes of the column `bodies`
    CHANGESET = 3  # the column `changeset`, with what `data` says
    COMMIT = 4  # its fields, without what the row's columns say
    FORGOTTEN = 5  # nowhere: `data` has the digest and says why
    DEFLATED = 6  # `data`, with the bytes of another item as its dictionary


class PackItem(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One object of a row."""

    kind: int
    form: int
    data: bytes = b""
    size: int = 0
    row: int = 0
    index: int = 0
    head: int = 0
    tail: int = 0


class Op(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The write that a row completes."""

    op_id: bytes  # empty where a move names it
    intent: bytes
    moves: tuple[StoredMove, ...] = ()
    revisions: tuple[int, ...] = ()
    position: int = 0
    chain: bytes | None = None
    seal: bytes | None = None  # of the space, after this write
    number: int = 0  # how many writes the space has had, with this one


class Pack(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one row holds."""

    items: tuple[PackItem, ...] = ()
    op: Op | None = None
    dropped: str | None = None  # why, where the whole space was forgotten


def buried(kind: int, digest: Digest, why: str) -> PackItem:
    """The tombstone of an object."""
    return PackItem(kind, PackForm.FORGOTTEN, bytes.fromhex(digest) + why.encode("utf-8", "replace"))


def buried_of(item: PackItem) -> Digest:
    """The digest of the object that a tombstone stands for."""
    return Digest(item.data[:32].hex())


def why_of(item: PackItem) -> str:
    """Why the object was forgotten."""
    return item.data[32:].decode(errors="replace")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Pack)
_compressor: list[zstd.ZstdCompressor] = []


def encode_pack(items: list[tuple[object, ...]], op: Op | None, dropped: str | None = None) -> bytes:
    """The bytes of a pack; `items` are tuples of an Item's fields without its trailing defaults."""
    record = _encoder.encode((items, op, dropped))
    whole = [item[2] for item in items if item[1] == PackForm.WHOLE and item[0] != _NODE]
    if sum(map(len, whole)) < _ZSTD_FROM_BYTES:  # pyright: ignore[reportArgumentType]
        return _RAW + _sum_of(record) + record
    if not _compressor:
        _compressor.append(zstd.ZstdCompressor(level=3))
    packed = _compressor[0].compress(record, zstd.ZstdCompressor.FLUSH_FRAME)
    return _ZSTD + _sum_of(packed) + packed if len(packed) < len(record) else _RAW + _sum_of(record) + record


def decode_pack(data: bytes) -> Pack:
    """The pack of these bytes; raises `Corrupt` whatever is wrong with them."""
    form, noted, packed = data[:1], data[1:_HEAD_BYTES], data[_HEAD_BYTES:]
    if form not in (_RAW, _ZSTD) or noted != _sum_of(packed):
        raise Corrupt("a stored row does not match its checksum; it was not used. Run `perdure verify`.")
    try:
        return _decoder.decode(packed if form == _RAW else zstd.decompress(packed))
    except (
        msgspec.DecodeError,
        msgspec.ValidationError,
        zstd.ZstdError,
        UnicodeDecodeError,
        TypeError,
    ) as error:
        raise Corrupt(
            f"a stored row cannot be unpacked ({error}); it was not used. Run `perdure verify`."
        ) from error


def _sum_of(packed: bytes) -> bytes:
    """A checksum: what a pack says of its write is not hashed otherwise."""
    return zlib.crc32(packed).to_bytes(4)


def is_against(item: PackItem) -> bool:
    """Whether the item is stored as the difference to another one."""
    return item.form in (PackForm.DIFFERENCE, PackForm.DEFLATED)


def joined(old: bytes, item: PackItem) -> bytes:
    """The bytes whose difference to `old` is `item`; raises `Corrupt` if there are none."""
    if item.form == PackForm.DEFLATED:
        return _inflated(old, item.data)
    return old[: item.head] + item.data + (old[len(old) - item.tail :] if item.tail else b"")


def deflated(old: bytes, new: bytes) -> bytes:
    """`new` compressed with the words of `old`."""
    bits = _NEAR_BITS if len(old) + len(new) <= _NEAR_BYTES else _FAR_BITS
    squeeze = zlib.compressobj(1, zlib.DEFLATED, -bits, bits - 7, zlib.Z_DEFAULT_STRATEGY, old)
    return squeeze.compress(new) + squeeze.flush()


def _inflated(old: bytes, data: bytes) -> bytes:
    try:
        unsqueeze = zlib.decompressobj(-_FAR_BITS, old)
        return unsqueeze.decompress(data) + unsqueeze.flush()
    except zlib.error as error:
        raise Corrupt(f"a stored object cannot be unpacked ({error}). Run `perdure verify`.") from error


def difference(old: bytes, new: bytes) -> tuple[int, int, bytes]:
    """How many bytes `new` shares with the start and end of `old`, and what lies between.

    As numbers the two differ in the bits between; looking at each byte in turn would cost many times that.
    """
    most = min(len(old), len(new))
    mixed = int.from_bytes(old[:most], "big") ^ int.from_bytes(new[:most], "big")
    head = most - (mixed.bit_length() + 7) // 8
    if len(old) != len(new):
        mixed = int.from_bytes(old[len(old) - most :], "big") ^ int.from_bytes(new[len(new) - most :], "big")
    low = (mixed & -mixed).bit_length() - 1 if mixed else 8 * most
    tail = min(low // 8, most - head)
    return head, tail, new[head : len(new) - tail]
