"""Processes that meet a full disk, a read-only directory or a read-only file, and go on when it is over.

Each job sends what it met, as pairs of what was tried and what came of it.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from pathlib import Path

import perdure
from perdure.errors import PerdureError
from tests.crash.powers import lay_down
from tests.crash.processes import Pipe

__all__ = [
    "CANNOT",
    "full_disk",
    "limited_file_size",
    "read_only_directory",
    "read_only_file",
    "read_only_mount",
    "read_only_mount_of_a_live_store",
]

CANNOT = "this machine does not let the test do that"

_NEW_MOUNTS, _PRIVATE, _RECURSIVE = 0x00020000, 1 << 18, 1 << 14
_READ_ONLY, _REMOUNT, _BIND = 1, 1 << 5, 1 << 12
_CHUNK = "x" * 100_000


def _tried(work: Callable[[], object]) -> str:
    try:
        work()
    except PerdureError as error:
        return f"{type(error).__name__}: {error}"
    except BaseException as error:
        return f"raw {error!r}"
    return "done"


def _put(path: Path, number: int) -> None:
    with perdure.open(path) as store:
        store.thread("trip-42", agent="planner").put(f"/{number}", number, op_id=f"put-{number}")


def _get(path: Path, number: int) -> None:
    with perdure.open(path, read_only=True) as store:
        assert store.thread("trip-42").get(f"/{number}") == number


def _fill(thread: perdure.Thread) -> int:
    """Write until nothing more goes in; how many were acknowledged."""
    number = 0
    try:
        while True:
            thread.put(f"/filler/{number}", f"{number} {_CHUNK}{os.urandom(50_000).hex()}")
            number += 1
    except PerdureError:
        return number


def read_only_file(pipe: Pipe, directory: str) -> None:
    """The file may be read and not written."""
    path = Path(directory) / "store.db"
    _put(path, 1)
    lay_down()
    path.chmod(0o444)
    answers = {"write": _tried(lambda: _put(path, 2)), "read": _tried(lambda: _get(path, 1))}
    path.chmod(0o644)
    pipe.send({**answers, "again": _tried(lambda: _put(path, 2)), "kept": _tried(lambda: _get(path, 1))})


def read_only_directory(pipe: Pipe, directory: str) -> None:
    """Nothing can be created beside the file; and no new store either."""
    path = Path(directory) / "store.db"
    _put(path, 1)
    lay_down()
    path.parent.chmod(0o555)
    answers = {
        "write": _tried(lambda: _put(path, 2)),
        "new": _tried(lambda: _put(path.with_name("new.db"), 1)),
    }
    path.with_name("store.db-lock").chmod(0o444)
    answers["lock"] = _tried(lambda: _put(path, 2))
    path.with_name("store.db-lock").chmod(0o644)
    path.parent.chmod(0o755)
    pipe.send({**answers, "again": _tried(lambda: _put(path, 2)), "kept": _tried(lambda: _get(path, 1))})


def full_disk(pipe: Pipe, directory: str) -> None:
    """A small private file system fills up; then something else on it is deleted."""
    libc = _own_mounts()
    if libc is None or libc.mount(b"tmpfs", directory.encode(), b"tmpfs", 0, b"size=4m") != 0:
        pipe.send(CANNOT)
        return
    path, ballast = Path(directory) / "store.db", Path(directory) / "ballast"
    ballast.write_bytes(bytes(1_500_000))
    _meet_the_limit(pipe, path, ballast.unlink)


def _own_mounts() -> ctypes.CDLL | None:
    """The C library in a process with private mounts; None where the platform has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        not hasattr(libc, "unshare")
        or libc.unshare(_NEW_MOUNTS) != 0
        or libc.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None) != 0
    ):
        return None
    return libc


def _mounted_read_only(directory: Path) -> Path | None:
    """The same directory by another name, where nothing can be written; None where that cannot be had."""
    libc, mount = _own_mounts(), directory.with_name(directory.name + "-mounted")
    mount.mkdir()
    where, what = str(mount).encode(), str(directory).encode()
    if (
        libc is None
        or libc.mount(what, where, None, _BIND, None) != 0
        or libc.mount(b"none", where, None, _BIND | _REMOUNT | _READ_ONLY, None) != 0
    ):
        return None
    return mount


def _left_by_a_killed_process(path: Path, left: str) -> None:
    """A store as a process leaves it that is killed, or closes it."""
    pid = os.fork()
    if not pid:
        store = perdure.open(path)
        store.thread("trip-42", agent="planner").put("/1", 1)
        if left == "nothing":
            store.close()
        os._exit(0)
    os.waitpid(pid, 0)
    if left == "log":
        path.with_name(path.name + "-shm").unlink()


def read_only_mount(pipe: Pipe, directory: str, left: str) -> None:
    """The store lies where nothing can be written, with its log or without."""
    place = Path(directory) / "store"
    place.mkdir()
    _left_by_a_killed_process(place / "store.db", left)
    before = sorted(each.name for each in place.iterdir())
    mount = _mounted_read_only(place)
    if mount is None:
        pipe.send(CANNOT)
        return
    path = mount / "store.db"
    read = _tried(lambda: _get(path, 1))
    with perdure.open(path, read_only=True) as store:
        verified = "done" if store.verify().ok else "damaged"
    write = _tried(lambda: _put(path, 2))
    made = sorted({each.name for each in place.iterdir()} - set(before))
    pipe.send({"read": read, "verified": verified, "write": write, "made": str(made)})


def read_only_mount_of_a_live_store(pipe: Pipe, directory: str) -> None:
    """The store can be written by another way to it."""
    place = Path(directory) / "store"
    place.mkdir()
    _put(place / "store.db", 1)
    mount = _mounted_read_only(place)
    if mount is None:
        pipe.send(CANNOT)
        return
    with perdure.open(mount / "store.db", read_only=True) as store:
        thread = store.thread("trip-42")
        before = _tried(lambda: thread.get("/1"))
        _put(place / "store.db", 2)
        during = _tried(lambda: thread.get("/2"))
    again = _tried(lambda: _get(mount / "store.db", 2))
    pipe.send({"before": before, "during": during, "again": again})


def limited_file_size(pipe: Pipe, directory: str) -> None:
    """The process may not make files larger than a limit; then it may."""
    path = Path(directory) / "store.db"
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    _meet_the_limit(pipe, path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))


def _meet_the_limit(pipe: Pipe, path: Path, make_room: Callable[[], object]) -> None:
    with perdure.open(path) as store:
        thread = store.thread("trip-42", agent="planner")
        acknowledged = _fill(thread)
        last = f"/filler/{acknowledged}"
        write = _tried(lambda: thread.put(last, _CHUNK + os.urandom(400_000).hex(), op_id="last"))
        read = _tried(lambda: thread.get("/filler/0"))
        make_room()
        again = _tried(lambda: thread.put("/again", 1, op_id="again"))
        there = thread.paths("/filler/")
        faults = [str(fault) for fault in store.verify().faults]
    kept = len(set(there) - {last}) == acknowledged
    pipe.send(
        {
            "acknowledged": str(acknowledged),
            "write": write,
            "read": read,
            "again": again,
            "kept": "done" if kept else f"kept {there}",
            "faults": str(faults),
        }
    )
