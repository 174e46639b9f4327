"""Decides which objects of a space are reachable and which may be removed: the mark phase of garbage collection.

`roots` yields what must stay under a policy: the heads of all timelines, sealed ones included, but not those that
the policy retires because of their age; moves within retention; every object that the ledger and the cells mention (open outboxes, listed artifacts,
uploads under way, runs that have not ended); and what commits of other spaces have read here.

A move has no time of its own.  A commit that a head has left counts as left since the first commit
that was made on its timeline afterwards; if there is none, the move can be redone, and the commit stays.

A timeline is *retired* if the newest move of its head is a commit that was made long enough ago, or if it was dropped.  `main`, a timeline
with open work, and one that was sealed, moved back or begun without a commit since stay: when that was is not known.
What `promote` has left of an old `main` is retired once a commit was made on `main` after it, long enough ago.

A state of a live commit is *superseded* if every commit after it was made before the policy's time.  The states at that
time and since stay, and so do those of heads, of failed runs, and of commits at which timelines part, which merges need.  Only
nodes, values and lists go with it: the changeset stays with its messages, and so does every artifact.

`Living` marks the commits that the roots reach: every ancestor of a live commit is live, through merges
too.  It does not collect the objects of live commits, since these are nearly everything.

`Doomed` collects every object that only removable commits, or abandoned uploads, name.  Then it scans
all that is stored once, and each object that something else names is saved.  So memory grows with
what may be removed and not with what stays, and an object that saves another need not be reachable itself.

The module has one importer, the planner, which decides when to mark; it is apart because this
rule is the one that must never remove too much.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, Fact, Hold, Step
from perdure.errors import Forgotten, NotFound
from perdure.history import reader, stored_objects
from perdure.history.artifacts import UPLOAD, upload_of
from perdure.history.retention.digest_set import Digests
from perdure.history.retention.policy import RetentionPolicy
from perdure.history.space import THREADS, Space, read_record, redactions
from perdure.history.stored_objects import whole_pages
from perdure.history.tree import EMPTY, refs
from perdure.model.call import TWIN
from perdure.model.commit import Act, decode_changeset, decode_commit
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import AgentChanged, BackendSwitched, CheckpointCreated, Event
from perdure.model.head import MAIN
from perdure.model.lists import decode_node
from perdure.model.memory import item_prefix
from perdure.model.patch import Put
from perdure.model.redaction import REDACTED
from perdure.model.run import ENDED, RUN, RunState

__all__ = [
    "AbandonedCommit",
    "abandoned",
    "OpenLines",
    "EndedWork",
    "FindEndedWork",
    "every_step",
    "left_behind",
    "retired_heads",
    "roots",
    "Living",
    "superseded",
    "unliving",
    "values_of_items",
    "Removable",
    "Doomed",
]


_HEADS_MAX = 50
_PATCH = re.compile(rb'"(?:agent_)?patch":"([0-9a-f]{64})"')  # in an entry: what a call changes


class AbandonedCommit(msgspec.Struct, frozen=True):
    """A commit that a head has left, and whether that was long enough ago to remove it."""

    commit: Digest
    may_go: bool


OpenLines: TypeAlias = Callable[[Space], Mapping[str, str]]
"""Returns the timelines of a thread with work that is open, each with what it is."""


class EndedWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a thread without open work need: those that failed can be retried, the others need nothing."""

    patches: frozenset[Digest] = (
        frozenset()
    )  # of calls that were settled before a time; no run applies them any more
    failed: frozenset[str] = frozenset()  # ids of runs


FindEndedWork: TypeAlias = Callable[[Space, int], EndedWork]
"""Returns the ended work of a thread, before a time."""


