"""Names for the ids of other frameworks, which may be of any length and have any characters.

An id that Perdure accepts as it is keeps its text, so that people recognise it; any other is named `~` and its SHA-256.
An id that begins with `~` is always hashed, so no id can look like the name of another.  Names are compared as a whole:
neither a common beginning nor an escape makes two ids one.  The name of a hashed id does not contain it; a framework's
record stores the exact text beside it.
"""

from __future__ import annotations

import re
from hashlib import sha256

from perdure.errors import Invalid
from perdure.model import names

__all__ = ["moment_name", "path_segment", "thread_id"]

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:=-]{0,99}\Z")


def thread_id(text: str) -> str:
    """Return the id of the thread, message or call that has this id in another framework."""
    digest = _hashed(text)
    try:
        return digest if text.startswith("~") else names.check_id("id", text)
    except Invalid:
        return digest


def moment_name(framework: str, text: str) -> str:
    """Return the name of the commit that has this id in another framework: `framework:id`."""
    if isinstance(text, str) and not text.startswith("~"):  # pyright: ignore[reportUnnecessaryIsInstance]
        try:
            return names.check_moment_name(f"{framework}:{text}")
        except Invalid:
            pass
    return names.check_moment_name(f"{framework}:{_hashed(text)}")


def path_segment(text: str) -> str:
    """Return one segment of a path for an id or a name of another framework; the empty text has one too."""
    return text if _SEGMENT.match(text) else _hashed(text)


def _hashed(text: str) -> str:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(f"an id is text, not {text!r}; nothing was done.", code="id_not_text")
    # Lone surrogates are no text in UTF-8, but a framework may have them in an id.
    return "~" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
