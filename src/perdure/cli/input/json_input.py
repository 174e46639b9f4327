"""What is given on the command line: values as JSON text or in a @FILE, and files.

JSON documents are requests, replies and message lists in files.
"""

from __future__ import annotations

import json
import re
import shlex
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

from cyclopts import Parameter

from perdure.errors import Conflict, Invalid, NotFound
from perdure.ledger.json_schema import parse_value

__all__ = [
    "GivenArguments",
    "GivenFile",
    "GivenValue",
    "begins_as_json",
    "holds_messages",
    "naming_file",
    "parsed",
    "place_in_file",
    "read_bytes",
    "read_conversation",
    "read_json",
    "read_values",
    "reading_file",
    "with_argument",
]

_ITEM = re.compile(r"(?:messages|input|contents)\[(\d+)\]\.?(.*)", re.DOTALL)
_NOT_ASCII = re.compile("[\u0080-\ud7ff\ue000-\U0010ffff]")  # characters that UTF-8 has several bytes for
_MESSAGES_DEPTH_MAX = 3  # of lists and objects around the messages
_PARTIES = frozenset({"role", "from", "author", "speaker", "sender"})  # fields of messages
_WORDS = frozenset({"content", "value", "text", "message", "parts"})
_BYTES_MAX = 1 << 30  # of a file or a pipe that is read as a whole

GivenValue: TypeAlias = Annotated[
    str,
    Parameter(
        name="--value",
        metavar="JSON",
        allow_leading_hyphen=True,
        help="The value as JSON text; @FILE reads it from a file, @- from the input",
    ),
]

GivenArguments: TypeAlias = Annotated[
    str,
    Parameter(
        name="--value",
        metavar="JSON",
        allow_leading_hyphen=True,
        help="The new arguments: NAME=VALUE changes one and keeps the rest, JSON text replaces all; @FILE reads JSON from a "
        "file, @- from the input",
    ),
]


def with_argument(arguments: object, text: str) -> object:
    """Return the arguments with the one replaced that `text` names as NAME=VALUE; None if it names none of them."""
    name, equals, value = text.partition("=")
    if not equals or not isinstance(arguments, dict) or name.strip() not in arguments:
        return None
    try:
        new: object = json.loads(value)
    except ValueError:
        new = value.strip()  # words need no quotes
    return cast("dict[str, object]", arguments) | {name.strip(): new}


def parsed(given: str, option: str) -> Any:
    """Return the value of an option: JSON, @FILE, or @- for the input.  Raises `Invalid` if it is not JSON."""
    text = _read(given[1:], option) if given.startswith("@") else given
    try:
        return parse_value(text, option)
    except Invalid as error:
        advice = "Text is written with quotes, as '\"milk\"'."
        raise Invalid(error.message, code=error.code, advice=advice) from error


def _read(name: str, option: str) -> str:
    try:
        return read_bytes(name, undone="nothing was decided").decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{option}: {name} is not text ({error}); nothing was decided.",
            code="not_utf8",
            option=option,
        ) from error


GivenFile: TypeAlias = Annotated[
    str, Parameter(name="FILE", help="The file, JSON; - is the input", allow_leading_hyphen=True)
]


@contextmanager
def reading_file(file: str, *, undone: str) -> Generator[None]:
    """Open and read `file` in the block; raises `NotFound` if that cannot be done, saying what was not done.

    Raises `Invalid` for a device, which may have no end.
    """
    try:
        mode = Path(file).stat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise Invalid(
                f"'{file}' is a device, not a file or a pipe; {undone}.",
                code="file_is_device",
                advice="Name a file, or - for the input.",
                file=file,
            )
        yield
    except FileNotFoundError as error:
        raise NotFound(f"there is no file '{file}'; {undone}.", code="file_not_found", file=file) from error
    except OSError as error:
        raise NotFound(
            f"the file '{file}' could not be read ({error.strerror}); {undone}.",
            code="file_unreadable",
            file=file,
        ) from error


def read_bytes(file: str, *, undone: str) -> bytes:
    """Return what a file holds; - is the input.

    Raises `NotFound` if it cannot be read, `Invalid` if it is a device or larger than a document can be.
    """
    if file == "-":
        body = sys.stdin.buffer.read(_BYTES_MAX + 1)
    else:
        with reading_file(file, undone=undone), Path(file).open("rb") as opened:
            body = opened.read(_BYTES_MAX + 1)
    if len(body) > _BYTES_MAX:
        raise Invalid(
            f"{'the input' if file == '-' else file} is longer than {_BYTES_MAX:,} bytes; {undone}.",
            code="file_too_large",
            advice="Content of that size is an artifact: `perdure artifacts put THREAD FILE`.",
            file=file,
            limit=_BYTES_MAX,
        )
    return body


def read_json(file: str, *, undone: str = "nothing was done") -> Any:
    """Return the JSON of a file; raises `Invalid` if it is none."""
    return _json_of(file, _text_of(file, undone), undone)


def begins_as_json(file: str) -> bool:
    """True if a file begins as an object or a list of JSON, in any encoding of Unicode."""
    with Path(file).open("rb") as opened:
        head = opened.read(64)
    return head.decode(json.detect_encoding(head), "ignore").lstrip("\ufeff \t\r\n")[:1] in ("{", "[")


def holds_messages(file: str) -> bool:
    """True if a file is JSON, or JSON lines, with messages of any form, in UTF-8, UTF-16, UTF-32 or Latin-1."""
    body = read_bytes(file, undone="nothing was imported")
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
    except UnicodeDecodeError:
        text = body.decode("latin-1")
    try:
        return _has_messages(json.loads(text))
    except (ValueError, RecursionError):
        first = next((row for row in text.split("\n") if row.strip()), "")
        return _is_json(first) and _has_messages([json.loads(first)])


