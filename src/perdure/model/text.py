"""Prepares text for models and records: repairs lone surrogates, renders errors in one line, cuts long text.

Text from tools and vendors can hold lone surrogates or be very long, and a value's `repr` can raise.  The functions
here return text that can always be encoded and sent.  The original stays in the store as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from perdure.errors import PerdureError

__all__ = [
    "SHOWN_BYTES",
    "WHY_CHARACTERS_MAX",
    "cut",
    "described",
    "said_by",
    "shortened",
    "shown",
    "told_by",
    "well_formed",
    "well_formed_json",
]

WHY_CHARACTERS_MAX = 2_000  # of a reason in a record
SHOWN_BYTES = 16 * 1024  # of one result or error in a prompt


def well_formed(text: str) -> str:
    """Return `text` with U+FFFD in the place of each lone surrogate; two halves of one character are joined."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def well_formed_json(value: Any) -> Any:
    """Return JSON `value` with every string in it repaired as `well_formed` does, keys too."""
    match value:
        case str():
            return well_formed(value)
        case list() | tuple():
            return [well_formed_json(item) for item in cast("list[Any]", value)]
        case Mapping():
            items = cast("Mapping[str, Any]", value).items()
            return {well_formed(key): well_formed_json(item) for key, item in items}
        case _:
            return value


def shortened(text: str, characters_max: int = WHY_CHARACTERS_MAX) -> str:
    """Return `text` if it is short enough, else its beginning."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def shown(text: str) -> str:
    """Return `text` if a prompt can hold all of it, else its head and tail with a note of how much is left out."""
    parts = cut(text, SHOWN_BYTES)
    if parts is None:
        return text
    head, tail = parts
    left = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left:,} of {len(text):,} characters are left out here, and were not kept …]\n{tail}"


def said_by(error: BaseException, *, advice: bool = True) -> str:
    """Return the type and the message of an error, shortened for a record; with its advice, unless that is not wanted."""
    return shortened(told_by(error, advice=advice))


def told_by(error: BaseException, *, advice: bool = True) -> str:
    """Return the type, the message and the notes of an error as text; with its advice, unless that is not wanted."""
    kind = type(error).__name__
    try:
        message = error.message if isinstance(error, PerdureError) and not advice else str(error)
    except Exception as failure:  # noqa: BLE001  # the error's own code, which may raise anything
        message = f"(it cannot be shown: {type(failure).__name__})"
    notes = [each for each in getattr(error, "__notes__", ()) if isinstance(each, str)]
    text = f"{kind}: {message}" if message else kind
    return well_formed("; ".join([text.rstrip(".") if notes else text, *notes]))


def described(value: object) -> str:
    """Return the `repr` of a value, or its type if `repr` raises."""
    try:
        return repr(value)
    except Exception as failure:  # noqa: BLE001  # a tool's value: the result must not be lost because `repr` raises
        if isinstance(value, int):  # of more digits than Python writes out
            return hex(value)
        return f"<{type(value).__qualname__} whose repr raised {type(failure).__name__}>"


def cut(text: str, bytes_max: int) -> tuple[str, str] | None:
    """Return the head and the tail of `text`, together at most `bytes_max` of UTF-8; None if all of it fits.

    Two thirds are head.  No character is cut in two.
    """
    if len(text) * 4 <= bytes_max:
        return None
    body = text.encode("utf-8", "replace")
    if len(body) <= bytes_max:
        return None
    tail = bytes_max // 3
    head = body[: bytes_max - tail].decode("utf-8", "ignore")
    return head, body[len(body) - tail :].decode("utf-8", "ignore") if tail else ""
