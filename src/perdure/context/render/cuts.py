"""Cuts: what is shortened because the window has no room for it, by how much, and where the whole is.

Nothing is cut while it fits.  Where room is short results of tools are cut first, the oldest first, down to a
brief; the text of other messages is cut only where nothing else helps.  Every cut says so in its place, and is
known afterwards: the plan, the losses of the step and the check of a switch name it with its sizes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from perdure.context.render.notes import unforged
from perdure.model.message import Block, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.model.recipe import Recipe
from perdure.providers.contract import Loss

__all__ = [
    "BRIEF_ARGUMENTS",
    "BRIEF_RESULT",
    "NO_CUTS",
    "CutText",
    "Cuts",
    "cut_texts",
    "cuts_in",
    "has_short_results",
    "is_short",
    "kept_as",
    "longest",
    "loss_of",
    "shortened",
]

BRIEF_RESULT = 1_200  # characters that are left of a result where the window has no room for all of it
BRIEF_ARGUMENTS = 600  # the same of the arguments of a call that is told in sentences

_KEPT_AS = "is kept as artifact://sha256/"
_SHORT_MIN = 4_096  # characters that a result which was shortened when it came has at the least

CutKind: TypeAlias = Literal["tool result", "arguments", "text"]


class Cuts(msgspec.Struct, frozen=True, kw_only=True):
    """How messages are shortened; a message is named by its id."""

    texts: Mapping[str, int] = {}  # characters that each text of a message keeps
    results: Mapping[str, int] = {}  # the same for results, and for arguments that are told in sentences
    stored: Mapping[str, str] = {}  # by call: artifact://… of a result that is cut
    whole: Mapping[str, str] = {}  # by call: the artifact that is shown for a result that was kept short
    short: Mapping[str, int] = {}  # by call: the characters of a result that was kept short, and stays so

    def apply(self, id: str, message: Message, *, told: bool) -> Message:
        """The message as it is shown; `told`: its calls are told in sentences."""
        most = self.results.get(id)
        if most is not None:
            message = self._brief(message, most, told=told)
        most = self.texts.get(id)
        return message if most is None else shortened(message, most, self.stored)

    @property
    def is_any(self) -> bool:
        """True if anything is shortened."""
        return bool(self.texts or self.results or self.short)

    def used(self, messages: Sequence[tuple[str, Message]]) -> Cuts:
        """The same without references to results that are shown whole."""
        stored = {
            each.call: each.reference for each in cut_texts(messages, self) if each.call and each.reference
        }
        return msgspec.structs.replace(self, stored=stored)

    def arguments_max(self, id: str, *, told: bool) -> int | None:
        """The characters that arguments of a message's calls may have to be shown whole; None: any number."""
        limits = (self.texts.get(id), self.results.get(id) if told else None)
        return min((each for each in limits if each is not None), default=None)

    def _brief(self, message: Message, most: int, *, told: bool) -> Message:
        calls = tuple(_told_call(call, most) for call in message.tool_calls) if told else message.tool_calls
        results = _results(message.tool_results, most, self.stored)
        if (calls, results) == (message.tool_calls, message.tool_results):
            return message
        return msgspec.structs.replace(message, tool_calls=calls, tool_results=results, vendor_metadata=None)


NO_CUTS = Cuts()


def cuts_in(recipe: Recipe) -> Cuts:
    """The cuts that a recipe tells of."""
    return Cuts(
        texts=recipe.cut,
        results=recipe.cut_results,
        stored=recipe.stored,
        whole=recipe.whole,
        short=recipe.short,
    )


def kept_as(reference: str) -> str:
    """The end of the mark in a result that was shortened when it came: where the whole is."""
    return f"is kept as {reference} …]"


def has_short_results(message: Message) -> bool:
    """True if a result of a message was shortened when it came."""
    return any(map(is_short, message.tool_results))


def is_short(result: ToolResult) -> bool:
    """True if a result was shortened when it came."""
    texts = (block.text for block in result.content if isinstance(block, Text))
    return any(len(text) > _SHORT_MIN and _KEPT_AS in text for text in texts)


class CutText(msgspec.Struct, frozen=True, kw_only=True):
    """One text that is shown in part."""

    kind: CutKind
    message: str  # its id
    where: str  # among the messages that are shown
    characters: int  # of the whole
    characters_shown: int
    call: str | None = None
    tool: str = ""
    reference: str | None = None  # artifact://… of the whole; None: it is in the history alone

    @property
    def what(self) -> str:
        """What is cut, for a reader."""
        match self.kind:
            case "tool result":
                return f"the result of {self.tool}" if self.tool else "a tool result"
            case "arguments":
                return f"the arguments of {self.tool}"
            case "text":
                return "a message"

    @property
    def sizes(self) -> str:
        """How much is shown of how much."""
        return f"{self.characters_shown:,} of {self.characters:,} characters"


