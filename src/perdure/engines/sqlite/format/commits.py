"""Commits: from stored rows back to commits with their changesets, each checked against its digest and its parent.

A commit is compared with the digest in its row's column, and through it everything that it names: its changeset, and
by that its messages and puts.  The columns that no digest covers must follow from those of the parent's row.

`line_of` reads the rows of a line in windows.  Nearly all rows are laid out in the same way, so it takes a whole window
through each step of the work before the next step, which keeps the code of one step in the processor's cache and saves
most calls of Python.  A window with a row that is laid out in another way, or damaged, is read again row by row by the
functions of `pack`, so that they name the damage.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice, pairwise
from typing import Any, cast
from zlib import crc32

import msgspec

from perdure.engines.contract import Place, Step
from perdure.engines.shared_rules import damaged
from perdure.engines.sqlite.format.index import run_key
from perdure.engines.sqlite.format.pack import (
    BODY,
    HEAD_BYTES,
    KINDS,
    NO_BODY,
    PATCHED,
    PUT,
    RAW,
    REASON,
    Columns,
    ExtractedFields,
    PackForm,
    PackItem,
    StoredCommit,
    StoredItems,
    decode_items,
    long,
    unpack_changeset,
    unpack_commit,
)
from perdure.engines.sqlite.format.rows import LogRow, damaged_row, kind_of
from perdure.errors import Corrupt, PerdureError
from perdure.model.commit import (
    NO_LEDGER,
    NO_READS,
    Changeset,
    Commit,
    LedgerRead,
    Reads,
    decode_changeset,
    decode_commit,
    encode_commit,
)
from perdure.model.digest import PREFIXES, Digest, Kind, Object, digest_of

__all__ = ["LINE_COLUMNS", "hashed_step", "is_placed", "line_of", "step_of", "steps_apart"]

# The rows of a line, each read after its child: what IS_PLACED compares is then compared without a join.
LINE_COLUMNS = (
    "l.id, l.prev, l.space, l.depth, l.turn, l.sequence, l.events, l.run, l.at, l.digest, l.root, l.jump"
)

_ROW_COLUMNS = 15  # LINE_COLUMNS, and the texts and the pack of a row
_WINDOW = 128  # rows: what they hold fits into the processor's cache
_WINDOW_MIN = 3  # rows: fewer are read sooner one by one
_COMMIT_AT = KINDS.index(Kind.COMMIT)
_BODIES, _CHANGESET, _COMMIT = PackForm.BODIES, PackForm.CHANGESET, PackForm.COMMIT
_NO_BODIES: dict[Digest, bytes] = {}
_CHANGESETS, _COMMITS = PREFIXES[Kind.CHANGESET], PREFIXES[Kind.COMMIT]
_decode_items = msgspec.msgpack.Decoder(StoredItems).decode
_decode_extracted = msgspec.msgpack.Decoder(ExtractedFields).decode
_decode_fields = msgspec.msgpack.Decoder(StoredCommit).decode
_encode_json = msgspec.json.Encoder().encode
_BODY_BETWEEN = b"%b" + BODY + b"%b"

_Hashed = tuple[Sequence[PackItem], Digest, Commit, Changeset]


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
    columns = row.digest, row.parent, row.root, row.depth, row.at, row.changeset
    place = Place(row.depth or 0, row.turn or 0, row.sequence or 0)
    return Step(*_hashed(row.id, row.pack.items, *columns), place)


def _hashed(
    row: int,
    items: Sequence[PackItem],
    digest: bytes | None,
    parent: bytes | None,
    root: bytes | None,
    depth: int | None,
    at: int | None,
    text: bytes | None,
) -> tuple[Digest, Commit, Changeset]:
    """Return the commit of a row and its changeset, both checked against the digest in the row's column."""
    # The last two, as they are always laid out; anything else is damage that has the right checksum.
    stored = items[-1] if items else None
    taken = items[-2].data if len(items) > 1 and items[-2].form == _CHANGESET else b""
    if stored is None or stored.kind != _COMMIT_AT or digest is None or text is None:
        raise damaged(
            f"the commit of row {row} of the log is missing; it was not used.", "row_damaged", row=row
        )
    body = unpack_changeset(text, taken) if taken else text
    changeset, named = decode_changeset(body), digest_of(Kind.CHANGESET, body)
    name = Digest(digest.hex())
    if stored.form == _COMMIT:
        columns = Columns(digest, parent, root, depth or 0, at or 0, changeset, named)
        commit = unpack_commit(stored.data, columns)
        encoded = encode_commit(commit)
        if digest_of(Kind.COMMIT, encoded) != name:
            Object.read(Kind.COMMIT, name, encoded)  # raises: no object is made where none is needed
        return name, commit, changeset
    commit = decode_commit(Object.read(Kind.COMMIT, name, stored.data).body)
    columns = _hex(parent), Digest((root or b"").hex()), depth, at
    if (commit.first_parent, commit.root, commit.depth, commit.at) != columns:
        raise damaged(f"row {row} of the log differs from its commit.", "row_damaged", row=row)
    if commit.changeset != named:
        raise damaged(
            f"{Kind.CHANGESET} {commit.changeset} does not match its digest; it was not returned.",
            "digest_mismatch",
            digest=commit.changeset,
        )
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
    for row, parent, (items, name, commit, changeset) in zip(rows, above, each, strict=True):
        _, prev, space, depth, turn, sequence, events, run, _, _, _, jump, _, _, words = row
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
        ran = commit.run
        if ran != last:
            last, key = ran, None if ran is None else run_key(ran)
        if not follows or events != len(changeset.events) or run != key:
            raise _misplaced(name)
        bodies = _bodies_of(items, words) if words else _NO_BODIES
        steps.append(Step(name, commit, changeset, Place(depth, turn, sequence), bodies))


