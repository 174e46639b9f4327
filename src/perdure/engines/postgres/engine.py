"""The PostgreSQL engine: the contract kept on a server, for many machines.

A read is one statement and a write one function call, so each is one round trip; a write to a space for which others
wait is a second call, which makes the writes of all of them.  A connection that is lost is made
again: a read is repeated, and so is a write, because the server looks up its op_id behind the same lock before it does
anything.  What cannot be settled in time is `InDoubt`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TypeVar

import psycopg

from perdure.engines import loops
from perdure.engines.contract import (
    Answer,
    Cell,
    CellOf,
    Engine,
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
from perdure.engines.news import LiveChannel, Waiters
from perdure.engines.postgres import reads, scan, schema, upkeep
from perdure.engines.postgres.commit.next_commit import NEXT, KnownEnds, end_after, next_answer, prepare_next
from perdure.engines.postgres.commit.write import (
    APPLY,
    CALL_TOGETHER,
    FINAL,
    PreparedWrite,
    RecentObjects,
    answered,
    head_after,
    prepare_write,
)
from perdure.engines.postgres.connections import (
    Address,
    Connection,
    Pool,
    Row,
    parse_address,
)
from perdure.engines.postgres.errors import (
    ConnectionLost,
    StatementFailed,
    closed_error,
    connection_error,
    lost_error,
    read_only_error,
    translated,
)
from perdure.engines.postgres.news import LISTEN_SECONDS, NewsOfOthers
from perdure.engines.postgres.presence import Clock, HolderPresence
from perdure.engines.postgres.questions import AskedBeside, question_of, questions_together
from perdure.engines.postgres.reads import StoreQuestion
from perdure.engines.shared_rules import check_write, newest_labelled
from perdure.errors import InDoubt, PerdureError, Unsupported
from perdure.model.commit import CommitEvents, LedgerRead, MoveRecord
from perdure.model.digest import Digest, Object

__all__ = ["PostgresEngine", "open_postgres"]

_T = TypeVar("_T")
_WAIT_SECONDS = 30.0
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.02, 0.5
_BUSY_WRITES = 16
_HEX = frozenset("0123456789abcdef")


class _Sending:
    """A write that is being sent, perhaps again."""

    __slots__ = ("is_busy", "is_sent", "prepared", "statement", "write")

    def __init__(self, write: Write, prepared: PreparedWrite, *, is_busy: bool) -> None:
        self.write, self.prepared, self.is_busy = write, prepared, is_busy
        self.statement = APPLY
        self.is_sent = False  # whether an attempt may have reached the server without an answer


class PostgresEngine:
    """A store on a PostgreSQL server, shared by processes of many machines.

    The contract says what each method promises; a docstring here adds what only this engine does.
    """

    def __init__(
        self,
        address: Address,
        *,
        read_only: bool = False,
        create: bool = True,
        wait_seconds: float = _WAIT_SECONDS,
    ) -> None:
        """Connect, and make or migrate the schema if that is due and allowed."""
        self._address, self._place, self._tenant = address, address.shown, address.tenant
        self._read_only, self._wait_seconds = read_only, wait_seconds
        self._closed = False
        self._clock = Clock()
        self._bases, self._ends, self._beside = RecentObjects(), KnownEnds(), AskedBeside()
        self._busy: dict[
            str, int
        ] = {}  # spaces that others wait for, and how many writes are still sent to the queue
        self._sound: set[str] = set()  # spaces that were as their newest write left them
        self._doubtful: set[tuple[str, str]] = (
            set()
        )  # writes that the standbys may not have, by space and op_id
        self._pool = Pool(address.parameters, size_max=address.pool_max, wait_seconds=wait_seconds)
        self._news = NewsOfOthers(self._pool, self._tenant, read_only=read_only)
        self._waiters = Waiters(
            self._standings,
            closed=lambda: closed_error(self._place),
            has_changed=self._news.has_changed,
            every=LISTEN_SECONDS,
            rests=self._news.rest,
        )
        try:
            self._open(may_create=create and not read_only)
        except BaseException:
            self._pool.close()
            raise

    def _open(self, *, may_create: bool) -> None:
        try:
            with self._pool.connection() as connection:
                self._pool.prepares = not connection.is_pooled()
                if self._pool.prepares:
                    self._pool.own(connection)
                store = schema.prepare_schema(
                    connection,
                    self._place,
                    may_create=may_create,
                    read_only=self._read_only,
                    partitions=self._address.partitions,
                )
                self._clock.store, self._presence = store, HolderPresence(store, self._tenant)
                ((is_secured,),) = connection.ask("SELECT row_security_active('perdure.spaces')")
                if is_secured:
                    self._pool.tenant = self._tenant
                    connection.act_for(self._tenant)
                for _ in range(3):
                    sent = self._clock.now()
                    ((now_us, clock),) = connection.ask("SELECT perdure.now_us(), perdure.clock_name()")
                    self._clock.learn(sent, int(str(now_us)), str(clock))
        except ConnectionLost as lost:
            cause = lost.__cause__
            if isinstance(cause, psycopg.Error):
                raise connection_error(self._address.shown, self._address.parameters, cause) from cause
            raise lost_error(self._place, "it was not opened", lost) from lost
        except StatementFailed as error:
            raise translated(error, "it was not opened", self._place) from error

    # ---- writing

    def apply(self, write: Write) -> Receipt:
        """Make `write` true in one round trip, or in two where other writers wait for the space.

        A lost connection is settled by the op_id, behind the same lock.
        """
        check_write(write)
        self._check_writable()
        is_busy = self._is_busy(write.space)
        sending = _Sending(write, self._prepared(write, may_follow=not is_busy), is_busy=is_busy)
        try:
            receipt = self._retried(lambda connection: self._send(connection, sending), "nothing was written")
        except PerdureError as error:
            failure = self._write_failure(write.op_id, error, is_sent=sending.is_sent)
            if failure is error:
                raise
            raise failure from error
        self._sound.add(write.space)
        return receipt

    def _send(self, connection: Connection, sending: _Sending) -> Receipt:
        """Send a write, and return its receipt; raise what the server says against it."""
        write = sending.write
        is_repeated, sending.is_sent, connection.is_doubtful = sending.is_sent, True, False
        sending.statement = CALL_TOGETHER if sending.is_busy else APPLY
        try:
            answer, sent_at = self._exchange(connection, sending)
        except StatementFailed:
            # The server undid it, unless another writer makes it.
            sending.is_sent = is_repeated or sending.statement != APPLY
            self._ends.forget(write.space)
            raise
        self._clock.learn(sent_at, int(str(answer[5])), str(answer[8]))
        self._bases.learn(str(answer[8]))
        if connection.is_doubtful:
            self._doubtful.add((write.space, write.op_id))
            raise _unconfirmed(write.op_id)
        if is_repeated and answer[0] not in FINAL:
            # The first attempt may still be on its way, and may succeed where this one did not.
            raise InDoubt(write.op_id, f"the connection was lost, and now the server says '{answer[0]}'")
        sending.is_sent = False  # the server has answered: what follows is certain
        receipt = answered(sending.prepared, answer)
        self._note_write(sending, answer)
        return receipt

    def _exchange(self, connection: Connection, sending: _Sending) -> tuple[Row, int]:
        """Send a write until the server decides about it; return its answer, and when that attempt was sent."""
        space = sending.write.space
        while True:
            sent_at, prepared = self._clock.now(), sending.prepared
            if prepared.end is None:
                (answer,) = connection.call(sending.statement, *prepared.parameters)
            else:
                short = NEXT[tuple([fence.revision > 0 for fence in prepared.write.fences])]
                answer = next_answer(prepared.end, connection.ask(short, *prepared.parameters))
                if answer[0] != "done":  # others write to the space: send it in full
                    self._ends.forget(space, rests=True)
                    sending.prepared = self._prepared(sending.write)
            match answer[0]:
                case "busy":  # other writers wait for this space
                    sending.statement = CALL_TOGETHER
                    self._busy[space] = _BUSY_WRITES
                case "rebase":  # something was forgotten since: store it whole
                    self._bases.forget(space)
                    sending.prepared = self._prepared(sending.write)
                case "missed":
                    continue
                case _:
                    return answer, sent_at

    def _note_write(self, sending: _Sending, answer: Row) -> None:
        """Note what a write has left, for the writes after it and for those who wait for news."""
        prepared, space = sending.prepared, sending.write.space
        self._beside.written(space)
        if prepared.end is not None:
            (moved,) = prepared.write.moves
            head = HeadOf(space, moved.timeline)
            hold = Hold(head_after(moved), False, prepared.end.tips[moved.timeline].move)
            self._beside.moved(head, hold, prepared.before, prepared.end.mark)
        # Otherwise another writer may have made it.
        rows = int(str(answer[1])) if answer[0] == "done" else None
        self._pool.counters.add("repeated" if rows is None and sending.statement == APPLY else "commits")
        if rows is not None and prepared.states:
            self._bases.note(prepared, rows, int(str(answer[6])), str(answer[8]))
        end = prepared.end or end_after(prepared, answer)
        if rows is not None and end is not None:
            self._ends.learn(space, end)
        if self._waiters.awaited(space):
            self._waiters.written(space, rows)
        if answer[7] not in (None, self._news.own):
            self._news.tell(space)

    def _write_failure(self, op_id: str, error: PerdureError, *, is_sent: bool) -> PerdureError:
        """Count a write that failed, and return what to raise: one that was sent and not answered is in doubt."""
        if is_sent and not isinstance(error, InDoubt):
            # The server that was asked last need not be the one that it was sent to.
            error = InDoubt(op_id, f"the server could not be asked again: {error}")
        self._pool.counters.add_failure(error)
        return error

    def _is_busy(self, space: str) -> bool:
        """True if other writers waited for the space a short while ago: then a write goes to the queue at once."""
        left = self._busy.get(space, 0)
        if left > 1:
            self._busy[space] = left - 1
        elif left:
            self._busy.pop(space, None)
        return left > 0

    def _prepared(self, write: Write, *, may_follow: bool = False) -> PreparedWrite:
        """Return a write as parameters: of the short statement if it follows what this process wrote last."""
        if may_follow and self._pool.prepares and write.space in self._sound:
            end = self._ends.of(write.space)
            following = None if end is None else prepare_next(self._tenant, write, self._bases, end)
            if following is not None:
                return following
        return prepare_write(self._tenant, write, self._bases, checks_seal=write.space not in self._sound)

    def recorded(self, space: str, op_id: str) -> Recorded | None:
        """Return the write; of one whose wait for the standbys was cut short only once they have it."""
        found: Recorded | None = self.answers((OpOf(space, op_id),))[0]
        if found is not None and (space, op_id) in self._doubtful:
            try:
                self._retried(lambda db: _wait_for_standbys(db, op_id), "no standby has confirmed it")
            except InDoubt:
                raise
            except PerdureError as error:
                raise InDoubt(op_id, f"whether the standbys have it could not be learned: {error}") from error
            self._doubtful.discard((space, op_id))
        return found

    # ---- reading

    def answers(self, questions: Sequence[Question], *, fresh: bool = True) -> Sequence[Answer]:
        """Answer some questions by one statement, many by one transaction, each in one round trip.

        What was asked without `fresh` after a head is read together with that head the next time.
        """
        if not fresh:
            found = self._beside.answers(questions)
            if found is not None:
                self._check_open()
                return found
        if len(questions) == 1:
            (question,) = questions
            beside = self._beside.asked_after(question) if fresh else ()
            if beside and isinstance(question, HeadOf):
                return [self._ask_beside(question, beside)]
            return [self._ask(question_of(self._tenant, question))]
        if not questions:
            self._check_open()
            return []
        together = questions_together(self._tenant, tuple(questions))
        if together is not None:
            return self._ask(together)
        asked = [question_of(self._tenant, question) for question in questions]
        rows = self._read(lambda db: db.ask_all([(each.sql, each.parameters) for each in asked]))
        return [question.read(found) for question, found in zip(asked, rows, strict=True)]

    def _ask_beside(self, head: HeadOf, beside: tuple[Question, ...]) -> Answer:
        """Answer the question about a head, and keep the rows for what is asked after it.

        If this process wrote to the space last, it knows the head and what it read beside it before: then the server is
        asked only whether that is still so.
        """
        marks, statement = self._beside.marks(beside), self._beside.statement(self._tenant, head, beside)
        seen, end = self._beside.seen(head), self._ends.of(head.space)
        counts = self._beside.marks(statement.elsewhere)
        is_changed = False
        if seen is not None and end is not None and seen.own == end.mark and seen.counts == counts:
            if self._ask(statement.unchanged(end.mark, seen.others)):
                self._beside.keep(beside, marks, statement.asked, seen.row)
                return seen.head
            is_changed = True
        asked = statement.question
        (row,) = self._read(lambda db: db.ask(asked.sql, *asked.parameters))
        seen = statement.seen(row, counts)
        if is_changed and end is not None and seen.own != end.mark:
            self._ends.forget(head.space, rests=True)
        self._beside.see(head, seen, rests=is_changed)
        self._beside.keep(beside, marks, statement.asked, seen.row)
        return seen.head

    def objects(self, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        return self._ask(reads.objects(self._tenant, space, digests))

    def missing(self, space: str, digests: Sequence[Digest]) -> Sequence[Digest]:
        return self._ask(reads.missing(self._tenant, space, digests))

    def steps(
        self, space: str, at: Digest, *, skip: int = 0, limit: int, bodies: bool = False, labels: Labels = ()
    ) -> Sequence[Step]:
        if labels:
            every = loops.steps(self, space, at, skip=skip, limit=limit, bodies=bodies)
            return newest_labelled(every, labels)
        return self._ask(reads.steps(self._tenant, space, at, skip, limit, bodies=bodies))

    def events(self, space: str, at: Digest, *, limit: int, bodies: bool = False) -> Sequence[CommitEvents]:
        return [step.as_events() for step in self.steps(space, at, limit=limit, bodies=bodies)]

    def turn(self, space: str, at: Digest, turn: int) -> Step | None:
        return self._ask(reads.turn(self._tenant, space, at, turn))

    def labelled(self, space: str, label: str) -> Sequence[Digest]:
        return self.answers((LabelOf(space, label),))[0]

    def commits(self, space: str, prefix: str, *, limit: int) -> Sequence[Digest]:
        if not set(prefix) <= _HEX or len(prefix) > 64:
            self._check_open()
            return []
        return self._ask(reads.commits(self._tenant, space, prefix, limit))

    def hold(self, space: str, timeline: str) -> Hold | None:
        return self.answers((HeadOf(space, timeline),))[0]

    def holds(self, space: str, *, after: str = "", limit: int) -> Sequence[Hold]:
        return self._ask(reads.holds(self._tenant, space, after, limit))

    def moves(
        self, space: str, timeline: str, *, before: int | None = None, limit: int
    ) -> Sequence[MoveRecord]:
        return self._ask(reads.moves(self._tenant, space, timeline, before, limit))

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
        return self._ask(
            reads.cells(self._tenant, space, prefix, after, before, descending=descending, limit=limit)
        )

    def cells_of(self, spaces: Sequence[str], name: str) -> Sequence[Cell]:
        return self._ask(reads.cells_of(self._tenant, spaces, name))

    def listed(self, *, prefix: str, after: tuple[str, str] = ("", ""), limit: int) -> Sequence[Cell]:
        return self._ask(reads.listed(self._tenant, prefix, after, limit))

    def entries(
        self,
        space: str,
        *,
        after: int = 0,
        before: int | None = None,
        descending: bool = False,
        limit: int,
    ) -> Sequence[LedgerEntry]:
        return self._ask(
            reads.entries(self._tenant, space, after, before, descending=descending, limit=limit)
        )

    def ledger(self, space: str) -> LedgerRead:
        return self.answers((LedgerOf(space),))[0]

    def check(self, space: str, *, again: bool = False) -> None:
        if again or space not in self._sound:
            self._sound.discard(space)
            self._read(lambda db: scan.check_space(db, self._tenant, space, again=again))
            self._sound.add(space)

    def spaces(self, *, after: str = "", limit: int) -> Sequence[str]:
        return self._ask(reads.spaces(self._tenant, after, limit))

    def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
        """Read a page, and ask in a second round trip whether what the page says of itself is what is found by it."""
        page = self._ask(scan.scan(self._tenant, space, after, limit))
        return self._ask(scan.faults_of(self._tenant, space, page)) if page.rows else [], page.cursor

    def writes(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Written], int | None]:
        return self._ask(scan.writes(self._tenant, space, after, limit))

    def stored_cells(self, space: str, *, after: str = "", limit: int) -> Sequence[Rebuilt]:
        return self._ask(scan.stored_cells(self._tenant, space, after, limit))

    def standing(self, space: str) -> int:
        return self._ask(reads.standing(self._tenant, space))

    def wait(
        self, seen: Mapping[str, int], seconds: float, *, woken: Event | None = None
    ) -> Mapping[str, int]:
        self._check_open()
        return self._waiters.wait(seen, seconds, woken)

    @property
    def live(self) -> LiveChannel | None:
        """What carries the words of live runs to other machines; None: no notification can be heard."""
        return self._news.live if self._pool.prepares and not self._read_only else None

    def _standings(self, spaces: Iterable[str]) -> Mapping[str, int]:
        return self._news.standings(spaces, self._retried)

    # ---- upkeep

    def reseal(self, space: str, cells: Sequence[Rebuilt] = ()) -> None:
        self._once(lambda db: upkeep.reseal(db, self._tenant, space, cells), "nothing was sealed")

    def forget(self, space: str, digests: Sequence[Digest], *, why: str, standing: int) -> int:
        return self._once(
            lambda db: upkeep.forget(db, self._tenant, space, digests, why, standing), "all is kept"
        )

    def drop(self, space: str, *, why: str) -> int:
        return self._once(lambda db: upkeep.drop(db, self._tenant, space, why), "nothing was removed")

    def instant(self) -> Instant:
        """Return the server's time as this process knows it, without asking."""
        self._check_open()
        return self._clock.instant()

    def holder(self) -> str:
        """Return the name of this use of the store, marked by a lock file of this host."""
        self._check_writable()
        return self._presence.holder()

    def gone(self, holder: str) -> bool:
        """True if that holder closed the store, or its lock file on this host is free; a lost session proves nothing."""
        may_write = not self._read_only
        return self._read(lambda db: self._presence.gone(db, holder, may_write=may_write))

    def backup(self, path: Path) -> None:
        """Raise `Unsupported`: the server's own tools copy a database."""
        raise Unsupported(
            f"a store on a server has no file to copy; nothing was written to '{path}'.",
            code="file_missing",
            advice="Copy it into a file with `perdure copy URL FILE`, or use pg_dump, pg_basebackup or your provider's backups.",
            path=str(path),
        )

    def counters(self) -> dict[str, int]:
        return self._pool.counters.read()

    def facts(self) -> dict[str, str | int]:
        return {
            "engine": "postgresql",
            "path": self._place,
            "read_only": int(self._read_only),
            **self._read(lambda db: reads.facts(db, self._tenant)),
        }

    def close(self) -> None:
        if self._closed:
            return
        self._waiters.close()
        self._news.close()
        with suppress(PerdureError):
            self._presence.close(lambda work: self._retried(work, "it was not closed cleanly", seconds=2.0))
        self._closed = True
        self._pool.close()

    # ---- inside

    def _ask(self, question: StoreQuestion[_T]) -> _T:
        rows = self._read(lambda db: db.ask(question.sql, *question.parameters))
        return question.read(rows)

    def _read(self, work: Callable[[Connection], _T]) -> _T:
        return self._retried(work, "nothing was read")

    def _once(self, work: Callable[[Connection], _T], left: str) -> _T:
        """Run a transaction of upkeep, which may be repeated: it finds nothing to do the second time."""
        self._check_writable()
        try:
            return self._retried(work, left)
        finally:
            self._beside.written(None)

    def _retried(self, work: Callable[[Connection], _T], left: str, *, seconds: float | None = None) -> _T:
        """Run `work` with a connection, again after a lost one or a passing error, until the time is over.

        A server that refuses because it only reads is left: another one may have taken over, and is looked for.
        """
        self._check_open()
        deadline = time.monotonic() + (self._wait_seconds if seconds is None else seconds)
        pause = _PAUSE_SECONDS
        refused: StatementFailed | None = None  # by a server that only reads
        while True:
            try:
                connection, free = self._pool.take()
                try:
                    return work(connection)
                except ConnectionLost:
                    self._pool.leave(connection)
                    raise
                except StatementFailed as error:
                    if error.is_for_another_server:
                        self._pool.leave(connection)
                        refused = error if connection.is_used else None
                    raise
                finally:
                    self._pool.give_back(connection, free)
            except ConnectionLost as lost:
                if time.monotonic() + pause >= deadline:
                    if refused is not None:
                        raise translated(refused, left, self._place) from refused
                    raise lost_error(self._place, left, lost) from lost
            except StatementFailed as error:
                may_pass = error.is_passing or error is refused
                if not may_pass or time.monotonic() + pause >= deadline:
                    raise translated(error, left, self._place) from error
            self._check_open()
            self._pool.counters.add("retries")
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error(self._place)

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise read_only_error(self._place)


def open_postgres(url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
    """Open the store at `url`; the server's settings decide about durability, which is never less than a flush."""
    return PostgresEngine(parse_address(url, read_only=read_only), read_only=read_only, create=create)


_CONFIRM = (
    "SELECT set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true), "
    "set_config('client_min_messages', 'warning', true), pg_logical_emit_message(true, 'perdure', '')"
)


def _wait_for_standbys(db: Connection, op_id: str) -> None:
    """Commit something after everything that was committed before, which waits for the standbys."""
    db.is_doubtful = False
    db.ask(_CONFIRM)
    if db.is_doubtful:
        raise _unconfirmed(op_id)


def _unconfirmed(op_id: str) -> InDoubt:
    return InDoubt(op_id, "the server stopped waiting for its standbys, so it may not be replicated")
