"""Verifies a store space by space: its objects, its commits and its timelines.

One pass reads everything in the order in which it was written, a page at a time.

Objects: the engine hashes each as it reads it, and everything that it names must be stored.

Commits: each must follow from its parent by its own changeset.  The state root is computed again
from the parent's root and the patch, from recorded digests alone; by induction from the empty map
this also proves that every tree has the one shape that the rule gives it.  The nodes that are computed
name only what the parent's nodes and the patch name, so they are looked up and not read.  Document ops
are run again if their values still exist.

Timelines, cells and ledgers: see `records`.

A check covers what was stored when it began.  So it ends, however fast others write.

The module has one importer, its package, which is the door for the ledger's checks and for tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import islice

import msgspec

from perdure.engines import loops, shared_rules
from perdure.engines.contract import Engine, Fact, Hold
from perdure.errors import Corrupt, Forgotten, NotFound, PerdureError
from perdure.history import stored_objects
from perdure.history.changes import patch_builder
from perdure.history.reader import DROPPED
from perdure.history.space import STORE, THREADS, Space, label_of, redactions, words_for
from perdure.history.stored_objects import standing_pages
from perdure.history.tree import EMPTY, NodeCache, check, refs
from perdure.history.verify.records import (
    BEGINNING,
    MoveChecker,
    ScannedObjects,
    SoundPoint,
    check_cells,
    check_directory,
    check_ledger,
    check_lines,
    checked_point,
)
from perdure.history.verify.report import DAMAGE, Fault, Findings, Progress, VerifiedPoint, VerifyReport
from perdure.model.artifact import Artifact, decode_artifact
from perdure.model.commit import (
    Changeset,
    Commit,
    LedgerRead,
    MoveRecord,
    decode_changeset,
    decode_commit,
    decode_move,
    unnumbered_after,
)
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import MessageAppended, ToolCallCompleted, ToolCallRequested
from perdure.model.head import MAIN
from perdure.model.lists import ListChild, ListNode, check_child, decode_node
from perdure.model.message import decode_message
from perdure.model.patch import Edit, Patch, Put
from perdure.model.recipe import decode_recipe, needs
from perdure.model.redaction import REDACTED, WHY

__all__ = ["verify"]


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
        counted = unnumbered_after(parent, commit.run, changeset.events) if self._space.is_thread else 0
        if commit.unnumbered != counted:
            self._fault(digest, f"it counts {commit.unnumbered} turns without a number, not {counted}")

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
        self._ledgers: dict[LedgerRead, list[Digest]] = {}  # what commits have read of the ledger
        self._shown: dict[Digest, Object] = {}  # bodies that are recipes of contexts, and what names them
        self._recipes: set[Digest] = set()  # those that were read
        self._children: set[tuple[int, ListChild]] = set()  # what list nodes say and was found to be true
        # In two generations: what is named is mostly young.
        self._redacted: set[Digest] = set()  # what redactions name, as far as it was asked for
        self._known: set[Digest] = set()
        self._before: set[Digest] = set()

    def take(self, page: Sequence[Fact]) -> None:
        """Check one page."""
        present = [fact.kind for fact in page if fact.object is not None or fact.fault is not None]
        self._findings.count_all(Counter(present))
        if len(present) < len(page):
            self._count_gone(page)
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
                    elif found.kind is Kind.LIST:
                        self._list(found, decode_node(found.body))
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

    def _count_gone(self, page: Sequence[Fact]) -> None:
        """Count what is gone, and report what is gone as if it had been redacted and no redaction names."""
        for fact in page:
            if fact.object is not None or fact.fault is not None:
                continue
            if not (fact.forgotten or "").startswith(WHY):
                self._findings.forgotten += 1
                continue
            self._findings.redacted += 1
            if fact.digest not in self._redacted:
                self._redacted = _redacted_in(self._space)  # one of them may be of now
            if fact.digest not in self._redacted:
                what = "it is gone as if a person had redacted it, and no redaction names it"
                self._findings.add(fact.kind, what, digest=fact.digest)

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
            self._ledgers.setdefault(commit.ledger, []).append(found.digest)
        nodes = self._commits.check(found.digest, commit, changesets.get(commit.changeset))
        self._name(found, nodes)
        return nodes

    def _check_ledgers(self) -> None:
        """Check that the ledger has the positions and chains that commits recorded."""
        ledgers, self._ledgers = self._ledgers, {}
        engine, name = self._space.engine, self._space.name
        positions = [read.position for read in ledgers]
        chains: dict[int, Digest] = {}
        if positions and max(positions) - min(positions) <= _LEDGER_SPAN_MAX:
            after, limit = min(positions) - 1, max(positions) - min(positions) + 1
            with suppress(Corrupt):  # then each is read alone
                chains = {
                    each.position: each.chain for each in engine.entries(name, after=after, limit=limit)
                }
        for read, commits in ledgers.items():
            for commit in () if chains.get(read.position) == read.chain else commits:
                with self._findings.watching("commit", digest=commit):
                    found = engine.entries(name, after=read.position - 1, limit=1)
                    if not found or (found[0].position, found[0].chain) != (read.position, read.chain):
                        what = f"it read the ledger at position {read.position}, where the ledger has another chain"
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
                    self._findings.add(Kind.BODY, error.message, digest=found.digest)
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

    def _list(self, found: Object, node: ListNode) -> None:
        """Check that the pieces or nodes below a list node are what it says of them."""
        self._name(found, [child.digest for child in node.children])
        if len(self._children) > _KNOWN_MAX:
            self._children.clear()
        new = {child.digest: child for child in node.children if (node.height, child) not in self._children}
        for child, below in zip(new.values(), self._space.objects(list(new)), strict=True):
            check_child(node, child, below)
            self._children.add((node.height, child))

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


_LEDGER_SPAN_MAX = 4_000
_OPAQUE = frozenset((Kind.VALUE, Kind.BODY, Kind.ENTRY, Kind.CHECKPOINT))


_CACHE_BYTES = 16 * 1024 * 1024
_HEADS_MAX = 256  # that the estimate of the work looks at
_STEPS_MAX = 500  # commits that are read at once


def verify(
    engine: Engine,
    *,
    spaces: Iterable[str] | None = None,
    since: Mapping[str, VerifiedPoint] | None = None,
    progress: Progress | None = None,
    books: Callable[[Space], Iterable[tuple[str, str]]] | None = None,
) -> VerifyReport:
    """Check everything that `spaces` held when their check began, all of them if None.

    `since` are points up to which an earlier check found spaces to be sound: what was written before them is not read
    again (None: everything is checked).  Cells, heads and the records of calls are checked in any case.
    `books` yields, for a space, which cells or entries contradict its ledger, and how; None skips that check.
    Raises `Unavailable` if the store cannot be read at all.
    """
    findings = Findings(progress)
    names: list[str] = []
    with findings.watching("store"):
        # All names first: a writer that begins threads all the time must not keep the check from ending.
        names.extend(loops.spaces(engine) if spaces is None else spaces)
        if spaces is None and STORE not in names:
            engine.check(STORE, again=True)  # it may be lost
    for name in sorted(set(since or ()).difference(names)) if spaces is None else ():
        findings.space = name
        findings.add("point", "the space that was verified is not in the store any more", name=name)
    findings.space = STORE
    weights = {name: _weight(engine, name) for name in names} if progress else {}
    findings.total = sum(weights.values())
    for name in names:
        with findings.watching("store"):
            findings.space = name
            space = _reading(engine, name, findings)
            _verify_space(space, (since or {}).get(name), weights.get(name, 0), books, findings)
        findings.space = STORE
    with findings.watching("file"):
        lost = engine.facts().get("lost")  # which reading all of it has found out
        if lost is not None:
            findings.add("file", f"a part of it is damaged and cannot be read; lost: {lost}")
    report = findings.report()
    places = {name: words_for(engine, name) for name in {fault.space for fault in report.faults}}
    named = [
        msgspec.structs.replace(
            fault,
            place="the store" if fault.kind == "file" else places[fault.space] + _turn_of(engine, fault),
        )
        for fault in report.faults
    ]
    return msgspec.structs.replace(report, faults=tuple(named))


def _turn_of(engine: Engine, fault: Fault) -> str:
    """Return in which turn and commit a damaged body or value was written, in words; empty if that is not known.

    Of a message, of the arguments or the result of a call, which is named, or of what a path held.  Never raises.
    """
    if fault.kind not in (Kind.BODY, Kind.VALUE, Kind.ARTIFACT) or fault.digest is None:
        return ""
    with suppress(PerdureError):
        for hold in sorted(
            engine.holds(fault.space, limit=_HEADS_MAX), key=partial(_place_in_search, engine, fault.space)
        ):
            at = hold.head.commit
            while at is not None:
                page = engine.steps(fault.space, at, limit=_STEPS_MAX)
                for step in page:
                    if fault.digest in stored_objects.of_changeset(step.changeset):
                        what = _written(step.changeset, fault.digest)
                        return (
                            f"{what}, turn {step.turn_number} of '{hold.head.timeline}', commit {step.digest}"
                        )
                at = page[-1].commit.first_parent
    return ""


def _place_in_search(engine: Engine, space: str, hold: Hold) -> int:
    """Return when a timeline is looked at for the place of a fault: main first, and what was dropped last."""
    if hold.head.timeline == MAIN:
        return 0
    with suppress(PerdureError):
        return 1 if engine.cell(space, DROPPED + hold.head.timeline) is None else 2
    return 1


def _written(changeset: Changeset, digest: Digest) -> str:
    """Return the call, or the path, whose arguments, result or value a changeset stored under this digest, in words."""
    for event in changeset.events:
        match event:
            case ToolCallRequested(args=args) if args == digest:
                return f", the arguments of call {event.call} ({event.tool})"
            case ToolCallCompleted(result_ref=str() as result) if digest in result:
                return f", the result of call {event.call}"
            case _:
                pass
    written = (op.path for op in changeset.patch.ops if isinstance(op, Put) and op.value == digest)
    return next((f", {path}" for path in written), "")


def _weight(engine: Engine, name: str) -> int:
    """Return about how much there is to check in a space: its heads count their moves."""
    try:
        return 1 + sum([hold.head.version for hold in engine.holds(name, limit=_HEADS_MAX)])
    except DAMAGE:
        return 1  # it is reported where the space is checked


def _verify_space(
    space: Space,
    since: VerifiedPoint | None,
    weight: int,
    books: Callable[[Space], Iterable[tuple[str, str]]] | None,
    findings: Findings,
) -> None:
    findings.count("space")
    before, begun, ledger = findings.faults, BEGINNING, LedgerRead()
    with findings.watching("point", name=space.name):
        begun = checked_point(space, since, findings)
    findings.partial += begun is not BEGINNING
    scanned = check_objects(space, begun, weight, findings)
    check_lines(space, scanned, findings)
    with findings.watching("ledger"):
        ledger = check_ledger(space, begun.ledger, findings)
    check_cells(space, findings)
    _check_stand_ins(space, findings)
    with findings.watching("space", name=space.name):
        space.engine.check(space.name, again=True)
    check_directory(space, findings)
    if books is not None:
        with findings.watching("ledger"):
            for name, what in books(space):
                findings.add("ledger", what, name=name)
    findings.written += space.engine.standing(space.name) > scanned.standing
    if findings.faults == before:
        findings.points[space.name] = VerifiedPoint(
            standing=scanned.standing,
            commits=scanned.commits,
            moves=scanned.moves.followed(),
            position=ledger.position,
            chain=ledger.chain,
        )
    findings.tell(weight, is_done=True)


def _redacted_in(space: Space) -> set[Digest]:
    """Return the digests that the redactions of a space name; none if one is damaged, which is reported with the cells."""
    with suppress(Corrupt):
        return {digest for one, each in redactions(space) for digest in (one, *each.parts)}
    return set()


def _check_stand_ins(space: Space, findings: Findings) -> None:
    """Check that what stands in the place of redacted words is stored."""
    with suppress(Corrupt):  # it is reported with the cells
        named = {each.stand_in: digest for digest, each in redactions(space) if each.stand_in is not None}
        for missing in space.engine.missing(space.name, list(named)) if named else ():
            what = f"it names {missing}, which is missing"
            findings.add("cell", what, name=REDACTED + named[missing])


def check_objects(space: Space, begun: SoundPoint, weight: int, findings: Findings) -> ScannedObjects:
    """Check what is stored for the space now and was not before `begun`; what is written from now on is left out."""
    moves = MoveChecker(space, begun)
    checker = ObjectChecker(space, findings, moves)
    engine, standing = space.engine, space.engine.standing(space.name)
    with findings.watching("space", name=space.name):
        for page, cursor in standing_pages(engine, space.name, after=begun.standing, upto=standing):
            checker.take(page)
            findings.tell(weight * min(cursor or standing, standing) // max(standing, 1))
    return ScannedObjects(standing, begun.commits + checker.commits, moves)


def _reading(engine: Engine, name: str, findings: Findings) -> Space:
    """Return a space for reading: it has no clock and no ids, because verifying writes nothing."""
    label = name
    with findings.watching("space", name=name):
        label = label_of(engine, name)
    return Space(
        engine=engine, name=name, label=label, clock=lambda: 0, ids=str, cache=NodeCache(_CACHE_BYTES)
    )
