"""The files of an export of a person's data, in a directory or in a zip archive.

An archive is read member by member, and nothing is unpacked to the disk.  A member has a place as a file has:
`export.zip/conversations.json`.  What an export says about its files only selects among those that are there: no name of
an export is made part of a path, and links are not followed.

An archive can claim to hold more than a machine has room for.  It is refused if its members share bytes, or if they are
many times larger than the archive; a member is refused if it is many times larger than its compressed bytes, and is never
read beyond the size that was checked.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path, PurePath, PurePosixPath
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from perdure.errors import Corrupt, Invalid, PerdureError, Unavailable
from perdure.integrations.importers.session import Json, SessionFile, as_object, as_text

__all__ = [
    "Archive",
    "ExportFiles",
    "archive_of",
    "begins_as_archive",
    "documents_in",
    "read_member",
    "source_of",
]

_BEGINNINGS = (b"PK\x03\x04", b"PK\x05\x06")  # the second: an archive without members
_MEMBERS_MAX = 100_000
_FREE_BYTES = 1 << 30  # of all members, whatever the archive's size
_RATIO_MAX = 100  # of all members to the archive; conversations shrink to a tenth
_MEMBER_FREE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_DEPTH_MAX = 2  # of directories with files beside the conversations
_NAMES = "conversation_asset_file_names.json"
_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_NAMED = re.compile(r"(file[-_][A-Za-z0-9]+)(?:[-_](.+)|\..*)?\Z", re.DOTALL)


def begins_as_archive(head: bytes) -> bool:
    """True if a file begins as a zip archive does."""
    return head.startswith(_BEGINNINGS)


def archive_of(place: str) -> tuple[str, str] | None:
    """Return the archive and the name of the member that a place is; None for a place of its own."""
    path = Path(place)
    if path.exists():
        return None
    for folder in path.parents:
        if folder.is_file():
            return str(folder), path.relative_to(folder).as_posix()
    return None


def source_of(place: str) -> str:
    """Return what a person names to import a place: the archive of a member, else the place itself."""
    inside = archive_of(place)
    return place if inside is None else inside[0]


def documents_in(archive: str) -> list[str]:
    """Return the places of the JSON documents in an archive, sorted; raises an error if it cannot be read, or is refused."""
    with Archive(archive) as opened:
        return [f"{archive}/{name}" for name in sorted(opened.members) if name.endswith(".json")]


def read_member(archive: str, name: str, bytes_max: int | None = None) -> bytes:
    """Return the content of a member of an archive, or its beginning; raises an error if it cannot be read, or is refused."""
    with Archive(archive) as opened:
        return opened.read(name, bytes_max)


class Archive:
    """A zip archive whose members are read into memory."""

    def __init__(self, path: str) -> None:
        """Read nothing yet."""
        self.path = path
        self._opened: ZipFile | None = None

    def __enter__(self) -> Archive:
        """Give the archive itself; leaving the block closes its file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file of the archive; it is opened again if it is read later."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @cached_property
    def members(self) -> dict[str, ZipInfo]:
        """The files in the archive by name; raises `Invalid` if they are too large, and `Corrupt` if it is damaged."""
        with self._reading() as opened:
            infos = opened.infolist()
        size, whole = os.path.getsize(self.path), sum(each.file_size for each in infos)
        if len(infos) > _MEMBERS_MAX or sum(each.compress_size for each in infos) > size:
            raise self._refused(f"it claims to have {len(infos):,} members that overlap, or are too many")
        if whole > max(_FREE_BYTES, _RATIO_MAX * size):
            raise self._refused(f"its members would be {whole:,} bytes, from {size:,}")
        return {each.filename: each for each in infos if _is_plain(each)}

    def read(self, name: str, bytes_max: int | None = None) -> bytes:
        """Return the content of a member, or its beginning; raises an error if it cannot be read, or is refused."""
        info = self.members.get(name)
        if info is None:
            raise self._refused(f"it has no {name}")
        if info.flag_bits & 1 or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise self._refused(f"{name} is encrypted, or compressed in a way that is not read")
        if info.file_size > max(_MEMBER_FREE_BYTES, _RATIO_MAX * info.compress_size):
            raise self._refused(f"{name} would be {info.file_size:,} bytes, from {info.compress_size:,}")
        left = info.file_size if bytes_max is None else min(bytes_max, info.file_size)
        chunks: list[bytes] = []
        with self._reading() as opened, opened.open(info) as member:
            # In small pieces: a member that is larger than it says would otherwise be unpacked whole.
            while left > 0 and (chunk := member.read(min(left, _CHUNK_BYTES))):
                chunks.append(chunk)
                left -= len(chunk)
        return b"".join(chunks)

    @contextmanager
    def _reading(self) -> Generator[ZipFile]:
        try:
            if self._opened is None:
                self._opened = ZipFile(self.path)
            yield self._opened
        except (BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
            raise Corrupt(
                f"{self.path} cannot be read as a zip archive: {error}; nothing more was imported from it.",
                code="import_archive_unreadable",
                advice="Download it again, or unpack what can be unpacked, and import the directory.",
                source=self.path,
            ) from error
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be read: {error.strerror}; nothing more was imported from it.",
                code="import_file_unreadable",
                source=self.path,
            ) from error

    def _refused(self, why: str) -> Invalid:
        return Invalid(
            f"{self.path} is refused: {why}; nothing more was imported from it.",
            code="import_archive_refused",
            advice="If you trust it, unpack it, and import the directory.",
            source=self.path,
        )


