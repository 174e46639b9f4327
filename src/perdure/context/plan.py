"""Plans: what a backend is shown of a conversation, what is left out, and why, tier by tier.

    1 system words, policy, personality, tools      5 long-term memory: pinned, relevant
    2 the checkpoint                                6 artifacts by reference
    3 active task state                             7 older transcript, where it is needed
    4 the last turns

A plan is data that a user can look at.  Making one writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from perdure.context.budget import Budget, weigh_frame
from perdure.context.builder import BuiltContext, ContextRequest
from perdure.context.history_window import MessageRef, exchanges
from perdure.context.render.conversation import CutText
from perdure.context.render.notes import MEMORY_LEFT_OUT, is_pinned, lines_of
from perdure.context.required_messages import Needed
from perdure.model.context import Context
from perdure.model.message import Message, Text
from perdure.model.recipe import Frame, Recipe
from perdure.providers.contract import Loss
from perdure.providers.tokens import Weight

__all__ = ["TIERS", "PlanItem", "Plan", "count_of", "items_of"]

Tier: TypeAlias = Literal[1, 2, 3, 4, 5, 6, 7]

TIERS: dict[Tier, str] = {
    1: "system, policy, tools",
    2: "checkpoint",
    3: "task state",
    4: "last turns",
    5: "memory",
    6: "artifacts",
    7: "older transcript",
}


class PlanItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of a context that was considered: a turn, a note, the tools."""

    tier: Tier
    what: str  # for a reader: `turn 12`, `tools (3)`, `mem://…`
    tokens: int
    included: bool
    why: str  # in words
    refs: tuple[str, ...] = ()  # ids of messages, references of memory and artifacts
    text: str = ""  # of an item of memory or of the task's state, as the model is shown it


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A context for one backend, and how it was built."""

    backend: str
    window: int | None  # tokens of request and answer; None: not known, and everything is shown
    reserved: int  # of these, tokens for the answer
    items: tuple[PlanItem, ...]
    context: Context
    left_out: int = 0  # recent turns that are not shown because they do not fit
    omitted: tuple[Message, ...] = ()  # messages of the last turn that are not shown because they do not fit
    margin: int = 0  # by how many tokens the count may be off
    recipe: Recipe | None = None  # from which the same context is rebuilt
    history: tuple[Message, ...] = ()  # the shown messages as they were said, before calls were told in words

    calls_in_words: tuple[str, ...] = ()  # calls before the last switch that are told in sentences
    calls_native: tuple[str, ...] = ()  # those that are shown as call and result

    cuts: tuple[CutText, ...] = ()  # texts that are shown in part because they do not fit
    losses: tuple[
        Loss, ...
    ] = ()  # calls told in words, cuts and omitted messages, before any adapter renders it

    @property
    def budget(self) -> int | None:
        """The tokens that a request may have; None: not known."""
        return None if self.window is None else self.window - self.reserved

    @property
    def fits(self) -> bool:
        """True if the request, margin included, is within the budget."""
        return self.budget is None or self.tokens + self.margin <= self.budget

    @property
    def tokens(self) -> int:
        """The tokens that are shown, as counted."""
        return sum(item.tokens for item in self.items if item.included)

    def of(self, tier: Tier) -> tuple[PlanItem, ...]:
        """Return the items of one tier."""
        return tuple(item for item in self.items if item.tier == tier)


_EACH = 12  # turns that are items of their own; all turns before them are one item


def items_of(drawn: BuiltContext, ask: ContextRequest, frame: Frame) -> Iterator[PlanItem]:
    """Yield the items of a built context, tier by tier; `frame` is the one that is shown."""
    scale = _Counting(ask.budget)
    yield from _frame(scale, frame)
    yield from _lead(scale, drawn)
    yield from _note(scale, drawn, tier=3, prefix="Task state ")
    yield from _turns(scale, drawn, ask)
    yield from _cuts(drawn)
    yield from _note(scale, drawn, tier=5, prefix="Memory ")
    yield from _memory_left_out(drawn)
    yield from _artifacts(scale, drawn)
    yield from _needed(scale, drawn)
    yield from _left_out(drawn)


class _Counting:
    """Counts the tokens of parts, as numbers for people."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def frame(self, frame: Frame) -> int:
        return self._tokens(weigh_frame(self._budget, frame))

    def messages(self, messages: Sequence[Message]) -> int:
        total = Weight()
        for each in messages:
            total += self._budget.scale.message(each)
        return self._tokens(total)

    def text(self, text: str) -> int:
        whole = self._budget.scale.message(Message("user", (Text(text),)))
        return max(0, round(whole.tokens - self._budget.scale.message(Message("user")).tokens))

    def _tokens(self, weight: Weight) -> int:
        return round(weight.tokens) + weight.media


