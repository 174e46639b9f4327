"""The handle on a thread: one continuing conversation or piece of work.

Each method calls the package that owns the rule.  A handle caches nothing that can change, so a program can keep it
for any time, and use it after a fork of the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec import UNSET

from perdure.engines import loops
from perdure.engines.contract import Hold, LedgerOf
from perdure.errors import Conflict, Invalid, NotFound, PerdureError, WrongStore
from perdure.history import reader, timelines
from perdure.history.space import Space, TimelineContext
from perdure.model import names
from perdure.model.commit import NO_LEDGER, LedgerRead, MoveRecord
from perdure.model.digest import Digest, Object, check_digest
from perdure.model.head import MAIN, Head
from perdure.model.names import shown_address
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
from perdure.store.plumbing.run_fence import removed, without_queue, without_runs
from perdure.store.runs import Switching
from perdure.store.timeline import given

if TYPE_CHECKING:
    from perdure.context.plan import Plan
    from perdure.history import merge
    from perdure.history.merge import Taken, Terms
    from perdure.ledger import effect_limit, snapshot
    from perdure.memory import OwnerMemory
    from perdure.model.effect import Effect
    from perdure.model.merge_rules import Side
    from perdure.model.redaction import CallPart
    from perdure.model.ticket import ChildRef
    from perdure.providers import registry
    from perdure.providers.backend import Backend
    from perdure.providers.contract import Loss, Model, Rendered
    from perdure.runtime import event_loop, import_commit, import_messages
    from perdure.runtime.import_commit import ImportedCommits, ImportStep
    from perdure.runtime.import_messages import Added
    from perdure.runtime.inference import preview, switch
    from perdure.runtime.inference.preview import Shown
    from perdure.runtime.run import child as child_runs
    from perdure.runtime.run import replay as replays
    from perdure.runtime.run.replay import ReplayReport
    from perdure.runtime.session import environment
    from perdure.runtime.session.environment import RunEnvironment
    from perdure.runtime.session.result import Result
    from perdure.runtime.tools import execution
    from perdure.runtime.tools.waiting import ChildRequest
    from perdure.store.upkeep import redact, retention
    from perdure.store.upkeep.redact import RedactionReport
else:
    merge = deferred("perdure.history.merge")
    effect_limit = deferred("perdure.ledger.effect_limit")
    snapshot = deferred("perdure.ledger.snapshot")
    registry = deferred("perdure.providers.registry")
    event_loop = deferred("perdure.runtime.event_loop")
    import_commit = deferred("perdure.runtime.import_commit")
    import_messages = deferred("perdure.runtime.import_messages")
    replays = deferred("perdure.runtime.run.replay")
    preview = deferred("perdure.runtime.inference.preview")
    environment = deferred("perdure.runtime.session.environment")
    child_runs = deferred("perdure.runtime.run.child")
    switch = deferred("perdure.runtime.inference.switch")
    execution = deferred("perdure.runtime.tools.execution")
    redact = deferred("perdure.store.upkeep.redact")
    retention = deferred("perdure.store.upkeep.retention")

__all__ = ["OnTimeline", "Thread"]


# What other libraries call the methods of a thread.
_USUAL_METHODS = {
    "say": "'run', or change.say in `with thread.change(…) as change:`", "ask": "'run'", "chat": "'run'",
    "invoke": "'run'", "send": "'run'", "complete": "'run'", "messages": "'transcript'", "history": "'log'",
    "state": "'get', or 'paths'", "set": "'put'", "update": "'change'", "commit": "'change'", "branch": "'fork'",
    "checkout": "'at'", "revert": "'undo'", "rollback": "'undo'", "approve": "decide(call, 'approve')",
    "append": "change.append in `with thread.change(…) as change:`",
    "deny": "decide(call, 'deny')", "delete_thread": "'rm'",
    "retry": "'run' with the same input and id, or resume(run, retry=True)",
}  # fmt: skip


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
        self,
        resources: StoreResources,
        id: str,
        record: Record,
        agent: Agent,
        timeline: str = MAIN,
        *,
        begun: bool = False,
        agent_space: Space | None = None,
    ) -> None:
        """Wrap a thread of the directory, perhaps one that was `begun` just now; programs get it from `store.thread`.

        `agent_space` has the agent's own map; None: it is opened, which reads whether there is one.
        """
        space = resources.thread(id, record.space, begun=begun)
        standing = TimelineContext(
            space=space,
            timeline=timeline,
            agent=agent_space or resources.agent(record.agent),
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

    if not TYPE_CHECKING:  # a checker would take every name for one that there is

        def __getattr__(self, name: str) -> object:
            """Raise `AttributeError` with the method that may be meant."""
            what = names.no_such_name("Thread", name, dir(type(self)), _USUAL_METHODS, what="attribute")
            # With a name the interpreter would add a suggestion of its own to ours.
            raise AttributeError(what if not name.startswith("__") else name, obj=self)

    def on(self, timeline: str) -> Thread:
        """Return a handle on another timeline of this thread; raises `NotFound` if there is none of that name."""
        space, name = self._space, _named(timeline)
        known = space.knowing(*reader.head_questions(space, name), reader.agents_question(space.name))
        reader.hold_of(known, name)
        return self._on(name, known)

    def expecting(self, head: Head) -> Thread:
        """Return a handle that moves this timeline from `head`, which was read earlier, or not at all.

        Everything that the handle does to the timeline, the start of a run too, raises `StaleHead`, having done
        nothing, if the head has moved.  An op_id that was used before still returns the first outcome.
        """
        if head.timeline != self.timeline:
            raise Invalid(
                f"the head is that of '{head.timeline}', and this is '{self.timeline}'; nothing was done.",
                code="head_elsewhere",
                timeline=head.timeline,
            )
        own = self._standing.agent
        other = Thread(self._resources, self.id, self._record, self._declared, self.timeline, agent_space=own)
        other._handed = self._handed
        space = msgspec.structs.replace(self._space, expects=head)
        other._standing, other._space = msgspec.structs.replace(self._standing, space=space), space
        return other

    def with_agent(self, agent: Agent) -> Thread:
        """Return a handle on the same timeline that knows this declaration of its agent, for reading what depends on it.

        Other than `store.thread`, this does not record the agent's merge rules and policy.  Raises `Conflict` if the
        timeline is another agent's.
        """
        if agent.name != self.agent:
            raise reader.other_agent(self.id, agent.name, self.agent)
        own = self._standing.agent
        other = Thread(self._resources, self.id, self._record, agent, self.timeline, agent_space=own)
        other._handed = self._handed
        return other

    def moves(self, *, before: int | None = None, limit: int | None = None) -> list[MoveRecord]:
        """Read the moves of this timeline's head, newest first, with versions below `before` (None: all).

        With a `limit` only so many are read.
        """
        reader.check_limit(limit)
        space = self._space
        return list(islice(loops.moves(space.engine, space.name, self.timeline, before=before), limit))

    def stored(self, digest: str) -> Object:
        """Read one stored object of this thread as it is: its kind and its bytes, which fit the digest.

        Raises `NotFound` if the thread has none, `Forgotten` if its content was forgotten.
        """
        wanted = check_digest(digest)
        if self._space.engine.missing(self._space.name, (wanted,)):
            raise NotFound(
                f"'{self.id}' has no object {wanted[:12]}; nothing was read.",
                code="object_not_found",
                digest=wanted,
            )
        return self._space.objects((wanted,))[0]

    def timelines(self) -> list[Hold]:
        """Return all timelines sorted by name, `main` first, each with its head and whether it is sealed."""
        return list(timelines.timelines(self._space))

    def removal_state(self, timeline: str | OnTimeline) -> Literal["dropped", "forgotten"] | None:
        """Return whether a timeline was dropped, or `gc` has taken content that only it uses; None: neither."""
        head = reader.hold_of(self._space, _named(timeline)).head
        if timelines.is_forgotten(self._space, head):
            return "forgotten"
        return "dropped" if reader.is_dropped(self._space, head.timeline) else None

    def fork(
        self,
        name: str,
        *,
        at: Wanted = UNSET,
        effect_max: Effect | None = None,
        op_id: str | None = None,
        author: str | None = None,
    ) -> Thread:
        """Begin a timeline at a moment, unset is now, and return a handle on it.  Nothing is copied.

        `effect_max` is the strongest effect that tool calls may have there and on its forks; None: the limit of this
        timeline.
        """
        moment = UNSET if at is UNSET else revisions.name_of(at)
        known = effect_limit.fork(
            self._space,
            self.timeline,
            name,
            moment,
            effect_max=effect_max,
            op_id=given(op_id),
            author=author,
        )
        return self._on(name, known)

    def promote(
        self, other: str | OnTimeline, *, op_id: str | None = None, author: str | None = None
    ) -> Head:
        """Move `main` to the other timeline's commit; the old main stays as `main.v<n>`, sealed.

        To take it back, promote that one, or go back with `undo(to="version:<n>")`; `undo()` goes over a turn.  Raises
        `StaleHead`, having moved nothing, if another writer moves `main` first, and `Forgotten` if a policy removed the
        state there, or messages that `main` does not have.
        """
        lines = (MAIN, _named(other))
        op_id = given(op_id)
        space = self._unless_done(op_id)
        asking = [each for line in lines for each in reader.head_questions(space, line)]
        asking += timelines.move_questions(space, op_id)
        act: Callable[[Space], Head] = lambda space: self._promote(space, lines, op_id, author)  # noqa: E731
        head = without_runs(space, lines, "promote", act, asking=asking)
        self._finish()
        return head

    def seal(self, *, op_id: str | None = None, author: str | None = None) -> Head:
        """Seal this timeline: it takes no more writes, ever.  It can be read, forked and promoted."""
        op_id = given(op_id)
        return self._move("seal", partial(timelines.seal, op_id=op_id, author=author), op_id)

    def drop(
        self, timeline: str | OnTimeline, *, op_id: str | None = None, author: str | None = None
    ) -> Head:
        """Drop another timeline: it is sealed, and `gc` of what was removed takes what no other timeline needs.

        Until then it can be read, forked and promoted.  Its name stays in use, its calls stay in the ledger, and items
        of memory that it alone wrote are withdrawn.  Raises `Busy` under a run, `Conflict` while anything is open there
        (`Thread.rm` says what), and `Invalid` for `main`.
        """
        line = _named(timeline)

        def act(space: Space) -> Head:
            open_work = retention.open_lines(space).get(line)
            if open_work is not None:
                raise Conflict(
                    f"timeline '{line}' of '{self.id}' cannot be dropped: {open_work}; nothing was changed.",
                    code="timeline_open",
                    advice="Finish, cancel or settle it first.",
                    thread=self.id,
                    timeline=line,
                    why=open_work,
                )
            return timelines.drop(space, line, op_id=op_id, author=author)

        op_id = given(op_id)
        return without_queue(self._unless_done(op_id), (line,), f"dropping '{line}'", act)

    def merge(
        self,
        other: str | OnTimeline,
        *,
        reason: str | None = None,
        prefer: Side | Mapping[str, Side] | None = None,
        dry_run: bool = False,
        op_id: str | None = None,
    ) -> Taken:
        """Merge the changes of the other timeline; raises `MergeConflict`, having written nothing, on a conflict.

        The reason is "merge" with the name of the other timeline if none is given.
        `prefer` says which side wins a conflict, "ours" or "theirs", for all paths or by path prefix; None: neither.  Of
        an object that is joined key by key the side wins the keys that both changed.  A value of ours that theirs covers is named by an event of the commit.  With `dry_run` nothing is written: the
        answer has the paths that would change, and the conflicts.
        """
        source = _named(other)
        known = self._knowing(self.timeline, source, op_id=op_id)
        theirs = reader.head_to_move(known, source).commit
        head = reader.head_to_move(known, self.timeline)
        if theirs is None:
            return merge.Taken(head=head, commit=None, base=None, paths=0)
        why = f"merge {source}"[: names.ID_BYTES_MAX] if reason is None else reason
        terms = self._terms(known, head, why, op_id, prefer)
        if dry_run:
            reader.unsealed_head(known, self.timeline)
            return merge.would_merge(self._space, head, theirs, terms)
        act: Callable[[Space], Taken] = lambda space: merge.merge(space, head, theirs, terms, source=source)  # noqa: E731
        return self._merged("merge", act, terms)

    def cherry_pick(
        self,
        commit: Moment | Iterable[Moment],
        *,
        source: str | OnTimeline | None = None,
        reason: str | None = None,
        prefer: Side | Mapping[str, Side] | None = None,
        dry_run: bool = False,
        op_id: str | None = None,
    ) -> Taken:
        """Apply the changes of state of turns and commits to this timeline again, one commit for each, all or none.

        `commit` is a moment, a range such as "4..6" of turns (or two commits) with what was done between them, or
        several of these in the order in which they are applied.  A turn, by its number or as `turns()` returns it, or
        the last commit of a run means everything that the turn changed.  Names and numbers are those of the timeline
        `source`; None: of this one.  Without a `reason` each commit says what was picked, such as "cherry-pick turn 4".
        `prefer` and `dry_run` are as in `merge`; the outcome of each is in `picks`.  Raises `MergeConflict`, having
        written nothing, on a conflict.
        """
        line = self if source is None or _named(source) == self.timeline else self.on(_named(source))
        known = self._knowing(self.timeline, op_id=op_id)
        head = (reader.unsealed_head if dry_run else reader.head_to_move)(known, self.timeline)
        there = head if line is self else reader.head_of(line._space, line.timeline)
        picks = revisions.picks(self._space, there, commit, partial(line._picked, there))
        terms = self._terms(known, head, reason or "", op_id, prefer)
        if dry_run:
            return merge.would_pick(self._space, head, picks, terms)
        act: Callable[[Space], Taken] = lambda space: merge.cherry_pick(space, head, picks, terms)  # noqa: E731
        return self._merged("cherry-pick", act, terms)

    def _picked(self, head: Head, commit: Moment) -> Digest:
        picked = revisions.resolve(self._space, head, commit)
        if picked is None:
            raise Invalid(
                "the moment before the first commit changed nothing; nothing was written.",
                code="nothing_to_pick",
            )
        return picked

    def replay(
        self,
        *,
        onto: str | OnTimeline,
        since: Wanted = UNSET,
        effect_max: Effect = "local_write",
        dry_run: bool = False,
    ) -> ReplayReport:
        """Give the later inputs of this timeline to another timeline again, one run each, and report what happened.

        Later means after the two timelines parted, or after the moment `since`.  `effect_max` is the strongest effect
        that calls may have in these runs; calls beyond it, and calls that would need an approval, are denied and
        listed.  An interrupted replay goes on if it is asked for again: the report says of each input whether it was
        there before.  It ends with the first run that fails.  With `dry_run` nothing is run: the report has the inputs,
        and the calls beyond the bound that they led to here.  Raises `Conflict`, having run nothing, if an input would
        come after a later one that is there, or was undone there.
        """
        env, turns = self._replaying(_named(onto), since)
        if dry_run:
            return replays.would_replay(env, turns, source=self.timeline, effect_max=effect_max)
        work = replays.replay(env, turns, source=self.timeline, effect_max=effect_max)
        return event_loop.drive(work)

    def add(
        self,
        messages: object,
        *,
        api: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        whole: bool = False,
        once: bool = False,
        op_id: str | None = None,
    ) -> tuple[Loss, ...]:
        """Add a conversation in a vendor's format: a request, a reply or a list of messages; return what was lost.

        Each turn is a commit, in one write; a list whose messages have ids is one commit.  Objects of the vendors' SDKs
        are taken as their JSON.  `api` is the wire format, such as "openai-chat"; None: the one that the content
        decides.  `provider` and `model` name the assistant.

        The calls enter the ledger as made elsewhere; a result is matched with its call also if that was added before.
        A message whose id is already on this timeline is not added again.  With `whole` the messages must begin with
        the whole transcript, and only the rest is added.  With `once` what the timeline has is not added again: nothing
        of a copy, the rest of a list that has grown and of a window on its end.

        Raises `Invalid`, having written nothing, if the messages cannot be read.  Raises `Conflict`, which names the
        first message that differs, if with `whole` they begin otherwise, or if with `once` the two have messages in
        common and part, and also if a result answers an open call.
        """
        env, named = self._env(), given(op_id)

        def added(space: Space) -> Added:
            standing = msgspec.structs.replace(env.standing, space=space)
            placed = msgspec.structs.replace(env, standing=standing)
            return import_messages.add(
                placed,
                messages,
                api=api,
                op_id=named,
                provider=provider,
                model=model,
                whole=whole,
                once=once,
            )

        return without_runs(self._space, (self.timeline,), "adding messages", added).losses

    def _add_steps(self, steps: Sequence[ImportStep], *, head: Head) -> ImportedCommits:
        """Write imported messages on top of `head`, one commit a step; the importers of sessions use it.

        Raises `StaleHead`, having written nothing, if the timeline has moved, and `Busy` under a run.
        """
        env = self._env()

        def added(space: Space) -> ImportedCommits:
            standing = msgspec.structs.replace(env.standing, space=space)
            placed = msgspec.structs.replace(env, standing=standing)
            return import_commit.commit_steps(placed, head, steps, called={})

        return without_runs(self._space, (self.timeline,), "adding messages", added)

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

    def export(
        self, api: str, *, model: str | None = None, at: Wanted = UNSET, sendable: bool = False
    ) -> Rendered:
        """Return the conversation at a moment in a wire format, such as "openai-chat"; None: for no particular model.

        With `sendable` it also has what only a request that is sent needs, such as a user's turn at its end.
        """
        if model is not None:
            names.check_label("model", model)
        names.check_flag("sendable", sendable)
        moment = self._moment(at)
        return preview.render_as(self._env(), api, model=model or "", at=moment, is_sent=sendable)

    def rm(self, *, force: bool = False) -> None:
        """Remove the thread and its ledger.  The id can be used for a new thread; handles on this one are stale.

        Raises `Busy` under a run, and `Conflict` while a call waits, is under way or its outcome is unknown, while a
        run waits, decided or not, or while the run of an input has not begun; with `force` the thread is removed with
        such calls, runs and inputs.
        """
        reader.head_of(self._space, MAIN)
        outbox.finish(self._resources.named, self._space)
        store = self._resources.store
        remove: Callable[[Space], None] = lambda space: directory.remove(store, space, self.id)  # noqa: E731
        removed(self._space, remove, force=force)

    def redact(
        self,
        id: str,
        *,
        why: str,
        part: CallPart | None = None,
        words: Sequence[str] = (),
        author: str | None = None,
        dry_run: bool = False,
    ) -> RedactionReport:
        """Redact a message, a call or an artifact: its words go from every timeline and every moment, for ever.

        `part` limits it to one side of a call.  The report names what else holds the words, or the given `words`.  With
        `dry_run` nothing is changed.  Raises `Busy` under a run, `Conflict` while the call is not settled.
        """
        return redact.redact(self._space, id, why=why, part=part, words=words, author=author, dry_run=dry_run)

    def _replaying(self, onto: str, since: Wanted) -> tuple[RunEnvironment, list[Turn]]:
        """Return the environment of runs on the timeline `onto`, and the turns to give again; the awaitable
        interface uses it too."""
        if onto == self.timeline:
            raise Invalid(
                f"'{onto}' cannot be replayed onto itself; nothing was run.",
                code="replayed_onto_itself",
                advice="Fork it first.",
                timeline=onto,
            )
        target = self.on(onto)
        turns = replays.later_inputs(
            self._space,
            reader.head_of(self._space, self.timeline).commit,
            reader.head_of(self._space, onto).commit,
            None if since is UNSET else self._moment(since),
            is_since_given=since is not UNSET,
        )
        return target._env(), turns

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
            open_store=lambda: self._resources.store,
            finish=self._finish,
            effect_max=None if self.timeline == MAIN else effect_limit.most(self._space, self.timeline),
            handed=self._handed,
            models=self._resources.models,
            memory=self._memory(),
            parent_run=execution.running_inside(),
            run_child=self._run_child,
            cancel_children=self._cancel_children,
        )

    def _run_child(
        self, env: RunEnvironment, run: str, request: ChildRequest
    ) -> Awaitable[tuple[Result, ChildRef]]:
        """Run another agent as a child of a run on this timeline, whose environment is `env`."""
        return child_runs.run(env, run, request, self._child_env)

    def _cancel_children(self, run: str, why: str, *, call: str | None = None) -> None:
        """Cancel the child runs of a run of this thread: those of one call, or of all."""
        child_runs.cancel_all(
            self._env(), run, why, call=call, environment=lambda id, agent: self._child_env(Agent(agent), id)
        )

    def _child_env(self, agent: Agent, id: str, fork: child_runs.ChildFork | None = None) -> RunEnvironment:
        """Return the environment of a run of `agent` on a thread of the same owner, which is begun if there is none.

        `fork` is the timeline of it, which is begun too; None: `main`.
        """
        home = agent.object_storage
        if home is not None and home != self._declared.object_storage:
            raise WrongStore(agent.name, shown_address(home), f"the store of '{self.id}'")
        store = directory.knowing(self._resources.store, id, agent.name)
        record = directory.begin(store, id, agent, self.owner)
        if record.owner != self.owner:
            raise directory.other_owner(id, self.owner)
        is_declared = agent != Agent(agent.name)
        begun = not directory.was_there(store, record)
        thread = Thread(self._resources, id, record, agent, begun=begun)
        directory.record_agent(store, agent, declared=is_declared)
        if fork is not None:
            op_id = f"{fork.timeline}:fork"
            return thread.fork(fork.timeline, effect_max=fork.effect_max, op_id=op_id)._env()
        return thread._env()

    def hand_off(
        self,
        agent: Agent | str,
        *,
        reason: str | None = None,
        by: str | None = None,
        op_id: str | None = None,
    ) -> Thread:
        """Hand this timeline off to another agent, by one commit; return the handle of that agent.

        The next agent gets the conversation, the state, the ledger and the approvals, its own instructions, tools and
        map, and never another agent's map.  If it has a backend of its own, the same commit switches to it: raises
        `Refused(report)` if its policy stops that (`by` is the person who approves).  Raises `Conflict` if a run of
        this timeline has not ended, `Busy` if one is live; nothing was written then.  An undo takes it back.
        """
        to = agent if isinstance(agent, Agent) else Agent(agent)
        home = to.object_storage
        if home is not None and home != self._declared.object_storage:
            raise WrongStore(to.name, shown_address(home), f"the store of '{self.id}'")
        store = self._resources.store
        directory.record_agent(store, to, declared=to != Agent(to.name))
        record = msgspec.structs.replace(
            self._record, agent=to.name, agents=self._record.agents or (self.agent,)
        )
        next_thread = Thread(self._resources, self.id, record, to, self.timeline)
        request = switch.HandOffRequest(from_agent=self.agent, why=reason, by=by, op_id=op_id)
        switch.hand_off(next_thread._env(), request)
        return next_thread._on(
            self.timeline, self._space
        )  # of another agent, if this repeats a hand-off that was taken back

    def _promote(self, space: Space, lines: tuple[str, str], op_id: str | None, author: str | None) -> Head:
        main, line = (reader.head_to_move(space, each) for each in lines)
        cells = outbox.promotion(space, self._resources.agent(self.agent), main, line)
        return timelines.promote(space, line, op_id=op_id, onto=main, cells=cells, author=author)

    def _on(self, timeline: str, known: Space | None = None) -> Thread:
        """Return a handle on a timeline, of the agent that it has now.

        The agents of the thread are taken from what `known` has read.  Without it they are read only if this handle
        knows of a hand-off; the writes of a handle that does not are refused after one.
        """
        record, declared, store = self._record, self._declared, self._resources.store
        if known is not None or record.agents:
            asked = store if known is None else msgspec.structs.replace(store, known=known.known)
            record = directory.handed(asked, self.id, record, timeline)
            if record.agent != declared.name:
                declared = Agent(record.agent, policy=directory.policy_of(store, record.agent))
        other = Thread(self._resources, self.id, record, declared, timeline)
        other._handed = self._handed
        return other

    def _knowing(self, *lines: str, op_id: str | None) -> Space:
        """Return the space with what a merge reads first: these heads, the agent's map and its merge rules."""
        asked = [each for line in lines for each in reader.head_questions(self._space, line)]
        asked += [*self._standing.sight_questions, directory.agent_question(self.agent)]
        return self._unless_done(op_id).knowing(*asked)

    def _unless_done(self, op_id: str | None) -> Space:
        """Return the space; if the write of that op_id was made before, it expects no head, so that it is repeated."""
        space = self._space
        if space.expects is None or op_id is None or space.engine.recorded(space.name, op_id) is None:
            return space
        return msgspec.structs.replace(space, expects=None)

    def _merged(self, what: str, act: Callable[[Space], Taken], terms: Terms) -> Taken:
        asking = (*timelines.move_questions(self._space, terms.op_id), LedgerOf(self._space.name))
        return without_runs(self._space, (self.timeline,), what, act, asking=asking)

    def _terms(
        self,
        known: Space,
        head: Head,
        reason: str,
        op_id: str | None,
        prefer: Side | Mapping[str, Side] | None,
    ) -> Terms:
        sides: Mapping[str, Side] = {"/": prefer} if isinstance(prefer, str) else prefer or {}
        store = msgspec.structs.replace(self._resources.store, known=known.known)
        rules = directory.rules_of(store, self.agent)
        (agent,) = known.ask(*self._standing.sight_questions)
        outside = self._standing.sight(head, agent).reads
        return merge.Terms(
            op_id=self._op_id(op_id), reason=reason, rules=rules, outside=outside, prefer=sides
        )

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
