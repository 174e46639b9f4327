"""Text and times in answers: safe to show, and one way to write each.

A terminal obeys what it is sent.  What others wrote is therefore never sent as it is: every control, direction or
invisible character is shown by its code, such as \\x1b.  Times are written 2026-01-31T12:00:00.000000Z.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # a command that touches no store loads none
    from perdure.history.tree import Entry
    from perdure.store.view import View

__all__ = [
    "in_json",
    "in_short",
    "inline",
    "named",
    "now",
    "preview",
    "safe",
    "safe_json",
    "shortened",
    "size",
    "spelled",
    "stamp",
]

_PREVIEW_BYTES_MAX = 4_096
_PREVIEW_LENGTH = 60

# C0 and C1 controls, soft hyphen, direction marks, zero width space, separators, word joiners and isolates,
# byte order mark, annotations, lone surrogates, tags.  Joiners (U+200C, U+200D) stay: scripts and emoji need them.
_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff"
)
_unsafe = re.compile(f"[{_UNSAFE}]")
_unsafe_but_lines = re.compile(f"(?!\n)[{_UNSAFE}]")


def safe(text: str) -> str:
    """Return `text` with line breaks kept, tabs as spaces and everything that a terminal might obey spelled out."""
    return _unsafe_but_lines.sub(_spelled, text.replace("\t", "    "))


def inline(text: str) -> str:
    """Return `text` on one line: line breaks are shown as ↵, tabs as a space."""
    return _unsafe.sub(_spelled, text.strip().replace("\r\n", "\n").replace("\n", "↵").replace("\t", " "))


def spelled(text: str) -> str:
    """Return `text` with every unsafe character spelled out, line breaks and tabs included."""
    return _unsafe.sub(_spelled, text)


def shortened(text: str, length: int) -> str:
    """Return `text` on one line of at most `length` characters."""
    line = inline(text[: 4 * length])
    return line if len(line) <= length and len(text) <= 4 * length else line[: length - 1] + "…"


def safe_json(value: object, *, indent: int | None = 2) -> str:
    """Return the JSON text of `value`, exact, with unsafe characters escaped as JSON escapes them."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _unsafe_but_lines.sub(_escaped, text)


_DEPTH_MAX = 500


def in_json(text: str | None) -> Any:
    """Return the value of JSON text; the text itself if it is no JSON, None for None."""
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=_none_of_ours)
        safe_json(value, indent=None)  # what is nested too deeply to be printed stays text
    except (ValueError, RecursionError):
        return text
    return text if _is_deep(value) else value


def _is_deep(value: Any) -> bool:
    """True if a value is nested more deeply than every reader of JSON takes, whatever this interpreter takes."""
    level = [value]
    for _ in range(_DEPTH_MAX):
        level = [
            each
            for inner in level
            if isinstance(inner, dict | list)
            for each in (inner.values() if isinstance(inner, dict) else inner)
        ]
        if not level:
            return False
    return True


def preview(view: View, entry: Entry) -> str:
    """Return the value of an entry on one line; a large one is only described."""
    if entry.form == "bytes":
        return f"{entry.media_type}, {size(entry.size)}"
    if entry.size > _PREVIEW_BYTES_MAX:
        return f"JSON, {size(entry.size)}"
    return in_short(view.get(entry.path))


def in_short(value: object) -> str:
    """Return the JSON of a value on one line, shortened."""
    return shortened(safe_json(value, indent=None), _PREVIEW_LENGTH)


def now() -> int:
    """Return the time in µs since 1970, UTC."""
    return time.time_ns() // 1_000


def stamp(at: int) -> str:
    """Return a time in µs as programs read it: 2026-01-31T12:00:00.000000Z."""
    try:
        time_at = datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)
    except (OverflowError, ValueError, OSError):
        time_at = datetime(
            1, 1, 1, tzinfo=UTC
        )  # a clock that was wrong when it was asked must not stop a reader
    return time_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def size(number: int) -> str:
    """Return a number of bytes: 812 B, 3.4 KB, 1.2 GB."""
    if number < 1_000:
        return f"{number} B"
    amount = float(number)
    for unit in ("KB", "MB", "GB", "TB", "PB"):
        amount /= 1_000
        if amount < 999.5:
            return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:.0f} {unit}"
    return f"{amount:.0f} PB"


def _none_of_ours(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def named(value: object) -> object:
    """Return named tuples as objects with names, as facts about paths are."""
    if not isinstance(value, tuple | list):
        return value
    items = cast("Sequence[object]", value)
    names: tuple[str, ...] | None = getattr(items, "_fields", None)
    return [named(each) for each in items] if names is None else dict(zip(names, items, strict=True))
