"""Builds a context: chooses what is shown of a conversation, in order of importance, within a budget.

    1 system words and tools      always
    2 the checkpoint              after a switch, or once the conversation has outgrown the window
    3 the task's state            where there is any
    4 the last turns              all of them while the timeline was never switched and they fit
    5 memory                      what is pinned, and what was found for the current input
    6 artifacts                   by reference, with the checkpoint
    7 older transcript            only what is needed, by the rules of required_messages.py

The context of the last step is shown again, with the messages since, as long as that fits: so the prefix stays in the
backend's cache, and the recipe stays the same.

The losses of a context are what a backend is not shown as it was said: calls of another backend, which are told in
words, with the vendor's metadata beside them, and texts that are cut.  They are reported here, because the adapter
gets a context without them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from perdure.context import required_messages as needing
from perdure.context.budget import Budget, frame_size, size_of, weigh_frame
from perdure.context.history_window import HistoryWindow, MessageRef, backend_of_message, exchanges, trace
from perdure.context.limits import ContextLimits
from perdure.context.recent_turns import Chosen, RecentTurns, sum_of
from perdure.context.render.conversation import (
    NO_CUTS,
    Conversation,
    Cuts,
    CutText,
    Laid,
    MessageTexts,
    Outcomes,
    cut_texts,
    cuts_in,
    has_short_results,
    lay,
    loss_of,
)
from perdure.context.render.notes import DETAILS, SYSTEM, Detail, RecalledItem, lead_note, turn_note
from perdure.context.required_messages import Needed, by_id
from perdure.errors import Forgotten
from perdure.history.space import Space
from perdure.model.call import UNCLEAR, CallRecord
from perdure.model.canonical import Json
from perdure.model.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from perdure.model.context import ToolSpec
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import MessageAppended
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, decode_message
from perdure.model.recipe import Frame, Recipe
from perdure.providers.contract import Loss, Rendered
from perdure.providers.tokens import Weight
from perdure.providers.wire.fields.unsent import unsent

__all__ = ["ContextRequest", "BuiltContext", "draw", "fitting_note", "framed"]


def context_losses(
    messages: Sequence[tuple[str, Message]], cuts: Cuts, calls_in_words: Sequence[str]
) -> tuple[Loss, ...]:
    """Return what of these messages, each given with its id, is told in words or cut."""
    return tuple(_losses(messages, cuts, frozenset(calls_in_words)))


def omission_loss(message: Message) -> Loss:
    """Return the loss for a message of the last turn that is not shown, with a count of its parts."""
    blocks = [*message.content, *(block for each in message.tool_results for block in each.content)]
    counts = {
        "image": sum(isinstance(block, Image) for block in blocks),
        "file": sum(isinstance(block, File) for block in blocks),
        "tool call": len(message.tool_calls),
        "tool result": len(message.tool_results),
    }
    held = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    what = f"{message.role} message{' with ' if held else ''}{', '.join(held)}"
    why = "the window has no room for all of the last turn; it stays in the history"
    return Loss(kind="dropped", where="messages", what=what, why=why)


def _losses(messages: Sequence[tuple[str, Message]], cuts: Cuts, told: frozenset[str]) -> Iterator[Loss]:
    bare: list[Message] = []
    for at, (id, message) in enumerate(messages):
        count = sum(call.id in told for call in message.tool_calls)
        if count:
            yield Loss(
                kind="converted",
                where=f"messages[{at}].toolCalls",
                what=f"{count} tool call{'s' if count > 1 else ''}",
                why="another backend made it; it is told in words with what came of it",
            )
        if id in cuts.texts and any(isinstance(block, ReasoningSummary) for block in message.content):
            why = "the message is cut, and reasoning goes back only with the whole of it"
            yield Loss(kind="dropped", where=f"messages[{at}].content", what="reasoning", why=why)
        is_bare = message.vendor_metadata is not None and (count or id in cuts.texts)
        bare.append(message if is_bare else Message(message.role))
    yield from unsent(bare, Rendered(body={}), vendor="", endpoint=None)
    yield from map(loss_of, cut_texts(messages, cuts))


Reason: TypeAlias = Literal["whole", "carried", "switched", "outgrown"]

# Shares of the budget for the last turns; the second if needed messages of older turns do not fit.
_SHARES = (0.95, 0.8)
_SHARES_LATER = (0.9, 0.75)  # within a run, where steps that follow should begin with the same messages
_OLDER_SHARE = 0.97
_LEAD_SHARE, _LEAD_SHARE_MAX = 0.4, 0.6
_WEIGHED_MIN = 3  # characters of a long note that are weighed first, for each token of its share


class ContextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a context is built for, and from."""

    frame: Frame
    budget: Budget
    limits: ContextLimits
    derive: Callable[[], Checkpoint]  # derives a checkpoint; called only if it is needed
    where: Callable[[str], str | None]  # from a call to the label of the commit that requested it
    reference: Callable[[str], str | None] = lambda _: None  # from a call to the artifact of its result
    reader: ToolSpec | None = None  # reads artifacts, offered if a result is cut; None: it cannot be offered
    fresh: bool = False  # True: the backend is new to the conversation, as after a switch
    # True for a backend whose earlier calls are shown as call and result.
    is_native: Callable[[str | None], bool] = lambda _: False
    harmless: frozenset[str] = frozenset()  # tools that make no external write
    # From a call whose outcome was unknown to its record, if it is settled now.
    settled: Callable[[str], CallRecord | None] = lambda _: None
    task: Mapping[str, Json] = {}
    recalled: Sequence[RecalledItem] = ()  # the most important first: the last are left out first
    pins_left_out: int = 0  # pinned items that the limit of the agent leaves out of these


