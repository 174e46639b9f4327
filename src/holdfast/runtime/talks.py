"""Talks: the conversation of a line, kept between steps so that each costs only what is new.

What is kept belongs to one commit and never changes for it.  For a later commit of the same
line the messages between are added; for any other it is read anew.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from threading import Lock

from holdfast.context.conversation import Conversation
from holdfast.engines.contract import Step
from holdfast.history import reader
from holdfast.history.space import Space
from holdfast.model.digest import Digest
from holdfast.model.message import Message
from holdfast.projections import transcript as projection

__all__ = ["Talk", "Talks"]

_KEPT_MAX = 256
_BEHIND_MAX = 64


class Talk:
    """The conversation up to one commit."""

    __slots__ = ("at", "conversation")

    def __init__(self, at: Digest | None, conversation: Conversation) -> None:
        """Hold a conversation that ends at a commit; None is before the first."""
        self.at, self.conversation = at, conversation

    def add(self, message: Message) -> None:
        """Take one more message, which is about to be committed."""
        self.conversation.add(message)


class Talks:
    """The last conversations of a store."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], Talk] = OrderedDict()

    def take(self, space: Space, timeline: str, at: Digest | None) -> Talk:
        """The conversation that ends at `at`, taken out: whoever has it may add to it."""
        with self._lock:
            kept = self._kept.pop((space.name, timeline), None)
        if kept is not None and kept.at == at:
            return kept
        if kept is not None:
            new = _since(space, kept.at, at)
            if new is not None:
                kept.conversation.extend(_said(space, new))
                return Talk(at, kept.conversation)
        conversation = Conversation()
        conversation.extend(entry.words for entry in reader.transcript(space, at) if entry.words)
        return Talk(at, conversation)

    def give(self, space: Space, timeline: str, talk: Talk) -> None:
        """Put it back for the next step."""
        with self._lock:
            self._kept[space.name, timeline] = talk
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)


def _since(space: Space, old: Digest | None, new: Digest | None) -> list[Step] | None:
    """The commits after `old` up to `new`, oldest first; None if `old` is not just behind it."""
    found: list[Step] = []
    for step in islice(reader.recent(space, new), _BEHIND_MAX):
        if step.digest == old:
            return found[::-1]
        found.append(step)
    return found[::-1] if old is None and len(found) < _BEHIND_MAX else None


def _said(space: Space, steps: list[Step]) -> list[Message]:
    """What was said in these commits; what was forgotten is left out."""
    said = [one for step in steps for one in projection.said(step.digest, step.commit, step.changeset)]
    return [entry.words for entry in reader.spoken(space, said) if entry.words]
