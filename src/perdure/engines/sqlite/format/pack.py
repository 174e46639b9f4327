"""The format of a row's pack: what one row of the log holds beside its plain columns.

A row has many small objects, so they share one record: a list of items in the order of the row's keys.  An item is
stored whole, as the difference to an earlier object that it resembles, or not at all because its bytes are in a plain
column of the same row.  All of this is the stored form only: digests are taken over the objects' own bytes.

Whole objects are compressed together, with zstd, in a frame beside the list, so that reading a node
decompresses nothing.  An object that is stored against an earlier one is compressed alone,
with deflate and the earlier object as its dictionary: on a few hundred bytes that takes a third of the time and gives
fewer bytes than zstd, which has more to set up.  A rewritten leaf of the map differs from the old one in some forty
bytes.  Stored whole, the nodes would be the larger part of a store; stored as differences they are a small part.
A chain of differences has a largest length, which bounds the cost of a read.

A commit and its changeset are in columns of their own, so that reading a line of commits unpacks nothing.  In the hashed
form, JSON, digests take 64 letters and names are repeated.  So digests are cut out of a changeset's text, and a commit is
a short array without what other columns and the changeset say.  What is put together again must have the digest that it
had.  A commit that our types cannot give back byte for byte (one from a later version, for example) is stored as the
bytes it came in.  Moves are short arrays too.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from binascii import hexlify
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from perdure.engines.shared_rules import SealedAtBy, damaged, difference, read_sealed_at_by, sealed_at_by
from perdure.model.commit import (
    NO_LEDGER,
    NO_READS,
    Act,
    Changeset,
    ChangesetEvents,
    Commit,
    LedgerRead,
    MoveRecord,
    Reads,
    decode_commit,
    encode_commit,
)
from perdure.model.digest import Digest, Kind, Object
from perdure.model.head import MAIN

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
    "commit_from",
    "commit_in",
    "cut_digests",
    "decode_framed",
    "decode_pack",
    "deflated",
    "encode_pack",
    "is_against",
    "joined",
    "why_of",
    "Bases",
    "Base",
    "RowNumber",
    "Columns",
    "StoredCommit",
    "StoredMove",
    "long",
    "move_of",
    "pack_commit",
    "pack_move",
    "run_of",
    "short",
    "timeline_of",
    "unframed",
    "with_digests",
]

_encoder = msgspec.msgpack.Encoder()


# ---- commits, changesets and moves

_UUID = b"\x00"  # no name starts with a control character
_ACTS = tuple(Act)  # a move names its act by position: append only
_ACT_AT = {act: at for at, act in enumerate(_ACTS)}

_is_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch


class Columns(msgspec.Struct, frozen=True, gc=False):
    """What the row's own columns say of its commit."""

    digest: bytes | None = None
    parent: bytes | None = None  # the first parent's digest
    root: bytes | None = None
    depth: int = 0
    at: int = 0
    changeset: Changeset | None = None  # the changeset itself
    changeset_digest: Digest = Digest("")


