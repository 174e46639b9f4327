"""A framework's records: how they are stored, and how they are written while others write too.

A record is stored as JSON where Perdure can store that, else as the text of it.

A record comes back equal to what was given.  JSON has numbers and texts that Perdure does not store as a value, such as
integers of any length, NaN, half of a character, or lists nested very deeply; a record with one of them is stored as its
text, in ASCII.  Nothing that is stored is executed: it is read as JSON and nothing else.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Corrupt, Invalid, StaleHead, Unsupported
from perdure.model import canonical
from perdure.model.canonical import Json

__all__ = ["as_json", "check_version", "damaged", "is_stored", "restored", "stored", "until_written"]

_T = TypeVar("_T")
_WAIT_S = 0.01  # at most, after another writer was first; the next waits are longer
_VALUE, _TEXT = "value", "json"


def stored(record: object, what: str) -> dict[str, Json]:
    """Return how a record is stored; raises `Invalid`, calling it `what`, if it is no JSON object."""
    if not isinstance(record, Mapping):
        raise _not_json(what, f"it is a {type(record).__name__}")
    try:
        canonical.encode(cast("object", record))
    except (Invalid, RecursionError):
        return {_TEXT: _text(cast("Mapping[Any, Any]", record), what)}
    return {_VALUE: cast("Json", record)}


def is_stored(found: object) -> bool:
    """True if a value is a stored record."""
    if not isinstance(found, Mapping):
        return False
    given = cast("Mapping[str, Any]", found)
    if _VALUE in given:
        return isinstance(given[_VALUE], dict)
    try:
        return isinstance(json.loads(given[_TEXT]), dict)
    except (KeyError, TypeError, ValueError, RecursionError):
        return False


def restored(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a stored one."""
    return cast("dict[str, Any]", found[_VALUE] if _VALUE in found else json.loads(found[_TEXT]))


def as_json(value: object) -> Json:
    """Return a framework's value as JSON, or as a text if it is none."""
    try:
        return cast("Json", json.loads(json.dumps(value, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        return str(value)


def damaged(path: str, what: str) -> Corrupt:
    """Return the error for a path that should hold records and holds something else."""
    return Corrupt(
        f"{path} does not hold {what}; nothing was done.",
        code="framework_record_damaged",
        advice="See who changed it with `perdure threads log`, and undo that.",
        path=path,
    )


def check_version(found: object, known: int, path: str) -> None:
    """Raise `Unsupported` unless a record has the version that this program knows."""
    if found != known or isinstance(found, bool):
        raise Unsupported(
            f"{path} has version {str(found)[:20]}, and this program knows version {known}; nothing was done.",
            code="framework_record_version",
            advice="Use the version of perdure that wrote it, or a newer one.",
            path=path,
            known=known,
        )


def _text(record: Mapping[Any, Any], what: str) -> str:
    try:
        return json.dumps(dict(record))
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(what, str(error)[:200] or type(error).__name__) from error


def _not_json(what: str, why: str) -> Invalid:
    return Invalid(f"{what} is not a JSON object: {why}; nothing was written.", code="record_not_json")


def until_written(thread: str, undone: str, write: Callable[[], _T]) -> _T:
    """Return what `write` returns, which reads and writes again whenever another writer was first.

    Raises `Conflict`, saying what is `undone`, if others always were.
    """
    attempts, waits = Attempts(f"thread '{thread}'", undone), 0
    while True:
        attempts.begin()
        try:
            return write()
        except Conflict as lost:
            if not isinstance(lost, StaleHead) and lost.code != "chain_interrupted":
                raise
            waits += 1
            time.sleep(random.random() * _WAIT_S * waits)
