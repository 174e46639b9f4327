"""Verifies a store space by space: its objects, its commits and its timelines.

Objects: each is hashed again and decoded, and everything that it names must be stored.  One pass
reads what is stored, a page at a time, and looks up the named digests in batches.

Commits: each must follow from its parent by its own changeset.  The state root is computed again
from the parent's root and the patch, from recorded digests alone; by induction from the empty map
this also proves that every tree has the one shape that the rule gives it.  Document ops are run
again if their values still exist.

Timelines: every head must be where its moves, applied one after another, lead.

The module has one importer, its package, which is the door for the ledger's checks and for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import islice

from perdure.engines import paging, shared_rules
from perdure.engines.contract import Engine, Fact, Hold, Step
from perdure.errors import Corrupt, Forgotten, NotFound
from perdure.history import stored_objects
from perdure.history.changes import patch_builder
from perdure.history.space import STORE, THREADS, Space, label_of
from perdure.history.stored_objects import pages
from perdure.history.tree import EMPTY, NodeCache, check, refs
from perdure.history.verify.records import check_cells, check_directory, check_ledger
from perdure.history.verify.report import DAMAGE, Findings, VerifyReport
from perdure.model.artifact import Artifact, decode_artifact
from perdure.model.commit import (
    Commit,
    LedgerRead,
    MoveRecord,
    decode_changeset,
    decode_commit,
    decode_move,
    encode_move,
)
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN
from perdure.model.message import decode_message
from perdure.model.patch import Edit
from perdure.model.recipe import decode_recipe, needs

__all__ = ["verify", "CommitChecker", "check_objects", "check_lines"]


_TREE_FAULTS_MAX = 100


class CommitChecker:
    """Checks commits one by one, in whatever order they are stored."""

    def __init__(self, space: Space, findings: Findings) -> None:
        """Check commits of this space."""
        self._space, self._findings = space, findings
        # If no head can be read, the label of the space is unknown; that is reported elsewhere.
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
        if step.place != shared_rules.placed(commit, above, events):
            self._fault(step, "the index places it elsewhere on its line")

    def _check_ledger(self, step: Step) -> None:
        """Check that the ledger has the position and chain that the commit recorded."""
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
            root = patch_builder.apply(self._space, before, patch)
            edited = any(isinstance(op, Edit) for op in patch.ops)
            faults = patch_builder.document_faults(self._space, before, patch) if edited else []
        except (Forgotten, Corrupt):
            self._findings.skip()  # forgotten; or damaged, which is reported with the object
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


_NAMED_MAX = 2_000
_KNOWN_MAX = 50_000


def check_objects(space: Space, findings: Findings) -> int:
    """Check everything that is stored for the space; return the number of commits."""
    checker = _Checker(space, findings)
    with findings.watching("space", name=space.name):
        for page in pages(space.engine, space.name):
            for fact in page:
                checker.take(fact)
            checker.flush()
            findings.tell()
    return checker.commits


class _Checker:
    """Checks facts, and collects what they name to look it up in batches."""

    def __init__(self, space: Space, findings: Findings) -> None:
        self._space, self._findings = space, findings
        self._commits = CommitChecker(space, findings)
        self.commits = 0
        self._versions: dict[str, int] = {}  # of timelines when last read
        self._named: dict[Digest, Object] = {}  # digests, and an object that names them
        self._said: set[Digest] = set()  # bodies that are messages
        self._shown: dict[Digest, Object] = {}  # bodies that are recipes of contexts, and what names them
        self._recipes: set[Digest] = set()  # those that were read
        # Nodes mostly name the same objects, so found digests are remembered, in two generations.
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
        """Look up everything that was named and not looked up yet."""
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
        """Return those that are not stored; if one look-up meets damage, the others are still looked up."""
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
        self._shown |= dict.fromkeys(stored_objects.contexts_of(changeset), found)
        self._name(found, stored_objects.of_changeset(changeset))

    def _read_messages(self) -> None:
        """Check that what changesets call messages can be read as such; missing ones are reported elsewhere."""
        said, self._said = list(self._said), set[Digest]()
        try:
            bodies = dict(zip(said, self._space.nodes(said), strict=True))
        except (NotFound, Corrupt):
            bodies = {digest: body for digest in said if (body := self._body(digest)) is not None}
        for digest, body in bodies.items():
            with self._findings.watching(Kind.BODY, digest=digest):
                decode_message(body)

    def _read_recipes(self) -> None:
        """Check that past prompts can be rebuilt: each recipe is read once, and what it names must be stored."""
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
        """Check that the version of the timeline is at least that of this move."""
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


_PAGE = 200


def check_lines(space: Space, commits: int, findings: Findings) -> None:
    """Check every timeline that the space lists; where the list cannot be read, every one that has moves.

    `commits` is the number of commits found in storage: no line can have more.
    """
    after = ""
    try:
        for hold in paging.holds(space.engine, space.name):
            after = hold.head.timeline
            _check_timeline(space, after, commits, findings)
    except Corrupt as error:
        findings.add("head", f"{error} So timelines cannot be listed.", name=f"after '{after}'")
        _check_by_moves(space, commits, findings)


def _check_by_moves(space: Space, commits: int, findings: Findings) -> None:
    """Check every timeline whose first move is stored."""
    for page in pages(space.engine, space.name):
        for fact in page:
            if fact.kind == Kind.MOVE and fact.object is not None:
                with findings.watching("move", digest=fact.digest):
                    move = decode_move(fact.object.body)
                    if move.previous is None:
                        _check_timeline(space, move.timeline, commits, findings)


def _check_timeline(space: Space, timeline: str, commits: int, findings: Findings) -> None:
    """Check one head against all its moves, the newest first."""
    findings.count("head")
    with findings.watching("head", name=timeline):
        hold = space.engine.hold(space.name, timeline)
        if hold is None:
            raise NotFound("it has moved, but its head is not recorded")
        _check_tip(space, hold, commits, findings)
        _check_moves(space, hold, findings)


def _check_tip(space: Space, hold: Hold, commits: int, findings: Findings) -> None:
    """Check that the line can be read from its head to its first commit."""
    if hold.head.commit is None:
        return
    tip = space.engine.steps(space.name, hold.head.commit, limit=1)[0]
    if tip.commit.depth >= commits and tip.commit.depth >= (stored := _stored_commits(space)):
        what = f"its line has {tip.commit.depth + 1} commits, but only {stored} were found in storage"
        findings.add("head", what, name=hold.head.timeline)
    first = space.engine.steps(space.name, hold.head.commit, skip=tip.commit.depth, limit=2)
    if len(first) != 1 or first[0].commit.parents or first[0].commit.depth:
        findings.add("head", "its line does not begin where its depth says", name=hold.head.timeline)


def _stored_commits(space: Space) -> int:
    """Return how many commits are stored now: some may have been written since the first count."""
    return sum(fact.kind == Kind.COMMIT for page in pages(space.engine, space.name) for fact in page)


def _check_moves(space: Space, hold: Hold, findings: Findings) -> None:
    """Check all moves page by page; by hand, because damaged moves may not count down and would never end."""
    newer: MoveRecord | None = None
    name = hold.head.timeline
    before = hold.head.version + 1
    while page := space.engine.moves(space.name, name, before=before, limit=_PAGE):
        if newer is None:
            _check_last(hold, page[0], findings)
        for move in page:
            if newer is not None:
                _check_pair(move, newer, findings)
            newer = move
        _check_targets(space, page, findings)
        if page[-1].version >= before:
            findings.add("head", "its moves do not count down", name=name)
            return
        before = page[-1].version
    _check_first(hold, newer, findings)


def _check_last(hold: Hold, last: MoveRecord, findings: Findings) -> None:
    if (last.version, last.to, last.sealed) != (hold.head.version, hold.head.commit, hold.sealed):
        findings.add("head", "it is not where its last move left it", name=hold.head.timeline)
    if _address(last) != hold.move:
        findings.add("head", "it names another move as its last", name=hold.head.timeline)


def _check_pair(move: MoveRecord, newer: MoveRecord, findings: Findings) -> None:
    what = None
    if newer.version != move.version + 1:
        what = f"version {newer.version} comes after version {move.version}"
    elif newer.from_ != move.to:
        what = f"version {newer.version} does not begin where version {move.version} ended"
    elif newer.previous != _address(move):
        what = f"version {newer.version} names another move as the one before it"
    elif move.sealed:
        what = f"it moved on to version {newer.version} after it was sealed"
    if what:
        findings.add("move", what, digest=_address(newer), name=newer.timeline)


def _check_first(hold: Hold, first: MoveRecord | None, findings: Findings) -> None:
    """Check that the chain of moves begins with version 1 of `main`, 0 of any other timeline."""
    name = hold.head.timeline
    begun = 1 if name == MAIN else 0
    if first is None:
        if hold.head.version or hold.move:
            findings.add("head", "none of its moves is recorded", name=name)
    elif first.version != begun or first.previous is not None or first.from_ is not None:
        findings.add("head", f"its moves go back to version {first.version} only", name=name)


def _check_targets(space: Space, moves: Sequence[MoveRecord], findings: Findings) -> None:
    targets = {move.to: move for move in moves if move.to}
    for target in space.engine.missing(space.name, list(targets)):
        move = targets[target]
        findings.add(
            "move",
            f"it leads to commit {target}, which is missing",
            digest=_address(move),
            name=move.timeline,
        )


def _address(move: MoveRecord) -> Digest:
    try:
        return digest_of(Kind.MOVE, encode_move(move))
    except DAMAGE:
        return Digest("")  # text that cannot be encoded was never stored as a move


_CACHE_BYTES = 16 * 1024 * 1024


def verify(
    engine: Engine,
    *,
    spaces: Iterable[str] | None = None,
    progress: Callable[[str, int], None] | None = None,
    books: Callable[[Space], Iterable[tuple[str, str]]] | None = None,
) -> VerifyReport:
    """Check everything that `spaces` hold, all of them if None.

    `books` yields, for a space, which cells or entries contradict its ledger, and how; None skips that check.
    `progress` is called now and then with the space and the number of checks so far.
    Raises `Unavailable` if the store cannot be read at all.
    """
    findings = Findings(progress)
    with findings.watching("store"):
        for name in paging.spaces(engine) if spaces is None else spaces:
            findings.space = name
            space = _reading(engine, name, findings)
            _verify_space(space, findings)
            if books is not None:
                _check_books(space, books, findings)
            findings.space = STORE
    return findings.report()


def _verify_space(space: Space, findings: Findings) -> None:
    findings.count("space")
    commits = check_objects(space, findings)
    check_lines(space, commits, findings)
    check_ledger(space, findings)
    check_cells(space, findings)
    with findings.watching("space", name=space.name):
        space.engine.check(space.name, again=True)
    check_directory(space, findings)
    findings.tell()


def _check_books(
    space: Space, books: Callable[[Space], Iterable[tuple[str, str]]], findings: Findings
) -> None:
    with findings.watching("ledger"):
        for name, what in books(space):
            findings.add("ledger", what, name=name)


def _reading(engine: Engine, name: str, findings: Findings) -> Space:
    """Return a space for reading: it has no clock and no ids, because verifying writes nothing."""
    label = name
    with findings.watching("space", name=name):
        label = label_of(engine, name)
    return Space(
        engine=engine, name=name, label=label, clock=lambda: 0, ids=str, cache=NodeCache(_CACHE_BYTES)
    )
