"""Views: the reading half of a thread, at one moment.

A view of a commit never changes.  A thread has the same methods, but each call reads the newest commit.

`gather` computes the five layers of an agent's state at a commit, each as a pure fold of what is stored.  It reads the
whole timeline and the whole ledger up to a position: made for comparing and auditing, not for every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec import UNSET

from perdure.engines.contract import LabelOf, Step
from perdure.errors import Corrupt, Forgotten, Invalid, NotFound
from perdure.history import reader
from perdure.history.ancestry import stands_on
from perdure.history.changes import values
from perdure.history.changes.json_edits import check_place
from perdure.history.changes.values import declared, typed
from perdure.history.space import Space, TimelineContext, agent_after
from perdure.history.tree import EMPTY, Entry, Tree
from perdure.model import names
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.digest import Digest
from perdure.model.event import MemoryWritten
from perdure.model.head import Head
from perdure.projections.transcript import TranscriptEntry, Turn
from perdure.store.plumbing import revisions
from perdure.store.plumbing.handles import blocking, deferred
from perdure.store.plumbing.revisions import LogEntry, Moment, Wanted

if TYPE_CHECKING:
    from perdure.history import query
    from perdure.history.query import Blame, Difference
    from perdure.ledger import snapshot
    from perdure.memory import OwnerMemory, visibility
    from perdure.model.checkpoint import Checkpoint
    from perdure.model.context import Context
    from perdure.model.ticket import Ticket
    from perdure.projections import runtime as runtime_layer
    from perdure.projections import state as layers
    from perdure.projections.runtime import RuntimeState
    from perdure.projections.state import CanonicalAgentState, Ledger, Memorised
    from perdure.providers import contract as providers
    from perdure.providers.contract import Loss
    from perdure.runtime import events
    from perdure.runtime.inference import preview
    from perdure.switching import current_backend
    from perdure.switching.checkpoint import derive, sources, stored
    from perdure.switching.checkpoint.stored import StoredCheckpoint
else:
    query = deferred("perdure.history.query")
    snapshot = deferred("perdure.ledger.snapshot")
    visibility = deferred("perdure.memory.visibility")
    runtime_layer = deferred("perdure.projections.runtime")
    layers = deferred("perdure.projections.state")
    events = deferred("perdure.runtime.events")
    providers = deferred("perdure.providers.contract")
    current_backend = deferred("perdure.switching.current_backend")
    stored = deferred("perdure.switching.checkpoint.stored")
    preview = deferred("perdure.runtime.inference.preview")
    derive = deferred("perdure.switching.checkpoint.derive")
    sources = deferred("perdure.switching.checkpoint.sources")

__all__ = ["gather", "View"]


_COUNTERS = "/__run/"
_LOOKED_AT_MAX = 1_000  # commits, for the advice of an error


def gather(
    space: Space,
    commit: Digest | None,
    *,
    ledger: LedgerRead | None = None,
    memory: OwnerMemory | None = None,
) -> CanonicalAgentState:
    """Return the state of the agent at a commit; None is before the first.

    `ledger` says how far the ledger is read; None: as far as the commit itself had read it.
    `memory` is the owner's memory as it is now; None: there is none, or it is not of this moment.
    """
    step = None if commit is None else space.step(commit)
    upto = (step.commit.ledger if step else NO_LEDGER) if ledger is None else ledger
    book = snapshot.whole(space, upto)
    line = list(reader.steps(space, commit))[::-1]
    calls, tickets = tuple(book.calls.values()), tuple(book.tickets.values())
    return layers.CanonicalAgentState(
        conversation=space.label,
        commit=commit,
        transcript=tuple(reader.transcript(space, commit)),
        ledger=layers.Ledger(calls=calls, tickets=tickets),
        working=sources.read_working(space, commit),
        memory=layers.LongTermMemory(items=_items(space, commit, memory), written=_written(line)),
        runtime=_runtime(space, line, commit, layers.Ledger(calls=calls, tickets=tickets)),
    )


def _runtime(space: Space, line: Iterable[Step], commit: Digest | None, ledger: Ledger) -> RuntimeState:
    waiting = [ticket for ticket in ledger.tickets if _waits(space, ticket, commit)]
    runs = runtime_layer.open_runs(step.changeset for step in line)
    return runtime_layer.runtime(runs, ledger.calls, waiting, sources.notes_under(space, commit, _COUNTERS))


def _waits(space: Space, ticket: Ticket, commit: Digest | None) -> bool:
    return ticket.decision is None and stands_on(space, ticket.label, commit)


def _items(space: Space, commit: Digest | None, memory: OwnerMemory | None) -> tuple[Memorised, ...]:
    if memory is None:
        return ()
    judged = visibility.Visibility(memory, None, (space.name, commit)).items()
    return tuple(layers.Memorised(each.id, each.entry.value) for each in judged)


def _written(line: Iterable[Step]) -> tuple[str, ...]:
    return tuple(
        event.item for step in line for event in step.changeset.events if isinstance(event, MemoryWritten)
    )


def _kept_since(space: Space, top: Digest | None) -> Step | None:
    """Return the oldest commit since which no state of the line was forgotten; None: none, or it is too far back."""
    oldest: Step | None = None
    for step in reader.steps(space, top, limit=_LOOKED_AT_MAX):
        try:
            if step.commit.root != EMPTY:
                space.objects((step.commit.root,))
        except Forgotten:
            return oldest
        oldest = step
    return None


_T = TypeVar("_T")


@blocking
class View:
    """State, conversation and history as they were at one commit."""

    def __init__(self, standing: TimelineContext, head: Head, commit: Digest | None) -> None:
        """Read from `commit`; `head` is the head of the timeline when the view was taken."""
        self._standing = standing
        self._space = standing.space
        self._pinned = head, commit
        self.timeline = standing.timeline

    def __repr__(self) -> str:
        """Name the thread and the timeline."""
        place = self._standing
        return f"<{type(self).__name__} of '{place.space.label}' on '{place.timeline}'>"

    @property
    def head(self) -> Head:
        """The head of the timeline when the view was taken."""
        return self._now()[0]

    @property
    def digest(self) -> Digest | None:
        """The commit that is read; None before the first."""
        return self._now()[1]

    @property
    def cursor(self) -> str:
        """The cursor with which `follow` begins after what this view shows, moves of the head included."""
        head, commit = self._now()
        step = None if commit is None else self._space.step(commit)
        return str(events.Cursor.after(step, head.version if commit == head.commit else None))

    @property
    def root(self) -> Digest:
        """The root of the state at that commit."""
        return self._space.root_at(self._now()[1])

    @property
    def backend(self) -> str | None:
        """The backend of the next turn, as the history says; None: there was no run and no switch yet."""
        return current_backend.backend_at(self._space, self._now()[1])

    @property
    def server(self) -> str | None:
        """The server that has the conversation, as the history says; None: it names none.

        It is an address without user-info and query, or the name that a `Backend(…, server=…)` declared.
        """
        recorded = current_backend.recorded_at(self._space, self._now()[1])
        return None if recorded is None else recorded.server

    @overload
    def get(self, path: str, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, default: Any = ..., *, type: type[_T]) -> _T: ...
    def get(self, path: str, default: Any = UNSET, *, type: Any = None) -> Any:
        """Read the value at `path`; `default` if there is none, else `NotFound`.  `type` checks and converts it."""
        try:
            found = self._tree().get(names.check_path(path))
            if found is not None:
                return typed(path, values.read(self._space, found), type)
        except Forgotten as error:
            raise self._gone(path, error) from error
        return self._default(path, type, default)

    def entry(self, path: str) -> Entry:
        """Describe the value at `path`: form, media type, size and digest; raises `NotFound`."""
        try:
            return reader.entry_at(self._space, self._now()[1], path)
        except Forgotten as error:
            raise self._gone(path, error) from error

    def entries(self, prefix: str = "/") -> Iterator[Entry]:
        """Yield the descriptions of all paths under `prefix`, sorted."""
        return reader.paths(self._space, self._now()[1], prefix)

    def paths(self, prefix: str = "/") -> list[str]:
        """Return the paths under `prefix`, sorted."""
        try:
            return [entry.path for entry in reader.paths(self._space, self._now()[1], prefix)]
        except Forgotten as error:
            raise self._gone(prefix, error) from error

    def values(self, prefix: str = "/") -> dict[str, Any]:
        """Read the values of all paths under `prefix`, sorted by path, in fewer steps than `get` of each."""
        try:
            found = list(reader.paths(self._space, self._now()[1], prefix))
            read = values.read_many(self._space, found)
        except Forgotten as error:
            raise self._gone(prefix, error) from error
        return {entry.path: value for entry, value in zip(found, read, strict=True)}

    def transcript(self, *, limit: int | None = None, passes_damage: bool = False) -> list[TranscriptEntry]:
        """Read the messages, oldest first; with a `limit` only the last ones.

        Raises `Corrupt` if one is damaged; with `passes_damage` it is in the list without words, as `is_damaged`.
        """
        return reader.transcript(self._space, self._now()[1], limit=limit, passes_damage=passes_damage)

    def losses(self, entry: TranscriptEntry) -> tuple[Loss, ...]:
        """Return what the step that produced this message could not represent unchanged, in request and answer."""
        if not isinstance(entry, TranscriptEntry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"losses are those of an entry of the transcript, not of {entry!r}; nothing was read.",
                code="not_a_transcript_entry",
            )
        return providers.decode_losses(self._space.body(entry.losses)) if entry.losses is not None else ()

    def log(self, *, limit: int | None = None) -> list[LogEntry]:
        """Read the commits, newest first; with a `limit` only the last ones."""
        return [LogEntry.of(step) for step in reader.log(self._space, self._now()[1], limit=limit)]

    def named(self, name: str) -> list[LogEntry]:
        """Read the commits to which another framework's name was given, oldest first, of any timeline."""
        label = names.moment_label(names.check_moment_name(name))
        found: list[Digest] = list(self._space.ask(LabelOf(self._space.name, label))[0])
        return [LogEntry.of(self._space.step(digest)) for digest in found]

    def turns(self, *, limit: int | None = None, passes_damage: bool = False) -> list[Turn]:
        """Read the turns, oldest first; with a `limit` only the last ones.  `passes_damage` is as in `transcript`."""
        return reader.turns(self._space, self._now()[1], limit=limit, passes_damage=passes_damage)

    def checkpoint(self, *, to: str | None = None) -> Checkpoint:
        """Derive the checkpoint for a backend that takes over here, for `to` if it is named; nothing is written.

        At the commit of a switch it is the checkpoint of that switch, derived again from what it names: the commit
        before it, the ledger and the memory as they were then.
        """
        commit = self._now()[1]
        ledger = self._ledger(commit)
        made = self._made(commit, to) if ledger is None else None
        if made is not None:
            return derive.made_again(self._space, made)
        recall = derive.recalling(self._memory(), self._space.name, commit)
        return derive.derive(
            self._space,
            commit,
            to_backend=to,
            ledger=ledger,
            timeline=self.timeline,
            recall=recall,
        )

    def checkpoints(self, *, limit: int | None = None) -> list[StoredCheckpoint]:
        """Read the checkpoints of the switches on this timeline, newest first; with a `limit` only the last ones."""
        return stored.listing(self._space, self._now()[1], limit=limit)

    def layers(self) -> CanonicalAgentState:
        """Return the five layers of state: transcript, ledger, working and long-term memory, runtime state."""
        commit = self._now()[1]
        return gather(self._space, commit, ledger=self._ledger(commit), memory=self._memory())

    def context(self) -> Context:
        """Return what the last model to answer, at this moment or before it, was shown, byte for byte.

        Raises `NotFound` if no model has answered in a run, `Forgotten` if a part of the context was forgotten.
        """
        return preview.shown_at(self._space, self._now()[1]).context

    def at(self, moment: Wanted = UNSET) -> View:
        """Return a view of another moment: a name, a head, a turn, a commit; None is before the first, unset is now."""
        head, commit = self._now()
        if moment is not UNSET:
            commit = revisions.resolve(self._space, head, moment)
        return View(self._standing, head, commit)

    def diff(self, a: Moment, b: Wanted = UNSET, *, prefix: str = "/") -> Difference:
        """Compare two moments, unset being now: state, messages, tool calls."""
        head, commit = self._now()
        one = revisions.resolve(self._space, head, a)
        other = commit if b is UNSET else revisions.resolve(self._space, head, b)
        return query.between(self._space, one, other, prefix=prefix)

    def blame(self, path: str, *, place: Sequence[str | int] = (), at: Wanted = UNSET) -> Blame:
        """Find the commit, run, message and backend that wrote the value at `path` at a moment, unset is now.

        With a `place` inside the document, a list of keys and indexes, it is the commit that last changed what is
        there.  Raises `NotFound` if there is no value.
        """
        head, commit = self._now()
        moment = commit if at is UNSET else revisions.resolve(self._space, head, at)
        return query.blame(self._space, moment, path, check_place(place))

    def bisect(self, predicate: Callable[[View], bool], *, good: Moment = None) -> LogEntry:
        """Find the first commit after `good` at which `predicate` is true; raises `Invalid` if there is none."""
        head, commit = self._now()
        old = revisions.resolve(self._space, head, good)
        is_bad: Callable[[Step], bool] = lambda step: predicate(View(self._standing, head, step.digest))  # noqa: E731
        return LogEntry.of(query.bisect(self._space, commit, is_bad, good=old))

    def agent_map(self) -> View:
        """Return the agent's own map as it was seen from this moment.

        Raises `Conflict` if the timeline was handed off to another agent before it: that one's map is not shown.
        """
        agent = self._standing.agent
        if agent is None:
            raise Invalid("this is an agent's own map; it has none of its own.", code="agent_map_missing")
        head, commit = self._now()
        try:
            seen = self._agent_seen(head, commit)
            if seen is not None:
                agent.step(seen)
        except Corrupt:  # the commit names a map, and it may be another agent's
            agents = reader.agents_in(self._space.engine.cell(self._space.name, reader.AGENTS_OF_THREAD))
            reader.check_agent(self._space, commit, agents, agent.label)
            raise
        standing = TimelineContext(space=agent, timeline=self._standing.agent_line)
        return View(standing, Head(standing.timeline, 0, seen), seen)

    def _made(self, commit: Digest | None, to: str | None) -> Checkpoint | None:
        """Read the checkpoint that a commit made for the backend `to` (None: for any); None if it made none."""
        made = stored.made_by(self._space, commit) if commit is not None else None
        return made if made is not None and to in (None, made.to_backend) else None

    def _ledger(self, commit: Digest | None) -> LedgerRead | None:
        """Return how far the ledger is read; None: as far as the commit had read it."""
        return None

    def _memory(self) -> OwnerMemory | None:
        """Return the owner's memory; None: there is none, or it is not of this moment."""
        return None

    def _now(self) -> tuple[Head, Digest | None]:
        """Return the head of the timeline, and the commit to read from."""
        return self._pinned

    def _agent_seen(self, head: Head, commit: Digest | None) -> Digest | None:
        """Return the commit of the agent's map that belongs to this moment."""
        agent = self._standing.agent
        return agent_after(agent, self._space.step(commit)) if agent and commit else None

    def _tree(self) -> Tree:
        return self._space.tree_at(self._now()[1])

    def _gone(self, path: str, error: Forgotten) -> Forgotten:
        """Return the error with the moment that is gone, and the one since which moments can be read."""
        head, commit = self._now()
        if commit is None:
            return error
        moment = f"{path} at turn {self._space.step(commit).turn_number} (commit {commit[:12]})"
        kept = _kept_since(self._space, head.commit)
        if kept is None:
            return Forgotten(moment, error.why)
        since = f"turn {kept.turn_number} (commit {kept.digest[:12]})"
        return Forgotten(moment, error.why, advice=f"On '{head.timeline}' moments since {since} can be read.")

    def _default(self, path: str, type: Any, default: Any) -> Any:
        found = declared(self._standing.defaults, path, type) if default is UNSET else default
        if found is UNSET:
            commit = self._now()[1]
            where = f"at {commit[:12]}" if commit else "before the first commit"
            raise NotFound(
                f"there is nothing at {path} {where}.",
                code="path_not_found",
                advice="See what there is with paths(), or give a default.",
                path=path,
            )
        return found
