"""Making stored text safe to show: no character in it can move the cursor, hide or reverse anything.

A terminal obeys what it is sent.  What others wrote is therefore never sent as it is: every
control, direction or invisible character is shown by its code, such as \\x1b.
"""

from __future__ import annotations

import json
import re

__all__ = ["inline", "safe", "safe_json", "shortened", "spelled"]

# C0 and C1 controls, soft hyphen, direction marks, zero width space, separators, word joiners and isolates,
# byte order mark, annotations, lone surrogates, tags.  Joiners (U+200C, U+200D) stay: scripts and emoji need them.
_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff"
)
_unsafe = re.compile(f"[{_UNSAFE}]")
_unsafe_but_lines = re.compile(f"(?!\n)[{_UNSAFE}]")


def safe(text: str) -> str:
    """`text` with line breaks kept, tabs as spaces and everything that a terminal might obey spelled out."""
    return _unsafe_but_lines.sub(_spelled, text.replace("\t", "    "))


def inline(text: str) -> str:
    """`text` on one line: line breaks are shown as ↵, tabs as a space."""
    return _unsafe.sub(_spelled, text.strip().replace("\r\n", "\n").replace("\n", "↵").replace("\t", " "))


def spelled(text: str) -> str:
    """`text` with every unsafe character spelled out, line breaks and tabs included."""
    return _unsafe.sub(_spelled, text)


def shortened(text: str, length: int) -> str:
    """`text` on one line of at most `length` characters."""
    line = inline(text[: 4 * length])
    return line if len(line) <= length and len(text) <= 4 * length else line[: length - 1] + "…"


def safe_json(value: object, *, indent: int | None = 2) -> str:
    """The JSON text of `value`, exact, with unsafe characters escaped as JSON escapes them."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _unsafe_but_lines.sub(_escaped, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]
