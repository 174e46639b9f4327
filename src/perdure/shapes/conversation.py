"""The shapes of a conversation: messages, turns, commits, and the pages and graphs that list them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec

from perdure.errors import Corrupt, Forgotten, NotFound
from perdure.model.message import view
from perdure.model.patch import Clear, Delete, Edit, Put, Replace
from perdure.shapes.text import shortened, stamp

if TYPE_CHECKING:
    from perdure.history.query import StateChange
    from perdure.model.event import AgentHandedOff
    from perdure.model.redaction import Redaction
    from perdure.projections.transcript import TranscriptEntry, Turn
    from perdure.providers.contract import Loss
    from perdure.store.plumbing.revisions import LogEntry
    from perdure.store.thread import Thread
    from perdure.store.view import View

__all__ = [
    "DAMAGED",
    "WORDS_MAX",
    "MessageShape",
    "RedactionShape",
    "PathShape",
    "StepTimeShape",
    "TurnShape",
    "CommitShape",
    "LossShape",
    "StepLossShape",
    "TurnPage",
    "LogPage",
    "TurnLog",
    "CommitLog",
    "TranscriptPage",
    "GraphNode",
    "GraphPage",
    "losses_of",
    "input_at",
    "place_name",
    "step_losses",
    "transcript_of",
    "turn_name",
    "turns_of",
]

DAMAGED = "damaged: its stored bytes are not what was written"  # in the place of words
WORDS_MAX = 120  # characters of a message in an overview
_COMMITS_A_PAGE = 100


class RedactionShape(msgspec.Struct, frozen=True, kw_only=True):
    """When and by whom a message, or a call in it, was redacted, and why."""

    of: str  # the id of the message, the call or the artifact that the person named
    at: str
    by: str | None
    why: str


class MessageShape(msgspec.Struct, frozen=True, kw_only=True):
    """One message: who said it, in which commit, and what."""

    id: str
    role: str
    text: str
    commit: str
    at: str
    run: str | None
    provider: str | None
    model: str | None
    message: dict[str, Any] | None  # None: forgotten, or damaged if there is no reason
    forgotten: str | None  # why
    redacted: RedactionShape | None  # null: it was not; otherwise `message` is what stands in its place

    @property
    def is_damaged(self) -> bool:
        """True if its stored bytes are not what was written."""
        return self.message is None and self.forgotten is None

    @classmethod
    def of(cls, entry: TranscriptEntry) -> MessageShape:
        """Return the message in the shape of --json."""
        return cls(
            id=entry.id,
            role=entry.role,
            text=entry.text,
            commit=entry.commit,
            at=stamp(entry.at),
            run=entry.run,
            provider=entry.provider,
            model=entry.model,
            message=view(entry.words) if entry.words else None,
            forgotten=entry.forgotten,
            redacted=None if entry.redaction is None else _redacted(entry.redaction),
        )


def _redacted(found: Redaction) -> RedactionShape:
    return RedactionShape(of=found.subject, at=stamp(found.at), by=found.by, why=found.why)


class PathShape(msgspec.Struct, frozen=True, kw_only=True):
    """One path whose value changed: added, changed or removed; written: which of the first two is not known."""

    path: str
    what: str

    @classmethod
    def of(cls, change: StateChange) -> PathShape:
        """Return the change in the shape of --json."""
        return cls(path=change.path, what=change.what)


class StepTimeShape(msgspec.Struct, frozen=True, kw_only=True):
    """When a model took one step: from the commit before it to the commit of what the model said."""

    message: str
    begun_at: str
    ended_at: str


class TurnShape(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: the commits it lies between, what was said in it, and which paths it changed."""

    number: int  # of the message; a turn of another kind has that of the message before it
    position: int  # among all turns of its line, of any kind
    before: str | None
    after: str
    reason: str
    at: str  # of its first commit
    ended_at: str  # of its last commit; its run may go on
    kind: str  # message, switch, hand-off, merge, pick, call, edit or resumed
    run: str | None
    status: str | None  # the state of its run, or `interrupted`; null: there was none
    why: str | None  # if the run did not simply succeed
    handed_off: str | None  # of a hand-off: from which agent to which, and why
    backend: str | None
    input: str
    text: str
    names: list[str]  # that other frameworks have for its commits
    calls: int  # how many tool calls the model requested in it
    failed: list[str]  # the calls that failed in it
    unclear: list[str]  # those that ended with an unknown outcome, which may be known by now
    messages: list[MessageShape]
    steps: list[StepTimeShape]  # of the models that its run asked
    changed: list[PathShape]
    forgotten: bool  # a retention policy has removed the state before or after it; `changed` is what it wrote
    damaged: bool  # the stored bytes of a message or of its state are not what was written

    @classmethod
    def of(cls, turn: Turn, seen: View | None) -> TurnShape:
        """Return the turn as programs read it; `seen` is a view of its thread, None: what it changed is left out."""
        try:
            differs = () if seen is None else seen.diff(turn.before, turn.after).state
            changed, is_forgotten, is_damaged = [PathShape.of(change) for change in differs], False, False
        except Forgotten:
            assert seen is not None
            changed, is_forgotten, is_damaged = _written(turn, seen), True, False
        except (Corrupt, NotFound):  # its commits are on the line, so that they are there
            changed, is_forgotten, is_damaged = [], False, True
        return cls(
            number=turn.number,
            position=turn.position,
            before=turn.before,
            after=turn.after,
            reason=turn.reason,
            at=stamp(turn.at),
            ended_at=stamp(turn.ended_at),
            kind=turn.kind,
            run=turn.run,
            status=turn.status,
            why=turn.why,
            handed_off=None if turn.handed is None else _handed(turn.handed),
            backend=turn.backend,
            input=turn.input,
            text=turn.text,
            names=list(turn.names),
            calls=len(turn.calls),
            failed=list(turn.failed_calls),
            unclear=list(turn.unclear_calls),
            messages=[MessageShape.of(entry) for entry in turn.entries],
            steps=[
                StepTimeShape(
                    message=each.message, begun_at=stamp(each.begun_at), ended_at=stamp(each.ended_at)
                )
                for each in turn.steps
            ],
            changed=changed,
            forgotten=is_forgotten,
            damaged=is_damaged or any(entry.is_damaged for entry in turn.entries),
        )