def _frame(scale: _Counting, frame: Frame) -> Iterator[PlanItem]:
    whole = scale.frame(frame)
    bare = scale.frame(Frame(system=frame.system))
    yield PlanItem(tier=1, what="instructions", tokens=bare, included=True, why="always shown")
    if whole > bare or frame.tools:
        names = ", ".join(tool.name for tool in frame.tools[:4]) + (", …" if len(frame.tools) > 4 else "")
        what = f"tools ({len(frame.tools)})" if frame.tools else "the answer's schema"
        yield PlanItem(tier=1, what=what, tokens=whole - bare, included=True, why=names or "always shown")


def _lead(scale: _Counting, drawn: BuiltContext) -> Iterator[PlanItem]:
    if drawn.lead is None:
        return
    lines = [line for line in lines_of(drawn.lead) if not line.startswith("Artifacts in use: ")]
    name = f"checkpoint {drawn.checkpoint_digest[:12]}" if drawn.checkpoint_digest else "checkpoint"
    why = {
        "switched": "the backend is new to it",
        "outgrown": "the window is outgrown",
    }.get(drawn.reason, "as for the last step")
    yield PlanItem(
        tier=2,
        what=name,
        tokens=scale.messages((Message("user", (Text("\n".join(lines)),)),)),
        included=True,
        why=why,
        refs=(drawn.checkpoint_digest,) if drawn.checkpoint_digest else (),
    )


def _note(scale: _Counting, drawn: BuiltContext, *, tier: Tier, prefix: str) -> Iterator[PlanItem]:
    first = True
    for line in lines_of(drawn.note):
        if line.startswith(prefix):
            name = line.removeprefix(prefix).partition(" ")[0].rstrip(":")
            header = scale.text(next(iter(lines_of(drawn.note)))) if first and _is_first(drawn, line) else 0
            why = "pinned: shown to every run" if is_pinned(line) else "found for the input"
            yield PlanItem(
                tier=tier,
                what=name,
                tokens=scale.text(line) + header,
                included=True,
                why="as the state says now" if tier == 3 else why,
                refs=(name,),
                text=line.removeprefix(prefix + name).partition(": ")[2],
            )
            first = False


def _memory_left_out(drawn: BuiltContext) -> Iterator[PlanItem]:
    """Yield an item for what the note says is left out of memory."""
    for line in lines_of(drawn.note):
        if line.startswith(MEMORY_LEFT_OUT):
            what, _, why = line.removeprefix(MEMORY_LEFT_OUT).partition("; ")
            yield PlanItem(tier=5, what=what, tokens=0, included=False, why=why)


def _is_first(drawn: BuiltContext, line: str) -> bool:
    return list(lines_of(drawn.note))[1:2] == [line]


def _turns(scale: _Counting, drawn: BuiltContext, ask: ContextRequest) -> Iterator[PlanItem]:
    older = {each.id for each in drawn.older}
    groups = exchanges([each for each in drawn.shown if each.id not in older])
    split = max(0, len(groups) - _EACH)
    if split:
        yield _group(scale, drawn, groups[:split], _why(drawn, ask, groups[split - 1]))
    for group in groups[split:]:
        yield _group(scale, drawn, [group], _why(drawn, ask, group))


def _why(drawn: BuiltContext, ask: ContextRequest, turn: Sequence[MessageRef]) -> str:
    match drawn.reason:
        case "whole":
            return "all of it fits"
        case "carried":
            return "as for the last step"
        case "switched":
            return f"one of the last {ask.limits.turns}" if turn[0].is_earlier else "since the switch"
        case "outgrown":
            return f"one of the last {ask.limits.turns} that fit"


