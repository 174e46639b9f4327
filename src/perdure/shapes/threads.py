"""The shapes of threads: lists, one thread, its heads and their moves, contexts and switches."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec

from perdure.errors import PerdureError
from perdure.model import message as messages
from perdure.model.call import UNCLEAR
from perdure.model.commit import Act
from perdure.model.recipe import without_credentials
from perdure.shapes.conversation import LossShape, MessageShape, input_at, losses_of, transcript_of
from perdure.shapes.imported import import_facts
from perdure.shapes.ledger import CostShape
from perdure.shapes.text import stamp

if TYPE_CHECKING:  # a list of threads does not load what compares, merges, switches or runs
    from perdure.context.plan import Plan
    from perdure.model.call import CallRecord
    from perdure.model.commit import MoveRecord
    from perdure.model.context import Context
    from perdure.model.head import Head
    from perdure.runtime.inference.preview import Shown
    from perdure.store.thread import Thread
    from perdure.store.view import View
    from perdure.switching.report import Report

__all__ = [
    "BegunThread",
    "ContextItem",
    "ContextShape",
    "ForkShape",
    "HeadMove",
    "HeadShape",
    "MovePage",
    "MoveShape",
    "PromoteShape",
    "ReportShape",
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
    title: str | None  # that the tool gave it from which it was imported
    last_at: str | None  # of the newest commit of main; null: nothing is committed
    said_at: (
        str | None
    )  # the last message of an imported one; null: it is not known, or something was added since
    turns: int
    timelines: int  # without those that were dropped
    head: HeadShape

    @classmethod
    def of(cls, thread: Thread) -> ThreadShape:
        """Return the thread as programs read it."""
        seen = thread.at()
        newest = next(iter(seen.log(limit=1)), None)
        imported = import_facts(seen, newest)
        return cls(
            id=thread.id,
            agent=thread.agent,
            owner=thread.owner,
            begun_at=stamp(thread.begun_at),
            title=imported.title,
            last_at=stamp(newest.at) if newest else None,
            said_at=imported.said_at,
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
    title: str | None  # that the tool gave it from which it was imported
    said_at: (
        str | None
    )  # the last message of an imported one; null: it is not known, or something was added since
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
        newest = next(iter(seen.log(limit=1)), None)
        imported = import_facts(seen, newest)
        return cls(
            id=thread.id,
            agent=thread.agent,
            owner=thread.owner,
            backend=seen.backend,
            server=seen.server,
            begun_at=stamp(thread.begun_at),
            title=imported.title,
            said_at=imported.said_at,
            head=HeadShape.of(seen.head),
            commit=seen.digest,
            cursor=seen.cursor,
            names=[*newest.names] if newest else [],
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


def _last_turn(thread: Thread, head: Head) -> tuple[int, bool]:
    """Return the number of the last message up to a head, and whether the line ends apart from it."""
    newest = next(iter(thread.at(head).log(limit=1)), None)
    return (newest.turn, newest.is_apart) if newest else (0, False)


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