def _bodies_of(items: Sequence[PackItem], words: bytes) -> dict[Digest, bytes]:
    """Return the bodies that are stored beside a commit, by their digests."""
    first = items[0]
    if first.form == _BODIES and first.size == len(words):  # one, as of most
        return {digest_of(kind_of(first), words): words}
    found: dict[Digest, bytes] = {}
    start = 0
    for item in items:
        if item.form == _BODIES:
            body = words[start : start + item.size]
            start += item.size
            found[digest_of(kind_of(item), body)] = body
    return found


def _read_each(rows: Sequence[Sequence[Any]], parents: Sequence[bytes | None]) -> Iterable[_Hashed]:
    """Yield the items of each row, and what `_hashed` returns for it; raises for the first that is damaged."""
    for row, parent in zip(rows, parents, strict=True):
        if not isinstance(row[13], bytes):
            raise damaged_row(row[0])
        items = decode_items(row[13])
        _, _, _, depth, _, _, _, _, at, digest, root, _, text, *_ = row
        yield items, *_hashed(row[0], items, digest, parent, root, depth, at, text)


def _read_window(rows: Sequence[Sequence[Any]], parents: Sequence[bytes | None]) -> list[_Hashed] | None:
    """Return what `_read_each` yields; None if a row is laid out in another way than most, or damaged."""
    try:
        packs = [row[13] for row in rows]
        packed = [pack[HEAD_BYTES:] for pack in packs]
        if [pack[:HEAD_BYTES] for pack in packs] != [RAW + crc32(each).to_bytes(4, "big") for each in packed]:
            return None
        items = [_decode_items(each).items for each in packed]
        if any(each[-1].form != _COMMIT or each[-2].form != _CHANGESET for each in items):
            return None
        extracted = [_decode_extracted(each[-2].data) for each in items]
        texts = [_spliced(row[12], each) for row, each in zip(rows, extracted, strict=True)]
        changesets = [decode_changeset(text) for text in texts]
        named = _digests_of(_CHANGESETS, texts)
        fields = [_decode_fields(each[-1].data) for each in items]
        commits = _commits_of(rows, parents, fields, changesets, named)
        encoded = [encode_commit(commit) for commit in commits]
        names: list[Digest] = [row[9].hex() for row in rows]
        if _digests_of(_COMMITS, encoded) != names:
            return None
    except (LookupError, ValueError, TypeError, AttributeError, PerdureError):
        return None
    return list(zip(items, names, commits, changesets, strict=True))


def _digests_of(prefix: bytes, bodies: Sequence[bytes]) -> list[Digest]:
    """Return what `digest_of` returns for each; `prefix` is that of their kind."""
    return cast(
        "list[Digest]", [sha256(prefix + len(body).to_bytes(8, "big") + body).hexdigest() for body in bodies]
    )


def _spliced(text: bytes, taken: ExtractedFields) -> bytes:
    """Return the canonical bytes of a changeset as `unpack_changeset` does; raise ValueError where that does more than splice."""
    bodies, puts = taken.bodies, taken.puts
    text, *others = text.split(NO_BODY)
    if len(others) != len(bodies):
        raise ValueError("something else has an empty body")
    if len(others) == 1:
        text = _BODY_BETWEEN % (text, hexlify(bodies[0]), others[0])
    elif others:
        text += b"".join([BODY % hexlify(body) + part for body, part in zip(bodies, others, strict=True)])
    if not puts:
        return text
    cut = text.rindex(REASON)
    if len(puts) == 1:
        path, value, size = puts[0]
        return PATCHED % (text[:cut], PUT % (_encode_json(path), size, hexlify(value)), text[cut:])
    ops = [PUT % (_encode_json(path), size, hexlify(value)) for path, value, size in puts]
    return PATCHED % (text[:cut], b",".join(ops), text[cut:])


def _commits_of(
    rows: Sequence[Sequence[Any]],
    parents: Sequence[bytes | None],
    fields: Sequence[StoredCommit],
    changesets: Sequence[Changeset],
    named: Sequence[Digest],
) -> list[Commit]:
    """Return the commits of rows, not checked, as `unpack_commit` does."""
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
