"""Refusing file systems on which SQLite's write-ahead log is unsafe.

WAL needs shared memory between all processes that use the file and locks that work.
Network file systems offer neither, and corrupt a store without a word.
"""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.errors import Unsupported

__all__ = ["check_local", "file_system_of"]

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
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "fuse.vmhgfs-fuse",
    ]
)
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a space is written \040


def check_local(path: Path, mounts: Path = _MOUNTS) -> None:
    """Raise `Unsupported` if `path` lies on a network file system."""
    kind = file_system_of(path, mounts)
    if kind in _REMOTE:
        raise Unsupported(
            f"{path} lies on a network file system ({kind}), where SQLite's write-ahead log is unsafe; "
            "nothing was opened. Keep the store on a local disk, or use a server-based engine."
        )


def file_system_of(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """The kind of file system that holds `path`; None where this platform does not tell."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    place = path.resolve()
    found = [(Path(where), kind) for where, kind in map(_mount, lines) if place.is_relative_to(where)]
    return max(found, key=lambda mount: len(mount[0].parts))[1] if found else None


def _mount(line: str) -> tuple[str, str]:
    before, _, after = line.partition(" - ")
    where = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4])
    return where, after.split(" ")[0]
