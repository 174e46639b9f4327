"""Checks what is not an object: timelines, the ledger's chain, the cells, and the directory of threads.

Every head must be where its moves, applied one after another, lead.  A scan meets the moves in the order in which they
were written, and `MoveChecker` follows them.  What is left for afterwards is what was written since, and timelines in
which something was odd: those are read move by move, from their heads back, and each fault is named.

A check may begin at a point up to which an earlier one found the space to be sound.  The point names the moves and the
ledger entry that were the last then; they must still be there.  If they are, so is everything that they bind, and
only later moves are followed.  If one is not, the history was rewritten or put back: that is a fault, and the whole
space is checked.

Every thread's record in the directory must lead to the history of that thread, and every history
must have a record.  A commit names its thread, and its digest covers that name.  The directory and
the names of spaces are not hashed; so the two are compared, from either side.  The owner of a
thread, and the agent of a thread that never read its agent's map, are in no commit and cannot be
checked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import msgspec

from perdure.engines import loops, shared_rules
from perdure.engines.contract import Cell, Engine, Hold, LedgerEntry
from perdure.errors import Corrupt, NotFound
from perdure.history.reader import AGENTS_OF_THREAD, agent_at, agents_in
from perdure.history.space import (
    AGENTS,
    ALIVE,
    STORE,
    THREAD,
    THREADS,
    Space,
    label_of,
    read_record,
)
from perdure.history.stored_objects import pages
from perdure.history.verify.report import DAMAGE, Findings, VerifiedPoint
from perdure.model import canonical
from perdure.model.commit import LedgerRead, MoveRecord, decode_move, encode_move
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.head import MAIN

__all__ = [
    "BEGINNING",
    "MoveChecker",
    "ScannedObjects",
    "SoundPoint",
    "check_cells",
    "check_directory",
    "check_ledger",
    "check_lines",
    "checked_point",
    "readable_cells",
]

_PAGE = 200
_VERSIONS_MAX = 2_000
_LINES_MAX = 10_000


class SoundPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a check of a space begins; the space still holds what an earlier check found there."""

    standing: int = 0
    commits: int = 0
    moves: dict[str, tuple[MoveRecord, Digest]] = {}  # by timeline: its last move
    ledger: LedgerRead = LedgerRead()


BEGINNING = SoundPoint()


def checked_point(space: Space, point: VerifiedPoint | None, findings: Findings) -> SoundPoint:
    """Return where to begin: at `point` if the space still holds what it names, at the beginning if not, or if None."""
    if point is None or space.engine.cell(space.name, ALIVE) is not None:
        return BEGINNING  # a removed thread holds nothing of what was checked
    before = findings.faults
    moves: dict[str, tuple[MoveRecord, Digest]] = {}
    if space.engine.standing(space.name) < point.standing:
        findings.add(
            "point", "the space had more writes when it was verified: it was put back", name=space.name
        )
    for timeline, (version, digest) in point.moves.items():
        found = space.engine.moves(space.name, timeline, before=version + 1, limit=1)
        if found and (found[0].version, _address(found[0])) == (version, digest):
            moves[timeline] = found[0], digest
        else:
            what = f"version {version} is not the move {digest} that was verified"
            findings.add("point", what, name=timeline)
    if point.position:
        entries = space.engine.entries(space.name, after=point.position - 1, limit=1)
        if not entries or (entries[0].position, entries[0].chain) != (point.position, point.chain):
            what = f"entry {point.position} of the ledger has another chain than the one that was verified"
            findings.add("point", what, name=space.name)
    if findings.faults > before:
        return BEGINNING
    ledger = LedgerRead(point.position, point.chain)
    return SoundPoint(standing=point.standing, commits=point.commits, moves=moves, ledger=ledger)


