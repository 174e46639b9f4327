"""The recorded conversations in which a user speaks more than once, as the rules over messages see them.

Of each recording the longest request counts; of recordings in which the user says the same, the first.
"""

from __future__ import annotations

from functools import cache

from perdure.errors import PerdureError
from perdure.model.context import Context
from perdure.providers import registry
from perdure.switching.checkpoint.heuristics import Utterance
from tests.recorded.wire import Wire

__all__ = ["conversations"]

APIS = (
    "anthropic-messages",
    "bedrock-converse",
    "gemini-generate",
    "mistral-chat",
    "openai-chat",
    "openai-responses",
)


@cache
def conversations() -> dict[str, list[Utterance]]:
    """The conversations by the id of their record, in the order of the files."""
    longest: dict[str, tuple[str, Context]] = {}
    wire = Wire()
    for api in APIS:
        adapter = registry.adapter(api)
        for record in wire.records(api):
            if not record.request:
                continue
            try:
                context = adapter.read_request(record.request, model=record.model or "")
            except PerdureError:
                continue
            known = longest.get(record.conversation_id)
            if _turns(context) >= 2 and (known is None or len(context.messages) > len(known[1].messages)):
                longest[record.conversation_id] = record.id, context
    return _distinct(dict(longest.values()))


def _turns(context: Context) -> int:
    return sum(1 for message in context.messages if message.role == "user" and message.text.strip())


def _distinct(found: dict[str, Context]) -> dict[str, list[Utterance]]:
    seen: set[tuple[str, ...]] = set()
    kept: dict[str, list[Utterance]] = {}
    for id, context in found.items():
        said = tuple(message.text[:200] for message in context.messages if message.role == "user")
        if said not in seen:
            seen.add(said)
            kept[id] = _words(context)
    return kept


def _words(context: Context) -> list[Utterance]:
    return [
        Utterance(f"m{at}", message.role, message.text, bool(message.tool_calls))
        for at, message in enumerate(context.messages)
        if message.role in ("user", "assistant")
    ]
