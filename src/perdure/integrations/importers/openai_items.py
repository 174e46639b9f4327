"""Leaves out of items of the Responses API what OpenAI would refuse the whole conversation for.

Programs write items that OpenAI never made: ids of another kind or twice, and sealed reasoning that is not OpenAI's.
"""

from __future__ import annotations

from typing import Any

from perdure.integrations.importers.session import Json, as_list, as_object
from perdure.providers.validator.openai_responses import is_item_id

__all__ = ["accepted"]

_TOKEN = "gAAAA"
_TEXTS = ("output_text", "input_text")  # in messages of the model, and of others
_NO_ID = "__fake_id__"  # what the Agents SDK writes for models of other vendors


def accepted(item: Json, ids: set[str]) -> tuple[Json, list[tuple[str, str]]]:
    """Return an item as OpenAI takes it, and what was left out with the reason; `ids` are those of the items before it."""
    found, lost = dict(item), list[tuple[str, str]]()
    token: Any = found.get("encrypted_content")
    if token is not None and not (isinstance(token, str) and token.startswith(_TOKEN)):
        lost.append(("encrypted_content", "it is not one of OpenAI's tokens; it is kept in the original"))
        del found["encrypted_content"]
    id: Any = found.get("id")
    kind = str(found.get("type") or "message")
    if id is not None and (not isinstance(id, str) or not is_item_id(kind, id) or id in ids):
        if id != _NO_ID:
            why = "it is no id of such an item, or another item has it; it is kept in the original"
            lost.append(("id", why))
        del found["id"]
    elif id is not None:
        ids.add(id)
    if kind == "message" and isinstance(found.get("content"), list):
        own, other = _TEXTS if found.get("role") == "assistant" else _TEXTS[::-1]
        found["content"] = [
            {**block, "type": own} if as_object(block).get("type") == other else block
            for block in as_list(found["content"])
        ]
    return found, lost
