"""Commits: from stored rows back to commits with their changesets, each checked against its digest and its parent.

A commit is compared with the digest in its row's column, and through it everything that it names: its changeset, and
by that its messages and puts.  The columns that no digest covers must follow from those of the parent's row.

`line_of` reads the rows of a line in windows.  Nearly all rows are laid out in the same way, so it takes a whole window
through each step of the work before the next step, which keeps the code of one step in the processor's cache and saves
most calls of Python.  No pack is read.  A window with a row that is laid out in another way, or damaged, is read again
row by row by the functions of `pack`, so that they name the damage.

`events_of` reads a transcript's part of such rows.  It makes no commit: the text of most follows from the columns, and is
only hashed.  Whatever is put together in a wrong way does not have its digest, and is left to `line_of`.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice, pairwise
from typing import Any, TypeAlias, cast

import msgspec

from perdure.engines.contract import Place, Step
from perdure.engines.shared_rules import damaged
from perdure.engines.sqlite.format.index import run_key
from perdure.engines.sqlite.format.pack import (
    Columns,
    StoredCommit,
    commit_from,
    commit_in,
    run_of,
    with_digests,
)
from perdure.engines.sqlite.format.rows import LogRow
from perdure.errors import Corrupt, PerdureError
from perdure.model.commit import (
    Changeset,
    ChangesetEvents,
    Commit,
    CommitEvents,
    decode_changeset,
    decode_events,
    encode_commit,
)
from perdure.model.digest import PREFIXES, Digest, Kind, Object, digest_of
from perdure.model.event import CheckpointCreated, Event, MessageAppended

__all__ = [
    "EVENT_COLUMNS",
    "LINE_COLUMNS",
    "TEXT_COLUMNS",
    "events_of",
    "hashed_step",
    "is_placed",
    "line_of",
    "step_of",
    "steps_apart",
]

# The rows of a line, each read after its child: what IS_PLACED compares is then compared without a join.
LINE_COLUMNS = "l.id, l.prev, l.space, l.depth, l.turn, l.sequence, l.events, l.run, l.at, l.digest, l.root, l.jump, l.fields"
# What comes behind them: the changeset, and for a reader of words where they are, and the words.
TEXT_COLUMNS = "CAST(l.changeset AS BLOB), l.digests", "CAST(l.spans AS BLOB)", "CAST(l.bodies AS BLOB)"
# What is read for the events alone, and behind it the changeset and the words.
EVENT_COLUMNS = "l.id, l.prev, l.digest, l.depth, l.at, l.root, l.fields"

_ROW_COLUMNS = 17  # all of these
_WINDOW = 128  # rows: what they hold fits into the processor's cache
_WINDOW_MIN = 3  # rows: fewer are read sooner one by one
_NO_BODIES: dict[Digest, bytes] = {}
_BODIES, _CHANGESETS, _COMMITS = PREFIXES[Kind.BODY], PREFIXES[Kind.CHANGESET], PREFIXES[Kind.COMMIT]
_decode_fields = msgspec.msgpack.Decoder(StoredCommit).decode
_decode_spans = msgspec.json.Decoder(tuple[tuple[int, int, int, int, int], ...]).decode

# What an edit of a column can lead to where it is not looked for.
_UNUSUAL = (LookupError, ValueError, TypeError, AttributeError, RecursionError, PerdureError)
_Hashed: TypeAlias = tuple[Digest, Commit, Changeset]
_Parts: TypeAlias = tuple[StoredCommit, Digest | None, Digest, int, int, ChangesetEvents, Digest]


# ---- one row


def step_of(row: LogRow) -> Step:
    """Return the commit that a row holds, with its changeset, checked against its digest, and its place, checked against its parent."""
    step = hashed_step(row)
    if not is_placed(row, step):
        raise _misplaced(step.digest)
    return step


def is_placed(row: LogRow, step: Step) -> bool:
    """True if the row says of its commit what follows from the commit and from the row of its parent."""
    run = step.commit.run
    return (
        row.follows
        and row.events == len(step.changeset.events)
        and row.run == (None if run is None else run_key(run))
    )


def hashed_step(row: LogRow) -> Step:
    """Return the same, but with the place as the row has it."""
    place = Place(row.depth or 0, row.turn or 0, row.sequence or 0)
    columns = Columns(row.digest, row.parent, row.root, row.depth or 0, row.at or 0)
    return Step(*_hashed(row.id, columns, row.fields, row.changeset, row.digests), place)


def _hashed(
    row: int, columns: Columns, fields: bytes | None, text: bytes | None, digests: bytes | None
) -> _Hashed:
    """Return the commit of a row and its changeset, both checked against the digest in the row's column."""
    if columns.digest is None or text is None or fields is None:
        raise damaged(
            f"the commit of row {row} of the log is missing; it was not used.", "row_damaged", row=row
        )
    body = with_digests(text, digests)
    changeset, name = decode_changeset(body), Digest(columns.digest.hex())
    named = digest_of(Kind.CHANGESET, body)
    commit, encoded = commit_in(
        fields, msgspec.structs.replace(columns, changeset=changeset, changeset_digest=named)
    )
    if digest_of(Kind.COMMIT, encoded) != name:
        Object.read(Kind.COMMIT, name, encoded)  # raises: no object is made where none is needed
    return name, commit, changeset


