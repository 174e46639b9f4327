"""Checks paths and the names of agents, timelines, threads, calls, moments and labels, and suggests names for mistyped ones.

Keys and names cannot be erased later, so they are checked before anything is written.
The same rules hold in every engine; none of them depends on what an engine can store.

A suggestion (`near`, `did_you_mean`) is only shown: nothing is looked up, opened or written by it.  It compares at
most `COMPARED_MAX` names, since a store may hold any number of them.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from perdure.errors import Invalid

__all__ = [
    "KERNEL_PREFIXES",
    "OWN_OPS",
    "PART_MIN",
    "PATH_BYTES_MAX",
    "PATH_SEGMENTS_MAX",
    "SERVER_THREAD",
    "check_choice",
    "check_flag",
    "check_id",
    "check_label",
    "check_moment_name",
    "check_name",
    "check_op_id",
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
    "id_meant",
    "moment_label",
    "made_at_of",
    "near",
    "no_such_name",
    "retraction_label",
    "is_mistyped_address",
    "short_ids",
    "shown_address",
]


PATH_BYTES_MAX = 512
PATH_SEGMENTS_MAX = 32
ID_BYTES_MAX = 200
SERVER_THREAD = "perdure.server"  # the id of the thread that has the server's keys, and the name of its agent
KERNEL_PREFIXES = ("/__run", "/__kernel", "/__tool_call_scope")

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,7}\Z")
_MOMENT_NAME = re.compile(r"(?!turn:|version:)[a-z0-9][a-z0-9._-]{0,62}:.")  # those two are moments already
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
        advice = f"Write {_shown('/' + path)}." if path.strip("/") else ""
        raise _refused(
            "path_invalid", "path", path, "must start with '/' and name something below it", advice=advice
        )
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


def is_plain_id(text: str) -> bool:
    """True if `text` is short printable ASCII, which can be any id; other text may be one too."""
    return text.isascii() and text.isprintable() and 0 < len(text) <= ID_BYTES_MAX


def check_id(what: str, text: str) -> str:
    """Return `text` if a thread, message, call, run or write can have it as its id; raises `Invalid`."""
    if type(text) is str and text.isascii() and text.isprintable() and 0 < len(text) <= ID_BYTES_MAX:
        return text  # the usual case, without the slower checks
    return _check_text(what, text, ID_BYTES_MAX)


def check_label(what: str, text: str) -> str:
    """Return `text` if it can be a reason or an author; raises `Invalid`."""
    return check_id(what, text)


def check_moment_name(name: str) -> str:
    """Return `name` if another framework's name of a commit can be so: `framework:id`; raises `Invalid`."""
    if not _MOMENT_NAME.match(check_id("name", name)):
        raise _refused(
            "moment_name_invalid",
            "name",
            name,
            "is not of the form framework:id, with a framework of a-z, 0-9, '.', '_', '-' that is not turn or version",
        )
    return name


def moment_label(name: str) -> str:
    """Return the label of a commit with that name; the line break keeps it apart from message ids and run ids."""
    return f"name\n{name}"


def retraction_label(message: str | None) -> str:
    """Return the label of a commit that takes a message back; None: every message so far."""
    return f"retracted\n{message or ''}"


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
_BEGINNING_MIN = 3  # characters by which a longer name is suggested
_SUGGESTIONS_MAX = 3
_LENGTH_MAX = 200  # characters of a name: comparing costs their product


def near(name: str, known: Iterable[str], *, likeness: float = 0.6) -> list[str]:
    """Return those of the first `COMPARED_MAX` names that are close to `name`, the closest first, then longer ones.

    A close one is made from `name` by few edits: of a third of its characters at most, or of two.
    """
    from difflib import get_close_matches  # slow to import, and needed only for errors

    if len(name) > _LENGTH_MAX:
        return []
    by_form: dict[str, str] = {}
    for each in islice(known, COMPARED_MAX):
        if each and each != name and len(each) <= _LENGTH_MAX:
            by_form.setdefault(each.casefold(), each)
    form = name.casefold()
    alike = get_close_matches(form, by_form, n=3 * _SUGGESTIONS_MAX, cutoff=likeness)
    found = [each for each in alike if _edits(form, each) <= max(2, len(form) // 3)]
    longer = [each for each in by_form if each.startswith(form) and each not in found]
    found += longer if len(form) >= _BEGINNING_MIN else []
    return [by_form[each] for each in found[:_SUGGESTIONS_MAX]]


def _edits(one: str, other: str) -> int:
    """Return how many letters and digits have to be added, removed or replaced to make one name of the other."""
    one, other = ("".join(filter(str.isalnum, each)) for each in (one, other))
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        before, row[0] = row[0], at
        for place, wanted in enumerate(other, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != wanted)),
            )
    return row[-1]


