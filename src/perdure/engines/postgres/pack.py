"""The format of a row's pack: the objects of one commit or write in one record.

A pack is a list of items in MessagePack, each a kind and its bytes, and in the row that completes a write also what its
receipt needs.  It is compressed with zstd and a dictionary of the words that every commit and changeset repeats.
Digests are taken over the objects' own bytes, so they are not stored: a reader computes them, and so checks them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from threading import local
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

import msgspec

from perdure.engines.shared_rules import SealedAtBy, damaged, difference, read_sealed_at_by, sealed_at_by
from perdure.errors import Corrupt
from perdure.model.commit import Act, Commit, MoveRecord, decode_commit
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.head import Head

if TYPE_CHECKING:
    from backports import zstd
elif sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "RowPack",
    "StateReader",
    "StoredFields",
    "is_against",
    "stored_against",
    "stored_item",
    "encode_state",
    "PackedItem",
    "PackedMove",
    "PackedOp",
    "buried",
    "bytes_of",
    "check_intent",
    "intent_checksum",
    "commit_in",
    "decode_pack",
    "digest_of_item",
    "encode_pack",
    "heads_of",
    "is_buried",
    "key_of",
    "kind_of",
    "label_key",
    "link_after",
    "linked_revisions",
    "move_key",
    "moves_of",
    "name_of",
    "op_bytes",
    "op_key",
    "op_name",
    "packed_item",
    "packed_move",
]

_KINDS = tuple(Kind)  # an item names its kind by position: append only
_KIND_AT = {kind: at for at, kind in enumerate(_KINDS)}
_ACTS = tuple(Act)  # append only
_BURIED = 64  # added to the kind of an object that was forgotten: its bytes are its digest and the reason
_RAW, _ZSTD = b"\x00", b"\x01"  # the second with the dictionary below, which therefore never changes
_COMPRESS_FROM_BYTES = 96
_LEVEL = 1
_PREFIX_BYTES_MIN = 8  # zstd takes no shorter one
_WORDS = (
    b'"usage":{"input":0,"output":0},"termination":"succeeded","origin":"input","agent_version":"1","backend":"openai:gpt'
    b'"model":"provider":"openai","vendor":"result_ref":"side_effects":"status":"ok","tool":"type":"tool.call.completed"'
    b'"effect":"external_write","args":"args_size":"idempotent":"key":"type":"tool.call.requested","type":"tool.call.started"'
    b'{"events":[{"checkpoint":"type":"checkpoint.created"},{"run":"type":"run.started"},{"run":"state":"type":"run.finished"},'
    b'{"body":"","id":"","role":"assistant","size":1,"type":"message.appended"},{"body":"","id":"","role":"user","size":1'
    b',"type":"message.appended"}],"patch":{"ops":[{"op":"delete","path":"},{"op":"put","path":"state/","size":1,"value":"'
    b'}],"version":1},"reason":"run_finished","reason":"tool_results_committed","reason":"user_message"'
    b',"reason":"assistant_turn_committed","run_id":"run_meta":{},"state_actions":[{"name":"source":"tool:'
    b'{"at":1760000000000000,"changeset":"","depth":1,"ledger":{"chain":"","position":1},"parents":["'
    b'"],"reads":{"agent_commit":"","agent_root":"","memory_root":""},"reason":"assistant_turn_committed","root":"'
    b'","run":"","thread":"'
)


class PackedMove(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A move; True stands for the digest that the row's commit has (`from_`: its first parent's, `to`: its own)."""

    act: int
    timeline: bytes
    version: int
    from_: bytes | bool | None
    to: bytes | bool | None
    sealed: SealedAtBy