def roots(
    space: Space,
    policy: RetentionPolicy,
    now: int,
    retired: Container[str] = (),
    settled: Container[Digest] = (),
) -> Iterator[Digest]:
    """Yield the digests that must stay, some maybe of other spaces; raises `Corrupt` if the commit of a head is missing.

    `retired` are timelines whose heads need not stay, `settled` patches of calls that commits have applied.
    """
    for hold in loops.holds(space.engine, space.name):
        if hold.head.commit is not None and hold.head.timeline not in retired:
            yield space.step(hold.head.commit).digest
    gone = {cell.name for cell in abandoned(space, policy, now)}
    for cell in loops.cells(space.engine, space.name):
        if cell.name not in gone and not _names_only_places(cell):
            yield from stored_objects.mentioned(cell.name.encode())
            yield from stored_objects.mentioned(cell.value or b"")
    for entry in loops.entries(space.engine, space.name):
        yield from stored_objects.mentioned(entry.body)
        for found in _PATCH.findall(entry.body):
            if (patch := Digest(found.decode())) not in settled:
                yield from _values(space, patch)


class _RunCell(msgspec.Struct, frozen=True):
    """What the record of a run says about retention."""

    state: RunState


_run_cells = msgspec.json.Decoder(_RunCell)


def _names_only_places(cell: Cell) -> bool:
    """True if a cell names commits for their places in the history, and needs no content of theirs.

    That are records of runs that have ended, gates of the repeat guard, and redactions: what stands in the place of a
    message goes when the message would.
    """
    if cell.name.startswith(RUN):
        return read_record(cell, _run_cells).state in ENDED
    return cell.name.startswith((TWIN, REDACTED))


def _values(space: Space, patch: Digest) -> Iterator[Digest]:
    """Yield the values that a call's patch names: the commit that will name them may not exist yet."""
    with suppress(Forgotten):
        yield from stored_objects.mentioned(space.body(patch))


def left_behind(space: Space, since: int) -> Iterator[AbandonedCommit]:
    """Yield the commits that heads have left by undo or promote; some may still be live."""
    for hold in loops.holds(space.engine, space.name):
        later: Digest | None = None  # the first commit that was made after this move
        for move in loops.moves(space.engine, space.name, hold.head.timeline):
            if move.act is Act.COMMIT:
                later = move.to
            elif move.from_ is not None and not _on_a_line(space, move.from_, hold):
                lately = later is None or _made_at(space, later) >= since
                yield AbandonedCommit(move.from_, not lately and _made_at(space, move.from_) < since)


def retired_heads(
    space: Space, policy: RetentionPolicy, now: int, open_lines: OpenLines
) -> dict[str, Digest]:
    """Return the heads of the timelines that the policy retires, by name; none for a space that is no thread's."""
    since = policy.timelines_since(now)
    if (since is None and not policy.removed_threads) or not space.name.startswith(THREADS):
        return {}
    replaced = set[Digest]() if since is None else _replaced(space, since)
    found = {
        hold.head.timeline: hold.head.commit
        for hold in loops.holds(space.engine, space.name)
        if hold.head.commit is not None
        and hold.head.timeline != MAIN
        and (
            (hold.sealed and hold.head.commit in replaced)
            or (since is not None and _is_old(space, hold, since))
            or (policy.removed_threads and reader.is_dropped(space, hold.head.timeline))
        )
    }
    return {line: commit for line, commit in found.items() if line not in open_lines(space)} if found else {}


def _is_old(space: Space, hold: Hold, since: int) -> bool:
    """True if the newest move of a timeline, but for its seal if it was dropped, is a commit from before that time."""
    newest, *before = space.engine.moves(space.name, hold.head.timeline, limit=2)
    if newest.act is Act.SEAL and before and reader.is_dropped(space, hold.head.timeline):
        newest = before[0]
    return newest.act is Act.COMMIT and newest.to is not None and _made_at(space, newest.to) < since


def _replaced(space: Space, since: int) -> set[Digest]:
    """Return what `main` was at when another timeline was promoted, if a commit from before that time followed."""
    found: set[Digest] = set()
    later: Digest | None = None
    for move in loops.moves(space.engine, space.name, MAIN):
        if move.act is Act.COMMIT:
            later = move.to
        elif move.act is Act.PROMOTE and move.from_ is not None and later is not None:
            found |= {move.from_} if _made_at(space, later) < since else set()
    return found


