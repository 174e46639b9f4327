"""Copies a store, or some of its threads, into another store of any engine.

Every write of the source is replayed in the target under its own op_id, space by space and in its order, and then the
cells are written as they are.  So commits, moves, receipts, ledgers and cells have the same digests in both stores.
Spaces are copied again until a whole pass finds none that was written since, so the copy is the store of one moment.

A replayed write that is there already changes nothing.  So a copy that was killed is run again and goes on: it knows
from the cell `done/<space>` where.  Once both stores are compared, the copy is *settled*: leases of the source are
ended, calls that were started there are unknown here, and every thread is held (see `ledger.held`).

Before a copy begins, what is to be copied is verified, so that a damaged source leaves nothing in the target.

Raises `Conflict` if the target holds anything else, an older copy of the source included, or the source does not stop
being written, and `Corrupt` if the source is damaged.  Until it is finished, the target of a whole store is not opened
for writing; single threads do not close their target, and are not in its directory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from perdure.engines import loops, registry
from perdure.engines.contract import (
    GC,
    Cell,
    CellOf,
    CellWrite,
    Engine,
    Fence,
    Write,
)
from perdure.engines.replays import (
    PASSES_MAX,
    difference,
    has_all,
    replay_writes,
    stored_cells,
    write_pages,
)
from perdure.errors import Conflict, Corrupt, Invalid, PerdureError, Unavailable
from perdure.history.space import (
    AGENTS,
    ALIVE,
    STORE,
    THREAD,
    THREADS,
    Space,
    label_of,
    read_record,
    words_for,
)
from perdure.history.tree import NodeCache
from perdure.history.verify import Progress, VerifyReport
from perdure.history.writer import OUTBOX
from perdure.ledger import calls, held, verify
from perdure.ledger.call_identity import KEY, Owner
from perdure.ledger.held import COPIES, COPY, COPYING, DONE, Arrival
from perdure.model import canonical
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.names import shown_address
from perdure.runtime.session import lease, records
from perdure.store.plumbing import directory
from perdure.store.plumbing.handles import Ids
from perdure.store.upkeep.retention import with_open_work
from perdure.store.upkeep.selection import Selection, select, source_damaged

__all__ = [
    "CopyProgress",
    "CopyReport",
    "copy",
    "copy_to",
    "label_or_name",
    "onto_itself",
    "origin_of",
    "remove_if_disk_full",
    "space_of",
]

CopyProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with the space that is copied, how much of the work is done, and how much there is."""

