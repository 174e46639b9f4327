"""Finds the messages that are needed of the older transcript.  There is a rule for each reason, and no other reason.

A message that the line has taken back is not among them, whatever refers to it.

a call that is open                 the message that asked for it, its turn's input, and what is known of it
a result that came later            the same, where the result is among the messages that are shown
the task says `turn:n`              that turn
the task says `message:<id>`        that message
the conversation's own system words at its beginning
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from perdure.context.history_window import MessageRef, spoken_in
from perdure.context.render.conversation import MessageTexts
from perdure.engines.contract import Step
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.canonical import Json
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended

__all__ = ["LineView", "Needed", "by_id", "line", "needed_by_task", "needed_calls", "opening"]

_STEPS_MAX = 400  # commits of one turn that are looked at
_FIRST_STEPS = 4  # commits at the beginning in which system words are looked for
_MENTIONS_MAX = 16
_ANSWERS_MAX = 64
_TURN = re.compile(r"\bturn:(\d{1,9})\b")
_MESSAGE = re.compile(r"\bmessage:([^\s\"',;)\]}]{1,200})")


class Needed(msgspec.Struct, frozen=True):
    """Messages from before those that are shown, and why they are needed."""

    spoken: tuple[MessageRef, ...]  # oldest first
    why: str


class LineView(msgspec.Struct, frozen=True):
    """A timeline up to a commit: which of its commits are before the last switch, and whose calls are shown as pairs."""

    space: Space
    at: Digest
    earlier_until: int  # depth
    is_native: Callable[[MessageAppended], bool]

    def of(self, step: Step) -> list[MessageRef]:
        """Return the messages of one commit that were not taken back."""
        return self.left(self.said(step))

    def said(self, step: Step) -> list[MessageRef]:
        """Return the messages of one commit, also those that were taken back."""
        is_earlier = step.place.depth <= self.earlier_until
        return list(spoken_in(step, is_earlier=is_earlier, is_native=self.is_native))

    def left(self, spoken: Sequence[MessageRef]) -> list[MessageRef]:
        """Return the messages that were not taken back."""
        said = [(each.id, each.said.digest) for each in spoken]
        gone = reader.retracted(self.space, said, self.at)
        return [each for each in spoken if each.id not in gone]

    def named(self, label: str) -> Iterator[Step]:
        """Yield the commits on this timeline that a message or run names."""
        for digest in self.space.engine.labelled(self.space.name, label):
            if reader.is_ancestor(self.space, digest, self.at):
                yield self.space.step(digest)

    def turn(self, number: int) -> list[MessageRef]:
        """Read the messages of the turn of that number."""
        last = self.space.message(self.at, number)
        found: list[MessageRef] = []
        for step in reader.steps(self.space, last.digest if last else None, limit=_STEPS_MAX):
            if step.turn_number != number:
                break
            found[:0] = self.said(step)
        return self.left(found)


def line(
    space: Space,
    at: Digest,
    switched: Digest | None,
    *,
    fresh: bool,
    is_native: Callable[[MessageAppended], bool],
) -> LineView:
    """Return the timeline up to a commit; with `fresh` all of it counts as before a switch."""
    end = at if fresh else switched
    return LineView(space, at, space.step(end).place.depth if end is not None else -1, is_native)


def needed_calls(
    on: LineView, words: MessageTexts, calls: Iterable[tuple[str, str]], where: Callable[[str], str | None]
) -> Iterator[Needed]:
    """Yield what is needed for calls, each given with the reason; `where` gives the label of its request."""
    for call, why in calls:
        label = where(call)
        for step in on.named(label) if label is not None else ():
            asking = _asking(on.of(step), words, call)
            if asking is not None:
                yield Needed(tuple(_around(on.turn(asking.turn) or on.of(step), asking, words)), why)


def needed_by_task(on: LineView, task: Mapping[str, Json]) -> Iterator[Needed]:
    """Yield the turns and messages that the task's state refers to."""
    text = msgspec.json.encode(dict(task)).decode()
    for number in list(dict.fromkeys(_TURN.findall(text)))[:_MENTIONS_MAX]:
        yield Needed(tuple(on.turn(int(number))), f"the task refers to turn:{number}")
    for id in list(dict.fromkeys(_MESSAGE.findall(text)))[:_MENTIONS_MAX]:
        found = by_id(on, (id,))
        yield Needed(tuple(found), f"the task refers to message:{id}")


def opening(on: LineView) -> Needed:
    """Return the system words with which an imported conversation begins."""
    depth = on.space.step(on.at).place.depth
    steps = on.space.back(on.at, skip=max(0, depth + 1 - _FIRST_STEPS), limit=_FIRST_STEPS)
    found = [each for step in reversed(steps) for each in on.said(step) if each.role == "system"]
    return Needed(tuple(on.left(found)), "the conversation's own system words")


def by_id(on: LineView, ids: Sequence[str]) -> list[MessageRef]:
    """Return messages of the timeline by their ids, in the order of the timeline."""
    found = [each for id in ids for step in on.named(id) for each in on.said(step) if each.id == id]
    return sorted(on.left(found), key=lambda each: each.place)


def _asking(spoken: Sequence[MessageRef], words: MessageTexts, call: str) -> MessageRef | None:
    asked = [each for each in spoken if each.role == "assistant"]
    for each, message in zip(asked, words.of(asked), strict=True):
        if message is not None and any(one.id == call for one in message.tool_calls):
            return each
    return None


def _around(turn: Sequence[MessageRef], asking: MessageRef, words: MessageTexts) -> Iterator[MessageRef]:
    """Yield the input before a message that requests calls, the message, and the results of its calls."""
    at = next((at for at, each in enumerate(turn) if each.id == asking.id), None)
    if at is None:
        yield asking
        return
    yield from [each for each in turn[:at] if each.role == "user"][-1:]
    yield asking
    answers = [each for each in turn[at + 1 :] if each.role == "tool"][:_ANSWERS_MAX]
    asked = {call.id for message in words.of([asking]) if message for call in message.tool_calls}
    for each, message in zip(answers, words.of(answers), strict=True):
        if message is not None and any(result.call_id in asked for result in message.tool_results):
            yield each