def _written(turn: Turn, seen: View) -> list[PathShape]:
    """Return the paths that the commits of a turn wrote, as their patches say, which no policy removes."""
    after = seen.at(turn.after)
    begun = seen.at(turn.before).log(limit=1)
    commits = after.log(limit=after.log(limit=1)[0].depth - (begun[0].depth if begun else -1))
    found: dict[str, str] = {}
    for op in (op for commit in reversed(commits) for op in commit.patch.ops):
        match op:
            case Clear(prefix):
                found[prefix] = "removed"
            case Replace(entries):
                found |= dict.fromkeys(entries, "written")
            case Delete(path):
                found[path] = "removed"
            case Put(path=path) | Edit(path=path):
                found[path] = "written"
    return [PathShape(path=path, what=what) for path, what in sorted(found.items())]


class CommitShape(msgspec.Struct, frozen=True, kw_only=True):
    """One commit, with its events and the ops of its patch."""

    digest: str
    parents: list[str]
    root: str
    reason: str
    at: str
    depth: int
    turn: int  # the number of its message, or of the message before it; 0 before the first
    apart: bool  # it belongs to no message: an edit, a switch, a merge or a cherry-pick, by itself
    run: str | None
    parent_run: str | None
    run_meta: dict[str, str] | None
    author: str | None
    events: list[dict[str, Any]]
    ops: list[dict[str, Any]]

    @classmethod
    def of(cls, entry: LogEntry) -> CommitShape:
        """Return the commit in the shape of --json."""
        return cls(
            digest=entry.digest,
            parents=list(entry.parents),
            root=entry.root,
            reason=entry.reason,
            at=stamp(entry.at),
            depth=entry.depth,
            turn=entry.turn,
            apart=entry.is_apart,
            run=entry.run,
            parent_run=entry.parent_run,
            run_meta=None if entry.run_meta is None else msgspec.to_builtins(entry.run_meta),
            author=entry.author,
            events=[msgspec.to_builtins(event) for event in entry.events],
            ops=[msgspec.to_builtins(op) for op in entry.patch.ops],
        )


def _handed(event: AgentHandedOff) -> str:
    why = f": {event.why}" if event.why else ""
    return f"{event.from_agent} to {event.to_agent}{why}"


def turn_name(turn: TurnShape) -> str:
    """Return the name of a turn for people: only messages have numbers."""
    if turn.kind == "resumed":
        return f"turn {turn.number}, resumed"
    return f"turn {turn.number}" if turn.kind == "message" else turn.kind