def superseded(
    space: Space, since: int, retired: Container[str] = (), failed: Container[str] = ()
) -> Iterator[Step]:
    """Yield the commits whose states were replaced before that time; the line of each is walked twice.

    `retired` are timelines whose content goes anyway, `failed` runs that may go on from the states of their commits.
    """
    heads = [
        hold.head.commit
        for hold in loops.holds(space.engine, space.name)
        if hold.head.commit and hold.head.timeline not in retired
    ]
    kept, parents = Digests(), Digests()
    kept.update(heads)
    for step in every_step(space, heads):
        can_go_on = step.commit.run is not None and step.commit.run in failed
        kept.update((step.digest,) if can_go_on else ())
        for parent in step.commit.parents:
            if can_go_on or step.commit.at >= since or not parents.add(parent):
                kept.add(parent)
    for step in every_step(space, heads):
        if step.commit.at < since and step.digest not in kept:
            yield step


def every_step(space: Space, heads: Iterable[Digest]) -> Iterator[Step]:
    """Yield the commits of all these lines, each once."""
    seen, left = Digests(), list(heads)
    while left:
        tip: Digest | None = left.pop()
        while tip is not None and tip not in seen:
            page = space.back(tip, limit=_REACHABLE_PAGE)
            tip = next(iter(page[-1].commit.parents), None)
            for step in page:
                if not seen.add(step.digest):
                    tip = None
                    break
                left += step.commit.parents[1:]
                yield step


def abandoned(space: Space, policy: RetentionPolicy, now: int) -> Iterator[Cell]:
    """Yield the cells of uploads that are older than the policy allows."""
    since = policy.staged_since(now)
    if since is None:
        return
    for cell in loops.cells(space.engine, space.name, prefix=UPLOAD):
        upload = upload_of(cell)
        if upload.expired or upload.at < since:
            yield cell


def _on_a_line(space: Space, commit: Digest, own: Hold) -> bool:
    """True if the line of one of the first heads has the commit; a shortcut only, the rest is decided later."""
    heads = chain((own,), islice(loops.holds(space.engine, space.name), _HEADS_MAX))
    return any(reader.is_ancestor(space, commit, hold.head.commit) for hold in heads)


def _made_at(space: Space, commit: Digest) -> int:
    return space.step(commit).commit.at


_REACHABLE_PAGE = 100
_BATCH = 64


class Living:
    """The set of live commits and kept objects; `mention` and `commit` add to it."""

    def __init__(self, space: Space, *, has_states: bool = True) -> None:
        """Begin empty; without `has_states` a context that was shown does not keep the state that it was made from."""
        self._space, self._has_states = space, has_states
        self.commits = Digests()
        self.kept = Digests()  # objects that are mentioned, with what they are made of
        self.reads = Digests()  # what these commits have read in other spaces
        self._opened = Digests()  # texts whose mentions were followed
        self._lines: list[Digest] = []  # commits to follow
        self._mentions: list[Digest] = []  # digests of anything to follow

    def commit(self, tip: Digest) -> None:
        """Mark a commit and all its ancestors as live; raises `Corrupt`."""
        self._lines.append(tip)
        self._finish()

    def close(self, body: Digest) -> None:
        """Mark a body, but nothing that it mentions; call this before anything is mentioned."""
        self.kept.add(body)
        self._opened.add(body)

    def mention(self, digest: Digest) -> None:
        """Mark the object of this digest, and the objects that it needs; nothing if this space has no such object."""
        self._mentions.append(digest)
        self._finish()

    def tree(self, root: Digest) -> None:
        """Mark the nodes and values of a state."""
        left = [] if root == EMPTY else [root]
        while left:
            batch = [digest for digest in left[-_BATCH:] if self.kept.add(digest)]
            del left[-_BATCH:]
            for found in read_objects(self._space, batch):
                children, values = refs(found.body)
                left += children
                self.kept.update(values)

    def _finish(self) -> None:
        """Follow everything that was found and not followed yet; iteratively, since chains can be of any length."""
        while self._lines or self._mentions:
            if self._lines:
                self._line(self._lines.pop())
            self._follow()

    def _line(self, tip: Digest | None) -> None:
        """Mark a line from its tip back to the first commit that is marked already."""
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
        """Mark what was mentioned; commits among it are queued."""
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
            case Kind.NODE if self._has_states:
                self.tree(found.digest)
            case Kind.NODE:
                pass  # the commits that stay name their states
            case Kind.ARTIFACT:
                self.kept.add(found.digest)
                self.kept.update(stored_objects.parts_of(found))
            case Kind.LIST:
                self.kept.add(found.digest)
                node = decode_node(found.body)
                below = [child.digest for child in node.children]
                if not node.height:
                    self.kept.update(below)
                elif self._opened.add(found.digest):
                    self._mentions += below
            case Kind.CHECKPOINT | Kind.BODY:
                self.kept.add(found.digest)
                if self._opened.add(found.digest):
                    self._mentions += stored_objects.mentioned(found.body)
            case Kind.VALUE | Kind.CHANGESET | Kind.MOVE | Kind.ENTRY:
                self.kept.add(found.digest)