class BuiltContext(msgspec.Struct, kw_only=True):
    """What is shown, and how it was chosen."""

    reason: Reason
    conversation: Conversation
    found: HistoryWindow
    shown: list[MessageRef]  # oldest first
    first: str | None = None  # the first of the messages that are all shown
    older: tuple[MessageRef, ...] = ()  # single messages before that
    needed: tuple[Needed, ...] = ()  # why these are shown
    refused: tuple[Needed, ...] = ()  # needed messages that did not fit
    cuts: Cuts = NO_CUTS
    lead: Message | None = None
    lead_digest: Digest | None = None  # of the lead, if it is stored already
    before_lead: int = 0  # messages before it: words of the system
    note: Message | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_digest: Digest | None = None
    switched: Digest | None = None
    unclear: Outcomes = {}  # of the calls that are shown
    earlier: int = 0
    left_out: int = 0  # recent turns that did not fit
    omitted: tuple[Message, ...] = ()  # messages of the last turn that did not fit
    spans: Mapping[str, tuple[int, int]] = {}
    history: tuple[Message, ...] = ()

    @property
    def said(self) -> list[tuple[str, Message]]:
        """The shown messages as they were said, each with its id."""
        ids = [each.id for each in self.shown if each.id in self.spans]
        return list(zip(ids, self.history, strict=True))

    @property
    def cut_texts(self) -> tuple[CutText, ...]:
        """What is shown in part."""
        return tuple(cut_texts(self.said, self.cuts)) if self.cuts.is_any else ()

    @property
    def has_cut_results(self) -> bool:
        """True if a result is shown in part and the tool that reads artifacts can read the whole."""
        messages = self.conversation.messages()
        return bool(self.cuts.stored) or any(map(has_short_results, messages))

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The calls told in words, the cuts, and the messages left out of the last turn."""
        in_words = self.conversation.calls_in_words
        found = context_losses(self.said, self.cuts, in_words) if in_words or self.cuts.is_any else ()
        return (*found, *map(omission_loss, self.omitted))

    @property
    def native(self) -> tuple[str, ...]:
        """The messages before the last switch whose calls are shown as call and result."""
        return tuple(each.id for each in self.shown if each.is_native)

    @property
    def harmless(self) -> tuple[str, ...]:
        """The tools whose imported calls are shown as calls without external writes."""
        return tuple(sorted(self.conversation.harmless))

    @property
    def calls_native(self) -> tuple[str, ...]:
        """The calls of these messages."""
        messages = self.conversation.messages()
        spans = [self.spans[id] for id in self.native if id in self.spans]
        places = (at for start, end in spans for at in range(start, end))
        return tuple(call.id for at in places for call in messages[at].tool_calls)


def draw(space: Space, at: Digest | None, ask: ContextRequest) -> BuiltContext:
    """Build the context of the timeline that ends at `at`; nothing is written."""
    turns, room = ask.limits.turns, ask.budget.room
    found = trace(space, at, turns=turns, room=room, fresh=ask.fresh, is_native=ask.is_native)
    builder = _ContextBuilder(space, at, ask, found)
    return builder.unchanged() or builder.rebuilt()


def framed(frame: Frame, *, notes: bool, reader: ToolSpec | None = None) -> Frame:
    """Return the frame with the system words about notes, if there are any, and the tool that reads artifacts, if any."""
    if notes:
        frame = msgspec.structs.replace(frame, system=f"{frame.system}\n\n{SYSTEM}".strip())
    return frame if reader is None else msgspec.structs.replace(frame, tools=(*frame.tools, reader))


def fitting_note(
    budget: Budget, task: Mapping[str, Json], recalled: Sequence[RecalledItem], pins_left_out: int = 0
) -> tuple[Message | None, Sequence[RecalledItem]]:
    """Return the note before the current input, and the items of memory in it.

    It has as much detail as its share of the budget allows, and where that is too little, the first items only.
    `pins_left_out` are pinned items that the limit of the agent leaves out.
    """
    whole = len(recalled)

    def with_items(many: int, detail: Detail) -> Message | None:
        left_out = _left_out(recalled, many, pins_left_out)
        return turn_note(task, recalled[:many], detail=detail, left_out=left_out)

    def fits(note: Message | None) -> bool:
        if note is None or budget.certainly_holds(6 * size_of((note,))):
            return True
        return budget.holds(budget.scale.message(note), _LEAD_SHARE / 2)

    for detail in DETAILS:
        note = with_items(whole, detail)
        if fits(note):
            return note, recalled
    most = bisect_left(range(whole), True, key=lambda many: not fits(with_items(many, DETAILS[-1]))) - 1
    most = min(whole, max(1, most))
    return with_items(most, DETAILS[-1]), recalled[:most]


def _left_out(recalled: Sequence[RecalledItem], shown: int, pins_left_out: int) -> Iterator[str]:
    """Yield what of memory is left out if only so many items are shown, and why."""
    if pins_left_out:
        yield f"{_items(pins_left_out, 'pinned item')}, the oldest; the limit is {_items(len(recalled), 'item')}"
    pins = sum(each.pinned for each in recalled[shown:])
    if pins:
        yield f"{_items(pins, 'pinned item')}, the oldest; no room for it all"
    if found := len(recalled) - shown - pins:
        yield f"{_items(found, 'item')} that match{'es' if found == 1 else ''} the input; no room for it all"


def _items(many: int, name: str) -> str:
    return f"{many:,} {name}{'' if many == 1 else 's'}"


class _Picked(msgspec.Struct, frozen=True):
    """The last turns that are shown, and the note for which tokens were reserved."""

    detail: Detail
    lead: Message
    chosen: Chosen


class _ContextBuilder:
    """Builds one context."""

    def __init__(self, space: Space, at: Digest | None, ask: ContextRequest, found: HistoryWindow) -> None:
        self._space, self._at, self._ask, self._found = space, at, ask, found
        self._budget = ask.budget
        self._words = MessageTexts(space, self._outcomes)
        self._note, _ = fitting_note(ask.budget, ask.task, ask.recalled, ask.pins_left_out)
        self._outside: Weight | None = None
        self._line = None
        if at is not None:
            self._line = needing.line(
                space, at, found.switched, fresh=ask.fresh, is_native=self._is_shown_natively
            )
        self._turns = RecentTurns(self._words, ask.budget, found, self._line, ask.reference)
        self._new_checkpoint: tuple[Checkpoint, Digest] | None = None  # once it is derived
        self._leads: dict[tuple[Reason, Detail], tuple[Checkpoint, Message]] = {}  # notes with all calls
        self._total: int | None = None  # how often a model has answered on the timeline

    def _is_shown_natively(self, event: MessageAppended) -> bool:
        recipe = self._found.recipe
        if recipe is not None:
            return event.id in recipe.native
        maker = backend_of_message(event)
        return maker is not None and self._ask.is_native(maker)

    # ---- as for the last step

    def unchanged(self) -> BuiltContext | None:
        """Show everything, or the last step's context with the messages since; None if that is impossible or too much."""
        if self._found.recipe is not None:
            return self._carried()
        if self._found.switch is not None or self._ask.fresh or not self._found.is_whole:
            return None
        laid = lay(self._words, self._found.spoken)
        if not self._fits(laid):
            return None
        return self._drawn("whole", laid, self._found.spoken)

    def _carried(self) -> BuiltContext | None:
        recipe, found = self._found.recipe, self._found
        assert recipe is not None
        if recipe.lead is not None and self._is_outdated(recipe):
            return None
        lead = decode_message(self._space.body(recipe.lead)) if recipe.lead is not None else None
        older = tuple(by_id(self._line, recipe.older)) if self._line and recipe.older else ()
        shown = [*older, *found.spoken]
        cuts = cuts_in(recipe)
        laid = lay(self._words, shown, lead=lead, known=found.known, cuts=cuts, harmless=recipe.harmless)
        self._total = recipe.earlier + laid.conversation.spoken
        if not self._fits(laid):
            return None
        is_whole = recipe.first is None and lead is None and recipe.switched is None
        drawn = self._drawn("whole" if is_whole else "carried", laid, shown)
        drawn.first, drawn.older, drawn.cuts = recipe.first, older, cuts
        drawn.lead, drawn.lead_digest, drawn.before_lead = lead, recipe.lead, laid.before_lead
        drawn.checkpoint_digest, drawn.earlier = recipe.checkpoint, recipe.earlier
        in_results = {call for each in shown for call in each.unclear}
        in_lead = [call for call in _left(recipe.unclear) if call not in in_results]
        drawn.unclear = {**dict.fromkeys(in_lead), **drawn.unclear}
        if older:
            drawn.needed = (Needed(older, "shown since it was needed"),)
        return drawn

    def _fits(self, laid: Laid) -> bool:
        messages = laid.conversation.messages()
        size = size_of(messages) + frame_size(self._ask.frame) + (size_of((self._note,)) if self._note else 0)
        if self._budget.certainly_holds(size):
            return True
        return self._budget.holds(sum_of((self._turns.weight(each) for each in messages), self._around()))

    # ---- chosen again

    def rebuilt(self) -> BuiltContext:
        """Show the checkpoint, the last turns, and the needed messages of older ones."""
        first, second = _SHARES if self._is_switched else _SHARES_LATER
        drawn = self._rebuilt(first)
        if drawn.has_cut_results and self._ask.reader is not None:
            self._outside = self._weigh_around(
                self._ask.reader
            )  # the tool is offered, and needs tokens itself
            drawn = self._rebuilt(first)
        return self._rebuilt(second) if drawn.refused else drawn

    @property
    def _is_switched(self) -> bool:
        return self._found.switch is not None or self._ask.fresh

    def _rebuilt(self, share: float) -> BuiltContext:
        """Choose with the last turns in a share of the budget."""
        reason: Reason = "switched" if self._is_switched else "outgrown"
        checkpoint, digest = self._checkpoint()
        groups = self._recent()
        recent = [each for group in groups for each in group]
        picked = self._picked(groups, checkpoint, reason, share)
        if reason == "switched" and self._is_unknown(recent, picked.chosen.ids):
            reason, (checkpoint, digest) = "outgrown", self._derived()
            picked = self._picked(groups, checkpoint, reason, share)
        chosen = picked.chosen
        base = self._around() + self._turns.weight(picked.lead)
        lead: Message | None = self._lead_beside(checkpoint, reason, picked)
        is_all = self._found.is_whole and len(chosen.ids) == len(self._found.spoken)
        if reason == "outgrown" and is_all and not any(each.is_native for each in recent):
            lead, base = (
                None,
                self._around(),
            )  # texts are cut but no message is left out: no summary is needed
            chosen = self._turns.choose(groups, base, share, is_new=False)
        harmless = self._ask.harmless
        laid = lay(self._words, chosen.spoken, known=self._found.known, cuts=chosen.cuts, harmless=harmless)
        older, kept, refused = self._older(checkpoint, chosen, base, laid)
        shown = [*older, *chosen.tail]
        final = lay(
            self._words,
            shown,
            lead=lead,
            known=self._found.known,
            cuts=chosen.cuts,
            harmless=harmless,
        )
        drawn = self._drawn(reason, final, shown)
        drawn.first = self._first(chosen.tail)
        drawn.left_out = sum(1 for group in groups if all(each.id not in chosen.ids for each in group))
        drawn.omitted = self._omitted(groups[-1], final) if groups else ()
        drawn.older, drawn.needed, drawn.refused = tuple(older), kept, refused
        drawn.cuts = chosen.cuts.used(drawn.said)
        if lead is not None:
            drawn.lead, drawn.checkpoint, drawn.checkpoint_digest = lead, checkpoint, digest
            drawn.before_lead = final.before_lead
            drawn.unclear = {**_unclear_of(checkpoint), **drawn.unclear}
        drawn.earlier = max(0, self._spoken() - final.conversation.spoken)
        return drawn

    def _omitted(self, turn: Sequence[MessageRef], laid: Laid) -> tuple[Message, ...]:
        """Return the messages of a turn that are not shown: left out, or results of calls that are left out."""
        said = [(each, message) for each, message in zip(turn, self._words.of(turn), strict=True) if message]
        left_out = self._calls_of([each for each in turn if each.id not in laid.spans])
        return tuple(
            message
            for each, message in said
            if each.id not in laid.spans or not left_out.isdisjoint(r.call_id for r in message.tool_results)
        )

    def _picked(
        self, groups: Sequence[Sequence[MessageRef]], checkpoint: Checkpoint, reason: Reason, share: float
    ) -> _Picked:
        """Choose the last turns that fit beside a note with all of the checkpoint."""
        detail = self._detail(checkpoint, reason)
        lead = self._whole_lead(checkpoint, reason, detail)
        base = self._around() + self._turns.weight(lead)
        chosen = self._turns.choose(groups, base, share, is_new=reason == "switched")
        return _Picked(detail, lead, chosen)

    def _lead_beside(self, checkpoint: Checkpoint, reason: Reason, picked: _Picked) -> Message:
        """Return the note without the calls that are shown anyway; it has no more tokens than the picked note."""
        spoken = picked.chosen.spoken
        written = {each.call for each in checkpoint.calls if each.is_written}
        pairs = self._calls_of([each for each in spoken if each.is_native])
        # A call with its result does not say that it must not be repeated; the note does.
        shown = self._calls_of(spoken, picked.chosen.cuts) - (pairs & written)
        is_all = self._found.is_whole and len(picked.chosen.ids) == len(self._found.spoken)
        most = self._turns.weight(picked.lead).tokens
        for detail in DETAILS[DETAILS.index(picked.detail) :]:
            note = self._lead(checkpoint, reason, shown, detail, is_all=is_all)
            if self._turns.weight(note).tokens <= most:
                return note
        return picked.lead

    def _is_unknown(self, recent: Sequence[MessageRef], chosen: Collection[str]) -> bool:
        """True if a message since the switch is left out, which the checkpoint of the switch does not cover."""
        return not self._ask.fresh and any(not each.is_earlier and each.id not in chosen for each in recent)

    def _checkpoint(self) -> tuple[Checkpoint, Digest]:
        switch = self._found.switch
        if switch is None or switch.checkpoint is None:
            return self._derived()
        stored = decode_checkpoint(self._space.body(switch.checkpoint))
        if not any(self._ask.settled(call) for call in _unclear_of(stored)):
            return stored, switch.checkpoint
        derived = msgspec.structs.replace(self._derived()[0], from_backend=stored.from_backend)
        return derived, digest_of(Kind.CHECKPOINT, encode_checkpoint(derived))

    def _derived(self) -> tuple[Checkpoint, Digest]:
        if self._new_checkpoint is None:
            derived = self._ask.derive()
            self._new_checkpoint = derived, digest_of(Kind.CHECKPOINT, encode_checkpoint(derived))
        return self._new_checkpoint

    def _recent(self) -> list[list[MessageRef]]:
        """Return the turns that may be shown: after a switch the last ones before it and all since; else the last."""
        groups = exchanges(self._found.spoken)
        if len(groups) > 1 and not self._found.is_whole and groups[0][0].role not in ("user", "system"):
            groups = groups[1:]  # the rest of a turn whose beginning is not shown
        if self._found.switch is not None and not self._ask.fresh:
            return groups
        return groups[-self._ask.limits.turns :]

    # ---- tier 7

    def _older(
        self, checkpoint: Checkpoint, chosen: Chosen, base: Weight, laid: Laid
    ) -> tuple[list[MessageRef], tuple[Needed, ...], tuple[Needed, ...]]:
        """Choose the older messages, in order; return them, the reasons, and the needed ones that do not fit."""
        inputs = chosen.inputs
        taken = {each.id: each for each in inputs}
        kept: list[Needed] = [Needed(tuple(inputs), "the input of the current turn")] if inputs else []
        refused: list[Needed] = []
        total = sum_of((self._turns.span(laid, each.id) for each in chosen.spoken), base)
        in_tail = {each.id for each in chosen.tail}
        for needed in self._needed(checkpoint, chosen.spoken):
            new = [each for each in needed.spoken if each.id not in taken and each.id not in in_tail]
            if not new:
                continue
            more = sum_of((self._turns.raw(each) for each in new), total)
            if self._budget.holds(more, _OLDER_SHARE):
                total = more
                taken |= {each.id: each for each in new}
                kept.append(Needed(tuple(new), needed.why))
            else:
                refused.append(Needed(tuple(new), needed.why))
        return sorted(taken.values(), key=lambda each: each.place), tuple(kept), tuple(refused)

    def _needed(self, checkpoint: Checkpoint, shown: Sequence[MessageRef]) -> Iterator[Needed]:
        if self._line is None or (self._found.is_whole and len(shown) == len(self._found.spoken)):
            return
        yield needing.opening(self._line)
        calls = self._missing_calls(checkpoint, shown)
        yield from needing.needed_calls(self._line, self._words, calls, self._ask.where)
        if self._ask.task:
            yield from needing.needed_by_task(self._line, self._ask.task)

    def _missing_calls(
        self, checkpoint: Checkpoint, shown: Sequence[MessageRef]
    ) -> Iterator[tuple[str, str]]:
        """Yield the calls that have to be shown and are not, with the reason."""
        asked = self._calls_of(shown)
        for each in checkpoint.pending_approvals:
            if each.call not in asked:
                yield each.call, f"the call to {each.tool} waits for approval"
        for message in self._words.of(shown):
            for result in message.tool_results if message is not None else ():
                if result.call_id not in asked:
                    yield result.call_id, "its result came later, among what is shown"

    # ---- helpers

    def _around(self) -> Weight:
        """Return the tokens around the conversation."""
        if self._outside is None:
            self._outside = self._weigh_around(None)
        return self._outside

    def _weigh_around(self, reader: ToolSpec | None) -> Weight:
        frame = framed(self._ask.frame, notes=True, reader=reader)
        return weigh_frame(self._budget, frame) + self._turns.weight(self._note)

    def _detail(self, checkpoint: Checkpoint, reason: Reason) -> Detail:
        """Choose the detail of the checkpoint's note by its share of the budget.

        The share is larger if otherwise not every external write could be named.
        """
        leads: list[Message] = []
        weights: list[Weight] = []
        for detail in DETAILS:
            leads.append(self._whole_lead(checkpoint, reason, detail))
            weights.append(self._weight_or_less(leads[-1]))
            if detail is not DETAILS[-1] and self._budget.holds(self._around() + weights[-1], _LEAD_SHARE):
                return detail
        for detail, weight in zip(DETAILS[:-1], weights, strict=False):
            if self._budget.holds(self._around() + weight, _LEAD_SHARE_MAX):
                return detail
        least = min(range(len(DETAILS)), key=lambda at: weights[at].tokens)
        if weights[least] != self._turns.weight(leads[least]):  # only its beginning was weighed
            least = min(range(len(DETAILS)), key=lambda at: self._turns.weight(leads[at]).tokens)
        return DETAILS[least]

    def _weight_or_less(self, lead: Message) -> Weight:
        """Return the weight of a note, or that of its beginning if that alone is over the largest share of the budget."""
        room, text = self._budget.room, lead.text
        begin = text if room is None else text[: int(_WEIGHED_MIN * room * _LEAD_SHARE_MAX)]
        if len(begin) < len(text):
            weight = self._turns.weight(Message(lead.role, (Text(begin),)))
            if not self._budget.holds(self._around() + weight, _LEAD_SHARE_MAX):
                return weight
        return self._turns.weight(lead)

    def _whole_lead(self, checkpoint: Checkpoint, reason: Reason, detail: Detail) -> Message:
        """Return the note with all calls, which is written once: its weight is needed for each share of the budget."""
        held = self._leads.get((reason, detail))
        if held is None or held[0] is not checkpoint:
            held = checkpoint, self._lead(checkpoint, reason, (), detail)
            self._leads[reason, detail] = held
        return held[1]

    def _lead(
        self,
        checkpoint: Checkpoint,
        reason: Reason,
        shown: Collection[str],
        detail: Detail,
        *,
        is_all: bool = False,
    ) -> Message:
        turn = self._space.step(checkpoint.commit).turn_number if checkpoint.commit else 0
        why = _introduction(checkpoint, reason, turn, is_all=is_all)
        return lead_note(checkpoint, why, detail=detail, shown=shown, harmless=self._ask.harmless)

    def _first(self, tail: Sequence[MessageRef]) -> str | None:
        if not tail:
            return None
        is_all = self._found.is_whole and tail[0].id == self._found.spoken[0].id
        return None if is_all else tail[0].id

    def _calls_of(self, spoken: Sequence[MessageRef], cuts: Cuts = NO_CUTS) -> frozenset[str]:
        """Return the calls that messages request; with `cuts` only those whose arguments are shown whole."""
        found: set[str] = set()
        for each, message in zip(spoken, self._words.of(spoken), strict=True):
            most = cuts.arguments_max(each.id, told=each.told)
            calls = message.tool_calls if message is not None else ()
            found |= {call.id for call in calls if most is None or len(call.args) <= most}
        return frozenset(found)

    def _spoken(self) -> int:
        """Return how often a model has answered on the timeline, as far as is known."""
        if self._total is not None:
            return self._total
        return sum(1 for each in self._found.spoken if each.role == "assistant")

    def _drawn(self, reason: Reason, laid: Laid, shown: list[MessageRef]) -> BuiltContext:
        return BuiltContext(
            reason=reason,
            conversation=laid.conversation,
            found=self._found,
            shown=shown,
            note=self._note,
            switched=self._found.switched,
            unclear={call: one for each in shown for call, one in self._words.outcomes(each).items()},
            spans=laid.spans,
            history=laid.history,
        )

    # ---- calls whose outcome was unknown

    def _outcomes(self, each: MessageRef) -> Outcomes:
        """Return what is known now of the unclear calls of a message; a result that was forgotten is left out."""
        found: dict[str, Digest | None] = {}
        for call in each.unclear:
            record = self._ask.settled(call)
            if record is None:
                found[call] = None
            elif record.preview is not None and record.result_label in ("", each.id):
                with suppress(Forgotten):
                    self._space.body(record.preview)
                    found[call] = record.preview
        return found

    def _is_outdated(self, recipe: Recipe) -> bool:
        """True if a call was settled since of which the leading note says that its outcome is unknown."""
        return any(self._ask.settled(call) for call in _left(recipe.unclear))


def _left(outcomes: Outcomes) -> list[str]:
    """Return the calls whose outcome is still unknown."""
    return [call for call, settled in outcomes.items() if settled is None]


def _unclear_of(checkpoint: Checkpoint) -> Outcomes:
    """Return the calls of a checkpoint whose outcome was unknown."""
    return {each.call: None for each in checkpoint.calls if each.state in UNCLEAR and each.outcome is None}


def _introduction(checkpoint: Checkpoint, reason: Reason, turn: int, *, is_all: bool) -> str:
    if reason == "outgrown":
        return f"It is too long to be shown whole. This is what it had come to by turn {turn}."
    by = f" by {checkpoint.from_backend}" if checkpoint.from_backend else ""
    older = "" if is_all else " Older turns are not shown."
    return f"It was handed over{by} after turn {turn}.{older}"
