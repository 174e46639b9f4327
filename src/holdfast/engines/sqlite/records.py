"""Commits and moves at rest: their fields, without what the row's own columns say.

The hashed form is JSON, in which digests take 64 letters and names are repeated; at
rest a record is a short array.  What comes back is encoded again and must have the
digest that it had.  A record that our types cannot give back to the letter (one from a
later version, say) is kept as the bytes it came in.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import Corrupt
from holdfast.model.commit import Act, Commit, LedgerRead, MoveRecord, Reads, encode_commit
from holdfast.model.digest import Digest

__all__ = ["Columns", "StoredMove", "long", "move_of", "pack_commit", "pack_move", "short", "unpack_commit"]

_UUID = b"\x00"  # no name starts with a control character
_ACTS = tuple(Act)  # a move names its act by position: append only


class Columns(msgspec.Struct, frozen=True):
    """What the row's own columns say of its commit."""

    digest: bytes | None = None
    parent: bytes | None = None  # the first parent's digest
    root: bytes | None = None
    depth: int = 0
    at: int = 0


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """A commit without what the columns say."""

    changeset: bytes
    thread: str
    reason: str
    run: bytes | None = None
    author: str | None = None
    others: tuple[bytes, ...] = ()  # parents after the first
    reads: tuple[bytes | None, bytes | None, bytes | None] | None = None
    ledger: tuple[int, bytes | None] | None = None


class StoredMove(msgspec.Struct, array_like=True, frozen=True):
    """A move; True stands for the digest that the row's columns have (`from_`: the parent's, `to`: its own)."""

    act: int
    timeline: str
    version: int
    op_id: bytes
    from_: bytes | bool | None = None
    to: bytes | bool | None = None
    previous: bytes | None = None
    sealed: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)


def pack_commit(commit: Commit) -> bytes:
    """The commit's fields that the row's columns do not have."""
    fields: tuple[object, ...] = (bytes.fromhex(commit.changeset), commit.thread, commit.reason)
    reads = commit.reads
    more: tuple[object, ...] = (
        None if commit.run is None else short(commit.run),
        commit.author,
        [bytes.fromhex(parent) for parent in commit.parents[1:]],
        _packed_reads(reads),
        (commit.ledger.position, _raw(commit.ledger.chain)) if commit.ledger.position else None,
    )
    while more and not more[-1]:
        more = more[:-1]
    return _encoder.encode(fields + more)


def unpack_commit(data: bytes, columns: Columns) -> bytes:
    """The commit's canonical bytes; raises `Corrupt` if the record cannot be read."""
    try:
        stored = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"a stored commit cannot be unpacked ({error}). Run `holdfast verify`.") from error
    first = () if columns.parent is None else (columns.parent,)
    commit = Commit(
        parents=tuple(Digest(parent.hex()) for parent in (*first, *stored.others)),
        changeset=Digest(stored.changeset.hex()),
        root=Digest((columns.root or b"").hex()),
        thread=stored.thread,
        depth=columns.depth,
        reason=stored.reason,
        at=columns.at,
        reads=Reads() if stored.reads is None else Reads(*map(_hex, stored.reads)),
        ledger=LedgerRead()
        if stored.ledger is None
        else LedgerRead(stored.ledger[0], _hex(stored.ledger[1])),
        run=None if stored.run is None else long(stored.run),
        author=stored.author,
    )
    return encode_commit(commit)


def pack_move(move: MoveRecord, digest: bytes | None, parent: bytes | None) -> StoredMove:
    """The move at rest, in a row whose commit has this digest and parent."""
    from_, to = _raw(move.from_), _raw(move.to)
    return StoredMove(
        _ACTS.index(move.act),
        move.timeline,
        move.version,
        short(move.op_id),
        True if from_ is not None and from_ == parent else from_,
        True if to is not None and to == digest else to,
        _raw(move.previous),
        move.sealed,
    )


def move_of(stored: StoredMove, columns: Columns) -> MoveRecord:
    """The move that was stored; raises `Corrupt` if its act is unknown."""
    if not 0 <= stored.act < len(_ACTS):
        raise Corrupt("a stored move is of an unknown kind. Run `holdfast verify`.")
    return MoveRecord(
        timeline=stored.timeline,
        version=stored.version,
        act=_ACTS[stored.act],
        op_id=long(stored.op_id),
        from_=_named(stored.from_, columns.parent),
        to=_named(stored.to, columns.digest),
        previous=_hex(stored.previous),
        sealed=stored.sealed,
    )


def short(name: str) -> bytes:
    """A name as bytes; a UUID in its usual spelling as a mark and its 16 bytes."""
    if len(name) == 36 and name[8] == name[13] == name[18] == name[23] == "-":
        try:
            raw = _UUID + bytes.fromhex(name.replace("-", ""))
        except ValueError:
            return name.encode()
        return raw if long(raw) == name else name.encode()
    return name.encode("utf-8", "surrogatepass")


def long(name: bytes) -> str:
    """The name that was shortened."""
    if not name.startswith(_UUID):
        return name.decode("utf-8", "surrogatepass")
    digits = name[1:].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _packed_reads(reads: Reads) -> tuple[bytes | None, bytes | None, bytes | None] | None:
    if reads.agent_root is None and reads.agent_commit is None and reads.memory_root is None:
        return None
    return _raw(reads.agent_root), _raw(reads.agent_commit), _raw(reads.memory_root)


def _named(stored: bytes | bool | None, columns: bytes | None) -> Digest | None:
    return _hex(columns if stored is True else stored or None)


def _raw(digest: Digest | None) -> bytes | None:
    return None if digest is None else bytes.fromhex(digest)


def _hex(digest: bytes | None) -> Digest | None:
    return None if digest is None else Digest(digest.hex())
