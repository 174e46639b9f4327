"""Finds files, databases and servers with sessions below a path, by what is in them.

A file is known by its first lines, by the fields of its document, or by the tables of its database; names and places do
not count.  Each format is a module with two functions, `recognises` and `read_sessions`, which is loaded when a format
is looked for.  An export of a person's data may be in a zip archive, as it comes.

A SQLite file is opened read-only, and nothing is written beside it.  A database in WAL mode needs its `-wal` and `-shm`
files: if they are there, another program may be writing, and SQLite uses them; if not, the file is opened as immutable,
so that SQLite creates neither.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from sqlite3 import Connection
from typing import Protocol, cast
from urllib.parse import quote

import msgspec

from perdure.errors import Corrupt, Invalid, NotFound, Unavailable
from perdure.integrations.importers.exports.files import (
    archive_of,
    begins_as_archive,
    documents_in,
    read_member,
)
from perdure.integrations.importers.session import (
    FORMATS,
    ForeignSession,
    Json,
    JsonLine,
    no_such_format,
    read_document,
    read_lines,
)

__all__ = [
    "Candidate",
    "SessionFormat",
    "SessionSource",
    "columns_of",
    "files_below",
    "find_sources",
    "format_of",
    "is_server",
    "opened",
    "quoted",
    "read_file",
    "tables_of",
]

_MAGIC = b"SQLite format 3\x00"

_SNIFFED_BYTES = 256 << 10
_SNIFFED_LINES = 40
_FIRST_LINE_BYTES_MAX = 256 << 20  # a message may have a picture in it
_DOCUMENT_BYTES_MAX = 1 << 30
_SERVERS = ("postgresql://", "postgres://")
_HERE = "perdure.integrations.importers"
_EXPORTS = ("chatgpt", "claude-ai")  # of a person's data; they may be in an archive


class Candidate:
    """A file, or the address of a server, that may hold sessions."""

    def __init__(self, place: str) -> None:
        """Read the beginning of a file; raise `Unavailable` if that is not allowed."""
        self.place = place
        self.is_server = is_server(place)
        self._head = b"" if self.is_server else _beginning(place)
        self._is_database = self._head.startswith(_MAGIC)
        self.is_archive = begins_as_archive(self._head)

    def has_lines(self, is_one: Callable[[Json], bool]) -> bool:
        """True if the first line is one of a session, or most of the first lines are."""
        found = [is_one(line.value) for line in islice(self._lines, _SNIFFED_LINES)]
        return bool(found) and (found[0] or sum(found) * 2 >= len(found))

    def has_tables(self, are_there: Callable[[Connection], bool]) -> bool:
        """True if it is a SQLite database with certain tables; raise `Corrupt` if SQLite cannot read it."""
        if not self._is_database:
            return False
        with opened(Path(self.place)) as connection:
            return are_there(connection)

    @cached_property
    def _lines(self) -> list[JsonLine]:
        head = b"\n".join(self._head.split(b"\n", _SNIFFED_LINES + 1)[: _SNIFFED_LINES + 1])
        return [] if self._is_database else read_lines(head).lines

    def has_documents(self, *signs: bytes) -> bool:
        """True if the file begins like one JSON value, and all signs are among its first bytes."""
        begins = self._head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
        return begins and all(sign in self._head for sign in signs)

    @cached_property
    def document(self) -> Json:
        """The JSON object that the file is; empty if it is none."""
        begins = self._head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        if not begins or Path(self.place).stat().st_size > _DOCUMENT_BYTES_MAX:
            return {}
        try:
            return read_document(read_file(self.place), self.place)
        except Invalid:
            return {}


class SessionFormat(Protocol):
    """A module that reads the sessions of one tool."""

    def recognises(self, file: Candidate) -> bool:
        """True if the file holds sessions of this format."""
        ...

    def read_sessions(self, place: str) -> Iterable[ForeignSession | Invalid]:
        """Read the sessions at a place, with an error in place of one that cannot be read.

        Raises `Invalid` if there are none of this format.
        """
        ...


class SessionSource(msgspec.Struct, frozen=True):
    """A place with sessions of one format."""

    format: str
    place: str  # a path or an address


def format_of(name: str) -> SessionFormat:
    """Return the module of a format."""
    folder = f"{_HERE}.exports" if name in _EXPORTS else _HERE
    return cast("SessionFormat", import_module(f"{folder}.{name.replace('-', '_')}"))


def is_server(place: str) -> bool:
    """True if a place is the address of a PostgreSQL server."""
    return place.startswith(_SERVERS)


def read_file(place: str, bytes_max: int = -1) -> bytes:
    """Return the content of a file, or its beginning; raise `Unavailable` if it cannot be read.

    The place may be that of a member of an archive.
    """
    if inside := archive_of(place):
        return read_member(*inside, None if bytes_max < 0 else bytes_max)
    try:
        with Path(place).open("rb") as file:
            return file.read(bytes_max)
    except OSError as error:
        raise Unavailable(
            f"{place} cannot be read: {error.strerror}; nothing was imported from it.",
            code="import_file_unreadable",
            source=place,
        ) from error


def _beginning(place: str) -> bytes:
    """Return the first bytes of a file, and in any case its first line: a session may begin with a long message."""
    head = read_file(place, _SNIFFED_BYTES)
    if len(head) < _SNIFFED_BYTES or b"\n" in head or not head.lstrip(b"\xef\xbb\xbf \t\r").startswith(b"{"):
        return head
    return read_file(place, _FIRST_LINE_BYTES_MAX).partition(b"\n")[0] + b"\n"


def find_sources(
    place: str | os.PathLike[str], format: str | None = None
) -> tuple[list[SessionSource], list[str]]:
    """Return the sources at a place, sorted, and the files that are none; None for `format` means any.

    Raises `Invalid` if there is none, and `NotFound` if there is no such file or directory.
    """
    named = os.fspath(place)
    wanted = FORMATS if format is None else (format,)
    if not is_server(named):
        named = str(Path(named).expanduser())
        if not Path(named).exists():
            raise NotFound(
                f"there is no file {os.fspath(place)}; nothing was imported.",
                code="import_not_found",
                path=os.fspath(place),
            )
    found: list[SessionSource] = []
    others: list[str] = []
    for each in files_below(named):
        sources = _sources(each, wanted, alone=each == named)
        found += sources
        others += [] if sources else [each]
    if not found:
        raise no_such_format("the server" if is_server(named) else named, wanted)
    return found, others


def files_below(place: str) -> Iterator[str]:
    """Yield the files at a path, sorted; links are not followed."""
    if is_server(place) or Path(place).is_file():
        yield place
        return
    for folder, folders, files in os.walk(place):
        folders.sort()
        for name in sorted(files):
            file = Path(folder, name)
            if file.is_file() and not file.is_symlink():
                yield str(file)


def _sources(place: str, wanted: Iterable[str], *, alone: bool) -> list[SessionSource]:
    """Return the formats of a place; one that cannot be read has none, unless it is `alone`."""
    try:
        file = Candidate(place)
        if file.is_archive:
            return _in_archive(place, [name for name in wanted if name in _EXPORTS], alone=alone)
        return [SessionSource(name, place) for name in wanted if format_of(name).recognises(file)]
    except (Corrupt, Unavailable, Invalid):
        if alone:
            raise
        return []


def _in_archive(place: str, wanted: Sequence[str], *, alone: bool) -> list[SessionSource]:
    """Return the documents in an archive that are exports; raises `Invalid` if there is none, and it is `alone`.

    A document that cannot be read is an error of the archive: what it may hold would be missing without a word.
    """
    found = [each for document in documents_in(place) for each in _sources(document, wanted, alone=True)]
    if alone and not found:
        raise Invalid(
            f"{place} is an archive without an export of ChatGPT or claude.ai; nothing was imported from it.",
            code="import_archive_without_export",
            advice="Unpack it, and import the directory.",
            source=place,
        )
    return found


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection]:
    """Open a database for reading; raise `Corrupt` if SQLite cannot read it."""
    is_written = Path(f"{path}-wal").exists()
    options = "mode=ro" if is_written else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = _text
            yield connection
        finally:
            connection.close()
    except (
        sqlite3.Error,
        UnicodeError,
    ) as error:  # damaged names are no text, not even in an error of SQLite
        raise Corrupt(
            f"SQLite cannot read {path}: {error}; nothing more was imported from it.",
            code="import_database_unreadable",
            source=str(path),
        ) from error


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def tables_of(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the tables, sorted; views are none, since they would run what the file says."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [str(name) for (name,) in rows if not str(name).startswith("sqlite_")]


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of the columns of a table; none if there is no such table."""
    if table not in tables_of(connection):
        return set()
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({quoted(table)})")}


def quoted(name: str) -> str:
    """Return a name for use in SQL."""
    return '"' + name.replace('"', '""') + '"'