class StoredCommit(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A commit without what the columns and the changeset say."""

    thread: str
    author: str | None = None
    others: tuple[bytes, ...] = ()  # parents after the first
    reads: tuple[bytes | None, bytes | None, bytes | None] | None = None
    ledger: tuple[int, bytes | None] | None = None
    reason: str | None = None  # None: the changeset's
    run: bytes | bool | None = None  # None: the changeset's; False: none
    unnumbered: int | None = None  # None: 0


class StoredMove(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A move; True means the digest that the row's columns have (`from_`: the parent's, `to`: its own)."""

    act: int
    timeline: str
    version: int
    op_id: bytes
    from_: bytes | bool | None = None
    to: bytes | bool | None = None
    previous: bytes | None = None
    sealed: SealedAtBy = False


_CUT_FROM = ('"body', '"value')  # the fields whose digests are cut out of a changeset's text
_EMPTY = ':""'
_MEMORY = '"type":"memory.written"'
_WHOLE_COMMIT = b"{"  # fields begin with the mark of an array
_find_digests = re.compile('":"([0-9a-f]{64})"').split
_commit_decoder = msgspec.msgpack.Decoder(StoredCommit)


def cut_digests(text: str) -> tuple[str, bytes | None]:
    """Return the text of a changeset without the digests of its messages and puts, and these digests.

    None: nothing was cut.  A quotation mark inside a string is escaped, so what is cut can only be a field.  Nothing is
    cut where another field is empty, so each empty one tells where a digest was, nor where a memory was written, whose
    body the SQL views show.
    """
    parts = _find_digests(text)
    if len(parts) == 1 or _EMPTY in text or _MEMORY in text:
        return text, None
    left, digests = parts[0], ""
    for at in range(1, len(parts), 2):
        if parts[at - 1].endswith(_CUT_FROM):
            digests += parts[at]
            left += '":""' + parts[at + 1]
        else:
            left += f'":"{parts[at]}"{parts[at + 1]}'
    return left, bytes.fromhex(digests) or None


def with_digests(text: bytes, digests: bytes | None) -> bytes:
    """Return the canonical bytes of a changeset that `cut_digests` has cut, not checked; raise `Corrupt` if the two do not fit."""
    if not digests:
        return text
    parts = text.split(b':""')
    names = hexlify(digests) if type(digests) is bytes else b""  # an edit can put anything into a column
    if 64 * len(parts) - 64 != len(names) or not names:
        raise damaged("a stored changeset names more or fewer objects than it has.", "row_damaged")
    if len(parts) == 3:  # as of most
        return b'%b:"%b"%b:"%b"%b' % (parts[0], names[:64], parts[1], names[64:], parts[2])
    return parts[0] + b"".join(
        [
            b':"%b"%b' % (names[at : at + 64], part)
            for at, part in zip(range(0, len(names), 64), parts[1:], strict=True)
        ]
    )


def pack_commit(commit: Commit, changeset: Changeset) -> bytes:
    """Return the commit's fields that neither the row's columns nor its changeset have, without empty ones at the end."""
    reads, ledger = commit.reads, commit.ledger
    if (
        not ledger.position
        and reads is NO_READS
        and commit.author is None
        and len(commit.parents) < 2
        and commit.reason == changeset.reason
        and commit.run == changeset.run_id
        and not commit.unnumbered
    ):
        return _encoder.encode((commit.thread,))  # as most are
    fields = [
        commit.thread,
        commit.author,
        [bytes.fromhex(parent) for parent in commit.parents[1:]] if len(commit.parents) > 1 else [],
        None if reads is NO_READS else _packed_reads(reads),
        (ledger.position, _raw(ledger.chain)) if ledger.position else None,
        None if commit.reason == changeset.reason else commit.reason,
        None if commit.run == changeset.run_id else False if commit.run is None else short(commit.run),
        commit.unnumbered or None,
    ]
    while fields[-1] is None or fields[-1] == []:
        fields.pop()
    return _encoder.encode(fields)


def commit_in(data: bytes | None, columns: Columns) -> tuple[Commit, bytes]:
    """Return the commit of these fields and columns, and its bytes, not checked; raise `Corrupt` if they cannot be read.

    A commit that our types do not encode to the bytes that it came in is stored whole, and says itself what columns say.
    """
    if not isinstance(data, bytes):
        raise damaged("the fields of a stored commit are missing.", "row_damaged")
    if not data.startswith(_WHOLE_COMMIT):
        commit = _unpack_commit(data, columns)
        return commit, encode_commit(commit)
    commit = decode_commit(data)
    said = commit.first_parent, commit.root, commit.depth, commit.at, commit.changeset
    root = Digest((columns.root or b"").hex())
    if said != (_hex(columns.parent), root, columns.depth, columns.at, columns.changeset_digest):
        raise damaged("a row of the log differs from its commit.", "row_damaged")
    return commit, data


def _unpack_commit(data: bytes, columns: Columns) -> Commit:
    try:
        stored = _commit_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(f"a stored commit cannot be unpacked ({error}).", "row_damaged") from error
    changeset, named = columns.changeset, columns.changeset_digest
    if changeset is None:
        raise damaged("the changeset of a stored commit is missing.", "row_damaged")
    parent, root = _hex(columns.parent), Digest((columns.root or b"").hex())
    return commit_from(stored, parent, root, columns.depth, columns.at, changeset, named)


def commit_from(
    stored: StoredCommit,
    parent: Digest | None,
    root: Digest,
    depth: int,
    at: int,
    changeset: Changeset | ChangesetEvents,
    changeset_digest: Digest,
) -> Commit:
    """Return the commit of these fields and columns, not checked."""
    parents = () if parent is None else (parent,)
    if stored.others:
        parents += tuple([Digest(other.hex()) for other in stored.others])
    reads, ledger = stored.reads, stored.ledger
    return Commit(
        parents=parents,
        changeset=changeset_digest,
        root=root,
        thread=stored.thread,
        depth=depth,
        reason=changeset.reason if stored.reason is None else stored.reason,
        at=at,
        reads=NO_READS if reads is None else Reads(*map(_hex, reads)),
        ledger=NO_LEDGER if ledger is None else LedgerRead(ledger[0], _hex(ledger[1])),
        run=changeset.run_id if stored.run is None else run_of(stored.run),
        author=stored.author,
        unnumbered=stored.unnumbered or 0,
    )


def run_of(stored: bytes | bool) -> str | None:
    """Return the run of a commit whose changeset names another one, or none."""
    return long(stored) if isinstance(stored, bytes) else None


def pack_move(move: MoveRecord, digest: Digest | None, parent: Digest | None) -> StoredMove:
    """Return the stored form of a move, in a row whose commit has this digest and parent."""
    from_, to, previous = move.from_, move.to, move.previous
    return StoredMove(
        _ACT_AT[move.act],
        move.timeline,
        move.version,
        short(move.op_id),
        None if from_ is None else from_ == parent or bytes.fromhex(from_),
        None if to is None else to == digest or bytes.fromhex(to),
        None if previous is None else bytes.fromhex(previous),
        sealed_at_by(move),
    )


def timeline_of(moves: Sequence[StoredMove]) -> str | None:
    """Return the timeline that these moves lead to the commit of their row, for the column of that name; None: `main`, or none."""
    for move in moves:
        if move.to is True:
            return None if move.timeline == MAIN else move.timeline
    return None


def move_of(stored: StoredMove, columns: Columns) -> MoveRecord:
    """Return the move that was stored; raise `Corrupt` if its act is unknown, or a digest that it needs is not in its row."""
    if not 0 <= stored.act < len(_ACTS):
        raise damaged("a stored move is of an unknown kind.", "row_damaged")
    sealed, at, author = read_sealed_at_by(stored.sealed)
    return MoveRecord(
        timeline=stored.timeline,
        version=stored.version,
        act=_ACTS[stored.act],
        op_id=long(stored.op_id),
        from_=_named(stored.from_, columns.parent),
        to=_named(stored.to, columns.digest),
        previous=_hex(stored.previous),
        sealed=sealed,
        at=at,
        author=author,
    )


def short(name: str) -> bytes:
    """Return a name as bytes; a UUID in its usual spelling as a mark and its 16 bytes."""
    if len(name) == 36 and _is_uuid(name):
        return _UUID + bytes.fromhex(name.replace("-", ""))
    return name.encode("utf-8", "surrogatepass")


def long(name: bytes) -> str:
    """Return the name that was shortened; damaged bytes give some other name, which no digest fits."""
    if name.startswith(_UUID):
        digits = name[1:].hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return name.decode("utf-8", "replace")


def _packed_reads(reads: Reads) -> tuple[bytes | None, bytes | None, bytes | None] | None:
    if reads.agent_root is None and reads.agent_commit is None and reads.memory_root is None:
        return None
    return _raw(reads.agent_root), _raw(reads.agent_commit), _raw(reads.memory_root)


def _named(stored: bytes | bool | None, columns: bytes | None) -> Digest | None:
    if stored is True and columns is None:
        raise damaged("the commit that a stored move names is missing.", "row_damaged")
    return _hex(columns if stored is True else stored or None)


def _raw(digest: Digest | None) -> bytes | None:
    return None if digest is None else bytes.fromhex(digest)


def _hex(digest: bytes | None) -> Digest | None:
    return None if digest is None else Digest(digest.hex())


# ---- packs

KINDS = tuple(Kind)  # an item names its kind by position: append only
_NODES = (KINDS.index(Kind.NODE), KINDS.index(Kind.LIST))
_ZSTD_FROM_BYTES = (
    512  # of whole objects; nodes and the rest are digests, and bytes that are compressed already
)
_UNFRAMED = (*_NODES, KINDS.index(Kind.COMMIT))  # whole objects that are not compressed
_MARK, _HEAD_BYTES = b"\x00", 5  # how a pack begins, and with its checksum
_NEAR_BYTES, _NEAR_BITS, _FAR_BITS = 4_096, 12, 15  # how far back deflate looks; looking far costs a set-up


class PackForm:
    """Where the bytes of an item are.  Plain numbers: members of an enumeration would cost more than all else here."""

    WHOLE = 0
    DIFFERENCE = 1  # `data` replaces what is between the first `head` and last `tail` bytes of another item
    BODIES = 2  # the next `size` bytes of the column `bodies`
    CHANGESET = 3  # the columns `changeset` and `digests`
    COMMIT = 4  # the column `fields`, and what other columns say
    FORGOTTEN = 5  # nowhere: `data` has the digest and the reason
    DEFLATED = 6  # `data`, with the bytes of another item as its dictionary
    FRAMED = 7  # the next `size` bytes of the pack's frame; `unframed` returns such an item as WHOLE


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
    link: bytes = b""  # binds it to the write before (`seals.linked`)


class Pack(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one row holds."""

    items: tuple[PackItem, ...] = ()
    op: Op | None = None
    dropped: str | None = None  # why, where the whole space was forgotten
    frame: bytes = b""  # objects of the form FRAMED, one after another, compressed together


def buried(kind: int, digest: Digest, why: str) -> PackItem:
    """Return the tombstone of an object."""
    return PackItem(kind, PackForm.FORGOTTEN, bytes.fromhex(digest) + why.encode("utf-8", "replace"))


def buried_of(item: PackItem) -> Digest:
    """Return the digest of the object that a tombstone replaces."""
    return Digest(item.data[:32].hex())


def why_of(item: PackItem) -> str:
    """Return why the object was forgotten."""
    return item.data[32:].decode(errors="replace")


_pack_decoder = msgspec.msgpack.Decoder(Pack)
_compressor: list[zstd.ZstdCompressor] = []  # one for all threads: it has a lock of its own
if hasattr(os, "register_at_fork"):
    # A forked child makes its own: another thread may have held the lock, and no thread of the child lets it go.
    os.register_at_fork(after_in_child=_compressor.clear)


def encode_pack(
    items: list[tuple[object, ...]],
    op: Op | tuple[object, ...] | None,
    dropped: str | None = None,
    *,
    whole: int | None = None,
) -> bytes:
    """Return the bytes of a pack; `items` are tuples of an Item's fields without its trailing defaults.

    `op` may be a tuple of an Op's fields.  `whole` is how many bytes are stored whole, nodes aside; None: they are counted.
    Only objects that a reader of commits does not need are compressed.
    """
    record = _framed(items, op, dropped) if whole is None or whole >= _ZSTD_FROM_BYTES else None
    record = _encoder.encode((items, op, dropped)) if record is None else record
    return _MARK + zlib.crc32(record).to_bytes(4) + record


def _framed(
    items: list[tuple[object, ...]], op: Op | tuple[object, ...] | None, dropped: str | None
) -> bytes | None:
    """Return the record of a pack whose whole values are in one frame; None if that would not be smaller."""
    whole = [item[2] for item in items if item[1] == PackForm.WHOLE and item[0] not in _UNFRAMED]
    size = sum(map(len, whole))  # pyright: ignore[reportArgumentType]
    if size < _ZSTD_FROM_BYTES:
        return None
    if not _compressor:
        _compressor.append(zstd.ZstdCompressor(level=3))
    frame = _compressor[0].compress(b"".join(whole), zstd.ZstdCompressor.FLUSH_FRAME)  # pyright: ignore[reportArgumentType]
    if len(frame) >= size:
        return None
    items = [
        (item[0], PackForm.FRAMED, b"", len(item[2]))  # pyright: ignore[reportArgumentType]
        if item[1] == PackForm.WHOLE and item[0] not in _UNFRAMED
        else item
        for item in items
    ]
    return _encoder.encode((items, op, dropped, frame))


def decode_pack(data: bytes) -> Pack:
    """Return the pack of these bytes, with the objects of its frame; raise `Corrupt` for any damage."""
    pack = decode_framed(data)
    return unframed(pack) if pack.frame else pack


def decode_framed(data: bytes) -> Pack:
    """Return the pack of these bytes, whose frame is left compressed; raise `Corrupt` for any damage outside it.

    The part of it that describes the row's write has no digest, only the checksum.
    """
    record = data[_HEAD_BYTES:]
    if data[:_HEAD_BYTES] != _MARK + zlib.crc32(record).to_bytes(4):
        raise damaged("a stored row does not match its checksum; it was not used.", "row_damaged")
    try:
        return _pack_decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise damaged(
            f"a stored row cannot be unpacked ({error}); it was not used.", "row_damaged"
        ) from error


def unframed(pack: Pack) -> Pack:
    """Return the pack with the objects of its frame as items of their own; raise `Corrupt` if they do not fit."""
    try:
        whole = zstd.decompress(pack.frame)
    except zstd.ZstdError as error:
        raise damaged(
            f"a stored row cannot be unpacked ({error}); it was not used.", "row_damaged"
        ) from error
    items: list[PackItem] = []
    start = 0
    for item in pack.items:
        if item.form == PackForm.FRAMED:
            end = start + item.size
            items.append(PackItem(item.kind, PackForm.WHOLE, whole[start:end]))
            start = end
        else:
            items.append(item)
    if start != len(whole):
        raise damaged("a stored row holds more or less than it lists; it was not used.", "row_damaged")
    return Pack(tuple(items), pack.op, pack.dropped)


def is_against(item: PackItem) -> bool:
    """True if the item is stored as the difference to another one."""
    return item.form in (PackForm.DIFFERENCE, PackForm.DEFLATED)


def joined(old: bytes, item: PackItem) -> bytes:
    """Return the bytes whose difference to `old` is `item`; raise `Corrupt` if there are none."""
    if item.form == PackForm.DEFLATED:
        return _inflated(old, item.data)
    return old[: item.head] + item.data + (old[len(old) - item.tail :] if item.tail else b"")


def deflated(old: bytes, new: bytes) -> bytes:
    """Return `new` compressed with `old` as the dictionary."""
    bits = _NEAR_BITS if len(old) + len(new) <= _NEAR_BYTES else _FAR_BITS
    squeeze = zlib.compressobj(1, zlib.DEFLATED, -bits, bits - 7, zlib.Z_DEFAULT_STRATEGY, old)
    return squeeze.compress(new) + squeeze.flush()


def _inflated(old: bytes, data: bytes) -> bytes:
    try:
        unsqueeze = zlib.decompressobj(-_FAR_BITS, old)
        return unsqueeze.decompress(data) + unsqueeze.flush()
    except zlib.error as error:
        raise damaged(f"a stored object cannot be unpacked ({error}).", "row_damaged") from error


# ---- bases

# Read once: an attribute of a class costs as much as a call.
_WHOLE, _DIFFERENCE, _DEFLATED = PackForm.WHOLE, PackForm.DIFFERENCE, PackForm.DEFLATED
_NODE_DEPTH_MAX = 16
_DEPTH_MAX = 4  # of documents: each step is another row to read
_BYTES_MAX = 8 * 1024 * 1024
_ENTRY_BYTES = 300
_FROM_BYTES = 128
_NODE_KIND, _LIST_KIND = Kind.NODE, Kind.LIST


class RowNumber(msgspec.Struct, gc=False):
    """The number of a row, which it gets when it is written."""

    row: int = 0


Base: TypeAlias = tuple[RowNumber, int, int, bytes]
"""An object that others may be stored against: its row, its item, how many differences are below it, its bytes."""


class Bases:
    """Objects written a short while ago, with their rows: later objects are stored as differences to them.

    The writer notes them, all threads read them.  There are two generations: an object that no write asked for
    since the last change of generation is dropped.  Every change is one operation on a dictionary, so that readers need no lock.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._young: dict[tuple[int, Digest], Base] = {}
        self._old: dict[tuple[int, Digest], Base] = {}
        self._held = 0
        self.epoch = 0  # a write that was prepared before it last changed must be prepared again

    def against(self, kind: int, space: int | None, found: Object) -> tuple[tuple[object, ...], int]:
        """Return the fields of the item that stores `found`: a difference if that saves a lot, or whole; and its depth."""
        body, base_name = found.body, found.base
        size = len(body)
        if base_name is not None and space is not None and size >= _FROM_BYTES:
            name = space, base_name
            base = self._young.get(name) or self._old.get(name)
            if base is not None:
                at, index, depth, old = base
                if found.kind is _NODE_KIND or found.kind is _LIST_KIND:
                    if depth < _NODE_DEPTH_MAX:
                        if found.shared is None:
                            head, tail, middle = difference(old, body)
                        else:
                            head, tail = found.shared
                            middle = body[head : size - tail]
                        if 2 * len(middle) + 40 < size:
                            return (kind, _DIFFERENCE, middle, 0, at.row, index, head, tail), depth + 1
                elif depth < _DEPTH_MAX:
                    data = deflated(old, body)
                    if 4 * len(data) < 3 * size:
                        return (kind, _DEFLATED, data, 0, at.row, index), depth + 1
        return (kind, _WHOLE, body), 0

    def has_any(self, new: dict[tuple[int, Digest], Base]) -> bool:
        """True if one of these objects was written a short while ago."""
        return not (self._young.keys().isdisjoint(new) and self._old.keys().isdisjoint(new))

    def note(self, space: int, row: int, written: list[tuple[Digest, bytes, int, int]]) -> None:
        """Note objects that were written to that row: digest and bytes of each, its item, and its depth."""
        at = RowNumber(row)
        new = {(space, digest): (at, index, depth, body) for digest, body, index, depth in written}
        self.take(new)

    def take(self, new: dict[tuple[int, Digest], Base]) -> None:
        """Note objects that were written, whose row has its number."""
        self._young.update(new)
        for _, _, _, body in new.values():
            self._held += len(body) + _ENTRY_BYTES
        if self._held > _BYTES_MAX // 2:
            self._old, self._young, self._held = self._young, {}, 0

    def forget(self) -> None:
        """Drop all, because rows were rolled back or changed in place."""
        self.epoch += 1
        self._young, self._old, self._held = {}, {}, 0
