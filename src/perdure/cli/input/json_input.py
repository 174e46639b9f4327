"""What is given on the command line: values as JSON text or in a @FILE, and files.

JSON documents are requests, replies and message lists in files.
"""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

from cyclopts import Parameter

from perdure.errors import Invalid, NotFound
from perdure.ledger.json_schema import parse_value

__all__ = [
    "GivenArguments",
    "GivenFile",
    "GivenValue",
    "parsed",
    "read_bytes",
    "read_json",
    "read_values",
    "reading_file",
    "with_argument",
]

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


def read_values(file: str, *, undone: str) -> tuple[Any, tuple[int, ...]]:
    """Return the JSON of a file, or the values of JSON lines as a list, each with its line; no lines for one JSON.

    Raises `Invalid` if it is neither, and names the first line that is no JSON.
    """
    text = _text_of(file, undone)
    rows = [(at, row) for at, row in enumerate(text.split("\n"), 1) if row.strip()]
    if len(rows) < 2 or not rows[0][1].lstrip().startswith("{") or not _is_json(rows[0][1]):
        return _json_of(file, text, undone), ()
    values = [_json_of(f"line {at} of {file}", row, undone, is_row=True) for at, row in rows]
    return values, tuple(at for at, _ in rows)


def _text_of(file: str, undone: str) -> str:
    """Return the text of a file; raises `Invalid` if it is empty or in no encoding of Unicode."""
    body = read_bytes(file, undone=undone)
    if not body.strip():
        raise Invalid(f"{file} is empty; {undone}.", code="file_empty", file=file)
    try:
        return body.decode(json.detect_encoding(body), "surrogatepass")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{file} is not text in UTF-8: byte {error.start + 1:,} is no part of a character; {undone}.",
            code="not_utf8",
            advice="Save it as UTF-8, as with `iconv -f latin1 -t utf8`.",
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
