"""Verifies a store space by space: its objects, its commits and its timelines.

One pass reads everything in the order in which it was written, a page at a time.

Objects: the engine hashes each as it reads it, and everything that it names must be stored.

Commits: each must follow from its parent by its own changeset.  The state root is computed again
from the parent's root and the patch, from recorded digests alone; by induction from the empty map
this also proves that every tree has the one shape that the rule gives it.  The nodes that are computed
name only what the parent's nodes and the patch name, so they are looked up and not read.  Document ops
are run again if their values still exist.

Timelines: every head must be where its moves, applied one after another, lead.

A check covers what was stored when it began.  So it ends, however fast others write.

The module has one importer, its package, which is the door for the ledger's checks and for tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import islice

import msgspec

from perdure.engines import paging, shared_rules
from perdure.engines.contract import Engine, Fact, Hold
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
    Changeset,
    Commit,
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
from perdure.model.patch import Edit, Patch
from perdure.model.recipe import decode_recipe, needs

__all__ = ["verify", "CommitChecker", "MoveChecker", "ObjectChecker", "check_lines", "check_objects"]


_TREE_FAULTS_MAX = 100
_COMMITS_MAX = 4_096


class CommitChecker:
    """Checks commits one by one, in whatever order they are stored."""

    def __init__(self, space: Space, findings: Findings) -> None:
        """Check commits of this space."""
        self._space, self._findings = space, findings
        # If no head can be read, the label of the space is unknown; that is reported elsewhere.
        self._is_unlabelled = space.name.startswith(THREADS) and space.label == space.name
        self._recent: dict[Digest, Commit] = {}  # commits that were checked a short while ago

    def check(self, digest: Digest, commit: Commit, changeset: Changeset | None) -> Sequence[Digest]:
        """Check one commit against its first parent; return the nodes that follow from its patch.

        `changeset` is its own if the engine has audited the commit; None: the engine is asked for both.
        Damage is reported, not raised.
        """
        with self._findings.watching("commit", digest=digest):
            if changeset is None:
                above, changeset = self._looked_up(digest, commit)
            else:
                above = self._parent(commit)
            self._check_place(digest, commit, changeset, above)
            if len(self._recent) >= _COMMITS_MAX:
                self._recent.clear()
            self._recent[digest] = commit
            return self._check_root(digest, commit, changeset.patch, above.root if above else EMPTY)
        return ()

    def _parent(self, commit: Commit) -> Commit | None:
        first = commit.first_parent
        if first is None:
            return None
        return self._recent.get(first) or self._space.engine.steps(self._space.name, first, limit=1)[0].commit

    def _looked_up(self, digest: Digest, commit: Commit) -> tuple[Commit | None, Changeset]:
        """Return the parent and the changeset, as the engine finds them from the commit, which must be in its place."""
        steps = self._space.engine.steps(self._space.name, digest, limit=2)
        step, parent = steps[0], steps[1] if len(steps) > 1 else None
        if step.digest != digest or step.commit != commit:
            raise Corrupt("it is not found at its own place on its line")
        if commit.parents[:1] != ((parent.digest,) if parent else ()):
            self._fault(digest, "the commit before it on its line is not its first parent")
        if commit.depth == (parent.commit.depth + 1 if parent else 0):  # else it has no place
            above = (parent.place, parent.commit.run) if parent else None
            events = len(parent.changeset.events) if parent else 0
            if step.place != shared_rules.placed(commit, above, events):
                self._fault(digest, "the index places it elsewhere on its line")
        return parent.commit if parent else None, step.changeset

    def _check_place(
        self, digest: Digest, commit: Commit, changeset: Changeset, parent: Commit | None
    ) -> None:
        if commit.thread != self._space.label and not self._is_unlabelled:
            self._fault(digest, f"it belongs to '{commit.thread}', not to '{self._space.label}'")
        if commit.depth != (parent.depth + 1 if parent else 0):
            self._fault(digest, f"it says depth {commit.depth}, which is not one more than its parent's")
        elif (changeset.reason, changeset.run_id) != (commit.reason, commit.run):
            self._fault(digest, "its reason or run is not that of its changeset")

    def _check_root(self, digest: Digest, commit: Commit, patch: Patch, before: Digest) -> Sequence[Digest]:
        is_edited = any([isinstance(op, Edit) for op in patch.ops])
        try:
            root, nodes = patch_builder.replay(self._space, before, patch) if patch.ops else (before, ())
            faults = patch_builder.document_faults(self._space, before, patch) if is_edited else []
        except (Forgotten, Corrupt):
            self._findings.skip()  # forgotten; or damaged, which is reported with the object
            return ()
        if root != commit.root:
            self._fault(digest, f"its patch leads to the state {root}, but it says {commit.root}")
            for fault in islice(check(self._space.nodes, commit.root), _TREE_FAULTS_MAX):
                self._findings.add("node", fault.why, digest=fault.digest)
            return ()
        for fault in faults:
            self._fault(digest, fault)
        # A changeset does not name the documents that edits leave: nodes that may name such a one are read.
        return () if is_edited else [node.digest for node in nodes]

    def _fault(self, digest: Digest, what: str) -> None:
        self._findings.add("commit", what, digest=digest)


_NAMED_MAX = 2_000
_KNOWN_MAX = 50_000


class ObjectChecker:
    """Checks a space page by page, in the order in which it is stored.

    Everything of a page is known before anything in it is checked: nearly everything that an object names was
    written with it, or a short while before.  What is not is looked up, in batches.
    """

    def __init__(self, space: Space, findings: Findings, moves: MoveChecker) -> None:
        """Check objects of this space, and report its moves to `moves`."""
        self._space, self._findings, self._moves = space, findings, moves
        self._commits = CommitChecker(space, findings)
        self.commits = 0
        self._named: dict[Digest, Object] = {}  # digests, and an object that names them
        self._ledgers: dict[int, tuple[Digest | None, Digest]] = {}  # read positions, chains, and commits
        self._shown: dict[Digest, Object] = {}  # bodies that are recipes of contexts, and what names them
        self._recipes: set[Digest] = set()  # those that were read
        # In two generations: what is named is mostly young.
        self._known: set[Digest] = set()
        self._before: set[Digest] = set()

    def take(self, page: Sequence[Fact]) -> None:
        """Check one page."""
        self._findings.count_all(Counter([fact.kind for fact in page]))
        if len(self._known) > _KNOWN_MAX:
            self._known, self._before = set(), self._known
        self._known.update([fact.digest for fact in page if fact.digest is not None and fact.fault is None])
        said: dict[Digest, None] = {}
        changesets: dict[Digest, Changeset] = {}
        derived: set[Digest] = set()  # nodes that follow from the parent's map and the patch
        for fact in page:
            found = fact.object
            if fact.fault is not None:
                self._findings.add(fact.kind, fact.fault, digest=fact.digest)
            elif found is None or found.kind is Kind.NODE or found.kind in _OPAQUE:
                continue
            else:
                with self._findings.watching(fact.kind, digest=fact.digest):
                    if found.kind is Kind.CHANGESET:
                        changesets[found.digest] = self._changeset(found, said)
                    elif found.kind is Kind.COMMIT:
                        derived.update(self._commit(found, changesets if fact.audited else {}))
                    elif found.kind is Kind.MOVE:
                        self._move(found, is_audited=fact.audited)
                    else:
                        self._artifact(found, decode_artifact(found.body))
        for fact in page:
            found = fact.object
            if found is not None and found.kind is Kind.NODE and found.digest not in derived:
                with self._findings.watching(fact.kind, digest=fact.digest):
                    children, values = refs(found.body)
                    self._name(found, (*children, *values))
        self._read_messages(said, page)
        self.flush()

    def flush(self) -> None:
        """Look up everything that was named and not looked up yet."""
        self._read_recipes()
        self._check_ledgers()
        named, self._named = self._named, {}
        if not named:
            return
        missing = self._missing(named)
        self._known.update(named.keys() - set(missing))
        for digest in missing:
            by = named[digest]
            self._findings.add(by.kind, f"it names {digest}, which is missing", digest=by.digest)

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

    def _name(self, by: Object, digests: Iterable[Digest]) -> None:
        known, before = self._known, self._before
        for digest in digests:
            if digest not in known and digest not in before and digest != EMPTY:
                self._named[digest] = by
        if len(self._named) > _NAMED_MAX:
            self.flush()

    def _changeset(self, found: Object, said: dict[Digest, None]) -> Changeset:
        record = found.record
        changeset = record if isinstance(record, Changeset) else decode_changeset(found.body)
        for event in changeset.events:
            if isinstance(event, MessageAppended):
                said[event.body] = None
                if event.context is not None:
                    self._shown[event.context] = found
        self._name(found, stored_objects.of_changeset(changeset))
        return changeset

    def _commit(self, found: Object, changesets: dict[Digest, Changeset]) -> Sequence[Digest]:
        """Check a commit; return the nodes that follow from its patch."""
        self.commits += 1
        record = found.record
        commit = record if isinstance(record, Commit) else decode_commit(found.body)
        self._name(found, (*commit.parents, commit.changeset, commit.root))
        if commit.ledger.position:
            at = self._ledgers.setdefault(commit.ledger.position, (commit.ledger.chain, found.digest))
            if at[0] != commit.ledger.chain:
                self._wrong_chain(found.digest, commit.ledger.position)
        nodes = self._commits.check(found.digest, commit, changesets.get(commit.changeset))
        self._name(found, nodes)
        return nodes

    def _check_ledgers(self) -> None:
        """Check that the ledger has the positions and chains that commits recorded."""
        ledgers, self._ledgers = self._ledgers, {}
        engine, name = self._space.engine, self._space.name
        low, high = min(ledgers, default=1), max(ledgers, default=0)
        chains: dict[int, Digest] = {}
        if 0 <= high - low <= _LEDGER_SPAN_MAX:
            with suppress(Corrupt):  # then each is read alone
                chains = {
                    each.position: each.chain
                    for each in engine.entries(name, after=low - 1, limit=high - low + 1)
                }
        for position, (chain, commit) in ledgers.items():
            if chains.get(position) == chain:
                continue
            with self._findings.watching("commit", digest=commit):
                entries = engine.entries(name, after=position - 1, limit=1)
                if not entries or (entries[0].position, entries[0].chain) != (position, chain):
                    self._wrong_chain(commit, position)

    def _wrong_chain(self, commit: Digest, position: int) -> None:
        what = f"it read the ledger at position {position}, where the ledger has another chain"
        self._findings.add("commit", what, digest=commit)

    def _read_messages(self, said: dict[Digest, None], page: Sequence[Fact]) -> None:
        """Check that what changesets call messages can be read as such; missing ones are reported elsewhere."""
        for fact in page:
            found = fact.object
            if found is not None and found.kind is Kind.BODY and found.digest in said:
                del said[found.digest]
                try:
                    decode_message(found.body)
                except Corrupt as error:
                    self._findings.add(Kind.BODY, str(error), digest=found.digest)
        for digest in said:
            body = self._body(digest)
            if body is not None:
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

    def _move(self, found: Object, *, is_audited: bool) -> None:
        record = found.record
        move = record if isinstance(record, MoveRecord) else decode_move(found.body)
        if move.to is not None:
            self._name(found, (move.to,))
        self._moves.take(move, found.digest, is_audited=is_audited)

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
_LEDGER_SPAN_MAX = 4_000
_OPAQUE = frozenset((Kind.VALUE, Kind.BODY, Kind.ENTRY, Kind.CHECKPOINT))
_LINES_MAX = 10_000


class MoveChecker:
    """Follows the moves of each timeline in the order in which they were written."""

    def __init__(self, space: Space) -> None:
        """Begin before the first move of each timeline."""
        self._space = space
        self._last: dict[
            str, tuple[MoveRecord, Digest]
        ] = {}  # by timeline: where the chain has been followed to
        self._broken: set[str] = set()  # timelines that must be read move by move
        self._versions: dict[str, int] = {}  # of timelines when last read

    def take(self, move: MoveRecord, digest: Digest, *, is_audited: bool) -> None:
        """Follow one move; raise `Corrupt` if the version of its timeline is lower."""
        name = move.timeline
        before = self._last.get(name)
        if before is None:
            follows = _is_first(move) and len(self._last) < _LINES_MAX
        else:
            follows = _pair_fault(before[0], before[1], move) is None
        if is_audited and follows and name not in self._broken:
            self._last[name] = move, digest
        elif len(self._broken) < _LINES_MAX:
            self._broken.add(name)
            self._last.pop(name, None)
        if self._versions.get(name, -1) < move.version:
            hold = self._space.engine.hold(self._space.name, name)
            if len(self._versions) > _NAMED_MAX:
                self._versions.clear()
            self._versions[name] = hold.head.version if hold else -1
        if self._versions[name] < move.version:
            raise Corrupt(
                f"timeline '{name}' does not stand where version {move.version} took it, nor after that"
            )

    def last(self, timeline: str) -> tuple[MoveRecord, Digest] | None:
        """Return the last move of a timeline up to which all were found to be right; None: none was."""
        return None if timeline in self._broken else self._last.get(timeline)


def check_lines(space: Space, scanned: ScannedObjects, findings: Findings) -> None:
    """Check every timeline that the space lists; where the list cannot be read, every one that has moves."""
    after = ""
    try:
        for hold in paging.holds(space.engine, space.name):
            after = hold.head.timeline
            _check_timeline(space, after, scanned, findings)
    except Corrupt as error:
        findings.add("head", f"{error} So timelines cannot be listed.", name=f"after '{after}'")
        _check_by_moves(space, scanned, findings)


def _check_by_moves(space: Space, scanned: ScannedObjects, findings: Findings) -> None:
    """Check every timeline whose first move is stored."""
    for page in pages(space.engine, space.name, upto=scanned.standing):
        for fact in page:
            if fact.kind == Kind.MOVE and fact.object is not None:
                with findings.watching("move", digest=fact.digest):
                    move = decode_move(fact.object.body)
                    if move.previous is None:
                        _check_timeline(space, move.timeline, scanned, findings)


def _check_timeline(space: Space, timeline: str, scanned: ScannedObjects, findings: Findings) -> None:
    """Check one head against all its moves, the newest first."""
    findings.count("head")
    with findings.watching("head", name=timeline):
        hold = space.engine.hold(space.name, timeline)
        if hold is None:
            raise NotFound("it has moved, but its head is not recorded")
        _check_tip(space, hold, scanned, findings)
        _check_moves(space, hold, scanned.moves.last(timeline), findings)


def _check_tip(space: Space, hold: Hold, scanned: ScannedObjects, findings: Findings) -> None:
    """Check that the line can be read from its head to its first commit."""
    if hold.head.commit is None:
        return
    tip = space.engine.steps(space.name, hold.head.commit, limit=1)[0]
    if tip.commit.depth >= scanned.commits:
        stored = scanned.commits + _commits_since(space, scanned.standing)
        if tip.commit.depth >= stored:
            what = f"its line has {tip.commit.depth + 1} commits, but only {stored} were found in storage"
            findings.add("head", what, name=hold.head.timeline)
    first = space.engine.steps(space.name, hold.head.commit, skip=tip.commit.depth, limit=2)
    if len(first) != 1 or first[0].commit.parents or first[0].commit.depth:
        findings.add("head", "its line does not begin where its depth says", name=hold.head.timeline)


def _commits_since(space: Space, standing: int) -> int:
    """Return how many commits were stored after the space had that standing."""
    now = space.engine.standing(space.name)
    since = pages(space.engine, space.name, after=standing, upto=now) if now > standing else ()
    return sum([fact.kind == Kind.COMMIT for page in since for fact in page])


def _check_moves(
    space: Space, hold: Hold, checked: tuple[MoveRecord, Digest] | None, findings: Findings
) -> None:
    """Check the moves of a timeline, the newest first, down to the one up to which they are checked already.

    Page by page and by hand, because damaged moves may not count down and would never end.
    """
    newer: MoveRecord | None = None
    name = hold.head.timeline
    before, floor = hold.head.version + 1, -1
    if checked is not None and checked[0].version <= hold.head.version:
        floor = checked[0].version
    while before - 1 > floor and (
        page := space.engine.moves(space.name, name, before=before, limit=min(_PAGE, before - 1 - floor))
    ):
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
    if floor < 0 or checked is None:
        _check_first(hold, newer, findings)
    elif newer is None:
        _check_last(hold, checked[0], findings)
    else:
        _check_pair(checked[0], newer, findings)


def _check_last(hold: Hold, last: MoveRecord, findings: Findings) -> None:
    if (last.version, last.to, last.sealed) != (hold.head.version, hold.head.commit, hold.sealed):
        findings.add("head", "it is not where its last move left it", name=hold.head.timeline)
    if _address(last) != hold.move:
        findings.add("head", "it names another move as its last", name=hold.head.timeline)


def _check_pair(move: MoveRecord, newer: MoveRecord, findings: Findings) -> None:
    what = _pair_fault(move, _address(move), newer)
    if what:
        findings.add("move", what, digest=_address(newer), name=newer.timeline)


def _pair_fault(move: MoveRecord, digest: Digest, newer: MoveRecord) -> str | None:
    """Return why `newer` cannot come right after `move`, which has this digest; None if it can."""
    if newer.version != move.version + 1:
        return f"version {newer.version} comes after version {move.version}"
    if newer.from_ != move.to:
        return f"version {newer.version} does not begin where version {move.version} ended"
    if newer.previous != digest:
        return f"version {newer.version} names another move as the one before it"
    if move.sealed:
        return f"it moved on to version {newer.version} after it was sealed"
    return None


def _check_first(hold: Hold, first: MoveRecord | None, findings: Findings) -> None:
    """Check that the chain of moves begins with version 1 of `main`, 0 of any other timeline."""
    name = hold.head.timeline
    if first is None:
        if hold.head.version or hold.move:
            findings.add("head", "none of its moves is recorded", name=name)
    elif not _is_first(first):
        findings.add("head", f"its moves go back to version {first.version} only", name=name)


def _is_first(move: MoveRecord) -> bool:
    begun = 1 if move.timeline == MAIN else 0
    return move.version == begun and move.previous is None and move.from_ is None


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
    """Check everything that `spaces` held when their check began, all of them if None.

    `books` yields, for a space, which cells or entries contradict its ledger, and how; None skips that check.
    `progress` is called now and then with the space and the number of checks so far.
    Raises `Unavailable` if the store cannot be read at all.
    """
    findings = Findings(progress)
    names: list[str] = []
    with findings.watching("store"):
        # All names first: a writer that begins threads all the time must not keep the check from ending.
        names.extend(paging.spaces(engine) if spaces is None else spaces)
    for name in names:
        with findings.watching("store"):
            findings.space = name
            space = _reading(engine, name, findings)
            _verify_space(space, findings)
            if books is not None:
                _check_books(space, books, findings)
        findings.space = STORE
    return findings.report()


class ScannedObjects(msgspec.Struct, frozen=True):
    """What a scan of a space has found."""

    standing: int  # of the space when the scan began: everything up to there was checked
    commits: int
    moves: MoveChecker


def check_objects(space: Space, findings: Findings) -> ScannedObjects:
    """Check everything that is stored for the space now; what is written from now on is left to the next check."""
    moves = MoveChecker(space)
    checker = ObjectChecker(space, findings, moves)
    standing = space.engine.standing(space.name)
    with findings.watching("space", name=space.name):
        for page in pages(space.engine, space.name, upto=standing):
            checker.take(page)
            findings.tell()
    return ScannedObjects(standing, checker.commits, moves)


def _verify_space(space: Space, findings: Findings) -> None:
    findings.count("space")
    scanned = check_objects(space, findings)
    check_lines(space, scanned, findings)
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