def unliving(space: Space, tip: Digest, living: Living) -> Iterator[Step]:
    """Yield `tip` and its ancestors, as far as they are not live when they are reached."""
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
    """Return the objects of these digests, without forgotten ones; raises `Corrupt` if one is missing or damaged."""
    return [found for found in space.objects_there(digests) if found is not None]


def _needing_more(event: Event) -> tuple[Digest, ...]:
    """Return the objects that an event names and that name further objects."""
    match event:
        case CheckpointCreated(checkpoint=checkpoint) | BackendSwitched(checkpoint=str() as checkpoint):
            return (checkpoint,)
        case AgentChanged(patch=patch):
            return (patch,)
        case _:
            return ()


def values_of_items(space: Space, items: Sequence[str]) -> Iterator[Removable]:
    """Yield every value that these items of a memory ever had, undone ones included, unless another item has it too.

    The nodes of a map hold its values by digest, so every state can be read afterwards, but for these items.
    """
    prefixes = tuple(map(item_prefix, items))
    tips: dict[Digest, None] = {}
    for hold in loops.holds(space.engine, space.name):
        for move in loops.moves(space.engine, space.name, hold.head.timeline):
            tips |= {tip: None for tip in (move.to, move.from_) if tip is not None}
    own: dict[Digest, None] = {}
    others = Digests()
    for step in every_step(space, tips):
        for op in step.changeset.patch.ops:
            if isinstance(op, Put) and op.path.startswith(prefixes):
                own[op.value] = None
            elif isinstance(op, Put):
                others.add(op.value)
    found = [digest for digest in own if digest not in others]
    for start in range(0, len(found), _READ):
        for group, value in enumerate(read_objects(space, found[start : start + _READ]), start):
            yield Removable("erased", value, group)


_REMOVABLE = frozenset((Kind.VALUE, Kind.NODE, Kind.BODY, Kind.ARTIFACT, Kind.CHECKPOINT, Kind.LIST))
_READ = 16  # objects of any size
_DIGEST = 32


class Removable(NamedTuple):
    """An object that may be removed."""

    why: str
    object: Object
    group: int  # the same for all that go together, which come one after another
    timeline: str | None = (
        None  # the retired timeline that needs it, the first one; None: it goes for another reason
    )


def _digests(packed: bytearray) -> Iterator[Digest]:
    for at in range(0, len(packed), _DIGEST):
        yield Digest(packed[at : at + _DIGEST].hex())