class MoveChecker:
    """Follows the moves of each timeline in the order in which they were written."""

    def __init__(self, space: Space, begun: SoundPoint) -> None:
        """Begin after the moves of `begun`."""
        self._space = space
        self._last = dict(begun.moves)  # by timeline: the move up to which the chain has been followed
        self._broken: set[str] = set()  # timelines that must be read move by move
        self._versions: dict[str, int] = {}  # of timelines when last read

    def take(self, move: MoveRecord, digest: Digest, *, is_audited: bool) -> None:
        """Follow one move; raise `Corrupt` if the version of its timeline is lower."""
        name = move.timeline
        before = self._last.get(name)
        if before is None:
            follows = _is_first(move) and len(self._last) < _LINES_MAX
        else:
            follows = _pair_fault(before[0], before[1], move) is None
        if is_audited and follows and name not in self._broken:
            self._last[name] = move, digest
        elif len(self._broken) < _LINES_MAX:
            self._broken.add(name)
            self._last.pop(name, None)
        if self._versions.get(name, -1) < move.version:
            hold = self._space.engine.hold(self._space.name, name)
            if len(self._versions) > _VERSIONS_MAX:
                self._versions.clear()
            self._versions[name] = hold.head.version if hold else -1
        if self._versions[name] < move.version:
            raise Corrupt(
                f"timeline '{name}' does not stand where version {move.version} took it, nor after that"
            )

    def last(self, timeline: str) -> tuple[MoveRecord, Digest] | None:
        """Return the last move of a timeline up to which all were found to be right; None: none was."""
        return None if timeline in self._broken else self._last.get(timeline)

    def followed(self) -> dict[str, tuple[int, Digest]]:
        """Return the version and the digest of that move for each timeline."""
        return {name: (move.version, digest) for name, (move, digest) in self._last.items()}


class ScannedObjects(msgspec.Struct, frozen=True):
    """What a scan of a space has found."""

    standing: int  # of the space when the scan began: everything up to there was checked
    commits: int
    moves: MoveChecker


def check_lines(space: Space, scanned: ScannedObjects, findings: Findings) -> None:
    """Check every timeline that the space lists; where the list cannot be read, every one that has moves."""
    after = ""
    try:
        for hold in loops.holds(space.engine, space.name):
            after = hold.head.timeline
            _check_timeline(space, after, scanned, findings)
    except Corrupt as error:
        findings.add("head", f"{error.message} So timelines cannot be listed.", name=f"after '{after}'")
        _check_by_moves(space, scanned, findings)


def _check_by_moves(space: Space, scanned: ScannedObjects, findings: Findings) -> None:
    """Check every timeline whose first move is stored."""
    for page in pages(space.engine, space.name, upto=scanned.standing):
        for fact in page:
            if fact.kind == Kind.MOVE and fact.object is not None:
                with findings.watching("move", digest=fact.digest):
                    move = decode_move(fact.object.body)
                    if move.previous is None:
                        _check_timeline(space, move.timeline, scanned, findings)


def _check_timeline(space: Space, timeline: str, scanned: ScannedObjects, findings: Findings) -> None:
    """Check one head against all its moves, the newest first."""
    findings.count("head")
    with findings.watching("head", name=timeline):
        hold = space.engine.hold(space.name, timeline)
        if hold is None:
            raise NotFound("it has moved, but its head is not recorded")
        _check_tip(space, hold, scanned, findings)
        _check_moves(space, hold, scanned.moves.last(timeline), findings)


def _check_tip(space: Space, hold: Hold, scanned: ScannedObjects, findings: Findings) -> None:
    """Check that the line can be read from its head to its first commit."""
    if hold.head.commit is None:
        return
    tip = space.engine.steps(space.name, hold.head.commit, limit=1)[0]
    if tip.commit.depth >= scanned.commits:
        stored = scanned.commits + _commits_since(space, scanned.standing)
        if tip.commit.depth >= stored:
            what = f"its line has {tip.commit.depth + 1} commits, but only {stored} were found in storage"
            findings.add("head", what, name=hold.head.timeline)
    first = space.engine.steps(space.name, hold.head.commit, skip=tip.commit.depth, limit=2)
    if len(first) != 1 or first[0].commit.parents or first[0].commit.depth:
        findings.add("head", "its line does not begin where its depth says", name=hold.head.timeline)


def _commits_since(space: Space, standing: int) -> int:
    """Return how many commits were stored after the space had that standing."""
    now = space.engine.standing(space.name)
    since = pages(space.engine, space.name, after=standing, upto=now) if now > standing else ()
    return sum([fact.kind == Kind.COMMIT for page in since for fact in page])


def _check_moves(
    space: Space, hold: Hold, checked: tuple[MoveRecord, Digest] | None, findings: Findings
) -> None:
    """Check the moves of a timeline, the newest first, down to the one up to which they are checked already.

    Page by page and by hand, because damaged moves may not count down and would never end.
    """
    newer: MoveRecord | None = None
    name = hold.head.timeline
    before, floor = hold.head.version + 1, -1
    if checked is not None and checked[0].version <= hold.head.version:
        floor = checked[0].version
    while before - 1 > floor and (
        page := space.engine.moves(space.name, name, before=before, limit=min(_PAGE, before - 1 - floor))
    ):
        if newer is None:
            _check_last(hold, page[0], findings)
        for move in page:
            if newer is not None:
                _check_pair(move, newer, findings)
            newer = move
        _check_targets(space, page, findings)
        if page[-1].version >= before:
            findings.add("head", "its moves do not count down", name=name)
            return
        before = page[-1].version
    if floor < 0 or checked is None:
        _check_first(hold, newer, findings)
    elif newer is None:
        _check_last(hold, checked[0], findings)
    else:
        _check_pair(checked[0], newer, findings)