# ---- a line of rows


def line_of(rows: Iterable[Sequence[Any]], limit: int) -> list[Step]:
    """Return the commits of up to `limit` rows of `LINE_COLUMNS`, each followed by the row of its first parent.

    Each is checked as `step_of` does, its place against the row that follows it.  A row after the last is only there
    for that.  The bodies in a row are named by their digests, so they need no other check.
    """
    steps: list[Step] = []
    rest = iter(rows)
    row = next(rest, None)
    while row is not None and len(steps) < limit:
        size = min(_WINDOW, limit - len(steps))
        window = [row, *islice(rest, size)]
        row = window[size] if len(window) > size else None  # of the parent of the window's last
        above: list[Sequence[Any] | None] = [
            parent if parent[0] == child[1] else None for child, parent in pairwise(window)
        ]
        if len(window) <= size:
            above.append(None)
        _add_steps(steps, window[:size], above)
    return steps


def steps_apart(rows: Sequence[Sequence[Any]]) -> list[Step]:
    """Return the commits of rows that do not follow one another: each has the columns of its first parent's row after its own."""
    steps: list[Step] = []
    for start in range(0, len(rows), _WINDOW):
        window = rows[start : start + _WINDOW]
        above = [None if row[_ROW_COLUMNS] is None else row[_ROW_COLUMNS:] for row in window]
        _add_steps(steps, [row[:_ROW_COLUMNS] for row in window], above)
    return steps


def _add_steps(
    steps: list[Step], rows: Sequence[Sequence[Any]], above: Sequence[Sequence[Any] | None]
) -> None:
    """Add the commits of rows; `above` are those of their first parents, None where a row has none."""
    parents = [None if parent is None else parent[9] for parent in above]
    found = _read_window(rows, parents) if len(rows) >= _WINDOW_MIN else None
    last, key = None, None
    each = _read_each(rows, parents) if found is None else found
    for row, parent, (name, commit, changeset) in zip(rows, above, each, strict=True):
        _, prev, space, depth, turn, sequence, count, run, _, _, _, jump, _, _, _, spans, words = row
        # The columns that no digest covers must follow from those of the first parent, as `IS_PLACED` says.
        try:
            follows = (
                (depth, turn, sequence, jump) == (0, 1, 0, None)
                if prev is None
                else parent is not None
                and space == parent[2]
                and depth == parent[3] + 1
                and turn == parent[4] + (run is None or run != parent[7])
                and sequence == parent[5] + parent[6]
            )
        except TypeError:  # a column that was a number is none any more
            follows = False
        ran, events = commit.run, changeset.events
        if ran != last:
            last, key = ran, None if ran is None else run_key(ran)
        if not follows or count != len(events) or run != key:
            raise _misplaced(name)
        bodies = _bodies_of(events, spans, words)
        steps.append(Step(name, commit, changeset, Place(depth, turn, sequence), bodies))


