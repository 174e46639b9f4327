"""Turns names from data into names in a git tree that cannot leave their directory or be taken for git's own.

A segment of a path keeps letters, digits and a few signs.  Every other character is written as
%XX, byte by byte, and so are a dot that begins or ends a segment or follows another dot, and the
first letter of a name that Windows keeps for a device.  So nothing is `.`, `..`, `.git` in any
spelling, or `git~1`; and what is written can be read back, so two names never become one.
`%` followed by anything but two of 0-9A-F is a mark that Perdure adds.

The characters that stay are a fixed list, not a property from the tables of a Unicode version:
another Python must not make other hashes.
"""

from __future__ import annotations

import re
from hashlib import sha256

__all__ = ["BRANCHES", "branch_of", "path_of", "segment_of"]

BRANCHES = "refs/heads/"

_EMPTY = "%_"  # a segment without any characters
_VALUE = "%value"  # the value of a path that has others below it
_HASHED = "%h"  # then the SHA-256 of a segment that is too long
_LENGTH_MAX = 200  # bytes of a segment; file systems take 255, and git adds `.lock`
_BEGINNING = 100  # bytes that stay of one that is too long

# Left out: controls, spaces, joiners and other invisible characters, direction marks, general punctuation,
# variation selectors, full-width forms, private use, specials and tags.
_ALLOWED = (
    r"A-Za-z0-9_.,=+@\-"
    "\u00a1-\u00ac\u00ae-\u034e\u0350-\u061b\u061d-\u115e\u1161-\u17b3\u17b6-\u180a\u1810-\u1fff\u2070-\u2fff"
    "\u3001-\u3163\u3165-\ud7ff\uf900-\ufdff\ufe10-\ufefe"
    "\U00010000-\U0001bc9f\U0001bca4-\U0001d172\U0001d17b-\U0003ffff"
)
_CODED = re.compile(rf"[^{_ALLOWED}]|^\.|\.\Z|(?<=\.)\.")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\.|\Z)", re.IGNORECASE)
_UNIT = re.compile(r"%[0-9A-F]{2}|.", re.DOTALL)


def segment_of(text: str) -> str:
    """Return one segment of a path: `text` as a harmless file name that no other text has."""
    if not text:
        return _EMPTY
    written = _CODED.sub(lambda found: _codes(found[0]), text)
    if _DEVICE.match(text):
        written = _codes(text[0]) + written[1:]
    return written if len(_bytes(written)) <= _LENGTH_MAX else _beginning(written) + _hash(text)


def path_of(key: str, *, above: bool) -> str:
    """Return the file that holds the value at the path `key` of a state.

    `above`: other paths of the same state are below it, so that its own name is a directory.
    """
    segments = [segment_of(segment) for segment in key.removeprefix("/").split("/")]
    return "/".join([*segments, _VALUE] if above else segments)


def branch_of(timeline: str) -> str:
    """Return the name of a timeline's branch.

    It has one segment: `a` and `a/b` may both be timelines, and cannot both be branches.
    """
    name = segment_of(timeline)
    return f"{name[:-5]}%2Elock" if name.endswith(".lock") else name


def _beginning(written: str) -> str:
    """Return the beginning of a segment, cut between characters."""
    beginning, length = "", 0
    for unit in _UNIT.findall(written):
        length += len(_bytes(unit))
        if length > _BEGINNING:
            break
        beginning += unit
    return beginning


def _hash(text: str) -> str:
    return _HASHED + sha256(_bytes(text)).hexdigest()


def _codes(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in _bytes(text))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
