"""Commits and moves: what is now true, and how a head came to stand where it stands."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from perdure.errors import Corrupt
from perdure.model import canonical
from perdure.model.digest import Digest

__all__ = [
    "NO_LEDGER",
    "NO_READS",
    "Act",
    "Commit",
    "LedgerRead",
    "MoveRecord",
    "Reads",
    "decode_commit",
    "decode_move",
    "encode_commit",
    "encode_move",
]


class Reads(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What lay outside the thread when the step was taken."""

    agent_root: Digest | None = None
    agent_commit: Digest | None = None
    memory_root: Digest | None = None


class LedgerRead(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far the ledger had come when the step was taken."""

    position: int = 0
    chain: Digest | None = None


NO_READS = Reads()  # one object each: the encoder leaves a default out only where it is this very one
NO_LEDGER = LedgerRead()


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One step of a history: what happened and what is then true, fixed by one digest."""

    parents: tuple[Digest, ...]
    changeset: Digest
    root: Digest
    thread: str  # the thread's id, or the agent's name for an agent's own map
    depth: int  # commits on the first-parent chain before this one
    reason: str
    at: int  # µs since 1970, UTC; data, never an order
    reads: Reads = NO_READS
    ledger: LedgerRead = NO_LEDGER
    run: str | None = None
    author: str | None = None

    @property
    def first_parent(self) -> Digest | None:
        """The commit before it on its line; None if the line begins with it."""
        return self.parents[0] if self.parents else None


class Act(StrEnum):
    """Why a head moved."""

    COMMIT = "commit"
    UNDO = "undo"
    REDO = "redo"
    FORK = "fork"
    PROMOTE = "promote"
    KEEP = "keep"  # the old main, kept when another line was promoted
    SEAL = "seal"


class MoveRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"from_": "from"}, gc=False
):
    """One recorded move of a head.  Each names the one before it, so a head can be checked against its last move."""

    timeline: str
    version: int
    act: Act
    op_id: str
    from_: Digest | None = None
    to: Digest | None = None
    previous: Digest | None = None  # None: the first move of this timeline
    sealed: bool = False


_commits = msgspec.json.Decoder(Commit)
_moves = msgspec.json.Decoder(MoveRecord)


def encode_commit(commit: Commit) -> bytes:
    """The commit's canonical bytes; what was not read is left out, however it was said."""
    if commit.reads is not NO_READS and commit.reads == NO_READS:
        commit = msgspec.structs.replace(commit, reads=NO_READS)
    if commit.ledger is not NO_LEDGER and commit.ledger == NO_LEDGER:
        commit = msgspec.structs.replace(commit, ledger=NO_LEDGER)
    return canonical.encode_struct(commit)


def decode_commit(body: bytes) -> Commit:
    """The commit that `body` holds; raises `Corrupt` if it is not one."""
    try:
        return _commits.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"a stored commit cannot be read: {error}. Run `perdure verify`.") from error


def encode_move(move: MoveRecord) -> bytes:
    """The move's canonical bytes."""
    return canonical.encode_struct(move)


def decode_move(body: bytes) -> MoveRecord:
    """The move that `body` holds; raises `Corrupt` if it is not one."""
    try:
        return _moves.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"a stored move cannot be read: {error}. Run `perdure verify`.") from error
