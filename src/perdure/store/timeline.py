"""The handle on a timeline that a program reads and writes, of a thread or of an agent's map."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from msgspec import UNSET

from perdure.errors import Invalid
from perdure.history import reader, timelines
from perdure.history.changes.values import Given
from perdure.history.space import Space, TimelineContext
from perdure.history.writer import OnConflict
from perdure.model import names
from perdure.model.digest import Digest
from perdure.model.head import Head
from perdure.store.change import Change
from perdure.store.plumbing import revisions
from perdure.store.plumbing.handles import blocking
from perdure.store.plumbing.revisions import Wanted
from perdure.store.plumbing.run_fence import Chain, How, without_runs
from perdure.store.view import View

__all__ = ["Line", "given"]

_OpId: TypeAlias = str | None  # None: the caller does not repeat the write


@blocking
class Line(View):
    """A timeline that can be read and written.  Each call reads the newest commit."""

    def __init__(self, standing: TimelineContext) -> None:
        """Open a timeline; nothing is read yet."""
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
        chain: Chain = False,
    ) -> Change:
        """Return a block of changes that becomes one commit, or nothing.

        With `op_id` the block can be repeated safely.  `on_conflict="rebase"` applies it on top of what other writers
        wrote to other paths in the meantime; without it such a write is `StaleHead`.  `run` is the run that it is a
        step of.  `head` is a head that was read earlier: the block writes only if it is still the head; None reads the
        head on entering.  With `chain` each write of the block is a commit of its own, whose digest the write returns;
        they are one durable write, and the head moves once.  With `chain="steps"` each `change.step()` ends a commit.
        """
        how = How(
            reason=reason,
            on_conflict=on_conflict,
            op_id=op_id,
            author=author,
            run=run,
            head=self._space.expects if head is None else head,
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
        """Write a JSON document or bytes to `path`, by a change of its own; return the new head."""
        how = How(reason=reason, on_conflict=on_conflict, op_id=op_id, head=self._space.expects, at_once=True)
        with Change(self._standing, how, self._finish) as change:
            change.put(path, value, media_type=media_type)
        return _moved(change)

    def delete(
        self, path: str, *, reason: str = "delete", on_conflict: OnConflict = "raise", op_id: _OpId = None
    ) -> Head:
        """Delete the value at `path`, by a change of its own, and return the new head; `NotFound` if there is none."""
        how = How(reason=reason, on_conflict=on_conflict, op_id=op_id, head=self._space.expects, at_once=True)
        with Change(self._standing, how, self._finish) as change:
            change.delete(path)
        return _moved(change)

    def undo(
        self, turns: int = 1, *, to: Wanted = UNSET, op_id: _OpId = None, author: str | None = None
    ) -> Head:
        """Go back over whole turns, or `to` any moment (None: before the first commit); return the new head.

        `author` is recorded as the person or program that moved it.
        """
        if not isinstance(turns, int) or isinstance(turns, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"undo goes back a number of turns, not {turns!r}; nothing was moved.",
                code="turns_invalid",
                advice="For a moment use undo(to=…).",
                turns=turns,
            )
        if to is UNSET:
            act = partial(timelines.undo, turns=turns, op_id=given(op_id), author=author)
        else:
            act = partial(timelines.undo_to, to=revisions.name_of(to), op_id=given(op_id), author=author)
        return self._move("undo", act, op_id)

    def redo(self, *, op_id: _OpId = None, author: str | None = None) -> Head:
        """Take back the last undo and return the new head; raises `NotFound` if there is none, or after a commit."""
        return self._move("redo", partial(timelines.redo, op_id=given(op_id), author=author), op_id)

    def _move(self, what: str, act: Callable[[Space, str], Head], op_id: _OpId) -> Head:
        """Move the head while no run holds the timeline."""
        space, timeline = self._space, self.timeline
        asking = (*reader.head_questions(space, timeline), *timelines.move_questions(space, op_id))
        return without_runs(space, (timeline,), what, lambda space: act(space, timeline), asking=asking)

    def _now(self) -> tuple[Head, Digest | None]:
        head = reader.head_of(self._space, self.timeline)
        return head, head.commit

    def _agent_seen(self, head: Head, commit: Digest | None) -> Digest | None:
        return self._standing.sight(head).commit

    def _op_id(self, given: _OpId) -> str:
        return self._space.ids() if given is None else names.check_op_id(given)

    def _finish(self) -> None:
        """Do the work that follows a commit here, in other spaces."""


def given(op_id: _OpId) -> _OpId:
    """Return the caller's op_id after a check; None stays None."""
    return None if op_id is None else names.check_op_id(op_id)


def _moved(change: Change) -> Head:
    assert change.head is not None, "a block that was left has a head"
    return change.head
