"""The shapes of threads: lists, one thread, its heads and their moves, comparisons, contexts and switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import UNSET

from perdure.errors import Forgotten, NotFound, PerdureError
from perdure.model import message as messages
from perdure.model.call import UNCLEAR
from perdure.model.commit import Act
from perdure.model.recipe import without_credentials
from perdure.model.run import Cost
from perdure.shapes.conversation import LossShape, MessageShape, PathShape, input_at, losses_of, transcript_of
from perdure.shapes.ledger import CostShape
from perdure.shapes.text import stamp

if TYPE_CHECKING:  # a list of threads does not load what compares, merges, switches or runs
    from perdure.context.plan import Plan
    from perdure.history.merge import Taken
    from perdure.history.query import Called, Difference, Said, StateChange
    from perdure.history.tree import Entry
    from perdure.model.call import CallRecord
    from perdure.model.commit import MoveRecord
    from perdure.model.context import Context
    from perdure.model.digest import Digest
    from perdure.model.head import Head
    from perdure.projections.transcript import TranscriptEntry
    from perdure.runtime.inference.preview import Shown
    from perdure.store.thread import Thread
    from perdure.store.view import View
    from perdure.switching.report import Report

__all__ = [
    "BegunThread",
    "ComparedState",
    "ComparedValue",
    "Comparison",
    "ContextItem",
    "ContextShape",
    "ForkShape",
    "HeadMove",
    "HeadShape",
    "MergeShape",
    "MovePage",
    "MoveShape",
    "PickShape",
    "PromoteShape",
    "ReportShape",
    "Side",
    "SwitchShape",
    "ThreadDetail",
    "ThreadPage",
    "ThreadShape",
    "TimelineShape",
    "UndoShape",
]

_MESSAGES_SHOWN = 4
_MOVES_LOOKED_AT = 20  # for a promotion before an undo
_CALLS_SHOWN = 50  # of what was undone, the newest
_VALUE_BYTES_MAX = 64 * 1024


class HeadShape(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a timeline."""

    timeline: str
    version: int
    commit: str | None

    @classmethod
    def of(cls, head: Head) -> HeadShape:
        """Return the head as programs read it."""
        return cls(timeline=head.timeline, version=head.version, commit=head.commit)


class ThreadShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thread and the head of its main timeline."""

    id: str
    agent: str
    owner: str | None
    begun_at: str
    last_at: str | None  # of the newest commit of main; null: nothing is committed
    turns: int
    timelines: int  # without those that were dropped
    head: HeadShape

    @classmethod
    def of(cls, thread: Thread) -> ThreadShape:
        """Return the thread as programs read it."""
        seen = thread.at()
        newest = next(iter(seen.log(limit=1)), None)
        return cls(
            id=thread.id,
            agent=thread.agent,
            owner=thread.owner,
            begun_at=stamp(thread.begun_at),
            last_at=stamp(newest.at) if newest else None,
            turns=newest.turn if newest else 0,
            timelines=sum(
                not each.sealed or thread.removal_state(each.head.timeline) is None  # who drops one, seals it
                for each in thread.timelines()
            ),
            head=HeadShape.of(seen.head),
        )


class ThreadPage(msgspec.Struct, frozen=True, kw_only=True):
    """The threads of a store, by id."""

    threads: list[ThreadShape]
    more: bool  # whether there are others beyond the limit
    near: list[str]  # where there is none: agents or owners that may have been meant


class MoveShape(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One recorded move of a head."""

    version: int
    act: str  # commit, fork, undo, redo, promote, keep or seal
    from_: str | None
    to: str | None
    at: str | None  # when it was made; null: a move of an older version that was no commit
    author: str | None  # who made it, where that was said
    turn: int
    reason: str | None
    input: str  # what the user said in that turn; empty: no message, or it is forgotten

    @classmethod
    def of(cls, thread: Thread, move: MoveRecord) -> MoveShape:
        """Return the move as programs read it."""
        seen = thread.at(move.to) if move.to else None
        entry = next(iter(seen.log(limit=1)), None) if seen else None
        is_commit = move.act is Act.COMMIT
        made_at = entry.at if entry and is_commit else move.at
        return cls(
            version=move.version,
            act=str(move.act),
            from_=move.from_,
            to=move.to,
            at=None if made_at is None else stamp(made_at),
            author=entry.author if entry and is_commit else move.author,
            turn=entry.turn if entry else 0,
            reason=entry.reason if entry else None,
            input=input_at(seen) if seen else "",
        )