class Doomed:
    """The objects that may be removed: `commit` and `chunks` collect them, `save` takes out what must stay."""

    def __init__(self, space: Space, living: Living) -> None:
        """Begin empty; `living` is complete."""
        self._space = space
        self._living = living
        self._commits = Digests()
        self._groups: list[
            bytearray
        ] = []  # digests that go together: of a commit, what those before it do not need
        self._chunks = bytearray()  # the digests of `_staged`
        self._undone = Digests()
        self._staged = Digests()
        self._retired = Digests()  # those of `_undone` that a retired timeline needs
        self._lines: list[str] = []  # the retired timelines, in order
        self._line_starts: list[int] = []  # the first group of each
        self._is_retired = False  # what is collected now
        self._superseded = Digests()  # those of `_undone` that superseded states have
        self._is_superseded = False  # what is collected now
        self._state_commits = Digests()  # commits whose states are superseded
        self._state_changesets = Digests()  # and their changesets, which stay
        self._saved = Digests()
        self._parts: dict[Digest, tuple[Digest, ...]] = {}  # of undone artifacts and list nodes
        self._nodes: list[Digest] = []  # saved, and still to save what is below
        self._recipes = Digests()  # of contexts, whose frames and notes were doomed
        self._stand_ins = {digest: each.stand_in for digest, each in redactions(space) if each.stand_in}

    def __bool__(self) -> bool:
        """True if there is anything."""
        return len(self._undone) + len(self._staged) > 0

    def commit(self, tip: Digest, *, retired: str | None = None) -> None:
        """Collect the objects of a commit and of those of its ancestors that are not live.

        `retired` names the timeline that the commit is the head of; None: the commit was undone.
        """
        self._is_retired = retired is not None
        if retired is not None:
            self._lines.append(retired)
            self._line_starts.append(len(self._groups))
        for step in unliving(self._space, tip, self._living):
            if self._commits.add(step.digest):
                self._groups.append(bytearray())
                self._step(step)

    def state(self, step: Step) -> None:
        """Collect the nodes, values and lists of a superseded state."""
        self._is_retired, self._is_superseded = False, True
        self._state_commits.add(step.digest)
        self._state_changesets.add(step.commit.changeset)
        self._groups.append(bytearray())
        self._tree(step.commit.root)
        self._is_superseded = False

    def chunks(self, digests: Iterable[Digest]) -> None:
        """Collect the chunks of an upload."""
        for digest in digests:
            if digest not in self._undone and self._staged.add(digest):
                self._chunks += bytes.fromhex(digest)

    def save(self) -> None:
        """Scan all that is stored, and save what an object that stays names.

        Scan again if that has collected more: the parts of artifacts and lists.
        """
        known = -1
        while len(self._undone) != known:
            known = len(self._undone)
            for fact in self._facts():
                if fact.object is not None:
                    self._look(fact.object)
                    self._save_below()
        self._save(
            each for digest, each in self._stand_ins.items() if self._is_safe(digest) or digest not in self
        )
        left = [digest for digest in self._parts if self._is_safe(digest)]
        while left:
            parts = self._parts.pop(left.pop(), ())
            self._saved.update(parts)
            left += parts

    def objects(self) -> Iterator[Removable]:
        """Yield the objects to remove.

        What goes together comes together, a commit's root with all below it that later groups do not need.  So if the
        removal stops between two groups, each state is there whole or is `Forgotten` at once.  Within a group an
        object comes before those that name it: the next marking finds all that is left.
        """
        claimed = Digests()
        groups = [self._group(group, claimed) for group in self._groups]
        chunks = ((-at, digest) for at, digest in enumerate(_digests(self._chunks), 1))
        numbered = ((at, each) for at in reversed(range(len(groups))) for each in _digests(groups[at]))
        for group, found in self._stored(chain(numbered, chunks)):
            why = "staged" if group < 0 else self._why(found.digest)
            line = self._lines[bisect_right(self._line_starts, group) - 1] if why == "timeline" else None
            yield Removable(why, found, group, line)

    def _group(self, group: bytearray, claimed: Digests) -> bytearray:
        """Return the digests of a group that are to be removed and no group has claimed, backwards and with all parts."""
        whole: list[bytes] = []
        left = list(_digests(group))
        left.reverse()
        while left:
            digest = left.pop()
            if not self._is_safe(digest) and claimed.add(digest):
                whole.append(bytes.fromhex(digest))
                left += self._parts.get(digest, ())
        whole.reverse()
        return bytearray().join(whole)

    def _stored(self, numbered: Iterator[tuple[int, Digest]]) -> Iterator[tuple[int, Object]]:
        """Yield the objects of these digests that are stored and may be removed, each with its number."""
        while part := list(islice(numbered, _READ)):
            groups = {digest: group for group, digest in part}
            for found in self._read([digest for _, digest in part if not self._is_safe(digest)]):
                if found.kind in _REMOVABLE:
                    yield groups[found.digest], found

    def _why(self, digest: Digest) -> str:
        if digest in self._superseded:
            return "superseded"
        return "timeline" if digest in self._retired else "undone"

    def __contains__(self, digest: Digest) -> bool:
        """True if the digest was collected."""
        return digest in self._undone or digest in self._staged

    def _is_safe(self, digest: Digest) -> bool:
        return digest in self._saved or digest in self._living.kept

    def _read(self, digests: Sequence[Digest]) -> Sequence[Object]:
        """Return those of the objects that are stored: a patch can name values that were never stored."""
        missing = set(self._space.engine.missing(self._space.name, digests))
        return read_objects(self._space, [digest for digest in digests if digest not in missing])

    def _doom(self, digests: Iterable[Digest], *, is_part: bool = False) -> None:
        """Collect digests, in the newest group; parts of an artifact or a list go with that."""
        for digest in digests:
            if self._undone.add(digest):
                stand_in = self._stand_ins.get(digest)
                if stand_in is not None:
                    self._doom((stand_in,), is_part=is_part)
                if not is_part:
                    self._groups[-1] += bytes.fromhex(digest)
                if self._is_retired:
                    self._retired.add(digest)
                if self._is_superseded:
                    self._superseded.add(digest)

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
        if root == EMPTY or root in self._undone:
            return
        self._doom((root,))
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
        """Save what `found` names, unless `found` is to be removed itself."""
        doomed = found.digest in self
        is_state = found.digest in self._superseded
        match found.kind:
            case Kind.CHANGESET if not doomed and found.digest in self._state_changesets:
                named = stored_objects.of_changeset(decode_changeset(found.body))
                self._save(each for each in named if each not in self._superseded)
            case Kind.ARTIFACT if is_state:  # messages may name it
                self._saved.update((found.digest, *stored_objects.parts_of(found)))
            case Kind.COMMIT if found.digest not in self._commits:
                self._save_commit(found)
            case Kind.NODE if not doomed:
                self._save_named(found)
            case Kind.CHANGESET if not doomed:
                self._save(stored_objects.of_changeset(decode_changeset(found.body)))
            case Kind.ARTIFACT | Kind.LIST if doomed:
                self._parts[found.digest] = stored_objects.parts_of(found)
                self._is_retired, self._is_superseded = found.digest in self._retired, is_state
                self._doom(self._parts[found.digest], is_part=True)
            case Kind.ARTIFACT | Kind.LIST:
                self._save(stored_objects.parts_of(found))
            case _:
                pass

    def _save_commit(self, found: Object) -> None:
        """Save the state of a commit that stays, and what its changeset names if a commit that goes has the same one.

        A run whose head moves on success leaves such a pair, if others wrote to the timeline meanwhile.
        """
        commit, is_superseded = decode_commit(found.body), found.digest in self._state_commits
        if not is_superseded:
            self._save_nodes((commit.root,))
        if commit.changeset in self:
            for changeset in read_objects(self._space, (commit.changeset,)):
                named = stored_objects.of_changeset(decode_changeset(changeset.body))
                self._save(each for each in named if not (is_superseded and each in self._superseded))

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
