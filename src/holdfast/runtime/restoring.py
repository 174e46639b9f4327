"""Restoring: what a failed run wrote to the state is put back, in its closing commit.

Every path that the run wrote goes back to its value after the inbound commit.  Paths that others
wrote meanwhile stay, as do messages, events and the ledger: the world cannot be rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.contract import Step
from holdfast.history.touched import Touched
from holdfast.history.tree import diff
from holdfast.history.values import Kept
from holdfast.model.digest import Digest
from holdfast.model.patch import Stored
from holdfast.model.run import REASONS
from holdfast.runtime.draft import Draft
from holdfast.runtime.journal import Journal
from holdfast.runtime.recovery import since_begin

__all__ = ["restore"]


def restore(journal: Journal, draft: Draft, kept: Sequence[str]) -> None:
    """Put back what the run wrote; `kept` are prefixes that are left alone."""
    steps = since_begin(journal.space, journal.run, journal.head.commit)
    base = _base(steps)
    if base is None:
        return
    space = journal.space
    writers = [(_is_own(step, journal.run), Touched.by((step.changeset,))) for step in reversed(steps)]
    for change in diff(space.tree(base), space.tree(journal.root)):
        if any(_under(change.path, prefix) for prefix in kept) or not _last_was_own(change.path, writers):
            continue
        before = change.before
        if before is None:
            draft.ops.delete(change.path)
        else:
            stored = Stored(before.value, before.size, before.form, before.media_type)
            draft.ops.put_stored(change.path, Kept(stored, ()))
    if draft.ops:
        draft.act("restore", "run_finished:failed")


def _base(steps: Sequence[Step]) -> Digest | None:
    """The root after the input and the start of the run; None if it did nothing since."""
    base: Digest | None = None
    for step in steps:
        if step.commit.reason != "user_message":
            break
        base = step.commit.root
    return base


def _is_own(step: Step, run: str) -> bool:
    return step.commit.run == run and step.commit.reason in REASONS


def _last_was_own(path: str, writers: Sequence[tuple[bool, Touched]]) -> bool:
    return next((own for own, touched in writers if touched.covers(path)), False)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")