def _is_plain(info: ZipInfo) -> bool:
    """True for a file with a name that stays below the archive and has one spelling; False for a directory or a link."""
    path = PurePosixPath(info.filename)
    is_below = not path.is_absolute() and ".." not in path.parts and path.as_posix() == info.filename
    return is_below and not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16)


class ExportFiles:
    """The files beside the conversations of an export, by the ids that its messages have for them."""

    def __init__(self, place: str) -> None:
        """Look beside the document with the conversations; read nothing yet."""
        inside = archive_of(place)
        self._archive = None if inside is None else Archive(inside[0])
        self._folder = Path(place if inside is None else inside[1]).parent
        self.source = source_of(place)

    def close(self) -> None:
        """Close the archive, if it is one."""
        if self._archive is not None:
            self._archive.__exit__()

    def find(self, id: str) -> SessionFile | None:
        """Return the file of an id; None if the export does not have it."""
        return self._by_id.get(id)

    @property
    def index(self) -> str | None:
        """The place of the index with the names of the files; None if there is none, or it is in an archive."""
        return str(self._folder / _NAMES) if self._archive is None and self._names else None

    @cached_property
    def _by_id(self) -> dict[str, SessionFile]:
        found: dict[str, SessionFile] = {}
        for place, size, read in self._listed():
            base = PurePath(place).name
            named = _NAMED.match(base)
            if named is not None and named[1] not in found:
                called = as_text(self._names.get(base)) or named[2] or base
                name = called.rpartition("/")[2] or base
                found[named[1]] = SessionFile(name=name, place=place, size=size, read=read)
        return found

    def _listed(self) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
        """Yield the place and the size of each file, and what reads it; those nearest to the conversations first."""
        if self._archive is not None:
            beside = "" if self._folder == Path() else f"{self._folder.as_posix()}/"
            for name, info in sorted(self._archive.members.items(), key=lambda each: _nearness(each[0])):
                if name.startswith(beside):
                    yield f"{self.source}/{name}", info.file_size, partial(self._archive.read, name)
            return
        for folder, folders, files in os.walk(self._folder):
            depth = len(Path(folder).relative_to(self._folder).parts)
            folders[:] = sorted(folders) if depth < _DEPTH_MAX else []
            for name in sorted(files):
                file = Path(folder, name)
                if _ID.match(name) and file.is_file() and not file.is_symlink():
                    yield str(file), file.stat().st_size, partial(_read, file)

    @cached_property
    def _names(self) -> Json:
        """What the files were called, by the names that they have in the export."""
        with suppress(PerdureError, ValueError, RecursionError):
            if self._archive is not None:
                return as_object(json.loads(self._archive.read((self._folder / _NAMES).as_posix())))
            return as_object(json.loads(_read(self._folder / _NAMES)))
        return {}


def _nearness(name: str) -> tuple[int, str]:
    return name.count("/"), name


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Unavailable(
            f"{file} cannot be read: {error.strerror}; it was not imported.",
            code="import_file_unreadable",
            source=str(file),
        ) from error
