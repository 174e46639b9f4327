"""Marking: everything that a commit, or whatever else must stay, cannot do without.

From a commit one reaches its changeset and all that it names, every node and value of its
state, and all commits before it, through merges too.  Each object is looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.contract import Fact, Step
from holdfast.errors import Forgotten, NotFound
from holdfast.history import references
from holdfast.history.digests import Digests
from holdfast.history.space import Space
from holdfast.history.tree import EMPTY, refs
from holdfast.model.artifact import decode_artifact
from holdfast.model.digest import Digest, Kind, Object
from holdfast.model.event import AgentChanged, BackendSwitched, CheckpointCreated, Event

__all__ = ["Marks"]

_PAGE = 100
_BATCH = 64


class Marks:
    """What is reached, and not reached in `under` already."""

    def __init__(self, space: Space, *, under: Marks | None = None) -> None:
        """Begin with nothing; `under` may grow no more."""
        self._space = space
        self._under = under
        self._found = Digests()
        self._opened = Digests()  # texts whose mentions were followed
        self._lines: list[Digest] = []  # commits to follow
        self._mentions: list[Digest] = []  # digests of anything to follow

    def __contains__(self, digest: Digest) -> bool:
        """Whether the digest was reached, here or under."""
        return digest in self._found or (self._under is not None and digest in self._under)

    def __bool__(self) -> bool:
        """Whether anything was reached that is not under."""
        return len(self._found) > 0

    def commit(self, tip: Digest) -> None:
        """Mark a commit, all that is before it, and everything they need; raises `NotFound` or `Corrupt`."""
        self._lines.append(tip)
        self._finish()

    def mention(self, digest: Digest) -> None:
        """Mark whatever the digest names here, and what that needs; nothing if it names nothing here."""
        self._mentions.append(digest)
        self._finish()

    def tree(self, root: Digest) -> None:
        """Mark the nodes and values of a state."""
        left = [] if root == EMPTY else [root]
        while left:
            batch = [digest for digest in left[-_BATCH:] if self._add(digest)]
            del left[-_BATCH:]
            for found in self._read(batch):
                children, values = refs(found.body)
                left += children
                for value in values:
                    self._add(value)

    def chunks(self, fact: Fact) -> None:
        """Mark the chunks of an artifact that is marked."""
        if fact.kind == Kind.ARTIFACT and fact.object is not None and fact.object.digest in self:
            self._object(fact.object)

    def _finish(self) -> None:
        """Follow everything that was found and not followed yet; in lists, as chains can be of any length."""
        while self._lines or self._mentions:
            if self._lines:
                self._line(self._lines.pop())
            self._follow()

    def _line(self, tip: Digest | None) -> None:
        """Mark a line from its tip to the first commit that is marked."""
        while tip is not None and tip not in self:
            page = self._space.engine.steps(self._space.name, tip, limit=_PAGE)
            tip = next(iter(page[-1].commit.parents), None)
            for step in page:
                if not self._add(step.digest):
                    return
                self._step(step)
            self._follow()

    def _follow(self) -> None:
        """Mark what was mentioned; commits among it are only noted."""
        while self._mentions:
            try:
                found = self._read((self._mentions.pop(),))
            except NotFound:
                continue
            for each in found:
                self._object(each)

    def _object(self, found: Object) -> None:
        match found.kind:
            case Kind.COMMIT:
                self._lines.append(found.digest)
            case Kind.NODE:
                self.tree(found.digest)
            case Kind.ARTIFACT:
                self._add(found.digest)
                for chunk in decode_artifact(found.body).chunks:
                    self._add(chunk)
            case Kind.CHECKPOINT | Kind.BODY:
                self._add(found.digest)
                if self._opened.add(found.digest):
                    self._mentions += references.mentioned(found.body)
            case Kind.VALUE | Kind.CHANGESET | Kind.MOVE | Kind.ENTRY:
                self._add(found.digest)

    def _step(self, step: Step) -> None:
        self._lines += step.commit.parents[1:]
        self._add(step.commit.changeset)
        for event in step.changeset.events:
            self._mentions += _needing_more(event)
        for digest in references.of_changeset(step.changeset):
            self._add(digest)
        self.tree(step.commit.root)

    def _read(self, digests: Sequence[Digest]) -> Sequence[Object]:
        """The objects of these digests, without those that were forgotten."""
        try:
            return self._space.engine.objects(self._space.name, digests)
        except Forgotten:
            if len(digests) == 1:
                return ()
            return [found for digest in digests for found in self._read((digest,))]

    def _add(self, digest: Digest) -> bool:
        """Mark one object; False if it was marked."""
        if self._under is not None and digest in self._under:
            return False
        return self._found.add(digest)


def _needing_more(event: Event) -> tuple[Digest, ...]:
    """What an event names that names more in its turn."""
    match event:
        case CheckpointCreated(checkpoint=checkpoint) | BackendSwitched(checkpoint=str() as checkpoint):
            return (checkpoint,)
        case AgentChanged(patch=patch):
            return (patch,)
        case _:
            return ()
