"""Chooses which of the last turns are shown within a budget, and which texts are cut.

The last turn is chosen first.  Of the turns before it as many are shown as fit with brief results, without a gap; then
results are shown whole as far as they fit, the newest first.  A turn that is too large by itself is shown by its input
and its last messages, and texts that are still too large are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from perdure.context.budget import Budget
from perdure.context.history_window import CHARACTERS_A_TOKEN, HistoryWindow, MessageRef
from perdure.context.render.conversation import (
    BRIEF_ARGUMENTS,
    BRIEF_RESULT,
    NO_CUTS,
    Cuts,
    Laid,
    MessageTexts,
    is_short,
    lay,
    longest,
)
from perdure.context.required_messages import LineView, by_id
from perdure.model.message import Message, Text
from perdure.providers.tokens import Weight

__all__ = ["Chosen", "RecentTurns", "sum_of"]

NOTHING = Weight()
_CUT_MIN = 48  # the least characters of a text that is cut
_PART_MIN = 200  # the same in the oldest turn that is shown
_PART_SHARE = 0.75  # of the budget for the last messages of a turn that is too large
_STEPS = 8  # halvings by which the size of a cut is found


class Chosen(msgspec.Struct, frozen=True):
    """Which of the last turns are shown, and how."""

    inputs: Sequence[MessageRef] = ()  # shown separately, before the rest of their turn
    tail: Sequence[MessageRef] = ()  # the last messages, without a gap
    cuts: Cuts = NO_CUTS

    @property
    def spoken(self) -> list[MessageRef]:
        """All shown messages, in order."""
        return [*self.inputs, *self.tail]

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the shown messages."""
        return frozenset(each.id for each in self.spoken)