def place_name(turn: int, *, is_apart: bool) -> str:
    """Return where a commit is for people, by the number of its message or of the message before it; empty: nowhere."""
    if not turn:
        return ""
    return f"after turn {turn}" if is_apart else f"in turn {turn}"


def input_at(seen: View) -> str:
    """Return what the user said in the turn of the commit that is seen; empty: no message, or it is forgotten."""
    with suppress(Forgotten):
        for turn in turns_of(seen, limit=1):
            is_damaged = any(entry.is_damaged for entry in turn.entries if entry.role == "user")
            return DAMAGED if is_damaged else turn.input
    return ""


def turns_of(seen: View, *, limit: int | None) -> list[Turn]:
    """Return the last turns for people; a message whose bytes are damaged is there without words."""
    try:
        return seen.turns(limit=limit)
    except Corrupt:
        return seen.turns(limit=limit, passes_damage=True)


def transcript_of(seen: View, *, limit: int | None) -> list[TranscriptEntry]:
    """Return the last messages for people; one whose bytes are damaged is there without words."""
    try:
        return seen.transcript(limit=limit)
    except Corrupt:
        return seen.transcript(limit=limit, passes_damage=True)


class LossShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was converted, repaired or dropped: where in the conversation, what, and why."""

    kind: str
    where: str
    what: str
    why: str


class StepLossShape(LossShape, frozen=True, kw_only=True):
    """One thing of that kind in a step of a run; `message` is what the model said in the step."""

    message: str


def step_losses(message: str, losses: Iterable[Loss]) -> list[StepLossShape]:
    """Return the losses of the step that said a message, in the shape of --json."""
    return [
        StepLossShape(kind=each.kind, where=each.where, what=each.what, why=each.why, message=message)
        for each in losses
    ]


def losses_of(losses: Iterable[Loss]) -> list[LossShape]:
    """Return the losses in the shape of --json."""
    return [LossShape(kind=each.kind, where=each.where, what=each.what, why=each.why) for each in losses]


class TurnPage(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a line, oldest first."""

    thread: str
    timeline: str
    turns: list[TurnShape]
    settled: dict[str, str]  # by unclear call: as what it was settled after its turn
    more: bool  # whether there are older ones beyond the limit

    @classmethod
    def of(cls, thread: Thread, seen: View, *, limit: int | None) -> Self:
        """Return the last turns at a moment; None: all."""
        turns = _with_states(thread, seen, turns_of(seen, limit=limit))
        return cls(
            thread=thread.id,
            timeline=thread.timeline,
            turns=turns,
            settled=_settled_later(thread, turns),
            more=bool(turns) and turns[0].before is not None,
        )


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds of log have."""

    thread: str
    timeline: str
    heads: dict[str, list[str]]  # from a commit to the timelines whose head it is
    more: bool  # whether there are older ones beyond the limit


class TurnLog(LogPage, frozen=True, kw_only=True):
    """The turns of a line, newest first."""

    turns: list[TurnShape]
    settled: dict[str, str]  # by unclear call: as what it was settled after its turn

    @classmethod
    def of(cls, thread: Thread, seen: View, *, limit: int | None) -> Self:
        """Return the last turns at a moment; None: all."""
        turns = _with_states(thread, seen, turns_of(seen, limit=limit))
        return cls(
            thread=thread.id,
            timeline=thread.timeline,
            heads=_heads(thread, {turn.after for turn in turns}),
            more=bool(turns) and turns[0].before is not None,
            turns=turns[::-1],
            settled=_settled_later(thread, turns),
        )


class CommitLog(LogPage, frozen=True, kw_only=True):
    """The commits of a line, newest first."""

    commits: list[CommitShape]

    @classmethod
    def of(cls, thread: Thread, seen: View, *, limit: int | None) -> Self:
        """Return the last commits at a moment; None: all."""
        entries = seen.log(limit=limit)
        return cls(
            thread=thread.id,
            timeline=thread.timeline,
            heads=_heads(thread, {entry.digest for entry in entries}),
            more=bool(entries) and entries[-1].depth > 0,
            commits=[CommitShape.of(entry) for entry in entries],
        )


class TranscriptPage(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a line up to a moment, oldest first."""

    thread: str
    timeline: str
    commit: str | None
    cursor: str  # with which the events after them begin
    messages: list[MessageShape]
    more: bool  # whether there are older ones beyond the limit

    @classmethod
    def of(cls, thread: Thread, seen: View, *, limit: int) -> Self:
        """Return the last messages at a moment."""
        found = transcript_of(seen, limit=limit + 1)
        return cls(
            thread=thread.id,
            timeline=thread.timeline,
            commit=seen.digest,
            cursor=seen.cursor,
            messages=[MessageShape.of(entry) for entry in found[-limit:]],
            more=len(found) > limit,
        )


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """The last commit of a turn on a timeline, or a commit at which a timeline parted."""

    commit: str
    parents: list[str]  # that are shown: before it on its line, then those that it merged
    timelines: list[str]  # whose head it is
    turn: TurnShape
    skipped: int = 0  # turns with a message that are left out between it and the first of its parents
    skipped_others: int = (
        0  # edits, merges, picks and other changes without a message that are left out there
    )


