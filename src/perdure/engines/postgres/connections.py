"""Connections to the server: one statement is one round trip, and no wait is without a deadline.

psycopg connects; statements go through its `pq` module, which is libpq itself.  Parameters are bytes that this package
has encoded, results are bytes that it decodes, so nothing is adapted twice, and the wait for an answer is ours: a
server that has stopped answering costs a deadline, never a hang.

No session state is used, so a pooler in transaction mode may stand between.  Statements are prepared only where the
caller knows that the session is its own.  Where row security applies to the role, such a session names its tenant once.
On any other each transaction does so first, in the same round trip and for that transaction alone: the next one on the
session may be another client's.

Several hosts in an address are several servers, one of which takes writes, and another one after a failover.  A session
that is lost, or that only reads by now, is left together with all sessions of its server, and the next one is asked of
the other hosts first.  Servers that take over from each other count their timelines of the write-ahead log; a session
learns that number when it begins.

A forked child closes the inherited sockets without sending anything: a Terminate message would end the parent's
session, and an open socket would keep it alive after the parent's death.

An address is `postgresql://user:password@host:port/database?tenant=acme&pool_max=10`.  Everything that libpq knows may
stand in it: several hosts, TLS settings, time-outs.  `tenant`, `pool_max` and `partitions` are ours.  A message of libpq about an
address may quote the whole of it, so none is shown.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from struct import Struct
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec
import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.engines.postgres.errors import ConnectionLost, StatementFailed
from perdure.engines.shared_rules import FAILURES, EngineCounters
from perdure.errors import Invalid, Unavailable
from perdure.model.fork_safety import keep_forever, renew_in_child
from perdure.model.names import did_you_mean, shown_address

__all__ = [
    "Address",
    "Connection",
    "parse_address",
    "Encoded",
    "Numeric",
    "Parameter",
    "Pool",
    "Row",
    "Short",
    "bytea_array",
    "integer_array",
    "text_array",
]

ANSWER_SECONDS = 15.0  # longer than the server waits for a lock
IDLE_SECONDS = 5  # how long the server waits for the next statement of a transaction
_PREPARE_FROM_USES = 3
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NAME_TENANT = "SELECT set_config('perdure.tenant', $1, $2)"  # true: for the transaction alone
# Of a session of its own: plans are kept, a warning says that a server has stopped waiting for its standbys, and what is
# in the functions means what it says.
_SETTINGS = (
    "SET plan_cache_mode=force_generic_plan; SET lock_timeout='5s'; SET client_min_messages=warning;"
    "SET standard_conforming_strings=on;"
)
_TIMELINE = (
    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END"
)
_BYTEA, _INT8, _TEXT, _BOOL = 17, 20, 25, 16
_BYTEA_ARRAY, _INT8_ARRAY, _INT4_ARRAY, _TEXT_ARRAY = 1001, 1016, 1007, 1009
_BINARY = pq.Format.BINARY
_OK = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)
_WAITED_FOR_STANDBY = b"01000"  # a warning of COMMIT: the transaction may not be replicated


class Encoded:
    """A parameter that is encoded already, with its type."""

    __slots__ = ("data", "oid")

    def __init__(self, oid: int, data: bytes) -> None:
        self.oid, self.data = oid, data


class Short(int):
    """A number of four bytes."""


class Numeric(int):
    """A number of any size."""


Parameter: TypeAlias = bytes | int | str | bool | Encoded | None
Row: TypeAlias = tuple[object, ...]

_int4, _int8 = Struct(">i").pack, Struct(">q").pack
_head = Struct(">iiiii").pack
_NULL = _int4(-1)
_EMPTY = Struct(">iii").pack


def bytea_array(items: Sequence[bytes | None]) -> Encoded:
    """Return an array of bytes, in the server's binary form."""
    if not items:
        return Encoded(_BYTEA_ARRAY, _EMPTY(0, 0, _BYTEA))
    parts = [_head(1, None in items, _BYTEA, len(items), 1)]
    for item in items:
        if item is None:
            parts.append(_NULL)
        else:
            parts.append(_int4(len(item)))
            parts.append(item)
    return Encoded(_BYTEA_ARRAY, b"".join(parts))


def text_array(items: Sequence[bytes]) -> Encoded:
    """Return an array of texts, each in UTF-8, in the server's binary form."""
    parts = [_head(1, 0, _TEXT, len(items), 1)] if items else [_EMPTY(0, 0, _TEXT)]
    for item in items:
        parts += _int4(len(item)), item
    return Encoded(_TEXT_ARRAY, b"".join(parts))


