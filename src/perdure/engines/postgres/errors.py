"""Translates what the server and libpq report into Perdure's errors.  The driver's error is never raised itself.

`ConnectionLost` and `StatementFailed` stay inside this package: the engine tries again where that is safe, and translates the rest.
No message of the server is parsed; what it says is quoted, without the password.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress

import psycopg
from psycopg.conninfo import make_conninfo

from perdure.errors import Corrupt, NotFound, PerdureError, Unavailable

__all__ = [
    "ConnectionLost",
    "StatementFailed",
    "closed_error",
    "connection_error",
    "lost_error",
    "read_only_error",
    "translated",
]

# The server says that the same statement may succeed later: it starts, stops, is full of clients, or ended this one.
_PASSING = frozenset(
    {"40001", "40P01", "53300", "55P03", "57P01", "57P02", "57P03", "57P05", "25P03", "08006", "08003"}
)
_READ_ONLY = "25006"


class ConnectionLost(Exception):
    """The connection ended, or no answer came in time.  A statement that was sent may have been executed."""


class StatementFailed(Exception):
    """The server refused a statement and undid it."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate, self.message = sqlstate, message

    @property
    def is_for_another_server(self) -> bool:
        """True if the server only reads: it is a standby, or was replaced."""
        return self.sqlstate == _READ_ONLY

    @property
    def is_passing(self) -> bool:
        """True if the same statement may succeed later."""
        return self.sqlstate in _PASSING


def translated(error: StatementFailed, left: str, place: str) -> PerdureError:
    """Return what to raise for `error`, met at the store at `place`; `left` is what was not done."""
    state = error.sqlstate

    def unavailable(what: str, code: str, advice: str = "Try again.") -> Unavailable:
        return Unavailable(f"{what}; {left}.", code=code, advice=advice, path=place, sqlstate=state)

    match state:
        case "53100":
            return unavailable(
                f"the disk of the server of {place} is full", "disk_full", "Free some space and try again."
            )
        case "53300":
            return unavailable(f"{place} has too many clients", "too_many_connections")
        case "25006":  # _READ_ONLY
            advice = "Connect to the primary; with several hosts in the address Perdure finds it."
            return unavailable(f"{place} is a read-only server", "server_read_only", advice)
        case "42501":
            advice = "Let a role that may create objects run `perdure init`, and grant this role the use of the schema `perdure`."
            return unavailable(
                f"this role has no right at {place} ({error.message})", "permission_denied", advice
            )
        case "57014":
            advice = "Raise statement_timeout of this role, or try again."
            return unavailable(f"{place} cancelled a statement", "statement_cancelled", advice)
        case "40001" | "40P01":
            return unavailable(
                f"{place} ended a transaction because of another one ({error.message})", "transaction_aborted"
            )
        case "55P03":
            return unavailable(f"another client holds a lock at {place}", "store_locked")
        case "XX001" | "XX002":
            return Corrupt(
                f"{place} reports damaged data ({error.message}); {left}.",
                code="server_data_damaged",
                advice="Restore a backup.",
                path=place,
            )
        case _:
            return unavailable(f"{place} failed ({error.message})", "postgres_failed")


def lost_error(place: str, left: str, cause: BaseException) -> Unavailable:
    """Return the error for a server that did not answer until the last attempt."""
    return Unavailable(
        f"the connection to {place} was lost and could not be made again ({cause}); {left}.",
        code="server_lost",
        advice="Try again.",
        retry_after=1.0,
        path=place,
    )


def closed_error(place: str) -> Unavailable:
    """Return the error for a use of a store that the program has closed."""
    return Unavailable(
        f"{place} was closed; nothing was done.", code="store_closed", advice="Open it again.", path=place
    )


def read_only_error(place: str) -> Unavailable:
    """Return the error for a write to a store that the program opened read-only."""
    return Unavailable(
        f"{place} was opened read-only; nothing was written.",
        code="opened_read_only",
        advice="Open it without read_only=True.",
        path=place,
    )


def connection_error(place: str, parameters: Mapping[str, str], error: psycopg.Error) -> PerdureError:
    """Return why no session could be opened at `place`: no server listens, the password is wrong, or the database is missing.

    libpq reports all of these as one kind of error, in the server's language, so this asks again in other ways.
    """
    detail = str(error).replace(parameters.get("password") or "\0", "***").strip().splitlines()
    said = detail[0] if detail else type(error).__name__
    if not _is_listening(parameters):
        return Unavailable(
            f"no server answers at {place} ({said}); nothing was opened.",
            code="server_unreachable",
            advice="Check the host and the port, and that the server is running.",
            path=place,
        )
    database = parameters.get("dbname") or parameters.get("user") or ""
    if _is_missing(parameters, database):
        return NotFound(
            f"there is no database '{database}' at {place}; nothing was opened.",
            code="database_not_found",
            advice=f"Create it with `createdb {database}`.",
            path=place,
            database=database,
        )
    pgconn = error.pgconn
    if pgconn is not None and (pgconn.used_password or pgconn.needs_password):
        return Unavailable(
            f"{place} refused the user or the password ({said}); nothing was opened.",
            code="authentication_failed",
            advice="Check both; a password may also be in PGPASSWORD or in ~/.pgpass.",
            path=place,
        )
    return Unavailable(
        f"{place} refused the connection ({said}); nothing was opened.", code="connection_refused", path=place
    )


def _is_listening(parameters: Mapping[str, str]) -> bool:
    """True if a connection to one of the hosts is accepted."""
    hosts = (parameters.get("host") or "localhost").split(",")
    ports = (parameters.get("port") or "5432").split(",")
    for at, host in enumerate(hosts):
        port = ports[at] if at < len(ports) else ports[0]
        with suppress(OSError, ValueError):
            if host.startswith(("/", "@")):
                with socket.socket(socket.AF_UNIX) as unix:
                    unix.settimeout(5)
                    unix.connect(f"{host}/.s.PGSQL.{port}")
            else:
                socket.create_connection((host, int(port or 5432)), timeout=5).close()
            return True
    return False


def _is_missing(parameters: Mapping[str, str], database: str) -> bool:
    """True if the same user gets into another database of the server, and learns there that this one does not exist."""
    for other in ("postgres", "template1"):
        try:
            with psycopg.connect(
                make_conninfo(**{**parameters, "dbname": other}), autocommit=True
            ) as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,))
                return found.fetchone() is None
        except psycopg.Error:
            continue
    return False
