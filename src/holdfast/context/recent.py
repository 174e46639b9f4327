"""The last turns: which of them are shown within a budget, and what is cut for want of room.

The last turn comes first.  Of the turns before it as many are shown as fit, without a gap.  A turn that is too
large by itself is shown by its input and its last messages, and what is still too large is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from holdfast.context.budget import Budget
from holdfast.context.layout import Laid, Words, lay, longest, shortened
from holdfast.context.needed import Line, by_id
from holdfast.context.trace import Spoken, Trace
from holdfast.model.message import Message
from holdfast.providers.tokens import Weight

__all__ = ["NOTHING", "Chosen", "RecentTurns", "sum_of"]

NOTHING = Weight()
_RECENT_SHARE = 0.75  # of the budget for the last turns: what comes next has to fit, too
_CUT_MIN = 48  # characters that are left of a text at the least

Chosen: TypeAlias = tuple[list[Spoken], list[Spoken], dict[str, int]]
"""Inputs that are shown apart, the last messages without a gap, and how many characters texts of a message keep."""


class RecentTurns:
    """Chooses among the last turns of a line."""

    def __init__(self, words: Words, budget: Budget, found: Trace, line: Line | None) -> None:
        """Choose from what was found of a line."""
        self._words, self._budget, self._found, self._line = words, budget, found, line

    def _apart(self, turn: Sequence[Spoken]) -> list[Spoken]:
        """The input of a turn whose first messages were left out before: it was shown apart, and still is."""
        recipe = self._found.recipe
        if recipe is None or self._line is None or turn[0].role in ("user", "system"):
            return []
        return [
            each
            for each in by_id(self._line, recipe.older)
            if each.turn == turn[0].turn and each.role == "user"
        ]

    def choose(self, groups: Sequence[Sequence[Spoken]], base: Weight) -> Chosen:
        """The same as `_last_turns`, of what they weigh without those that are left out.

        An id that names two calls names the first that is shown, so leaving one out may make another larger.
        """
        while True:
            laid = lay(self._words, [each for group in groups for each in group], known=self._found.known)
            inputs, tail, cut = self._last_turns(groups, laid, base)
            chosen = {each.id for each in (*inputs, *tail)}
            fewer = [group for group in groups if any(each.id in chosen for each in group)]
            if len(fewer) == len(groups):
                return inputs, tail, cut
            groups = fewer

    def _last_turns(self, groups: Sequence[Sequence[Spoken]], laid: Laid, base: Weight) -> Chosen:
        """Of the last turns as many as fit, the last one before all: inputs apart, the rest without a gap, and cuts."""
        if not groups:
            return [], [], {}
        weights = {each.id: self.span(laid, each.id) for group in groups for each in group}
        current = groups[-1]
        apart = self._apart(current)
        before = self._cut_before(apart)
        base = sum_of((self.raw(each, before.get(each.id)) for each in apart), base)
        total = sum_of((weights[each.id] for each in current), base)
        if not self._budget.holds(total, _RECENT_SHARE if apart else 1.0):
            inputs, tail, cut = self._part_of(current, weights, base)
            return [*apart, *inputs], tail, {**before, **cut}
        tail = list(current)
        for group in reversed(groups[:-1]):
            total = sum_of((weights[each.id] for each in group), total)
            if not self._budget.holds(total, _RECENT_SHARE):
                break
            tail[:0] = group
        return apart, tail, before

    def _cut_before(self, spoken: Sequence[Spoken]) -> dict[str, int]:
        """Those of the messages that were shown cut, and how much was left of a text; half of it from here on."""
        cut = self._found.recipe.cut if self._found.recipe is not None else {}
        return {each.id: max(_CUT_MIN, cut[each.id] // 2) for each in spoken if each.id in cut}

    def _part_of(self, turn: Sequence[Spoken], weights: Mapping[str, Weight], base: Weight) -> Chosen:
        """Of a turn that is too large by itself: its input, and its last messages."""
        begins = next((at for at, each in enumerate(turn) if each.role not in ("user", "system")), len(turn))
        inputs, rest = list(turn[:begins]), list(turn[begins:])
        total = sum_of((weights[each.id] for each in inputs), base)
        start = len(rest)
        for at in range(len(rest) - 1, -1, -1):
            total += weights[rest[at].id]
            if rest[at].role == "tool":
                continue  # results alone would belong to nothing
            if start < len(rest) and not self._budget.holds(total, _RECENT_SHARE):
                break
            start = at
        tail = rest[start:]
        if start == 0 or not tail:
            inputs, tail = [], [*inputs, *tail]
        laid = lay(self._words, [*inputs, *tail], known=self._found.known)
        if self._budget.holds(sum_of((self.weight(each) for each in laid.conversation.messages()), base)):
            return inputs, tail, {}
        cut = self._cuts([*inputs, *tail], base)
        if cut is None and len(inputs) > 1:  # many inputs, of which even a little each is too much
            inputs = inputs[-1:]
            cut = self._cuts([*inputs, *tail], base)
        if cut is None and not inputs:
            tail = tail[-1:]
            cut = self._cuts(tail, base)
        return inputs, tail, cut or {}

    def _cuts(self, spoken: Sequence[Spoken], base: Weight) -> dict[str, int] | None:
        """How many characters each text may keep for these messages to fit; None: that would be too few."""
        most = max(_CUT_MIN, 4 * (self._budget.room or 0))
        while self._budget.holds(base):
            cut = {each.id: most for each in spoken}
            laid = lay(self._words, spoken, known=self._found.known, cut=cut)
            total = sum_of((self.weight(each) for each in laid.conversation.messages()), base)
            if self._budget.holds(total):
                return {id: most for id in cut if self._is_longer(spoken, id, most)}
            if most <= _CUT_MIN:
                return None
            most = max(_CUT_MIN, most * 2 // 3)
        return {}  # no cut would help: what stands around the messages is too much by itself

    def _is_longer(self, spoken: Sequence[Spoken], id: str, most: int) -> bool:
        message = self._words.of([each for each in spoken if each.id == id])[0]
        return message is not None and longest(message) > most

    def weight(self, message: Message | None) -> Weight:
        """What a message weighs; nothing where there is no budget."""
        if message is None or self._budget.room is None:
            return NOTHING
        return self._budget.scale.message(message)

    def raw(self, spoken: Spoken, most: int | None = None) -> Weight:
        """What a message of the line weighs by itself; with `most` each of its texts is cut to that many characters."""
        message = self._words.of([spoken])[0]
        return self.weight(message if most is None or message is None else shortened(message, most))

    def span(self, laid: Laid, id: str) -> Weight:
        """What a message of the line came to weighs."""
        start, end = laid.spans.get(id, (0, 0))
        messages = laid.conversation.messages()
        return sum_of((self.weight(messages[at]) for at in range(start, end)), NOTHING)


def sum_of(weights: Iterable[Weight], first: Weight) -> Weight:
    """All of these, and `first`."""
    for each in weights:
        first += each
    return first