def _group(
    scale: _Counting, drawn: BuiltContext, groups: Sequence[Sequence[MessageRef]], why: str
) -> PlanItem:
    spoken = [each for group in groups for each in group]
    ids = {each.id for each in spoken}
    cuts = [each for each in drawn.cut_texts if each.message in ids]
    if cuts:
        why += (
            f"; {len(cuts)} text{'s' if len(cuts) > 1 else ''} of it are cut: the window has no room for them"
        )
    shown = _shown(drawn, spoken)
    is_left_out = not shown and bool(drawn.omitted)
    return PlanItem(
        tier=4,
        what=_turn_names(spoken),
        tokens=scale.messages(shown),
        included=not is_left_out,
        why="no room for it" if is_left_out else why,
        refs=tuple(each.id for each in spoken) if len(groups) == 1 else (),
    )


def _cuts(drawn: BuiltContext) -> Iterator[PlanItem]:
    """Yield an item for the rest of each text that is shown in part."""
    turns = {each.id: each.turn for each in drawn.shown}
    for cut in drawn.cut_texts:
        yield PlanItem(
            tier=4,
            what=f"the rest of {cut.what} in turn {turns[cut.message]}",
            tokens=0,
            included=False,
            why=f"no room for it: {cut.sizes} are shown",
            refs=(cut.reference,) if cut.reference else (),
        )


def _shown(drawn: BuiltContext, spoken: Sequence[MessageRef]) -> list[Message]:
    messages = drawn.conversation.messages()
    spans = [drawn.spans[each.id] for each in spoken if each.id in drawn.spans]
    return [messages[at] for start, end in spans for at in range(start, end)]


def _turn_names(spoken: Sequence[MessageRef]) -> str:
    first, last = spoken[0].turn, spoken[-1].turn
    return f"turn {first}" if first == last else f"turns {first}–{last}"


def _artifacts(scale: _Counting, drawn: BuiltContext) -> Iterator[PlanItem]:
    for line in lines_of(drawn.lead):
        if line.startswith("Artifacts in use: "):
            references = tuple(line.removeprefix("Artifacts in use: ").split(", "))
            yield PlanItem(
                tier=6,
                what=f"{len(references)} artifact{'s' if len(references) > 1 else ''}",
                tokens=scale.text(line),
                included=True,
                why="by reference",
                refs=references,
            )


def _needed(scale: _Counting, drawn: BuiltContext) -> Iterator[PlanItem]:
    for each in drawn.needed:
        yield _older(each, scale.messages(_shown(drawn, each.spoken)), each.why, included=True)
    for each in drawn.refused:
        yield _older(each, 0, f"{each.why}; no room for it", included=False)


def _older(needed: Needed, tokens: int, why: str, *, included: bool) -> PlanItem:
    return PlanItem(
        tier=7,
        what=_turn_names(needed.spoken) + (", in part" if len(needed.spoken) else ""),
        tokens=tokens,
        included=included,
        why=why,
        refs=tuple(each.id for each in needed.spoken),
    )


def _left_out(drawn: BuiltContext) -> Iterator[PlanItem]:
    """Yield one item for the older turns that are not shown; they are not read, so their tokens are not known."""
    if drawn.first is None:
        return
    older = {each.id for each in drawn.older}
    tail = [each for each in drawn.shown if each.id not in older]
    before = tail[0].turn if tail else drawn.found.turn + 1
    begins_inside = bool(tail) and tail[0].role not in ("user", "system")
    last = before if begins_inside else before - 1
    if last < 1:
        return
    why = "older, and not needed"
    if drawn.reason == "outgrown" or begins_inside or drawn.left_out:
        why = "no room for it"
    what = f"turns 1–{last}" if last > 1 else "turn 1"
    yield PlanItem(tier=7, what=f"{what}, the rest", tokens=0, included=False, why=why)


def count_of(context: Context, budget: Budget) -> tuple[int, int]:
    """Count the tokens of a context; return the count and its margin."""
    total = budget.scale.frame(context)
    for message in context.messages:
        total += budget.scale.message(message)
    tokens = budget.scale.tokens(total, tooled=budget.tooled)
    return tokens.count, tokens.margin
