"""Reads one space of a store: `Space` is an engine, the name of a space, a clock and a source of ids.

Clock and ids are passed in, so that the same operations make the same digests anywhere.
Reads go through caches of decoded nodes and commits; neither ever changes, so a cached one
is never out of date.

A digest that is read here was found in the store itself: a head, a commit or a record names it.  So if the engine
does not find it, that is damage (`Corrupt`), unless the thread was removed since (`NotFound`).  A digest from a
caller is looked up with `find`.

Small records are cells of the space.  A *mark* is a cell whose name is the whole record: `<prefix><timeline>:<id>`.  No
timeline has a colon in its name, so the marks of a timeline are adjacent.  Ids that Perdure makes begin with the time,
so the newest mark is the last.

`TimelineContext` is one timeline of a space together with the agent's own map.  `main` sees the agent's map as it is
now.  Any other timeline sees it as it was at the timeline's own commit, and from its first change on as a timeline of
its own in the agent's space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from perdure.engines import loops
from perdure.engines.contract import (
    Answer,
    Cell,
    CellOf,
    CellWrite,
    Engine,
    Fence,
    HeadOf,
    Hold,
    Labels,
    Question,
    Step,
)
from perdure.errors import Corrupt, Forgotten, NotFound, PerdureError, StaleHead
from perdure.history.tree import EMPTY, NodeCache, Tree
from perdure.model.commit import NO_READS, CommitEvents, Reads
from perdure.model.digest import Digest, Object
from perdure.model.event import AgentChanged
from perdure.model.head import MAIN, Head
from perdure.model.limits import Limits
from perdure.model.memory import MEMORY
from perdure.model.redaction import REDACTED, Redaction
from perdure.model.run import Cost, Usage

if TYPE_CHECKING:
    from logging import Logger

__all__ = [
    "AGENTS",
    "ALIVE",
    "STORE",
    "THREAD",
    "THREADS",
    "Space",
    "AgentMapView",
    "ChangeQuestions",
    "CommitCache",
    "CommitCaches",
    "SpentByModel",
    "TimelineContext",
    "agent_after",
    "applied_id",
    "is_thread",
    "label_of",
    "mark_write",
    "read_record",
    "redactions",
    "removed",
    "stale_because_removed",
    "store_log",
    "words_for",
]

STORE = "store"  # the store's own space, which holds the directory
THREADS, AGENTS = "thread:", "agent:"  # prefixes of the names of spaces
THREAD = "thread/"  # cells of the directory: a thread's record, by its id
ALIVE = "alive"  # the cell that is written when a thread is removed

_MARKED = b"{}"
_STEPS_MAX = 512
_redactions = msgspec.json.Decoder(Redaction)

_SKIPS_MAX = 4_096
_SPENT_MAX = 10_000
_SPACES_MAX = 16
_PAGE = 100
_NEAR = 16  # commits

_T = TypeVar("_T")


class SpentByModel(NamedTuple):
    """What a run cost: in all, and by model, such as "openai:gpt-5.6"; the sum in all is in the order of the steps."""

    cost: Cost
    usage: Usage
    models: Mapping[str, tuple[Cost, Usage]]


class SpentCache:
    """What runs that have ended cost, by space and id, with the time of their last change: their commits stay as they are."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        """Begin empty."""
        self._spent: dict[tuple[str, str], tuple[int, SpentByModel]] = {}

    def get(self, space: str, run: str, at: int) -> SpentByModel | None:
        """Return what a run cost, if it was read after its last change `at`."""
        found = self._spent.get((space, run))
        return found[1] if found is not None and found[0] == at else None

    def put(self, space: str, run: str, at: int, spent: SpentByModel) -> None:
        """Remember what a run cost that ended at that time."""
        if len(self._spent) >= _SPENT_MAX:
            self._spent = {}
        self._spent[space, run] = at, spent


class CommitCache:
    """The last commits that were read or written, by digest.

    Two generations, as in the cache of nodes: a commit that was not read since the last change
    of generation is dropped.  Every change is one operation on a dictionary, so no lock is needed.
    """

    __slots__ = ("_old", "_young", "skips", "spent")

    def __init__(self, spent: SpentCache | None = None) -> None:
        """Begin empty; `spent` is what all spaces of a store share, None: this one has its own."""
        self.spent = SpentCache() if spent is None else spent
        self._young: dict[Digest, Step] = {}
        self._old: dict[Digest, Step] = {}
        # Stretches of commits without events, all of which were read: the newest, and the commit before the oldest.
        self.skips: dict[Digest, Digest | None] = {}

    def get(self, digest: Digest) -> Step | None:
        """Return the commit if it is cached."""
        found = self._young.get(digest)
        if found is None:
            found = self._old.get(digest)
            if found is not None:
                self.put(found)
        return found

    def skip(self, newest: Digest, before: Digest | None) -> None:
        """Remember a stretch of commits without events."""
        if len(self.skips) >= _SKIPS_MAX:
            self.skips = {}
        self.skips[newest] = before

    def put(self, step: Step) -> None:
        """Cache a commit."""
        if len(self._young) >= _STEPS_MAX:
            self._old, self._young = self._young, {}
        self._young[step.digest] = step


class CommitCaches:
    """The caches of the spaces that were used last, so that a new handle on a space finds what others have read."""

    __slots__ = ("_old", "_spent", "_young")

    def __init__(self) -> None:
        """Begin empty."""
        self._spent = SpentCache()
        self._young: dict[tuple[str, str], CommitCache] = {}
        self._old: dict[tuple[str, str], CommitCache] = {}

    def of(self, space: str, label: str) -> CommitCache:
        """Return the cache of a space whose commits have that label; generations are as in `CommitCache`."""
        found = self._young.get((space, label))
        if found is None:
            found = self._old.get((space, label)) or CommitCache(self._spent)
            if len(self._young) >= _SPACES_MAX:
                self._old, self._young = self._young, {}
            self._young[space, label] = found
        return found


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """One thread's, agent's or owner's part of a store, with everything that its functions need."""

    engine: Engine
    name: str
    label: str  # as in its commits: the thread's id, or the agent's name
    clock: Callable[[], int]  # µs since 1970, UTC
    ids: Callable[[], str]
    cache: NodeCache
    limits: Limits = Limits()
    fences: tuple[Fence, ...] = ()  # checked by every write
    steps: CommitCache = msgspec.field(default_factory=CommitCache)
    known: Mapping[
        Question, Answer
    ] = {}  # what was just read, all from one moment, for one attempt at a write
    expects: Head | None = (
        None  # a head that the caller has read: its timeline is moved from there, or not at all
    )

    @property
    def is_thread(self) -> bool:
        """True if it is a thread's, whose messages are numbered."""
        return self.name.startswith(THREADS)

    def beside(self, name: str, label: str) -> Space:
        """Return the space of another thread of the same store."""
        alive = (Fence(ALIVE, 0),)  # and not the lease that this space may be fenced by
        return msgspec.structs.replace(
            self, name=name, label=label, fences=alive, steps=CommitCache(), known={}, expects=None
        )

    def ask(self, *questions: Question) -> Sequence[Answer]:
        """Answer small questions: from `known` what it has, the others by one call of the engine."""
        known = self.known
        if not known:
            return self.engine.answers(questions)
        try:
            return [*map(known.__getitem__, questions)]
        except KeyError:  # not all of them
            others = [each for each in questions if each not in known]
            found = {**known, **dict(zip(others, self.engine.answers(others), strict=True))}
            return [found[each] for each in questions]

    def knowing(self, *questions: Question, assumed: Mapping[Question, Answer] = {}) -> Space:
        """Return the space with the answers to these questions, read now by one call, and with those that are `assumed`.

        Only a writer whose fences and expected heads decide may use them: a stale answer leads to a refused write.
        """
        answers = self.engine.answers(questions) if questions else ()
        return msgspec.structs.replace(self, known={**assumed, **dict(zip(questions, answers, strict=True))})

    def tree(self, root: Digest = EMPTY) -> Tree:
        """Return the map of that root."""
        return Tree(self.nodes, root, cache=self.cache)

    def tree_at(self, commit: Digest | None) -> Tree:
        """Return the map as it was at a commit; None is before the first."""
        return self.tree(self.root_at(commit))

    def root_at(self, commit: Digest | None) -> Digest:
        """Return the root of the map at a commit; None is before the first."""
        return EMPTY if commit is None else self.step(commit).commit.root

    def nodes(self, digests: Sequence[Digest]) -> Sequence[bytes]:
        """Return the bytes of nodes, values or bodies, in order; raises as `objects` does."""
        return [found.body for found in self.objects(digests)]

    def body(self, digest: Digest) -> bytes:
        """Return the bytes of one object, or of what stands in its place after a redaction; raises as `objects` does."""
        try:
            return self.objects((digest,))[0].body
        except Forgotten:
            redaction = self.redaction(digest)
            if redaction is None or redaction.stand_in is None:
                raise
            return self.objects((redaction.stand_in,))[0].body

    def redaction(self, digest: Digest) -> Redaction | None:
        """Return the last redaction of an object that is gone, of which a part may have been redacted before.

        None: it was not redacted.
        """
        found: Redaction | None = None
        at: Digest | None = digest
        while at is not None:
            (cell,) = self.ask(CellOf(self.name, REDACTED + at))
            if cell is None or cell.value is None:
                break
            found = read_record(cell, _redactions)
            at = found.stand_in
        return found

    @property
    def has_redactions(self) -> bool:
        """True if anything was ever redacted in this space."""
        return bool(self.engine.cells(self.name, prefix=REDACTED, limit=1))

    def objects(self, digests: Sequence[Digest]) -> Sequence[Object]:
        """Return the objects of these digests, in order; raises `Forgotten`, or `Corrupt` if one is damaged or missing."""
        if not digests:
            return ()
        try:
            return self.engine.objects(self.name, digests)
        except Forgotten:
            raise
        except NotFound as error:
            missing = self.engine.missing(self.name, digests)
            raise self.absence(missing[0] if missing else digests[0]) from error

    def objects_there(self, digests: Sequence[Digest]) -> Sequence[Object | None]:
        """Return the objects of these digests, in order, None for one that is forgotten; raises `Corrupt` as `objects` does.

        Few are forgotten of many, so a batch that has any is read again in halves.
        """
        try:
            return self.objects(digests)
        except Forgotten:
            if len(digests) == 1:
                return (None,)
            middle = len(digests) // 2
            return (*self.objects_there(digests[:middle]), *self.objects_there(digests[middle:]))

    def step(self, commit: Digest) -> Step:
        """Return the commit of that digest; raises `Corrupt` if it is missing, or another thread's."""
        found = self.steps.get(commit)
        if found is None:
            found = self.back(commit, limit=1)[0]
            self.steps.put(found)
        return found

    def find(self, commit: Digest, *, remembered: bool = True) -> Step | None:
        """Return the commit of a digest from a caller; None if this space has none.

        Without `remembered` the cache is not used.
        """
        found = self.steps.get(commit) if remembered else None
        if found is None:
            try:
                found = self._checked(self.engine.steps(self.name, commit, limit=1))[0]
            except NotFound:
                return None
            self.steps.put(found)
        return found

    def given(self, commit: Digest) -> Step:
        """Return the commit of a digest from a caller; raises `NotFound` if this space has none."""
        found = self.find(commit)
        if found is None:
            raise NotFound(
                f"there is no commit {commit} in '{self.label}'; nothing was done.",
                code="commit_not_found",
                commit=commit,
            )
        return found

    def turn(self, at: Digest, turn: int) -> Step | None:
        """Return the last commit of that turn, of any kind, on the line that ends at `at`; raises as `step` does."""
        try:
            return self.engine.turn(self.name, at, turn)
        except NotFound as error:
            raise self.absence(at) from error

    def message(self, at: Digest, number: int) -> Step | None:
        """Return the last commit of the turn that is message `number` on the line that ends at `at`.

        Turns without a number are between the messages, so it is searched for among as many turns as there are of them.
        """
        newest = self.step(at)
        if not 0 < number <= newest.turn_number:
            return None
        low, high = number, number + newest.commit.unnumbered
        while low < high:
            middle = (low + high) // 2
            step = self.turn(at, middle)
            if step is None or step.turn_number < number:
                low = middle + 1
            else:
                high = middle
        return self.turn(at, low)

    def back(
        self, at: Digest, *, skip: int = 0, limit: int, bodies: bool = False, labels: Labels = ()
    ) -> Sequence[Step]:
        """Commits from `at` backwards along first parents, newest first, or those with `labels`; raises as `step` does."""
        try:
            return self._checked(
                self.engine.steps(self.name, at, skip=skip, limit=limit, bodies=bodies, labels=labels)
            )
        except NotFound as error:
            raise self.absence(at) from error

    def events(self, at: Digest, *, limit: int, bodies: bool = False) -> Sequence[CommitEvents]:
        """Return the events of commits from `at` backwards along first parents, newest first; raises as `step` does."""
        try:
            found = self.engine.events(self.name, at, limit=limit, bodies=bodies)
        except NotFound as error:
            raise self.absence(at) from error
        if found:
            self._check_thread(found[0].thread)
        return found

    def before(self, at: Digest, count: int) -> Step:
        """Return the commit that is `count` commits before `at` on its line; raises as `step` does.

        One that is near is found in the cache, which is filled by a page where it has a gap.
        """
        while count <= _NEAR:
            step = self.steps.get(at)
            if step is None:
                for each in self.back(at, limit=_NEAR):
                    self.steps.put(each)
                step = self.step(at)
            if not count:
                return step
            assert step.commit.first_parent is not None, "the line has that many commits"
            at, count = step.commit.first_parent, count - 1
        return self.back(at, skip=count, limit=1)[0]

    def absence(self, digest: Digest) -> Corrupt | NotFound:
        """Return the error for an object that the store names and does not have."""
        return _absence(self.engine, self.name, self.label, digest)

    def _checked(self, found: Sequence[Step]) -> Sequence[Step]:
        """Return the same commits, if they are of this thread or agent.

        A commit names its thread or agent, and its digest covers that name.  The name of a space and
        the entries of the directory can be altered unnoticed, so they are compared with it here.
        """
        if found:
            self._check_thread(found[0].commit.thread)
        return found

    def _check_thread(self, found: str) -> None:
        if found != self.label:
            raise Corrupt(
                f"'{self.label}' leads to the history of '{found}'; it was not read.",
                code="wrong_history",
                advice="Run `perdure verify`.",
                thread=self.label,
                found=found,
            )

    def marked(self, prefix: str, line: str) -> Iterator[str]:
        """Return the ids that are marked on a timeline, in their order."""
        own = f"{prefix}{line}:"
        return (cell.name.removeprefix(own) for cell in self._cells(own, own))

    def marked_elsewhere(self, prefix: str, line: str) -> Iterator[str]:
        """Yield the ids that are marked on other timelines; with '' as `line`, on all timelines."""
        own = f"{prefix}{line}:"
        for cell in self._cells(prefix, prefix):
            if cell.name >= own:
                break
            yield cell.name.partition(":")[2]
        for cell in self._cells(prefix, f"{prefix}{line};"):  # the character after the colon
            yield cell.name.partition(":")[2]

    def last_cells(self, prefix: str, limit: int, *, before: str | None = None) -> list[Cell]:
        """Return the last `limit` cells whose names start with `prefix`, by name; None: before no other name."""
        found = self.engine.cells(self.name, prefix=prefix, before=before, descending=True, limit=limit)
        return [*found][::-1]

    def _cells(self, prefix: str, after: str) -> Iterator[Cell]:
        return loops.cells(self.engine, self.name, prefix=prefix, after=after)


