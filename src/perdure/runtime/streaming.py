"""Streams a run while it goes on, and follows the durable events of a timeline after a cursor.

Durable events are read from the recorded moves of the head, each once and in order, from any process.  An undo, a redo,
a promote or a seal is an event of its own (`HeadMoved`).  A commit that was undone before a follower read it was true for
a while, so its events come too, and the undo after them.

Text comes from the run's feed.  A watcher that begins in the middle of a message gets one `TextSoFar`, then the text
that is written after that.  If the run lives in another process, its feed is mirrored here; text that was said before
the mirror began comes as `TextSoFar`, too.  A watcher that leaves does not stop the run.

A forked child gets nothing from a feed.  There a stream of a run is refused, and a follower of a timeline
goes on with the events in the store.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeAlias

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Step
from perdure.errors import Forgotten, NotFound, Unavailable
from perdure.history import ancestry, reader
from perdure.history.ancestry import Point
from perdure.history.space import Space
from perdure.ledger import calls, decisions, tickets
from perdure.model.commit import Act, MoveRecord
from perdure.model.digest import Digest
from perdure.model.event import Event, MessageAppended, ToolCallSuspended
from perdure.model.head import Head
from perdure.model.message import Message, decode_message
from perdure.model.ticket import Ticket
from perdure.runtime.events import (
    CallProgress,
    Committed,
    Cursor,
    Happened,
    Happening,
    HeadMoved,
    Live,
    RunEnded,
    TextSoFar,
    WaitingCall,
)
from perdure.runtime.run.start import Started
from perdure.runtime.session import lease as leases
from perdure.runtime.session.broadcast import CommitNotice, Feed, Watcher
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.lease import Lease
from perdure.runtime.session.result import Result

__all__ = ["Follower", "cursor_at", "cursor_before", "Following", "Watching", "follow", "stream"]

Durable: TypeAlias = Happened | Committed | HeadMoved


def cursor_at(space: Space, commit: Digest | None, version: int | None = None) -> Cursor:
    """Return the cursor after everything up to a commit, as `Cursor.after` does."""
    return Cursor.after(None if commit is None else space.step(commit), version)


def cursor_before(space: Space, run: str) -> Cursor | None:
    """Return the cursor before the first event of a run; None if it has not begun."""
    first = space.engine.labelled(space.name, run)
    return Cursor(space.step(first[0]).commit.depth, first[0], 0) if first else None


class Follower:
    """Reads the durable events of a timeline from a cursor on, and goes on where it stopped.

    What there is to read follows from the recorded moves of the head, so it is the same for every reader.  A move brings the
    events of the commits that the timeline had not had before it, and, unless it is a commit, one event of its own.
    """

    def __init__(self, space: Space, timeline: str, after: Cursor | None) -> None:
        """Start after a cursor; None is before the first event."""
        self._space, self._timeline = space, timeline
        self._at = after
        self._version: int | None = None  # of the last move that was read whole; None: it has to be found
        if after is not None and after.commit is not None:
            self._check(after.commit)

    @property
    def cursor(self) -> str | None:
        """The cursor of the last event that was read."""
        return None if self._at is None else str(self._at)

    def read(self, upto: Digest | None = None) -> Iterator[Durable]:
        """Yield the events that have become durable since; only `upto` a commit, if the timeline has it."""
        head = reader.head_of(self._space, self._timeline)
        if self._version is None:
            yield from self._begin(head)
        if upto is None or not reader.is_ancestor(self._space, upto, head.commit):
            upto = None
        elif self._has_read(upto):
            return
        for move in self._moves(head):
            for step in self._new(move):
                yield from self._events(step, move.version)
                if step.digest == upto:
                    return
            if move.act not in _NO_EVENT and not self._is_reported(move):
                self._at = cursor_at(self._space, move.to, move.version)
                yield HeadMoved(cursor=str(self._at), act=move.act, commit=move.to, version=move.version)
            self._version = move.version
            if upto is not None and move.to == upto:
                return

    def _begin(self, head: Head) -> Iterator[Durable]:
        """Find the move after which the reading begins; yield what is left of the commit that it led to."""
        at = self._at or Cursor.after(None)
        self._version = self._version_of(at, head)
        if self._version is not None:
            return
        if self._at is not None:  # of another timeline, if it names a version
            self._at = msgspec.structs.replace(at, version=None)
        self._version = self._last_move_to(at.commit, head)
        if self._version is None:
            # The commit is in the middle of a line: what comes after it on the line of now is read as one move.
            self._version = head.version
            rest = MoveRecord(
                timeline=self._timeline,
                version=head.version,
                act=Act.FORK,
                op_id="",
                from_=at.commit,
                to=head.commit,
            )
            for step in self._new(rest, earlier=()):
                yield from self._events(step, head.version)
        elif at.commit is not None:
            step = self._space.step(at.commit)
            if at.index <= len(step.changeset.events):
                yield from self._events(step, self._version)

    def _last_move_to(self, commit: Digest | None, head: Head) -> int | None:
        """Return the version of the last move that led to a commit, or to before the first; None: none of those read."""
        oldest: int | None = None
        moves = loops.moves(self._space.engine, self._space.name, self._timeline, before=head.version + 1)
        for move in islice(moves, _MOVES_MAX):
            if move.to == commit:
                return move.version
            oldest = move.version
        if commit is not None or (oldest is not None and oldest > 1):
            return None
        return (
            0 if oldest is None else oldest - 1
        )  # every move was read: the timeline began before the first commit

    def _version_of(self, at: Cursor, head: Head) -> int | None:
        """Return the version up to which a cursor has read all moves; None: it does not say, or is of another timeline."""
        space = self._space
        if at.version is None or at.version > head.version:
            return None
        if at.version == head.version and at.commit == head.commit and self._is_after(at, head.commit):
            return at.version
        found = space.engine.moves(space.name, self._timeline, before=at.version + 1, limit=1)
        if not found:
            return 0 if at.version == 0 and at.commit is None else None
        (move,) = found
        is_new = reader.is_ancestor(space, at.commit, move.to) and not reader.is_ancestor(
            space, at.commit, move.from_
        )
        return at.version - 1 if move.version == at.version and (at.commit == move.to or is_new) else None

    def _is_after(self, at: Cursor, commit: Digest | None) -> bool:
        """True if a cursor at `commit` is after it and after the move that led to it."""
        return at.index >= cursor_at(self._space, commit).index

    def _is_reported(self, move: MoveRecord) -> bool:
        """True if the cursor is after the event of a move."""
        at = self._at
        if at is None or (at.version, at.commit) != (move.version, move.to):
            return False
        return self._is_after(at, move.to)

    def _has_read(self, commit: Digest) -> bool:
        """True if everything up to a commit of the line was read."""
        at = self._at
        if at is None or at.commit is None or not reader.is_ancestor(self._space, commit, at.commit):
            return False
        return commit != at.commit or at.index > len(self._space.step(commit).changeset.events)

    def _moves(self, head: Head) -> Iterator[MoveRecord]:
        """Yield the moves that were not read whole, oldest first."""
        engine, space = self._space.engine, self._space.name
        while self._version is not None and self._version < head.version:
            last = min(self._version + _MOVES_PAGE, head.version)
            count = last - self._version
            if count == 1:
                page = engine.moves(space, self._timeline, before=last + 1, limit=1)
            else:
                page = tuple(islice(loops.moves(engine, space, self._timeline, before=last + 1), count))
            if not page:  # the thread was removed, and its space reclaimed, since the head was read
                return
            yield from reversed(page)

    def _check(self, commit: Digest) -> None:
        if self._space.find(commit) is None:
            raise NotFound(
                f"'{self._space.label}' has no commit {commit[:12]}; nothing was followed.",
                code="cursor_commit_not_found",
                advice="Give a cursor of this thread.",
                thread=self._space.label,
                commit=commit,
            )

    def _new(self, move: MoveRecord, *, earlier: Iterable[Digest | None] | None = None) -> list[Step]:
        """Return the commits that the timeline had not had before a move and that were not read, oldest first.

        `earlier` are the ends of other lines that it was on before; None: they are read if they are needed.
        """
        if move.to is None or move.act is Act.REDO:
            return []
        at, top = self._at, ancestry.point(self._space, move.to)
        found: list[Step] = []
        for step in ancestry.walk(self._space, ancestry.Stretch(top, self._had(move, top, earlier))):
            if at is not None and at.commit == step.digest and at.version in (None, move.version):
                if at.index <= len(step.changeset.events):
                    found.append(step)
                break
            found.append(step)
        return found[::-1]

    def _had(self, move: MoveRecord, top: Point, earlier: Iterable[Digest | None] | None) -> int:
        """Return the depth of the last commit on the line of a move that the timeline had before it; -1: none."""
        space, before = self._space, move.from_
        if move.act is Act.COMMIT and space.step(top.digest).commit.first_parent == before:
            return top.depth - 1
        nearest = ancestry.meet(space, top, None if before is None else ancestry.point(space, before))
        depth = -1 if nearest is None else nearest.depth
        if depth == top.depth or (move.act is Act.COMMIT and (nearest and nearest.digest) == before):
            return depth  # it went back, or on
        ends = set(self._ends_before(move) if earlier is None else earlier)
        met = [ancestry.meet(space, top, ancestry.point(space, end)) for end in ends if end is not None]
        return max([depth, *(each.depth for each in met if each is not None)])

    def _ends_before(self, move: MoveRecord) -> Iterator[Digest | None]:
        """Yield where lines ended that the timeline was on before a move, newest first."""
        moves = loops.moves(self._space.engine, self._space.name, self._timeline, before=move.version)
        return (each.from_ for each in islice(moves, _MOVES_MAX) if each.act is not Act.COMMIT)

    def _events(self, step: Step, version: int) -> Iterator[Durable]:
        """Yield the events of a commit that were not read before, then the commit itself."""
        events, depth = step.changeset.events, step.commit.depth
        begin = self._at.index if self._at is not None and self._at.commit == step.digest else 0
        for index, event in enumerate(events[begin:], begin + 1):
            self._at = Cursor(depth, step.digest, index, version)
            yield self._happened(step, event)
        self._at = Cursor(depth, step.digest, len(events) + 1, version)
        yield Committed(
            cursor=str(self._at),
            commit=step.digest,
            reason=step.commit.reason,
            root=step.commit.root,
            run=step.commit.run,
        )

    def _happened(self, step: Step, event: Event) -> Happened:
        return Happened(
            cursor=str(self._at),
            commit=step.digest,
            event=event,
            run=step.commit.run,
            message=self._words(event) if isinstance(event, MessageAppended) else None,
            waiting=waiting_call(self._space, event.ticket) if isinstance(event, ToolCallSuspended) else None,
        )

    def _words(self, event: MessageAppended) -> Message | None:
        try:
            return decode_message(self._space.body(event.body))
        except Forgotten:
            return None


# A commit has events of its own, and a timeline begins with the others.
_NO_EVENT = frozenset({Act.COMMIT, Act.FORK, Act.KEEP})
_MOVES_MAX = 1_000  # that are read to find out where a cursor was, and which lines the timeline was on
_MOVES_PAGE = 256
_END = "run_finished"  # the reason of a run's last commit
_CALLS_MAX = 64  # that a run of another process may have under way to be told of each
_IDLE_SECONDS = 30.0
_WAIT_SECONDS = 1.0  # a process that ends writes nothing: so often it is asked whether the run's still lives


class Watching:
    """Connects the thread that runs a run with the one that streams it."""

    def __init__(self, env: RunEnvironment, wake: Callable[[], None] | None = None) -> None:
        """Watch the timeline; `wake` is called for every new item."""
        self._env, self._wake = env, wake
        self._pid = os.getpid()
        head = reader.head_of(env.space, env.timeline)
        self.follower = Follower(env.space, env.timeline, cursor_at(env.space, head.commit, head.version))
        self.ready = threading.Event()  # the run has begun, or never will
        self.settled = threading.Event()  # the result or the error is known
        self.watcher: Watcher | None = None
        self.result: Result | None = None
        self.error: BaseException | None = None
        self._has_end = False  # the end of the joined run was read
        self.joined: str | None = None  # the run that lives already, if the input was given before
        self._following: Following | None = None  # of that run
        self._feed: Feed | None = None

    def begun(self, start: Started) -> None:
        """Watch the run that has begun; one that was joined is followed already."""
        if self.joined is not None:
            return
        self._feed = start.journal.feed
        self.watcher = self._feed.watch(self._wake)
        self.watcher.give(CommitNotice(start.journal.head.commit))  # the input is durable already
        self._tell()

    def joins(self, run: str) -> None:
        """Follow a run that lives already, here or in another process, instead of a new one."""
        self.joined = run
        self._tell()

    def follow_joined(self) -> Following:
        """Return what follows the joined run from its beginning; the caller closes it."""
        assert self.joined is not None
        place = cursor_before(self._env.space, self.joined)
        following = Following(self._env, None if place is None else str(place), wait=True, wake=self._wake)
        self.follower, self._following = following.follower, following
        return following

    def is_end(self, event: Happening) -> bool:
        """True if nothing of the joined run follows an event."""
        self._has_end = isinstance(event, Committed) and (event.run, event.reason) == (self.joined, _END)
        return self._has_end

    def ended(self, result: Result | None, error: BaseException | None) -> None:
        """Set the result or the error of the run."""
        self.result, self.error = result, error
        if self._following is not None:
            self._following.wake()
        if self.watcher is not None:
            self.watcher.end()
        self.settled.set()
        self._tell()

    def leave(self) -> None:
        """Stop watching; the run goes on."""
        if self._feed is not None and self.watcher is not None:
            self._feed.leave(self.watcher)

    def news(self, timeout: float) -> Iterator[Happening]:
        """Yield the new events, after waiting up to `timeout` seconds for one."""
        assert self.watcher is not None
        assert self._feed is not None
        if self._pid != os.getpid():
            raise Unavailable(
                "this stream belongs to the process that this one was forked from, where its run lives; nothing more "
                "is read here.",
                code="forked_stream",
                advice="Read on with follow().",
            )
        for item in self.watcher.take(timeout):
            if isinstance(item, CommitNotice):
                yield from self.follower.read(item.commit)
            else:
                yield _placed(item, self.follower.cursor, self._feed.run)

    def words(self) -> list[Happening]:
        """Return what is new before the next commit; the store is not read, so that an event loop can call this."""
        return _words(self.watcher, self._feed, self._pid, self.follower.cursor)

    @property
    def is_quiet(self) -> bool:
        """True if nothing new waits to be read, and more may come."""
        return self.watcher is not None and self.watcher.is_quiet

    @property
    def is_over(self) -> bool:
        """True if nothing more comes from the feed."""
        return self.watcher is None or self.watcher.over

    def rest(self) -> Iterator[Happening]:
        """Yield the remaining events once the run is over."""
        if self.watcher is not None:
            yield from self.news(0)
        has_events = False
        if self.error is None and not self._has_end:  # else only commits that the run confirmed are yielded
            for event in self.follower.read():
                has_events = True
                yield event
        if (
            self.watcher is None
            and self.joined is None
            and not has_events
            and self.result is not None
            and self.result.text
        ):  # said before
            run, cursor = self.result.run, self.follower.cursor
            yield TextSoFar(self.result.text, cursor, self._last_message(self.result), run=run)

    def end(self) -> RunEnded:
        """Return the end of the run; raise what it raised."""
        if self.error is not None:
            raise self.error
        assert self.result is not None, "a run that is over has a result or an error"
        found = [self._asked(ticket) for ticket in self.result.approvals]
        waiting = tuple(each for each in found if each is not None)
        return RunEnded(self.result, self.follower.cursor, waiting)

    def _last_message(self, result: Result) -> str | None:
        """Return the id of the message whose text a result has: the last one that the assistant wrote in the run."""
        steps = ancestry.of_run(self._env.space, result.run, result.commit)
        events = [event for step in steps for event in step.changeset.events]
        spoken = (each for each in reversed(events) if isinstance(each, MessageAppended))
        return next((each.id for each in spoken if each.role == "assistant"), None)

    def _asked(self, ticket: Ticket) -> WaitingCall | None:
        """Return what a ticket asks, of this thread or of the thread of a child run."""
        inside, _ = decisions.place_of(self._env.space, ticket.id, self._env.timeline)
        return waiting_call(inside, ticket.id)

    def _tell(self) -> None:
        self.ready.set()
        if self._wake is not None:
            self._wake()


class Following:
    """Reads the events of a timeline from a cursor on, and the text of the run that lives there."""

    def __init__(
        self,
        env: RunEnvironment,
        after: str | None,
        *,
        wait: bool = False,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """Start after a cursor; None: with the run that lives there, or now.  `wait`: also for the next run.

        `wake` is called, from any thread, when the run that lives in this process has something new.
        """
        self._env, self._wait = env, wait
        self._pid = os.getpid()
        self.follower = Follower(env.space, env.timeline, _place(env, after))
        self._feed: Feed | None = None
        self._watcher: Watcher | None = None
        self._lease: Lease | None = None  # as it was when the thread was last read
        self._begun: set[str] = set()  # calls of a run in another process that were reported as started
        self._woken = threading.Event()  # a run has begun in this process
        self.wake = wake or self._woken.set
        self.seen = -1  # the standing of the thread when it was last read
        env.store_runtime.feeds.expect(env.space.name, env.timeline, self.wake)

    def step(self, timeout: float) -> list[Happening] | None:
        """Return the new events, after waiting up to `timeout` seconds for one; None: nothing more comes."""
        if self._pid != os.getpid():
            self._pid, self._feed, self._watcher = os.getpid(), None, None
        if self._watcher is not None:
            return self._watched(self._watcher, timeout)
        space, timeline = self._env.space, self._env.timeline
        self._woken.clear()
        self._feed = self._env.store_runtime.feeds.find(space.name, timeline)
        if self._feed is not None:
            self._watcher = self._feed.watch(self.wake)
            found: list[Happening] = list(self.follower.read(self._watcher.at))
            if self._feed.is_mirror:  # what begins from now on comes through it
                found += self._begun_calls(self._feed.run)
            message, text, reasoning = self._watcher.spoken
            if text or reasoning:
                found.append(TextSoFar(text, self.follower.cursor, message, reasoning, self._feed.run))
            return found
        is_live = self._is_live()
        if is_live and self._lease is not None:
            self._env.store_runtime.feeds.listen(space.name, timeline, self._lease.run)
        goes_on = self._wait or is_live
        news = space.engine.wait({space.name: self.seen}, timeout if goes_on else 0, woken=self._woken)
        if news:
            self.seen, self._lease = news[space.name], leases.current(space, timeline)
            found = list(self.follower.read())
            is_live = self._is_live()
            if is_live and self._lease is not None:
                found += self._begun_calls(self._lease.run)
            if found:
                return found
        if self._wait or is_live:
            return []
        return list(self.follower.read()) or None  # the run may have ended just now

    def _is_repeated_start(self, item: Live, *, is_mirror: bool) -> bool:
        """True if an item reports that a call has started, and that was read from the store before.

        Each attempt at a call is reported by a run in this process.
        """
        if not isinstance(item, CallProgress) or item.state != "started":
            return False
        if not is_mirror:
            self._begun.discard(item.call)
            return False
        is_repeated = item.call in self._begun
        self._begun.add(item.call)
        return is_repeated

    def _begun_calls(self, run: str) -> list[Happening]:
        """Return the calls that have begun in a run of another process, each once.

        That process tells what its run does only once it is asked, and a tool may take long before there is more to tell.
        """
        last = [each.record for each in calls.last(self._env.space, _CALLS_MAX)]
        begun = [each for each in last if each.run == run and each.state == "started"]
        new = [each for each in begun if each.id not in self._begun]
        self._begun = {each.id for each in last} & self._begun | {each.id for each in new}
        return [CallProgress(each.id, each.tool, each.state, cursor=self.follower.cursor) for each in new]

    def words(self) -> list[Happening]:
        """Return what the run said before its next commit; the store is not read, so that an event loop can call this."""
        return _words(self._watcher, self._feed, self._pid, self.follower.cursor)

    @property
    def is_quiet(self) -> bool:
        """True if the run that is watched has said nothing new, and goes on."""
        return self._watcher is not None and self._watcher.is_quiet

    @property
    def wait_seconds(self) -> float:
        """How long to wait for news at most: a process that ends writes nothing, so a live run is looked at often."""
        return _IDLE_SECONDS if self._lease is None else _WAIT_SECONDS

    @property
    def is_watching(self) -> bool:
        """True if everything new comes from a run in this process, and `wake` is called for it."""
        return self._watcher is not None

    def _is_live(self) -> bool:
        lease, env = self._lease, self._env
        return lease is not None and leases.state(env.space, lease, owners=env.owners) == "live"

    def close(self) -> None:
        """Stop reading for good."""
        self._env.store_runtime.feeds.expect_no_more(self._env.space.name, self._env.timeline, self.wake)
        self.leave()

    def leave(self) -> None:
        """Stop watching the run."""
        if self._feed is not None and self._watcher is not None:
            self._feed.leave(self._watcher)
        self._feed = self._watcher = None

    def _watched(self, watcher: Watcher, timeout: float) -> list[Happening]:
        found: list[Happening] = []
        run, is_mirror = (None, False) if self._feed is None else (self._feed.run, self._feed.is_mirror)
        for item in watcher.take(timeout):
            if isinstance(item, CommitNotice):
                found += self.follower.read(item.commit)
            elif not self._is_repeated_start(item, is_mirror=is_mirror):
                found.append(_placed(item, self.follower.cursor, run))
        if watcher.over:
            self.leave()
        elif not found and self._feed is not None and self._feed.is_mirror:
            self._check_mirror(self._feed)
        return found

    def _check_mirror(self, feed: Feed) -> None:
        """Stop watching a run of another process that has gone without a word."""
        space, timeline = self._env.space, self._env.timeline
        self._lease = leases.current(space, timeline)
        if self._lease is None or self._lease.run != feed.run or not self._is_live():
            self._env.store_runtime.feeds.drop(space.name, timeline, feed)


def waiting_call(space: Space, ticket: str) -> WaitingCall | None:
    """Return the call that a ticket is about, with its question; None if the thread does not have it."""
    asked = tickets.find(space, ticket)
    held = None if asked is None else calls.find(space, asked.ticket.call)
    if asked is None or held is None:
        return None
    try:
        arguments = space.body(asked.ticket.args).decode()
    except Forgotten:
        arguments = None
    shown = tickets.as_of_now(space, asked.ticket)
    return WaitingCall(
        thread=space.label,
        ticket=shown,
        record=held.record,
        arguments=arguments,
        repeat=tickets.repeat_of(space, shown),
    )


def stream(env: RunEnvironment, start: Callable[[Watching], None]) -> Iterator[Happening]:
    """Yield the events of a run that `start` begins in another thread; leaving the iteration does not stop it."""
    watching = Watching(env)
    start(watching)
    watching.ready.wait()
    try:
        if watching.joined is not None:
            yield from _joined(watching)
        while not watching.is_over:
            yield from watching.news(_WAIT_SECONDS)
        watching.settled.wait()
        yield from watching.rest()
        yield watching.end()
    finally:
        watching.leave()


def _joined(watching: Watching) -> Iterator[Happening]:
    """Yield the events of the run that was joined, until its result is known."""
    following = watching.follow_joined()
    try:
        while not watching.settled.is_set():
            for event in following.step(_WAIT_SECONDS) or ():
                yield event
                if watching.is_end(event):
                    return
    finally:
        following.close()


def follow(env: RunEnvironment, after: str | None, *, wait: bool = False) -> Iterator[Happening]:
    """Yield the events of the timeline after a cursor; None starts with the run that lives there, or now.

    Ends when no run lives there and everything was read; with `wait` it waits for the next run.
    """
    following = Following(env, after, wait=wait)
    try:
        while (events := following.step(_WAIT_SECONDS)) is not None:
            yield from events
    finally:
        following.close()


def _place(env: RunEnvironment, after: str | None) -> Cursor | None:
    if after is not None:
        return Cursor.read(after)
    space = env.space
    held = leases.current(space, env.timeline)
    if held is None:
        head = reader.head_of(space, env.timeline)
        return cursor_at(space, head.commit, head.version)
    first = space.engine.labelled(space.name, held.run)
    return cursor_at(space, space.step(first[0]).commit.first_parent) if first else None


def _words(watcher: Watcher | None, feed: Feed | None, pid: int, cursor: str | None) -> list[Happening]:
    """Take what a run said before its next commit; nothing where it is not watched, or lives in the process `pid` only."""
    if watcher is None or feed is None or pid != os.getpid():
        return []
    return [_placed(item, cursor, feed.run) for item in watcher.take_live()]


def _placed(item: Live, cursor: str | None, run: str | None) -> Live:
    """Return an item with the cursor before it, and a text with the run that writes it."""
    if isinstance(item, CallProgress):
        return msgspec.structs.replace(item, cursor=cursor)
    return msgspec.structs.replace(item, cursor=cursor, run=run)
