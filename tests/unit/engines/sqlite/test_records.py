"""Records at rest: commits and moves come back to the letter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.sqlite.records import (
    Columns,
    long,
    move_of,
    pack_commit,
    pack_move,
    short,
    unpack_commit,
)
from holdfast.model.commit import Act, Commit, LedgerRead, MoveRecord, Reads, encode_commit
from holdfast.model.digest import Digest

digests = st.binary(min_size=32, max_size=32).map(lambda raw: Digest(raw.hex()))
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)
ids = st.one_of(texts, st.uuids().map(str), st.uuids().map(lambda each: str(each).upper()))


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    """Commits of every shape."""
    return Commit(
        parents=tuple(draw(st.lists(digests, max_size=3))),
        changeset=draw(digests),
        root=draw(digests),
        thread=draw(texts),
        depth=draw(st.integers(0, 10**9)),
        reason=draw(texts),
        at=draw(st.integers(0, 2**53 - 1)),
        reads=draw(st.builds(Reads, st.none() | digests, st.none() | digests, st.none() | digests)),
        ledger=draw(st.just(LedgerRead()) | st.builds(LedgerRead, st.integers(1, 10**9), digests)),
        run=draw(st.none() | ids),
        author=draw(st.none() | texts),
    )


@given(commits(), digests)
def test_a_commit_comes_back_to_the_letter(commit: Commit, digest: Digest) -> None:
    """What the columns say and what is packed make the hashed bytes again."""
    parent = bytes.fromhex(commit.parents[0]) if commit.parents else None
    columns = Columns(bytes.fromhex(digest), parent, bytes.fromhex(commit.root), commit.depth, commit.at)

    assert unpack_commit(pack_commit(commit), columns) == encode_commit(commit)


@given(
    st.builds(
        MoveRecord,
        timeline=texts,
        version=st.integers(0, 10**9),
        act=st.sampled_from(Act),
        op_id=ids,
        from_=st.none() | digests,
        to=st.none() | digests,
        previous=st.none() | digests,
        sealed=st.booleans(),
    ),
    st.none() | digests,
    st.none() | digests,
    st.booleans(),
)
def test_a_move_comes_back_as_it_was(
    move: MoveRecord, digest: Digest | None, parent: Digest | None, fits: bool
) -> None:
    """In its own row, where the columns name both ends, and in any other."""
    ends = (move.to, move.from_) if fits else (digest, parent)
    own, above = (None if end is None else bytes.fromhex(end) for end in ends)

    assert move_of(pack_move(move, own, above), Columns(own, above)) == move


@given(ids)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    """A UUID is kept in 17 bytes; one in other letters, and any other name, as it is."""
    assert long(short(name)) == name


def test_a_uuid_is_kept_short() -> None:
    """The usual spelling only: anything else would not come back."""
    assert len(short("01a1e106-c1ae-7359-9786-07585d7ccd20")) == 17
    assert len(short("01A1E106-C1AE-7359-9786-07585D7CCD20")) == 36