_LEASE_SECONDS = 60
_PARTS = 1_000  # of a space, for progress
_WHY = {
    "copy": "the store was copied while the call was under way",
    "restore": "the store was restored from a backup that was made while the call was under way",
}


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy has done."""

    id: str
    source: str
    threads: tuple[str, ...]  # that are held now, by id
    open: tuple[str, ...]  # those of them with a run that has not ended, or an approval that waits
    spaces: int
    writes: int  # replayed by this call; the rest was there already
    resumed: bool  # True: an earlier call had begun
    unknown: int  # calls that were started in the source, and are unknown in the copy
    leases: int  # that were ended in the copy
    forgotten: int  # tombstones among the replayed objects
    verified: VerifyReport | None  # of the target; None: the copy was complete before this call
    left_out: tuple[str, ...] = ()  # what was not copied because it is damaged, in words


def copy_to(
    source: Engine,
    target: str,
    *,
    address: str,
    threads: Sequence[str] | None = None,
    sound: bool = False,
    clock: Callable[[], int],
    progress: CopyProgress | None = None,
    checked: Progress | None = None,
    verifying: Progress | None = None,
) -> CopyReport:
    """Copy into the store at `target`, which is made if it is not there, as `copy` does.

    No store is made if both are the same, if the source has no such thread, or, where the target is a file, if the
    source is damaged.  A server has the tables of an empty store then: only they can say whether a copy has begun.
    """
    if registry.place_of(address) == registry.place_of(target):
        raise onto_itself(address)
    for thread in threads or ():
        _thread(source, thread)
    file = registry.file_of(target)
    selection = None
    if file is not None and not file.exists():
        selection = select(source, address, threads, sound=sound, progress=verifying)
    with remove_if_disk_full(file), _opened(target) as into:
        return copy(
            source,
            into,
            address=address,
            threads=threads,
            sound=sound,
            selection=selection,
            clock=clock,
            progress=progress,
            checked=checked,
            verifying=verifying,
        )


@contextmanager
def remove_if_disk_full(file: Path | None) -> Generator[None]:
    """Make `file`, an empty store, and remove it again if the disk is too small for it; None: the store is on a server.

    A file that was there before stays: it may be another process's, or hold what an earlier call has copied.
    """
    is_new = False
    if file is not None and Path(f"{file}-lock").exists():
        is_new = not file.exists()  # a file that is made here would seem to be a store that lost its content
    elif file is not None:
        with suppress(OSError):  # it is there, or its opening says why it cannot be made
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            is_new = True
    try:
        yield
    except Unavailable as error:
        if error.code == "disk_full" and file is not None and is_new:
            for suffix in ("", "-wal", "-shm", "-lock", "-closed"):
                Path(f"{file}{suffix}").unlink(missing_ok=True)
            shutil.rmtree(f"{file}-held", ignore_errors=True)
        raise


@contextmanager
def _opened(target: str) -> Generator[Engine]:
    into = registry.open_engine(target, read_only=False, create=True, durability="power_loss")
    try:
        yield into
    finally:
        into.close()


def copy(
    source: Engine,
    target: Engine,
    *,
    address: str,
    threads: Sequence[str] | None = None,
    sound: bool = False,
    selection: Selection | None = None,
    kind: held.ArrivalKind = "copy",
    clock: Callable[[], int],
    progress: CopyProgress | None = None,
    checked: Progress | None = None,
    verifying: Progress | None = None,
) -> CopyReport:
    """Copy the whole source, or these threads of it, into `target`, and verify there what was copied.

    With `sound`, damaged threads, maps and memories are left out; the `selection` is what was verified before, None: it
    is verified now, unless the copy has begun.  `address` and `kind` name the source and the act in the record of the
    copy.  `verifying` is called while the source is verified, `progress` while it is copied, and `checked` while the
    copy is verified; None: it is not reported.
    """
    if source is target:
        raise onto_itself(address)
    if sound and selection is None:
        selection = select(source, address, threads, sound=True, progress=verifying)
    wanted = threads if selection is None else selection.threads
    chosen = None if wanted is None else tuple(sorted(set(wanted)))
    origin = origin_of(source)
    name = digest_of(Kind.BODY, canonical.encode([origin, None if chosen is None else list(chosen)]))[:16]
    found = target.cell(COPIES, COPY + name)
    resumed = found is not None
    if found is None:
        arrival = Arrival(
            id=name, kind=kind, source=shown_address(address), origin=origin, begun_at=clock(), threads=chosen
        )
        _check_target(source, target, chosen)
        if selection is None:
            select(source, address, threads, sound=False, progress=verifying)
        found = _begin(target, arrival)
    selection = selection or Selection()
    copier = _Copier(source, target, read_record(found, _arrivals), selection.memories, clock, progress)
    report = copier.run(resumed=resumed, checked=checked)
    return msgspec.structs.replace(report, left_out=selection.left_out)


def onto_itself(address: str) -> Invalid:
    """Return the error for a target that is the source itself."""
    return Invalid(
        f"{shown_address(address)} cannot be copied onto itself; nothing was copied.",
        code="copy_onto_itself",
        advice="Name another target.",
        store=shown_address(address),
    )


_arrivals = msgspec.json.Decoder(Arrival)
_owners = msgspec.json.Decoder(Owner)


class _Progress(msgspec.Struct, frozen=True):
    """The value of a cell `done/<space>`."""

    copy: str
    cursor: int
    standing: int = 0  # of the source's space; 0: it was not copied to its end yet


class _Copying(msgspec.Struct, frozen=True):
    """The value of the cell of a copy that is under way."""

    copy: str
    holder: str
    clock: str
    until: int


_progresses = msgspec.json.Decoder(_Progress)
_copyings = msgspec.json.Decoder(_Copying)


def origin_of(source: Engine) -> str:
    """Name a store by its first write."""
    first = next(
        (name for name in (STORE, *loops.spaces(source)) if name != COPIES and source.standing(name)), None
    )
    found = None if first is None else source.writes(first, limit=1)[0]
    return "" if not found else digest_of(Kind.BODY, canonical.encode([first, found[0].op_id]))


def _check_target(source: Engine, target: Engine, threads: Sequence[str] | None) -> None:
    """Raise `Conflict` if the target has no room for the whole source, or for these threads of it."""
    if threads is None:
        there = [name for name in target.spaces(limit=2) if name != COPIES]
        if there or next(held.arrivals(target), None) is not None:
            raise Conflict(
                "the target is not empty, and holds no unfinished copy of this source; nothing was copied.",
                code="target_not_empty",
                advice="Name a new store, or copy single threads.",
                spaces=tuple(there),
            )
    for thread in threads or ():
        _check_room(source, target, thread)


def _begin(target: Engine, arrival: Arrival) -> Cell:
    """Record that the copy begins."""
    id, what = arrival.id, f"{arrival.kind} begun"
    entry = canonical.encode({"at": arrival.begun_at, "copy": id, "source": arrival.source, "what": what})
    held.record(target, f"copy {id} begun", _arrival_write(arrival, None), entries=(entry,))
    found = target.cell(COPIES, COPY + id)
    assert found is not None
    return found


def _check_room(source: Engine, target: Engine, thread: str) -> None:
    record = _thread(source, thread)
    there = target.cell(STORE, THREAD + thread)
    is_there = there is not None and there.value is not None
    if not is_there and target.standing(record.space):
        begun = [each for each in held.arrivals(target) if each.state != "complete"]
        if any(each.threads is None or thread in each.threads for each in begun):
            raise Conflict(
                f"the target has a copy of thread '{thread}' that is not complete; nothing was copied.",
                code="thread_copy_incomplete",
                advice="Give the same command as before, with the same threads: it goes on. Or copy into a new store.",
                thread=thread,
            )
        raise Conflict(
            f"the target had thread '{thread}' and removed it; nothing was copied.",
            code="thread_removed_there",
            advice="Copy it into a new store.",
            thread=thread,
        )
    if is_there:
        raise Conflict(
            f"the target has a thread '{thread}'; nothing was copied.",
            code="thread_exists",
            advice="Remove it there first, or leave it out.",
            thread=thread,
        )
    for key in _claims(source, record.space):
        _check_claim(key, target.cell(STORE, key.name), "nothing was copied")
    if source.cells(record.space, prefix=OUTBOX, limit=1):
        raise Conflict(
            f"thread '{thread}' has changes that its agent's map does not have yet; nothing was copied.",
            code="outbox_pending",
            advice="Open the source once for writing, which delivers them, and copy again.",
            thread=thread,
        )
    for agent in record.agents or (record.agent,):
        space = AGENTS + agent
        if target.standing(space) and not has_all(source, target, space):
            raise Conflict(
                f"agent '{agent}' of thread '{thread}' has another map in the target; nothing was copied.",
                code="agent_map_differs",
                advice="Copy the whole store into a new one.",
                thread=thread,
                agent=agent,
            )


def _claims(source: Engine, space: str) -> Iterator[Cell]:
    """Yield the keys of the store that a thread has claimed."""
    for cell in loops.cells(source, STORE, prefix=KEY):
        if read_record(cell, _owners).space == space:
            yield cell


def _check_claim(wanted: Cell, there: Cell | None, left: str) -> None:
    """Raise `Conflict` if the target's directory has something else under the name of a cell."""
    if there is None or there.value is None or there.value == wanted.value:
        return
    raise Conflict(
        f"the target has another '{wanted.name}'; {left}.",
        code="key_claimed" if wanted.name.startswith(KEY) else "thread_exists",
        advice="Copy the whole store into a new one.",
        cell=wanted.name,
    )