class MovePage(msgspec.Struct, frozen=True, kw_only=True):
    """The moves of a timeline's head, newest first."""

    thread: str
    timeline: str
    moves: list[MoveShape]
    more: bool  # whether there are older ones beyond the limit


class TimelineShape(msgspec.Struct, frozen=True, kw_only=True):
    """One timeline and its head."""

    timeline: str
    version: int
    commit: str | None
    turns: int
    sealed: bool
    removal: str | None  # dropped; forgotten: `gc` has taken what no other timeline needs

    @classmethod
    def every(cls, thread: Thread, seen: View) -> list[TimelineShape]:
        """Return the timelines of a thread, `main` first; `seen` is a view of it."""
        return [
            cls(
                timeline=hold.head.timeline,
                version=hold.head.version,
                commit=hold.head.commit,
                turns=next((entry.turn for entry in seen.at(hold.head).log(limit=1)), 0),
                sealed=hold.sealed,
                removal=thread.removal_state(hold.head.timeline),
            )
            for hold in thread.timelines()
        ]


class ThreadDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One thread at a moment: its timelines, how much state it has, and what was said last."""

    id: str
    agent: str
    owner: str | None
    backend: str | None  # that takes the next turn
    server: str | None  # that the conversation is at; null: none is recorded
    begun_at: str
    head: HeadShape
    commit: str | None  # the moment that is shown
    cursor: str  # with which the events after it begin
    names: list[str]  # that other frameworks have for it
    paths: int
    timelines: list[TimelineShape]
    messages: list[MessageShape]  # the last few, oldest first
    cost: CostShape  # of all its runs, over all timelines

    @classmethod
    def of(cls, thread: Thread, seen: View) -> Self:
        """Return the thread as it was at the moment of `seen`."""
        return cls(
            id=thread.id,
            agent=thread.agent,
            owner=thread.owner,
            backend=seen.backend,
            server=seen.server,
            begun_at=stamp(thread.begun_at),
            head=HeadShape.of(seen.head),
            commit=seen.digest,
            cursor=seen.cursor,
            names=[name for entry in seen.log(limit=1) for name in entry.names],
            paths=sum(1 for _ in seen.entries()),
            timelines=TimelineShape.every(thread, seen),
            messages=[MessageShape.of(entry) for entry in transcript_of(seen, limit=_MESSAGES_SHOWN)],
            cost=CostShape.of(thread.cost()),
        )


class BegunThread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread that is there now, whether it was before or not."""

    id: str
    agent: str
    owner: str | None
    head: HeadShape

    @classmethod
    def of(cls, thread: Thread) -> Self:
        """Return the thread as programs read it."""
        return cls(id=thread.id, agent=thread.agent, owner=thread.owner, head=HeadShape.of(thread.head))


