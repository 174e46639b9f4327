"""Values that are given on the command line: JSON text, or @FILE for a file that holds it.

JSON documents that are given on the command line: requests, replies and message lists in files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from perdure.errors import Invalid
from perdure.ledger.json_schema import parse_value

__all__ = ["GivenValue", "parsed", "GivenFile", "read_json"]


GivenValue: TypeAlias = Annotated[
    str,
    Parameter(
        name="--value",
        metavar="JSON",
        allow_leading_hyphen=True,
        help="The value as JSON text; @FILE reads it from a file, @- from the input",
    ),
]


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
        return (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{option}: {name} is not text ({error}); nothing was decided.",
            code="not_utf8",
            option=option,
        ) from error


GivenFile: TypeAlias = Annotated[
    str, Parameter(name="FILE", help="The file, JSON; - is the input", allow_leading_hyphen=True)
]


def read_json(file: str) -> Any:
    """Return the JSON of a file; raises `Invalid` if it is none."""
    body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"{file} is not JSON: {error}; nothing was done.",
            code="not_json",
            file=file,
        ) from error
