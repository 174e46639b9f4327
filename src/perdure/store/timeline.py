"""Lines: a timeline that a program holds and writes to, of a thread or of an agent's map."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from msgspec import UNSET

from perdure.errors import Invalid
from perdure.history import reader, timelines
from perdure.history.agent_map import TimelineContext
from perdure.history.changes.values import Given
from perdure.history.writer import OnConflict
from perdure.model.digest import Digest
from perdure.model.head import Head
from perdure.store.change import Change, How, check_op_id
from perdure.store.plumbing import revisions
from perdure.store.plumbing.loop_guard import blocking
from perdure.store.plumbing.revisions import Wanted
from perdure.store.plumbing.run_fence import without_runs
from perdure.store.view import View

__all__ = ["Line", "given"]

_OpId: TypeAlias = str | None  # None: it is not going to be repeated


@blocking
class Line(View):
    """A timeline that can be read and written.  Each call looks at the newest commit."""

    def __init__(self, standing: TimelineContext) -> None:
        """Stand on a timeline; nothing is read yet."""
        super().__init__(standing, Head(standing.timeline, 0, None), None)

    def change(
        self,
        reason: str,
        *,
        on_conflict: OnConflict = "raise",
        op_id: _OpId = None,
        author: str | None = None,
        run: str | None = None,
        head: Head | None = None,
        chain: bool = False,
    ) -> Change:
        """A block of changes that becomes one commit, or nothing.

        With `op_id` the block can be repeated safely.  `on_conflict="rebase"` puts it on top of
        what others wrote meanwhile to other paths; without it that is `StaleHead`.  `run` is the
        run that it is a step of.  `head` is one that was read earlier, to write only if it still
        stands; None reads it on entering.  With `chain` each write of the block is a commit of its own, whose
        digest the write returns; they are one durable write, and the head moves once.
        """
        how = How(
            reason=reason,
            on_conflict=on_conflict,
            op_id=op_id,
            author=author,
            run=run,
            head=head,
            chain=chain,
        )
        return Change(self._standing, how, self._finish)

    def put(
        self,
        path: str,
        value: Given,
        *,
        media_type: str | None = None,
        reason: str = "put",
        on_conflict: OnConflict = "raise",
        op_id: _OpId = None,
    ) -> Head:
        """Let `path` hold a JSON document or bytes, by a change of its own; the head afterwards."""
        with self.change(reason, on_conflict=on_conflict, op_id=op_id) as change:
            change.put(path, value, media_type=media_type)
        return _moved(change)

    def delete(
        self, path: str, *, reason: str = "delete", on_conflict: OnConflict = "raise", op_id: _OpId = None
    ) -> Head:
        """Let `path` hold nothing, by a change of its own; raises `NotFound` if that is so already."""
        with self.change(reason, on_conflict=on_conflict, op_id=op_id) as change:
            change.delete(path)
        return _moved(change)

    def undo(self, turns: int = 1, *, to: Wanted = UNSET, op_id: _OpId = None) -> Head:
        """Step back over whole turns, or `to` any moment (None: before the first commit); the head afterwards."""
        if not isinstance(turns, int) or isinstance(turns, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"undo goes back a number of turns, not {turns!r}; nothing was moved.",
                code="invalid_turns",
                advice="For a moment use undo(to=…).",
                turns=turns,
            )
        if to is UNSET:
            act = partial(timelines.undo, turns=turns, op_id=given(op_id))
        else:
            act = partial(timelines.undo_to, to=revisions.name_of(to), op_id=given(op_id))
        return without_runs(self._space, (self.timeline,), "undo", lambda space: act(space, self.timeline))

    def redo(self, *, op_id: _OpId = None) -> Head:
        """Take back the last undo; raises `NotFound` if there is none, or something was committed since."""
        act = partial(timelines.redo, op_id=given(op_id))
        return without_runs(self._space, (self.timeline,), "redo", lambda space: act(space, self.timeline))

    def _now(self) -> tuple[Head, Digest | None]:
        head = reader.head_of(self._space, self.timeline)
        return head, head.commit

    def _agent_seen(self, head: Head, commit: Digest | None) -> Digest | None:
        return self._standing.sight(head).commit

    def _op_id(self, given: _OpId) -> str:
        return self._space.ids() if given is None else check_op_id(given)

    def _finish(self) -> None:
        """Do what a commit here leaves to be done elsewhere."""


def given(op_id: _OpId) -> _OpId:
    """An op_id that a program gave, if it may."""
    return None if op_id is None else check_op_id(op_id)


def _moved(change: Change) -> Head:
    assert change.head is not None, "a block that was left has a head"
    return change.head