class HeadMove(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a timeline after a move."""

    thread: str
    head: HeadShape
    turn: int  # the number of the last message on the line now; 0: none
    apart: bool  # the line ends with a commit that belongs to no message

    @classmethod
    def by(cls, thread: Thread, head: Head) -> Self:
        """Return the answer of a move that ended at `head`."""
        turn, apart = _last_turn(thread, head)
        return cls(thread=thread.id, head=HeadShape.of(head), turn=turn, apart=apart)


class UndoShape(HeadMove, frozen=True, kw_only=True):
    """The head of a timeline after an undo."""

    old_main: str | None  # after a promotion that the undo left as it is: the moment of main before it
    still_done: list[str]  # the tools of the external writes in what was undone: no undo takes these back
    may_be_done: list[str]  # the same of those of which it is not known whether they were made

    @classmethod
    def of_undo(cls, thread: Thread, head: Head, *, is_by_turns: bool) -> Self:
        """Return the answer of an undo that ended at `head`; `is_by_turns`: the caller gave turns, not a moment."""
        turn, apart = _last_turn(thread, head)
        old_main = _before_promotion(thread, head) if is_by_turns else None
        writes = _external_writes(thread, head)
        return cls(
            thread=thread.id,
            head=HeadShape.of(head),
            turn=turn,
            apart=apart,
            old_main=old_main,
            still_done=[each.tool for each in writes if each.state == "succeeded" or each.outcome == "done"],
            may_be_done=[each.tool for each in writes if _may_be_done(each)],
        )


def _external_writes(thread: Thread, head: Head) -> list[CallRecord]:
    """Return the external writes that were started on the way that the last move to `head` went back."""
    with suppress(PerdureError):  # the undo is made, whatever cannot be read of what was undone
        (move,) = thread.moves(before=head.version + 1, limit=1)
        undone = thread.diff(move.from_, head.commit).calls_a[-_CALLS_SHOWN:]
        records = [thread.trace(each.event.call, history=False).record for each in undone]
        return [each for each in records if each.attempt and each.reach.is_external]
    return []


def _may_be_done(record: CallRecord) -> bool:
    """True if the ledger does not say whether a call was made; one that failed was not, unless it may be repeated."""
    is_unproven = record.state == "failed" and record.reach.repeatable
    return is_unproven or record.state == "started" or record.state in UNCLEAR


def _before_promotion(thread: Thread, head: Head) -> str | None:
    """Return the moment before the promotion after which only undos and redos led to `head`; None: it was none."""
    for move in thread.moves(before=head.version + 1, limit=_MOVES_LOOKED_AT):
        if move.act is Act.PROMOTE:
            return f"version:{move.version - 1}"
        if move.act not in (Act.UNDO, Act.REDO):
            return None
    return None


class ForkShape(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline that began."""

    thread: str
    timeline: str  # that it was forked from
    head: HeadShape

    @classmethod
    def of(cls, source: Thread, begun: Thread) -> Self:
        """Return the fork as programs read it."""
        return cls(thread=source.id, timeline=source.timeline, head=HeadShape.of(begun.head))


class PromoteShape(HeadMove, frozen=True, kw_only=True):
    """The head of main, and the name of the old main."""

    source: str
    kept_as: str

    @classmethod
    def of(cls, thread: Thread, head: Head, source: str) -> Self:
        """Return the answer of a promotion that ended at `head`."""
        turn, apart = _last_turn(thread, head)
        return cls(
            thread=thread.id,
            head=HeadShape.of(head),
            turn=turn,
            apart=apart,
            source=source,
            kept_as=f"{head.timeline}.v{head.version - 1}",  # the old main, by the version that it had
        )


class ComparedValue(msgspec.Struct, frozen=True, kw_only=True):
    """What a path held; `value` is left out for bytes and for documents over 64 KiB."""

    form: str
    media_type: str
    size: int
    digest: str
    value: Any = UNSET


class ConflictShape(msgspec.Struct, frozen=True, kw_only=True):
    """One path that both timelines changed, how, and its values; null: the path had none there.

    Words stand for a value that cannot be read: it is forgotten, not seen, or made by an earlier pick of this dry run.
    """

    path: str
    why: str
    base: ComparedValue | str | None  # at the last commit that both have
    ours: ComparedValue | str | None
    theirs: ComparedValue | str | None

    @classmethod
    def every(cls, thread: Thread, taken: Taken) -> list[Self]:
        """Return the conflicts of a dry run, with the values as they are at the moments that it compared."""
        return [
            cls(
                path=each.path,
                why=each.why,
                base=_value_there(thread, taken.base, each.path, each.base),
                ours=_value_there(thread, taken.head.commit, each.path, each.ours),
                theirs=_value_there(thread, taken.theirs, each.path, each.theirs),
            )
            for each in taken.conflicts
        ]


def _value_there(
    thread: Thread, at: Digest | None, path: str, digest: str | None
) -> ComparedValue | str | None:
    """Return the value of that digest, which a path had at a moment; None: it had none."""
    if digest is None:
        return None
    with suppress(Forgotten, NotFound):
        entry = thread.at(at).entry(path)
        if entry.value == digest:
            return _value(thread, at, entry)
    return "(not shown)"


class MergeShape(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a merge, or with `dry_run` what it would be."""

    thread: str
    source: str
    head: HeadShape
    commit: str | None  # null: there was nothing to take in, and nothing was written
    base: str | None  # where the lines parted
    paths: int  # how many changed
    dry_run: bool
    changed: list[PathShape]  # of a dry run
    conflicts: list[ConflictShape]  # of a dry run: those for which no side is preferred

    @classmethod
    def of(cls, thread: Thread, source: str, taken: Taken, *, dry_run: bool = False) -> Self:
        """Return the merge as programs read it."""
        return cls(
            thread=thread.id,
            source=source,
            head=HeadShape.of(taken.head),
            commit=taken.commit,
            base=taken.base,
            paths=taken.paths,
            dry_run=dry_run,
            changed=_would_change(taken),
            conflicts=ConflictShape.every(thread, taken),
        )


class PickShape(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, or one commit, whose changes were applied, or with `dry_run` would be."""

    thread: str
    picked: str
    head: HeadShape
    commit: str | None  # null: there was nothing to take in, and nothing was written
    paths: int
    dry_run: bool
    changed: list[PathShape]  # of a dry run
    conflicts: list[ConflictShape]  # of a dry run: those for which no side is preferred

    @classmethod
    def of(cls, thread: Thread, picked: str, taken: Taken, *, dry_run: bool = False) -> Self:
        """Return the change that was picked as programs read it."""
        return cls(
            thread=thread.id,
            picked=picked,
            head=HeadShape.of(taken.head),
            commit=taken.commit,
            paths=taken.paths,
            dry_run=dry_run,
            changed=_would_change(taken),
            conflicts=ConflictShape.every(thread, taken),
        )


def _would_change(taken: Taken) -> list[PathShape]:
    return [PathShape(path=each.path, what=each.what) for each in taken.changes]


def _last_turn(thread: Thread, head: Head) -> tuple[int, bool]:
    """Return the number of the last message up to a head, and whether the line ends apart from it."""
    newest = next(iter(thread.at(head).log(limit=1)), None)
    return (newest.turn, newest.is_apart) if newest else (0, False)


class ComparedState(msgspec.Struct, frozen=True, kw_only=True):
    """One path at which the two moments differ: added, changed or removed."""

    path: str
    what: str
    before: ComparedValue | None
    after: ComparedValue | None


class ComparedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call that only one of the sides has."""

    commit: str
    call: str
    tool: str


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two moments, and what happened only on its side since the two parted."""

    name: str
    commit: str | None
    messages: list[MessageShape]
    calls: list[ComparedCall]
    cost: CostShape  # of the steps of runs whose messages these are


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two moments."""

    thread: str
    same: bool
    base: str | None  # the last commit that both have in their history
    a: Side
    b: Side
    state: list[ComparedState]

    @classmethod
    def of(cls, thread: Thread, a: str, b: str, differing: Difference) -> Self:
        """Return the difference of two moments, which were named `a` and `b`."""
        return cls(
            thread=thread.id,
            same=differing.same,
            base=differing.base,
            a=_side(thread, a, differing.a, differing.messages_a, differing.calls_a),
            b=_side(thread, b, differing.b, differing.messages_b, differing.calls_b),
            state=[_state(thread, differing, change) for change in differing.state],
        )


def _state(thread: Thread, differing: Difference, change: StateChange) -> ComparedState:
    return ComparedState(
        path=change.path,
        what=change.what,
        before=_value(thread, differing.a, change.before),
        after=_value(thread, differing.b, change.after),
    )


def _value(thread: Thread, at: Digest | None, entry: Entry | None) -> ComparedValue | None:
    if entry is None:
        return None
    small = entry.form == "json" and entry.size <= _VALUE_BYTES_MAX
    return ComparedValue(
        form=entry.form,
        media_type=entry.media_type,
        size=entry.size,
        digest=entry.value,
        value=thread.at(at).get(entry.path) if small else UNSET,
    )


def _side(
    thread: Thread, name: str, commit: Digest | None, said: Sequence[Said], called: Sequence[Called]
) -> Side:
    calls = [ComparedCall(commit=each.commit, call=each.event.call, tool=each.event.tool) for each in called]
    entries = list(_entries(thread, said))
    steps = (each for each in entries if each.role == "assistant" and each.run is not None)
    spent = sum((Cost.of(each.cost) for each in steps), Cost())
    return Side(
        name=name,
        commit=commit,
        messages=[MessageShape.of(each) for each in entries],
        calls=calls,
        cost=CostShape.of(spent),
    )


def _entries(thread: Thread, said: Sequence[Said]) -> Iterator[TranscriptEntry]:
    """Return the messages in order: those of one commit are the last of its transcript."""
    for commit, number in Counter(each.commit for each in said).items():
        yield from transcript_of(thread.at(commit), limit=number)


class ContextItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was weighed for a context."""

    tier: int
    tier_name: str
    what: str
    tokens: int
    included: bool
    why: str
    refs: list[str]
    text: str  # of an item of memory or of the task's state, as the model is shown it; else empty


class ContextShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend is shown, item by item; at a moment, what it was shown."""

    thread: str
    timeline: str
    backend: str
    commit: str | None  # at a moment: the commit in which the model spoke
    window: int | None
    reserved: int
    tokens: int
    margin: int
    fits: bool
    items: list[ContextItem]
    recipe: dict[str, Any]
    context: dict[str, Any]
    request: dict[str, Any] | None  # at a moment, where one was sent

    @classmethod
    def of(cls, thread: Thread, plan: Plan, shown: Shown | None) -> Self:
        """Return a plan; `shown` is what was sent by it, None: nothing was."""
        from perdure.context.plan import TIERS  # it counts tokens, which no list needs

        return cls(
            thread=thread.id,
            timeline=thread.timeline,
            backend=plan.backend,
            commit=shown.commit if shown is not None else None,
            window=plan.window,
            reserved=plan.reserved,
            tokens=plan.tokens,
            margin=plan.margin,
            fits=plan.fits,
            items=[
                ContextItem(
                    tier=item.tier,
                    tier_name=TIERS[item.tier],
                    what=item.what,
                    tokens=item.tokens,
                    included=item.included,
                    why=item.why,
                    refs=list(item.refs),
                    text=item.text,
                )
                for item in plan.items
            ],
            recipe=msgspec.to_builtins(plan.recipe),
            context=_document(plan.context),
            request=shown.request.body if shown is not None and shown.request is not None else None,
        )


def _document(context: Context) -> dict[str, Any]:
    return {
        "system": context.system,
        "messages": [messages.view(message) for message in context.messages],
        "tools": [msgspec.to_builtins(tool) for tool in context.tools],
        "options": without_credentials(msgspec.to_builtins(dict(context.options), enc_hook=repr)),
    }


class GradeShape(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the check: kept, converted with a fallback, or removed; and what the policy decides."""

    topic: str
    mark: str
    line: str
    fallback: str | None
    why: str
    gate: str


class ReportShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a switch keeps, converts and removes, and whether it may be made, or was."""

    thread: str
    timeline: str
    from_backend: str | None
    to_backend: str
    from_server: str | None  # that the conversation is at; null: a model of the program's own, or none yet
    to_server: str | None  # that it goes to
    ok: bool
    outcome: str
    items: list[GradeShape]
    losses: list[LossShape]
    notes: list[str]
    approved_by: str | None
    checkpoint: str | None
    commit: str | None  # of the switch; null: none was made
    told: str  # in one sentence

    @classmethod
    def of(cls, report: Report, *, told: str) -> Self:
        """Return the report as programs read it; `told` says the outcome in one sentence."""
        from perdure.switching.commit import checkpoint_name  # it loads what writes a switch

        return cls(
            thread=report.thread,
            timeline=report.timeline,
            from_backend=report.from_backend,
            to_backend=report.to_backend,
            from_server=report.from_server,
            to_server=report.to_server,
            ok=report.ok,
            outcome=report.outcome,
            items=[
                GradeShape(
                    topic=item.topic,
                    mark=item.mark,
                    line=item.line,
                    fallback=item.fallback,
                    why=item.why,
                    gate=item.gate,
                )
                for item in report.items
            ],
            losses=losses_of(report.losses),
            notes=list(report.notes),
            approved_by=report.approved_by,
            checkpoint=checkpoint_name(report),
            commit=report.commit,
            told=told,
        )


class SwitchShape(msgspec.Struct, frozen=True, kw_only=True):
    """A thread that another backend has taken over, or would."""

    dry_run: bool
    switched: bool
    report: ReportShape