def _has_messages(value: object, depth: int = 0) -> bool:
    """True if a list in `value` has only objects with a party and words, as messages of any program have."""
    if isinstance(value, dict):
        held = cast("dict[str, object]", value).values()
        return depth < _MESSAGES_DEPTH_MAX and any(_has_messages(each, depth + 1) for each in held)
    if not isinstance(value, list) or not value:
        return False
    items = cast("list[object]", value)
    fields = [
        set(cast("dict[str, object]", each)) if isinstance(each, dict) else set[str]() for each in items
    ]
    if all(each & _PARTIES and each & _WORDS for each in fields):
        return True
    return depth < _MESSAGES_DEPTH_MAX and any(_has_messages(each, depth + 1) for each in items[:1])


def read_conversation(file: str) -> tuple[Any, tuple[int, ...]]:
    """Return what a file holds: one JSON, or a list of the messages that its lines are, with their numbers.

    A broken byte in text that is otherwise UTF-8 is read as half a character, for `prepared` to repair and report.
    """
    given, lines = read_values(file, undone="nothing was imported", takes_broken_bytes=True)
    whole = sum(isinstance(each, dict) and "messages" in each for each in given) if lines else 0
    if whole:
        raise Invalid(
            f"{file} holds {whole} conversations, one a line, and a thread holds one; nothing was imported.",
            code="conversations_several",
            advice="Save each of them as a file of its own, as with `split -l 1 --additional-suffix=.json`, and import it "
            "to a thread of its own.",
            file=file,
            conversations=whole,
        )
    return given, lines


@contextmanager
def naming_file(
    file: str,
    lines: Sequence[int],
    thread: str = "",
    advised: Callable[[Invalid | Conflict], str] | None = None,
) -> Generator[None]:
    """Let errors of the block name the file, the thread that it is added to, and lines in place of items of the list.

    They have the advice that `advised` returns.
    """
    try:
        yield
    except (Invalid, Conflict) as error:
        if type(error) not in (Invalid, Conflict):
            raise
        told, facts = error.message, error.facts
        advice = error.advice if advised is None else advised(error)
        where, fault, differs = (facts.get(name) for name in ("where", "fault", "differs"))
        if isinstance(where, str) and fault and (place := place_in_file(where, lines, file)) != where:
            facts = {**facts, "where": place}
            told = f"{place} {fault}; nothing was imported."
        if isinstance(differs, int) and lines and facts.get("messages") == len(lines):
            told += f" Number {differs} is line {lines[differs - 1]} of {file}."
        named = "the input" if file == "-" else file
        if thread and f"'{thread}'" not in told:
            told = f"{named}, for thread '{thread}': {told}"
        elif named not in told:
            told = f"{named}: {told}"
        raise type(error)(told, code=error.code, advice=advice, **facts) from error


def place_in_file(where: str, lines: Sequence[int], file: str = "") -> str:
    """Return a place of a list by the line of its file, such as "line 7: content[0]"; as it is without lines."""
    found = _ITEM.match(where)
    if found is None or int(found[1]) >= len(lines):
        return where
    line = f"line {lines[int(found[1])]}" + (f" of {file}" if file else "")
    return f"{line}: {found[2]}" if found[2] else line


def read_values(file: str, *, undone: str, takes_broken_bytes: bool = False) -> tuple[Any, tuple[int, ...]]:
    """Return the JSON of a file, or the values of JSON lines as a list, each with its line; no lines for one JSON.

    Raises `Invalid` if it is neither, and names the first line that is no JSON.
    """
    text = _text_of(file, undone, takes_broken_bytes=takes_broken_bytes)
    rows = [(at, row) for at, row in enumerate(text.split("\n"), 1) if row.strip()]
    if len(rows) < 2 or not rows[0][1].lstrip().startswith("{") or not _is_json(rows[0][1]):
        return _json_of(file, text, undone), ()
    values = [_json_of(f"line {at} of {file}", row, undone, is_row=True) for at, row in rows]
    return values, tuple(at for at, _ in rows)


def _text_of(file: str, undone: str, *, takes_broken_bytes: bool = False) -> str:
    """Return the text of a file; raises `Invalid` if it is empty or in no encoding of Unicode."""
    body = read_bytes(file, undone=undone)
    if not body.strip():
        raise Invalid(f"{file} is empty; {undone}.", code="file_empty", file=file)
    encoding = json.detect_encoding(body)
    try:
        return body.decode(encoding, "surrogatepass")
    except UnicodeDecodeError as error:
        is_utf8 = takes_broken_bytes and encoding.startswith("utf-8")
        text = body.decode("utf-8", "surrogateescape") if is_utf8 else ""
        if _NOT_ASCII.search(text):  # so it is no text in Latin-1, of which such letters would be bytes
            return text.removeprefix("\ufeff")
        raise Invalid(
            f"{file} is not text in UTF-8: byte {error.start + 1:,} is no part of a character; {undone}.",
            code="not_utf8",
            advice=f"Save it as UTF-8, as with `iconv -f latin1 -t utf8 {shlex.quote(file)} > utf8.json`.",
            file=file,
        ) from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _json_of(file: str, text: str, undone: str, *, is_row: bool = False) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = str(error)
        if is_row and isinstance(error, json.JSONDecodeError):  # its own line is that of the row: 1
            why = f"{error.msg} (column {error.colno})"
        raise Invalid(
            f"{file} is not JSON: {why}; {undone}.",
            code="not_json",
            file=file,
        ) from error
