"""Reads the histories from which spans and counters are made.

`thread_spans` reads a whole thread: every commit that a head has ever moved to, undone or not, and the ledger.
`HistoryFollower` reads what any process has added since it looked last, so nothing is done while no follower looks, and a
writer does nothing for it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Event

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Step
from perdure.errors import Conflict, Forgotten, NotFound
from perdure.history import ancestry, reader
from perdure.history.space import CommitCache, Space
from perdure.ledger import calls, results
from perdure.model.call import CallRecord
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.model.event import BackendSwitched, RunStarted, ToolCallRequested
from perdure.model.head import MAIN
from perdure.model.message import Message, Text, decode_message
from perdure.model.run import RunRecord
from perdure.model.ticket import Ticket
from perdure.projections.calls import Book, Transition, decode_transition
from perdure.runtime.session import records
from perdure.runtime.session.result import last_of
from perdure.store.plumbing import directory
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.telemetry.call_spans import CallHistory, call_spans
from perdure.telemetry.run_spans import RunHistory, run_spans
from perdure.telemetry.spans import Content, Span, SpanLink, SpanRef, call_ref, run_ref

__all__ = ["HistoryFollower", "NewHistory", "new_spans", "thread_spans"]

_PREDECESSORS_MAX = 256  # commits that are read backwards to find the run before
_REMEMBERED_MAX = 20_000  # commits that a follower has seen


def thread_spans(thread: Thread, *, content: Content = "none") -> list[Span]:
    """Return the ended spans of everything that a thread's history has, the earliest first."""
    space = _space_of(thread)
    histories = _ThreadReader(space, thread.owner, content)
    steps = list(_all_commits(space))
    return histories.spans(_by_run(steps), histories.calls(0))


def new_spans(news: NewHistory, *, content: Content = "none") -> list[Span]:
    """Return the ended spans of the runs and calls that a part of a history belongs to; some may be older."""
    space = news.space
    histories = _ThreadReader(space, news.owner, content)
    runs = histories.touched_runs(news)
    changed = {entry.call for _, entry in news.entries if entry.call}
    begun = {entry.call: position for position, entry in reversed(news.entries) if entry.record}
    starts = [steps[0].commit.ledger.position for steps in runs.values()]
    if changed:
        # A call that was entered before belongs to one of the runs, or is looked for from the beginning.
        starts += [begun.get(call, 1) - 1 for call in changed - histories.calls_of(runs)]
    found = histories.calls(min(starts, default=news.position))
    return histories.spans(
        runs, [each for each in found if each.record.run in runs or each.record.id in changed]
    )


class NewHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What was added to one thread since a follower looked last."""

    space: Space
    owner: str | None
    position: int  # of the ledger, where its new part begins
    steps: tuple[Step, ...]  # parents first
    entries: tuple[tuple[int, Transition], ...]  # of the ledger, with their positions


class _Place(msgspec.Struct):
    """How far a follower has read a thread."""

    space: str
    versions: dict[str, int]  # of the heads, by timeline
    position: int  # of the ledger


class HistoryFollower:
    """Reads what is added to the threads of a store, by any process, from the moment when it was made.

    It costs writers nothing, and its beginning does not depend on the number of commits: of a thread that was there
    before, the first change is found by the times of its commits, and every later one by the versions of its heads.
    Not thread-safe: one reader uses it.
    """

    def __init__(self, store: Store) -> None:
        """Begin now: what the store has already is not read."""
        resources = store._resources  # pyright: ignore[reportPrivateUsage]
        self._store, self._engine, self._directory = store, resources.engine, resources.store
        self._since = resources.clock()  # µs since 1970, UTC
        self._places: dict[str, _Place] = {}  # by space
        self._known: OrderedDict[Digest, None] = OrderedDict()
        self._listed = self._engine.standing(self._directory.name)
        self._threads = self._list()
        self._seen = dict.fromkeys(self._threads, -1)
        self._seen |= self._engine.wait(self._seen, 0)

    def read(self, seconds: float = 0, *, woken: Event | None = None) -> Iterator[NewHistory]:
        """Wait until a thread has changed, at most `seconds`, and yield what is new of each that has."""
        watched = {**self._seen, self._directory.name: self._listed}
        changed = dict(self._engine.wait(watched, seconds, woken=woken))
        if self._directory.name in changed:
            self._listed = changed.pop(self._directory.name)
            changed |= self._renewed()
        for space, standing in changed.items():
            id = self._threads.get(space)
            self._seen[space] = standing
            if id is None:
                continue
            try:
                thread = self._store.thread(id)
                found = self._new(thread, _space_of(thread))
            except (NotFound, Forgotten):
                continue  # it was removed meanwhile
            if found.steps or found.entries:
                yield found

    def _list(self) -> dict[str, str]:
        return {record.space: id for id, record, _ in directory.threads(self._directory)}

    def _renewed(self) -> dict[str, int]:
        """List the threads again; return the standings of those that are new."""
        self._threads = self._list()
        begun = [space for space in self._threads if space not in self._seen]
        self._seen = {space: self._seen.get(space, -1) for space in self._threads}
        self._places |= {space: _Place(space=space, versions={}, position=0) for space in begun}
        return dict(self._engine.wait(dict.fromkeys(begun, -1), 0)) if begun else {}

    def _new(self, thread: Thread, space: Space) -> NewHistory:
        before, now = self._places.get(space.name), _place_of(space)
        if before is None:
            steps = [each for line in now.versions for each in self._unseen(space, line, 0, self._since)]
            entries = _transitions_since(space, self._since)
        else:
            moved = [line for line, version in now.versions.items() if version > before.versions.get(line, 0)]
            steps = [
                each
                for line in moved
                for each in self._unseen(space, line, before.versions.get(line, 0), None)
            ]
            entries = _transitions(space, before.position)
        position = entries[0][0] - 1 if entries else now.position
        now.position = entries[-1][0] if entries else now.position if before is None else before.position
        self._places[space.name] = now
        return NewHistory(
            space=space, owner=thread.owner, position=position, steps=tuple(steps), entries=entries
        )

    def _unseen(self, space: Space, timeline: str, after: int, since: int | None) -> list[Step]:
        """Return the commits that a head was moved to after a version, parents first; `since` a time, if one is given."""
        found: list[Step] = []
        for move in loops.moves(space.engine, space.name, timeline):
            if move.version <= after:
                break
            if move.act is not Act.COMMIT or move.to is None:
                continue
            if since is not None and space.step(move.to).commit.at < since:
                break
            for step in reader.steps(space, move.to):
                if step.digest == move.from_ or step.digest in self._known:
                    break
                self._known[step.digest] = None
                found.append(step)
        while len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)
        return found[::-1]


def _place_of(space: Space) -> _Place:
    versions = {hold.head.timeline: hold.head.version for hold in loops.holds(space.engine, space.name)}
    return _Place(space=space.name, versions=versions, position=space.engine.ledger(space.name).position)


class _ThreadReader:
    """Reads what the spans of one thread are made from."""

    def __init__(self, space: Space, owner: str | None, content: Content) -> None:
        self._space, self._owner = space, owner
        self._content: Content = content

    def touched_runs(self, news: NewHistory) -> dict[str, list[Step]]:
        """Return the commits of the runs that committed, or whose calls changed."""
        space = self._space
        tips: dict[str, Digest | None] = {
            step.commit.run: step.digest for step in news.steps if step.commit.run is not None
        }
        records_of_calls = calls.find_many(space, {entry.call for _, entry in news.entries if entry.call})
        for found in records_of_calls:
            run = None if found is None or found.record.origin is not None else found.record.run
            record = None if run is None or run in tips else records.find(space, run)
            if record is not None:
                with suppress(Conflict):
                    tips[record.record.id] = last_of(space, record.record)
        runs = {run: self._commits(run, tip) for run, tip in tips.items()}
        return {run: steps for run, steps in runs.items() if steps}

    def _commits(self, run: str, at: Digest | None) -> list[Step]:
        return [step for step in ancestry.of_run(self._space, run, at) if step.commit.run == run]

    def calls_of(self, runs: Mapping[str, Sequence[Step]]) -> set[str]:
        """Return the ids of the calls that these runs requested."""
        return {
            event.call
            for steps in runs.values()
            for step in steps
            for event in step.changeset.events
            if isinstance(event, ToolCallRequested)
        }

    def calls(self, after: int) -> list[CallHistory]:
        """Return the calls that were entered into the ledger after a position."""
        book, entries = Book(), defaultdict[str, list[tuple[int, Transition]]](list)
        for position, entry in _transitions(self._space, after):
            if entry.call and (entry.record or entry.call in entries):
                book.take(entry)
                entries[entry.call].append((position, entry))
        tickets = defaultdict[str, list[Ticket]](list)
        for ticket in book.tickets.values():
            tickets[ticket.call].append(ticket)
        return [self._call(book.calls[id], tuple(found), tuple(tickets[id])) for id, found in entries.items()]

    def _call(
        self, record: CallRecord, entries: tuple[tuple[int, Transition], ...], tickets: tuple[Ticket, ...]
    ) -> CallHistory:
        arguments = result = None
        if self._content == "text":
            arguments, shown = self._text(record.args), results.shown(self._space, record)
            blocks = shown.content if shown else ()
            result = "".join(block.text for block in blocks if isinstance(block, Text)) if shown else None
        return CallHistory(
            record=record, entries=entries, tickets=tickets, arguments=arguments, result=result
        )

    def spans(self, runs: Mapping[str, Sequence[Step]], calls: Iterable[CallHistory]) -> list[Span]:
        """Return the ended spans of these runs and of calls that no run requested, the earliest first."""
        of_runs, found = defaultdict[str, list[CallHistory]](list), list[Span]()
        for call in calls:
            record = call.record
            if record.origin is None and record.run is not None:
                of_runs[record.run].append(call)
            elif record.origin == "call":
                links = self._inside(runs.get(record.run or "", ()))
                found += call_spans(self._space.label, self._space.name, call, self._content, links=links)
        for run, steps in runs.items():
            kept = records.find(self._space, run) if any(map(_starts, steps)) else None
            if kept is not None:
                history = self._run(kept.record, steps, of_runs[run])
                found += run_spans(history, self._content, self._message)
        return sorted(found, key=lambda span: (span.start, -span.end, span.ref.span))

    def _run(self, record: RunRecord, steps: Sequence[Step], calls: Sequence[CallHistory]) -> RunHistory:
        root, parent = self._above(record)
        links = list(self._before(record, steps[0]))
        if record.parent is None:
            links += self._inside(steps)
        if record.continues is not None:
            links.append(SpanLink(run_ref(record.continues, record.continues), "continue"))
        return RunHistory(
            thread=self._space.label,
            space=self._space.name,
            owner=self._owner,
            record=record,
            steps=tuple(steps),
            calls=tuple(calls),
            root=root,
            parent=parent,
            links=tuple(links),
        )

    def _above(self, record: RunRecord) -> tuple[str, SpanRef | None]:
        """Return the first run above a child run, and the call that started it; a run that is no child is the first."""
        root, above = record, record.parent
        while root.parent is not None and root.parent_run is not None:
            home = self._space.beside(root.parent.space, root.parent.thread)
            found = records.find(home, root.parent_run)
            if found is None:  # its thread was removed
                root = msgspec.structs.replace(root, id=root.parent_run, parent=None)
                break
            root = found.record
        if above is None:
            return record.id, None
        return root.id, call_ref(run_ref(root.id, root.id).trace, above.space, above.call)

    def _before(self, record: RunRecord, first: Step) -> Iterator[SpanLink]:
        """Yield links to the run before, if this one began on a fork of its timeline or after a switch."""
        is_switched = False
        for step in reader.steps(self._space, first.commit.first_parent, limit=_PREDECESSORS_MAX):
            is_switched |= any(isinstance(event, BackendSwitched) for event in step.changeset.events)
            run = step.commit.run
            before = records.find(self._space, run) if run is not None else None
            if before is None:
                continue
            starts = sum(map(_starts, self._commits(before.record.id, step.digest)))
            ref = run_ref(self._above(before.record)[0], before.record.id, max(starts, 1))
            if before.record.timeline != record.timeline:
                yield SpanLink(ref, "fork")
            if is_switched:
                yield SpanLink(ref, "switch")
            return

    def _inside(self, steps: Sequence[Step]) -> tuple[SpanLink, ...]:
        """Return a link to the run whose tool began these commits without `call.run`, if one did."""
        run = steps[0].changeset.parent_run_id if steps else None
        return () if run is None else (SpanLink(run_ref(run, run), "parent"),)

    def _text(self, digest: Digest) -> str | None:
        try:
            return self._space.body(digest).decode("utf-8", "replace")
        except Forgotten:
            return None

    def _message(self, digest: Digest) -> Message | None:
        try:
            return decode_message(self._space.body(digest), None)
        except Forgotten:
            return None


def _starts(step: Step) -> bool:
    return any(isinstance(event, RunStarted) for event in step.changeset.events)


def _transitions(space: Space, after: int) -> tuple[tuple[int, Transition], ...]:
    found = loops.entries(space.engine, space.name, after=after)
    return tuple((entry.position, decode_transition(entry.body)) for entry in found)


def _transitions_since(space: Space, since: int) -> tuple[tuple[int, Transition], ...]:
    """Return the entries from a time on, oldest first."""
    found: list[tuple[int, Transition]] = []
    for entry in loops.entries(space.engine, space.name, descending=True):
        transition = decode_transition(entry.body)
        if transition.call and transition.at < since:
            break
        found.append((entry.position, transition))
    return tuple(found[::-1])


def _all_commits(space: Space) -> list[Step]:
    """Return every commit that a head was ever moved to, parents first on each line."""
    seen: set[Digest] = set()
    found: list[Step] = []
    for hold in loops.holds(space.engine, space.name):
        for move in loops.moves(space.engine, space.name, hold.head.timeline):
            if move.to is None or move.to in seen:
                continue
            for step in reader.steps(space, move.to):
                if step.digest in seen:
                    break
                seen.add(step.digest)
                found.append(step)
    return sorted(found, key=lambda step: (step.commit.depth, step.digest))


def _by_run(steps: Iterable[Step]) -> dict[str, list[Step]]:
    found = defaultdict[str, list[Step]](list)
    for step in steps:
        if step.commit.run is not None:
            found[step.commit.run].append(step)
    return found


def _space_of(thread: Thread) -> Space:
    """Return the thread's space with a cache of its own, so that reading old commits evicts none that runs need."""
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    reader.head_of(space, MAIN)
    return msgspec.structs.replace(space, steps=CommitCache())
