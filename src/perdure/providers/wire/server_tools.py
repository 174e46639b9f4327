"""Describes the calls of a vendor's own tools to other vendors.

The vendor gets its own block back, verbatim, from vendorMetadata.  In the canonical content it is one
`File` block with all its readable fields, and every other vendor gets it as one line of text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, cast

from perdure.model.message import Block, File
from perdure.providers.wire.media import data_url, inline

__all__ = ["MEDIA_TYPE", "account", "is_account", "told"]

MEDIA_TYPE = "application/vnd.perdure.server-tool+json"


def account(type: str, name: str, *, input: object = None, result: object = None) -> File:
    """Return the canonical block for a call of a vendor's own tool, or for its result."""
    facts: dict[str, Any] = {"type": type, "name": name}
    if input is not None:
        facts["input"] = _readable(input)
    if result is not None:
        facts["result"] = _readable(result)
    body = json.dumps(facts, separators=(",", ":"), sort_keys=True).encode()
    return File(uri=data_url(MEDIA_TYPE, base64.b64encode(body).decode()), mime_type=MEDIA_TYPE)


def is_account(block: Block) -> bool:
    """True if a block describes a vendor's own tool."""
    return isinstance(block, File) and block.mime_type == MEDIA_TYPE


def told(block: File) -> str:
    """Return the account as one line: `[web_search: …]`."""
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
    return f"[{line}]"


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _readable(value: object) -> object:
    """Return a value without the fields that only its vendor reads; text is never cut."""
    match value:
        case Mapping():
            items = cast("Mapping[str, object]", value).items()
            return {str(key): _readable(item) for key, item in items if not _is_opaque(key, item)}
        case list() | tuple():
            return [_readable(item) for item in cast("list[object]", value)]
        case str() | bool() | int() | float() | None:
            return value
        case _:
            return str(value)


def _is_opaque(key: object, value: object) -> bool:
    """True for values that only the vendor reads: tokens, signatures, bytes, and empty fields."""
    if value is None or str(key).startswith("encrypted_") or key == "signature":
        return True
    if not isinstance(value, str) or len(value.split(maxsplit=1)) > 1:
        return False
    return key in ("data", "bytes") or (len(value) > 200 and not value.startswith(("http", "{", "[")))
