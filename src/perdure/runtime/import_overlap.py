"""Finds which messages of a list a transcript has, when neither has ids that both know.

A list may be a copy of what is there, may have grown, or may be a window on its end.  A list that is none of these,
but has messages in common with the transcript, was edited or answered again: the two part, and adding the list would
put what they have in common there twice ([why](../../../docs/decisions/0056-a-list-is-compared-with-what-is-there.md)).

Messages are compared by what they say: ids of calls, reasoning and vendor metadata do not count, nor does whether
results are in one message or in several, in which order parallel calls were answered, into how many blocks a text is
cut, or how a format marks an error.  A message that says nothing is none.  A sentence of Perdure's for a call without
a result is none.  Words of the system may have changed since, such as a date in them: where two
part, they are compared once more without the messages of the system.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import islice, pairwise, takewhile
from typing import Any, cast

import msgspec

from perdure.model.message import Message, ReasoningSummary, Text, ToolResult
from perdure.runtime.tools.result import tells_no_outcome

__all__ = ["Overlap", "compared", "continued", "said_by"]

_IN_A_ROW = 2  # messages that are alike before they are taken for the same ones: one "Thanks" is like another


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """What a list and a transcript have in common."""

    rest: int | None  # the first message of the list that is to be added; None: the two part
    alike: int = 0  # messages of the list that the transcript has
    differs: int = 0  # if they part: the first message of the list that the transcript does not have there
    after: int | None = None  # the message of the transcript before that place; None: there is none
    system: tuple[
        int, ...
    ] = ()  # messages of the system before the rest that say something else than those there


def continued(there: Sequence[Message | None], here: Sequence[Message], tools: Mapping[str, str]) -> Overlap:
    """Compare `here`, which has to begin with all of `there`; `tools` maps the vendor's names of tools to ours.

    None in `there` is a message whose words are gone.
    """
    found = _continued_or_without_system(there, here, tools)
    return (
        found
        if found.rest is not None
        else _in_call_order(found, there, here, _continued_or_without_system, tools)
    )


def _continued_or_without_system(
    there: Sequence[Message | None], here: Sequence[Message], tools: Mapping[str, str]
) -> Overlap:
    found = _continued(there, here, tools)
    if found.rest is not None:
        return found
    spoken, said = _spoken(there), _spoken(here)
    again = _continued([there[at] for at in spoken], [here[at] for at in said], tools)
    return _with_system(again, there, here, said) or found


def _continued(there: Sequence[Message | None], here: Sequence[Message], tools: Mapping[str, str]) -> Overlap:
    ours, theirs = _lines(there, here, tools)
    length = _length(ours, 0, theirs, 0)
    if length == len(ours) and theirs.is_between(length):
        return Overlap(rest=theirs.message_at(length), alike=theirs.count(0, length))
    return _parted(ours, 0, theirs, 0, length)


def compared(
    there: Sequence[Message | None],
    here: Sequence[Message],
    tools: Mapping[str, str],
    *,
    starts: Sequence[int],
) -> Overlap:
    """Compare `here` with all of `there`; `starts` are the messages of `there` with which an import begins.

    Nothing is to be added of a copy, the rest of a list that begins at a start and has grown and of a window on the
    end, and all of a list that has nothing in common with `there`.
    """
    compare = partial(_compared_or_without_system, starts=starts)
    found = compare(there, here, tools)
    return found if found.rest and found.alike else _in_call_order(found, there, here, compare, tools)


def _in_call_order(
    found: Overlap,
    there: Sequence[Message | None],
    here: Sequence[Message],
    compare: Callable[[Sequence[Message | None], Sequence[Message], Mapping[str, str]], Overlap],
    tools: Mapping[str, str],
) -> Overlap:
    """Compare once more with the results of parallel calls in the order of the calls; `found` if that says no more."""
    ordered = [each for each in _by_call(here) if each is not None]
    again = compare(_by_call(there), ordered, tools)
    # A rest that begins among such results would have others of them.
    is_whole = again.rest is not None and ordered[again.rest :] == list(here[again.rest :])
    return again if is_whole and again.alike else found


def _by_call(messages: Sequence[Message | None]) -> list[Message | None]:
    """Return messages with the results of each round of calls in the order of its calls, in as many messages."""
    found = list(messages)
    calls: list[str] = []
    at = 0
    while at < len(found):
        first = found[at]
        if first is None or not first.tool_results:
            calls = (
                [call.id for call in first.tool_calls] if first is not None and first.tool_calls else calls
            )
            at += 1
            continue
        row: list[Message] = []
        while at + len(row) < len(found) and (each := found[at + len(row)]) is not None and each.tool_results:
            row.append(each)
            if each.content or each.tool_calls:
                break
        results = [result for each in row for result in each.tool_results]
        results.sort(key=lambda each: calls.index(each.call_id) if each.call_id in calls else len(calls))
        left = iter(results)
        for place, each in enumerate(row, at):
            some = tuple(islice(left, len(each.tool_results)))
            found[place] = msgspec.structs.replace(each, tool_results=some)
        calls = [call.id for call in row[-1].tool_calls] or calls
        at += len(row)
    return found


def _compared_or_without_system(
    there: Sequence[Message | None],
    here: Sequence[Message],
    tools: Mapping[str, str],
    *,
    starts: Sequence[int],
) -> Overlap:
    found = _compared(there, here, tools, starts)
    if found.rest is not None:
        return found
    spoken, said = _spoken(there), _spoken(here)
    begins = [bisect_left(spoken, start) for start in starts]
    again = _compared(
        [there[at] for at in spoken],
        [here[at] for at in said],
        tools,
        [at for at in dict.fromkeys(begins) if at < len(spoken)],
    )
    return _with_system(again, there, here, said) or found


def _spoken(messages: Sequence[Message | None]) -> list[int]:
    """Return the places of the messages that are not of the system."""
    return [at for at, each in enumerate(messages) if each is None or each.role != "system"]


def _with_system(
    found: Overlap, there: Sequence[Message | None], here: Sequence[Message], said: Sequence[int]
) -> Overlap | None:
    """Return what was found without the messages of the system by the places in all of `here`; None if the two part."""
    if found.rest is None or not found.alike:
        return None
    rest = said[found.rest - 1] + 1
    words = [each.content for each in there if each is not None and each.role == "system"]
    words.append((Text(_leading(there)),))  # formats with one place for them have all in one
    while rest < len(here) and here[rest].role == "system" and here[rest].content in words:
        rest += 1
    system = [at for at in range(rest) if here[at].role == "system" and here[at].content not in words]
    return Overlap(rest=rest, alike=found.alike, system=tuple(system))


def _leading(messages: Sequence[Message | None]) -> str:
    """Return the words of the system that messages begin with, as one text."""
    first = takewhile(lambda each: each is not None and each.role == "system", messages)
    return "\n\n".join(each.text for each in first if each is not None)


def _compared(
    there: Sequence[Message | None], here: Sequence[Message], tools: Mapping[str, str], starts: Sequence[int]
) -> Overlap:
    ours, theirs = _lines(there, here, tools)
    begins = [ours.unit_at(start) for start in starts]
    found = _grown(ours, begins, theirs)
    if found is not None:
        return found
    body = theirs.past_system(0)
    knows_system = set(theirs.units[:body]) <= set(ours.units)
    if knows_system:
        found = _window(ours, theirs, body)
        if found is not None:
            return found
    alike = [(_length(ours, unit, theirs, 0), 0, unit) for unit in begins]
    bodies = [*map(ours.past_system, begins), *ours.last_ones()]
    alike += [(_length(ours, unit, theirs, body), body, unit) for unit in bodies]
    length, place, unit = max(
        alike, key=lambda each: (each[0] and each[0] + each[1], each[2]), default=(0, 0, 0)
    )
    if length:
        return _parted(ours, unit, theirs, place, length, begins_elsewhere=place > 0 and not knows_system)
    shared = theirs.in_a_row_of(ours)
    if shared:
        differs = next(at for at in range(theirs.size + 1) if at not in shared)
        return Overlap(rest=None, alike=len(shared), differs=min(differs, theirs.size - 1))
    return Overlap(rest=0)


def _grown(ours: _ComparedLine, begins: Sequence[int], theirs: _ComparedLine) -> Overlap | None:
    """Return the rest of a list that begins where an import did; None if no import has it or ends within it."""
    grown: int | None = None
    for unit in begins:
        length = _length(ours, unit, theirs, 0)
        if length == len(theirs):
            return Overlap(rest=theirs.size, alike=theirs.size)
        if unit + length == len(ours) and theirs.is_between(length):
            grown = max(grown or 0, length)
    return None if grown is None else Overlap(rest=theirs.message_at(grown), alike=theirs.count(0, grown))


def _window(ours: _ComparedLine, theirs: _ComparedLine, body: int) -> Overlap | None:
    """Return the rest of a list whose messages from `body` on begin within the transcript and go on after its end.

    None if there is no such place, or more than one.
    """
    if body == len(theirs):
        return Overlap(rest=theirs.size, alike=theirs.size)
    ends: list[int] = []
    for unit, part in enumerate(ours.units):
        if part != theirs.units[body]:
            continue
        length = _length(ours, unit, theirs, body)
        end, is_last = body + length, unit + length == len(ours)
        is_sure = theirs.count(body, end) >= _IN_A_ROW
        if end == len(theirs) and (is_sure or is_last):
            return Overlap(rest=theirs.size, alike=theirs.size)
        if is_last and is_sure and theirs.is_between(end):
            ends.append(end)
    if len(ends) != 1:
        return None
    return Overlap(rest=theirs.message_at(ends[0]), alike=theirs.count(0, ends[0]))


def _parted(
    ours: _ComparedLine,
    unit: int,
    theirs: _ComparedLine,
    place: int,
    length: int,
    *,
    begins_elsewhere: bool = False,
) -> Overlap:
    """Return where two lines part that have `length` parts in common, from `unit` and `place` on."""
    shared = {*theirs.places[place : place + length], *theirs.in_a_row_of(ours)}
    if begins_elsewhere:
        return Overlap(rest=None, alike=len(shared), differs=0)
    differs = min(theirs.message_at(place + length), theirs.size - 1)
    if place + length < len(theirs):
        shared -= {differs}
    after = ours.places[unit + length - 1] if length else None
    return Overlap(rest=None, alike=len(shared | set(theirs.places[:place])), differs=differs, after=after)


def _length(ours: _ComparedLine, unit: int, theirs: _ComparedLine, place: int) -> int:
    """Count the parts that are alike from `unit` and `place` on."""
    most = min(len(ours) - unit, len(theirs) - place)
    for at in range(most):
        if ours.units[unit + at] != theirs.units[place + at]:
            return at
    return max(most, 0)


class _ComparedLine:
    """Messages as the parts that are compared: words with calls, and each result.  Equal parts have equal numbers."""

    def __init__(
        self,
        messages: Sequence[Message | None],
        tools: Mapping[str, str],
        numbers: dict[object, int],
        cut: Set[str],
    ) -> None:
        self.size = len(messages)
        self.units: list[int] = []
        self.places: list[int] = []  # of their messages
        self._roles = [message.role if message is not None else None for message in messages]
        for place, part in _parts_of(messages, tools, cut):
            self.units.append(numbers.setdefault(part, len(numbers)))
            self.places.append(place)

    def __len__(self) -> int:
        return len(self.units)

    def unit_at(self, message: int) -> int:
        """Return the first part of a message, or of the next one that has any."""
        return bisect_left(self.places, message)

    def message_at(self, unit: int) -> int:
        """Return the message of a part; the number of messages after the last part."""
        return self.places[unit] if unit < len(self) else self.size

    def is_between(self, unit: int) -> bool:
        """True if no message has parts on both sides."""
        return unit in (0, len(self)) or self.places[unit] != self.places[unit - 1]

    def past_system(self, unit: int) -> int:
        """Return the first part from `unit` on that is no word of the system."""
        while unit < len(self) and self._roles[self.places[unit]] == "system":
            unit += 1
        return unit

    def last_ones(self) -> list[int]:
        """Return the last part, and the last words of the user."""
        asked = [unit for unit in range(len(self)) if self._roles[self.places[unit]] == "user"]
        return [*asked[-1:], *([len(self) - 1] if len(self) else [])]

    def count(self, start: int, end: int) -> int:
        """Count the messages of parts."""
        return len(set(self.places[start:end]))

    def in_a_row_of(self, other: _ComparedLine) -> set[int]:
        """Return the messages that the other line has in the same order, two or more in a row."""
        rows = set(pairwise(other.units))
        found: set[int] = set()
        for at, row in enumerate(pairwise(self.units)):
            if row in rows and self.places[at] != self.places[at + 1]:
                found |= {self.places[at], self.places[at + 1]}
        return found


def _lines(
    there: Sequence[Message | None], here: Sequence[Message], tools: Mapping[str, str]
) -> tuple[_ComparedLine, _ComparedLine]:
    numbers: dict[object, int] = {}
    cut = _cut_texts(there) | _cut_texts(here)
    return _ComparedLine(there, tools, numbers, cut), _ComparedLine(here, tools, numbers, cut)


def _parts_of(
    messages: Sequence[Message | None], tools: Mapping[str, str], cut: Set[str]
) -> Iterator[tuple[int, object]]:
    """Yield what is compared, with the index of its message; `cut` has the texts that either side has in several blocks.

    A result has its place among the open calls of the newest message with calls: 0 if results come in their order, as
    it has where a window begins after the call.
    """
    calls: list[str] = []
    for at, message in enumerate(messages):
        if message is None:
            yield at, ("gone", at)
            continue
        for result in message.tool_results:
            place = calls.index(result.call_id) if result.call_id in calls else 0
            del calls[place : place + 1]
            if not tells_no_outcome(result):
                yield at, (place, _compared_blocks(_in_chat(result).content, cut))
        if message.tool_results and not message.content and not message.tool_calls:
            continue
        if message.tool_calls:
            calls = [call.id for call in message.tool_calls]
        said = _compared_blocks(message.content, cut)
        asked = tuple((tools.get(call.name, call.name), _arguments(call.args)) for call in message.tool_calls)
        if said or asked:  # no format keeps a message that says nothing
            yield at, (message.role, said, asked)


def _cut_texts(messages: Sequence[Message | None]) -> set[str]:
    """Return the texts that are cut into several blocks, without line ends: formats with one text join them in some way."""
    said = [each for each in messages if each is not None]
    contents = [each.content for each in said]
    contents += [_in_chat(result).content for each in said for result in each.tool_results]
    texts = [
        cast("list[str]", row) for content in contents for row in _texts(content) if isinstance(row, list)
    ]
    return {_on_one_line(row) for row in texts if len(row) > 1}


def _texts(blocks: Sequence[object]) -> list[object]:
    """Return blocks with each row of adjacent texts as the list of its words; without reasoning and empty texts."""
    found: list[object] = []
    row: list[str] = []
    for block in blocks:
        if isinstance(block, Text):
            if block.text:
                if not row:
                    found.append(row)
                row.append(block.text)
        elif not isinstance(block, ReasoningSummary):
            found.append(block)
            row = []
    return found


def _on_one_line(texts: Sequence[str]) -> str:
    return "".join(texts).replace("\n", "")


def _compared_blocks(blocks: Sequence[object], cut: Set[str]) -> object:
    """Return blocks as they are compared: line ends do not count in a text that either side has in several blocks."""
    found: list[object] = []
    for each in _texts(blocks):
        if isinstance(each, list):
            row = cast("list[str]", each)
            joined = _on_one_line(row)
            found.append(("joined", joined) if joined in cut else ("text", row[0]))
        else:
            found.append(_frozen(msgspec.to_builtins(each)))
    return tuple(found)


def _in_chat(result: ToolResult) -> ToolResult:
    """Return a result as a format has it that has no mark of an error, and says it in words."""
    match result.content:
        case (Text(text), *rest) if result.status == "error" and not text.lower().startswith("error"):
            return msgspec.structs.replace(result, content=(Text(f"Error: {text}"), *rest))
        case _:
            return result


def said_by(messages: Sequence[Message]) -> Counter[object]:
    """Return what messages say, block by block, call by call and result by result."""
    said: Counter[object] = Counter()
    for message in messages:
        words = (block for block in message.content if not isinstance(block, ReasoningSummary))
        said.update((message.role, _frozen(msgspec.to_builtins(block))) for block in words)
        said.update((call.name, _arguments(call.args)) for call in message.tool_calls)
        results = (_in_chat(each) for each in message.tool_results if not tells_no_outcome(each))
        said.update(("result", _frozen(msgspec.to_builtins(each.content))) for each in results)
    return said


def _arguments(args: str) -> object:
    try:
        return _frozen(json.loads(args))
    except (ValueError, RecursionError):
        return args


def _frozen(value: Any) -> object:
    """Return a JSON value as one that has a hash; equal values stay equal."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return frozenset((name, _frozen(held)) for name, held in fields.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(held) for held in cast("Sequence[Any]", value))
    return cast("object", value)
