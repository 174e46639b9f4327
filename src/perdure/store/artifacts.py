"""A thread's artifacts: bulky content by digest, by name and by the call whose result it is, streamed in and out.

A name of the form `collection/name` is committed: it leads to the artifact as of that commit, on this timeline and its
forks, until a later commit gives the name to another artifact.  Any other name is only a label in the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import UNSET

from perdure.engines import loops
from perdure.engines.loops import Attempts
from perdure.errors import Invalid, Moved, StaleHead
from perdure.history import artifacts, reader, writer
from perdure.history.artifacts import Listed, Piece, Preview, Staged
from perdure.history.changes.patch_builder import Ops
from perdure.history.space import Space, TimelineContext
from perdure.history.writer import CommitOutcome, Proposal
from perdure.model.digest import Digest, check_digest
from perdure.model.event import ArtifactCreated
from perdure.model.head import MAIN, Head
from perdure.store.plumbing import revisions
from perdure.store.plumbing.handles import blocking, deferred
from perdure.store.plumbing.revisions import Wanted
from perdure.store.plumbing.run_fence import commit_beside_run

if TYPE_CHECKING:
    from perdure.history import artifact_names
    from perdure.history.artifact_names import NamedArtifact
    from perdure.ledger import results
else:
    artifact_names = deferred("perdure.history.artifact_names")
    results = deferred("perdure.ledger.results")

__all__ = ["Artifacts"]

_SCHEME = "artifact://"
REFERENCE = "artifact://sha256/"  # the beginning of a reference by digest


@blocking
class Artifacts:
    """What a thread keeps beside its state: content of any size, named by digest."""

    def __init__(self, standing: TimelineContext) -> None:
        """Read and write the artifacts of a thread, with the names of one timeline."""
        self._standing = standing
        self._space = standing.space

    def put(
        self, content: Piece | Iterable[Piece], *, media_type: str | None = None, name: str | None = None
    ) -> Digest:
        """Store content, whole or in pieces, list it, and return its digest.  None detects the media type.

        A piece is bytes, a bytearray or a memoryview; encode text first.  A `name` such as "design/draft" is
        committed, and `artifact://design/draft` leads to the content from then on; any other name is its label in
        the list.
        """
        reader.head_to_move(self._space, self._standing.timeline)
        if name is None or not artifact_names.is_referable(name):
            return artifacts.put(self._space, _pieces(content), media_type=media_type, name=name)
        return self._named(artifacts.stage(self._space, _pieces(content), media_type=media_type), name)

    def get(self, reference: str, *, at: Wanted = UNSET) -> Iterator[bytes]:
        """Yield the content, piece by piece, each verified; raises `NotFound` at once if there is none.

        `reference` is a digest, `artifact://sha256/…` as the records of calls have it,
        `artifact://<collection>/<name>`, or `artifact://tool-results/<call>`.  `at` is the moment as of which a name
        is looked up; unset is now.
        """
        return artifacts.get(self._here(), self._resolved(reference, at))

    def show(self, reference: str, *, at: Wanted = UNSET) -> Listed:
        """Describe an artifact without reading its content: type, size, name, and its call, run and commit."""
        space, digest = self._here(), self._resolved(reference, at)
        known = artifacts.show(space, digest)
        commit = self._moment(at)
        if isinstance(known.name, str) and artifact_names.is_referable(known.name):
            for name, named in artifact_names.known_names(space, at=commit):
                if named.artifact == digest:
                    return _with_name(space, known, name, named, commit)
        found = results.provenance(space, digest)
        if found is None:
            return known
        return msgspec.structs.replace(known, call=found.call, run=found.run, commit=found.commit)

    def ls(self, *, calls: bool = False) -> Iterator[Listed]:
        """Yield the listed artifacts, sorted by digest; with `calls` the results of calls too."""
        space, commit = self._here(), self._moment(UNSET)
        named = {each.artifact: (name, each) for name, each in artifact_names.known_names(space, at=commit)}
        listed = loops.pages(
            lambda after, limit: artifacts.ls(space, after=after, limit=limit), "", lambda each: each.digest
        )
        for each in listed:
            found = named.get(each.digest)
            yield _with_name(space, each, *found, commit) if found else each
        if calls:
            yield from self._results()

    def names(self, *, at: Wanted = UNSET) -> dict[str, Digest]:
        """Return the names on this timeline, such as "design/draft", with their digests at a moment; unset is now."""
        return {
            name: each.artifact
            for name, each in artifact_names.known_names(self._here(), at=self._moment(at))
        }

    def resolve(self, reference: str, *, at: Wanted = UNSET) -> Digest:
        """Return the digest that a reference names at a moment; raises `NotFound`, also for another thread's."""
        digest = self._resolved(reference, at)
        artifacts.show(self._here(), digest)
        return digest

    def preview(self, reference: str, *, bytes_max: int = 2_000, at: Wanted = UNSET) -> Preview:
        """Return what a model is shown of an artifact: the beginning of a text, its media type and its size."""
        return artifacts.preview(self._here(), self._resolved(reference, at), bytes_max=bytes_max)

    def _here(self) -> Space:
        """Return the space; raises `NotFound` if the thread was removed."""
        reader.head_of(self._space, MAIN)
        return self._space

    def _moment(self, at: Wanted) -> Digest | None:
        head = reader.head_of(self._space, self._standing.timeline)
        return head.commit if at is UNSET else revisions.resolve(self._space, head, at)

    def _resolved(self, reference: str, at: Wanted) -> Digest:
        if not isinstance(reference, str) or not reference.startswith(_SCHEME):  # pyright: ignore[reportUnnecessaryIsInstance]
            return check_digest(reference)
        return results.resolve(self._here(), reference, at=self._moment(at))

    def _results(self) -> Iterator[Listed]:
        for record, digest in results.results(self._space):
            whole = artifacts.show(self._space, digest)
            origin = results.of_call(self._space, record)
            yield msgspec.structs.replace(
                whole,
                name=f"tool-results/{record.id}",
                at=record.at,
                call=record.id,
                run=record.run,
                commit=origin.commit,
            )

    def _named(self, staged: Staged, name: str) -> Digest:
        """Commit a name for a staged artifact, on top of the newest commit of the timeline."""
        op_id = self._space.ids()

        def commit(space: Space, head: Head, proposals: Sequence[Proposal]) -> CommitOutcome:
            return writer.commit(space, head, *proposals, op_id=op_id, repeatable=False)

        attempts = Attempts(f"timeline '{self._standing.timeline}'", f"artifact {name} was not kept")
        while True:
            attempts.begin()
            head = reader.head_to_move(self._space, self._standing.timeline)
            proposal = self._proposal(head, staged, name)
            try:
                commit_beside_run(self._space, head, (proposal,), commit)
            except (StaleHead, Moved):
                for cell in staged.cells:
                    artifacts.check_upload(self._space, cell)
            else:
                return staged.digest

    def _proposal(self, head: Head, staged: Staged, name: str) -> Proposal:
        space, whole = self._space, staged.artifact
        ops = Ops(space, space.root_at(head.commit))
        depth = 0 if head.commit is None else space.step(head.commit).commit.depth + 1
        named = artifact_names.NamedArtifact(
            artifact=staged.digest,
            media_type=whole.media_type,
            size=whole.size,
            sha256=whole.sha256,
            at=space.clock(),
            depth=depth,
        )
        artifact_names.let_name(ops, name, named)
        patched = ops.finish()
        event = ArtifactCreated(
            id=space.ids(), artifact=staged.digest, media_type=whole.media_type, size=whole.size, name=name
        )
        listed = artifacts.listing(space, staged, name=name)
        return Proposal(
            reason="artifact",
            root=patched.root,
            patch=patched.patch,
            events=(event,),
            minted=frozenset((event.id,)),
            objects=(*staged.objects, *patched.objects),
            cells=(*staged.cells, *patched.cells, *((listed,) if listed else ())),
            outside=self._standing.sight(head).reads,
        )


def _with_name(space: Space, known: Listed, name: str, named: NamedArtifact, commit: Digest | None) -> Listed:
    written = artifact_names.written_by(space, named, at=commit)
    run = space.step(written).commit.run if written else None
    return msgspec.structs.replace(known, name=name, run=run, commit=written)


def _pieces(content: Piece | Iterable[Piece]) -> Iterable[Piece]:
    if isinstance(content, bytes | bytearray):
        return (content,)
    if isinstance(content, memoryview):
        return (cast("memoryview", content),)
    if not isinstance(content, Iterable) or isinstance(content, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"content is bytes, or pieces of them, not {type(content).__name__}; it was not kept.",
            code="content_not_bytes",
            advice="Encode text first, or open its file in binary mode.",
            type=type(content).__name__,
        )
    return content
