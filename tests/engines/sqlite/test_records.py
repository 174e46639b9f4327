"""Records at rest: commits and moves come back to the letter."""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate, pairwise
from typing import cast

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perdure.engines.contract import Step
from perdure.engines.sqlite.format.commits import events_of, hashed_step, line_of
from perdure.engines.sqlite.format.index import run_key
from perdure.engines.sqlite.format.pack import (
    Columns,
    Pack,
    commit_in,
    cut_digests,
    long,
    move_of,
    pack_commit,
    pack_move,
    short,
    with_digests,
)
from perdure.engines.sqlite.format.rows import LogRow
from perdure.errors import Corrupt, Unsupported
from perdure.model.commit import (
    Act,
    Changeset,
    Commit,
    LedgerRead,
    MoveRecord,
    Reads,
    encode_changeset,
    encode_commit,
)
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import AgentChanged, Event, MemoryWritten, MessageAppended, RunFinished
from perdure.model.patch import Delete, Patch, Put

digests = st.binary(min_size=32, max_size=32).map(lambda raw: Digest(raw.hex()))
tricky = ('"body":"', '"patch":{"ops":[', '\\"body\\":\\"', '"patch":')  # what the packing looks for
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40) | st.sampled_from(
    tricky
)
ids = st.one_of(texts, st.uuids().map(str), st.uuids().map(lambda each: str(each).upper()))

messages = st.builds(
    MessageAppended,
    id=ids,
    role=st.sampled_from(("user", "assistant")),
    body=digests,
    size=st.integers(100, 10**6),  # more than the words of a row: only its own words have a message's size
    vendor=st.none() | digests,
)
events = st.one_of(
    messages,
    st.builds(RunFinished, id=ids, status=st.just("succeeded")),
    st.builds(MemoryWritten, id=ids, owner=texts, item=texts, body=st.none() | digests),
    st.builds(AgentChanged, id=ids, agent=texts, timeline=texts, patch=digests, size=st.integers(0, 10**6)),
)
ops = st.one_of(
    st.builds(Put, texts, digests, st.integers(0, 10**6)),
    st.builds(Put, texts, digests, st.integers(0, 10**6), st.just("bytes"), st.just("image/png")),
    st.builds(Delete, texts),
)


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


@given(commits(), digests, st.booleans(), texts, st.none() | ids)
def test_a_commit_comes_back_to_the_letter(
    commit: Commit, digest: Digest, fits: bool, reason: str, run: str | None
) -> None:
    """What the columns say, what its changeset says and what is packed make the hashed bytes again."""
    changeset = Changeset(reason=commit.reason if fits else reason, run_id=commit.run if fits else run)
    columns = Columns(
        digest=bytes.fromhex(digest),
        parent=bytes.fromhex(commit.parents[0]) if commit.parents else None,
        root=bytes.fromhex(commit.root),
        depth=commit.depth,
        at=commit.at,
        changeset=changeset,
        changeset_digest=commit.changeset,
    )

    back, body = commit_in(pack_commit(commit, changeset), columns)

    assert body == encode_commit(back) == encode_commit(commit)
    assert commit_in(body, columns)[1] == body  # stored whole, as one of a later version is


@given(st.lists(events), st.lists(ops), st.none() | ids, texts | st.just(""))
def test_a_changeset_comes_back_to_the_letter(
    events: list[Event], ops: list[Put | Delete], run: str | None, reason: str
) -> None:
    """Its text and what was cut out of it make the hashed bytes again."""
    changeset = Changeset(reason=reason, run_id=run, events=tuple(events), patch=Patch(tuple(ops)))
    body = encode_changeset(changeset)

    text, cut = cut_digests(body.decode())

    assert with_digests(text.encode(), cut) == body
    is_left_whole = not reason or any(isinstance(event, MemoryWritten) for event in events)
    said = [event.body for event in events if isinstance(event, MessageAppended)]
    assert [body for body in said if f'"body":"{body}"' in text] == (said if is_left_whole else [])


@given(st.binary(max_size=100))
def test_a_damaged_changeset_is_corrupt_or_another_one(cut: bytes) -> None:
    """No bytes beside the text can raise anything else."""
    said = MessageAppended(id="m", role="user", body=Digest("ab" * 32), size=3)
    changeset = Changeset(reason="turn", events=(said,))
    text, _ = cut_digests(encode_changeset(changeset).decode())

    with suppress(Corrupt):
        with_digests(text.encode(), cut)


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

    assert move_of(pack_move(move, *ends), Columns(own, above)) == move


