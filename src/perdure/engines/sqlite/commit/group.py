"""Group commit: writers of one process share one durable transaction.

A writer that finds no other writing commits inline, without a hand-off.  Writers that arrive
in that time queue, and the next leader takes the whole queue into one transaction.
Receipts *and refusals* go out only after that transaction's COMMIT: a refusal may rest
on a write of the same group that never became true.

An error at COMMIT is unknown, not failed.  SQLite may find the orphaned frames again
after a crash, so absence is final only after a barrier: one durable write that
overwrites them.  If the barrier fails too, everything stays in doubt.

A `QueuedWrite` is a write on its way through the group.  A signal handler may raise at any point, also
inside `finally`.  So the steps that must happen at the end of a write can run again, and run until they are done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock, get_ident
from time import monotonic
from types import CodeType
from typing import TypeVar

import apsw

from perdure.engines.contract import Receipt, Write
from perdure.engines.shared_rules import FAILURES, EngineCounters
from perdure.engines.sqlite import errors, schema
from perdure.engines.sqlite.commit.apply import AppliedWrite, Applier, CellsDiffer, recorded_in
from perdure.engines.sqlite.commit.caches import Recent
from perdure.engines.sqlite.commit.file_lock import SPACE_MAX, SPACES_MAX, FileLock
from perdure.engines.sqlite.commit.layout import OrdinaryWrite, Prepared
from perdure.engines.sqlite.commit.seals import Seals
from perdure.engines.sqlite.connections import Connections
from perdure.engines.sqlite.database import BUSY_MS, Database
from perdure.engines.sqlite.format.pack import Bases
from perdure.engines.sqlite.format.rows import Rows
from perdure.engines.sqlite.log_binding import LogBinding
from perdure.errors import InDoubt, PerdureError, Unavailable

__all__ = ["WriteGroup", "QueuedWrite"]


_T = TypeVar("_T")

_INTERRUPTIONS_MAX = 100
_AWAKE_MAX = 8  # threads woken at once; with fewer, writers come back one by one and share fewer commits
_LOOK_SECONDS = 0.25  # after which a thread that waits looks whether its write is settled


class QueuedWrite:
    """One write in the queue, later settled with a receipt or an error."""

    # Of the class, so that a write that need not wait sets three fields and not ten.
    woken: Lock | None = None  # None: it has not had to wait
    is_settled = False
    leads = False  # it is this one's turn to write
    others: Sequence[QueuedWrite] = ()  # the others that it writes
    heir: QueuedWrite | None = None  # the next leader
    wakes: QueuedWrite | None = None  # the one of its settled group whose thread this one's wakes
    has_left = False  # its thread waits no longer
    applied: AppliedWrite | None = None
    error: Exception | None = None

    def __init__(self, write: Write | None, prepared: Prepared | OrdinaryWrite | None = None) -> None:
        self.write = write  # None: work that has a transaction of its own
        self.prepared = prepared
        self.thread = get_ident()

    def outcome(self) -> Receipt:
        if self.error is not None:
            raise self.error
        assert self.applied is not None
        return self.applied.receipt

    def wake(self) -> None:
        if self.woken is not None:
            with suppress(RuntimeError):  # it is awake
                self.woken.release()

    @property
    def op_id(self) -> str:
        return "" if self.write is None else self.write.op_id


def dismiss(leader: QueuedWrite) -> None:
    """Settle what is not settled, and wake the threads that wait: a few here, and each of them the next in `_leave`.

    Only one thread can have the interpreter's lock.  Sixty that are awake ask for it two hundred times a second each,
    which costs more than their writes.  Can run again.
    """
    others = leader.others
    for ticket in (leader, *others):
        if not ticket.is_settled:
            ticket.error = InDoubt(ticket.op_id, "the writer was interrupted")
            ticket.is_settled = True
    for ticket, woken in zip(others, others[_AWAKE_MAX:], strict=False):
        ticket.wakes = woken  # first: a thread that leaves after this wakes it
    for ticket in others[:_AWAKE_MAX]:
        wake_next_waiting(ticket)


def wake_next_waiting(ticket: QueuedWrite | None) -> None:
    """Wake the thread of a settled write; if that thread has left, the one that it would wake."""
    while ticket is not None and ticket.has_left:
        ticket = ticket.wakes
    if ticket is not None:
        ticket.wake()


def is_under_way(ticket: QueuedWrite, calls: tuple[CodeType, ...]) -> bool:
    """True if one of these calls, for this write, is on the stack of this thread."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code in calls and frame.f_locals.get("ticket") is ticket:
            return True
        frame = frame.f_back
    return False


