"""The living: the commits that a space's roots reach, and what is kept for its own sake.

Every commit behind a live one is live, through merges too.  What live commits name in their
changesets and states is not gathered here, since it is nearly everything; it is compared
with the doomed instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.engines.contract import Step
from perdure.errors import Forgotten, NotFound
from perdure.history import references
from perdure.history.digests import Digests
from perdure.history.space import Space
from perdure.history.tree import EMPTY, refs
from perdure.model.artifact import decode_artifact
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import AgentChanged, BackendSwitched, CheckpointCreated, Event

__all__ = ["Living", "read_objects", "unliving"]

_PAGE = 100
_BATCH = 64


class Living:
    """Grows by `mention` and `commit`."""

    def __init__(self, space: Space) -> None:
        """Begin with nothing."""
        self._space = space
        self.commits = Digests()
        self.kept = Digests()  # objects that are mentioned, with what they are made of
        self.reads = Digests()  # what these commits have read in other spaces
        self._opened = Digests()  # texts whose mentions were followed
        self._lines: list[Digest] = []  # commits to follow
        self._mentions: list[Digest] = []  # digests of anything to follow

    def commit(self, tip: Digest) -> None:
        """Count a commit and all that is before it as live; raises `Corrupt`."""
        self._lines.append(tip)
        self._finish()

    def mention(self, digest: Digest) -> None:
        """Keep whatever the digest names here, and what that needs; nothing if it names nothing here."""
        self._mentions.append(digest)
        self._finish()

    def tree(self, root: Digest) -> None:
        """Keep the nodes and values of a state."""
        left = [] if root == EMPTY else [root]
        while left:
            batch = [digest for digest in left[-_BATCH:] if self.kept.add(digest)]
            del left[-_BATCH:]
            for found in read_objects(self._space, batch):
                children, values = refs(found.body)
                left += children
                self.kept.update(values)

    def _finish(self) -> None:
        """Follow everything that was found and not followed yet; in lists, as chains can be of any length."""
        while self._lines or self._mentions:
            if self._lines:
                self._line(self._lines.pop())
            self._follow()

    def _line(self, tip: Digest | None) -> None:
        """Go over a line from its tip to the first commit that is known."""
        while tip is not None and tip not in self.commits:
            page = self._space.back(tip, limit=_PAGE)
            tip = next(iter(page[-1].commit.parents), None)
            for step in page:
                if not self.commits.add(step.digest):
                    return
                self._step(step)
            self._follow()

    def _step(self, step: Step) -> None:
        self._lines += step.commit.parents[1:]
        reads = step.commit.reads
        self.reads.update(each for each in (reads.agent_root, reads.agent_commit, reads.memory_root) if each)
        for event in step.changeset.events:
            self._mentions += _needing_more(event)
        recipes = references.contexts_of(step.changeset)  # nearly always the same one
        self._mentions += [digest for digest in recipes if digest not in self._opened]

    def _follow(self) -> None:
        """Keep what was mentioned; commits among it are only noted."""
        while self._mentions:
            try:
                found = self._space.engine.objects(self._space.name, (self._mentions.pop(),))
            except NotFound:  # it was forgotten, or is of another space, or is no digest of ours at all
                continue
            self._object(found[0])

    def _object(self, found: Object) -> None:
        match found.kind:
            case Kind.COMMIT:
                self._lines.append(found.digest)
            case Kind.NODE:
                self.tree(found.digest)
            case Kind.ARTIFACT:
                self.kept.add(found.digest)
                self.kept.update(decode_artifact(found.body).chunks)
            case Kind.CHECKPOINT | Kind.BODY:
                self.kept.add(found.digest)
                if self._opened.add(found.digest):
                    self._mentions += references.mentioned(found.body)
            case Kind.VALUE | Kind.CHANGESET | Kind.MOVE | Kind.ENTRY:
                self.kept.add(found.digest)


def unliving(space: Space, tip: Digest, living: Living) -> Iterator[Step]:
    """The commits at and before `tip` that are not live at the moment they are come to."""
    pending: list[Digest] = [tip]
    seen = Digests()
    while pending:
        line: Digest | None = pending.pop()
        while line is not None and line not in living.commits and seen.add(line):
            step = space.step(line)
            yield step
            pending += step.commit.parents[1:]
            line = next(iter(step.commit.parents), None)


def read_objects(space: Space, digests: Sequence[Digest]) -> Sequence[Object]:
    """The objects of these digests, without those that were forgotten; raises `Corrupt` if one is missing or damaged."""
    try:
        return space.objects(digests)
    except Forgotten:
        if len(digests) == 1:
            return ()
        return [found for digest in digests for found in read_objects(space, (digest,))]


def _needing_more(event: Event) -> tuple[Digest, ...]:
    """What an event names that names more in its turn."""
    match event:
        case CheckpointCreated(checkpoint=checkpoint) | BackendSwitched(checkpoint=str() as checkpoint):
            return (checkpoint,)
        case AgentChanged(patch=patch):
            return (patch,)
        case _:
            return ()
