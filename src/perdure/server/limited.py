"""What a credential for some agents may see of a thread that other agents have had.

A thread that was handed off has lines of several agents: a fork from before the hand-off stays with the first agent, and
what a hand-off led to is still there when it was undone.  A credential that is limited to agents sees

- a timeline, if the agent that it has now is within the limits;
- a moment, if it is on a timeline that is seen, or if the agent of the turns after it is within the limits;
- a run, a call, an approval or an artifact with the moment that it belongs to.

Everything else is answered like a name that nothing has.  `HttpCall.thread` gives such a credential a `LimitedThread`,
whose methods resolve names and make lists by these rules, so that a route has no check of its own to forget.  A method of
`Thread` that takes a name or reads other timelines must have a twin here: tests/server/test_limited.py fails without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, Self

import msgspec
from msgspec import UNSET

from perdure.engines import loops
from perdure.engines.contract import Hold
from perdure.errors import Invalid, NotFound
from perdure.history import ancestry, artifact_names, reader, revisions, timelines
from perdure.history.artifacts import Listed, Preview
from perdure.history.merge import Taken
from perdure.history.query import Blame, Difference
from perdure.history.space import Space, TimelineContext
from perdure.ledger import calls as call_records
from perdure.ledger.trace import Traced
from perdure.model import names
from perdure.model.call import CallRecord
from perdure.model.commit import MoveRecord
from perdure.model.digest import Digest, Kind, Object
from perdure.model.effect import Effect
from perdure.model.head import Head
from perdure.model.merge_rules import Side
from perdure.model.run import Cost, RunRecord
from perdure.model.ticket import Ticket, Verdict
from perdure.projections.transcript import Turn
from perdure.runtime.agent.agent import Agent
from perdure.runtime.events import CallProgress, Committed, Cursor, Happened, Happening, HeadMoved, RunEnded
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.result import Result
from perdure.server.access import Access
from perdure.server.problems import HttpProblem
from perdure.shapes.lookup import lately
from perdure.store.artifacts import Artifacts
from perdure.store.plumbing.revisions import LogEntry, Moment, Wanted, resolve
from perdure.store.runs import ChildRun
from perdure.store.thread import OnTimeline, Thread
from perdure.store.view import View
from perdure.switching.report import Report

__all__ = ["LimitedArtifacts", "LimitedThread", "LimitedView", "LineSight", "limited"]


def limited(thread: Thread, access: Access, *, may_be_handed_off: bool = False) -> Thread:
    """Return a handle that reaches what the credential may see; the same one if that is all of the thread.

    `may_be_handed_off`: the handle is used for so long that another agent may get the thread meanwhile.
    """
    agents = access.agents
    had = thread._record.agents  # pyright: ignore[reportPrivateUsage]  # none: it was never handed off
    if agents is None or (set(had) <= set(agents) and not may_be_handed_off):
        return thread
    return LimitedThread.of(thread, LineSight(thread, frozenset(agents)))


class LineSight:
    """Which moments, timelines, runs and calls of one thread a credential for some agents may see."""

    def __init__(self, thread: Thread, agents: frozenset[str]) -> None:
        """See what the agents have of a thread."""
        self.space: Space = thread._space  # pyright: ignore[reportPrivateUsage]
        record = thread._record  # pyright: ignore[reportPrivateUsage]
        self._founder = record.agents[0] if record.agents else record.agent
        self._agents = agents

    def sees_agent_after(self, commit: Digest | None) -> bool:
        """True if the agent of the turns after a commit is within the limits."""
        return reader.agent_at(self.space, commit, self._founder) in self._agents

    def holds(self) -> list[Hold]:
        """Return the timelines that are seen, with their heads."""
        return [each for each in timelines.timelines(self.space) if self.sees_agent_after(each.head.commit)]

    def sees(self, commit: Digest | None) -> bool:
        """True if a moment is seen."""
        return self.sees_agent_after(commit) or any(
            reader.is_ancestor(self.space, commit, each.head.commit) for each in self.holds()
        )

    def sees_run(self, record: RunRecord) -> bool:
        """True if a run is seen: it is of an agent within the limits, or on a timeline that is seen."""
        return record.agent in self._agents or self._sees_label(record.id)

    def sees_work(self, record: RunRecord | CallRecord | Ticket) -> bool:
        """True if a run, a call or a question is seen."""
        return self.sees_run(record) if isinstance(record, RunRecord) else self.sees_call(record)

    def sees_call(self, record: CallRecord | Ticket) -> bool:
        """True if a call is seen, or the question about it: its run is, or the message that requested it."""
        parent = record.parent_call if isinstance(record, CallRecord) else None
        asked = None if parent is None else call_records.find(self.space, parent)
        if asked is not None:
            return self.sees_call(asked.record)
        run = None if record.run is None else records.find(self.space, record.run)
        return (run is not None and self.sees_run(run.record)) or self._sees_label(record.label)

    def sees_call_of(self, id: str) -> bool:
        """True if the call of that id is seen."""
        found = call_records.find(self.space, id)
        return found is not None and self.sees_call(found.record)

    def _sees_label(self, label: str | None) -> bool:
        return any(ancestry.stands_on(self.space, label, each.head.commit) for each in self.holds())


class _LimitedReads(View):
    """Reads that resolve the name of a moment only if the credential may see the moment."""

    sight: LineSight

    def at(self, moment: Wanted = UNSET) -> LimitedView:
        """Return a view of another moment."""
        head, commit = self._now()
        commit = commit if moment is UNSET else self._seen(moment)
        return LimitedView(self._standing, head, commit, self.sight)

    def diff(self, a: Moment, b: Wanted = UNSET, *, prefix: str = "/") -> Difference:
        """Compare two moments; calls that a merge brought from another timeline are left out if they are not seen."""
        found = super().diff(self._exactly(a), b if b is UNSET else self._exactly(b), prefix=prefix)
        sees = self.sight.sees
        return msgspec.structs.replace(
            found,
            calls_a=tuple(each for each in found.calls_a if sees(each.commit)),
            calls_b=tuple(each for each in found.calls_b if sees(each.commit)),
        )

    def blame(self, path: str, *, place: Sequence[str | int] = (), at: Wanted = UNSET) -> Blame:
        """Find what wrote a value, if that is seen: a merge may have brought it from another timeline."""
        found = super().blame(path, place=place, at=at if at is UNSET else self._exactly(at))
        if not self.sight.sees(found.commit):
            raise HttpProblem(
                403,
                "outside_limits",
                f"an agent outside the limits of the credential wrote what is at {path}; nothing was read.",
            )
        return found

    def bisect(self, predicate: Callable[[View], bool], *, good: Moment = None) -> LogEntry:
        """Find the first commit at which `predicate` is true."""
        return super().bisect(predicate, good=self._exactly(good))

    def named(self, name: str) -> list[LogEntry]:
        """Read the commits that have a foreign name."""
        return [each for each in super().named(name) if self.sight.sees(each.digest)]

    def exactly(self) -> Head:
        """Return the moment that is read, as a head."""
        head, commit = self._now()
        return Head(head.timeline, head.version, commit)

    def _exactly(self, moment: Moment) -> Head:
        return Head(self.timeline, 0, self._seen(moment))

    def _seen(self, moment: Wanted) -> Digest | None:
        """Return the commit that a moment means; raises `NotFound`, as for a name that nothing has, if it is not seen.

        A name that fits two moments is not found either: the error would name both.
        """
        head = self._now()[0]
        try:
            commit = resolve(self._space, head, moment)
            is_seen = self.sight.sees(commit) and not self._is_hidden_line(moment)
        except Invalid:
            commit, is_seen = None, False
        if not is_seen:
            name = moment if isinstance(moment, str) else str(commit)
            raise revisions.no_moment(self._space, head, name)
        return commit

    def _is_hidden_line(self, moment: Wanted) -> bool:
        """True if a moment is the name of a timeline that is not seen, though the commit of its head may be."""
        hold = self._space.engine.hold(self._space.name, moment) if isinstance(moment, str) else None
        return hold is not None and not self.sight.sees_agent_after(hold.head.commit)


class LimitedView(_LimitedReads):
    """A view of one moment, from which only moments that are seen can be reached."""

    def __init__(
        self, standing: TimelineContext, head: Head, commit: Digest | None, sight: LineSight
    ) -> None:
        """Read from `commit`, which is seen."""
        super().__init__(standing, head, commit)
        self.sight = sight


class LimitedArtifacts(Artifacts):
    """The artifacts of a thread that are seen.

    One that no call and no commit names belongs to no timeline: it is in no list, and is read by its digest alone.
    """

    def __init__(self, standing: TimelineContext, thread: LimitedThread) -> None:
        """Show the artifacts that belong to calls and commits which `thread` shows."""
        super().__init__(standing)
        self._thread = thread

    def ls(self, *, calls: bool = False) -> Iterator[Listed]:
        """Yield the artifacts that are seen."""
        return (each for each in super().ls(calls=calls) if self._is_seen(each, is_in_list=True))

    def show(self, reference: str, *, at: Wanted = UNSET) -> Listed:
        """Describe an artifact."""
        with suppress(NotFound):
            known = super().show(reference, at=self._exactly(at))
            if self._is_seen(known, is_in_list=False):
                return known
        raise NotFound(
            f"there is no artifact {reference[:300]} in the history of this timeline; nothing was read.",
            code="artifact_not_found",
            reference=reference,
        )

    def get(self, reference: str, *, at: Wanted = UNSET) -> Iterator[bytes]:
        """Yield the content of an artifact."""
        return super().get(self.show(reference, at=at).digest)

    def resolve(self, reference: str, *, at: Wanted = UNSET) -> Digest:
        """Return the digest that a reference names."""
        return self.show(reference, at=at).digest

    def preview(self, reference: str, *, bytes_max: int = 2_000, at: Wanted = UNSET) -> Preview:
        """Return the beginning of an artifact."""
        return super().preview(self.show(reference, at=at).digest, bytes_max=bytes_max)

    def names(self, *, at: Wanted = UNSET) -> dict[str, Digest]:
        """Return the names on this timeline at a moment."""
        return super().names(at=self._exactly(at))

    def _exactly(self, at: Wanted) -> Wanted:
        return at if at is UNSET else self._thread.at(at).exactly()

    def _is_seen(self, known: Listed, *, is_in_list: bool) -> bool:
        if known.call is not None:
            return self._thread.sight.sees_call_of(known.call)
        if known.commit is not None:
            return self._thread.sight.sees(known.commit)
        # A name that a commit gave, but none of this timeline, is one of another.
        return not is_in_list and (known.name is None or not artifact_names.is_referable(known.name))


class LimitedThread(_LimitedReads, Thread):
    """A timeline that a credential may see, of a thread of which it may not see everything."""

    @classmethod
    def of(cls, thread: Thread, sight: LineSight) -> Self:
        """Return the same handle with limits."""
        found = cls.__new__(cls)
        vars(found).update(vars(thread))
        found.sight = sight
        found.artifacts = LimitedArtifacts(found._standing, found)
        return found

    def beside(self, other: Thread) -> LimitedThread:
        """Return another handle of the same thread with the limits of this one."""
        return LimitedThread.of(other, self.sight)

    # ---- timelines and moments

    def on(self, timeline: str) -> Thread:
        """Return a handle on a timeline that is seen."""
        try:
            found = super().on(timeline)
        except NotFound as error:
            if error.code != "timeline_not_found":
                raise
            found = None
        if found is None or not self.sight.sees_agent_after(found.at().digest):
            raise NotFound(
                f"'{self.id}' has no timeline '{timeline}'; nothing was read.",
                code="timeline_not_found",
                advice="See what there is with timelines().",
                timeline=timeline,
                thread=self.id,
                near=(),
            )
        return found

    def expecting(self, head: Head) -> Thread:
        """Return a handle that moves this timeline from `head`."""
        return self.beside(super().expecting(head))

    def with_agent(self, agent: Agent) -> Thread:
        """Return a handle that knows this declaration of its agent."""
        return self.beside(super().with_agent(agent))

    def timelines(self) -> list[Hold]:
        """Return the timelines that are seen."""
        return self.sight.holds()

    def moves(self, *, before: int | None = None, limit: int | None = None) -> list[MoveRecord]:
        """Read the moves that led to moments which are seen; where one came from is told if it is seen."""
        reader.check_limit(limit)
        space, sees = self._space, self.sight.sees
        every = loops.moves(space.engine, space.name, self.timeline, before=before)
        found = islice((each for each in every if sees(each.to)), limit)
        return [each if sees(each.from_) else msgspec.structs.replace(each, from_=None) for each in found]

    def stored(self, digest: str) -> Object:
        """Read a commit that is seen.  Any other object may be a part of a timeline that is not."""
        with suppress(NotFound):
            found = super().stored(digest)
            if found.kind is Kind.COMMIT and self.sight.sees(found.digest):
                return found
        raise NotFound(
            f"'{self.id}' has no object {digest[:12]}; nothing was read.",
            code="object_not_found",
            digest=digest,
        )

    def fork(
        self,
        name: str,
        *,
        at: Wanted = UNSET,
        effect_max: Effect | None = None,
        op_id: str | None = None,
        author: str | None = None,
    ) -> Thread:
        """Begin a timeline at a moment that is seen."""
        self._check(at, op_id)
        return super().fork(name, at=at, effect_max=effect_max, op_id=op_id, author=author)

    def undo(
        self, turns: int = 1, *, to: Wanted = UNSET, op_id: str | None = None, author: str | None = None
    ) -> Head:
        """Go back over turns, or to a moment that is seen, without leaving the timeline to another agent."""
        if not self._is_done(op_id):
            head = self._now()[0]
            before = (
                timelines.commit_before_turns(self._space, head, turns) if to is UNSET else self._seen(to)
            )
            self._check_stays(before)
        return super().undo(turns, to=to, op_id=op_id, author=author)

    def redo(self, *, op_id: str | None = None, author: str | None = None) -> Head:
        """Take back the last undo, if what it left is seen."""
        head = self._now()[0]
        if not self._is_done(op_id) and not self.sight.sees(timelines.commit_to_redo(self._space, head)):
            raise timelines.nothing_to_redo(self._space, head)
        return super().redo(op_id=op_id, author=author)

    def promote(
        self, other: str | OnTimeline, *, op_id: str | None = None, author: str | None = None
    ) -> Head:
        """Move `main` to the commit of a timeline that is seen."""
        return super().promote(self.on(_name(other)), op_id=op_id, author=author)

    def drop(
        self, timeline: str | OnTimeline, *, op_id: str | None = None, author: str | None = None
    ) -> Head:
        """Drop a timeline that is seen."""
        return super().drop(self.on(_name(timeline)), op_id=op_id, author=author)

    def removal_state(self, timeline: str | OnTimeline) -> Literal["dropped", "forgotten"] | None:
        """Return whether a timeline that is seen was dropped or forgotten."""
        return super().removal_state(self.on(_name(timeline)))

    def merge(
        self,
        other: str | OnTimeline,
        *,
        reason: str | None = None,
        prefer: Side | Mapping[str, Side] | None = None,
        dry_run: bool = False,
        op_id: str | None = None,
    ) -> Taken:
        """Merge the changes of a timeline that is seen."""
        line = self.on(_name(other))
        return super().merge(line, reason=reason, prefer=prefer, dry_run=dry_run, op_id=op_id)

    def _check(self, moment: Wanted, op_id: str | None = None) -> None:
        """Raise `NotFound` if a moment is not seen, unless the write of that op_id was made before.

        A write is given the name and not the commit: repeated, it must be the same write, though the head has moved.
        """
        if moment is not UNSET and not self._is_done(op_id):
            self._seen(moment)

    def _is_done(self, op_id: str | None) -> bool:
        return op_id is not None and self._space.engine.recorded(self._space.name, op_id) is not None

    def _check_stays(self, commit: Digest | None) -> None:
        """Raise a problem if the timeline, moved to a commit, would be that of an agent outside the limits."""
        if not self.sight.sees_agent_after(commit):
            raise HttpProblem(
                403,
                "outside_limits",
                "this would give the timeline back to an agent outside the limits of the credential; nothing was moved.",
            )

    def _picked(self, head: Head, commit: Moment) -> Digest:
        self._check(commit)
        return super()._picked(head, commit)

    def _moment(self, at: Wanted) -> Digest | None:
        return super()._moment(at) if at is UNSET else self._seen(at)

    def _replaying(self, onto: str, since: Wanted) -> tuple[RunEnvironment, list[Turn]]:
        self._check(since)
        return super()._replaying(onto, since)

    def _on(self, timeline: str, known: Space | None = None) -> Thread:
        return self.beside(super()._on(timeline, known))

    # ---- runs

    def runs(self, *, limit: int | None = None, before: str | None = None) -> list[RunRecord]:
        """Read the runs that are seen."""
        read = super().runs
        found = lately(
            lambda last: read(limit=last, before=before), self.sight.sees_run, limit or 0, others=False
        )
        return found if limit is None else found[-limit:]

    def find_run(self, run: str) -> RunRecord:
        """Read a run that is seen."""
        found = records.find(self._space, names.check_id("run", run))
        if found is None or not self.sight.sees_run(found.record):
            raise self._no_run(run)
        return found.record

    def _no_run(self, run: str) -> NotFound:
        return NotFound(
            f"'{self.id}' has no run '{run}'; nothing was read.",
            code="run_not_found",
            advice="See what there is with runs().",
            run=run,
            thread=self.id,
            near=(),
        )

    def check_own_run(self, run: str | None) -> None:
        """Raise `NotFound` unless a run is seen together with its timeline, on which it goes on; None: there is none."""
        if run is not None and not self._sees_line(self.find_run(run).timeline):
            raise self._no_run(run)

    def cursor_before(self, run: str) -> str | None:
        """Return the cursor before a run that is seen."""
        return super().cursor_before(self.find_run(run).id)

    def wait(self, run: str, seconds: float | None = None) -> Result:
        """Wait for a run that is seen."""
        return super().wait(self.find_run(run).id, seconds)

    def interrupted(self, run: str) -> bool:
        """True if a run that is seen was interrupted."""
        return super().interrupted(self.find_run(run).id)

    def decided(self, run: str) -> bool:
        """True if a run that is seen can go on."""
        return super().decided(self.find_run(run).id)

    def children(self, run: str) -> list[ChildRun]:
        """Read the child runs of a run that is seen."""
        return super().children(self.find_run(run).id)

    def cost(self, run: str | None = None) -> Cost:
        """Read what a run that is seen cost; None: all of them."""
        return super().cost(run if run is None else self.find_run(run).id)

    def switches(self, *, run: str | None = None, limit: int | None = None) -> list[Report]:
        """Read the switches of a run that is seen."""
        return super().switches(run=run if run is None else self.find_run(run).id, limit=limit)

    def release(self, run: str) -> bool:
        """Let workers take a run again."""
        self.check_own_run(run)
        return super().release(run)

    def resume(self, run: str | None = None, *, retry: bool = False) -> Result:
        """Resume a run whose timeline is seen."""
        self.check_own_run(run)
        return super().resume(run, retry=retry)

    def resume_stream(self, run: str | None = None, *, retry: bool = False) -> Iterator[Happening]:
        """Resume a run whose timeline is seen, and yield its events."""
        self.check_own_run(run)
        return super().resume_stream(run, retry=retry)

    def cancel(self, run: str | None = None, *, why: str = "cancelled", by: str | None = None) -> RunRecord:
        """Cancel a run whose timeline is seen."""
        self.check_own_run(run)
        return super().cancel(run, why=why, by=by)

    def follow(self, after: str | None = None, *, wait: bool = False) -> Iterator[Happening]:
        """Yield the events that are seen."""
        self.check_cursor(after)
        return filter(self.sees_event, super().follow(after, wait=wait))

    def check_cursor(self, after: str | None) -> None:
        """Raise `NotFound` if the commit of a cursor is not seen; None: there is no cursor."""
        commit = None if after is None else Cursor.read(after).commit
        if commit is not None and (self._space.find(commit) is None or not self.sight.sees(commit)):
            raise NotFound(
                f"'{self.id}' has no commit {commit[:12]}; nothing was followed.",
                code="cursor_commit_not_found",
                advice="Give a cursor of this thread.",
                thread=self.id,
                commit=commit,
            )

    def sees_event(self, event: Happening) -> bool:
        """True if an event is seen.  A commit that was undone before its reader came is told of, too."""
        if isinstance(event, Happened | Committed | HeadMoved):
            return self.sight.sees(event.commit)
        if isinstance(event, RunEnded):
            return True  # of the run that this handle began
        run = None if isinstance(event, CallProgress) or event.run is None else event.run
        found = None if run is None else records.find(self._space, run)
        return (
            self.sight.sees_agent_after(self.digest) if found is None else self.sight.sees_run(found.record)
        )

    # ---- calls

    def calls(self, *, run: str | None = None, limit: int | None = None) -> list[CallRecord]:
        """Read the calls that are seen."""
        read = super().calls
        found = lately(lambda last: read(run=run, limit=last), self.sight.sees_call, limit or 0, others=False)
        return found if limit is None else found[-limit:]

    def trace(self, call: str, *, history: bool = True) -> Traced:
        """Read a call that is seen; a part of an id that fits several calls is not found."""
        with suppress(NotFound, Invalid):
            found = super().trace(call, history=history)
            if self.sight.sees_call(found.record):
                return found
        raise self._no_call(call)

    def _no_call(self, call: str) -> NotFound:
        return NotFound(
            f"'{self.id}' has no call '{call}'; nothing was read.",
            code="call_not_found",
            advice="See what there is with calls().",
            call=call,
            thread=self.id,
            near=(),
        )

    def decide(
        self,
        question: str,
        verdict: Verdict,
        *,
        value: Any = None,
        by: str | None = None,
        why: str | None = None,
        op_id: str | None = None,
    ) -> Ticket:
        """Decide about a call whose timeline is seen."""
        self.check_own_call(question)
        return super().decide(question, verdict, value=value, by=by, why=why, op_id=op_id)

    def reconcile(self, call: str, *, by: str | None = None) -> CallRecord:
        """Ask the tool of a call whose timeline is seen."""
        self.check_own_call(call)
        return super().reconcile(call, by=by)

    def resolve(
        self,
        call: str,
        outcome: Literal["done", "not_done"],
        *,
        value: Any = None,
        by: str | None = None,
        why: str | None = None,
    ) -> CallRecord:
        """State the outcome of a call whose timeline is seen."""
        self.check_own_call(call)
        return super().resolve(call, outcome, value=value, by=by, why=why)

    def check_own_call(self, call: str) -> None:
        """Raise `NotFound` unless a call is seen together with the timeline on which it goes on."""
        found = self.trace(call, history=False)
        line = found.record.timeline if found.ticket is None else found.ticket.timeline
        if not self._sees_line(line):
            raise self._no_call(call)

    def _sees_line(self, timeline: str) -> bool:
        return any(each.head.timeline == timeline for each in self.timelines())


def _name(other: str | OnTimeline) -> str:
    return other if isinstance(other, str) else other.timeline
