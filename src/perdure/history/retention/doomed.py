"""The doomed: what only commits that may go have, or only uploads that were abandoned.

First everything is gathered that those commits and uploads name.  Then all that is stored is
gone over once, and whatever else names a part of it saves that part.  So memory grows with
what may go and not with what stays, and what saves a thing need not be reachable itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perdure.engines.contract import Fact, Step
from perdure.history import references
from perdure.history.digests import Digests
from perdure.history.retention.living import Living, read_objects, unliving
from perdure.history.scan import whole_pages
from perdure.history.space import Space
from perdure.history.tree import EMPTY, refs
from perdure.model.artifact import decode_artifact
from perdure.model.changeset import decode_changeset
from perdure.model.commit import decode_commit
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import AgentChanged

__all__ = ["Doomed"]

_REMOVABLE = frozenset((Kind.VALUE, Kind.NODE, Kind.BODY, Kind.ARTIFACT, Kind.CHECKPOINT))
_BATCH = 64  # nodes
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
        self._doom((step.commit.changeset, *references.of_changeset(step.changeset)))
        for event in step.changeset.events:
            if isinstance(event, AgentChanged):
                for patch in read_objects(self._space, (event.patch,)):
                    self._doom(references.mentioned(patch.body))
        for recipe in references.contexts_of(step.changeset):
            if self._recipes.add(recipe):
                for found in read_objects(self._space, (recipe,)):
                    self._doom(references.mentioned(found.body))
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
                self._save(references.of_changeset(decode_changeset(found.body)))
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
