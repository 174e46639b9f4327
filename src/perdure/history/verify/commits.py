"""Checking commits: each follows from its parent by its own changeset, and says so truly.

The state root is computed again from the parent's root and the patch, from recorded digests
alone; by induction from the empty map this also proves that every tree has the one shape
that the rule gives it.  Document ops are run again where their values still exist.
"""

from __future__ import annotations

from itertools import islice

from perdure.engines import rules
from perdure.engines.contract import Step
from perdure.errors import Corrupt, Forgotten
from perdure.history import patching
from perdure.history.space import THREADS, Space
from perdure.history.tree import EMPTY, check
from perdure.history.verify.report import Findings
from perdure.model.commit import Commit, LedgerRead
from perdure.model.digest import Digest
from perdure.model.patch import Edit

__all__ = ["Commits"]

_TREE_FAULTS_MAX = 100


class Commits:
    """Checks commits one by one, in whatever order they are stored."""

    def __init__(self, space: Space, findings: Findings) -> None:
        """Check commits of this space."""
        self._space, self._findings = space, findings
        # Whose commits these are cannot be told where no head can be read, which is reported where it is.
        self._is_unlabelled = space.name.startswith(THREADS) and space.label == space.name
        self._ledger = LedgerRead()  # the last place of the ledger that was found to be right

    def check(self, digest: Digest, commit: Commit) -> None:
        """Check one commit against its first parent; damage is reported, not raised."""
        with self._findings.watching("commit", digest=digest):
            steps = self._space.engine.steps(self._space.name, digest, limit=2)
            step, parent = steps[0], steps[1] if len(steps) > 1 else None
            if step.digest != digest or step.commit != commit:
                raise Corrupt("it is not found at its own place on its line")
            self._check_place(step, parent)
            self._check_ledger(step)
            self._check_root(step, parent.commit.root if parent else EMPTY)

    def _check_place(self, step: Step, parent: Step | None) -> None:
        commit = step.commit
        if commit.thread != self._space.label and not self._is_unlabelled:
            self._fault(step, f"it belongs to '{commit.thread}', not to '{self._space.label}'")
        if commit.parents[:1] != ((parent.digest,) if parent else ()):
            self._fault(step, "the commit before it on its line is not its first parent")
        if commit.depth != (parent.commit.depth + 1 if parent else 0):
            self._fault(step, f"it says depth {commit.depth}, which is not one more than its parent's")
            return
        if (step.changeset.reason, step.changeset.run_id) != (commit.reason, commit.run):
            self._fault(step, "its reason or run is not that of its changeset")
        above = (parent.place, parent.commit.run) if parent else None
        events = len(parent.changeset.events) if parent else 0
        if step.place != rules.placed(commit, above, events):
            self._fault(step, "the index places it elsewhere on its line")

    def _check_ledger(self, step: Step) -> None:
        """Check that the ledger did pass the place that the commit says it read."""
        read = step.commit.ledger
        if read.position == 0 or read == self._ledger:
            return
        entries = self._space.engine.entries(self._space.name, after=read.position - 1, limit=1)
        if not entries or (entries[0].position, entries[0].chain) != (read.position, read.chain):
            self._fault(
                step, f"it read the ledger at position {read.position}, where the ledger has another chain"
            )
        else:
            self._ledger = read

    def _check_root(self, step: Step, before: Digest) -> None:
        patch = step.changeset.patch
        try:
            root = patching.apply(self._space, before, patch)
            edited = any(isinstance(op, Edit) for op in patch.ops)
            faults = patching.document_faults(self._space, before, patch) if edited else []
        except (Forgotten, Corrupt):
            self._findings.skip()  # forgotten; or damaged, and then reported where it is stored
            return
        if root != step.commit.root:
            self._fault(step, f"its patch leads to the state {root}, but it says {step.commit.root}")
            self._check_tree(step)
            return
        for fault in faults:
            self._fault(step, fault)

    def _check_tree(self, step: Step) -> None:
        for fault in islice(check(self._space.nodes, step.commit.root), _TREE_FAULTS_MAX):
            self._findings.add("node", fault.why, digest=fault.digest)

    def _fault(self, step: Step, what: str) -> None:
        self._findings.add("commit", what, digest=step.digest)
