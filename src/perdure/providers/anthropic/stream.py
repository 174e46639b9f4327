"""Anthropic's event streams, in pieces of any size."""

from __future__ import annotations

import json
from typing import Any, cast

from perdure.errors import Invalid
from perdure.providers.anthropic.parse import Raw, as_list, as_object, compact, reply_of
from perdure.providers.contract import CallDelta, Loss, ModelEvent, ReasoningDelta, Reply, TextDelta
from perdure.providers.wire.stream.reply_events import GrowingTexts, with_events
from perdure.providers.wire.stream.sse import Events, ServerEvent

__all__ = ["AnthropicStream"]

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


class _OpenBlock:
    """A block that is being written."""

    def __init__(self, start: Raw, call: int) -> None:
        self.start = dict(start)
        self.call = call  # which of the step's calls, if it is one
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.arguments: list[str] = []
        self.cited: list[object] | None = None  # its citations, once more of them came
        self.growing = GrowingTexts()
        self.whole = False

    @property
    def kind(self) -> str:
        return str(self.start.get("type"))

    def block(self) -> dict[str, Any]:
        """The block as a whole answer would have it."""
        self.growing.settle()
        made = dict(self.start)
        if self.texts:
            made["text"] = str(made.get("text") or "") + "".join(self.texts)
        if self.thoughts:
            made["thinking"] = str(made.get("thinking") or "") + "".join(self.thoughts)
        if self.arguments and self.kind != "tool_use":
            made["input"] = _parsed("".join(self.arguments))
        return made

    def cite(self, citation: object) -> None:
        """Add a citation to those that the block has."""
        if self.cited is None:
            known = as_list(self.start.get("citations") or [], "content_block.citations")
            self.cited = self.start["citations"] = list(known)
        self.cited.append(citation)

    def raw_arguments(self) -> str:
        """The arguments as they came."""
        return "".join(self.arguments) or compact(self.start.get("input") or {})