def did_you_mean(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return a question that names close names, with a space after it; empty if there are none."""
    found = near(name, known, likeness=likeness)
    return f"Did you mean {' or '.join(repr(each) for each in found)}? " if found else ""


def no_such_name(owner: str, name: str, known: Iterable[str], usual: Mapping[str, str], *, what: str) -> str:
    """Return the sentence for a name that a class of ours does not have, with the one that is meant.

    `usual` has what other libraries call it, with what it is called here.
    """
    meant = usual.get(name.casefold())
    public = (each for each in known if not each.startswith("_"))
    hint = f"Did you mean {meant}?" if meant else did_you_mean(name, public).rstrip()
    return f"{owner} has no {what} '{name}'. {hint}".rstrip()


# ---- short ids

_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_END_MIN = 8  # characters of the end by which an id is shown
PART_MIN = 4  # characters that are accepted in place of a whole id
_END_MAX = (
    12  # characters of the end in which a part may lie anywhere: the last group of an id that Perdure made
)
_CUT = re.compile(r"…|\.\.\.")  # stands for the middle of an id that a person chose
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_CANDIDATES_MAX = 8


def short_ids(ids: Iterable[str], *, length_max: int | None = None) -> dict[str, str]:
    """Return for each id what is shown in its place, by which `id_meant` finds it among all of them.

    Ids that Perdure makes begin with the time, so those of one day begin alike; they are shown by their ends.  Any
    other id is shown whole, or by its beginning and its end, with … between, if it has more than `length_max`
    characters.  What is shown is longer where others begin and end alike.
    """
    whole = sorted(set(ids))
    shown = {each: each for each in whole}
    made = [each for each in whole if _MADE.match(each)]
    length = _END_MIN
    while made:
        ends = {each: _end(each, length) for each in made}
        sizes = {len(end) for end in ends.values()}
        taken = {size: Counter(each[-size:] for each in whole) for size in sizes}
        shown |= {
            each: end for each, end in ends.items() if taken[len(end)][end] == 1 and not _begins(whole, end)
        }
        made = [each for each in made if shown[each] == each and len(ends[each]) < len(each)]
        length += 1
    if length_max is not None:
        shown |= _middles(
            [each for each in whole if len(each) > length_max and shown[each] == each], length_max
        )
    return shown


def _begins(whole: Sequence[str], end: str) -> bool:
    """True if one of the sorted ids begins with the end of another."""
    at = bisect_left(whole, end)
    return at < len(whole) and whole[at].startswith(end)


def _middles(long: list[str], length: int) -> dict[str, str]:
    """Return ids without their middles, each so long that it fits no other."""
    shown: dict[str, str] = {}
    while long:
        parts = {each: (_head(each, (length - 1) // 2), _end(each, length // 2)) for each in long}
        alike = Counter(parts.values())
        for each, (head, end) in parts.items():
            if len(head) + len(end) + 1 >= len(each):
                shown[each] = each
            elif alike[head, end] == 1:
                shown[each] = f"{head}…{end}"
        long = [each for each in long if each not in shown]
        length += 8
    return shown


def _head(id: str, length: int) -> str:
    """Return at most that many first characters; fewer if they would end inside a sign."""
    while length and (
        unicodedata.combining(id[length]) or id[length] in _JOINERS or id[length - 1] in _JOINERS
    ):
        length -= 1
    return id[:length]


def _end(id: str, length: int) -> str:
    """Return at least that many last characters; more if they would begin like an option, or inside a sign."""
    start = max(0, len(id) - length)
    while start and (
        id[start] in f"-{_JOINERS}"
        or id[start - 1] in _JOINERS
        or id[start].isspace()
        or unicodedata.combining(id[start])
    ):
        start -= 1
    return id[start:]


def made_at_of(id: str) -> int | None:
    """Return when an id was made, in µs since 1970, UTC; None: Perdure did not make it."""
    return int(id[:8] + id[9:13], 16) * 1_000 if _MADE.match(id) and id[14] == "7" else None


def id_meant(given: str, known: Iterable[str], *, what: str, beginnings: bool = False) -> str | None:
    """Return the one of the `known` ids that is meant by a part of it; None if none fits.

    The end of an id that a program made is enough.  With `beginnings` its beginning is, too, and where no id begins or
    ends so, any part of the end that listings show.  Of an id that a person chose the part is its beginning and its
    end, with … (or ...) between, either of which may be empty.  Raises `Invalid`, naming the candidates, if the part
    fits several.
    """
    head, *rest = _CUT.split(given, maxsplit=1)
    fits: dict[str, None] = {}
    inside: dict[str, None] = {}
    for each in known:
        if each == given:
            return each
        if beginnings and given in each[-_END_MAX:] and _MADE.match(each) and len(given) >= PART_MIN:
            inside[each] = None
        if rest:
            long_enough = len(each) > len(head) + len(rest[0])
            is_meant = long_enough and each.startswith(head) and each.endswith(rest[0])
        else:
            # order-1 never means order-17; an imported id has a made one at its end
            is_meant = (each.endswith(given) and _MADE.search(each)) or (
                beginnings and each.startswith(given) and _MADE.match(each)
            )
        if is_meant and len(given) >= PART_MIN:
            fits[each] = None
    fits = fits or inside
    if len(fits) > 1:
        found = tuple(islice(fits, _CANDIDATES_MAX))
        more = ", …" if len(fits) > len(found) else ""
        raise Invalid(
            f"'{given}' fits more than one {what}: {', '.join(found)}{more}; nothing was done.",
            code="id_ambiguous",
            advice="Give more of it.",
            id=given,
            found=found,
        )
    return next(iter(fits), None)


# ---- op_ids

# The beginnings of op_ids that Perdure gives itself.
OWN_OPS = (
    "artifact/",
    "begin:",
    "copy:",
    "done:",
    "from:",
    "input:",
    "promoted:",
    "remove:",
    "renewal/",
    "upload:",
)


def check_op_id(op_id: str) -> str:
    """Return `op_id`; raises `Invalid` if it is reserved for Perdure's own writes."""
    if check_id("op_id", op_id).startswith(OWN_OPS):
        raise Invalid(
            f"op_id '{op_id}' begins like those that Perdure gives itself ({', '.join(OWN_OPS)}); nothing was written.",
            code="op_id_reserved",
            advice="Begin it with something else.",
            op_id=op_id,
        )
    return op_id


# ---- addresses of stores

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)(?P<rest>.*)", re.DOTALL)
_SECRET = re.compile(
    r"((?:^|[^\w.-])[\w.-]*(?:passw|pwd|secret|token)[\w.-]*\s*(?:=|%3D))[^&]*", re.IGNORECASE | re.DOTALL
)
_NO_PORT = re.compile(r":(?![0-9]*(?:$|[/?,])).*", re.DOTALL)  # what follows a colon and is no port
_BRACKETS = re.compile(r"\[[0-9A-Fa-f:.%]*\]")  # the address of a host, which has colons of its own
_WITHOUT_ACCOUNTS = ("sqlite", "memory")  # what follows them is a path or a name
_MISTYPED = re.compile(
    r".*://|[\s\"'<(]*postgres.*(?://|@)|(?:.*[^\w])?password\s*=", re.IGNORECASE | re.DOTALL
)
_USER_ALONE = re.compile(r"[A-Za-z][\w-]*@[^@:=\s]*")  # the name of a user, and no password
_MISTYPED_SCHEME = re.compile(r"\W*([\w+.-]*)\s*:?\s*(/*)")


