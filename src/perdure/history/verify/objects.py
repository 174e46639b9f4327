"""Checking objects: each is hashed again, decoded, and everything that it names must be there.

One pass over what is stored, a page at a time; what is named is asked for in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from perdure.engines.contract import Fact
from perdure.errors import Corrupt, NotFound
from perdure.history import references
from perdure.history.scan import pages
from perdure.history.space import Space
from perdure.history.tree import EMPTY, refs
from perdure.history.verify.commits import Commits
from perdure.history.verify.report import Findings
from perdure.model.artifact import Artifact, decode_artifact
from perdure.model.changeset import decode_changeset
from perdure.model.commit import MoveRecord, decode_commit, decode_move
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import MessageAppended
from perdure.model.message import decode_message
from perdure.model.recipe import decode_recipe, needs

__all__ = ["check_objects"]

_NAMED_MAX = 2_000
_KNOWN_MAX = 50_000


def check_objects(space: Space, findings: Findings) -> int:
    """Check everything that is stored for the space; the number of commits that came by."""
    checker = _Checker(space, findings)
    with findings.watching("space", name=space.name):
        for page in pages(space.engine, space.name):
            for fact in page:
                checker.take(fact)
            checker.flush()
            findings.tell()
    return checker.commits


class _Checker:
    """Takes facts, and gathers what they name to ask for it in one question."""

    def __init__(self, space: Space, findings: Findings) -> None:
        self._space, self._findings = space, findings
        self._commits = Commits(space, findings)
        self.commits = 0
        self._versions: dict[str, int] = {}  # where timelines stood when last asked
        self._named: dict[Digest, Object] = {}  # digests, and an object that names them
        self._said: set[Digest] = set()  # bodies that are messages
        self._shown: dict[Digest, Object] = {}  # bodies that are recipes of contexts, and what names them
        self._recipes: set[Digest] = set()  # those that were read
        # Nodes name much the same again and again, so what was found is remembered, in two generations.
        self._known: set[Digest] = set()
        self._before: set[Digest] = set()

    def take(self, fact: Fact) -> None:
        """Check one stored thing."""
        self._findings.count(fact.kind)
        if fact.fault is not None:
            self._findings.add(fact.kind, fact.fault, digest=fact.digest)
        elif fact.object is not None:
            with self._findings.watching(fact.kind, digest=fact.digest):
                self._check(fact.object)

    def flush(self) -> None:
        """Ask for everything that was named and not asked for yet."""
        self._read_recipes()
        named, self._named = self._named, {}
        missing = self._missing(named)
        if len(self._known) > _KNOWN_MAX:
            self._known, self._before = set(), self._known
        self._known.update(named.keys() - set(missing))
        for digest in missing:
            by = named[digest]
            self._findings.add(by.kind, f"it names {digest}, which is missing", digest=by.digest)
        self._read_messages()

    def _missing(self, named: dict[Digest, Object]) -> Sequence[Digest]:
        """Those that are not there; where a look-up meets damage, the others are still looked up."""
        try:
            return self._space.engine.missing(self._space.name, list(named))
        except Corrupt:
            missing: list[Digest] = []
            for digest, by in named.items():
                with self._findings.watching(by.kind, digest=by.digest):
                    missing += self._space.engine.missing(self._space.name, (digest,))
            return missing

    def _check(self, found: Object) -> None:
        if digest_of(found.kind, found.body) != found.digest:
            raise Corrupt("its bytes do not match its digest")
        match found.kind:
            case Kind.NODE:
                children, values = refs(found.body)
                self._name(found, (*children, *values))
            case Kind.CHANGESET:
                self._changeset(found)
            case Kind.COMMIT:
                self._commit(found)
            case Kind.MOVE:
                self._move(decode_move(found.body))
            case Kind.ARTIFACT:
                self._artifact(found, decode_artifact(found.body))
            case Kind.VALUE | Kind.BODY | Kind.ENTRY | Kind.CHECKPOINT:
                pass

    def _name(self, by: Object, digests: Iterable[Digest]) -> None:
        for digest in set(digests) - self._known - self._before - {EMPTY}:
            self._named[digest] = by
        if len(self._named) > _NAMED_MAX:
            self.flush()

    def _changeset(self, found: Object) -> None:
        changeset = decode_changeset(found.body)
        self._said.update(event.body for event in changeset.events if isinstance(event, MessageAppended))
        self._shown |= dict.fromkeys(references.contexts_of(changeset), found)
        self._name(found, references.of_changeset(changeset))

    def _read_messages(self) -> None:
        """Check that what changesets call messages can be read as such; what is not there is reported elsewhere."""
        said, self._said = list(self._said), set[Digest]()
        try:
            bodies = dict(zip(said, self._space.nodes(said), strict=True))
        except (NotFound, Corrupt):
            bodies = {digest: body for digest in said if (body := self._body(digest)) is not None}
        for digest, body in bodies.items():
            with self._findings.watching(Kind.BODY, digest=digest):
                decode_message(body)

    def _read_recipes(self) -> None:
        """Check that what models were shown can be made again: each recipe is read once, and names what is there."""
        shown, self._shown = self._shown, {}
        if len(self._recipes) > _KNOWN_MAX:
            self._recipes.clear()
        for digest in shown.keys() - self._recipes:
            self._recipes.add(digest)
            body = self._body(digest)
            if body is not None:
                with self._findings.watching(Kind.BODY, digest=digest):
                    for needed in needs(decode_recipe(body)):
                        self._named[needed] = shown[digest]

    def _body(self, digest: Digest) -> bytes | None:
        try:
            return self._space.body(digest)
        except (NotFound, Corrupt):
            return None

    def _commit(self, found: Object) -> None:
        self.commits += 1
        commit = decode_commit(found.body)
        self._name(found, (*commit.parents, commit.changeset, commit.root))
        self._commits.check(found.digest, commit)

    def _move(self, move: MoveRecord) -> None:
        """Check that the timeline has come at least as far as this move took it."""
        name = move.timeline
        if self._versions.get(name, -1) < move.version:
            hold = self._space.engine.hold(self._space.name, name)
            if len(self._versions) > _NAMED_MAX:
                self._versions.clear()
            self._versions[name] = hold.head.version if hold else -1
        if self._versions[name] < move.version:
            raise Corrupt(
                f"timeline '{name}' does not stand where version {move.version} took it, nor after that"
            )

    def _artifact(self, found: Object, whole: Artifact) -> None:
        """Check the content as a whole, chunk by chunk."""
        self._name(found, whole.chunks)
        plain, size = sha256(), 0
        for chunk in whole.chunks:
            body = self._space.body(chunk)
            plain.update(body)
            size += len(body)
        if (size, plain.hexdigest()) != (whole.size, whole.sha256):
            raise Corrupt(f"its chunks make {size} bytes with SHA-256 {plain.hexdigest()}, not what it says")
