"""Talks: the conversation of a line, kept between steps so that each costs only what is new.

What is kept belongs to one commit and never changes for it.  For a later commit of the same
line the messages between are added; for any other it is read anew.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from holdfast.context.conversation import Conversation
from holdfast.engines.contract import Step
from holdfast.history import reader
from holdfast.history.space import Space
from holdfast.model.digest import Digest
from holdfast.model.message import Message

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
                kept.conversation.extend(_said(space, at, new))
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
    for step in reader.steps(space, new, limit=_BEHIND_MAX):
        if step.digest == old:
            return found[::-1]
        found.append(step)
    return None


def _said(space: Space, at: Digest | None, steps: list[Step]) -> list[Message]:
    count = sum(
        1
        for step in steps
        for event in step.changeset.events
        if event.__struct_config__.tag == "message.appended"
    )
    if count == 0:
        return []
    return [entry.words for entry in reader.transcript(space, at, limit=count) if entry.words]