class RecentTurns:
    """Chooses among the last turns of a timeline."""

    def __init__(
        self,
        words: MessageTexts,
        budget: Budget,
        found: HistoryWindow,
        line: LineView | None,
        reference: Callable[[str], str | None],
    ) -> None:
        """Choose from a window of a timeline; `reference` names the artifact with the result of a call."""
        self._words, self._budget, self._found, self._line = words, budget, found, line
        self._reference = reference
        self._references: dict[str, str | None] = {}
        self._weights: dict[Message, Weight] = {}

    def choose(
        self, groups: Sequence[Sequence[MessageRef]], base: Weight, share: float, *, is_new: bool
    ) -> Chosen:
        """Choose the turns that fit beside `base` within a share of the budget; the last turn is always shown.

        If two calls have the same id, it means the first that is shown, so leaving one out may make another larger.
        `is_new`: the backend is new to the conversation, and shortened results are shown to it whole.
        """
        while True:
            chosen = self._choose(groups, base, share)
            fewer = [group for group in groups if any(each.id in chosen.ids for each in group)]
            if len(fewer) == len(groups):
                return self._expanded(chosen, base, share) if is_new else chosen
            groups = fewer

    def _expanded(self, chosen: Chosen, base: Weight, share: float) -> Chosen:
        """Show shortened results whole from their artifacts, the newest first, while they fit."""
        short = self._short(chosen.spoken)
        if not short:
            return chosen
        whole: dict[str, str] = {}
        for call, (reference, characters) in short.items() if not chosen.cuts.is_any else ():
            more = {**whole, call: reference}
            room = self._budget.room
            is_certainly_larger = room is not None and characters > room * CHARACTERS_A_TOKEN
            if not is_certainly_larger and self._holds(chosen.spoken, base, Cuts(whole=more), share):
                whole = more
        rest = {call: each for call, each in short.items() if call not in whole}
        cuts = msgspec.structs.replace(
            chosen.cuts,
            whole=whole,
            short={call: characters for call, (_, characters) in rest.items()},
            stored={**chosen.cuts.stored, **{call: reference for call, (reference, _) in rest.items()}},
        )
        return msgspec.structs.replace(chosen, cuts=cuts)

    def _short(self, spoken: Sequence[MessageRef]) -> dict[str, tuple[str, int]]:
        """Find the results that were shortened on arrival, newest first: by call, the artifact and its characters."""
        found: dict[str, tuple[str, int]] = {}
        for message in reversed(self._words.of(spoken)):
            for result in reversed(message.tool_results) if message is not None else ():
                reference = self._named(result.call_id) if is_short(result) else None
                text = self._words.artifact_text(reference) if reference is not None else None
                if reference is not None and text is not None:
                    found[result.call_id] = (reference, len(text))
        return found

    def _choose(self, groups: Sequence[Sequence[MessageRef]], base: Weight, share: float) -> Chosen:
        if not groups:
            return Chosen()
        current = groups[-1]
        apart = self._apart(current)
        before = self._cut_before(apart)
        base = sum_of(
            (self.weight(before.apply(each.id, self._said(each), told=False)) for each in apart), base
        )
        every = [each for group in groups for each in group]
        if self._holds(every, base, NO_CUTS, share):
            return Chosen(apart, every, before)
        brief = self._brief(every)
        weights = self._group_weights(groups, brief)
        total = base + weights[-1]
        if not self._budget.holds(total, share if apart else 1.0):
            part = self._part_of(current, base)
            return Chosen([*apart, *part.inputs], part.tail, _joined(before, part.cuts))
        first = len(groups) - 1
        for at in range(len(groups) - 2, -1, -1):
            total += weights[at]
            if not self._budget.holds(total, share):
                break
            first = at
        tail = [each for group in groups[first:] for each in group]
        cuts = self._as_whole_as_fits(tail, base, share if first < len(groups) - 1 else 1.0)
        part = self._with_part_of(groups[first - 1], tail, cuts, base, share) if first else None
        if part is not None:
            tail, cuts = [*groups[first - 1], *tail], part
        return Chosen(apart, tail, _joined(before, cuts))

    def _with_part_of(
        self, turn: Sequence[MessageRef], tail: Sequence[MessageRef], cuts: Cuts, base: Weight, share: float
    ) -> Cuts | None:
        """Return cuts by which one more turn fits before the others; None: too little of it would be left."""
        spoken, stored = [*turn, *tail], {**cuts.stored, **self._brief(turn).stored}

        def cut_to(most: int) -> Cuts:
            texts = {each.id: most for each in turn if longest(self._said(each)) > most}
            return Cuts(texts=texts, results=cuts.results, stored=stored)

        low, high = _PART_MIN, max(longest(self._said(each)) for each in turn)
        if high <= low or not self._holds(spoken, base, cut_to(low), share):
            return None
        for _ in range(_STEPS):
            middle = (low + high) // 2
            low, high = (middle, high) if self._holds(spoken, base, cut_to(middle), share) else (low, middle)
        return cut_to(low)

    def _as_whole_as_fits(self, spoken: Sequence[MessageRef], base: Weight, share: float) -> Cuts:
        """Return the cuts by which messages fit: as few of the oldest results as possible, the last only in part."""
        brief = self._brief(spoken)
        order = [each.id for each in spoken if each.id in brief.results]

        def cut_first(count: int) -> Cuts:
            return _only(brief, order[:count])

        low, high = 0, len(order)  # cutting the first `high` is enough
        while low < high:
            middle = (low + high) // 2
            if self._holds(spoken, base, cut_first(middle), share):
                high = middle
            else:
                low = middle + 1
        cuts = cut_first(low)
        if not low:
            return cuts
        return self._larger(spoken, base, cuts, order[low - 1], share)

    def _larger(self, spoken: Sequence[MessageRef], base: Weight, cuts: Cuts, id: str, share: float) -> Cuts:
        """Show as much as fits of the result that is cut last."""
        message = self._said(next(each for each in spoken if each.id == id))
        low, high = cuts.results[id], longest(message)
        for _ in range(_STEPS):
            middle = (low + high) // 2
            if self._holds(spoken, base, _with_result(cuts, id, middle), share):
                low = middle
            else:
                high = middle
        return _with_result(cuts, id, low)

    def _brief(self, spoken: Sequence[MessageRef]) -> Cuts:
        """Return cuts that shorten each result, and arguments that are told in sentences, to a brief."""
        results: dict[str, int] = {}
        stored: dict[str, str] = {}
        for each, message in zip(spoken, self._words.of(spoken), strict=True):
            if message is None:
                continue
            if each.told and any(len(call.args) > BRIEF_ARGUMENTS for call in message.tool_calls):
                results[each.id] = BRIEF_ARGUMENTS
            for result in message.tool_results:
                texts = (block.text for block in result.content if isinstance(block, Text))
                if any(len(text) > BRIEF_RESULT for text in texts):
                    results[each.id] = BRIEF_RESULT
                    reference = self._named(result.call_id)
                    stored |= {result.call_id: reference} if reference else {}
        return Cuts(results=results, stored=stored)

    def _named(self, call: str) -> str | None:
        if call not in self._references:
            self._references[call] = self._reference(call)
        return self._references[call]

    def _apart(self, turn: Sequence[MessageRef]) -> list[MessageRef]:
        """Return the input of a turn whose first messages were left out before: it is still shown separately."""
        recipe = self._found.recipe
        if recipe is None or self._line is None or turn[0].role in ("user", "system"):
            return []
        return [
            each
            for each in by_id(self._line, recipe.older)
            if each.turn == turn[0].turn and each.role == "user"
        ]

    def _cut_before(self, spoken: Sequence[MessageRef]) -> Cuts:
        """Return cuts that halve the texts of these messages that were cut before."""
        cut = self._found.recipe.cut if self._found.recipe is not None else {}
        return Cuts(texts={each.id: max(_CUT_MIN, cut[each.id] // 2) for each in spoken if each.id in cut})

    def _part_of(self, turn: Sequence[MessageRef], base: Weight) -> Chosen:
        """Choose the input and the last messages of a turn that is too large by itself."""
        brief = self._brief(turn)
        laid = lay(self._words, turn, known=self._found.known, cuts=brief)
        weights = {each.id: self.span(laid, each.id) for each in turn}
        begins = next((at for at, each in enumerate(turn) if each.role not in ("user", "system")), len(turn))
        inputs, rest = list(turn[:begins]), list(turn[begins:])
        total = sum_of((weights[each.id] for each in inputs), base)
        start = len(rest)
        for at in range(len(rest) - 1, -1, -1):
            total += weights[rest[at].id]
            if rest[at].role == "tool":
                continue  # a result is not shown without its call
            if start < len(rest) and not self._budget.holds(total, _PART_SHARE):
                break
            start = at
        tail = rest[start:]
        if start == 0 or not tail:
            inputs, tail = [], [*inputs, *tail]
        if self._holds([*inputs, *tail], base, brief):
            return Chosen(inputs, tail, self._as_whole_as_fits([*inputs, *tail], base, 1.0))
        cuts = self._cuts([*inputs, *tail], base)
        if (
            cuts is None and len(inputs) > 1
        ):  # there are so many inputs that even the briefest cuts do not fit
            inputs = inputs[-1:]
            cuts = self._cuts([*inputs, *tail], base)
        if cuts is None and not inputs:
            tail = tail[-1:]
            cuts = self._cuts(tail, base)
        return Chosen(inputs, tail, cuts or NO_CUTS)

    def _cuts(self, spoken: Sequence[MessageRef], base: Weight) -> Cuts | None:
        """Return how many characters of each text are shown for these messages to fit; None: too few."""
        most = max(_CUT_MIN, 4 * (self._budget.room or 0))
        stored = self._brief(spoken).stored
        while self._budget.holds(base):
            texts = {each.id: most for each in spoken if longest(self._said(each)) > most}
            cuts = Cuts(texts=texts, stored=stored)
            if self._holds(spoken, base, cuts):
                return cuts
            if most <= _CUT_MIN:
                return None
            most = max(_CUT_MIN, most * 2 // 3)
        return NO_CUTS  # no cut would help: the frame alone is too large

    # ---- weights

    def _holds(self, spoken: Sequence[MessageRef], base: Weight, cuts: Cuts, share: float = 1.0) -> bool:
        laid = lay(self._words, spoken, known=self._found.known, cuts=cuts)
        messages = laid.conversation.messages()
        room = self._budget.room
        if room is not None and sum(map(longest, messages)) > room * CHARACTERS_A_TOKEN:
            return False  # certainly too large, without counting tokens
        return self._budget.holds(sum_of(map(self.weight, messages), base), share)

    def _group_weights(self, groups: Sequence[Sequence[MessageRef]], cuts: Cuts) -> list[Weight]:
        every = [each for group in groups for each in group]
        laid = lay(self._words, every, known=self._found.known, cuts=cuts)
        return [sum_of((self.span(laid, each.id) for each in group), NOTHING) for group in groups]

    def _said(self, spoken: MessageRef) -> Message:
        return self._words.of([spoken])[0] or Message(spoken.said.event.role)

    def weight(self, message: Message | None) -> Weight:
        """Return the tokens of a message; nothing if there is no budget."""
        if message is None or self._budget.room is None:
            return NOTHING
        found = self._weights.get(message)
        if found is None:
            found = self._weights[message] = self._budget.scale.message(message)
        return found

    def raw(self, spoken: MessageRef) -> Weight:
        """Return the tokens of a message of the timeline by itself."""
        return self.weight(self._words.of([spoken])[0])

    def span(self, laid: Laid, id: str) -> Weight:
        """Return the tokens of a message of the timeline as it is laid out."""
        start, end = laid.spans.get(id, (0, 0))
        messages = laid.conversation.messages()
        return sum_of((self.weight(messages[at]) for at in range(start, end)), NOTHING)


def sum_of(weights: Iterable[Weight], first: Weight) -> Weight:
    """Return the sum of these weights and `first`."""
    for each in weights:
        first += each
    return first


def _joined(one: Cuts, other: Cuts) -> Cuts:
    return Cuts(
        texts={**one.texts, **other.texts},
        results={**one.results, **other.results},
        stored={**one.stored, **other.stored},
    )


def _only(cuts: Cuts, ids: Sequence[str]) -> Cuts:
    return Cuts(results={id: cuts.results[id] for id in ids}, stored=cuts.stored)


def _with_result(cuts: Cuts, id: str, most: int) -> Cuts:
    results: Mapping[str, int] = {**cuts.results, id: most}
    return Cuts(results=results, stored=cuts.stored)
