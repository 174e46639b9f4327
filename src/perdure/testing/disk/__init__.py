"""A simulated disk that loses power, tears writes and fails, for testing what is stored through SQLite.

A `Disk` is a file system in memory that SQLite reaches under the VFS name `disk.vfs`.  It records every
file operation, so that one run of a workload is enough to make what a real disk might hold after a power
loss at *each* of its operations.  It can also make the n-th call fail, once or until healed.

    disk = Disk(seed=1)
    connection = apsw.Connection("store.db", vfs=disk.vfs)
    connection.pragma("locking_mode", "EXCLUSIVE")
    connection.pragma("journal_mode", "WAL")
    ...
    disk.mark("row 1")                           # a fact that was acknowledged
    for left in disk.after_power_loss(at=17):    # new disks
        ...

`explore(workload, check)` does this at every operation, and again at every operation of the recovery.

What can go wrong in using it:

- apsw gives no shared memory to a VFS written in Python.  In WAL mode a connection must therefore set
  `locking_mode=EXCLUSIVE` before it first touches the WAL, and be the only one.
- An error injected here reaches the caller even where SQLite itself swallows it, because apsw lets a
  Python exception out in any case.  So COMMIT may raise although it succeeded (a failing checkpoint after
  it does that).  This errs on the hard side: an error at COMMIT has to be treated as unknown anyway.
- SQLite draws its WAL salts from the operating system.  The operations and the seeded choices are the same
  in every run, the bytes in the WAL are not.
- The disk has no lock of its own: use it from one thread at a time, or through one connection.
"""

from __future__ import annotations

from perdure.testing.disk.device import Check, Disk, DiskImage, Explored, Failure, Workload, explore
from perdure.testing.disk.faults import DiskCall
from perdure.testing.disk.platter import Entries, Survival, Writes

__all__ = [
    "DiskCall",
    "Check",
    "Disk",
    "Entries",
    "Explored",
    "Failure",
    "DiskImage",
    "Survival",
    "Workload",
    "Writes",
    "explore",
]
