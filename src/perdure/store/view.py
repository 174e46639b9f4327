"""Gathering the five layers of an agent's state at a commit, each as a pure fold of what is stored.

Reads the whole line and the whole ledger up to a position: made for comparing and auditing, not for
every turn.

Views: the reading half of a thread, at one moment.

A view of a commit never changes, whatever is written meanwhile.  A thread reads in the same
way, but each call looks at the newest commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec import UNSET

from perdure.engines.contract import Step
from perdure.errors import Invalid, NotFound
from perdure.history import reader
from perdure.history.agent_map import TimelineContext, agent_after
from perdure.history.ancestry import stands_on
from perdure.history.changes import values
from perdure.history.changes.values import declared, typed
from perdure.history.query import blame, diff
from perdure.history.query.blame import Blame
from perdure.history.query.diff import Difference
from perdure.history.space import Space
from perdure.history.tree import Entry, Tree
from perdure.ledger import snapshot
from perdure.memory import OwnerMemory
from perdure.memory.visibility import Visibility
from perdure.model import names
from perdure.model.checkpoint import Checkpoint
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.context import Context
from perdure.model.digest import Digest
from perdure.model.event import MemoryWritten
from perdure.model.head import Head
from perdure.model.ticket import Ticket
from perdure.projections.runtime import RuntimeState, open_runs, runtime
from perdure.projections.state import CanonicalAgentState, Ledger, LongTermMemory, Memorised
from perdure.projections.transcript import TranscriptEntry, Turn
from perdure.providers.contract import Loss, decode_losses
from perdure.store.plumbing import revisions
from perdure.store.plumbing.deferred import deferred
from perdure.store.plumbing.loop_guard import blocking
from perdure.store.plumbing.revisions import LogEntry, Moment, Wanted
from perdure.switching.checkpoint import stored
from perdure.switching.checkpoint.stored import Kept
from perdure.switching.current_backend import backend_at, recorded_at

if TYPE_CHECKING:
    from perdure.runtime.inference import preview
    from perdure.switching.checkpoint import derive, sources
else:
    preview = deferred("perdure.runtime.inference.preview")
    derive = deferred("perdure.switching.checkpoint.derive")
    sources = deferred("perdure.switching.checkpoint.sources")

__all__ = ["gather", "View"]


_COUNTERS = "/__run/"


def gather(
    space: Space,
    commit: Digest | None,
    *,
    ledger: LedgerRead | None = None,
    memory: OwnerMemory | None = None,
) -> CanonicalAgentState:
    """The state of the agent at a commit, None being before the first.

    `ledger` says how far to read the log of calls; None: as far as the commit itself had read it.
    `memory` is the owner's, as it is now; None: there is none, or it is not of this moment.
    """
    step = None if commit is None else space.step(commit)
    upto = (step.commit.ledger if step else NO_LEDGER) if ledger is None else ledger
    kept = snapshot.whole(space, upto)
    line = list(reader.steps(space, commit))[::-1]
    calls, tickets = tuple(kept.calls.values()), tuple(kept.tickets.values())
    return CanonicalAgentState(
        conversation=space.label,
        commit=commit,
        transcript=tuple(reader.transcript(space, commit)),
        ledger=Ledger(calls=calls, tickets=tickets),
        working=sources.read_working(space, commit),
        memory=LongTermMemory(items=_items(space, commit, memory), written=_written(line)),
        runtime=_runtime(space, line, commit, Ledger(calls=calls, tickets=tickets)),
    )


def _runtime(space: Space, line: Iterable[Step], commit: Digest | None, ledger: Ledger) -> RuntimeState:
    waiting = [ticket for ticket in ledger.tickets if _waits(space, ticket, commit)]
    runs = open_runs(step.changeset for step in line)
    return runtime(runs, ledger.calls, waiting, sources.notes_under(space, commit, _COUNTERS))


def _waits(space: Space, ticket: Ticket, commit: Digest | None) -> bool:
    return ticket.decision is None and stands_on(space, ticket.label, commit)


def _items(space: Space, commit: Digest | None, memory: OwnerMemory | None) -> tuple[Memorised, ...]:
    if memory is None:
        return ()
    judged = Visibility(memory, None, (space.name, commit)).items()
    return tuple(Memorised(each.id, each.entry.value) for each in judged)


def _written(line: Iterable[Step]) -> tuple[str, ...]:
    return tuple(
        event.item for step in line for event in step.changeset.events if isinstance(event, MemoryWritten)
    )


_T = TypeVar("_T")


@blocking
class View:
    """State, conversation and history as they were at one commit."""

    def __init__(self, standing: TimelineContext, head: Head, commit: Digest | None) -> None:
        """Look at `commit`; `head` is where the timeline stood when the view was taken."""
        self._standing = standing
        self._space = standing.space
        self._pinned = head, commit
        self.timeline = standing.timeline

    def __repr__(self) -> str:
        """Name what is looked at."""
        place = self._standing
        return f"<{type(self).__name__} of '{place.space.label}' on '{place.timeline}'>"

    @property
    def head(self) -> Head:
        """Where the timeline stood when the view was taken."""
        return self._now()[0]

    @property
    def digest(self) -> Digest | None:
        """The commit that is looked at; None before the first."""
        return self._now()[1]

    @property
    def root(self) -> Digest:
        """The root of the state at that commit."""
        return self._space.root_at(self._now()[1])

    @property
    def backend(self) -> str | None:
        """The backend that the history gives the next turn to; None: no run has begun, and nobody has switched."""
        return backend_at(self._space, self._now()[1])

    @property
    def server(self) -> str | None:
        """The server that the history says the conversation is at; None: it names none.

        An address without user-info and query, or the name that a `Backend(…, server=…)` declared.
        """
        recorded = recorded_at(self._space, self._now()[1])
        return None if recorded is None else recorded.server

    @overload
    def get(self, path: str, *, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, *, type: type[_T], default: Any = ...) -> _T: ...
    def get(self, path: str, *, type: Any = None, default: Any = UNSET) -> Any:
        """The value at `path`; `default` if there is none, else `NotFound`.  `type` checks and converts it."""
        found = self._tree().get(names.check_path(path))
        if found is not None:
            return typed(path, values.read(self._space, found), type)
        return self._default(path, type, default)

    def entry(self, path: str) -> Entry:
        """What the map says about `path`: form, media type, size and digest; raises `NotFound`."""
        return reader.entry_at(self._space, self._now()[1], path)

    def entries(self, prefix: str = "/") -> Iterator[Entry]:
        """The same for all paths that `prefix` covers, sorted, read as they are asked for."""
        return reader.paths(self._space, self._now()[1], prefix)

    def paths(self, prefix: str = "/") -> list[str]:
        """The paths that `prefix` covers, sorted."""
        return [entry.path for entry in reader.paths(self._space, self._now()[1], prefix)]

    def transcript(self, *, limit: int | None = None) -> list[TranscriptEntry]:
        """What was said, oldest first; with a `limit` the last so many messages."""
        return reader.transcript(self._space, self._now()[1], limit=limit)

    def losses(self, entry: TranscriptEntry) -> tuple[Loss, ...]:
        """What could not be carried over unchanged in the step of a run that said this: its request, its answer."""
        if not isinstance(entry, TranscriptEntry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"losses are those of an entry of the transcript, not of {entry!r}; nothing was read."
            )
        return decode_losses(self._space.body(entry.losses)) if entry.losses is not None else ()

    def log(self, *, limit: int | None = None) -> list[LogEntry]:
        """The commits, newest first; with a `limit` the last so many."""
        return [LogEntry.of(step) for step in reader.log(self._space, self._now()[1], limit=limit)]

    def turns(self, *, limit: int | None = None) -> list[Turn]:
        """The turns, oldest first; with a `limit` the last so many."""
        return reader.turns(self._space, self._now()[1], limit=limit)

    def checkpoint(self, *, to: str | None = None) -> Checkpoint:
        """What a backend has to know that takes over here, `to` it if it is named; nothing is written.

        At the commit of a switch it is the one that the switch made, derived again from what it names: the
        commit before it, the ledger and the memory as they were then.
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

    def checkpoints(self, *, limit: int | None = None) -> list[Kept]:
        """The checkpoints that switches left on this line, newest first; with a `limit` the last so many."""
        return stored.listing(self._space, self._now()[1], limit=limit)

    def layers(self) -> CanonicalAgentState:
        """The five layers of state: transcript, ledger, working and long-term memory, runtime state."""
        commit = self._now()[1]
        return gather(self._space, commit, ledger=self._ledger(commit), memory=self._memory())

    def context(self) -> Context:
        """What the model was shown that spoke last, at this moment or before it, byte for byte.

        Raises `NotFound` if none spoke in a run, `Forgotten` if a part of what it was shown was forgotten.
        """
        return preview.shown_at(self._space, self._now()[1]).context

    def at(self, moment: Wanted = UNSET) -> View:
        """A view of another moment: a name, a head, a turn, a commit; None is before the first, unset is now."""
        head, commit = self._now()
        if moment is not UNSET:
            commit = revisions.resolve(self._space, head, moment)
        return View(self._standing, head, commit)

    def diff(self, a: Moment, b: Wanted = UNSET, *, prefix: str = "/") -> Difference:
        """What differs from one moment to another, unset being now: state, messages, tool calls."""
        head, commit = self._now()
        one = revisions.resolve(self._space, head, a)
        other = commit if b is UNSET else revisions.resolve(self._space, head, b)
        return diff.between(self._space, one, other, prefix=prefix)

    def blame(self, path: str) -> Blame:
        """Which commit, run, message and backend wrote the value at `path`; raises `NotFound`."""
        return blame.blame(self._space, self._now()[1], path)

    def bisect(self, predicate: Callable[[View], bool], *, good: Moment = None) -> LogEntry:
        """The first commit after `good` at which `predicate` is true; raises `Invalid` if it never becomes so."""
        head, commit = self._now()
        old = revisions.resolve(self._space, head, good)
        asked: Callable[[Step], bool] = lambda step: predicate(View(self._standing, head, step.digest))  # noqa: E731
        return LogEntry.of(blame.bisect(self._space, commit, asked, good=old))

    def agent_map(self) -> View:
        """The agent's own map as it was seen from this moment."""
        agent = self._standing.agent
        if agent is None:
            raise Invalid("this is an agent's own map; it has none of its own.")
        seen = self._agent_seen(*self._now())
        standing = TimelineContext(space=agent, timeline=self._standing.agent_line)
        return View(standing, Head(standing.timeline, 0, seen), seen)

    def _made(self, commit: Digest | None, to: str | None) -> Checkpoint | None:
        """The checkpoint that a commit made for a backend, or for any; None if it made none."""
        kept = stored.made_by(self._space, commit) if commit is not None else None
        return kept if kept is not None and to in (None, kept.to_backend) else None

    def _ledger(self, commit: Digest | None) -> LedgerRead | None:
        """How far the ledger counts; None: as far as the commit had read it, whatever was written since."""
        return None

    def _memory(self) -> OwnerMemory | None:
        """The owner's memory; None: there is none, or it is not of this moment."""
        return None

    def _now(self) -> tuple[Head, Digest | None]:
        """The head of the timeline, and the commit to read from."""
        return self._pinned

    def _agent_seen(self, head: Head, commit: Digest | None) -> Digest | None:
        """The commit of the agent's map that belongs to this moment."""
        agent = self._standing.agent
        return agent_after(agent, self._space.step(commit)) if agent and commit else None

    def _tree(self) -> Tree:
        return self._space.tree_at(self._now()[1])

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