def _check_last(hold: Hold, last: MoveRecord, findings: Findings) -> None:
    if (last.version, last.to, last.sealed) != (hold.head.version, hold.head.commit, hold.sealed):
        findings.add("head", "it is not where its last move left it", name=hold.head.timeline)
    if _address(last) != hold.move:
        findings.add("head", "it names another move as its last", name=hold.head.timeline)


def _check_pair(move: MoveRecord, newer: MoveRecord, findings: Findings) -> None:
    what = _pair_fault(move, _address(move), newer)
    if what:
        findings.add("move", what, digest=_address(newer), name=newer.timeline)


def _pair_fault(move: MoveRecord, digest: Digest, newer: MoveRecord) -> str | None:
    """Return why `newer` cannot come right after `move`, which has this digest; None if it can."""
    if newer.version != move.version + 1:
        return f"version {newer.version} comes after version {move.version}"
    if newer.from_ != move.to:
        return f"version {newer.version} does not begin where version {move.version} ended"
    if newer.previous != digest:
        return f"version {newer.version} names another move as the one before it"
    if move.sealed:
        return f"it moved on to version {newer.version} after it was sealed"
    return None


def _check_first(hold: Hold, first: MoveRecord | None, findings: Findings) -> None:
    """Check that the chain of moves begins with version 1 of `main`, 0 of any other timeline."""
    name = hold.head.timeline
    if first is None:
        if hold.head.version or hold.move:
            findings.add("head", "none of its moves is recorded", name=name)
    elif not _is_first(first):
        findings.add("head", f"its moves go back to version {first.version} only", name=name)


def _is_first(move: MoveRecord) -> bool:
    begun = 1 if move.timeline == MAIN else 0
    return move.version == begun and move.previous is None and move.from_ is None


def _check_targets(space: Space, moves: Sequence[MoveRecord], findings: Findings) -> None:
    targets = {move.to: move for move in moves if move.to}
    for target in space.engine.missing(space.name, list(targets)):
        move = targets[target]
        findings.add(
            "move",
            f"it leads to commit {target}, which is missing",
            digest=_address(move),
            name=move.timeline,
        )


def _address(move: MoveRecord) -> Digest:
    try:
        return digest_of(Kind.MOVE, encode_move(move))
    except DAMAGE:
        return Digest("")  # text that cannot be encoded was never stored as a move


def check_ledger(space: Space, begun: LedgerRead, findings: Findings) -> LedgerRead:
    """Check that the ledger has no gap after `begun`, that each entry fits the chain, and that it can be read.

    Return where it ended.  What is added after the check began is left out.
    """
    position, chain = begun.position, begun.chain
    try:
        end = space.engine.ledger(space.name).position
    except Corrupt:
        end = sys.maxsize  # the entry that cannot be read is named below
    while position < end and (page := _page(space, position, findings)):
        for entry in page:
            _check_entry(entry, position, chain, findings)
            position, chain = max(entry.position, position + 1), entry.chain
        findings.count("entry", len(page))
    return LedgerRead(position, chain)


def _page(space: Space, after: int, findings: Findings) -> Sequence[LedgerEntry]:
    """Return the next entries; if some cannot be read, those that can."""
    try:
        return space.engine.entries(space.name, after=after, limit=_PAGE)
    except Corrupt:
        return _one_by_one(space, after, findings)


def _one_by_one(space: Space, after: int, findings: Findings) -> Sequence[LedgerEntry]:
    found: list[LedgerEntry] = []
    for position in range(after, after + _PAGE):
        with findings.watching("ledger", name=f"entry {position + 1}"):
            entries = space.engine.entries(space.name, after=position, limit=1)
            if not entries:
                break
            found += entries
    return found


def _check_entry(entry: LedgerEntry, position: int, chain: Digest | None, findings: Findings) -> None:
    name = f"entry {entry.position}"
    if entry.position != position + 1:
        findings.add(
            "ledger", f"it comes after entry {position}; what was between cannot be given", name=name
        )
    elif shared_rules.chained(chain, entry.body) != entry.chain:
        findings.add("ledger", "it does not fit the chain of what came before it", name=name)
    with findings.watching("ledger", name=name):
        canonical.decode(entry.body)