@given(ids)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    """A UUID is kept in 17 bytes; one in other letters, and any other name, as it is."""
    assert long(short(name)) == name


def test_a_uuid_is_kept_short() -> None:
    """The usual spelling only: anything else would not come back."""
    assert len(short("01a1e106-c1ae-7359-9786-07585d7ccd20")) == 17
    assert len(short("01A1E106-C1AE-7359-9786-07585D7CCD20")) == 36


def with_words(event: Event, words: bytes) -> Event:
    """The event, whose body these words are if it is a message."""
    named = digest_of(Kind.BODY, words)
    is_message = isinstance(event, MessageAppended)
    return msgspec.structs.replace(event, body=named, size=len(words)) if is_message else event


@st.composite
def lines(draw: st.DrawFn, *, is_packed: bool = False, is_spoken: bool = False) -> list[list[object]]:
    """The rows of a line, newest first, each commit the parent of the one before it, and the row of the last one's parent.

    Words are those of the messages, or others.  `is_packed`: no commit is stored whole.  `is_spoken`: each has a message.
    """
    depth, above, number, ran = draw(st.integers(1, 10**9)), draw(digests), 7, None
    turn, sequence, count = 4, 7, 2  # the place of the first one's parent, and how many events that has
    found: list[list[object]] = [
        [number, 6, 1, depth - 1, turn, sequence, count, None, 0, bytes.fromhex(above)]
    ]
    for _ in range(draw(st.sampled_from((1, 2, 3, 5)))):
        happened = [draw(messages)] if is_spoken else []
        happened += draw(st.lists(events, max_size=3 - len(happened)))
        spoken = [draw(st.binary(min_size=1, max_size=20)) for _ in happened]
        if draw(st.booleans()):
            happened = [with_words(*each) for each in zip(happened, spoken, strict=True)]
        changeset = Changeset(
            reason=draw(texts),
            run_id=draw(st.none() | ids),
            events=tuple(happened),
            patch=Patch(tuple(draw(st.lists(ops, max_size=3)))),
        )
        body = encode_changeset(changeset)
        commit = msgspec.structs.replace(
            draw(commits()),
            parents=(above, *draw(st.lists(digests, max_size=1))),
            changeset=digest_of(Kind.CHANGESET, body),
            depth=depth,
            run=changeset.run_id if draw(st.booleans()) else draw(st.none() | ids),
        )
        text, cut = cut_digests(body.decode())
        said = [at for at, event in enumerate(changeset.events) if isinstance(event, MessageAppended)]
        words = [spoken[at] for at in said]
        ends = list(accumulate(map(len, words)))
        spans = [
            (at, end - len(each), len(each), 0, 0) for at, each, end in zip(said, words, ends, strict=True)
        ]
        is_whole = not is_packed and draw(st.booleans())
        fields = encode_commit(commit) if is_whole else pack_commit(commit, changeset)
        above = digest_of(Kind.COMMIT, encode_commit(commit))
        run = None if commit.run is None else run_key(commit.run)
        turn, sequence = turn + (run is None or run != ran), sequence + count
        place = [number + 1, number, 1, depth, turn, sequence, len(changeset.events), run, commit.at]
        named = [bytes.fromhex(above), bytes.fromhex(commit.root), 3, fields, text.encode(), cut]
        found.insert(0, [*place, *named, msgspec.json.encode(spans), b"".join(words)])
        depth, number, ran, count = depth + 1, number + 1, run, len(changeset.events)
    return found


def alone(row: list[object], parent: list[object]) -> Step:
    """What the functions of the format give for one row, with the bodies that its spans name."""
    _, _, _, depth, turn, sequence, _, _, at, digest, root, _, fields, text, cut, spans, words = row
    assert isinstance(spans, bytes)
    assert isinstance(words, bytes)
    columns = depth, turn, sequence, at, digest, root, fields, text, cut, words, parent[9]
    step = hashed_step(LogRow(8, 1, b"", Pack(), 0, *columns, 0, 0, True))  # pyright: ignore[reportArgumentType]
    bodies = [words[start : start + size] for _, start, size, _, _ in msgspec.json.decode(spans)]
    return msgspec.structs.replace(step, bodies={digest_of(Kind.BODY, body): body for body in bodies})