class GraphPage(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of all timelines of a thread, newest first, each after those that follow it."""

    thread: str
    nodes: list[GraphNode]
    more: bool  # whether there are older ones beyond the limit
    dropped: int  # timelines that are left out: they were dropped, or are forgotten

    @classmethod
    def of(
        cls, thread: Thread, *, limit: int, reach: int = 1, brief: bool = False, dropped: bool = False
    ) -> Self:
        """Return the newest turns of all timelines; 0: all.  Dropped ones are left out, unless `dropped` is true.

        Beyond the limit it has the last turn of each timeline, for at most as many: none of them is overlooked.  It
        also has those at which timelines part, as far as they are among `reach` times as many turns of each timeline.
        `brief`: of what was said only the beginning, and not what was changed.
        """
        heads: dict[str, list[str]] = {}
        commits: dict[str, LogEntry] = {}
        every = thread.timelines()
        shown_lines = [each for each in every if dropped or thread.removal_state(each.head.timeline) is None]
        for hold in shown_lines:
            if hold.head.commit is not None:
                heads.setdefault(hold.head.commit, []).append(hold.head.timeline)
                # One more than the limit: it shows that there are more.
                _collect(thread, hold.head.commit, commits, limit and limit * reach + 1)
        after: dict[str, list[LogEntry]] = {}
        for entry in commits.values():
            for parent in entry.parents:
                after.setdefault(parent, []).append(entry)
        shown = {
            digest
            for digest in commits
            if digest in heads or _is_shown(commits[digest], after.get(digest, []))
        }
        parents = {digest: list(_shown_parents(commits, digest, shown)) for digest in shown}
        order = _newest_first(commits, parents)
        kept = _kept(order, limit, heads, parents if reach > 1 else {})
        turns = _turns_at(thread, kept, parents, brief=brief)
        before = {digest: _kept_parents(commits, parents, digest, turns) for digest in kept}
        return cls(
            thread=thread.id,
            nodes=[
                GraphNode(
                    commit=digest,
                    parents=before[digest][0],
                    timelines=heads.get(digest, []),
                    turn=turns[digest],
                    skipped=before[digest][1],
                    skipped_others=before[digest][2],
                )
                for digest in kept
            ],
            more=len(kept) + sum(turns + others for _, turns, others in before.values()) < len(order)
            or any(entry.parents and entry.parents[0] not in commits for entry in commits.values()),
            dropped=len(every) - len(shown_lines),
        )


def _kept(order: list[str], limit: int, heads: Container[str], parents: Mapping[str, list[str]]) -> list[str]:
    """Return the newest of the shown commits, and of the others the heads and those that several lines lead to."""
    if not limit:
        return order
    lines = Counter(before[0] for before in parents.values() if before)
    older = [digest for digest in order[limit:] if digest in heads]
    parted = [digest for digest in order[limit:] if lines[digest] > 1 and digest not in heads]
    extra = {*older[:limit], *parted[:limit]}
    return [digest for at, digest in enumerate(order) if at < limit or digest in extra]


def _kept_parents(
    commits: Mapping[str, LogEntry], parents: Mapping[str, list[str]], digest: str, kept: Container[str]
) -> tuple[list[str], int, int]:
    """Return the nearest kept commits before one, and how many turns and other changes were left out before the first."""
    found: list[str] = []
    skipped = messages = 0
    for parent in parents[digest]:
        at: str | None = parent
        passed = 0
        while at is not None and at not in kept:
            at, passed = next(iter(parents.get(at, ())), None), passed + 1
        if at is not None and not found:
            skipped, messages = passed, commits[parent].turn - commits[at].turn
        found.append(at or parent)
    return found, messages, skipped - messages


def _turns_at(
    thread: Thread, commits: Sequence[str], parents: Mapping[str, list[str]], *, brief: bool
) -> dict[str, TurnShape]:
    """Return the turns that end with these commits; those that follow one another on a line are read together."""
    wanted, found = set(commits), dict[str, TurnShape]()
    for digest in commits:
        line, each = 0, digest
        while each in wanted and each not in found:
            line += 1
            each = next(iter(parents[each]), "")
        if line:
            seen = thread.at(digest)
            for turn in _with_states(thread, None if brief else seen, turns_of(seen, limit=line)):
                found.setdefault(turn.after, _brief(turn) if brief else turn)
    return found


def _brief(turn: TurnShape) -> TurnShape:
    said = {"input": shortened(turn.input, WORDS_MAX), "text": shortened(turn.text, WORDS_MAX)}
    return msgspec.structs.replace(turn, messages=[], steps=[], **said)


def _with_states(thread: Thread, seen: View | None, turns: Iterable[Turn]) -> list[TurnShape]:
    """Return turns as programs read them; a run without an end on this line has the state that its record has.

    Such a run waits, is under way, was interrupted, or failed on a timeline of its own.
    """
    found = [TurnShape.of(turn, seen) for turn in turns]
    unended = {each.run for each in found if each.run is not None and each.status is None}
    records = {each.id: each for each in thread.runs() if each.id in unended} if unended else {}
    states = {
        each.id: "interrupted" if each.state == "running" and thread.interrupted(each.id) else each.state
        for each in records.values()
    }
    return [
        msgspec.structs.replace(each, status=states[each.run], why=records[each.run].why)
        if each.run is not None and each.run in records
        else each
        for each in found
    ]


def _settled_later(thread: Thread, turns: Iterable[TurnShape]) -> dict[str, str]:
    """Return the calls that ended unclear and whose result became known after what a model was shown, with their outcomes."""
    found: dict[str, str] = {}
    for call in (call for turn in turns for call in turn.unclear):
        with suppress(NotFound):
            record = thread.trace(call, history=False).record
            # A result that no conversation holds came after the one that is shown.
            if record.result_label == "" and record.state in ("resolved", "succeeded"):
                found[call] = record.outcome or "done"
    return found


def _heads(thread: Thread, shown: Container[str]) -> dict[str, list[str]]:
    heads: dict[str, list[str]] = {}
    for hold in thread.timelines():
        commit = hold.head.commit
        if commit is not None and commit in shown:
            heads.setdefault(commit, []).append(hold.head.timeline)
    return heads


def _collect(thread: Thread, at: str | None, commits: dict[str, LogEntry], limit: int) -> None:
    """Add the commits of the last `limit` turns of a line (0: of all), back to one that is there already."""
    turns, after = 0, None
    while at is not None:
        page = thread.at(at).log(limit=_COMMITS_A_PAGE)
        for entry in page:
            if entry.digest in commits:
                return
            turns += after is None or after.run is None or after.run != entry.run
            if limit and turns > limit:
                return
            commits[entry.digest] = after = entry
        at = next(iter(page[-1].parents), None)


def _is_shown(entry: LogEntry, after: list[LogEntry]) -> bool:
    """True if a turn ends with a commit, or lines part there."""
    return (
        len(after) != 1
        or after[0].parents[0] != entry.digest
        or after[0].run is None
        or after[0].run != entry.run
    )


def _shown_parents(commits: dict[str, LogEntry], digest: str, shown: set[str]) -> Iterator[str]:
    """Yield the nearest shown commits before one: on its line, and on the lines that were merged on the way."""
    entry: LogEntry | None = commits[digest]
    while entry is not None:
        merged = [each for each in entry.parents[1:] if each in shown]
        first = entry.parents[0] if entry.parents else None
        if first in shown:
            yield first
        yield from merged
        entry = None if first is None or first in shown else commits.get(first)


def _newest_first(commits: dict[str, LogEntry], parents: dict[str, list[str]]) -> list[str]:
    """Return the shown commits, each after all that follow it, the newer first."""
    open_children = dict.fromkeys(parents, 0)
    for found in parents.values():
        for parent in found:
            open_children[parent] += 1
    ready = [digest for digest, children in open_children.items() if not children]
    order: list[str] = []
    while ready:
        newest = max(ready, key=lambda digest: (commits[digest].at, commits[digest].depth, digest))
        ready.remove(newest)
        order.append(newest)
        for parent in parents[newest]:
            open_children[parent] -= 1
            if not open_children[parent]:
                ready.append(parent)
    return order