def integer_array(items: Sequence[int], *, short: bool = False) -> Encoded:
    """Return an array of numbers, of four bytes each if `short`, else of eight."""
    array, element, size, form = (_INT4_ARRAY, 23, 4, "ii") if short else (_INT8_ARRAY, _INT8, 8, "iq")
    if not items:
        return Encoded(array, _EMPTY(0, 0, element))
    flat = [size] * (2 * len(items))
    flat[1::2] = items
    return Encoded(array, _head(1, 0, element, len(items), 1) + _packer(form, len(items))(*flat))


@lru_cache(64)
def _packer(form: str, count: int) -> Callable[..., bytes]:
    """Return what packs so many elements: making it takes longer than using it."""
    return Struct(">" + form * count).pack


def _as_is(value: Any) -> Any:
    return value


# The type of the server for each type of a parameter, and how a value is encoded.
_TYPES: dict[type, tuple[int, Callable[[Any], bytes | None]]] = {
    bytes: (_BYTEA, _as_is),
    type(None): (0, _as_is),
    int: (_INT8, _int8),
    Short: (23, _int4),
    Numeric: (1700, lambda value: b"%d" % value),
    str: (_TEXT, str.encode),
    bool: (_BOOL, lambda value: b"\x01" if value else b"\x00"),
    Encoded: (0, lambda value: value.data),
}
_ENCODERS = {kind: encode for kind, (_, encode) in _TYPES.items()}


def _oids(parameters: Sequence[Parameter]) -> list[int]:
    return [each.oid if isinstance(each, Encoded) else _TYPES[type(each)][0] for each in parameters]


def _formats(parameters: Sequence[Parameter]) -> list[pq.Format]:
    return [pq.Format.TEXT if type(each) is Numeric else _BINARY for each in parameters]


def _number(data: bytes) -> int:
    return int.from_bytes(data, signed=True)


def _instant(data: bytes) -> int:
    """Return a time, which the server counts from the year 2000, in microseconds since 1970."""
    return int.from_bytes(data, signed=True) + 946_684_800_000_000


_Decoders: TypeAlias = list[Callable[[bytes], object] | None]
_DECODERS: dict[int, Callable[[bytes], object]] = {
    _INT8: _number,
    23: _number,
    21: _number,
    _BOOL: lambda data: data == b"\x01",
    _TEXT: bytes.decode,
    19: bytes.decode,
    1184: _instant,
}


class _Prepared:
    """A statement that this session has prepared."""

    __slots__ = ("decoders", "formats", "name")

    def __init__(self, name: bytes, parameters: Sequence[Parameter]) -> None:
        self.name, self.formats = name, _formats(parameters)
        self.decoders: _Decoders | None = None  # None: it has not been executed


class _Driver(psycopg.Connection[tuple[object, ...]]):
    """psycopg's connection without its complaint when it is collected: its socket is closed then in any case."""

    def __del__(self, *_: object) -> None:
        return


_COUNTED = ("commits", "repeated", *FAILURES, "retries", "round_trips", "connections")