class AnthropicStream:
    """A stream that is being read."""

    def __init__(self, *, provider: str | None = None) -> None:
        """`provider` is whose server it comes from."""
        self._provider = provider
        self._events = Events()
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, _OpenBlock] = {}
        self._calls = 0
        self._told: list[ModelEvent] = []
        self._losses: list[Loss] = []
        self._error: str | None = None

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take some more bytes; what they tell."""
        return self._take(self._events.feed(data))

    def close(self) -> Reply:
        """What was said in all."""
        self._take(self._events.rest())
        if self._message is None or (self._error and not self._blocks):
            why = self._error or "it ended before it began"
            raise Invalid(f"this stream of Anthropic Messages holds no answer: {why}.")
        blocks = self._whole_blocks()
        raw_arguments = {
            at: block.raw_arguments() for at, block in enumerate(blocks) if block.kind == "tool_use"
        }
        body = self._message | {"content": [block.block() for block in blocks]}
        reply = reply_of(
            body, provider=self._provider, raw_arguments=raw_arguments, losses=tuple(self._losses)
        )
        return with_events(reply, self._told)

    def _whole_blocks(self) -> list[_OpenBlock]:
        """All blocks but calls that were cut off: words that came stand, half of the arguments mean nothing."""
        if self._error:
            self._lose("the stream", "rest of the answer", f"it ended in an error: {self._error}")
        kept: list[_OpenBlock] = []
        for index in sorted(self._blocks):
            block = self._blocks[index]
            if block.whole or block.kind not in _CALLS:
                kept.append(block)
            else:
                self._lose(f"content[{index}]", "tool call", "the stream ended in the middle of it")
        return kept

    def _lose(self, where: str, what: str, why: str) -> None:
        self._losses.append(Loss(kind="dropped", where=where, what=what, why=why))

    def _take(self, events: list[ServerEvent]) -> list[ModelEvent]:
        told: list[ModelEvent] = []
        for event in events:
            if event.data.strip() and event.data.strip() != "[DONE]":
                told += self._event(_object(event.data))
        self._told += told
        return told

    def _event(self, event: Raw) -> list[ModelEvent]:
        match event.get("type"):
            case "message_start":
                self._begin(as_object(event.get("message"), "message_start.message"))
            case "content_block_start":
                return self._start(_index(event), as_object(event.get("content_block"), "content_block"))
            case "content_block_delta":
                return self._delta(_index(event), as_object(event.get("delta"), "delta"))
            case "content_block_stop":
                return self._stop(self._block(_index(event)))
            case "message_delta":
                self._finish(event)
            case "error":
                told = as_object(event.get("error") or {}, "error")
                self._error = f"{told.get('type')}: {told.get('message')}"
            case "ping" | "message_stop":
                pass
            case kind:
                if kind is None:
                    raise Invalid("an event of the stream has no type; it is none of Anthropic Messages.")
                self._lose("the stream", f"event {kind}", "this kind of event is not known")
        return []

    def _begin(self, message: Raw) -> None:
        if self._message is not None:
            self._lose("the stream", "message", "another one begins after it")
            self._blocks.clear()
        self._message = dict(message)

    def _start(self, index: int, start: Raw) -> list[ModelEvent]:
        if self._message is None:
            raise Invalid(
                "the stream has a block before its message_start; it is none of Anthropic Messages."
            )
        block = _OpenBlock(start, self._calls)
        self._blocks[index] = block
        match block.kind:
            case "tool_use":
                self._calls += 1
                return [CallDelta(block.call, str(start.get("name")), "")]
            case "text":
                return [TextDelta(text)] if (text := str(start.get("text") or "")) else []
            case "thinking":
                return [ReasoningDelta(text)] if (text := str(start.get("thinking") or "")) else []
            case _:
                return []

    def _delta(self, index: int, delta: Raw) -> list[ModelEvent]:
        block = self._block(index)
        match delta.get("type"):
            case "text_delta":
                block.texts.append(text := _words(delta, "text"))
                return [TextDelta(text)] if text else []
            case "thinking_delta":
                block.thoughts.append(text := _words(delta, "thinking"))
                return [ReasoningDelta(text)] if text else []
            case "input_json_delta":
                block.arguments.append(text := _words(delta, "partial_json"))
                is_call = block.kind == "tool_use" and text
                return [CallDelta(block.call, str(block.start.get("name")), text)] if is_call else []
            case "signature_delta":
                block.growing.add(block.start, "signature", _words(delta, "signature"))
            case "citations_delta":
                block.cite(delta.get("citation"))
            case "compaction_delta":
                _extend(block, delta)
            case kind:
                self._unknown(block, index, str(kind), delta)
        return []

    def _stop(self, block: _OpenBlock) -> list[ModelEvent]:
        """The block is whole; a call that came in one piece is told now."""
        block.whole = True
        if block.kind != "tool_use" or block.arguments or not block.start.get("input"):
            return []
        return [CallDelta(block.call, str(block.start.get("name")), block.raw_arguments())]

    def _unknown(self, block: _OpenBlock, index: int, kind: str, delta: Raw) -> None:
        """A delta of a kind that is not known: what it says is kept with the block."""
        _extend(block, delta)
        why = "this kind of delta is not known; it is kept with its block for Anthropic"
        self._losses.append(Loss(kind="converted", where=f"content[{index}]", what=kind, why=why))

    def _block(self, index: int) -> _OpenBlock:
        if index not in self._blocks:
            raise Invalid(f"the stream goes on with block {index}, which it never began. Nothing was read.")
        return self._blocks[index]

    def _finish(self, event: Raw) -> None:
        if self._message is None:
            raise Invalid("the stream has a message_delta before its message_start. Nothing was read.")
        self._message |= as_object(event.get("delta") or {}, "message_delta.delta")
        if "context_management" in event:
            self._message["context_management"] = event["context_management"]
        told = as_object(event.get("usage") or {}, "message_delta.usage")
        before = as_object(self._message.get("usage") or {}, "message.usage")
        self._message["usage"] = {
            **before,
            **{key: value for key, value in told.items() if value is not None},
        }


def _extend(block: _OpenBlock, delta: Raw) -> None:
    for key, value in delta.items():
        if key == "type":
            continue
        if isinstance(block.start.get(key), str) and isinstance(value, str):
            block.growing.add(block.start, key, value)
        else:
            block.growing.put(block.start, key, value)


def _index(event: Raw) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise Invalid(f"a {event.get('type')} of the stream has no index. Nothing was read.")
    return index


def _words(delta: Raw, key: str) -> str:
    value = delta.get(key)
    if not isinstance(value, str):
        raise Invalid(f"a {delta.get('type')} of the stream has no {key}. Nothing was read.")
    return value


def _object(text: str) -> Raw:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"an event of the stream is not JSON: {error}. Nothing was read.") from error
    return as_object(value, "an event of the stream")


def _parsed(text: str) -> object:
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return text