def read_record(cell: Cell, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Return the record that the cell holds; raises `Corrupt`, naming the cell, if it cannot be read."""
    try:
        return decoder.decode(cell.value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"cell '{cell.name}' cannot be read: {error}.",
            cell=cell.name,
            code="cell_unreadable",
            advice="Run `perdure verify`.",
        ) from error


def redactions(space: Space) -> Iterator[tuple[Digest, Redaction]]:
    """Yield the redactions of a space, each with the digest of what is gone."""
    for cell in loops.cells(space.engine, space.name, prefix=REDACTED):
        yield Digest(cell.name.removeprefix(REDACTED)), read_record(cell, _redactions)


def mark_write(
    prefix: str, line: str, id: str, *, expected: int, present: bool, listed: bool = False
) -> CellWrite:
    """Return the write that sets a mark, or removes it; one that is `listed` is found over all spaces."""
    value = _MARKED if present else None
    return CellWrite(name=f"{prefix}{line}:{id}", expected=expected, value=value, listed=listed and present)


def label_of(engine: Engine, name: str) -> str:
    """Return the label of a space (the thread's id, or the agent's name) from the name of the space.

    An agent's space is named after the agent.  A thread's space has a name of its own, so the label
    is read from its commits; `verify` compares it with the directory.  A thread without commits, or
    one that was removed, gets the name of its space.  Raises `Corrupt` if the commits cannot be read.
    """
    if not name.startswith(THREADS):
        return name.removeprefix(AGENTS)
    tips = (hold.head.commit for hold in engine.holds(name, limit=_PAGE) if hold.head.commit)
    undone = (
        commit for _ in range(1) for commit in engine.commits(name, "", limit=1)
    )  # costly: only if needed
    for commit in chain(tips, undone):
        try:
            return engine.steps(name, commit, limit=1)[0].commit.thread
        except NotFound as error:
            damage = _absence(engine, name, name, commit)
            if isinstance(damage, Corrupt):
                raise damage from error
    return name


def words_for(engine: Engine, name: str) -> str:
    """Return what people call a space: thread 'trip', the map of agent 'planner', the memory of 'ann'.  Never raises."""
    if name.startswith(THREADS):
        return f"thread '{_readable_label(engine, name)}'"
    if name.startswith(AGENTS):
        return f"the map of agent '{name.removeprefix(AGENTS)}'"
    if name.startswith(MEMORY):
        return f"the memory of '{name.removeprefix(MEMORY)}'"
    return "the list of threads" if name == STORE else f"the records '{name}'"


def _readable_label(engine: Engine, name: str) -> str:
    """Return the label of a thread's space by any commit that can be read, or the name of the space."""
    with suppress(PerdureError):
        return label_of(engine, name)
    with suppress(PerdureError):
        for commit in engine.commits(name, "", limit=_PAGE):
            with suppress(PerdureError):
                return engine.steps(name, commit, limit=1)[0].commit.thread
    return name


def _absence(engine: Engine, name: str, label: str, digest: Digest) -> Corrupt | NotFound:
    if engine.cell(name, ALIVE) is not None:
        return NotFound(
            f"thread '{label}' was removed; nothing was read.",
            code="thread_removed",
            advice="Begin it again with agent=.",
            thread=label,
        )
    return Corrupt(
        f"'{label}' names {digest}, which is not in the store any more; nothing was returned.",
        code="object_missing",
        advice="Run `perdure verify`, and restore a backup.",
        digest=digest,
    )


def removed(space: Space) -> bool:
    """True if the thread whose space this is was removed."""
    return is_thread(space) and space.engine.cell(space.name, ALIVE) is not None


def is_thread(space: Space) -> bool:
    """True if this is the space of a thread, which can be removed."""
    return ALIVE in map(_cell_of, space.fences)


_cell_of = attrgetter("cell")


def stale_because_removed(space: Space, head: Head) -> StaleHead:
    """Return the error for a write to a thread that was removed, whatever the version of its head is."""
    return StaleHead(
        head,
        Head(head.timeline, 0, None),
        because=f"'{space.label}' was removed",
        advice="Open the thread again.",
    )


class ChangeQuestions:
    """What every change of a timeline asks for: the head, and what its commit depends on beside it."""

    __slots__ = ("beside", "head", "sight")

    def __init__(self, head: Sequence[Question], beside: Sequence[Question]) -> None:
        """Begin with nothing seen."""
        self.head = head
        self.beside = beside
        # The head of the agent's timeline that was last seen, and its map as seen from there.
        self.sight: tuple[Hold | None, AgentMapView | None] = None, None


class TimelineContext(msgspec.Struct, frozen=True, kw_only=True):
    """One timeline of one space, and the agent's space beside it."""

    space: Space
    timeline: str = MAIN
    agent: Space | None = None  # the agent's own space; None: this is it
    defaults: Mapping[str, bytes] = {}  # values of absent paths, in canonical JSON
    asked: list[ChangeQuestions] = []  # what every change here asks for; the first one makes it

    @property
    def agent_line(self) -> str:
        """The timeline of the agent's map that this timeline writes to."""
        if self.timeline == MAIN:
            return MAIN
        return "fork/" + sha256(f"{self.space.name}\n{self.timeline}".encode()).hexdigest()[:16]

    @property
    def sight_questions(self) -> tuple[Question, ...]:
        """What `sight` asks, for a caller that asks more in the same call."""
        return () if self.agent is None else (HeadOf(self.agent.name, self.agent_line),)

    def sight(self, head: Head, read: Hold | UnsetType | None = UNSET) -> AgentMapView:
        """Return the agent's map as seen from `head`; `read` is the head of its timeline, unset: it is read here."""
        agent = self.agent
        if agent is None:
            return AgentMapView(MAIN, None, NO_READS)
        line = self.agent_line
        hold = agent.engine.hold(agent.name, line) if read is UNSET else read
        if hold is not None:
            commit = hold.head.commit
        elif head.commit is None:
            commit = self._agent_at_begin(agent)
        else:
            commit = agent_after(agent, self.space.step(head.commit))
        reads = Reads(agent_root=agent.root_at(commit), agent_commit=commit) if commit else NO_READS
        return AgentMapView(line, commit, reads)

    def _agent_at_begin(self, agent: Space) -> Digest | None:
        """Return the agent's commit at the thread's first commit, which a fork from before it sees; now if it has none."""
        space = self.space
        begun = space.engine.moves(space.name, MAIN, before=2, limit=1) if self.timeline != MAIN else ()
        to = begun[0].to if begun else None
        if to is None:
            hold = agent.engine.hold(agent.name, MAIN)
            return hold.head.commit if hold else None
        (first,) = space.back(to, skip=space.step(to).commit.depth, limit=1)
        return first.commit.reads.agent_commit


class AgentMapView(msgspec.Struct, frozen=True):
    """The agent's map at one commit, and the timeline of the agent that changes go to."""

    line: str
    commit: Digest | None
    reads: Reads


def agent_after(agent: Space, step: Step) -> Digest | None:
    """Return the agent's commit as of the thread's commit `step`, with the changes of that commit."""
    if any(isinstance(event, AgentChanged) for event in step.changeset.events):
        applied = agent.engine.recorded(agent.name, applied_id(step.digest))
        if applied is not None:
            return applied.receipt.heads[0].commit
    return step.commit.reads.agent_commit


def store_log() -> Logger:
    """Return what stores log to; without a handler of the program nothing is printed."""
    import logging  # only here: a program that opens a store and reads does not need it

    package = logging.getLogger("perdure")
    if not package.handlers:  # else `logging` itself prints warnings
        package.addHandler(logging.NullHandler())
    return logging.getLogger("perdure.store")


def applied_id(commit: Digest) -> str:
    """Return the op_id of the write that applies a thread's commit to the agent's map."""
    return f"from:{commit}"
