"""A Chat answer as a reply: words, reasoning, calls, why it stopped and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.errors import Invalid
from perdure.model.message import File, Message, Text
from perdure.model.run import Usage
from perdure.providers.contract import Loss, Reply
from perdure.providers.openai_chat.content import sound_of
from perdure.providers.openai_chat.message import ChatMessageParts, read_message, unknown_parts
from perdure.providers.openai_chat.servers import Server
from perdure.providers.openai_chat.vendor_fields import Beside, Origin, objects_of, with_beside
from perdure.providers.wire.fields.vendor_items import object_of
from perdure.providers.wire.stream.reply_events import count_of, with_events

__all__ = ["parse", "reply_of"]

_BODY = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation", "p"})
_CHOICE = frozenset({"index", "finish_reason", "message", "delta"})


def parse(body: Mapping[str, Any], origin: Origin, place: Server, api: str) -> Reply:
    """The answer that a body holds; raises `Invalid` if it is none."""
    return with_events(reply_of(body, origin, place, api))


def reply_of(body: Mapping[str, Any], origin: Origin, place: Server, api: str) -> Reply:
    """The answer without its events."""
    choices = _choices(body, api)
    if choices is None:
        return _filtered(body, origin)
    losses: list[Loss] = []
    messages = [_message(body, choice, origin, place, losses) for choice in choices]
    return Reply(
        message=messages[0],
        stop=_stop(choices[0].get("finish_reason")),
        stop_kind="refused" if _is_refusal(choices[0]) else None,
        usage=_usage(body.get("usage")),
        losses=tuple(losses),
        others=tuple(messages[1:]),
    )


def _is_refusal(choice: Mapping[str, Any]) -> bool:
    """Whether a choice is a refusal in words: its finish reason is `stop` then, as that of any answer."""
    held = object_of(choice.get("message") or choice.get("delta"))
    parts = objects_of(held.get("content")) if isinstance(held.get("content"), list) else []
    return bool(held.get("refusal")) or any(part.get("type") == "refusal" for part in parts)


def _choices(body: Mapping[str, Any], api: str) -> list[dict[str, Any]] | None:
    """The choices of an answer, in order; None for an answer that was held back."""
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(f"this is no {api} answer but {type(body).__name__}; nothing was read.")
    choices, error = body.get("choices"), body.get("error")
    if objects_of(choices):
        return sorted(objects_of(choices), key=lambda each: count_of(each.get("index")))
    if told := object_of(error):
        if told.get("code") == "content_filter":
            return None
        raise Invalid(f"the server answered with an error: {told.get('message') or told}; nothing was read.")
    raise Invalid(f"this is no {api} answer: it has no choices; nothing was read.")


def _filtered(body: Mapping[str, Any], origin: Origin) -> Reply:
    """An answer that the server's filter held back: a refusal without words."""
    message = with_beside(Message(role="assistant"), Beside(said={"error": body["error"]}), origin)
    return Reply(message=message, stop="content_filter")


def _message(
    body: Mapping[str, Any], choice: Mapping[str, Any], origin: Origin, place: Server, losses: list[Loss]
) -> Message:
    held = object_of(choice.get("message") or choice.get("delta"))
    if not held and not choice.get("finish_reason"):
        raise Invalid("a choice of the answer has no message; nothing was read.")
    id = body.get("id")
    said = read_message(held, "choices.message", origin.endpoint, salt=f"{id}\n{choice.get('index')}")
    _audio(held.get("audio"), said)
    back = {name: value for name, value in said.fields.items() if name in place.back or name == "audio"}
    told = {name: value for name, value in said.fields.items() if name not in back}
    said.fields = back
    told |= _rest(choice, _CHOICE) | _rest(body, _BODY)
    losses += unknown_parts(said, "message")
    message = Message(role="assistant", content=tuple(said.content), tool_calls=tuple(said.calls))
    made = Origin(origin.vendor, origin.endpoint, _word(body.get("model")) or origin.model)
    return with_beside(message, said.beside(said=told), made, response_id=_word(id) or "")


def _audio(audio: object, said: ChatMessageParts) -> None:
    """Sound that the model spoke, and its words; the server takes it back by its id."""
    said.fields.pop("audio", None)
    known = object_of(audio)
    if isinstance(data := known.get("data"), str) and data:
        said.content.append(File(sound_of(data, "audio/wav"), "audio/wav"))
    if isinstance(words := known.get("transcript"), str) and words:
        said.content.append(Text(words))
    if known.get("id"):
        said.fields["audio"] = {"id": known["id"]}


def _rest(told: Mapping[str, Any], read: frozenset[str]) -> dict[str, Any]:
    return {
        name: value for name, value in told.items() if name not in read and value not in (None, [], {}, "")
    }


def _usage(usage: object) -> Usage:
    told = object_of(usage)
    inner = object_of(told.get("prompt_tokens_details"))
    outer = object_of(told.get("completion_tokens_details"))
    cached = [inner.get("cached_tokens"), *(told.get(name) for name in _CACHED)]
    return Usage(
        input_tokens=count_of(told.get("prompt_tokens")),
        output_tokens=count_of(told.get("completion_tokens")),
        cached_tokens=max(map(count_of, cached)),
        reasoning_tokens=count_of(outer.get("reasoning_tokens")) or count_of(told.get("reasoning_tokens")),
    )


_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens", "cache_read_input_tokens")


def _stop(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