def _bodies_of(events: Sequence[Event], spans: bytes | None, words: bytes | None) -> Mapping[Digest, bytes]:
    """Return the words of events that are stored beside a commit, by their digests."""
    if not words:
        return _NO_BODIES
    if events and type(events[0]) is MessageAppended and events[0].size == len(words):  # as of most
        return {digest_of(Kind.BODY, words): words}
    found: dict[Digest, bytes] = {}
    try:
        for at, start, size, vendor, vendor_size in _decode_spans(spans or b"[]"):
            kind = Kind.CHECKPOINT if type(events[at]) is CheckpointCreated else Kind.BODY
            for body in words[start : start + size], words[vendor : vendor + vendor_size]:
                if body:
                    found[digest_of(kind, body)] = body
    except (msgspec.DecodeError, LookupError):
        return _NO_BODIES  # they are looked for by their keys
    return found


def _read_each(rows: Sequence[Sequence[Any]], parents: Sequence[bytes | None]) -> Iterable[_Hashed]:
    """Yield what `_hashed` returns for each row; raises for the first that is damaged."""
    for row, parent in zip(rows, parents, strict=True):
        number, _, _, depth, _, _, _, _, at, digest, root, _, *stored = row
        # An edit can put anything into a column.
        digest, parent, root, fields, text, digests = [
            each if isinstance(each, bytes) else None for each in (digest, parent, root, *stored[:3])
        ]
        yield _hashed(number, Columns(digest, parent, root, depth or 0, at or 0), fields, text, digests)


def _read_window(rows: Sequence[Sequence[Any]], parents: Sequence[bytes | None]) -> list[_Hashed] | None:
    """Return what `_read_each` yields; None if a commit is stored in another way than most, or damaged."""
    _, _, _, depths, _, _, _, _, ats, digests, roots, _, fields, texts, cut, _, _ = zip(*rows, strict=True)
    try:
        bodies = _texts_of(texts, cut)
        changesets = [decode_changeset(body) for body in bodies]
        named = _digests_of(_CHANGESETS, bodies)
        known = {each: _decode_fields(each) for each in set(fields)}
        stored = [known[each] for each in fields]
        above = [None if parent is None else Digest(parent.hex()) for parent in parents]
        commits = [*map(commit_from, stored, above, _hexed(roots), depths, ats, changesets, named)]
        names = _hexed(digests)
        if _digests_of(_COMMITS, [encode_commit(commit) for commit in commits]) != names:
            return None
    except _UNUSUAL:
        return None
    return list(zip(names, commits, changesets, strict=True))


# ---- the events of a line


def events_of(rows: Iterable[Sequence[Any]], limit: int) -> list[CommitEvents] | None:
    """Return the events of up to `limit` rows of `EVENT_COLUMNS`, each followed by the row of its first parent.

    Commits and bodies are checked as by `line_of`, without places, which are not read.  None if a commit is stored in
    another way than most, or damaged: `line_of` says which.
    """
    found: list[CommitEvents] = []
    rest = iter(rows)
    row = next(rest, None)
    while row is not None and len(found) < limit:
        size = min(_WINDOW, limit - len(found))
        window = [row, *islice(rest, size)]
        row = window[size] if len(window) > size else None  # of the parent of the window's last
        try:
            found += _events_in(window, size)
        except _UNUSUAL:
            return None
    return found


def _events_in(window: Sequence[Sequence[Any]], size: int) -> list[CommitEvents]:
    """Return the events of the first `size` rows of a window; raises one of `_UNUSUAL`."""
    ids, prevs, digests, *columns, spans, words = zip(*window, strict=True)
    if prevs[: len(ids) - 1] != ids[1:] or (len(ids) <= size and prevs[-1] is not None):
        raise LookupError("a row of the line is missing")
    names = _hexed(digests)
    parts = _checked(names[:size], [*names[1:], None][:size], [column[:size] for column in columns])
    named = _digests_of(_BODIES, [said or b"" for said in words[:size]])
    return [
        CommitEvents(
            name,
            parent,
            stored.thread,
            root,
            at,
            changeset.run_id if stored.run is None else run_of(stored.run),
            events,
            {digest: said}
            if events and type(events[0]) is MessageAppended and events[0].body == digest
            else _bodies_of(events, span, said),
        )
        for name, (stored, parent, root, _, at, changeset, _), events, digest, span, said in zip(
            names, parts, [part[5].events for part in parts], named, spans, words, strict=False
        )
    ]


