"""Commits: from stored rows back to commits with their changesets, each checked against its digest and its parent.

A commit is compared with the digest in its row's column, and through it everything that it names: its changeset, and
by that its messages and puts.  The columns that no digest covers must follow from those of the parent's row.

`line_of` reads the rows of a line in windows.  Nearly all rows are laid out in the same way, so it takes a whole window
through each step of the work before the next step, which keeps the code of one step in the processor's cache and saves
most calls of Python.  No pack is read.  A window with a row that is laid out in another way, or damaged, is read again
row by row by the functions of `pack`, so that they name the damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice, pairwise
from typing import Any, cast

import msgspec

from perdure.engines.contract import Place, Step
from perdure.engines.shared_rules import damaged
from perdure.engines.sqlite.format.index import run_key
from perdure.engines.sqlite.format.pack import Columns, StoredCommit, commit_in, long, with_digests
from perdure.engines.sqlite.format.rows import LogRow
from perdure.errors import Corrupt, PerdureError
from perdure.model.commit import (
    NO_LEDGER,
    NO_READS,
    Changeset,
    Commit,
    LedgerRead,
    Reads,
    decode_changeset,
    encode_commit,
)
from perdure.model.digest import PREFIXES, Digest, Kind, Object, digest_of
from perdure.model.event import CheckpointCreated, Event, MessageAppended

__all__ = ["LINE_COLUMNS", "TEXT_COLUMNS", "hashed_step", "is_placed", "line_of", "step_of", "steps_apart"]

# The rows of a line, each read after its child: what IS_PLACED compares is then compared without a join.
LINE_COLUMNS = "l.id, l.prev, l.space, l.depth, l.turn, l.sequence, l.events, l.run, l.at, l.digest, l.root, l.jump, l.fields"
# What comes behind them: the changeset, and for a reader of words where they are, and the words.
TEXT_COLUMNS = "CAST(l.changeset AS BLOB), l.digests", "CAST(l.spans AS BLOB)", "CAST(l.bodies AS BLOB)"

_ROW_COLUMNS = 17  # all of these
_WINDOW = 128  # rows: what they hold fits into the processor's cache
_WINDOW_MIN = 3  # rows: fewer are read sooner one by one
_NO_BODIES: dict[Digest, bytes] = {}
_CHANGESETS, _COMMITS = PREFIXES[Kind.CHANGESET], PREFIXES[Kind.COMMIT]
_decode_fields = msgspec.msgpack.Decoder(StoredCommit).decode
_decode_spans = msgspec.json.Decoder(tuple[tuple[int, int, int, int, int], ...]).decode

_Hashed = tuple[Digest, Commit, Changeset]


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
        if not words:
            bodies = _NO_BODIES
        elif count == 1 and type(events[0]) is MessageAppended and events[0].size == len(words):  # as of most
            bodies = {digest_of(Kind.BODY, words): words}
        else:
            bodies = _bodies_of(events, spans, words)
        steps.append(Step(name, commit, changeset, Place(depth, turn, sequence), bodies))


def _bodies_of(events: Sequence[Event], spans: bytes | None, words: bytes) -> Mapping[Digest, bytes]:
    """Return the words of events that are stored beside a commit, by their digests."""
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
    try:
        texts = [with_digests(row[13], row[14]) for row in rows]
        changesets = [decode_changeset(text) for text in texts]
        named = _digests_of(_CHANGESETS, texts)
        known = {stored: _decode_fields(stored) for stored in {row[12] for row in rows}}
        commits = _commits_of(rows, parents, [known[row[12]] for row in rows], changesets, named)
        encoded = [encode_commit(commit) for commit in commits]
        names: list[Digest] = [row[9].hex() for row in rows]
        if _digests_of(_COMMITS, encoded) != names:
            return None
    except (LookupError, ValueError, TypeError, AttributeError, PerdureError):
        return None
    return list(zip(names, commits, changesets, strict=True))


def _digests_of(prefix: bytes, bodies: Sequence[bytes]) -> list[Digest]:
    """Return what `digest_of` returns for each; `prefix` is that of their kind."""
    return cast(
        "list[Digest]", [sha256(prefix + len(body).to_bytes(8, "big") + body).hexdigest() for body in bodies]
    )


def _commits_of(
    rows: Sequence[Sequence[Any]],
    parents: Sequence[bytes | None],
    fields: Sequence[StoredCommit],
    changesets: Sequence[Changeset],
    named: Sequence[Digest],
) -> list[Commit]:
    """Return the commits of rows, not checked, as `commit_in` does."""
    firsts: list[tuple[Any, ...]] = [() if parent is None else (parent.hex(),) for parent in parents]
    return [
        Commit(
            parents=(*first, *[Digest(other.hex()) for other in each.others]) if each.others else first,
            changeset=digest,
            root=row[10].hex(),
            thread=each.thread,
            depth=row[3],
            reason=changeset.reason if each.reason is None else each.reason,
            at=row[8],
            reads=NO_READS if each.reads is None else Reads(*map(_hex, each.reads)),
            ledger=NO_LEDGER if each.ledger is None else LedgerRead(each.ledger[0], _hex(each.ledger[1])),
            run=changeset.run_id
            if each.run is None
            else long(each.run)
            if isinstance(each.run, bytes)
            else None,
            author=each.author,
            unnumbered=each.unnumbered or 0,
        )
        for row, first, each, changeset, digest in zip(rows, firsts, fields, changesets, named, strict=True)
    ]


def _hex(digest: bytes | None) -> Digest | None:
    return None if digest is None else Digest(digest.hex())


def _misplaced(commit: Digest) -> Corrupt:
    return damaged(
        f"commit {commit} is not where its parent puts it; it was not returned.",
        "row_misplaced",
        commit=commit,
    )