def surely(work: Callable[[_T], None], given: _T) -> None:
    """Run `work`, which can run again, to its end even if it is interrupted; then raise the interruption."""
    interruption: BaseException | None = None
    for _ in range(_INTERRUPTIONS_MAX):
        try:
            work(given)
            break
        except BaseException as error:  # noqa: BLE001 (a signal handler may raise anything, at any point)
            interruption = error
    if interruption is not None:
        raise interruption


# A longer log would use space on the disk as long as the store is open.
_CHECKPOINT_EVERY_PAGES = 256
_READERS_MS = 250  # that a checkpoint waits for them, while others wait for it
_GROUP_MAX = 64
_ANY = (0,)  # space


class WriteGroup:
    """The only way to the connection that writes."""

    def __init__(
        self,
        connections: Connections,
        lock: FileLock,
        rows: Rows,
        recent: Recent,
        seals: Seals,
        *,
        place: str,
        wait_seconds: float,
    ) -> None:
        """Write on the connection that `connections` has for that, under `lock`."""
        self._connections = connections
        self._file_lock = lock
        self._rows = rows
        self._recent = recent
        self._seals = seals
        self._bases = Bases()
        self._schema_version: object = None  # of the schema that was checked; None: it was not yet
        self._generation: object = None  # of the rows that bases are in; None: nothing was read yet
        self._spaces: dict[str, int] = {}
        self._place = place
        self._wait_seconds = wait_seconds
        self._mutex = Lock()
        self._queue: list[QueuedWrite] = []
        self._leader: QueuedWrite | None = None  # the write that is under way
        self._is_stopped = False
        self._resting: QueuedWrite | None = None  # leads, and does not write
        self._wal_pages = 0
        self._checkpoint_at = _CHECKPOINT_EVERY_PAGES
        self._erases = False  # the log has bytes of content that was forgotten
        options = connections.options
        self._log = LogBinding(place, is_on=options.vfs is None and options.durable)
        self._is_log_new = False  # the write that is under way has restarted the log
        self._in_doubt = False
        self._has_written = False
        self._written: Collection[int] = _ANY  # the spaces, since the lock was taken
        self.counters = EngineCounters(FAILURES)
        self._connect(connections.writer)

    def _connect(self, connection: Database) -> None:
        self._db = connection
        self._execute = connection.cursor().execute  # one for all: see `Applier`
        self._data_version = connection.data_version
        self._applier = Applier(connection, self._rows, self._bases, self._spaces, self._seals)
        connection.set_wal_hook(self._on_wal)

    def apply(self, write: Write) -> Receipt:
        """Make `write` true; see the contract."""
        ticket = QueuedWrite(write, self._applier.prepare(write))
        try:
            with self._mutex:
                if self._leader is None and not self._is_stopped:
                    ticket.leads = True  # as in `_lead_or_wait`, where no other thread writes
                    self._leader = ticket
            if ticket.leads or self._lead_or_wait(ticket):
                self._lead(ticket)
        finally:
            try:
                self._leave(ticket)
            except BaseException:
                surely(self._leave, ticket)
                raise
        if ticket.error is None and ticket.applied is not None:
            return ticket.applied.receipt
        self.counters.add_failure(ticket.error)
        return ticket.outcome()

    def alone(
        self,
        work: Callable[[Database], int],
        left: str,
        *,
        wait_seconds: float | None = None,
        erases: bool = False,
    ) -> int:
        """Run `work` in a durable transaction of its own: not a write of the contract, but under the same rules.

        If it `erases`, the write-ahead log is emptied after it, because the old bytes are there too; while a reader
        needs them that is left to a later checkpoint.
        """
        ticket = QueuedWrite(None)
        try:
            if not self._lead_or_wait(ticket):
                ticket.outcome()
            if erases:
                self._erases, self._checkpoint_at = True, 0
            try:
                return self._locked(self._in_transaction, partial(self._forgetting, work), left, wait_seconds)
            finally:
                self._forget_copies()
        finally:
            surely(self._leave, ticket)

    def _forgetting(self, work: Callable[[Database], int], connection: Database) -> int:
        """Run `work`, which may change anything, and drop what was seen before that becomes true."""
        done = work(connection)
        self._recent.forget()
        return done

    @property
    def is_in_doubt(self) -> bool:
        """True if a COMMIT failed and no barrier has passed since."""
        return self._in_doubt

    # ---- who writes

    def _lead_or_wait(self, ticket: QueuedWrite) -> bool:
        """Return True if this thread is to write now, False if another thread has settled its write.

        The caller calls `_leave` afterwards in any case.
        """
        with self._mutex:
            if self._is_stopped:
                raise errors.closed_error(self._place)
            if self._leader is None or self._was_left(self._leader):
                ticket.leads = True  # first: if this is interrupted, `_leave` puts it right
                self._leader = ticket
                return True
            woken = ticket.woken = Lock()
            woken.acquire()
            self._queue.append(ticket)
        self._wait(ticket, woken)
        return not ticket.is_settled

    def _wait(self, ticket: QueuedWrite, woken: Lock) -> None:
        """Wait until the write is settled or is to lead; give it up, settled with an error, if it waits too long in the queue.

        The thread that would wake this one may be held up, so it looks by itself now and then.
        """
        until = monotonic() + self._wait_seconds
        while not woken.acquire(timeout=min(_LOOK_SECONDS, self._wait_seconds)):
            if ticket.is_settled or ticket.leads:
                return
            with self._mutex:
                if monotonic() < until or ticket not in self._queue:
                    continue  # one that is being written has an outcome to be waited for
                self._queue.remove(ticket)
                ticket.is_settled = True
                ticket.error = errors.busy_error(self._place, self._wait_seconds)
                return

    def _lead(self, ticket: QueuedWrite) -> None:
        try:
            if self._queue:
                self._gather(ticket)
            group = (ticket, *ticket.others) if ticket.others else (ticket,)
            is_ordinary = not ticket.others and type(ticket.prepared) is OrdinaryWrite
            try:
                self._locked(self._commit_one if is_ordinary else self._commit, group, "nothing was written")
            except PerdureError as error:
                for each in group:
                    if not each.is_settled:
                        each.error, each.is_settled = error, True
        finally:
            if ticket.others or not ticket.is_settled:
                surely(dismiss, ticket)

    def _gather(self, ticket: QueuedWrite) -> None:
        """Take the writes in the queue into the group of the leader."""
        others: list[QueuedWrite] = []
        ticket.others = others  # first: after an interruption `dismiss` finds them there
        with self._mutex:
            while self._queue and self._queue[0].write is not None and len(others) < _GROUP_MAX - 1:
                others.append(self._queue[0])
                del self._queue[0]

    def _leave(self, ticket: QueuedWrite) -> None:
        """Take this write out of the queue, or hand the lead over: no thread waits for it any longer.  Can run again."""
        ticket.has_left = True
        wake_next_waiting(ticket.wakes)
        with self._mutex:
            if self._queue and ticket in self._queue:
                self._queue.remove(ticket)
            if not ticket.leads:
                return
            if ticket.heir is None and self._queue:
                ticket.heir = self._queue[0]
            if ticket.heir is not None:
                if self._queue and self._queue[0] is ticket.heir:
                    del self._queue[0]
                ticket.heir.leads = True
            self._leader = ticket.heir
            if ticket.heir is not None:
                ticket.heir.wake()
            ticket.leads = False

    def _was_left(self, leader: QueuedWrite) -> bool:
        """True if `leader` belongs to this same thread, which was interrupted where not even `finally` could put it right.

        A signal handler that writes in the middle of a write is on this thread too; it has to be refused.
        """
        if leader.thread != get_ident() or leader is self._resting:
            return False
        if is_under_way(leader, _WRITING):
            raise Unavailable(
                f"this thread is already writing to {self._place}; nothing was written.",
                code="write_inside_write",
                advice="Try again later.",
            )
        dismiss(leader)
        return True

    def tidy_up(self) -> None:
        """Leave the store so that the next opening has few rows to read, if no other thread is writing."""
        index = self._rows.index
        if self._has_written and not self._in_doubt and index.is_worth_it():
            with suppress(PerdureError):
                index.sorted_in(self.alone(index.sort_in, "it was not closed cleanly", wait_seconds=0))

    def stop(self) -> None:
        """Wait for the write that is under way, refuse those in the queue, and write no more."""
        try:
            self.rest()
        except Unavailable:
            if not self._is_stopped:
                raise
            return  # another thread has stopped it
        self.refuse()

    def rest(self) -> None:
        """Wait for the write that is under way, and let new ones queue until `wake`."""
        ticket = QueuedWrite(None)
        try:
            if not self._lead_or_wait(ticket):
                ticket.outcome()
            self._resting = ticket
        finally:
            if self._resting is not ticket:
                surely(self._leave, ticket)

    def refuse(self) -> None:
        """While at rest: refuse the writes in the queue, and write no more."""
        with self._mutex:
            waiting, self._queue = self._queue, []
            self._is_stopped = True
        for other in waiting:
            other.error, other.is_settled = errors.closed_error(self._place), True
            other.wake()

    def wake(self, connection: Database) -> None:
        """Go on writing, on `connection`."""
        if connection is not self._db:
            self._connect(connection)
        ticket, self._resting = self._resting, None
        if ticket is not None:
            surely(self._leave, ticket)

    # ---- what is written

    def _locked(
        self, work: Callable[[_T], int], given: _T, left: str, wait_seconds: float | None = None
    ) -> int:
        """Run `work` on what is given, under the lock between processes, behind a barrier if one is due."""
        try:
            # A holder that died may have left frames that the others do not see, and the next recovery does.
            seconds = self._wait_seconds if wait_seconds is None else wait_seconds
            self._in_doubt = self._file_lock.acquire(seconds) or self._in_doubt
        except OSError as error:
            raise errors.translated(error, left, self._place) from error
        row: int | None = None
        lock, index, is_settled = self._file_lock, self._rows.index, not self._in_doubt
        self._written = _ANY
        try:
            # A holder that died may have written without counting, and others count in another file if this one was removed.
            files = self._connections.files
            is_named = (files is not None and files.check()) or not lock.is_removed()
            self._recent.begin(lock.count if is_named and not self._in_doubt else -1)
            if self._in_doubt:
                self._barrier(left)
            done = work(given)
            if self._wal_pages >= self._checkpoint_at or index.is_due:
                self._tidy()
            row = index.last_row  # before others can write
            return done
        finally:
            # What the holder before has left may be true by now, in any space.
            lock.release(settled=not self._in_doubt, spaces=self._written if is_settled else _ANY)
            self._recent.end(lock.count, row, self._generation)

    def _commit_one(self, group: Sequence[QueuedWrite]) -> int:
        """Commit one ordinary write, in one pass; leave it to `_commit` where anything is out of the ordinary."""
        (ticket,) = group
        write, row, recent, known = ticket.write, ticket.prepared, self._recent, self._applier.known
        assert write is not None
        assert type(row) is OrdinaryWrite
        try:
            if self._db.in_transaction:  # of a writer that was interrupted
                self._roll_back()
            self._execute("BEGIN IMMEDIATE")
            if self._data_version() != known.version:
                self._catch_up()
            if self._log.is_due:
                self._log.bind(self._db, self._data_version())
            applied = self._applier.apply_ordinary(write, row)
        except (PerdureError, CellsDiffer):
            self._roll_back()
            applied = None
        except BaseException as error:
            self._roll_back()
            if isinstance(error, Exception):
                raise errors.translated(error, "nothing was written", self._place) from error
            raise
        if applied is None:
            return self._commit_after(group)
        try:
            recent.unknow(write)
            self._execute("COMMIT")
            known.version = self._data_version()
            if self._is_log_new or self._log.is_due:
                self._note_log()
        except BaseException as error:  # noqa: BLE001 (`_fail_commit` raises what is no error of the store)
            return self._fail_commit(error, group)
        self._has_written = True
        if row.space <= SPACE_MAX:
            self._written = (row.space,)
        recent.know(write, applied.holds, applied.receipt)
        ticket.applied = applied
        ticket.is_settled = True
        return 0

    def _commit_after(self, group: Sequence[QueuedWrite]) -> int:
        """Commit in the general way a write that turned out not to be ordinary; nothing of it was done."""
        try:
            if self._db.in_transaction:
                self._execute("ROLLBACK")
        except apsw.Error as error:
            self._roll_back()
            raise errors.translated(error, "nothing was written", self._place) from error
        for ticket in group:
            ticket.prepared = None
        return self._commit(group)

    def _fail_commit(self, error: BaseException, group: Sequence[QueuedWrite]) -> int:
        """Settle a group whose COMMIT has failed."""
        self._in_doubt = True
        self._roll_back()
        self._settle_after(error, group)
        if not isinstance(error, Exception):
            raise error
        return 0

    def _commit(self, group: Sequence[QueuedWrite]) -> int:
        spoilt: list[QueuedWrite] = []
        recent = self._recent
        try:
            while len(spoilt) < len(group) and not self._apply(group, spoilt):
                pass
        except BaseException as error:
            self._roll_back()
            if isinstance(error, Exception):
                raise errors.translated(error, "nothing was written", self._place) from error
            raise
        try:
            if self._db.in_transaction:
                for ticket in group:
                    if ticket.write is not None:
                        recent.unknow(ticket.write)
                self._end()
        except BaseException as error:  # noqa: BLE001 (`_fail_commit` raises what is no error of the store)
            return self._fail_commit(error, group)
        self._has_written = True
        spaces = {each.applied.space or 0 for each in group if each.applied is not None}
        if 0 < len(spaces) <= SPACES_MAX and max(spaces) <= SPACE_MAX:
            self._written = spaces
        for ticket in group:
            applied, write = ticket.applied, ticket.write
            if applied is not None and write is not None and applied.space is not None:
                self._spaces[write.space] = applied.space
                recent.know(write, applied.holds, applied.receipt)
            ticket.is_settled = True
        return 0

    def _apply(self, group: Sequence[QueuedWrite], spoilt: list[QueuedWrite]) -> bool:
        """Apply the writes of a group except the `spoilt` ones; keep a refusal until the group is durable.

        A write changes nothing before its last check.  One that still fails in the middle of its changes, because
        something stored is damaged, is spoilt: then nothing is applied, and this returns False until the others were
        applied again without it.
        """
        self._begin()
        for ticket in group:
            if spoilt and ticket in spoilt:
                continue
            assert ticket.write is not None
            ticket.applied = ticket.error = None
            try:
                ticket.applied = self._applier.apply(ticket.write, ticket.prepared)
            except CellsDiffer:
                ticket.prepared = None  # the general path reads them
                self._roll_back()
                return False
            except PerdureError as refusal:
                ticket.error = refusal
                if self._applier.has_changed:
                    spoilt.append(ticket)
                    self._roll_back()
                    return False
        return True

    def _begin(self) -> None:
        if self._db.in_transaction:  # of a writer that was interrupted
            self._roll_back()
        self._execute("BEGIN IMMEDIATE")
        if self._data_version() != self._applier.known.version:
            self._catch_up()
        if self._log.is_due:
            self._log.bind(self._db, self._data_version())

    def _catch_up(self) -> None:
        """Update the caches after another connection has written: it may have moved heads, or forgotten our bases."""
        version = self._db.execute("PRAGMA schema_version").get
        if version != self._schema_version:
            schema.check_objects(self._db, self._place)
            self._schema_version = version
        generation = self._rows.refresh(self._db)
        if generation == self._generation:
            if self._applier.known.renew():
                self._recent.show(self._db, generation)
        else:
            self._generation = generation
            self._applier.known.forget()
            self._bases.forget()

    def _end(self) -> None:
        self._execute("COMMIT")
        self._applier.known.version = self._data_version()
        if self._is_log_new or self._log.is_due:
            self._note_log()

    def _note_log(self) -> None:
        """After COMMIT: the log is bound if that was due; a log that was restarted is bound by the next transaction."""
        self._log.note_committed(self._data_version(), is_log_new=self._is_log_new)
        self._is_log_new = False

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except apsw.Error:
            pass  # SQLite has rolled back by itself, or will when the connection is next used
        self._forget()

    def _forget(self) -> None:
        """Drop what was learnt from rows that are no longer there."""
        self._is_log_new = False
        self._rows.index.reset()
        self._forget_copies()
        self._spaces.clear()

    def _forget_copies(self) -> None:
        """Drop what was read of rows that may have changed."""
        self._applier.known.forget()
        self._rows.forget()
        self._bases.forget()

    # ---- after an error at COMMIT

    def _settle_after(self, error: BaseException, group: Sequence[QueuedWrite]) -> None:
        why = errors.cause_of(error)
        try:
            self._barrier("nothing was written")
            for ticket in group:
                self._settle(ticket, error)
        except (apsw.Error, PerdureError):
            for ticket in group:
                ticket.error = InDoubt(ticket.op_id, why)
        for ticket in group:
            if ticket.error is not None:
                ticket.error.__cause__ = error
            ticket.is_settled = True

    def _settle(self, ticket: QueuedWrite, error: BaseException) -> None:
        """Settle a write after the barrier: what is stored is true, what is not never will be."""
        assert ticket.write is not None
        number = self._applier.space(ticket.write.space)
        found = None if number is None else recorded_in(self._db, self._rows, number, ticket.op_id)
        if found is not None and found.intent == ticket.write.intent:
            ticket.applied, ticket.error = AppliedWrite(found.receipt), None
            return
        ticket.applied = None
        ticket.error = errors.commit_error(self._place, error)

    def _barrier(self, left: str) -> None:
        """Make one durable write, after which orphaned frames of a failed COMMIT can never come back."""
        try:
            self._begin()
            self._db.execute("INSERT INTO meta VALUES ('barrier', 1) ON CONFLICT DO UPDATE SET value=value+1")
            self._end()
        except BaseException as error:
            self._roll_back()
            if isinstance(error, apsw.Error):
                raise errors.translated(error, left, self._place) from error
            raise
        self._in_doubt = False

    # ---- upkeep

    def _in_transaction(self, work: Callable[[Database], int]) -> int:
        try:
            self._begin()
            done = work(self._db)
        except BaseException as error:
            self._roll_back()
            if isinstance(error, apsw.Error):
                raise errors.translated(error, "nothing was changed", self._place) from error
            raise
        try:
            self._end()
        except BaseException as error:
            self._in_doubt = True
            self._roll_back()
            if not isinstance(error, apsw.Error):
                raise
            raise errors.in_doubt_error(self._place, errors.cause_of(error)) from error
        return done

    def _tidy(self) -> None:
        """Sort keys in and checkpoint when due.  A failure here costs time later, and nothing else."""
        try:
            if self._rows.index.is_due:
                upto = self._in_transaction(self._rows.index.sort_in)
                self._rows.index.sorted_in(upto)
            if self._wal_pages >= self._checkpoint_at:
                self._checkpoint()
        except (apsw.Error, PerdureError):
            self._checkpoint_at = self._wal_pages + _CHECKPOINT_EVERY_PAGES

    def _checkpoint(self) -> None:
        if self._erases:
            self._db.set_busy_timeout(_READERS_MS)
            try:
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                self._db.set_busy_timeout(BUSY_MS)
            self._wal_pages, self._checkpoint_at, self._erases = 0, _CHECKPOINT_EVERY_PAGES, False
            self._log.note_moved(self._data_version())
            return
        pages, moved = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        # A reader can hold pages back; then the log grows, and trying at every commit would not help.
        self._checkpoint_at = _CHECKPOINT_EVERY_PAGES + (0 if moved >= pages else pages)
        if moved >= pages:
            self._log.note_moved(self._data_version())

    def _on_wal(self, _connection: Database, _name: str, pages: int) -> int:
        self._is_log_new = pages < self._wal_pages  # all of the one before was moved to the file
        self._wal_pages = pages
        return apsw.SQLITE_OK


_WRITING = (WriteGroup.apply.__code__, WriteGroup.alone.__code__, WriteGroup.rest.__code__)
