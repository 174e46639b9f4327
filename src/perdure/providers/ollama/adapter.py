"""The adapter for Ollama's native chat: Chat's own rules, in other words on the wire.

The canonical options that Ollama says in fields of its own: the form of the answer, thinking, the choice of a tool.

Ollama has no choice of tools, and takes levels of thinking from `gpt-oss` alone: any other model is refused with
one, and is told to think or not.

A native stream: one JSON object a line, handed to Chat's stream as chunks of Chat.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, cast

import msgspec

from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.model.message import Image, Text
from perdure.providers.capabilities import Level
from perdure.providers.contract import Asked, Loss, ModelEvent, Rendered, Reply, StreamParser, losses_of
from perdure.providers.ollama.capabilities import CAPABILITIES, SERVERS
from perdure.providers.ollama.translate import chat_answer, chat_chunk, chat_request, native_request
from perdure.providers.openai_chat.adapter import ChatAdapter
from perdure.providers.wire.fields.vendor_items import items_of, object_of
from perdure.providers.wire.nesting import GuardedStream, check_depth, too_deep
from perdure.providers.wire.sanitize import detached, sendable

__all__ = ["ADAPTER", "OllamaAdapter", "APART", "native_settings", "NativeStream"]


APART = frozenset({"output", "reasoning", "tool_choice"})  # the options that are read here

_LEVELS = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_BUDGETS = ((1_024, "low"), (8_192, "medium"))  # the most tokens of each level


def native_settings(options: Mapping[str, Any], model: str) -> tuple[dict[str, Any], list[Loss]]:
    """The fields of a request for these options, and what they do not hold."""
    losses: list[Loss] = []
    fields: dict[str, Any] = {}
    if (wanted := _format(options.get("output"), losses)) is not None:
        fields["format"] = wanted
    reasoning = object_of(options.get("reasoning"))
    asked = {name: value for name, value in reasoning.items() if value is not None}
    has_levels = re.search(r"(^|[/_-])gpt-?oss(?![a-z])", model, re.IGNORECASE) is not None
    if asked and (think := _level(asked, losses) if has_levels else _switch(asked, losses)) is not None:
        fields["think"] = think
    if options.get("tool_choice") not in (None, "auto"):
        why = "there is no such option here: the model decides"
        losses.append(_loss("dropped", "options.tool_choice", "tool choice", why))
    return fields, losses


def _format(output: object, losses: list[Loss]) -> Any:
    if output is None or output == "json":
        return output
    asked = object_of(output)
    if not isinstance(asked.get("schema"), dict):
        why = "it is neither 'json' nor a schema"
        losses.append(_loss("dropped", "options.output", "output form", why))
        return None
    losses.extend(
        _loss("dropped", f"options.output.{name}", name, "an output's schema stands alone here")
        for name in ("name", "description", "strict")
        if asked.get(name) is not None
    )
    return asked["schema"]


def _level(asked: dict[str, Any], losses: list[Loss]) -> str | None:
    """How much a model with levels thinks; it cannot be told not to."""
    effort, budget = asked.pop("effort", None), asked.pop("budget_tokens", None)
    enabled = asked.pop("enabled", None)
    _drop(asked, losses)
    level = _LEVELS.get(str(effort))
    if effort is not None and level is None:
        why = f"'{effort}' is no level of this model"
        losses.append(_loss("dropped", "options.reasoning.effort", "reasoning effort", why))
    elif level is not None and level != effort:
        why = f"'{effort}' said as '{level}'"
        losses.append(_loss("converted", "options.reasoning.effort", "reasoning effort", why))
    if budget is not None:
        size = budget if isinstance(budget, int | float) else 0
        level = level or next((word for most, word in _BUDGETS if size <= most), "high")
        why = f"said as '{level}'"
        losses.append(_loss("converted", "options.reasoning.budget_tokens", "reasoning budget", why))
    if level is None and enabled is not None:
        level = "medium" if enabled else "low"
        why = f"said as '{level}': this model always thinks"
        losses.append(_loss("converted", "options.reasoning.enabled", "reasoning", why))
    return level


def _switch(asked: dict[str, Any], losses: list[Loss]) -> bool | None:
    """Whether a model without levels thinks."""
    effort, budget = asked.pop("effort", None), asked.pop("budget_tokens", None)
    enabled = asked.pop("enabled", None)
    _drop(asked, losses)
    why = "this model thinks or does not, with no level to choose"
    if effort not in (None, "none"):
        losses.append(_loss("converted", "options.reasoning.effort", "reasoning effort", why))
    if budget is not None:
        losses.append(_loss("converted", "options.reasoning.budget_tokens", "reasoning budget", why))
    if enabled is not None:
        return bool(enabled)
    return None if effort is None and budget is None else effort != "none" and budget != 0


def _drop(rest: dict[str, Any], losses: list[Loss]) -> None:
    losses.extend(
        _loss("dropped", f"options.reasoning.{name}", f"reasoning {name}", "there is no such option here")
        for name in rest
    )


def _loss(kind: Literal["converted", "dropped"], where: str, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=where, what=what, why=why)


class NativeStream:
    """An answer that is being streamed."""

    def __init__(self, chat: StreamParser) -> None:
        """Read into Chat's own parser."""
        self._chat = chat
        self._line = bytearray()
        self._calls = 0

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take some more bytes; what they tell."""
        *whole, rest = data.split(b"\n")
        told: list[ModelEvent] = []
        for line in whole:
            told += self._take(bytes(self._line) + line)
            self._line.clear()
        self._line += rest
        return told

    def close(self) -> Reply:
        """The stream has ended; what was said in all."""
        with suppress(Invalid):  # the last line may have been cut off
            self._take(bytes(self._line))
        return self._chat.close()

    def _take(self, line: bytes) -> list[ModelEvent]:
        if not line.strip():
            return []
        try:
            chunk: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Invalid(
                f"a line of this ollama-chat stream is not JSON: {error}; nothing was read."
            ) from error
        if not isinstance(chunk, dict):
            raise Invalid("a line of this ollama-chat stream is no object; nothing was read.")
        known = object_of(cast("object", chunk))
        event = chat_chunk(known, self._calls)
        self._calls += len(items_of(object_of(known.get("message")).get("tool_calls")))
        told = self._chat.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        if known.get("done"):
            told += self._chat.feed(b"data: [DONE]\n\n")
        return told


_API = "ollama-chat"
_CHAT = ChatAdapter(api=_API, vendor="ollama", provider="ollama", servers=SERVERS, capabilities=CAPABILITIES)


class OllamaAdapter(msgspec.Struct, frozen=True):
    """Ollama's `/api/chat`."""

    @property
    def api(self) -> str:
        """Its name."""
        return _API

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """A request that the server takes, whatever the history looks like."""
        try:
            shown, early = detached(context)
            plain = {name: value for name, value in shown.options.items() if name not in APART}
            rest = msgspec.structs.replace(shown, options=plain)
            rendered = _CHAT.render(rest, model=model, provider=provider)
            fields, late = native_settings(shown.options, model)
            late += _moved_images(context)
            body = {**native_request(rendered.body), **fields}
        except RecursionError as error:
            raise too_deep("the context", "nothing was rendered") from error
        losses = losses_of(early, rendered.losses, late)
        return sendable(msgspec.structs.replace(rendered, body=body, losses=losses))

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Asked:
        """The context that a request shows; raises `Invalid` if it is none."""
        if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(f"a request is an object, not {type(body).__name__}; nothing was read.")
        check_depth(body, "the request", "nothing was read")
        return _CHAT.read_request(chat_request(body), model=model, provider=provider)

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        """The answer; raises `Invalid` if it is none."""
        if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(f"this is no {_API} answer but {type(body).__name__}; nothing was read.")
        check_depth(body, "the answer", "nothing was read")
        return _CHAT.parse(chat_answer(body), provider=provider)

    def stream(self, *, provider: str | None = None) -> StreamParser:
        """A parser for a streamed answer."""
        return GuardedStream(NativeStream(_CHAT.stream(provider=provider)))

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        """The same as `stream`, fed with all chunks."""
        stream = self.stream(provider=provider)
        for chunk in chunks:
            stream.feed(chunk)
        return stream.close()

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        """How well the format, or that model on that server, does one thing."""
        return _CHAT.supports(capability, model=model, provider=provider)


def _moved_images(context: Context) -> list[Loss]:
    """The images that stood before words: a message has its images behind all of its words."""
    why = "the images of a message stand behind its words here"
    losses: list[Loss] = []
    for at, message in enumerate(context.messages):
        texts = [number for number, block in enumerate(message.content) if isinstance(block, Text)]
        losses.extend(
            Loss(kind="converted", where=f"messages[{at}].content[{number}]", what="media", why=why)
            for number, block in enumerate(message.content)
            if message.role == "user" and isinstance(block, Image) and texts and number < texts[-1]
            if block.uri.startswith("data:")
        )
    return losses


ADAPTER = OllamaAdapter()