class PackedOp(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the receipt of a write needs beside the row's columns."""

    moves: tuple[PackedMove, ...] = ()
    revisions: tuple[int, ...] = ()
    entries: int = 0  # how many it added to the ledger
    checksum: int = 0  # over the op_id and the intent


PackedItem = tuple[int, bytes]


class RowPack(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one row holds."""

    items: tuple[tuple[int, bytes], ...]
    op: PackedOp | None = None
    states: int = 0  # how many values and nodes are in the row's state


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RowPack)
_dictionary = zstd.ZstdDict(_WORDS, is_raw=True)
_mine = local()  # a compressor serves one thread, and making one takes longer than using it
_link_head = Struct(">qqii").pack
_FLUSH_FRAME = zstd.ZstdCompressor.FLUSH_FRAME


def intent_checksum(op_id: bytes, intent: bytes) -> int:
    """Return what binds the intent of a write to its row."""
    return crc32(intent, crc32(op_id))


def link_after(before: bytes, op_id: bytes, intent: bytes, row: int) -> bytes:
    """Return the link of a write without cells and entries, whose last row is `row`; the server computes the same."""
    sizes = _link_head(row, 0, len(op_id), len(intent))
    return sha256(before + sizes + op_id + intent).digest()[:8]


def linked_revisions(revisions: Sequence[int]) -> bytes:
    """Return the revisions of a write as its link has them."""
    return b"".join([revision.to_bytes(8) for revision in revisions])


def check_intent(pack: RowPack, op_id: bytes, intent: object) -> None:
    """Raise `Corrupt` unless a row has the intent that it was written with."""
    known = intent_checksum(op_id, intent) if isinstance(intent, bytes) else None
    if pack.op is None or pack.op.checksum != known:
        raise damaged(
            f"the intent of the write '{op_name(op_id)}' is not the one that was stored; it was not used.",
            "intent_damaged",
            op_id=op_name(op_id),
        )


class _StoredItem(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A value or a node as it is stored: whole, or by what differs from an item of an earlier row."""

    kind: int
    form: int
    data: bytes
    row: int = 0
    item: int = 0
    head: int = 0  # bytes at the start that the earlier item has too
    tail: int = 0  # and at the end


StoredFields: TypeAlias = tuple[int | bytes, ...]  # those of a stored item that are not left out


class _StoredState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The values and nodes of one row."""

    checksum: int  # over their bytes
    items: tuple[_StoredItem, ...]


_WHOLE, _COMPRESSED, _AGAINST, _DIFFERENCE = 0, 1, 2, 3  # the forms of an item
_NODES = frozenset({_KIND_AT[Kind.NODE], _KIND_AT[Kind.LIST]})
_states = msgspec.msgpack.Decoder(_StoredState)


def stored_item(item: PackedItem) -> StoredFields:
    """Return an item as it is stored by itself."""
    kind, body = item
    if len(body) >= _COMPRESS_FROM_BYTES:
        compressor = getattr(_mine, "plain", None)
        if compressor is None:
            compressor = _mine.plain = zstd.ZstdCompressor(_LEVEL)
        data = compressor.compress(body, _FLUSH_FRAME)
        if len(data) < len(body):
            return kind, _COMPRESSED, data
    return kind, _WHOLE, body


def stored_against(
    item: PackedItem, row: int, at: int, old: bytes, shared: tuple[int, int] | None
) -> StoredFields:
    """Return an item as it is stored if it resembles `old`, which is item `at` of an earlier row.

    A rewritten node of the map differs from the old one in one stretch of some forty bytes; `shared` is what its maker
    knows of the rest.  A document may differ in many places, which takes a compressor longer to find.
    """
    kind, body = item
    if kind in _NODES:
        head, tail = difference(old, body)[:2] if shared is None else shared
        middle = body[head : len(body) - tail]
        if 2 * len(middle) < len(body):
            return kind, _DIFFERENCE, middle, row, at, head, tail
    if len(old) >= _PREFIX_BYTES_MIN:
        data = zstd.compress(body, _LEVEL, zstd_dict=zstd.ZstdDict(old, is_raw=True).as_prefix)
        if 2 * len(data) < len(body):
            return kind, _AGAINST, data, row, at
    return stored_item(item)


def is_against(fields: StoredFields) -> bool:
    """True if an item cannot be read without the item that it was stored against."""
    return len(fields) > 3


def encode_state(items: Sequence[PackedItem], stored: Sequence[StoredFields] | None = None) -> bytes:
    """Return the stored form of a row's values and nodes; None stores each of them by itself."""
    checksum = 0
    for _, body in items:
        checksum = crc32(body, checksum)
    return _encoder.encode((checksum, [stored_item(item) for item in items] if stored is None else stored))


class StateReader:
    """Reads the states of rows, together with the rows that they need."""

    def __init__(self) -> None:
        """Begin without any row."""
        self._stored: dict[int, object] = {}
        self._states: dict[int, _StoredState] = {}
        self._bodies: dict[tuple[int, int], bytes] = {}

    def add(self, row: object, state: object) -> None:
        """Take in the stored state of a row."""
        if isinstance(row, int) and state is not None:
            self._stored[row] = state

    def items(self, row: object) -> tuple[tuple[int, bytes], ...]:
        """Return the values and nodes of a row; raise `Corrupt` if it, or a row that it needs, cannot be read."""
        if not isinstance(row, int) or row not in self._stored:
            return ()
        state = self._state(row)
        found = tuple([(item.kind, self._body(row, at)) for at, item in enumerate(state.items)])
        checksum = 0
        for _, body in found:
            checksum = crc32(body, checksum)
        if checksum != state.checksum:
            raise damaged(f"row {row} of the log has another checksum; it was not used.", "row_damaged")
        return found

    def base(self, row: int, at: int) -> PackedItem | None:
        """Return the item that an item of a row, which was read, was compressed against; None: it is whole."""
        item = self._state(row).items[at]
        return (item.kind, self._body(item.row, item.item)) if item.form >= _AGAINST else None

    def needed(self, row: int) -> bytes | None:
        """Return which rows are needed to read this one, as its row says it: four bytes each; None: none is."""
        found: set[int] = set()
        wanted = [(row, at) for at in range(len(self._state(row).items))] if row in self._stored else []
        for place, at in wanted:
            item = self._state(place).items[at]
            if item.form >= _AGAINST:
                found.add(item.row)
                wanted.append((item.row, item.item))
        return b"".join([number.to_bytes(4) for number in sorted(found)]) or None

    def _state(self, row: int) -> _StoredState:
        if row not in self._states:
            stored = self._stored.get(row)
            try:
                self._states[row] = _states.decode(stored if isinstance(stored, bytes) else b"")
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise damaged(f"row {row} of the log cannot be unpacked ({error}).", "row_damaged") from error
        return self._states[row]

    def _body(self, row: int, at: int) -> bytes:
        """Return the bytes of an item, after those of the items that it was compressed against, oldest first."""
        chain: list[tuple[int, int, _StoredItem]] = []
        body = b""
        try:
            while (row, at) not in self._bodies:
                item = self._state(row).items[at]
                chain.append((row, at, item))
                if not item.form >= _AGAINST:
                    break
                if item.row >= row:
                    raise ValueError("it needs a later row")
                row, at = item.row, item.item
            body = self._bodies.get((row, at), b"")
            for place, index, item in reversed(chain):
                body = self._bodies[place, index] = _unpacked(item, body)
        except (zstd.ZstdError, EOFError, ValueError, IndexError) as error:
            raise damaged(f"row {row} of the log cannot be unpacked ({error}).", "row_damaged") from error
        return body


def _unpacked(item: _StoredItem, base: bytes) -> bytes:
    match item.form:
        case 0:
            return item.data
        case 1:
            return zstd.decompress(item.data)
        case 2:
            return zstd.decompress(item.data, zstd_dict=zstd.ZstdDict(base, is_raw=True).as_prefix)
        case 3:
            return base[: item.head] + item.data + base[max(0, len(base) - item.tail) :]
        case _:
            raise ValueError("an item has an unknown form")


def encode_pack(items: Sequence[PackedItem], op: PackedOp | None, states: int) -> bytes:
    """Return the stored form of a row's objects; `states` is how many more are in its state."""
    plain = _encoder.encode((items, op, states))
    checksum = crc32(plain).to_bytes(4)
    if len(plain) < _COMPRESS_FROM_BYTES:
        return _RAW + checksum + plain
    compressor = getattr(_mine, "compressor", None)
    if compressor is None:
        compressor = _mine.compressor = zstd.ZstdCompressor(_LEVEL, zstd_dict=_dictionary.as_digested_dict)
    packed = compressor.compress(plain, _FLUSH_FRAME)
    return _ZSTD + checksum + packed if len(packed) < len(plain) else _RAW + checksum + plain


def decode_pack(stored: object) -> RowPack:
    """Return what a row holds; raise `Corrupt` if it cannot be read."""
    try:
        if not isinstance(stored, bytes):
            raise ValueError("there is none")
        plain = stored[5:]
        if stored[:1] == _ZSTD:
            plain = zstd.decompress(plain, zstd_dict=_dictionary.as_digested_dict)
        if crc32(plain).to_bytes(4) != stored[1:5]:
            raise ValueError("its checksum is another")
        return _decoder.decode(plain)
    except (msgspec.DecodeError, zstd.ZstdError, EOFError, ValueError, UnicodeDecodeError) as error:
        raise damaged(f"a row of the log cannot be unpacked ({error}).", "row_damaged") from error


# ---- objects


def packed_item(found: Object) -> PackedItem:
    """Return an object as an item."""
    return _KIND_AT[found.kind], found.body


def is_buried(item: PackedItem) -> bool:
    """True if the object of this item was forgotten."""
    return item[0] >= _BURIED


def kind_of(item: PackedItem) -> Kind:
    """Return the kind of an item's object; raise `Corrupt` if it is unknown."""
    at = item[0] % _BURIED
    if not 0 <= at < len(_KINDS):
        raise damaged("a stored object is of an unknown kind.", "row_damaged")
    return _KINDS[at]


def digest_of_item(item: PackedItem) -> Digest:
    """Return the digest of an item's object, computed from its bytes; that of a forgotten one was stored."""
    return Digest(item[1][:32].hex()) if is_buried(item) else digest_of(kind_of(item), item[1])


def buried(item: PackedItem, digest: Digest, why: str) -> PackedItem:
    """Return the tombstone of an object."""
    return item[0] + _BURIED, bytes.fromhex(digest) + bytes_of(why)


# ---- commits and moves


def commit_in(pack: RowPack) -> Commit | None:
    """Return the commit of a row, which is its last item; None if it has none."""
    if not pack.items or is_buried(pack.items[-1]) or kind_of(pack.items[-1]) is not Kind.COMMIT:
        return None
    return decode_commit(pack.items[-1][1])


def packed_move(record: MoveRecord, commit: Digest | None, parent: Digest | None) -> PackedMove:
    """Return the stored form of a move, in a row whose commit has this digest and first parent."""
    from_, to = record.from_, record.to
    return PackedMove(
        _ACTS.index(record.act),
        bytes_of(record.timeline),
        record.version,
        None if from_ is None else from_ == parent or bytes.fromhex(from_),
        None if to is None else to == commit or bytes.fromhex(to),
        sealed_at_by(record),
    )


def moves_of(pack: RowPack, op_id: bytes, previous: bytes | None) -> list[MoveRecord]:
    """Return the moves of the write that a row completes; `previous` has the digests of the moves before them."""
    if pack.op is None or not pack.op.moves:
        if previous is not None:
            raise damaged("a row without a move names the one before it.", "row_damaged")
        return []
    commit = commit_in(pack)
    own = None if commit is None else digest_of_item(pack.items[-1])
    parent = None if commit is None else commit.first_parent
    found: list[MoveRecord] = []
    rest = previous or b""
    for move in pack.op.moves:
        size = 33 if rest[:1] == b"\x01" else 1
        if len(rest) < size or rest[:1] not in (b"\x00", b"\x01") or not 0 <= move.act < len(_ACTS):
            raise damaged("a stored move cannot be read.", "row_damaged")
        sealed, at, author = read_sealed_at_by(move.sealed)
        record = MoveRecord(
            timeline=name_of(move.timeline),
            version=move.version,
            act=_ACTS[move.act],
            op_id=op_name(op_id),
            from_=_named(move.from_, parent),
            to=_named(move.to, own),
            previous=Digest(rest[1:33].hex()) if size == 33 else None,
            sealed=sealed,
            at=at,
            author=author,
        )
        found.append(record)
        rest = rest[size:]
    if rest:
        raise damaged("a stored move cannot be read.", "row_damaged")
    return found


def heads_of(pack: RowPack) -> tuple[Head, ...]:
    """Return the heads that the write which a row completes has left."""
    commit = None if not pack.items else commit_in(pack)
    own = None if commit is None else digest_of_item(pack.items[-1])
    moves = pack.op.moves if pack.op is not None else ()
    return tuple([Head(name_of(move.timeline), move.version, _named(move.to, own)) for move in moves])


def _named(stored: bytes | bool | None, own: Digest | None) -> Digest | None:
    if stored is None or stored is False:
        return None
    if stored is True:
        if own is None:
            raise Corrupt(
                "the commit that a stored move names is missing.",
                code="row_damaged",
                advice="Run `perdure verify`.",
            )
        return own
    return Digest(stored.hex())


# ---- names and keys


def bytes_of(name: str) -> bytes:
    """Return a name as it is stored; any text of Python has such a form."""
    return name.encode("utf-8", "surrogatepass")


def name_of(stored: object) -> str:
    """Return the name that was stored; damaged bytes give some other name."""
    if not isinstance(stored, bytes):
        raise damaged("a stored name is missing.", "row_damaged")
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return stored.decode("utf-8", "replace")


_UUID = b"\xff"  # no text has this byte
_is_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch


def op_bytes(op_id: str) -> bytes:
    """Return an op_id as it is stored; a UUID in its usual spelling as a mark and its 16 bytes."""
    if len(op_id) == 36 and _is_uuid(op_id):
        return _UUID + bytes.fromhex(op_id.replace("-", ""))
    return bytes_of(op_id)


def op_name(stored: bytes) -> str:
    """Return the op_id that was stored."""
    if stored.startswith(_UUID):
        digits = stored[1:].hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return name_of(stored)


_OFFSET = 1 << 63  # keys are signed numbers in the order of the bytes that they are made of


def key_of(digest: str) -> int:
    """Return the key of an object."""
    return int(digest[:16], 16) - _OFFSET


def _hashed(name: bytes) -> int:
    return int.from_bytes(sha256(name).digest()[:8]) - _OFFSET


@lru_cache(64)  # the commits of a run all have its label
def label_key(label: str) -> int:
    """Return the key of a message id or a run id; never 0, which means none."""
    return _hashed(b"label\0" + bytes_of(label)) or 1


def op_key(op_id: bytes) -> int:
    """Return the key of an op_id; the server computes the same."""
    return _hashed(b"op\0" + op_id)


def move_key(timeline: bytes, version: int) -> int:
    """Return the key of a move; the server computes the same."""
    return _hashed(b"move\0" + timeline + b"\n%d" % version)
