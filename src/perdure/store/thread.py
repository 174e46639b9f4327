"""The handle on a thread: one continuing conversation or piece of work.

Each method calls the package that owns the rule.  A handle caches nothing that can change, so a program can keep it
for any time, and use it after a fork of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET

from perdure.engines.contract import Hold
from perdure.errors import Invalid, PerdureError
from perdure.history import reader, timelines
from perdure.history.space import Space, TimelineContext
from perdure.model import names
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.digest import Digest
from perdure.model.head import MAIN, Head
from perdure.projections.transcript import Turn
from perdure.runtime.agent.agent import Agent, encoded_defaults
from perdure.store.artifacts import Artifacts
from perdure.store.plumbing import directory, outbox, revisions
from perdure.store.plumbing.directory import Record
from perdure.store.plumbing.handles import (
    StoreResources,
    blocking,
    deferred,
)
from perdure.store.plumbing.revisions import Moment, Wanted
from perdure.store.plumbing.run_fence import removed, without_runs
from perdure.store.runs import Switching
from perdure.store.timeline import given

if TYPE_CHECKING:
    from perdure.context.plan import Plan
    from perdure.history import merge
    from perdure.history.merge import Taken, Terms
    from perdure.ledger import effect_limit, snapshot
    from perdure.memory import OwnerMemory
    from perdure.model.effect import Effect
    from perdure.providers import registry
    from perdure.providers.backend import Backend
    from perdure.providers.contract import Loss, Model, Rendered
    from perdure.runtime import import_messages
    from perdure.runtime.import_messages import Added
    from perdure.runtime.inference import preview
    from perdure.runtime.inference.preview import Shown
    from perdure.runtime.session import environment
    from perdure.runtime.session.environment import RunEnvironment
    from perdure.runtime.tools import execution
else:
    merge = deferred("perdure.history.merge")
    effect_limit = deferred("perdure.ledger.effect_limit")
    snapshot = deferred("perdure.ledger.snapshot")
    registry = deferred("perdure.providers.registry")
    import_messages = deferred("perdure.runtime.import_messages")
    preview = deferred("perdure.runtime.inference.preview")
    environment = deferred("perdure.runtime.session.environment")
    execution = deferred("perdure.runtime.tools.execution")

__all__ = ["OnTimeline", "Thread"]


class OnTimeline(Protocol):
    """A handle on a timeline, blocking or awaitable."""

    @property
    def timeline(self) -> str:
        """Its name."""
        ...


@blocking
class Thread(Switching):
    """One timeline of a thread, `main` unless another was asked for."""

    def __init__(
        self, resources: StoreResources, id: str, record: Record, agent: Agent, timeline: str = MAIN
    ) -> None:
        """Wrap a thread of the directory; programs get one from `store.thread`."""
        space = resources.thread(id, record.space)
        standing = TimelineContext(
            space=space,
            timeline=timeline,
            agent=resources.agent(record.agent),
            defaults=encoded_defaults(agent),
        )
        super().__init__(standing)
        self._resources, self._record, self._declared = resources, record, agent
        self._handed = {}  # backend objects that were passed to a switch
        self.id = id
        self.agent = record.agent
        self.owner = record.owner
        self.begun_at = record.begun_at  # µs since 1970, UTC
        self.artifacts = Artifacts(standing)

    def on(self, timeline: str) -> Thread:
        """Return a handle on another timeline of this thread; raises `NotFound` if there is none of that name."""
        reader.hold_of(self._space, _named(timeline))
        return self._on(timeline)

    def timelines(self) -> list[Hold]:
        """Return all timelines sorted by name, `main` first, each with its head and whether it is sealed."""
        return list(timelines.timelines(self._space))

    def fork(
        self,
        name: str,
        *,
        at: Wanted = UNSET,
        effect_max: Effect | None = None,
        op_id: str | None = None,
    ) -> Thread:
        """Begin a timeline at a moment, unset is now, and return a handle on it.  Nothing is copied.

        `effect_max` is the strongest effect that tool calls may have there and on its forks; None: the limit of this
        timeline.
        """
        moment = UNSET if at is UNSET else revisions.name_of(at)
        effect_limit.fork(self._space, self.timeline, name, moment, effect_max=effect_max, op_id=given(op_id))
        return self._on(name)

    def promote(self, other: str | OnTimeline, *, op_id: str | None = None) -> Head:
        """Move `main` to the other timeline's commit; the old main stays as `main.v<n>`, sealed.

        Raises `StaleHead`, having moved nothing, if another writer moves `main` first.
        """
        lines = (MAIN, _named(other))
        op_id = given(op_id)
        head = without_runs(self._space, lines, "promote", lambda space: self._promote(space, lines, op_id))
        self._finish()
        return head

    def seal(self, *, op_id: str | None = None) -> Head:
        """Seal this timeline: it takes no more writes, ever.  It can be read, forked and promoted."""
        op_id = given(op_id)
        act: Callable[[Space], Head] = lambda space: timelines.seal(space, self.timeline, op_id=op_id)  # noqa: E731
        return without_runs(self._space, (self.timeline,), "seal", act)

    def merge(self, other: str | OnTimeline, *, reason: str = "merge", op_id: str | None = None) -> Taken:
        """Merge the changes of the other timeline; raises `MergeConflict`, having written nothing, on a conflict."""
        source = _named(other)
        theirs = reader.head_to_move(self._space, source).commit
        head = reader.head_to_move(self._space, self.timeline)
        if theirs is None:
            return merge.Taken(head=head, commit=None, base=None, paths=0)
        terms = self._terms(head, reason, op_id)
        act: Callable[[Space], Taken] = lambda space: merge.merge(space, head, theirs, terms, source=source)  # noqa: E731
        return without_runs(self._space, (self.timeline,), "merge", act)

    def cherry_pick(self, commit: Moment, *, reason: str = "cherry-pick", op_id: str | None = None) -> Taken:
        """Apply the change of state of one commit, or one turn, to this timeline again.

        A turn, as `turns()` returns it, or the last commit of a run means everything that the turn changed.  Raises
        `MergeConflict`, having written nothing, on a conflict.
        """
        head = reader.head_to_move(self._space, self.timeline)
        picked = revisions.resolve(self._space, head, commit)
        if picked is None:
            raise Invalid(
                "the moment before the first commit changed nothing; nothing was written.",
                code="nothing_to_pick",
            )
        terms = self._terms(head, reason, op_id)
        act: Callable[[Space], Taken] = lambda space: merge.cherry_pick(  # noqa: E731
            space, head, picked, terms, turn=isinstance(commit, Turn)
        )
        return without_runs(self._space, (self.timeline,), "cherry-pick", act)

    def add(
        self,
        messages: object,
        *,
        api: str,
        provider: str | None = None,
        model: str | None = None,
        whole: bool = False,
        op_id: str | None = None,
    ) -> tuple[Loss, ...]:
        """Add a conversation in a vendor's format: a request, a reply or a list of messages; return what was lost.

        `api` is the wire format, such as "openai-chat"; `provider` and `model` name the assistant.  The calls enter
        the ledger as made elsewhere; a result is matched with its call also if that was added before.  A message whose
        id is already on this timeline is not added again.  With `whole` the messages must begin with the whole
        transcript, and only the rest is added.  Raises `Invalid`, having written nothing, if the messages cannot be
        read, and `Conflict` if with `whole` they begin otherwise.
        """
        env, named = self._env(), given(op_id)

        def added(space: Space) -> Added:
            standing = msgspec.structs.replace(env.standing, space=space)
            placed = msgspec.structs.replace(env, standing=standing)
            return import_messages.add(
                placed, messages, api=api, op_id=named, provider=provider, model=model, whole=whole
            )

        return without_runs(self._space, (self.timeline,), "adding messages", added).losses

    def render(self, backend: str | Backend, *, at: Wanted = UNSET) -> Rendered:
        """Return the request that a backend would be sent at a moment, with what it could not represent unchanged."""
        named = registry.in_full(backend, self._resources.models) if isinstance(backend, str) else backend
        return preview.render(self._env(), named, at=self._moment(at))

    def plan(self, backend: str | Backend | Model | None = None, *, at: Wanted = UNSET) -> Plan:
        """Plan what a backend would be shown for its next step at a moment, item by item, with reasons.

        None takes the backend of the timeline.  Nothing is written and nothing is sent.
        """
        named = registry.in_full(backend, self._resources.models) if isinstance(backend, str) else backend
        return preview.planned(self._env(), named, at=self._moment(at))

    def shown(self, at: Wanted = UNSET) -> Shown:
        """Return what the last model to answer, at a moment or before it, was shown: the plan and the request.

        Raises `NotFound` if no model has answered in a run.
        """
        return preview.shown(self._env(), self._moment(at))

    def export(self, api: str, *, model: str | None = None, at: Wanted = UNSET) -> Rendered:
        """Return the conversation at a moment in a wire format, such as "openai-chat"; None: for no particular model."""
        if model is not None:
            names.check_label("model", model)
        return preview.render_as(self._env(), api, model=model or "", at=self._moment(at))

    def rm(self, *, force: bool = False) -> None:
        """Remove the thread and its ledger.  The id can be used for a new thread; handles on this one are stale.

        Raises `Busy` under a run, and `Conflict` while a call waits, is under way or its outcome is unknown; with
        `force` the thread is removed with such calls.
        """
        reader.head_of(self._space, MAIN)
        outbox.finish(self._resources.named, self._space)
        store = self._resources.store
        remove: Callable[[Space], None] = lambda space: directory.remove(store, space, self.id)  # noqa: E731
        removed(self._space, remove, force=force)

    def _moment(self, at: Wanted) -> Digest | None:
        return revisions.resolve(self._space, reader.head_of(self._space, self.timeline), at)

    def _ledger(self, commit: Digest | None) -> LedgerRead | None:
        """Return the end of the ledger: decisions and calls since the newest commit count."""
        return snapshot.now(
            self._space, since=self._space.step(commit).commit.ledger if commit else NO_LEDGER
        )

    def _memory(self) -> OwnerMemory | None:
        return self._resources.memories.of(self.owner) if self.owner else None

    def _env(self) -> RunEnvironment:
        """Return the environment of a run on this timeline; the awaitable interface uses it too."""
        return environment.RunEnvironment(
            standing=self._standing,
            agent=self._declared,
            store_runtime=self._resources.store_runtime,
            store=self._resources.store,
            finish=self._finish,
            effect_max=effect_limit.most(self._space, self.timeline),
            handed=self._handed,
            models=self._resources.models,
            memory=self._memory(),
            parent_run=execution.running_inside(),
        )

    def _promote(self, space: Space, lines: tuple[str, str], op_id: str | None) -> Head:
        main, line = (reader.head_to_move(space, each) for each in lines)
        cells = outbox.promotion(space, self._resources.agent(self.agent), main, line)
        return timelines.promote(space, line, op_id=op_id, onto=main, cells=cells)

    def _on(self, timeline: str) -> Thread:
        other = Thread(self._resources, self.id, self._record, self._declared, timeline)
        other._handed = self._handed
        return other

    def _terms(self, head: Head, reason: str, op_id: str | None) -> Terms:
        rules = directory.rules_of(self._resources.store, self.agent)
        outside = self._standing.sight(head).reads
        return merge.Terms(op_id=self._op_id(op_id), reason=reason, rules=rules, outside=outside)

    def _finish(self) -> None:
        # The commit is durable and records what is left to do, so an error here does not make it a failure: the next
        # change, or the next opening of the store, tries again, and `verify` reports damage.
        with suppress(PerdureError):
            outbox.finish(self._resources.named, self._space)


def _named(timeline: str | OnTimeline) -> str:
    name: object = getattr(timeline, "timeline", timeline)
    if not isinstance(name, str):
        raise Invalid(
            f"a timeline is named, or given by a handle on it, not by {timeline!r}; nothing was done.",
            code="not_a_timeline",
        )
    return name