def is_mistyped_address(path: str) -> bool:
    """True if this is no path of a file, but what was meant to be the address of a server."""
    return _MISTYPED.match(path) is not None


def shown_address(url: str) -> str:
    """Return `url` without its password.

    What is not written as an address should be may hide one anywhere before its last `@`, and without an `@` after a
    colon, so all of that is left out.
    """
    found = _ADDRESS.fullmatch(url)
    if found is None:
        if not is_mistyped_address(url) or _USER_ALONE.fullmatch(url):
            return url
        begun = _MISTYPED_SCHEME.match(url)
        scheme, slashes = (begun[1], begun[2]) if begun else ("", "")
        _, at, place = _SECRET.sub(r"\1***", url).rpartition("@")
        return f"{scheme}{slashes}***{at}{_NO_PORT.sub(':***', place) if at else ''}"
    if found["scheme"].lower() in _WITHOUT_ACCOUNTS:
        return url
    account, at, place = _SECRET.sub(r"\1***", found["rest"]).rpartition("@")
    if not at and not _BRACKETS.match(place):
        authority, slash, path = place.partition("?")
        place = _NO_PORT.sub(":***", authority) if _NO_PORT.search(authority) else authority + slash + path
    return f"{found['scheme']}:{found['slashes']}{account.partition(':')[0]}{at}{place}"
