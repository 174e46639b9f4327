"""Roots: what must stay of a space under a policy.

Roots are the heads of all timelines, sealed ones included; moves within retention; whatever
the ledger and the cells mention (open outboxes, listed artifacts, uploads under way); and what
commits of other spaces have read here.

A move carries no time of its own.  What a head has left counts as left since the first commit
that was made on its timeline afterwards; while there is none it can be redone, and stays.

The living: the commits that a space's roots reach, and what is kept for its own sake.

Every commit behind a live one is live, through merges too.  What live commits name in their
changesets and states is not gathered here, since it is nearly everything; it is compared
with the doomed instead.

The doomed: what only commits that may go have, or only uploads that were abandoned.

First everything is gathered that those commits and uploads name.  Then all that is stored is
gone over once, and whatever else names a part of it saves that part.  So memory grows with
what may go and not with what stays, and what saves a thing need not be reachable itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice

import msgspec

from perdure.engines.contract import Cell, Entry, Fact, Hold, Step
from perdure.errors import Forgotten, NotFound
from perdure.history import reader, stored_objects
from perdure.history.artifacts import UPLOAD, upload_of
from perdure.history.retention.digest_set import Digests
from perdure.history.retention.policy import RetentionPolicy
from perdure.history.space import Space
from perdure.history.stored_objects import whole_pages
from perdure.history.tree import EMPTY, refs
from perdure.model.artifact import decode_artifact
from perdure.model.commit import Act, MoveRecord, decode_changeset, decode_commit
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import AgentChanged, BackendSwitched, CheckpointCreated, Event

__all__ = [
    "AbandonedCommit",
    "abandoned",
    "left_behind",
    "roots",
    "Living",
    "read_objects",
    "unliving",
    "Doomed",
]


_PAGE = 200
_ASKED = 50
_PATCH = re.compile(rb'"(?:agent_)?patch":"([0-9a-f]{64})"')  # in an entry: what a call changes


class AbandonedCommit(msgspec.Struct, frozen=True):
    """A commit that a head has left, and whether it was long enough ago for it to go."""

    commit: Digest
    may_go: bool


def roots(space: Space, policy: RetentionPolicy, now: int) -> Iterator[Digest]:
    """What must stay, commits and other things; some may not be of this space.  Raises `Corrupt` if a head leads nowhere."""
    for hold in _holds(space):
        if hold.head.commit is not None:
            yield space.step(hold.head.commit).digest
    gone = {cell.name for cell in abandoned(space, policy, now)}
    for cell in _cells(space):
        if cell.name not in gone:
            yield from stored_objects.mentioned(cell.name.encode())
            yield from stored_objects.mentioned(cell.value or b"")
    for entry in _entries(space):
        yield from stored_objects.mentioned(entry.body)
        for patch in _PATCH.findall(entry.body):
            yield from _values(space, Digest(patch.decode()))


def _values(space: Space, patch: Digest) -> Iterator[Digest]:
    """The values that a call's patch names: the commit of its round, which would name them too, may be to come."""
    with suppress(Forgotten):
        yield from stored_objects.mentioned(space.body(patch))


def left_behind(space: Space, since: int) -> Iterator[AbandonedCommit]:
    """The commits that heads have left otherwise than by a commit on top; some may be live all the same."""
    for hold in _holds(space):
        later: Digest | None = None  # the first commit that was made after the move at hand
        for move in _moves(space, hold.head.timeline):
            if move.act is Act.COMMIT:
                later = move.to
            elif move.from_ is not None and not _on_a_line(space, move.from_, hold):
                lately = later is None or _made_at(space, later) >= since
                yield AbandonedCommit(move.from_, not lately and _made_at(space, move.from_) < since)


def abandoned(space: Space, policy: RetentionPolicy, now: int) -> Iterator[Cell]:
    """The cells of uploads that are older than the policy allows."""
    since = policy.staged_since(now)
    if since is None:
        return
    for cell in _cells(space, UPLOAD):
        upload = upload_of(cell)
        if upload.expired or upload.at < since:
            yield cell


def _on_a_line(space: Space, commit: Digest, own: Hold) -> bool:
    """Whether a head's line has the commit; only some heads are asked, as this is to save work, not to decide."""
    heads = chain((own,), islice(_holds(space), _ASKED))
    return any(reader.is_ancestor(space, commit, hold.head.commit) for hold in heads)


def _made_at(space: Space, commit: Digest) -> int:
    return space.step(commit).commit.at


def _holds(space: Space) -> Iterator[Hold]:
    after = ""
    while page := space.engine.holds(space.name, after=after, limit=_PAGE):
        yield from page
        after = page[-1].head.timeline


def _moves(space: Space, timeline: str) -> Iterator[MoveRecord]:
    """The moves of a timeline, newest first."""
    before: int | None = None
    while page := space.engine.moves(space.name, timeline, before=before, limit=_PAGE):
        yield from page
        before = page[-1].version


def _cells(space: Space, prefix: str = "") -> Iterator[Cell]:
    after = ""
    while page := space.engine.cells(space.name, prefix=prefix, after=after, limit=_PAGE):
        yield from page
        after = page[-1].name


def _entries(space: Space) -> Iterator[Entry]:
    position = 0
    while page := space.engine.entries(space.name, after=position, limit=_PAGE):
        yield from page
        position = page[-1].position


_REACHABLE_PAGE = 100
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
            page = self._space.back(tip, limit=_REACHABLE_PAGE)
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
        recipes = stored_objects.contexts_of(step.changeset)  # nearly always the same one
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
                    self._mentions += stored_objects.mentioned(found.body)
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


_REMOVABLE = frozenset((Kind.VALUE, Kind.NODE, Kind.BODY, Kind.ARTIFACT, Kind.CHECKPOINT))
_READ = 16  # objects of any size
_DIGEST = 32


