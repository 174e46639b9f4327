"""Following: the durable events of a line after a cursor, each once and in order, from any process.

They are read from commits, so nothing depends on having been there.  After an undo or a promote the
line goes another way: then what follows is what came after the moment that both share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.engines.contract import Step
from perdure.errors import Forgotten, NotFound
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.event import Event, MessageAppended
from perdure.model.message import Message, decode_message
from perdure.runtime.happening import Committed, Cursor, Happened

__all__ = ["Follower", "cursor_at"]

_PAGE = 100


def cursor_at(space: Space, commit: Digest | None) -> Cursor | None:
    """The place after everything that a commit holds; None is before the first."""
    if commit is None:
        return None
    step = space.step(commit)
    return Cursor(step.commit.depth, commit, len(step.changeset.events) + 1)


class Follower:
    """Whoever reads a line from a place on; it goes on where it stopped."""

    def __init__(self, space: Space, timeline: str, after: Cursor | None) -> None:
        """Stand at a place; None is before the first event."""
        self._space, self._timeline = space, timeline
        self._at = after
        if after is not None:
            self._check(after)

    @property
    def cursor(self) -> str | None:
        """The place of the last event that was read."""
        return None if self._at is None else str(self._at)

    def read(self, upto: Digest | None = None) -> Iterator[Happened | Committed]:
        """What has become durable since, as it is asked for; only `upto` a commit, if that is on the line."""
        head = reader.head_of(self._space, self._timeline).commit
        if upto is not None and reader.is_ancestor(self._space, upto, head):
            head = upto
        if head is None or (self._at is not None and self._at.commit == head and self._is_whole(head)):
            return
        for step in self._new(head):
            yield from self._events(step)

    def _check(self, cursor: Cursor) -> None:
        if self._space.find(cursor.commit) is None:
            raise NotFound(
                f"'{self._space.label}' has no commit {cursor.commit[:12]}; nothing was followed. "
                "Give a cursor of this thread."
            )

    def _is_whole(self, commit: Digest) -> bool:
        assert self._at is not None
        return self._at.index > len(self._space.step(commit).changeset.events)

    def _new(self, head: Digest) -> list[Step]:
        """The commits to read, oldest first: the one that was left in the middle, and all after it."""
        found: list[Step] = []
        known = self._ancestors()
        for step in reader.steps(self._space, head):
            if known(step):
                if (
                    self._at is not None
                    and step.digest == self._at.commit
                    and not self._is_whole(step.digest)
                ):
                    found.append(step)
                break
            found.append(step)
        return found[::-1]

    def _ancestors(self) -> Callable[[Step], bool]:
        """Whether a commit was read before: it is the one of the cursor, or on the line behind it."""
        at, space = self._at, self._space
        if at is None:
            return lambda step: False
        return lambda step: (
            step.commit.depth <= at.depth and reader.is_ancestor(space, step.digest, at.commit)
        )

    def _events(self, step: Step) -> Iterator[Happened | Committed]:
        """The events of a commit, then the commit itself; in the middle of one, those after the last that was read."""
        events = step.changeset.events
        begin = self._at.index if self._at is not None and self._at.commit == step.digest else 0
        for index, event in enumerate(events[begin:], begin + 1):
            self._at = Cursor(step.commit.depth, step.digest, index)
            yield self._happened(step, event)
        self._at = Cursor(step.commit.depth, step.digest, len(events) + 1)
        yield Committed(
            cursor=str(self._at),
            commit=step.digest,
            reason=step.commit.reason,
            root=step.commit.root,
            run=step.commit.run,
        )

    def _happened(self, step: Step, event: Event) -> Happened:
        return Happened(
            cursor=str(self._at),
            commit=step.digest,
            event=event,
            run=step.commit.run,
            message=self._words(event) if isinstance(event, MessageAppended) else None,
        )

    def _words(self, event: MessageAppended) -> Message | None:
        try:
            return decode_message(self._space.body(event.body))
        except Forgotten:
            return None
