"""What a vendor's own tools did, as other vendors can be told of it.

The vendor gets its own block back, verbatim, from vendorMetadata.  In the canonical content it is one
`File` block that holds a short account, and for every other vendor that is one line of text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, cast

from holdfast.model.message import Block, File
from holdfast.providers.wire.media import data_url, inline

__all__ = ["MEDIA_TYPE", "account", "is_account", "told"]

MEDIA_TYPE = "application/vnd.holdfast.server-tool+json"

_WORDS_MAX = 600  # characters of one text in an account
_ITEMS_MAX = 10  # of one list
_DEPTH_MAX = 5
_LINE_MAX = 4_000


def account(type: str, name: str, *, input: object = None, result: object = None) -> File:
    """The canonical block for something that a vendor's own tool was asked, or gave."""
    facts: dict[str, Any] = {"type": type, "name": name}
    if input is not None:
        facts["input"] = _short(input, _DEPTH_MAX)
    if result is not None:
        facts["result"] = _short(result, _DEPTH_MAX)
    body = json.dumps(facts, separators=(",", ":"), sort_keys=True).encode()
    return File(uri=data_url(MEDIA_TYPE, base64.b64encode(body).decode()), mime_type=MEDIA_TYPE)


def is_account(block: Block) -> bool:
    """Whether a block tells of a vendor's own tool."""
    return isinstance(block, File) and block.mime_type == MEDIA_TYPE


def told(block: File) -> str:
    """The account as one line: `[web_search: …]`."""
    held = inline(block.uri)
    try:
        facts = json.loads(held.bytes) if held is not None else None
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        return "[a server-side tool]"
    known = cast("dict[str, Any]", facts)
    parts = [_words(known[key]) for key in ("input", "result") if known.get(key) not in (None, {}, [], "")]
    line = (
        f"{known.get('name') or known.get('type')}: {' → '.join(parts)}" if parts else f"{known.get('name')}"
    )
    return f"[{line[:_LINE_MAX]}]"


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _short(value: object, depth: int) -> object:
    match value:
        case str():
            return value if len(value) <= _WORDS_MAX else value[:_WORDS_MAX] + "…"
        case Mapping() if depth:
            items = cast("Mapping[str, object]", value).items()
            return {str(key): _short(item, depth - 1) for key, item in items if not _is_opaque(key, item)}
        case list() | tuple() if depth:
            return [_short(item, depth - 1) for item in cast("list[object]", value)[:_ITEMS_MAX]]
        case bool() | int() | float() | None:
            return value
        case _:
            return "…"


def _is_opaque(key: object, value: object) -> bool:
    """What says nothing to anybody but its vendor: tokens, signatures, bytes, and fields that are empty."""
    if value is None or str(key).startswith("encrypted_") or key in ("signature", "data", "bytes"):
        return True
    return isinstance(value, str) and len(value) > 200 and " " not in value
