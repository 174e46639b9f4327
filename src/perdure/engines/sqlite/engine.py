"""The SQLite engine: the contract kept in one file.

Reads run on pooled connections and see the last durable write.  Writes go through
`WriteGroup`.  After a fork the child opens everything again and touches nothing inherited.

No connection is open while a process forks.  SQLite keeps its own account of the locks that a process
holds.  A forked child inherits that account but not the locks: it would believe that it holds what only
its parent holds, and another process could remove the write-ahead log while the child uses it.  So before
a fork every store of the process goes to rest: the write under way is finished, readers finish, and
connections are closed.  Afterwards the parent opens its own again, and a child does so
when it first uses the store.  A store that is not at rest in time cannot be used in the child.

The lock files of those who use a store (see `holders`) are in `<store>-held/`, the uses that are over in `<store>-closed`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, RLock
from typing import TypeVar

import apsw

from perdure.engines.contract import (
    Answer,
    Cell,
    CellOf,
    Fact,
    HeadOf,
    Hold,
    Instant,
    LabelOf,
    Labels,
    LedgerEntry,
    LedgerOf,
    OpOf,
    Question,
    Rebuilt,
    Receipt,
    Recorded,
    Step,
    Write,
    Written,
)
from perdure.engines.forks import Rest, watch
from perdure.engines.holders import HostPresence, boot_instant
from perdure.engines.news import Waiters
from perdure.engines.shared_rules import check_standing, check_write
from perdure.engines.sqlite import reads, schema
from perdure.engines.sqlite.commit.apply import recorded_in
from perdure.engines.sqlite.commit.caches import Recent
from perdure.engines.sqlite.commit.file_lock import FileLock
from perdure.engines.sqlite.commit.group import WriteGroup
from perdure.engines.sqlite.commit.seals import Seals, ledger_end, newest_row, snapshot
from perdure.engines.sqlite.connections import Connections, Options, UnchangedFiles, check_store
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.errors import check_writable, closed_error, confirmed, read_only_error, translated
from perdure.engines.sqlite.file_system import (
    check_place,
    file_system_of,
    make_database,
    mode_beside,
)
from perdure.engines.sqlite.format.index import Index
from perdure.engines.sqlite.format.rows import Rows
from perdure.engines.sqlite.maintenance import removal, scan
from perdure.engines.sqlite.maintenance.copy import back_up, sync_names
from perdure.engines.sqlite.schema import foreign_objects
from perdure.errors import InDoubt, PerdureError, Unavailable
from perdure.model.commit import CommitEvents, LedgerRead, MoveRecord
from perdure.model.digest import Digest, Object

__all__ = ["SqliteEngine", "described"]


def described(db: Database, options: Options, *, log: Database | None = None) -> dict[str, str | int]:
    """Return what `doctor` shows of a store: kind, place, versions, settings and sizes; its rows are counted in `log`."""
    size = _pragma(db, "page_size")
    others = foreign_objects(db)
    return {
        "engine": "sqlite",
        "path": options.path,
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "schema": _pragma(db, "user_version"),
        "journal": str(db.pragma("journal_mode")),
        "durability": "power_loss" if options.durable else "process_crash",
        "file_system": file_system_of(Path(options.path).parent) or "unknown",
        "bytes": _pragma(db, "page_count") * size,
        "bytes_free": _pragma(db, "freelist_count") * size,
        "rows": int(str((log or db).execute("SELECT coalesce(max(id), 0) FROM log").get)),
        **({"other_tables": ", ".join(others)} if others else {}),
    }


def _pragma(db: Database, name: str) -> int:
    return int(str(db.pragma(name)))


T = TypeVar("T")

_WAIT_SECONDS = 30.0
_REST_SECONDS = 10.0  # how long a fork waits for a store to become idle
_LOOK_SECONDS = 0.01  # how often the lock file is read for those who wait for news
_UNCOUNTED_LOOK_SECONDS = 0.05  # how often the database is read where the lock file has no count


class SqliteEngine:
    """A store in one SQLite file, shared by threads and processes of one machine.

    The contract says what each method promises; a docstring here adds what only this engine does.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        durable: bool = True,
        wait_seconds: float = _WAIT_SECONDS,
        vfs: str | None = None,
        exclusive: bool = False,
        sync_directory: Callable[[], None] | None = None,
        lock_path: Path | None = None,
    ) -> None:
        """Open the store at `path`, creating it if it is not there.

        `vfs`, `exclusive`, `sync_directory` and `lock_path` let a test put a faulty disk under the store.
        """
        self._path = path = path if vfs else path.resolve()  # one lock and one log, however it is named
        self._lock_path = lock_path or path.with_name(path.name + "-lock")
        self._sync_directory = sync_directory or (lambda: sync_names(path.parent))
        self._wait_seconds = wait_seconds
        self._options = Options(
            path=str(path), read_only=read_only, durable=durable, vfs=vfs, exclusive=exclusive
        )
        # Beside the file that the path leads to: a process that opened a link must find the marks too.
        place = Path(os.path.realpath(self._lock_path if vfs else path))
        self._presence = HostPresence(
            place.with_name(place.name + "-held"),
            mode=lambda: mode_beside(place),
            closed=place.with_name(place.name + "-closed"),
            is_local=True,
            read_only=read_only,
        )
        self._one_at_a_time = RLock()
        self._unchanged: UnchangedFiles | None = None  # where it is read without locks
        self._pid = 0  # of the process that opened it; 0: none
        self._closed = False
        self._rest = Rest.NONE
        self._counted, self._looked_at = -1, 0.0  # of the lock file, when it was read for those who wait
        self._waiters = Waiters(
            self._standings,
            closed=lambda: closed_error(self._path),
            has_changed=self._has_changed,
            every=_LOOK_SECONDS,
        )
        watch(self)
        self._reopen()

    def _open(self) -> None:
        options = self._options
        if options.vfs is None:
            check_place(self._path)
            if self._path.exists() and not self._lock_path.exists():
                check_store(self._path)  # before anything is created beside a file that is not a store
            if not options.read_only:
                check_writable(self._path)
        self._lock = None if options.read_only else self._lock_file()
        try:
            self._connections = self._ready()
        except BaseException:
            if self._lock is not None:
                self._lock.close()
            raise
        self._forget_reads()
        self._group = self._recent = None
        if self._lock is not None:
            self._recent = Recent(self._lock, self._rows, self._read)
            self._group = WriteGroup(
                self._connections,
                self._lock,
                self._rows,
                self._recent,
                self._seals,
                place=str(self._path),
                wait_seconds=self._wait_seconds,
            )
        self._pid = os.getpid()

    def _forget_reads(self) -> None:
        """Drop everything that was kept of what the file holds."""
        self._rows = Rows(Index(), str(self._path), self._lock.writes if self._lock else lambda: -1)
        self._scanned = scan.Bodies()
        self._spaces: dict[str, int] = {}
        self._seals = Seals(read_only=self._options.read_only)

    def _lock_file(self) -> FileLock:
        return self._guard("it was not opened", lambda: FileLock(self._lock_path, mode_beside(self._path)))

    def _ready(self) -> Connections:
        """Open the database under the lock, so that two processes that arrive first do not both create the schema."""
        if self._lock is None:
            connections = self._checked(self._guard("it was not opened", lambda: Connections(self._options)))
            self._options = connections.options
            self._unchanged = UnchangedFiles(self._path) if self._options.is_frozen else None
            return connections
        lock = self._lock
        is_left = self._guard("it was not opened", lambda: lock.acquire(self._wait_seconds))
        try:
            if self._options.vfs is None:
                self._guard("it was not opened", lambda: make_database(self._path, lock.count))
            return self._checked(self._guard("it was not opened", lambda: Connections(self._options)))
        except BaseException:
            lock.count -= 1  # only a store is counted, so that an emptied one is noticed
            raise
        finally:
            lock.release(settled=not is_left)

    def _checked(self, connections: Connections) -> Connections:
        try:
            self._guard("it was not opened", lambda: self._lay(connections.writer))
            connections.remember_files()
        except BaseException:
            with suppress(apsw.Error):  # what went wrong first is what counts
                connections.close()
            raise
        return connections

    def _lay(self, db: Database) -> None:
        if schema.lay(db, str(self._path), may_write=self._lock is not None):
            self._sync_directory()

    # ---- writing

    def apply(self, write: Write) -> Receipt:
        if write.cells or write.entries or len(write.moves) > 1:
            check_write(write)
        if self._pid != os.getpid():
            self._reopen()
        group = self._writing() if self._closed or self._group is None else self._group
        if self._options.exclusive:
            with self._one_at_a_time:
                receipt = group.apply(write)
        else:
            receipt = group.apply(write)
        if write.space in self._waiters.spaces:
            self._waiters.written(write.space)
        return receipt

    def recorded(self, space: str, op_id: str) -> Recorded | None:
        """Return the write of that op_id, after a barrier where one is due."""
        return self.answers((OpOf(space, op_id),))[0]

    def _settle(self, op_id: str) -> None:
        try:
            self._alone(lambda _: 0, "the write was not looked up")
        except PerdureError as error:
            raise InDoubt(op_id, f"the store could not be settled: {error}") from error

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error(self._path)

    def _writing(self) -> WriteGroup:
        self._check_open()
        if self._group is None:
            raise read_only_error(self._path)
        return self._group

    def _alone(self, work: Callable[[Database], int], left: str) -> int:
        self._check_process()
        with self._one_at_a_time:
            return self._writing().alone(work, left, erases=True)

    # ---- reading

    def answers(self, questions: Sequence[Question], *, fresh: bool = True) -> Sequence[Answer]:
        """Answer questions, from memory while no process has written since the answers were seen."""
        if self._pid != os.getpid():
            self._reopen()
        recent = self._recent
        if recent is None or self._closed:
            return self._answers(questions)
        known = None if fresh else recent.recall(questions)
        return recent.ask(questions, self._answers) if known is None else known

    def _answers(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Read the answers; whether a write was recorded is read behind a barrier where one is due."""
        ops = [each.op_id for each in questions if isinstance(each, OpOf)]
        if ops and self._group is not None and self._group.is_in_doubt:
            self._settle(ops[0])
        found = self._read(lambda db: self._answers_in(db, questions))
        if ops and self._lock is not None and _is_unknown(questions, found) and self._lock.was_left():
            self._settle(ops[0])
            found = self._read(lambda db: self._answers_in(db, questions))
        return found

    def _answers_in(self, db: Database, questions: Sequence[Question]) -> Sequence[Answer]:
        if len(questions) == 1:
            return [self._answer(db, questions[0])]
        with snapshot(db):
            return [self._answer(db, each) for each in questions]

    def _answer(self, db: Database, question: Question) -> Answer:
        space = self._space(db, question.space)
        match question:
            case HeadOf(_, timeline):
                return reads.hold_of(db, space, timeline)[0]
            case CellOf(name_of_space, name):
                return reads.cell(db, name_of_space, space, name)
            case LedgerOf():
                return ledger_end(db, space)
            case OpOf(_, op_id):
                self._rows.look(db)
                return None if space is None else recorded_in(db, self._rows, space, op_id)
            case LabelOf(_, label):
                self._rows.look(db)
                return reads.labelled(db, self._rows, space, label)

    def objects(self, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        def objects(db: Database) -> list[Object]:
            rows, number = self._rows, self._space(db, space)
            alone = rows.whole(db, number, digests[0]) if len(digests) == 1 else None
            if alone is not None:
                return [alone]
            rows.look(db)
            return rows.objects(db, number, digests)

        return self._read(objects)

    def missing(self, space: str, digests: Sequence[Digest]) -> Sequence[Digest]:
        def missing(db: Database) -> list[Digest]:
            self._rows.look(db)
            return self._rows.missing(db, self._space(db, space), digests)

        return self._read(missing)

    def steps(
        self, space: str, at: Digest, *, skip: int = 0, limit: int, bodies: bool = False, labels: Labels = ()
    ) -> Sequence[Step]:
        read, row = reads.steps, self._commit_row
        return self._read(lambda db: read(db, row(db, space, at), skip, limit, labels, bodies=bodies))

    def events(self, space: str, at: Digest, *, limit: int, bodies: bool = False) -> Sequence[CommitEvents]:
        read, row = reads.events_from, self._commit_row
        return self._read(lambda db: read(db, row(db, space, at), limit, bodies=bodies))

    def turn(self, space: str, at: Digest, turn: int) -> Step | None:
        def find(db: Database) -> Step | None:
            row = reads.last_of_turn(db, self._commit_row(db, space, at), turn)
            return None if row is None else reads.steps_from(db, row, 1)[0]

        return self._read(find)

    def labelled(self, space: str, label: str) -> Sequence[Digest]:
        return self.answers((LabelOf(space, label),))[0]

    def commits(self, space: str, prefix: str, *, limit: int) -> Sequence[Digest]:
        if not set(prefix) <= set("0123456789abcdef"):
            return []
        read = reads.commits_from
        return self._read(lambda db: read(db, self._rows.index, self._space(db, space), prefix))[:limit]

    def hold(self, space: str, timeline: str) -> Hold | None:
        return self.answers((HeadOf(space, timeline),))[0]

    def holds(self, space: str, *, after: str = "", limit: int) -> Sequence[Hold]:
        return self._read(lambda db: reads.holds_of(db, self._space(db, space), after, limit))

    def moves(
        self, space: str, timeline: str, *, before: int | None = None, limit: int
    ) -> Sequence[MoveRecord]:
        read = reads.moves
        return self._read(lambda db: read(db, self._rows, self._space(db, space), timeline, before, limit))

    def cell(self, space: str, name: str) -> Cell | None:
        return self.answers((CellOf(space, name),))[0]

    def cells(
        self,
        space: str,
        *,
        prefix: str = "",
        after: str = "",
        before: str | None = None,
        descending: bool = False,
        limit: int,
    ) -> Sequence[Cell]:
        def cells(db: Database) -> list[Cell]:
            number = self._space(db, space)
            return reads.cells(db, space, number, prefix, after, before, descending=descending, limit=limit)

        return self._read(cells)

    def cells_of(self, spaces: Sequence[str], name: str) -> Sequence[Cell]:
        def cells(db: Database) -> list[Cell]:
            numbers = {self._space(db, space): space for space in spaces}
            return reads.cells_of(db, numbers, name)

        return self._read(cells)

    def listed(self, *, prefix: str, after: tuple[str, str] = ("", ""), limit: int) -> Sequence[Cell]:
        listed = reads.listed
        found = self._read(lambda db: self._seals.check_listed(db) or listed(db, prefix, after, limit))
        for name in {cell.space for cell in found}:
            self.check(name)
        return found

    def entries(
        self,
        space: str,
        *,
        after: int = 0,
        before: int | None = None,
        descending: bool = False,
        limit: int,
    ) -> Sequence[LedgerEntry]:
        def entries(db: Database) -> list[LedgerEntry]:
            number = self._space(db, space)
            return reads.entries(db, number, after, before, descending=descending, limit=limit)

        return self._read(entries)

    def ledger(self, space: str) -> LedgerRead:
        return self.answers((LedgerOf(space),))[0]

    def check(self, space: str, *, again: bool = False) -> None:
        if again or self._spaces.get(space) not in self._seals:
            self._read(
                lambda db: self._seals.check(db, self._rows, self._space(db, space), space, again=again)
            )

    def reseal(self, space: str, cells: Sequence[Rebuilt] = ()) -> None:
        seal = removal.seal_again
        self._alone(
            lambda db: seal(db, self._rows, self._space(db, space), space, cells), "nothing was sealed"
        )

    def spaces(self, *, after: str = "", limit: int) -> Sequence[str]:
        return self._read(lambda db: reads.spaces(db, after, limit))

    def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
        """Return everything stored for a space, in storage order; damage is reported, not raised."""
        read = scan.scan
        return self._read(
            lambda db: read(db, self._rows, self._scanned, self._space(db, space), after, limit)
        )

    def writes(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Written], int | None]:
        read = scan.writes
        return self._read(
            lambda db: read(db, self._rows, self._scanned, self._space(db, space), after, limit)
        )

    def stored_cells(self, space: str, *, after: str = "", limit: int) -> Sequence[Rebuilt]:
        return self._read(lambda db: reads.stored_cells(db, space, self._space(db, space), after, limit))

    # ---- upkeep

    def standing(self, space: str) -> int:
        return self._read(lambda db: newest_row(db, self._space(db, space)))

    def wait(
        self, seen: Mapping[str, int], seconds: float, *, woken: Event | None = None
    ) -> Mapping[str, int]:
        """Wait for news; writes of other processes are noticed by the count in the lock file."""
        self._check_process()
        return self._waiters.wait(seen, seconds, woken)

    def _standings(self, names: Iterable[str]) -> dict[str, int]:
        return self._read(lambda db: {name: newest_row(db, self._space(db, name)) for name in names})

    def _has_changed(self) -> bool:
        """True if any process may have written since this was last asked."""
        counted = -1 if self._lock is None else self._lock.writes()
        if counted >= 0:
            counted, self._counted = self._counted, counted
            return counted != self._counted
        # A process writes, or has left something unsettled, or this opening has no lock file: the database knows.
        self._counted = -1
        if time.monotonic() < self._looked_at + _UNCOUNTED_LOOK_SECONDS:
            return False
        self._looked_at = time.monotonic()
        return True

    def forget(self, space: str, digests: Sequence[Digest], *, why: str, standing: int) -> int:
        def forget(db: Database) -> int:
            number = self._space(db, space)
            check_standing(space, standing, newest_row(db, number))
            return removal.forget(db, self._rows, number, space, digests, why)

        return self._alone(forget, "nothing was forgotten")

    def drop(self, space: str, *, why: str) -> int:
        drop = removal.drop
        return self._alone(
            lambda db: drop(db, self._rows, self._space(db, space), space, why), "nothing was removed"
        )

    def instant(self) -> Instant:
        """Return the time now, on the clock of this boot."""
        self._check_open()
        return boot_instant()

    def holder(self) -> str:
        """Return the name of this use of the store, marked by a lock."""
        self._check_open()
        if self._options.read_only:
            raise read_only_error(self._path)
        try:
            name = self._presence.holder()
        except OSError as error:
            raise translated(error, "it was not opened", str(self._path)) from error
        if self._closed:  # by another thread, meanwhile
            self._presence.close()
        self._check_open()
        return name

    def gone(self, holder: str) -> bool:
        """True if that opening was closed, or the lock of its own mark is free."""
        self._check_open()
        return self._presence.gone(holder)

    def backup(self, path: Path) -> None:
        back_up(self._read, path)

    def counters(self) -> dict[str, int]:
        return {} if self._group is None else self._group.counters.read()

    def facts(self) -> dict[str, str | int]:
        return self._read(lambda db: described(db, self._options))

    def close(self) -> None:
        if self._closed:
            return
        if self._pid != os.getpid():  # in a forked child that has not used it
            self._closed, self._pid = True, os.getpid()
            self._waiters.close()
            self._presence.close()
            return
        self._waiters.close()
        if self._group is not None:
            self._group.tidy_up()
            self._group.stop()
        with self._one_at_a_time:
            if self._closed:  # by another thread
                return
            self._closed = True
            try:
                self._guard("it was not closed cleanly", self._connections.close)
            finally:
                if self._lock is not None:
                    self._lock.close()
                self._presence.close()

    # ---- inside

    def _read(self, read: Callable[[Database], T]) -> T:
        self._check_process()
        self._check_open()
        if self._options.exclusive:
            with self._one_at_a_time:
                try:
                    return self._confirmed(read, self._connections.writer)
                finally:
                    if self._unchanged is not None:
                        self._unchanged.check()
        db = self._guard("nothing was read", self._connections.take)
        try:
            if db.in_transaction:  # of a reader that was interrupted: it would show the past
                self._guard("nothing was read", lambda: db.execute("ROLLBACK"))
            return self._confirmed(read, db)
        finally:
            self._connections.give_back(db)

    def _confirmed(self, read: Callable[[Database], T], db: Database) -> T:
        return confirmed(read, db, forget=self._rows.forget, place=str(self._path), vfs=self._options.vfs)

    def _guard(self, left: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except (apsw.Error, OSError) as error:
            raise translated(error, left, str(self._path), vfs=self._options.vfs) from error

    def _space(self, db: Database, name: str) -> int | None:
        found = self._spaces.get(name)
        if found is None:
            found = self._seals.space(db, name)
            if found is not None:
                self._spaces[name] = found
        return found

    def _commit_row(self, db: Database, space: str, commit: Digest) -> int:
        return reads.commit_row(db, self._rows.index, self._space(db, space), commit)

    # ---- forks

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._reopen()

    def _reopen(self) -> None:
        """Open everything, in a forked child again."""
        with self._one_at_a_time:
            if self._rest is Rest.MISSED:
                raise Unavailable(
                    f"{self._path} was in use when this process was forked, and did not become idle in time; nothing was done.",
                    code="forked_while_in_use",
                    advice="Fork when it is idle, or start a new process.",
                    path=str(self._path),
                )
            if self._pid != os.getpid():
                self._open()

    def before_fork(self) -> None:
        """Finish what is under way, and close everything."""
        if self._closed or self._pid not in (0, os.getpid()) or self._options.vfs is not None:
            return
        self._rest = Rest.MISSED
        if not self._one_at_a_time.acquire(timeout=_REST_SECONDS):
            return
        self._rest = Rest.ALONE
        if self._pid == 0:  # the thread that was opening it has failed: nothing is open
            return
        with suppress(apsw.Error, PerdureError):
            if self._group is not None:
                self._group.rest()
            self._rest = Rest.LED
            if self._connections.rest(_REST_SECONDS):
                self._rest = Rest.FULL

    def after_fork_in_parent(self) -> None:
        """Go on where `before_fork` stopped."""
        rest, self._rest = self._rest, Rest.NONE
        try:
            if rest >= Rest.LED:
                self._connections.wake(reopen=rest is Rest.FULL)
                if self._group is not None:
                    self._group.wake(self._connections.writer)
        except (apsw.Error, PerdureError):
            self._give_up()
        finally:
            if rest >= Rest.ALONE:
                self._one_at_a_time.release()

    def _give_up(self) -> None:
        """Refuse the threads that wait, since the store cannot be opened now; the next use opens it, or raises why it cannot."""
        self._pid = 0
        self._connections.refuse()
        if self._group is not None:
            self._group.refuse()

    def after_fork_in_child(self) -> None:
        """Keep nothing of what was inherited; the first use of the store opens it."""
        if self._closed:
            return
        self._one_at_a_time = RLock()
        if self._pid == 0:
            self._rest = Rest.NONE
            return
        if self._options.vfs is None and self._rest is not Rest.FULL:
            self._rest = Rest.MISSED
            self._connections.inherit()
        else:
            self._rest = Rest.NONE
        if self._lock is not None:
            self._lock.inherit()


def _is_unknown(questions: Sequence[Question], answers: Sequence[Answer]) -> bool:
    """True if a write that was asked for is not recorded."""
    found = zip(questions, answers, strict=True)
    return any(isinstance(question, OpOf) and answer is None for question, answer in found)
