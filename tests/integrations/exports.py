"""What must hold of an exported conversation: its vendor accepts it, and all that was said is in it or in its losses."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress

from perdure import Thread
from perdure.model.context import Context
from perdure.providers.contract import Rendered
from perdure.providers.registry import APIS
from perdure.providers.validator import check
from perdure.runtime.inference.preview import context_of
from perdure.testing.adapters.histories import places
from perdure.testing.adapters.subject import covers, is_sent, leaves, mended

__all__ = ["MODELS", "export_faults", "exports_faults"]

MODELS = {
    "openai-chat": "gpt-5.6",
    "openai-responses": "gpt-5.6",
    "anthropic-messages": "claude-opus-4-5",
    "gemini-generate": "gemini-3-pro",
    "gemini-interactions": "gemini-3-pro",
    "bedrock-converse": "anthropic.claude-opus-4-5",
    "mistral-chat": "mistral-large-latest",
    "azure-inference-chat": "gpt-5.6",
    "ollama-chat": "qwen3",
}
_PLACE = re.compile(r"messages\[(\d+)\](\.(content|tool_calls|tool_results)\[(\d+)\])?")


def exports_faults(line: Thread) -> list[str]:
    """Export a timeline in every format; return what is wrong with the requests and with their losses."""
    if not line.transcript(limit=1):
        return []
    return [
        each
        for api in APIS
        for each in export_faults(line, api, line.export(api, model=MODELS[api], sendable=True))
    ]


def export_faults(line: Thread, api: str, exported: Rendered) -> list[str]:
    """Return what is wrong with a request: rules that it breaks, losses without a reason, and what is lost in silence."""
    context = context_of(line._env(), line.head.commit)
    broken = check(exported.body, api, model=MODELS[api])
    wrong = [f"{each.code} at {each.where}" for each in broken if each.level == "error"]
    wrong += [f"no reason: {loss}" for loss in exported.losses if not (loss.what and loss.why)]
    wrong += [f"no such place: {loss}" for loss in exported.losses if not _is_place(context, loss.where)]
    sent = mended("\n".join(leaves(exported.body)))
    wrong += [
        f"lost in silence: {where} {words[:40]!r}"
        for where, words in _said(context)
        if not _is_sent(words, sent) and not any(covers(loss, where) for loss in exported.losses)
    ]
    return [f"{line.id}: {api} {each}" for each in wrong]


def _said(context: Context) -> Iterator[tuple[str, str]]:
    """Yield all that a conversation says with its places; of arguments, each text and number in them."""
    yield from ((where, words) for where, words in places(context) if not where.endswith(".args"))
    for at, message in enumerate(context.messages):
        for nth, call in enumerate(message.tool_calls):
            for each in _values(_parsed(call.args)):
                if each.strip():
                    yield f"messages[{at}].tool_calls[{nth}].args", each


def _is_sent(words: str, sent: str) -> bool:
    """True if words are in a request, or all values of the JSON that they are: a vendor may take that as an object."""
    if is_sent(words, sent):
        return True
    with suppress(ValueError):
        words = b64decode(words, validate=True).decode()  # what a vendor's own tool did
    values = [each for each in _values(_parsed(words)) if each.strip()]
    return values != [words] and all(is_sent(each, sent) for each in values)


def _values(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _values(each)
    elif value is not None:
        yield value if isinstance(value, str) else json.dumps(value)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_place(context: Context, where: str) -> bool:
    """True for a place that the context has; one that is no message is not looked up."""
    found = _PLACE.match(where)
    if found is None or int(found[1]) >= len(context.messages):
        return found is None
    if found[3] is None:
        return True
    return int(found[4]) < len(getattr(context.messages[int(found[1])], found[3]))
