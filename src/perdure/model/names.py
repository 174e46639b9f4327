"""Checks paths and the names of agents, timelines, threads, calls and labels, and suggests names for mistyped ones.

Keys and names cannot be erased later, so they are checked before anything is written.
The same rules hold in every engine; none of them depends on what an engine can store.

A suggestion (`near`, `did_you_mean`) is only shown: nothing is looked up, opened or written by it.  It compares at
most `COMPARED_MAX` names, since a store may hold any number of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice

from perdure.errors import Invalid

__all__ = [
    "KERNEL_PREFIXES",
    "PATH_BYTES_MAX",
    "PATH_SEGMENTS_MAX",
    "check_choice",
    "check_flag",
    "check_id",
    "check_label",
    "check_name",
    "check_path",
    "check_person",
    "check_prefix",
    "check_words",
    "prefixes_of",
    "reserved",
    "under",
    "with_article",
    "COMPARED_MAX",
    "did_you_mean",
    "near",
]


PATH_BYTES_MAX = 512
PATH_SEGMENTS_MAX = 32
ID_BYTES_MAX = 200
KERNEL_PREFIXES = ("/__run", "/__kernel", "/__tool_call_scope")

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}\Z")
# Control characters, and the characters that make text run the other way: both can make one name look like another.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def with_article(noun: str) -> str:
    """Return `noun` with its article: an object, a list."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def check_path(path: str) -> str:
    """Return `path` if it can name a value; raises `Invalid`."""
    if not (type(path) is str and path.isascii() and path.isprintable() and 0 < len(path) <= PATH_BYTES_MAX):
        _check_text("path", path, PATH_BYTES_MAX)
    if not path.startswith("/") or path == "/":
        raise _refused("path_invalid", "path", path, "must start with '/' and name something below it")
    if path.count("/") > PATH_SEGMENTS_MAX:
        why = f"has more than {PATH_SEGMENTS_MAX} segments"
        raise _refused("path_too_deep", "path", path, why, limit=PATH_SEGMENTS_MAX)
    return path


def check_prefix(prefix: str) -> str:
    """Return `prefix` if paths can be under it: '/' for all of them, else a path, with or without a closing '/'."""
    return prefix if prefix == "/" else check_path(prefix)


def prefixes_of(prefix: str) -> tuple[str | None, str]:
    """Return the one path that `prefix` itself names, if any, and the text that all paths below it start with.

    '/notes' covers '/notes' and '/notes/…' but not '/notes2'; '/notes/' covers only what is below.
    """
    return (None, prefix) if prefix.endswith("/") else (prefix, prefix + "/")


def under(path: str, prefix: str) -> bool:
    """True if `prefix` covers `path`."""
    own, below = prefixes_of(prefix)
    return path == own or path.startswith(below)


def reserved(path: str) -> bool:
    """True if `path` belongs to Perdure: it is under one of `KERNEL_PREFIXES`."""
    return str(path).startswith("/__") and any(under(path, prefix) for prefix in KERNEL_PREFIXES)


def check_name(what: str, name: str) -> str:
    """Return `name` if an agent or a timeline can have it; raises `Invalid`."""
    if not isinstance(name, str) or not _NAME.match(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused(
            "name_invalid",
            what,
            name,
            "is not a name: use a-z, 0-9, '.', '_', '-' in up to 8 parts of up to 63 characters joined by '/', each "
            "starting with a letter or digit",
        )
    return name


def check_id(what: str, text: str) -> str:
    """Return `text` if a thread, message, call, run or write can have it as its id; raises `Invalid`."""
    if type(text) is str and text.isascii() and text.isprintable() and 0 < len(text) <= ID_BYTES_MAX:
        return text  # the usual case, without the slower checks
    return _check_text(what, text, ID_BYTES_MAX)


def check_label(what: str, text: str) -> str:
    """Return `text` if it can be a reason or an author; raises `Invalid`."""
    return check_id(what, text)


def check_person(by: str | None) -> None:
    """Raise `Invalid` unless `by` is a name with at least one visible letter, or None."""
    if by is not None and not any(
        unicodedata.category(letter)[0] in "LNPS" for letter in check_label("by", by)
    ):
        raise _refused("name_invisible", "by", by, "has no visible letter")


def check_words(what: str, text: str | None) -> None:
    """Raise `Invalid` unless `text` is free text that can be stored, or None."""
    if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused("not_text", what, text, "must be text")
    if text:
        _check_surrogates(what, text)


def check_flag(what: str, given: bool) -> None:
    """Raise `Invalid` unless `given` is True or False; a text such as "false" would count as true."""
    if not isinstance(given, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{what} is True or False, not {_shown(given)}; nothing was done.", code="flag_invalid", what=what
        )


def check_choice(what: str, given: str, choices: Sequence[str]) -> None:
    """Raise `Invalid` unless `given` is one of `choices`."""
    if not isinstance(given, str) or given not in choices:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{what} is {' or '.join(choices)}, not {_shown(given)}; nothing was done.",
            code="choice_invalid",
            what=what,
            choices=tuple(choices),
        )


def _check_text(what: str, text: str, bytes_max: int) -> str:
    if not isinstance(text, str) or not text:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused("not_text", what, text, "must be text and not empty")
    if not text.isascii() or not text.isprintable():
        _check_unicode(what, text)
    if len(text.encode()) > bytes_max:
        raise _refused("text_too_long", what, text, f"is longer than {bytes_max} bytes", limit=bytes_max)
    return text


def _check_unicode(what: str, text: str) -> None:
    _check_surrogates(what, text)
    if _UNSEEN.search(text):
        raise _refused("unseen_character", what, text, "holds a control or direction character")
    if not unicodedata.is_normalized("NFC", text):
        raise _refused(
            "not_normalised", what, text, "is not in Unicode form NFC", advice="Normalise it first."
        )


def _check_surrogates(what: str, text: str) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _refused("lone_surrogate", what, text, "holds a lone surrogate")


def _refused(
    code: str, what: str, text: object, why: str, *, advice: str = "", limit: int | None = None
) -> Invalid:
    facts = {"what": what} if limit is None else {"what": what, "limit": limit}
    return Invalid(f"{what} {_shown(text)} {why}; nothing was done.", code=code, advice=advice, **facts)


def _shown(text: object) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 100 else shown[:97] + "…'"


COMPARED_MAX = 2_000  # names
_SUGGESTIONS_MAX = 3
_LENGTH_MAX = 200  # characters of a name: comparing costs their product


def near(name: str, known: Iterable[str], *, likeness: float = 0.6) -> list[str]:
    """Return those of the first `COMPARED_MAX` names that are close to `name`, the closest first."""
    from difflib import get_close_matches  # slow to import, and needed only for errors

    if len(name) > _LENGTH_MAX:
        return []
    by_form: dict[str, str] = {}
    for each in islice(known, COMPARED_MAX):
        if each and each != name and len(each) <= _LENGTH_MAX:
            by_form.setdefault(each.casefold(), each)
    found = get_close_matches(name.casefold(), by_form, n=_SUGGESTIONS_MAX, cutoff=likeness)
    return [by_form[each] for each in found]


def did_you_mean(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return a question that names close names, with a space after it; empty if there are none."""
    found = near(name, known, likeness=likeness)
    return f"Did you mean {' or '.join(repr(each) for each in found)}? " if found else ""
