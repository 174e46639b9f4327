"""JSON documents that are given on the command line: requests, replies and message lists in files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from perdure.errors import Invalid

__all__ = ["GivenFile", "read_json"]

GivenFile: TypeAlias = Annotated[
    str, Parameter(name="FILE", help="The file, JSON; - is the input", allow_leading_hyphen=True)
]


def read_json(file: str) -> Any:
    """What the file says; raises `Invalid` if it is not JSON."""
    body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{file} is not JSON: {error}; nothing was done.") from error