def check_cells(space: Space, findings: Findings) -> None:
    """Check that every cell is what was written, and can be read."""
    for cell in readable_cells(space):
        findings.count("cell")
        if isinstance(cell, Corrupt):
            findings.add("cell", cell.message, name=cell.cell)
            continue
        with findings.watching("cell", name=cell.name):
            canonical.decode(cell.value or b"null")


def readable_cells(space: Space, prefix: str = "") -> Iterator[Cell | Corrupt]:
    """Yield the cells that are not empty, by name; for a damaged one, the error.

    It pages by hand: after damage it reads cell by cell up to the damaged one, and skips that.
    """
    after, limit = "", _PAGE
    while True:
        try:
            page = space.engine.cells(space.name, prefix=prefix, after=after, limit=limit)
        except Corrupt as error:
            if limit > 1 and error.cell is not None:
                limit = 1  # those before it can be read
                continue
            yield error
            if error.cell is None or error.cell <= after:
                return
            after, limit = error.cell, _PAGE
            continue
        if not page or page[-1].name <= after:
            return
        yield from page
        after = page[-1].name


class _Record(msgspec.Struct, frozen=True):
    """The fields of a thread's record that are compared."""

    space: str
    agent: str


class _Removed(msgspec.Struct, frozen=True):
    """The value of the cell that marks a thread as removed."""

    removed_at: int  # µs since 1970, UTC


_records = msgspec.json.Decoder(_Record)
_removals = msgspec.json.Decoder(_Removed)


def check_directory(space: Space, findings: Findings) -> None:
    """Check that a space and the directory agree; for the store's own space, check every record in it."""
    if space.name == STORE:
        for cell in loops.cells(space.engine, STORE, prefix=THREAD):
            with findings.watching("cell", name=cell.name):
                _check_record(space.engine, cell)
    elif space.name.startswith(THREADS) and _has_directory(space.engine):
        with findings.watching("space", name=space.name):
            _check_thread(space, findings)


def _check_record(engine: Engine, cell: Cell) -> None:
    id, record = cell.name.removeprefix(THREAD), read_record(cell, _records)
    if not record.space.startswith(THREADS):
        raise Corrupt(f"it leads to space '{record.space}', which is not a thread's")
    label = label_of(engine, record.space)
    if label == record.space:
        engine.check(record.space)  # it may be lost
    if label not in (id, record.space):  # a space without commits is labelled by its name
        raise Corrupt(f"it leads to space '{record.space}', which holds the thread '{label}'")


def _check_thread(space: Space, findings: Findings) -> None:
    """Check that the thread whose commits the space holds is recorded here, or was removed."""
    if space.label == space.name:
        return  # nothing was committed, or it cannot be read, which is reported elsewhere
    # A thread that is removed during the check is closed first, and only then is its record emptied.
    cell = space.engine.cell(STORE, THREAD + space.label)
    alive = space.engine.cell(space.name, ALIVE)
    if alive is not None:
        with findings.watching("cell", name=ALIVE):
            read_record(alive, _removals)
        return
    record = None if cell is None or cell.value is None else read_record(cell, _records)
    if record is None or record.space != space.name:
        what = f"it holds the thread '{space.label}', but the directory does not lead to it"
        findings.add("space", what, name=space.name)
        return
    agents = agents_in(space.engine.cell(space.name, AGENTS_OF_THREAD))
    for hold in space.engine.holds(space.name, limit=_PAGE):
        agent = agent_at(space, hold.head.commit, agents[0]) if agents else record.agent
        _check_agent(space, hold, (agent, *agents), findings)


def _check_agent(space: Space, hold: Hold, agents: Sequence[str], findings: Findings) -> None:
    """Check that the commit of an agent's map that the line has read is one of its agents'; the first has it now."""
    if hold.head.commit is None:
        return
    read = space.step(hold.head.commit).commit.reads.agent_commit
    if read is not None and all(space.engine.missing(AGENTS + agent, (read,)) for agent in agents):
        what = f"it has read commit {read} of its agent's map, which '{agents[0]}' does not have"
        findings.add("head", what, name=hold.head.timeline)


def _has_directory(engine: Engine) -> bool:
    """True if the store has a directory; one that was written through the engine alone has none."""
    return STORE in engine.spaces(after=STORE[:-1], limit=1)
