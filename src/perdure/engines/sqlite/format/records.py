"""Commits, changesets and moves at rest: their fields, without what the row's own columns say.

The hashed form is JSON, in which digests take 64 letters and names are repeated; at
rest a record is a short array, and a commit leaves out what its changeset says, which
stands beside it.  A changeset is plain text but for its digests: those of messages, and
the puts of its patch.  What comes back is encoded again and must have the digest that it had.  A record that our types cannot give back to the letter (one from a
later version, say) is kept as the bytes it came in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from perdure.errors import Corrupt
from perdure.model.commit import (
    NO_READS,
    Act,
    Changeset,
    Commit,
    LedgerRead,
    MoveRecord,
    Reads,
    decode_changeset,
    encode_changeset,
)
from perdure.model.digest import Digest
from perdure.model.event import Event, MessageAppended
from perdure.model.head import MAIN
from perdure.model.patch import JSON_TYPE, OPS_VERSION, Patch, Put

__all__ = [
    "Columns",
    "StoredMove",
    "long",
    "move_of",
    "pack_changeset",
    "pack_commit",
    "pack_move",
    "short",
    "timeline_of",
    "unpack_changeset",
    "unpack_commit",
]

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


class _Stored(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A commit without what the columns and the changeset say."""

    thread: str
    author: str | None = None
    others: tuple[bytes, ...] = ()  # parents after the first
    reads: tuple[bytes | None, bytes | None, bytes | None] | None = None
    ledger: tuple[int, bytes | None] | None = None
    reason: str | None = None  # None: the changeset's
    run: bytes | bool | None = None  # None: the changeset's; False: none


class StoredMove(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A move; True stands for the digest that the row's columns have (`from_`: the parent's, `to`: its own)."""

    act: int
    timeline: str
    version: int
    op_id: bytes
    from_: bytes | bool | None = None
    to: bytes | bool | None = None
    previous: bytes | None = None
    sealed: bool = False


class _Extracted(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What was taken out of a changeset's text."""

    bodies: tuple[bytes, ...] = ()  # the digests of its messages, in order
    puts: tuple[tuple[str, bytes, int], ...] = ()  # path, value and size of each op, where all put JSON


_NO_DIGEST = Digest("")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)
_taken = msgspec.msgpack.Decoder(_Extracted)


def pack_changeset(changeset: Changeset, body: bytes) -> tuple[str, bytes]:
    """The changeset as plain text, and what was taken out of it to make it short; `body` is its canonical bytes.

    A quotation mark inside a string is escaped, so what is cut here can only be a field.
    """
    text = whole = body.decode()
    taken: list[bytes] = []
    for event in changeset.events:
        if isinstance(event, MessageAppended):
            text = text.replace(f'"body":"{event.body}"', '"body":""', 1)
            taken.append(bytes.fromhex(event.body))
    if whole.count('"body":"') != len(taken):  # something else has a field of that name
        text = _without_bodies(changeset)
    puts = _plain_puts(changeset.patch) if changeset.patch.ops else ()
    if not puts:
        return text, _encoder.encode((taken,))
    # Nothing behind the patch has a field that is an object, and the reason is always there.
    start = text.rindex('"patch":{')
    end = text.index('},"reason":', start)
    return text[:start] + text[end + 2 :], _encoder.encode((taken, puts))


def _without_bodies(changeset: Changeset) -> str:
    events = tuple(
        [
            replace(event, body=_NO_DIGEST) if isinstance(event, MessageAppended) else event
            for event in changeset.events
        ]
    )
    return encode_changeset(replace(changeset, events=events)).decode()


def unpack_changeset(text: bytes, data: bytes) -> Changeset:
    """The changeset of that text with what was taken out of it; raises `Corrupt` if they do not fit."""
    try:
        taken = _taken.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"a stored changeset cannot be unpacked ({error}). Run `perdure verify`.") from error
    bare = decode_changeset(text)
    bodies = iter(taken.bodies)
    events = tuple([_with_body(event, bodies) for event in bare.events])
    if not taken.puts:
        return replace(bare, events=events)
    ops = tuple([Put(path, Digest(value.hex()), size) for path, value, size in taken.puts])
    return replace(bare, events=events, patch=Patch(ops))


