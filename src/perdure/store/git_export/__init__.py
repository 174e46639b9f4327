"""Exports a thread as a git repository: `export` writes it, `follow` keeps it up to date.  It is never read back.

    for written in git_export.follow(store.thread("trip-42"), Path("trip.git")): ...

Each commit becomes a git commit, each timeline a branch.  Only `git fast-import` writes; the store is only read.
Errors: git is not installed (`Unsupported`); the directory has other files, another thread, or commits that no export
has made (`Conflict`).
"""

from __future__ import annotations

from perdure.store.git_export.exporter import GitBranch, GitExport, export, follow

__all__ = ["GitBranch", "GitExport", "export", "follow"]