def _checked(
    names: Sequence[Digest], parents: Sequence[Digest | None], columns: Sequence[Sequence[Any]]
) -> list[_Parts]:
    """Return of each commit what `commit_from` takes; raises one of `_UNUSUAL` if one does not have its digest."""
    depths, ats, roots, fields, texts, cut = columns
    bodies = _texts_of(texts, cut)
    known = {each: _decode_fields(each) for each in set(fields)}
    plain = {each: _plain_fields(known[each]) for each in known}
    stored, named = [known[each] for each in fields], _digests_of(_CHANGESETS, bodies)
    parts = list(zip(stored, parents, _hexed(roots), depths, ats, decode_events(bodies), named, strict=True))
    if _digests_of(_COMMITS, _commit_texts(parts, [plain[each] for each in fields])) != names:
        raise ValueError("a commit does not match its digest")
    return parts


def _plain_fields(stored: StoredCommit) -> tuple[str, str] | None:
    """Return the ledger and the thread of a commit as they are in its text; None if its fields say more than that."""
    if stored != StoredCommit(stored.thread, ledger=stored.ledger):
        return None
    position, chain = stored.ledger or (0, None)
    ledger = "" if chain is None else f'"ledger":{{"chain":"{chain.hex()}","position":{position}}},'
    return ledger, _quoted(stored.thread)


def _commit_texts(parts: Sequence[_Parts], plain: Sequence[tuple[str, str] | None]) -> list[bytes]:
    """Return the canonical bytes of commits, of most without making one: those with a parent and plain fields."""
    changesets = [each[5] for each in parts]
    reasons = {each: _quoted(each) for each in {changeset.reason for changeset in changesets}}
    runs = {
        each: "" if each is None else f'"run":{_quoted(each)},'
        for each in {changeset.run_id for changeset in changesets}
    }
    return [
        (
            f'{{"at":{at},"changeset":"{named}","depth":{depth},{beside[0]}"parents":["{parent}"],'
            f'"reason":{reasons[changeset.reason]},"root":"{root}",{runs[changeset.run_id]}"thread":{beside[1]}}}'
        ).encode()
        if beside is not None and parent is not None
        else encode_commit(commit_from(stored, parent, root, depth, at, changeset, named))
        for (stored, parent, root, depth, at, changeset, named), beside in zip(parts, plain, strict=True)
    ]


# ---- many at once


def _texts_of(texts: Sequence[bytes], digests: Sequence[bytes | None]) -> Sequence[bytes]:
    """Return what `with_digests` returns for each.

    All are split and joined at once: where one takes the digests of another, neither has the digest that it had.
    """
    parts = b"\n".join(texts).split(b'":""')
    names = hexlify(b"".join(filter(None, digests)), b"|", 32).replace(b"|", b'"|":"')
    cut = (b'":"%b"' % names).split(b"|")
    if len(parts) != len(cut) + 1:
        return [with_digests(text, digest) for text, digest in zip(texts, digests, strict=True)]
    joined = parts + cut
    joined[::2], joined[1::2] = parts, cut
    return b"".join(joined).split(b"\n")


def _digests_of(prefix: bytes, bodies: Sequence[bytes]) -> list[Digest]:
    """Return what `digest_of` returns for each; `prefix` is that of their kind."""
    return cast(
        "list[Digest]", [sha256(prefix + len(body).to_bytes(8, "big") + body).hexdigest() for body in bodies]
    )


def _hexed(digests: Sequence[bytes]) -> list[Digest]:
    return [Digest(digest.hex()) for digest in digests]


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _misplaced(commit: Digest) -> Corrupt:
    return damaged(
        f"commit {commit} is not where its parent puts it; it was not returned.",
        "row_misplaced",
        commit=commit,
    )