def _plain_puts(patch: Patch) -> list[tuple[str, bytes, int]]:
    """The ops of a patch that puts nothing but JSON; nothing of any other."""
    puts: list[tuple[str, bytes, int]] = []
    for op in patch.ops:
        if not isinstance(op, Put) or op.form != "json" or op.media_type != JSON_TYPE:
            return []
        puts.append((op.path, bytes.fromhex(op.value), op.size))
    return puts if patch.version == OPS_VERSION else []


def _with_body(event: Event, bodies: Iterator[bytes]) -> Event:
    if not isinstance(event, MessageAppended):
        return event
    return replace(event, body=Digest(next(bodies, b"").hex()))


def pack_commit(commit: Commit, changeset: Changeset) -> bytes:
    """The commit's fields that neither the row's columns nor its changeset have, without empty ones at the end."""
    reads, ledger = commit.reads, commit.ledger
    fields = [
        commit.thread,
        commit.author,
        [bytes.fromhex(parent) for parent in commit.parents[1:]] if len(commit.parents) > 1 else [],
        None if reads is NO_READS else _packed_reads(reads),
        (ledger.position, _raw(ledger.chain)) if ledger.position else None,
        None if commit.reason == changeset.reason else commit.reason,
        None if commit.run == changeset.run_id else False if commit.run is None else short(commit.run),
    ]
    while fields[-1] is None or fields[-1] == []:
        fields.pop()
    return _encoder.encode(fields)


def unpack_commit(data: bytes, columns: Columns) -> Commit:
    """The commit; raises `Corrupt` if the record, or the changeset that it leans on, cannot be read."""
    try:
        stored = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"a stored commit cannot be unpacked ({error}). Run `perdure verify`.") from error
    changeset = columns.changeset
    if changeset is None:
        raise Corrupt("a stored commit has lost its changeset. Run `perdure verify`.")
    first = () if columns.parent is None else (columns.parent,)
    run = long(stored.run) if isinstance(stored.run, bytes) else None
    commit = Commit(
        parents=tuple(Digest(parent.hex()) for parent in (*first, *stored.others)),
        changeset=columns.changeset_digest,
        root=Digest((columns.root or b"").hex()),
        thread=stored.thread,
        depth=columns.depth,
        reason=changeset.reason if stored.reason is None else stored.reason,
        at=columns.at,
        run=changeset.run_id if stored.run is None else run,
        author=stored.author,
    )
    if stored.reads is None and stored.ledger is None:
        return commit
    reads = Reads(*map(_hex, stored.reads or ()))
    ledger = LedgerRead() if stored.ledger is None else LedgerRead(stored.ledger[0], _hex(stored.ledger[1]))
    return replace(commit, reads=reads, ledger=ledger)


def pack_move(move: MoveRecord, digest: Digest | None, parent: Digest | None) -> StoredMove:
    """The move at rest, in a row whose commit has this digest and parent."""
    from_, to, previous = move.from_, move.to, move.previous
    return StoredMove(
        _ACT_AT[move.act],
        move.timeline,
        move.version,
        short(move.op_id),
        None if from_ is None else from_ == parent or bytes.fromhex(from_),
        None if to is None else to == digest or bytes.fromhex(to),
        None if previous is None else bytes.fromhex(previous),
        move.sealed,
    )


def timeline_of(moves: Sequence[StoredMove]) -> str | None:
    """The timeline that these moves lead to the commit of their row, for the column of that name; None: `main`, or none."""
    for move in moves:
        if move.to is True:
            return None if move.timeline == MAIN else move.timeline
    return None


def move_of(stored: StoredMove, columns: Columns) -> MoveRecord:
    """The move that was stored; raises `Corrupt` if its act is unknown, or its row has lost what it names."""
    if not 0 <= stored.act < len(_ACTS):
        raise Corrupt("a stored move is of an unknown kind. Run `perdure verify`.")
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
    if len(name) == 36 and _is_uuid(name):
        return _UUID + bytes.fromhex(name.replace("-", ""))
    return name.encode("utf-8", "surrogatepass")


def long(name: bytes) -> str:
    """The name that was shortened; damaged bytes give some other name, which no digest fits."""
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
        raise Corrupt("a stored move has lost the commit that it names. Run `perdure verify`.")
    return _hex(columns if stored is True else stored or None)


def _raw(digest: Digest | None) -> bytes | None:
    return None if digest is None else bytes.fromhex(digest)


def _hex(digest: bytes | None) -> Digest | None:
    return None if digest is None else Digest(digest.hex())