def _thread(source: Engine, thread: str) -> directory.Record:
    store = space_of(source, STORE, lambda: 0)
    return directory.find(store, thread, undone="nothing was copied", advice="Name a thread of the source.")


def space_of(engine: Engine, name: str, clock: Callable[[], int] = lambda: 0) -> Space:
    """Return a space of a store that is copied or compared; without a clock it is for reading."""
    label = label_of(engine, name)
    return Space(engine=engine, name=name, label=label, clock=clock, ids=Ids(clock), cache=NodeCache())


def _arrival_write(arrival: Arrival, before: Cell | None) -> CellWrite:
    return held.cell_write(COPY + arrival.id, before, canonical.encode_struct(arrival))


class _Copier:
    """One copy under way."""

    def __init__(
        self,
        source: Engine,
        target: Engine,
        arrival: Arrival,
        memories: Sequence[str],
        clock: Callable[[], int],
        progress: CopyProgress | None,
    ) -> None:
        self._source, self._target, self._arrival, self._clock = source, target, arrival, clock
        self._memories = memories  # to copy beside the threads
        self._progress = progress
        self._fence = Fence(COPYING if arrival.threads is None else f"{COPYING}/{arrival.id}", 0)
        self._writes = self._forgotten = 0

    def run(self, *, resumed: bool, checked: Progress | None) -> CopyReport:
        """Do what is left to do."""
        report: VerifyReport | None = None
        names = self._spaces()
        if self._arrival.state != "complete":
            self._take()
            if self._arrival.state == "copying":
                # First, so that the target cannot claim them while the threads are copied.
                self._enter("keys", self._keys(self._arrival.threads or ()))
                names = self._copy_until_stable()
                self._move_to("settling")
            self._settle([name for name in names if name.startswith(THREADS)])
            report = verify.verify(self._target, spaces=[*names, COPIES], progress=checked)
            if not report.ok:
                raise Corrupt(
                    f"the copy of {self._arrival.source} is damaged: {report.faults[0].what}; it is not complete.",
                    code="copy_damaged",
                    advice="Verify the source, and copy it into a new store.",
                    faults=len(report.faults),
                )
            self._complete()
        else:
            self._check_current(names)
        threads = [each.space for each in held.held_threads(self._target) if each.space in set(names)]
        ids = partial(directory.ids_of, space_of(self._target, STORE, self._clock))
        return CopyReport(
            id=self._arrival.id,
            source=self._arrival.source,
            threads=tuple(ids(threads)),
            open=tuple(ids(with_open_work(self._target, threads))),
            spaces=len(names),
            writes=self._writes,
            resumed=resumed,
            unknown=self._arrival.unknown,
            leases=self._arrival.leases,
            forgotten=self._forgotten,
            verified=report,
        )

    def _check_current(self, names: Sequence[str]) -> None:
        """Raise `Conflict` if the source was written since the copy was complete: the target goes its own way by now."""
        late = [name for name in names if self._done_standing(name) != self._source.standing(name)]
        if late:
            raise Conflict(
                f"the target has a copy of {self._arrival.source} that is complete, and the source was written since; "
                "nothing was copied.",
                code="copy_outdated",
                advice="Copy it into a new store.",
                source=self._arrival.source,
                spaces=tuple(label_or_name(self._source, name) for name in late),
            )

    def _spaces(self) -> list[str]:
        """Return the spaces to copy: threads first, and the directory last, so that no thread is found too early."""
        threads = self._arrival.threads
        if threads is None:
            names = [name for name in loops.spaces(self._source) if name not in (COPIES, STORE)]
            has_directory = self._source.standing(STORE) > 0
            return [*names, STORE] if has_directory else names
        found = [_thread(self._source, thread) for thread in threads]
        agents = dict.fromkeys(AGENTS + each for record in found for each in record.agents or (record.agent,))
        return [
            *(each for each in (*agents, *self._memories) if self._is_ours(each)),
            *(record.space for record in found if self._source.standing(record.space)),
        ]

    def _is_ours(self, space: str) -> bool:
        """True if this copy brings a map or a memory: the target has none, or has one from this copy."""
        done = self._done(space)[1]
        mine = done is not None and done.copy == self._arrival.id
        return bool(self._source.standing(space)) and (mine or not self._target.standing(space))

    # ---- copying

    def _copy_until_stable(self) -> list[str]:
        """Copy all spaces, again and again until none was written or let go since; return their names."""
        for _ in range(PASSES_MAX):
            names = self._spaces()
            late = [name for name in names if self._is_late(name)]
            for at, name in enumerate(late):
                self._copy_space(name, at, len(late))
            if late:
                continue
            differing = partial(difference, self._source, self._target)
            found = [(name, what) for name in names if (what := differing(name))]
            if any(map(self._is_late, self._spaces())):
                continue  # it was written while it was compared
            if found:
                raise Corrupt(
                    f"the copy differs from {self._arrival.source}: the {found[0][1]} of "
                    f"{words_for(self._source, found[0][0])}; it is not complete.",
                    code="copy_differs",
                    advice="Copy it into a new store, while nothing writes to either of them.",
                )
            return names
        raise Conflict(
            f"{self._arrival.source} was written during each of {PASSES_MAX} passes; the copy is not complete.",
            code="source_written",
            advice="Stop the programs that write to it, and run the copy again; it goes on where it stopped.",
            source=self._arrival.source,
        )

    def _copy_space(self, name: str, at: int, total: int) -> None:
        if name.startswith(THREADS) and self._source.cell(name, ALIVE) is None:  # else it was removed
            held.hold(self._target, name, self._arrival, fences=(self._fence,))
        for _ in range(PASSES_MAX):
            standing = self._source.standing(name)
            done = self._done(name)[1]
            report = partial(self._report, name, at, total, standing)
            self._replay_from(name, done.cursor if done else 0, report)
            cells = stored_cells(self._source, name)
            self._forget_too(name)
            self._note(name, standing, 0)  # fails if another process goes on with this copy
            self._target.reseal(name, cells)
            if self._source.standing(name) == standing:
                self._note(name, standing, standing)
                break
        self._report(name, at + 1, total, 1, 0)

    def _is_late(self, name: str) -> bool:
        """True if the source was written in a space, or has forgotten something of it, since that was copied."""
        is_written = self._done_standing(name) != self._source.standing(name)
        return is_written or _generation(self._source, name) != _generation(self._target, name)

    def _forget_too(self, name: str) -> None:
        """Forget in the target what the source has forgotten since it was replayed."""
        if _generation(self._source, name) == _generation(self._target, name):
            return
        gone: dict[str, list[Digest]] = {}
        for page, _ in write_pages(self._source, name, 0):
            for fact in (fact for written in page for fact in written.facts):
                if fact.forgotten is not None and fact.digest is not None:
                    gone.setdefault(fact.forgotten, []).append(fact.digest)
        for why, digests in gone.items():
            self._target.forget(name, digests, why=why, standing=self._target.standing(name))

    def _report(self, name: str, at: int, total: int, standing: int, cursor: int) -> None:
        if self._progress is not None:
            part = _PARTS * cursor // max(1, standing)
            self._progress(name, at * _PARTS + min(part, _PARTS), total * _PARTS)

    def _replay_from(self, name: str, cursor: int, report: Callable[[int], None]) -> None:
        def paged(after: int) -> None:
            self._note(name, after, 0)
            report(after)

        source, place = self._source, self._arrival.source
        try:
            done = replay_writes(source, self._target, name, place=place, after=cursor, paged=paged)
        except Corrupt as error:
            if error.code != "source_damaged":
                raise
            raise source_damaged(source, place, [name], str(error.facts["fault"])) from error
        self._writes += done.writes
        self._forgotten += done.forgotten

    # ---- settling

    def _settle(self, names: Sequence[str]) -> None:
        """End the leases of the source, and record calls that were started there as unknown."""
        # Each write has an op_id of its own: a source that is a copy has settled too, and its writes were replayed.
        ended = unknown = 0
        why = _WHY[self._arrival.kind]
        for name in names:
            space = space_of(self._target, name, self._clock)
            if self._target.cell(name, ALIVE) is not None:
                continue  # the thread was removed
            leases = list(loops.cells(self._target, name, prefix=lease.LEASE))
            writes = [each for each in map(lease.ending, leases) if each is not None]
            if writes:
                records.apply(space, "copy", *writes)
            started = [each for each in calls.every(space) if each.record.state == "started"]
            steps = [calls.advance(each, "unknown", at=self._clock(), why=why) for each in started]
            if steps:
                calls.post(space, steps)
            # Counted from what is stored: an earlier attempt may have been killed in between.
            ended += len(leases)
            unknown += sum(
                each.record.state == "unknown" and each.record.why == why for each in calls.every(space)
            )
        threads = self._arrival.threads
        if threads is not None:  # with their agents, and the keys of the store that they claimed
            cells = [cell for thread in threads for cell in self._directory_cells(thread)]
            self._enter("directory", [*cells, *self._keys(threads)])
        self._arrival = msgspec.structs.replace(self._arrival, unknown=unknown, leases=ended)

    def _enter(self, what: str, wanted: Sequence[Cell]) -> None:
        """Write cells to the target's directory; raise `Conflict` if it has others under their names."""
        there = self._target.answers([CellOf(STORE, cell.name) for cell in wanted])
        writes: dict[str, CellWrite] = {}
        for cell, before in zip(wanted, there, strict=True):
            if before is None or before.value is None:
                writes[cell.name] = held.cell_write(cell.name, before, cell.value)
            elif not cell.name.startswith(directory.AGENT):
                _check_claim(cell, before, "the copy is not complete")
        if writes:
            op_id = f"copy:{Ids(self._clock)()}:{what}"
            intent = digest_of(Kind.BODY, op_id.encode())
            self._target.apply(Write(space=STORE, op_id=op_id, intent=intent, cells=tuple(writes.values())))

    def _keys(self, threads: Sequence[str]) -> list[Cell]:
        spaces = [_thread(self._source, thread).space for thread in threads]
        return [key for space in spaces for key in _claims(self._source, space)]

    def _directory_cells(self, thread: str) -> Iterator[Cell]:
        record = _thread(self._source, thread)
        agents = [CellOf(STORE, directory.AGENT + each) for each in record.agents or (record.agent,)]
        for cell in self._source.answers([CellOf(STORE, THREAD + thread), *agents]):
            if cell is not None and cell.value is not None:
                yield cell

    def _complete(self) -> None:
        arrival = msgspec.structs.replace(self._arrival, state="complete", completed_at=self._clock())
        entry = canonical.encode(
            {
                "at": arrival.completed_at,
                "copy": arrival.id,
                "leases": arrival.leases,
                "source": arrival.source,
                "unknown": arrival.unknown,
                "what": f"{arrival.kind} completed",
            }
        )
        self._write_arrival(arrival, entries=(entry,), ends=True)

    # ---- the record of the copy

    def _move_to(self, state: held.ArrivalState) -> None:
        self._write_arrival(msgspec.structs.replace(self._arrival, state=state))

    def _write_arrival(
        self, arrival: Arrival, *, entries: tuple[bytes, ...] = (), ends: bool = False
    ) -> None:
        before = self._target.cell(COPIES, COPY + arrival.id)
        cells = [_arrival_write(arrival, before)]
        if ends:
            cells.append(CellWrite(name=self._fence.cell, expected=self._fence.revision, value=None))
        self._record(f"copy {arrival.id} {arrival.state}", *cells, entries=entries)
        self._arrival = arrival

    def _take(self) -> None:
        """Take the copy for this process; raise `Conflict` if another process has it."""
        cell = self._target.cell(COPIES, self._fence.cell)
        now = self._target.instant()
        if cell is not None and cell.value is not None:
            found = read_record(cell, _copyings)
            is_live = now.clock == found.clock and now.at < found.until
            if found.copy != self._arrival.id or (is_live and not self._is_over(found.holder)):
                raise Conflict(
                    f"another process is copying {self._arrival.source} into this target; nothing was copied.",
                    code="copy_under_way",
                    advice="Wait for it, or end it and try again in a minute.",
                    source=self._arrival.source,
                )
        self._renew(cell.revision if cell else 0)

    def _is_over(self, holder: str) -> bool:
        return holder == self._target.holder() or self._target.gone(holder)

    def _renew(self, revision: int, *cells: CellWrite) -> None:
        """Extend the right to go on with the copy, together with other cells."""
        now = self._target.instant()
        until = now.at + _LEASE_SECONDS * 1_000_000
        mine = _Copying(self._arrival.id, self._target.holder(), now.clock, until)
        name = self._fence.cell
        own = CellWrite(name=name, expected=revision, value=canonical.encode_struct(mine))
        held.record(self._target, f"{name} {self._arrival.id} {revision} {mine.holder}", own, *cells)
        self._fence = Fence(name, revision + 1)

    def _record(self, op_id: str, *cells: CellWrite, entries: tuple[bytes, ...] = ()) -> None:
        held.record(self._target, op_id, *cells, entries=entries, fences=(self._fence,))

    def _done(self, name: str) -> tuple[Cell | None, _Progress | None]:
        cell = self._target.cell(COPIES, DONE + name)
        return cell, None if cell is None or cell.value is None else read_record(cell, _progresses)

    def _done_standing(self, name: str) -> int | None:
        done = self._done(name)[1]
        return None if done is None or done.copy != self._arrival.id else done.standing

    def _note(self, name: str, cursor: int, standing: int) -> None:
        """Note how far a space is copied."""
        before = self._done(name)[0]
        value = canonical.encode_struct(_Progress(self._arrival.id, cursor, standing))
        self._renew(self._fence.revision, held.cell_write(DONE + name, before, value))


def _generation(engine: Engine, space: str) -> int:
    """Return how often content of a space was forgotten."""
    cell = engine.cell(space, GC)
    return 0 if cell is None else cell.revision


def label_or_name(engine: Engine, space: str) -> str:
    """Return the label of a space, or its name if the label cannot be read."""
    try:
        return label_of(engine, space)
    except PerdureError:
        return space
