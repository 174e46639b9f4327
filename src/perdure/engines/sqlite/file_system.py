"""The rules for the files of a store: where they may be, and who may read them.

WAL needs shared memory between all processes that use the file and locks that work.  Network file
systems offer neither, and corrupt a store without any error.

The write-ahead log and the lock are beside the database under its name.  So every process has to use
one name: symbolic links are resolved, and a file with several names, by hard links or because it is a
mount point of its own, is refused.  The files are private: they are made with mode 0600, or with the
mode of the store if its owner has changed that.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from perdure.errors import Corrupt, Unsupported

__all__ = [
    "beside",
    "check_local",
    "check_one_name",
    "check_place",
    "file_system_of",
    "make_database",
    "mode_beside",
    "open_file",
    "resolved",
    "states_of",
]

_REMOTE = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "drvfs",
        "fakeowner",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "osxfs",
        "prl_fs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
    ]
)
# Most file systems in user space are clients of a network; of the others these are known.
_LOCAL_FUSE = frozenset(
    f"fuse.{name}"
    for name in [
        "apfs",
        "bindfs",
        "bcachefs",
        "btrfs-fuse",
        "cryfs",
        "encfs",
        "exfat",
        "ext2",
        "ext4",
        "fuse-overlayfs",
        "fuse2fs",
        "gocryptfs",
        "lkl",
        "mergerfs",
        "ntfs-3g",
        "overlayfs",
        "securefs",
        "squashfuse",
        "unionfs",
        "unionfs-fuse",
        "veracrypt",
        "zfs-fuse",
    ]
)
_PRIVATE = 0o600
_HEADER_BYTES = 100  # of a database
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a space is written \040


def resolved(path: Path) -> Path:
    """Return the one path of a file, however it is named; raise `Unsupported` if symbolic links lead in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise Unsupported(
            f"the symbolic links at {path} lead nowhere ({error}); nothing was opened.",
            code="links_lead_nowhere",
            advice="Name the file itself.",
            path=str(path),
        ) from error


def check_place(path: Path) -> None:
    """Raise `Unsupported` if a store cannot safely be at `path`, a resolved path."""
    check_local(path.parent)
    check_one_name(path)


def check_local(path: Path, mounts: Path = _MOUNTS) -> None:
    """Raise `Unsupported` if `path` is on a network file system."""
    kind = file_system_of(path, mounts)
    is_fuse = kind is not None and (kind == "fuse" or kind.startswith("fuse."))
    if kind in _REMOTE or (is_fuse and kind not in _LOCAL_FUSE):
        raise Unsupported(
            f"{path} is on a network file system ({kind}), where SQLite's write-ahead log is unsafe; nothing was opened.",
            code="network_file_system",
            advice="Keep the store on a local disk, or use a server-based engine.",
            path=str(path),
            file_system=kind,
        )


def check_one_name(path: Path, mounts: Path = _MOUNTS) -> None:
    """Raise `Unsupported` if the file at `path`, a resolved path, has other names too, or is mounted by itself."""
    why, mounted = "", False
    with suppress(FileNotFoundError):
        found = path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise Unsupported(
                f"{path} is a pipe, a socket or a device; nothing was opened.",
                code="not_a_file",
                advice="Choose another path.",
                path=str(path),
            )
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            why = f"the file has {found.st_nlink} names (hard links)"
    with suppress(OSError):
        if any(where == str(path) for where, _ in map(_mount, mounts.read_text().splitlines())):
            why, mounted = "the file is mounted by itself, without its directory", True
    if why:
        raise Unsupported(
            f"{path} cannot be used safely: {why}, and each name would get a write-ahead log and a lock of its own; nothing was opened.",
            code="mounted_alone" if mounted else "hard_links",
            advice="Copy the file, or mount its directory.",
            path=str(path),
        )


def mode_beside(path: Path) -> int:
    """Return the mode of files that are made beside the store at `path`: its own, or private if it does not exist yet."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return _PRIVATE


def make_file(path: Path, mode: int = _PRIVATE) -> int:
    """Return a descriptor of the new file at `path`, which has `mode` whatever the umask; raise `FileExistsError` if there is one."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(file, mode)
    return file


def open_file(path: Path, mode: int) -> int:
    """Return a descriptor of the file at `path`, made with `mode` if it does not exist."""
    try:
        return make_file(path, mode)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, mode)


def make_database(path: Path, writes: int) -> None:
    """Make an empty private file for a database, unless there is a file.

    One that exists is not even opened: closing it would drop the locks that SQLite has on it in this process.
    Raises `Corrupt` if it is empty although the lock file counts `writes`: to SQLite that is a new database, and an
    agent that found it empty would do everything again.
    """
    try:
        os.close(make_file(path))
    except FileExistsError:
        database, log, _ = beside(path)
        if writes and database.stat().st_size < _HEADER_BYTES and not (log.exists() and log.stat().st_size):
            raise Corrupt(
                f"{path} was a store and is empty now: its content is lost; nothing was opened or written.",
                code="store_emptied",
                advice=f"Restore a backup; to start over, remove {path.name} and {path.name}-lock.",
                path=str(path),
            ) from None


def beside(path: Path) -> tuple[Path, Path, Path]:
    """Return the database at `path` and the two files that SQLite keeps beside it."""
    return path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def states_of(files: Iterable[Path]) -> list[tuple[int, int, int] | None]:
    """Return what changes when these files are written or replaced: of each the inode, the size and the time; None: there is none."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def file_system_of(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the kind of file system that holds `path`; None where this platform does not report it."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    place = f"{path.resolve()}/"
    found = [(where, kind) for where, kind in map(_mount, lines) if place.startswith(f"{where.rstrip('/')}/")]
    return max(found, key=lambda mount: len(mount[0]))[1] if found else None


def _mount(line: str) -> tuple[str, str]:
    before, _, after = line.partition(" - ")
    where = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4])
    return where, after.split(" ")[0]