def cut_texts(messages: Sequence[tuple[str, Message]], cuts: Cuts) -> Iterator[CutText]:
    """What is shown in part of messages, which are given with their ids."""
    tools = {call.id: call.name for _, message in messages for call in message.tool_calls}
    for at, (id, message) in enumerate(messages):
        text, result = cuts.texts.get(id), cuts.results.get(id)
        for index, block in enumerate(message.content if text is not None else ()):
            if isinstance(block, Text) and text is not None and len(block.text) > text:
                where = f"messages[{at}].content[{index}]"
                length = len(block.text)
                yield CutText(kind="text", message=id, where=where, characters=length, characters_shown=text)
        for index, each in enumerate(message.tool_results):
            if each.call_id in cuts.short:
                yield _short_text(each, id, f"messages[{at}].toolResults[{index}]", cuts, tools)
        most = min(each for each in (text, result) if each is not None) if text or result else None
        if most is None:
            continue
        for index, call in enumerate(message.tool_calls):
            if len(call.args) > most:
                yield CutText(
                    kind="arguments",
                    message=id,
                    where=f"messages[{at}].toolCalls[{index}].args",
                    characters=len(call.args),
                    characters_shown=0 if text is not None else most,
                    call=call.id,
                    tool=call.name,
                )
        for index, each in enumerate(message.tool_results):
            size = sum(len(block.text) for block in each.content if isinstance(block, Text))
            shown = sum(min(most, len(block.text)) for block in each.content if isinstance(block, Text))
            if shown < size and each.call_id not in cuts.short:
                yield CutText(
                    kind="tool result",
                    message=id,
                    where=f"messages[{at}].toolResults[{index}]",
                    characters=size,
                    characters_shown=shown,
                    call=each.call_id,
                    tool=tools.get(each.call_id, ""),
                    reference=cuts.stored.get(each.call_id),
                )


def _short_text(
    result: ToolResult, message: str, where: str, cuts: Cuts, tools: Mapping[str, str]
) -> CutText:
    """A result that was shortened when it came, and for whose whole there is no room."""
    texts = [_without_mark(block.text) for block in result.content if isinstance(block, Text)]
    return CutText(
        kind="tool result",
        message=message,
        where=where,
        characters=cuts.short[result.call_id],
        characters_shown=sum(len(text) for text in texts),
        call=result.call_id,
        tool=tools.get(result.call_id, ""),
        reference=cuts.stored.get(result.call_id),
    )


def _without_mark(text: str) -> str:
    """What is left of a text that was shortened when it came, without the line that says so."""
    head, mark, tail = text.rpartition(_KEPT_AS)
    return head.rpartition("\n")[0] + tail.partition("\n")[2] if mark else text


def loss_of(cut: CutText) -> Loss:
    """A cut as something that could not be carried over unchanged."""
    where = f"; the whole is {cut.reference}" if cut.reference else "; the whole is in the history"
    why = f"the window has no room for all of it: {cut.sizes} are shown{where}"
    return Loss(kind="dropped", where=cut.where, what=f"part of {cut.what}", why=why)


def shortened(message: Message, most: int, stored: Mapping[str, str] | None = None) -> Message:
    """The message with each text of more than `most` characters cut in its middle, and a mark that says so."""
    return msgspec.structs.replace(
        message,
        content=_blocks(message.content, most),
        tool_calls=tuple(_call(call, most) for call in message.tool_calls),
        tool_results=_results(message.tool_results, most, stored or {}),
        vendor_metadata=None,
    )


def longest(message: Message) -> int:
    """The characters of the longest text of a message, arguments of calls among them."""
    blocks = [*message.content, *(block for each in message.tool_results for block in each.content)]
    texts = [getattr(block, "text", "") for block in blocks] + [call.args for call in message.tool_calls]
    return max(map(len, texts), default=0)


def _results(results: Sequence[ToolResult], most: int, stored: Mapping[str, str]) -> tuple[ToolResult, ...]:
    return tuple(
        ToolResult(each.call_id, each.status, _blocks(each.content, most, stored.get(each.call_id)))
        for each in results
    )


def _blocks(blocks: Sequence[Block], most: int, reference: str | None = None) -> tuple[Block, ...]:
    found: list[Block] = []
    for block in blocks:
        match block:
            case Text(text=text):
                found.append(block if len(text) <= most else Text(_middle_out(text, most, reference)))
            case ReasoningSummary():
                pass
            case _:
                found.append(block)
    return tuple(found)


def _call(call: ToolCall, most: int) -> ToolCall:
    if len(call.args) <= most:
        return call
    return ToolCall(call.id, call.name, json.dumps({"perdure_left_out": f"{len(call.args):,} characters"}))


def _told_call(call: ToolCall, most: int) -> ToolCall:
    """The call with its arguments cut; they are told in a sentence, and need be no JSON."""
    left = len(call.args) - most
    if left <= 0:
        return call
    return ToolCall(call.id, call.name, f"{call.args[:most]}… (+{left:,} characters)")


def _middle_out(text: str, most: int, reference: str | None) -> str:
    left = len(text) - most
    head = most * 2 // 3
    kept = f"; the whole is {reference}" if reference else ""
    # A line begins where it is cut, and nobody may have it begin like a note.
    return unforged(
        f"{text[:head]}\n[… {left:,} of {len(text):,} characters are left out here by Perdure, because the model's window "
        f"has no room for them{kept} …]\n{text[len(text) - (most - head) :]}"
    )
