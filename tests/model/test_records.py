"""Changesets, commits, moves and heads: their bytes are pinned, and damaged ones are refused."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from perdure.errors import Corrupt
from perdure.model.commit import (
    Act,
    Changeset,
    Commit,
    LedgerRead,
    MoveRecord,
    Reads,
    RunMeta,
    StateAction,
    decode_changeset,
    decode_commit,
    decode_move,
    encode_changeset,
    encode_commit,
    encode_move,
)
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import MessageAppended
from perdure.model.head import Head
from perdure.model.limits import Limits
from perdure.model.patch import Clear, Delete, Edit, Patch, Put, Replace, Stored
from tests.coded import raises

ONE, TWO = Digest("ab" * 32), Digest("cd" * 32)

CHANGESET = Changeset(
    reason="user_message",
    run_id="run-1",
    events=(MessageAppended(id="m-1", role="user", body=ONE, size=5),),
    patch=Patch((Put("/a.json", TWO, 3), Delete("/b"))),
)
COMMIT = Commit(
    parents=(ONE,),
    changeset=TWO,
    root=ONE,
    thread="trip-42",
    depth=1,
    reason="user_message",
    at=1_700_000_000_000_000,
    run="run-1",
    author="ann",
)
MOVE = MoveRecord(timeline="main", version=3, act=Act.UNDO, op_id="op", from_=ONE, previous=TWO)


def test_a_changeset_has_these_bytes_for_ever() -> None:
    """Ids, roles, sizes and digests; defaults are left out."""
    body = encode_changeset(CHANGESET)

    assert body == (
        b'{"events":[{"body":"%s","id":"m-1","role":"user","size":5,"type":"message.appended"}],'
        b'"patch":{"ops":[{"op":"put","path":"/a.json","size":3,"value":"%s"},{"op":"delete","path":"/b"}]},'
        b'"reason":"user_message","run_id":"run-1"}' % (ONE.encode(), TWO.encode())
    )
    pinned = "0b64bb1990ece2fd5496a0741e2da3d0afbafb52a3c6b7ca742861c201bd2307"
    assert digest_of(Kind.CHANGESET, body) == pinned


def test_a_commit_has_these_bytes_for_ever() -> None:
    """One digest fixes what happened and what is then true."""
    body = encode_commit(COMMIT)

    assert body == (
        b'{"at":1700000000000000,"author":"ann","changeset":"%s","depth":1,"parents":["%s"],'
        b'"reason":"user_message","root":"%s","run":"run-1","thread":"trip-42"}'
        % (TWO.encode(), ONE.encode(), ONE.encode())
    )
    pinned = "88f3851ce7dd80608dfa53e06e6d5b1976c49e81e4bc53ed6b16a7ed32048715"
    assert digest_of(Kind.COMMIT, body) == pinned


def test_a_move_has_these_bytes_for_ever() -> None:
    """Each move names the one before it."""
    body = encode_move(MOVE)

    assert body == (
        b'{"act":"undo","from":"%s","op_id":"op","previous":"%s","timeline":"main","version":3}'
        % (ONE.encode(), TWO.encode())
    )
    pinned = "7d984688d9d022304a193304fcce15e89e82fc02c16e42a18d6e6b94b842ecea"
    assert digest_of(Kind.MOVE, body) == pinned


def test_a_changeset_comes_back_with_every_op() -> None:
    """Ops keep their order, their values by digest, and places inside documents as keys and indexes."""
    stored = Stored(ONE, 9, "bytes", "image/png")
    ops = (
        Put("/a", ONE, 1),
        Put("/b", ONE, 1, "bytes", "image/png"),
        Delete("/a"),
        Clear("/"),
        Replace({"/z": stored, "/a": Stored(TWO, 2)}, ("/keep",)),
        Edit("/d.json", "append", ("list", 0, "x.y"), ONE, 7, TWO),
        Edit("/d.json", "unset", ("k",), ONE, 7),
    )
    meta = RunMeta("1", "anthropic:claude", "cli", "stopped")
    actions = (StateAction("book", "tool:book", ONE), StateAction("clean", "prepare_run:scope_cleanup"))
    changeset = Changeset(
        reason="r", parent_run_id="run-0", run_meta=meta, patch=Patch(ops), state_actions=actions
    )

    assert decode_changeset(encode_changeset(changeset)) == changeset


def test_a_commit_comes_back_with_all_it_read() -> None:
    """Agent, memory and ledger as they were read are part of it."""
    commit = msgspec.structs.replace(
        COMMIT, parents=(ONE, TWO), reads=Reads(ONE, TWO, ONE), ledger=LedgerRead(7, TWO)
    )

    assert decode_commit(encode_commit(commit)) == commit


def test_a_move_comes_back() -> None:
    """Sealing and beginnings too."""
    begin = MoveRecord(timeline="main.v3", version=0, act=Act.KEEP, op_id="op", to=ONE, sealed=True)

    assert decode_move(encode_move(begin)) == begin
    assert decode_move(encode_move(MOVE)) == MOVE


@pytest.mark.parametrize(
    ("decode", "good"),
    [
        (decode_changeset, encode_changeset(CHANGESET)),
        (decode_commit, encode_commit(COMMIT)),
        (decode_move, encode_move(MOVE)),
    ],
)
def test_damaged_records_are_corrupt(decode: Callable[[bytes], object], good: bytes) -> None:
    """Truncated, garbled, of another shape or absurdly deep: one typed error, never a crash."""
    damaged = [
        b"",
        b"{}",
        b"[]",
        b"null",
        good[:-1],
        good[:-1] + b"\xff}",
        good + good,
        b'{"x":' + b"[" * 100_000,
    ]

    for body in damaged:
        with raises(Corrupt, "record_unreadable"):
            decode(body)


def test_heads_compare_by_value() -> None:
    """Two readings of the same place are equal; timeline, version and commit all count."""
    head = Head("main", 3, ONE)

    assert head == Head("main", 3, ONE)
    assert (
        len({head, Head("main", 3, ONE), Head("main", 3, TWO), Head("main", 4, ONE), Head("x", 3, ONE)}) == 4
    )
    with pytest.raises(AttributeError):
        head.version = 4  # pyright: ignore[reportAttributeAccessIssue]


def test_limits_are_those_of_the_documents() -> None:
    """What is larger than these is refused, or kept in another way."""
    limits = Limits()

    assert (limits.value_bytes_max, limits.artifact_bytes_max) == (1024**2, 100 * 1024**2)
    assert (limits.write_events_max, limits.write_bytes_max) == (1_000, 8 * 1024**2)