class Doomed:
    """Gathered by `commit` and `chunks`, then thinned out by `save`."""

    def __init__(self, space: Space, living: Living) -> None:
        """Begin with nothing; `living` is complete."""
        self._space = space
        self._living = living
        self._commits = Digests()
        self._tops = bytearray()  # the roots of undone commits, one after another
        self._gathered = bytearray()  # every other digest of the two below
        self._undone = Digests()
        self._staged = Digests()
        self._saved = Digests()
        self._artifacts: dict[Digest, tuple[Digest, ...]] = {}  # undone ones, with their chunks
        self._nodes: list[Digest] = []  # saved, and still to save what is below
        self._recipes = Digests()  # of contexts, whose frames and notes were doomed

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return len(self._undone) + len(self._staged) > 0

    def commit(self, tip: Digest) -> None:
        """Doom a commit, and those before it that are not live."""
        for step in unliving(self._space, tip, self._living):
            if self._commits.add(step.digest):
                self._step(step)

    def chunks(self, digests: Iterable[Digest]) -> None:
        """Doom the chunks of an upload."""
        for digest in digests:
            if digest not in self._undone and self._staged.add(digest):
                self._gathered += bytes.fromhex(digest)

    def save(self) -> None:
        """Go over all that is stored, and save what something that is not doomed names.

        Again, if that has shown more that is doomed: the chunks of artifacts.
        """
        known = -1
        while len(self._undone) != known:
            known = len(self._undone)
            for fact in self._facts():
                if fact.object is not None:
                    self._look(fact.object)
                    self._save_below()
        for artifact, chunks in self._artifacts.items():
            if self._is_safe(artifact):
                self._saved.update(chunks)

    def objects(self) -> Iterator[tuple[str, Object]]:
        """What is doomed in the end, and why.

        Roots come first: should forgetting stop halfway, whoever comes back to one of these
        commits meets `Forgotten` at once, and not a state with holes.
        """
        gathered = self._tops + self._gathered
        for start in range(0, len(gathered), _READ * _DIGEST):
            part = gathered[start : start + _READ * _DIGEST].hex()
            digests = [Digest(part[at : at + 2 * _DIGEST]) for at in range(0, len(part), 2 * _DIGEST)]
            for found in self._read([digest for digest in digests if not self._is_safe(digest)]):
                if found.kind in _REMOVABLE:
                    yield "staged" if found.digest in self._staged else "undone", found

    def __contains__(self, digest: Digest) -> bool:
        """Whether the digest was gathered."""
        return digest in self._undone or digest in self._staged

    def _is_safe(self, digest: Digest) -> bool:
        return digest in self._saved or digest in self._living.kept

    def _read(self, digests: Sequence[Digest]) -> Sequence[Object]:
        """Those of the objects that are there: a patch can name what was never kept."""
        missing = set(self._space.engine.missing(self._space.name, digests))
        return read_objects(self._space, [digest for digest in digests if digest not in missing])

    def _doom(self, digests: Iterable[Digest]) -> None:
        for digest in digests:
            if self._undone.add(digest):
                self._gathered += bytes.fromhex(digest)

    def _step(self, step: Step) -> None:
        self._doom((step.commit.changeset, *stored_objects.of_changeset(step.changeset)))
        for event in step.changeset.events:
            if isinstance(event, AgentChanged):
                for patch in read_objects(self._space, (event.patch,)):
                    self._doom(stored_objects.mentioned(patch.body))
        for recipe in stored_objects.contexts_of(step.changeset):
            if self._recipes.add(recipe):
                for found in read_objects(self._space, (recipe,)):
                    self._doom(stored_objects.mentioned(found.body))
        self._tree(step.commit.root)

    def _tree(self, root: Digest) -> None:
        if root == EMPTY or not self._undone.add(root):
            return
        self._tops += bytes.fromhex(root)
        batch, left = [root], list[Digest]()
        while batch or left:
            for found in read_objects(self._space, batch):
                children, values = refs(found.body)
                left += children
                self._doom(values)
            batch = [digest for digest in dict.fromkeys(left[-_BATCH:]) if digest not in self._undone]
            del left[-_BATCH:]
            self._doom(batch)

    def _look(self, found: Object) -> None:
        """Save what `found` names, unless it is doomed itself."""
        doomed = found.digest in self
        match found.kind:
            case Kind.NODE if not doomed:
                self._save_named(found)
            case Kind.CHANGESET if not doomed:
                self._save(stored_objects.of_changeset(decode_changeset(found.body)))
            case Kind.COMMIT if found.digest not in self._commits:
                self._save_nodes((decode_commit(found.body).root,))
            case Kind.ARTIFACT if doomed:
                self._artifacts[found.digest] = decode_artifact(found.body).chunks
                self._doom(self._artifacts[found.digest])
            case Kind.ARTIFACT:
                self._saved.update(decode_artifact(found.body).chunks)
            case _:
                pass

    def _save_named(self, node: Object) -> None:
        children, values = refs(node.body)
        self._save_nodes(children)
        self._save(values)

    def _save(self, digests: Iterable[Digest]) -> None:
        self._saved.update(digest for digest in digests if digest in self)

    def _save_nodes(self, digests: Iterable[Digest]) -> None:
        self._nodes += [digest for digest in digests if digest in self and self._saved.add(digest)]

    def _save_below(self) -> None:
        """Save what is below the nodes that were saved."""
        while self._nodes:
            batch, self._nodes = self._nodes[-_BATCH:], self._nodes[:-_BATCH]
            for found in read_objects(self._space, batch):
                self._save_named(found)

    def _facts(self) -> Iterator[Fact]:
        return (fact for page in whole_pages(self._space.engine, self._space.name) for fact in page)
