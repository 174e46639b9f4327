"""Hostile input: values that no vendor sends, put into every place of what vendors do send."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from perdure.errors import PerdureError
from tests.conformance import test_adapters as examples
from tests.recorded.frames import frames_of

__all__ = [
    "EXAMPLES",
    "HOSTILE",
    "Path",
    "disordered",
    "encoded",
    "events_of",
    "nested",
    "places",
    "put",
    "untyped",
]

Path: TypeAlias = tuple[str | int, ...]

EXAMPLES: dict[str, Any] = {
    "openai-chat": examples.TestOpenAIChat,
    "openai-responses": examples.TestOpenAIResponses,
    "anthropic-messages": examples.TestAnthropicMessages,
    "gemini-generate": examples.TestGeminiGenerate,
    "bedrock-converse": examples.TestBedrockConverse,
    "mistral-chat": examples.TestMistralChat,
    "azure-inference-chat": examples.TestAzureInferenceChat,
    "ollama-chat": examples.TestOllamaChat,
    "gemini-interactions": examples.TestGeminiInteractions,
}


def nested(depth: int, *, lists: bool) -> Any:
    """A value that holds itself so often."""
    value: Any = None
    for _ in range(depth):
        value = [value] if lists else {"a": value}
    return value


HOSTILE: tuple[Any, ...] = (
    *(None, 0, -1, 7, 1e308, float("nan"), float("inf"), 10**400, True, False),
    *("", "x", "\ud800", "a" * 5_000, "data:image/png;base64,@@", "artifact://x"),
    *([], {}, [None], [{}], [[]], ["\ud83d"], {"\udfff": 1}, {"type": None}, {"type": 7}, {"type": []}),
    *({"type": "nobody-knows"}, [{"type": "text", "text": None}], {"error": {"message": "no"}}),
    *(nested(3_000, lists=True), nested(3_000, lists=False), nested(400, lists=True)),
)


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Every place in a value, the whole of it first."""
    yield at
    if isinstance(value, Mapping):
        for name, each in cast("Mapping[str, Any]", value).items():
            yield from places(each, (*at, name))
    elif isinstance(value, list):
        for number, each in enumerate(cast("list[Any]", value)):
            yield from places(each, (*at, number))


def put(value: Any, at: Path, new: Any) -> Any:
    """The value with `new` at a place."""
    if not at:
        return new
    changed = copy.copy(value)
    changed[at[0]] = put(value[at[0]], at[1:], new)
    return changed


def untyped(act: Callable[[], object]) -> str | None:
    """The error that an act raised, if it is none of Perdure's own; None if all is well."""
    try:
        act()
    except PerdureError:
        return None
    except Exception as error:  # what this looks for
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


def events_of(api: str) -> list[Any]:
    """The events of an example's stream."""
    streamed: bytes = EXAMPLES[api].streamed
    if api == "ollama-chat":
        return [json.loads(line) for line in streamed.splitlines()]
    if api != "bedrock-converse":
        lines = streamed.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Sage."}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"reasoningContent": {"text": "Hm."}}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {
            "contentBlockStart": {
                "contentBlockIndex": 2,
                "start": {"toolUse": {"toolUseId": "t", "name": "f"}},
            }
        },
        {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": "{}"}}}},
        {"contentBlockStop": {"contentBlockIndex": 2}},
        {"messageStop": {"stopReason": "tool_use"}},
        {"metadata": {"usage": {"inputTokens": 9, "outputTokens": 5}}},
    ]


def encoded(api: str, events: list[Any]) -> bytes:
    """Events as the bytes of a stream; what cannot be encoded is left out."""
    if api == "bedrock-converse":
        named = [each for each in events if isinstance(each, dict) and _is_plain(each)]
        return frames_of(named)
    if api == "ollama-chat":
        return b"".join(json.dumps(each).encode() + b"\n" for each in events if _is_plain(each))
    lines: list[bytes] = []
    for event in events:
        if not _is_plain(event):
            continue
        name = cast("dict[str, Any]", event).get("type") if isinstance(event, dict) else None
        head = f"event: {name}\n".encode("utf-8", "replace") if isinstance(name, str) else b""
        lines.append(head + b"data: " + json.dumps(event).encode() + b"\n\n")
    return b"".join(lines)


def _is_plain(event: Any) -> bool:
    try:
        json.dumps(event)
    except (ValueError, RecursionError):
        return False
    names = cast("dict[str, Any]", event) if isinstance(event, dict) else {}
    return all(name.isascii() and len(name) < 200 for name in names)


def disordered(events: list[Any], chance: random.Random) -> list[Any]:
    """The events with some missing, repeated, moved, or of unknown kinds."""
    changed = list(events)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0 if changed:
                changed.pop(at - 1)
            case 1:
                changed.insert(at, {"type": "nobody.knows", "index": 0, "delta": {"type": "x"}})
            case 2 if changed:
                changed.insert(at, chance.choice(changed))
            case 3:
                chance.shuffle(changed)
            case _:
                changed.insert(at, chance.choice(HOSTILE))
    return changed
