"""A thread as a git repository that is read and never read back: `export` writes it, `follow` keeps it up to date.

    for written in gitting.follow(store.thread("trip-42"), Path("trip.git")): ...

One git commit for each commit, a branch for each timeline.  Only `git fast-import` writes; the
store is only read.  What can be in the way: git is not there (`Unsupported`), the directory holds
something else, or another thread, or commits that are not ours (`Conflict`).
"""

from __future__ import annotations

from perdure.store.git_export.exporter import GitBranch, GitExport, export, follow

__all__ = ["GitBranch", "GitExport", "export", "follow"]