@given(lines())
def test_a_line_reads_as_its_rows_do_alone(line: list[list[object]]) -> None:
    """What is read of many rows together is what the functions of the format give for each of them."""
    assert line_of(line, len(line) - 1) == [alone(*rows) for rows in pairwise(line)]


@given(lines(), st.sampled_from((3, 5, 6, 7, 8, 9, 10, 12, 13, 14)), st.integers(0), st.integers(1, 255))
def test_a_changed_row_of_a_line_is_not_returned(
    line: list[list[object]], column: int, place: int, mask: int
) -> None:
    """Any other bit in a column that a line is read from is found, in whichever row."""
    row = line[place % len(line)]
    column = 9 if row is line[-1] else column  # of the last one's parent only the digest is hashed
    value = row[column]
    assume(
        not (column == 14 and value is None)
    )  # nothing was cut out of the text, so nothing is read from there
    if isinstance(value, bytes) and value:
        at = place % len(value)
        row[column] = value[:at] + bytes([value[at] ^ mask]) + value[at + 1 :]
    else:
        row[column] = mask + cast("int", value or 0)

    with pytest.raises((Corrupt, Unsupported)):
        line_of(line, len(line) - 1)


@given(lines(is_spoken=True), st.integers(0), st.integers(1, 255))
def test_a_changed_body_is_not_read_under_its_name(line: list[list[object]], place: int, mask: int) -> None:
    """A body is named by the digest of the bytes that were read."""
    row = line[place % (len(line) - 1)]
    words = cast("bytes", row[16])
    names = set(line_of(line, len(line) - 1)[line.index(row)].bodies)
    at = place % len(words)
    row[16] = words[:at] + bytes([words[at] ^ mask]) + words[at + 1 :]

    assert set(line_of(line, len(line) - 1)[line.index(row)].bodies) != names


def columns_of_events(line: list[list[object]]) -> list[list[object]]:
    """The columns that events are read from; of the last row's parent all but its number and digest are whatever they are."""
    rows = [row if len(row) > 10 else [*row, *line[0][10:]] for row in line]
    return [[*(row[at] for at in (0, 1, 9, 3, 8, 10, 12)), *row[13:]] for row in rows]


@given(lines())
def test_the_events_of_a_line_are_those_of_its_commits(line: list[list[object]]) -> None:
    """Without making commits, whatever these look like; one that is stored whole is left to `line_of`."""
    found = events_of(columns_of_events(line), len(line) - 1)

    if any(cast("bytes", row[12]).startswith(b"{") for row in line[:-1]):
        assert found is None
    else:
        assert found == [step.as_events() for step in line_of(line, len(line) - 1)]


@given(lines(), st.sampled_from((1, 3, 8, 9, 10, 12, 13, 14)), st.integers(0), st.integers(1, 255))
def test_a_changed_row_has_no_events(line: list[list[object]], column: int, place: int, mask: int) -> None:
    """Any other bit in a column that events are read from is found, in whichever row."""
    row = line[place % len(line)]
    column = 9 if row is line[-1] else column
    value = row[column]
    assume(not (column == 14 and value is None))
    if isinstance(value, bytes) and value:
        at = place % len(value)
        row[column] = value[:at] + bytes([value[at] ^ mask]) + value[at + 1 :]
    else:
        row[column] = mask + cast("int", value or 0)

    assert events_of(columns_of_events(line), len(line) - 1) is None


@given(lines(is_packed=True, is_spoken=True), st.integers(0), st.integers(1, 255))
def test_a_changed_body_is_not_found_by_its_name(line: list[list[object]], place: int, mask: int) -> None:
    """Words that were altered come under another name."""
    row = line[place % (len(line) - 1)]
    words = cast("bytes", row[16])
    before = events_of(columns_of_events(line), len(line) - 1)
    at = place % len(words)
    row[16] = words[:at] + bytes([words[at] ^ mask]) + words[at + 1 :]

    after = events_of(columns_of_events(line), len(line) - 1)

    assert before is not None
    assert after is not None
    assert set(after[line.index(row)].bodies) != set(before[line.index(row)].bodies)


@given(lines(is_packed=True))
def test_a_text_that_is_too_deep_has_no_events(line: list[list[object]]) -> None:
    """What cannot be decoded at all is left to `line_of`, which names the damage."""
    line[0][13] = b'{"patch":' + b"[" * 5_000 + b"]" * 5_000 + b',"reason":"x"}'

    assert events_of(columns_of_events(line), len(line) - 1) is None
    with pytest.raises(Corrupt):
        line_of(line, len(line) - 1)