class Connection:
    """One session with the server.  One user at a time."""

    def __init__(self, parameters: Mapping[str, str], *, counters: EngineCounters | None = None) -> None:
        """Connect; raise `psycopg.OperationalError` if that fails."""
        self._driver = _Driver.connect(make_conninfo(**dict(parameters)), autocommit=True)
        self._counters = counters or EngineCounters(_COUNTED)
        self._counters.add("connections")
        self._pg = self._driver.pgconn
        self._pg.nonblocking = 1
        self._pg.notice_handler = self._note
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self.is_own = False  # whether no other client uses the session: then statements are prepared
        self.is_used = False  # whether it was given back to the pool once
        # Of the server, when the session began; empty: it follows another, or is not known.
        self.timeline = b""
        self._tenant: str | None = None  # what each transaction names; None: nothing
        self._uses: dict[str, int] = {}
        self._prepared: dict[str, _Prepared] = {}
        self._is_pooled: bool | None = None
        self.is_doubtful = False  # whether a commit may not have reached the standbys
        self.is_usable = True
        self._is_abandoned = False  # its socket belonged to another process

    def ask(self, sql: str, *parameters: Parameter) -> list[Row]:
        """Send one statement and return its rows: one round trip.

        Raises `StatementFailed` if the server refuses it, `ConnectionLost` if it may or may not have been executed.
        """
        if self._tenant is None or self._pg.transaction_status != pq.TransactionStatus.IDLE:
            return self.call(sql, *parameters)
        return self._together([(_NAME_TENANT, (self._tenant, True)), (sql, parameters)])[1]

    def call(self, sql: str, *parameters: Parameter) -> list[Row]:
        """Do what `ask` does for a function of the schema that names the tenant itself, which costs less."""
        self._prepare(sql, parameters)
        self._send(sql, parameters)
        self._counters.add("round_trips")
        return self._rows(sql, self._answer())

    def ask_all(self, questions: Sequence[tuple[str, Sequence[Parameter]]]) -> list[list[Row]]:
        """Send several statements at once and return the rows of each, as of one moment: one round trip."""
        named = [] if self._tenant is None else [(_NAME_TENANT, (self._tenant, True))]
        answers = self._together([(_BEGIN_READ, ()), *named, *questions, ("COMMIT", ())])
        return answers[1 + len(named) : -1]

    def _together(self, questions: Sequence[tuple[str, Sequence[Parameter]]]) -> list[list[Row]]:
        """Send statements at once, as one transaction unless they say otherwise, and return the rows of each."""
        for sql, parameters in questions:
            if parameters:
                self._prepare(sql, parameters)
        try:
            self._pg.enter_pipeline_mode()
            for sql, parameters in questions:
                self._send(sql, parameters)
            self._pg.pipeline_sync()
            self._counters.add("round_trips")
            answers = [self._rows(sql, self._answer()) for sql, _ in questions]
            end = self._result(time.monotonic() + ANSWER_SECONDS)
            if end is None or end.status != pq.ExecStatus.PIPELINE_SYNC:
                raise self._lost("the server did not confirm the end of the transaction")
            self._pg.exit_pipeline_mode()
        except psycopg.OperationalError as error:
            raise self._lost(str(error)) from error
        except BaseException:  # the rest of the answers is unread
            self.is_usable = False
            raise
        return answers

    def run(self, sql: str) -> pq.abc.PGresult:
        """Run statements without parameters; return the result of the last one."""
        try:
            self._pg.send_query(sql.encode())
            self._counters.add("round_trips")
        except psycopg.OperationalError as error:
            raise self._lost(str(error)) from error
        return self._answer()

    def notifications(self) -> list[str]:
        """Return the payloads that have arrived since the last call, without waiting."""
        return [payload.decode("utf-8", "replace") for _, payload in self.named_notifications()]

    def named_notifications(self) -> list[tuple[str, bytes]]:
        """Return the channels and the payloads that have arrived since the last call, without waiting."""
        try:
            if self._poll.poll(0):
                self._pg.consume_input()
        except psycopg.OperationalError as error:
            raise self._lost(str(error)) from error
        heard: list[tuple[str, bytes]] = []
        while (notice := self._pg.notifies()) is not None:
            heard.append((notice.relname.decode("utf-8", "replace"), notice.extra))
        return heard

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Run what is inside as one transaction, which ends with the session if this process stops."""
        self.run(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '10s';"
            f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
        )
        try:
            if self._tenant is not None:
                self.call(_NAME_TENANT, self._tenant, True)
            yield
        except BaseException:
            with suppress(ConnectionLost, StatementFailed):
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    def close(self) -> None:
        """End the session and close the socket."""
        self.is_usable = False
        if self._is_abandoned:
            return
        self._driver.close()

    def abandon(self) -> None:
        """Close the socket of a session that belongs to another process."""
        self.is_usable, self._is_abandoned = False, True
        keep_forever(self._driver)
        keep_forever(self._pg)
        with suppress(OSError, psycopg.Error):
            os.close(self._pg.socket)

    def is_pooled(self) -> bool:
        """True if a pooler answers: the session that executes is another than the one that was opened."""
        if self._is_pooled is None:
            ((pid,),) = self.ask("SELECT pg_backend_pid()")
            self._is_pooled = pid != self._pg.backend_pid
        return self._is_pooled

    def take_over(self) -> None:
        """Prepare statements from now on, and set what they need: no other client uses the session."""
        self.is_own = True
        self.timeline = self.run(_SETTINGS + _TIMELINE).get_value(0, 0) or b""

    @property
    def host(self) -> tuple[str, str]:
        """The host and the port of the server."""
        return self._pg.host.decode("utf-8", "replace"), self._pg.port.decode("ascii", "replace")

    def only_reads(self) -> bool:
        """True if the server has said, with an answer, that it takes no writes by now."""
        status = self._pg.parameter_status
        return b"on" in (status(b"default_transaction_read_only"), status(b"in_hot_standby"))

    def act_for(self, tenant: str) -> None:
        """Name the tenant to whose rows row security holds the role: once in a session of its own, else in each transaction."""
        if self.is_own:
            self.call(_NAME_TENANT, tenant, False)
        else:
            self._tenant = tenant

    # ---- inside

    def _prepare(self, sql: str, parameters: Sequence[Parameter]) -> None:
        """Count a use of a statement, and prepare it if it is used often and the session is its client's own."""
        if sql in self._prepared or not self.is_own:
            return
        self._uses[sql] = self._uses.get(sql, 0) + 1
        if self._uses[sql] <= _PREPARE_FROM_USES:
            return
        name = b"p%d" % len(self._prepared)
        try:
            self._pg.send_prepare(name, sql.encode(), _oids(parameters))
            self._counters.add("round_trips")
        except psycopg.OperationalError as error:
            raise self._lost(str(error)) from error
        self._answer()
        self._prepared[sql] = _Prepared(name, parameters)

    def _send(self, sql: str, parameters: Sequence[Parameter]) -> None:
        encoders = _ENCODERS
        values = [each if type(each) is bytes else encoders[type(each)](each) for each in parameters]
        prepared = self._prepared.get(sql)
        try:
            if prepared is not None:
                self._pg.send_query_prepared(prepared.name, values, prepared.formats, _BINARY)
            else:
                types, formats = _oids(parameters), _formats(parameters)
                self._pg.send_query_params(sql.encode(), values, types, formats, _BINARY)
        except psycopg.OperationalError as error:
            raise self._lost(str(error)) from error

    def _rows(self, sql: str, result: pq.abc.PGresult) -> list[Row]:
        """Decode the rows of a result; the types of its columns are asked once for a prepared statement."""
        prepared = self._prepared.get(sql)
        decoders = None if prepared is None else prepared.decoders
        if decoders is None:
            decoders = [_DECODERS.get(result.ftype(column)) for column in range(result.nfields)]
            if prepared is not None:
                prepared.decoders = decoders
        value_at = result.get_value
        rows: list[Row] = []
        for row in range(result.ntuples):
            values: list[object] = []
            for column, decode in enumerate(decoders):
                value = value_at(row, column)
                values.append(value if value is None or decode is None else decode(value))
            rows.append(tuple(values))
        return rows

    def _answer(self) -> pq.abc.PGresult:
        """Return the last result of a statement; raise the error that it reports."""
        deadline = time.monotonic() + ANSWER_SECONDS
        last: pq.abc.PGresult | None = None
        failed: pq.abc.PGresult | None = None
        while (result := self._result(deadline)) is not None:
            last = result
            if result.status not in _OK:
                failed = failed or result
        if last is None or self._pg.status != pq.ConnStatus.OK:
            raise self._lost(self._pg.get_error_message())
        if failed is not None:
            state = (failed.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            message = (failed.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(
                "utf-8", "replace"
            )
            if not state:
                raise self._lost(message or "no answer")
            raise StatementFailed(state, message)
        return last

    def _result(self, deadline: float) -> pq.abc.PGresult | None:
        pg = self._pg
        try:
            if pg.is_busy():
                while pg.flush() == 1:
                    self._wait(select.POLLIN | select.POLLOUT, deadline)
                    pg.consume_input()
                while pg.is_busy():
                    if not self._poll.poll(max(0.0, 1_000 * (deadline - time.monotonic()))):
                        raise self._lost("no answer in time")
                    pg.consume_input()
            return pg.get_result()
        except psycopg.OperationalError as error:
            raise self._lost(str(error)) from error
        except BaseException:  # an interrupt: the answer will never be read
            self.is_usable = False
            raise

    def _wait(self, events: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._pg.socket, events)
        if not poll.poll(max(0.0, 1_000 * (deadline - time.monotonic()))):
            raise self._lost("no answer in time")

    def _lost(self, why: str) -> ConnectionLost:
        self.is_usable = False
        return ConnectionLost(why.strip())

    def _note(self, notice: pq.abc.PGresult) -> None:
        if notice.error_field(pq.DiagnosticField.SQLSTATE) == _WAITED_FOR_STANDBY:
            self.is_doubtful = True


def _places(count: int) -> SimpleQueue[None]:
    """Return the places of a pool; a queue is quicker than a semaphore, which Python implements itself."""
    places: SimpleQueue[None] = SimpleQueue()
    for _ in range(count):
        places.put(None)
    return places


class Pool:
    """Connections of one process to one server.  Idle ones wait here; none is opened before it is needed."""

    def __init__(self, parameters: Mapping[str, str], *, size_max: int, wait_seconds: float) -> None:
        self._parameters = dict(parameters)
        self._has_choice = "," in parameters.get("host", "") and _READ_WRITE.items() <= parameters.items()
        self._timeline = b""  # of the server of the newest session that may write
        self.prepares = False  # whether each new session is its client's own, so that statements are prepared
        self.tenant: str | None = None  # what sessions name; None: row security does not apply to the role
        self._size_max, self._wait_seconds = size_max, wait_seconds
        self.counters = EngineCounters(_COUNTED)
        self._free = _places(size_max)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._is_closed = False
        renew_in_child(self)

    @contextmanager
    def connection(self) -> Generator[Connection]:
        """Take a connection, and give it back if it can be used again; leave its server if it is lost, or only reads.

        Raises `Unavailable` if all are in use for too long, `ConnectionLost` if the server cannot be reached.
        """
        connection, free = self.take()
        try:
            yield connection
        except (ConnectionLost, StatementFailed) as error:
            if isinstance(error, ConnectionLost) or error.is_for_another_server:
                self.leave(connection)
            raise
        finally:
            self.give_back(connection, free)

    def take(self) -> tuple[Connection, SimpleQueue[None]]:
        """Return a connection and the queue that its place goes back to; the caller calls `give_back`."""
        free = self._free
        try:
            free.get(timeout=self._wait_seconds)
        except Empty:
            raise Unavailable(
                f"all {self._size_max} connections of this process were in use for {self._wait_seconds:g} s; nothing was done.",
                code="pool_exhausted",
                advice="Use fewer threads, or give the address a larger pool_max.",
                connections=self._size_max,
            ) from None
        try:
            try:
                connection = self._idle.pop()
                while self.has_left(connection):
                    self._discard(connection)
                    connection = self._idle.pop()
            except IndexError:
                connection = self.connect()
                self._open.add(connection)
        except BaseException:
            free.put(None)
            raise
        return connection, free

    def give_back(self, connection: Connection, free: SimpleQueue[None]) -> None:
        """Keep a connection for the next user if it can be used again."""
        try:
            if self._has_choice and connection.is_usable and connection.only_reads():
                self.leave(connection)
            if connection.is_usable and not self._is_closed and connection in self._open:
                connection.is_used = True
                self._idle.append(connection)
            else:
                self._discard(connection)
        finally:
            free.put(None)

    def leave(self, connection: Connection) -> None:
        """Give up the server of a connection: end this one and the idle ones, and ask the other hosts first for the next."""
        connection.is_usable = False
        if self._has_choice:
            self._parameters.update(_hosts_from(self._parameters, connection.host, 1))
        self.discard_idle()

    def has_left(self, connection: Connection) -> bool:
        """True if another server has taken over from the server of this connection."""
        return connection.timeline not in (b"", self._timeline)

    def discard_idle(self) -> None:
        """Close the idle connections: when one is lost, the others mostly are too."""
        with suppress(IndexError):
            while True:
                self._discard(self._idle.pop())

    def close(self) -> None:
        """Close the idle connections now, and each other one when its user gives it back."""
        self._is_closed = True
        self.discard_idle()

    def after_fork_in_child(self) -> None:
        """Close the parent's sockets without sending anything, and begin with none."""
        for connection in self._open:
            connection.abandon()
        self._idle, self._open = [], set()
        self._free = _places(self._size_max)

    def connect(self) -> Connection:
        """Return a new connection for the caller alone."""
        try:
            connection = Connection(self._parameters, counters=self.counters)
        except psycopg.Error as error:
            raise ConnectionLost(
                str(error).splitlines()[0] if str(error) else type(error).__name__
            ) from error
        if self._has_choice:  # a host that is down would cost each new session some time
            self._parameters.update(_hosts_from(self._parameters, connection.host, 0))
        if self.prepares:
            self.own(connection)
        if self.tenant is not None:
            connection.act_for(self.tenant)
        return connection

    def own(self, connection: Connection) -> None:
        """Take a session over that no other client uses, and with it every session of another server for one that is left."""
        connection.take_over()
        self._timeline = connection.timeline or self._timeline

    def _discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        with suppress(psycopg.Error):
            connection.close()


def _hosts_from(parameters: Mapping[str, str], host: tuple[str, str], skip: int) -> dict[str, str]:
    """Return the hosts of an address in another order: `skip` 0 begins with this one, 1 with the one after it."""
    names = ("host", "hostaddr", "port")
    given = {name: parameters[name].split(",") for name in names if "," in parameters.get(name, "")}
    count = max([len(each) for each in given.values()], default=0)
    ports = given.get("port", [parameters.get("port", "")] * count)
    for at in range(count):
        named = [given[name][at] for name in ("host", "hostaddr") if at < len(given.get(name, ()))]
        if host[0] in named and host[1] == (ports[at] or "5432"):
            first = at + skip
            return {name: ",".join(each[first:] + each[:first]) for name, each in given.items()}
    return {}


# ---- addresses

_ADVICE = (
    "Write postgresql://user@host:5432/database; a special character in a password is written as %40 for @."
)
_OURS = frozenset({"tenant", "pool_max", "partitions"})
_POOL_MAX = 10
_PARTITIONS_MAX = 64
_TENANT_BYTES_MAX = 200
_READ_WRITE = {"target_session_attrs": "read-write"}
_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "perdure",
    "client_encoding": "UTF8",
}


class Address(msgspec.Struct, frozen=True):
    """Where a store is, and how this process connects to it."""

    shown: str  # without the password
    parameters: dict[str, str]
    tenant: str = ""
    pool_max: int = _POOL_MAX
    partitions: int = 0  # of the tables of a store that is made; 0: they have none


def parse_address(url: str, *, read_only: bool) -> Address:
    """Return the parts of `url`; raise `Invalid`, which does not quote its password, if it cannot be read."""
    shown = shown_address(url)
    base, _, query = url.partition("?")
    try:
        url.encode()
        # To libpq a plus sign is no space.
        options = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise _invalid(shown, "it is not UTF-8") from None
    if base.count("@") > 1:  # libpq would take the end of the password for a part of the host, and name it
        raise _invalid(shown, "it has more than one @")
    ours = {name: value for name, value in options if name in _OURS}
    if len(ours) < sum(name in _OURS for name, _ in options):
        raise _invalid(shown, "it says something twice")
    rest = urlencode([(name, value) for name, value in options if name not in _OURS], quote_via=quote)
    try:
        given = {
            name: str(value) for name, value in conninfo_to_dict(f"{base}?{rest}" if rest else base).items()
        }
        ports = [int(port) for port in given.get("port", "").split(",") if port]
        pool_max = int(ours.get("pool_max", _POOL_MAX))
        partitions = int(ours.get("partitions", 0))
    except (psycopg.Error, ValueError):  # libpq's error quotes the address
        known = _OURS | {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()}
        names = (name for name, _ in options if name not in known and "@" not in query)
        odd = next((name for name in names if f"{name}=" in shown), "")  # else it may be a part of a password
        why = f"there is no option '{odd}'" if odd else "it cannot be read"
        raise _invalid(shown, why, did_you_mean(odd, sorted(known)).rstrip() or _ADVICE) from None
    tenant = ours.get("tenant", "")
    if pool_max < 1 or not 0 <= partitions <= _PARTITIONS_MAX or not all(0 < port < 65_536 for port in ports):
        raise _invalid(shown, "a number in it is out of range")
    if "\0" in unquote(url) or len(tenant.encode("utf-8", "replace")) > _TENANT_BYTES_MAX:
        raise _invalid(shown, "a part of it is too long or holds a character that no name has")
    if "," in given.get("host", "") and not read_only:
        given = {**_READ_WRITE, **given}
    given.pop("client_encoding", None)
    return Address(shown, {**_DEFAULTS, **given}, tenant, pool_max, partitions)


def _invalid(shown: str, why: str, advice: str = _ADVICE) -> Invalid:
    message = f"'{shown}' is not the address of a PostgreSQL server: {why}; nothing was opened."
    return Invalid(message, code="url_invalid", advice=advice, url=shown)
