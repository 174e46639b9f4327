"""Restoring: what a failed run wrote to the state is put back, in its closing commit, and written again on a retry.

Every path that the run wrote goes back to its value after the inbound commit.  Paths that others
wrote meanwhile stay, as do messages, events and the ledger: the world cannot be rolled back.

When the run is retried, its settled calls keep their results, so what they wrote is written again: each
path that the closing commit restored gets the value that the run had left there.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engines.contract import Step
from perdure.history.touched import Touched
from perdure.history.tree import Entry, diff
from perdure.history.values import Kept
from perdure.model.digest import Digest
from perdure.model.event import ConflictCovered
from perdure.model.patch import Delete, Put, Stored
from perdure.model.run import REASONS
from perdure.runtime.draft import Draft
from perdure.runtime.journal import Journal
from perdure.runtime.recovery import since_begin

__all__ = ["restore", "rewrite"]


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
        _set(draft, change.path, change.before)
    if draft.ops:
        draft.act("restore", "run_finished:failed")


def rewrite(journal: Journal, draft: Draft) -> None:
    """Write again what the run's closing commit took back.

    A path that another writer has changed since is covered, and the draft says so.
    """
    space = journal.space
    steps = since_begin(space, journal.run, journal.head.commit)
    closing = _closing(steps, journal.run)
    if closing is None:
        return
    left, closed, now = (
        space.tree(root)
        for root in (space.root_at(closing.commit.first_parent), closing.commit.root, draft.root)
    )
    for op in closing.changeset.patch.ops:
        if isinstance(op, Put | Delete):
            here = now.get(op.path)
            if here != closed.get(op.path):
                covered = here.value if here else None
                draft.events.append(ConflictCovered(id=space.ids(), path=op.path, covered=covered))
            _set(draft, op.path, left.get(op.path))
    draft.act("rewrite", "run_started:retry")


def _closing(steps: Sequence[Step], run: str) -> Step | None:
    """The run's last closing commit, if that restored anything."""
    for step in reversed(steps):
        if step.commit.run == run and step.commit.reason == "run_finished":
            return step if any(act.name == "restore" for act in step.changeset.state_actions) else None
    return None


def _set(draft: Draft, path: str, entry: Entry | None) -> None:
    if entry is not None:
        stored = Stored(entry.value, entry.size, entry.form, entry.media_type)
        draft.ops.put_stored(path, Kept(stored, ()))
    elif draft.ops.entry(path) is not None:
        draft.ops.delete(path)


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
