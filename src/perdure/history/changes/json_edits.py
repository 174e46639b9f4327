"""Edits one place of a JSON document: set, unset, insert, append, merge, increment, remove.

Each op takes a document and returns another; it never alters the one it took.  A place is
a tuple of keys and indexes from the top, never a dotted string; an index counts from 0
and never from the end.  An op that does not fit raises and changes nothing: `NotFound` if
the place does not exist, `Invalid` if something else is there.

`read` returns what is at a place.  In text a place is a JSON list, such as `["jam", 0]`, or a bare word for one key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from msgspec import UNSET, UnsetType

from perdure.errors import Invalid, NotFound
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.patch import Verb

__all__ = ["Place", "apply", "check_place", "nested_place", "parse_place", "read", "spell_place"]

Place: TypeAlias = tuple[str | int, ...]

_Change: TypeAlias = Callable[[Json], Json]


def apply(document: Json, verb: Verb, at: Place, argument: Json, *, path: str) -> Json:
    """Return the document after `verb` at the place `at`; `path` names the document in errors.

    `set` and `unset` change the entry of a dict or the item of a list that the place ends in,
    and `insert` puts an item before it.  `append`, `merge`, `increment` and `remove` change the
    list, dict or number that is at the place; `remove` removes the first item that equals
    its argument.
    """
    return _VERBS[verb](_Where(path, at), document, argument)


def read(document: Json, at: Place) -> Json | UnsetType:
    """Return what is at the place; unset: the document has no such place."""
    here = document
    for step in at:
        match here, step:
            case dict(), str() if step in here:
                here = here[step]
            case list(), int() if 0 <= step < len(here):
                here = here[step]
            case _:
                return UNSET
    return here


def parse_place(text: str) -> Place:
    """Return the place that a text spells: a JSON list, or else one key; raises `Invalid`."""
    if not text.startswith("["):
        return (text,)
    try:
        steps = canonical.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"{text} is no place in a document: {error}.",
            code="place_invalid",
            advice="""Write one key, or a JSON list of keys and indexes: '["jam", 0]'.""",
            place=text,
        ) from error
    return check_place(steps)


def spell_place(at: Place) -> str:
    """Return the text that `parse_place` reads."""
    if len(at) == 1 and isinstance(at[0], str) and not at[0].startswith("["):
        return at[0]
    return json.dumps(at, ensure_ascii=False)


def nested_place(at: Place) -> Place | None:
    """Return the place that one key with dots or slashes, as other notations have it, would mean; None: none."""
    if len(at) != 1 or not isinstance(at[0], str):
        return None
    steps = [each for each in re.split(r"[./]", at[0]) if each]
    return tuple(int(each) if each.isdecimal() else each for each in steps) if len(steps) > 1 else None


def check_place(at: object) -> Place:
    """Return `at` as a place; raises `Invalid` unless it is a list or tuple of keys and indexes."""
    if not isinstance(at, list | tuple):
        raise Invalid(
            f"a place in a document is a list of keys and indexes, not {at!r}; nothing was written.",
            code="place_invalid",
            place=at,
        )
    steps = cast("list[object] | tuple[object, ...]", at)
    for step in steps:
        if type(step) is not str and type(step) is not int:
            raise Invalid(
                f"a place in a document holds keys and indexes, not {step!r}; nothing was written.",
                code="place_invalid",
                place=steps,
            )
    return cast("Place", tuple(steps))


class _Where:
    """A place in a document: changes what is there and names it in errors."""

    __slots__ = ("at", "path")

    def __init__(self, path: str, at: Place) -> None:
        self.path, self.at = path, at

    def __str__(self) -> str:
        steps = "".join(f"[{step!r}]" for step in self.at)
        return f"{self.path}{' at ' + steps if steps else ''}"

    def change(self, document: Json, change: _Change) -> Json:
        """Return the document with `change` made to what is at the place."""
        return self._changed(document, self.at, change)

    def last(self, verb: str) -> tuple[_Where, str | int]:
        """Return the place that holds this one, and the last step; raises `Invalid` for the document as a whole."""
        if not self.at:
            raise Invalid(
                f"`{verb}` needs a place inside the document {self.path}; nothing was written.",
                code="place_required",
                path=self.path,
                verb=verb,
            )
        return _Where(self.path, self.at[:-1]), self.at[-1]

    def expected(self, expected: str, found: Json) -> Invalid:
        return Invalid(
            f"{self} holds {_kind(found)}, not {expected}; nothing was written.",
            code="place_has_other_kind",
            path=self.path,
            place=self.at,
            expected=expected,
            found=_kind(found),
        )

    def absent(self) -> NotFound:
        return NotFound(
            f"{self} does not exist; nothing was written.",
            code="place_not_found",
            path=self.path,
            place=self.at,
        )

    def refused(self, verb: str, needed: str, argument: Json) -> Invalid:
        return Invalid(
            f"`{verb}` at {self} needs {needed}, not {_kind(argument)}; nothing was written.",
            code="argument_has_other_kind",
            path=self.path,
            place=self.at,
            expected=needed,
            found=_kind(argument),
        )

    def _changed(self, here: Json, steps: Place, change: _Change) -> Json:
        if not steps:
            return change(here)
        step, rest = steps[0], steps[1:]
        above = _Where(self.path, self.at[: len(self.at) - len(steps)])
        below = _Where(self.path, (*above.at, step))
        match here, step:
            case dict(), str():
                if step not in here:
                    raise below.absent()
                return {**here, step: self._changed(here[step], rest, change)}
            case list(), int():
                if not 0 <= step < len(here):
                    raise below.absent()
                return [*here[:step], self._changed(here[step], rest, change), *here[step + 1 :]]
            case _, str():
                raise above.expected(f"an object with the key {step!r}", here)
            case _:
                raise above.expected(f"a list with the index {step}", here)


def _set(where: _Where, document: Json, argument: Json) -> Json:
    if not where.at:
        return argument
    above, step = where.last("set")

    def change(here: Json) -> Json:
        match here, step:
            case dict(), str():
                return {**here, step: argument}
            case list(), int():
                _check_index(where, step, len(here))
                return [*here[:step], argument, *here[step + 1 :]]
            case _:
                raise above.expected(_holder_of(step), here)

    return above.change(document, change)


def _unset(where: _Where, document: Json, argument: Json) -> Json:
    above, step = where.last("unset")

    def change(here: Json) -> Json:
        match here, step:
            case dict(), str():
                if step not in here:
                    raise where.absent()
                return {key: item for key, item in here.items() if key != step}
            case list(), int():
                _check_index(where, step, len(here))
                return [*here[:step], *here[step + 1 :]]
            case _:
                raise above.expected(_holder_of(step), here)

    return above.change(document, change)


def _insert(where: _Where, document: Json, argument: Json) -> Json:
    above, step = where.last("insert")
    if not isinstance(step, int):
        raise Invalid(
            f"`insert` needs an index as the last step of {where}; nothing was written.",
            code="index_required",
            path=where.path,
            place=where.at,
        )

    def change(here: Json) -> Json:
        if not isinstance(here, list):
            raise above.expected("a list", here)
        _check_index(where, step, len(here) + 1)  # one past the end: insert as the last
        return [*here[:step], argument, *here[step:]]

    return above.change(document, change)


def _append(where: _Where, document: Json, argument: Json) -> Json:
    def change(here: Json) -> Json:
        if not isinstance(here, list):
            raise where.expected("a list", here)
        return [*here, argument]

    return where.change(document, change)


def _merge(where: _Where, document: Json, argument: Json) -> Json:
    if not isinstance(argument, Mapping):
        raise where.refused("merge", "an object", argument)

    def change(here: Json) -> Json:
        if not isinstance(here, dict):
            raise where.expected("an object", here)
        return {**here, **argument}

    return where.change(document, change)


def _increment(where: _Where, document: Json, argument: Json) -> Json:
    if not _is_number(argument):
        raise where.refused("increment", "a number", argument)

    def change(here: Json) -> Json:
        if not _is_number(here):
            raise where.expected("a number", here)
        return cast("float", here) + cast("float", argument)

    return where.change(document, change)


def _remove(where: _Where, document: Json, argument: Json) -> Json:
    # By canonical bytes, because to Python 1, 1.0 and True are equal and here they are three values.
    wanted = canonical.encode(argument)

    def change(here: Json) -> Json:
        if not isinstance(here, list):
            raise where.expected("a list", here)
        for index, item in enumerate(here):
            if canonical.encode(item) == wanted:
                return [*here[:index], *here[index + 1 :]]
        raise NotFound(
            f"{where} has no item {wanted[:60].decode(errors='replace')}; nothing was written.",
            code="list_item_not_found",
            path=where.path,
            place=where.at,
        )

    return where.change(document, change)


_VERBS: dict[Verb, Callable[[_Where, Json, Json], Json]] = {
    "set": _set,
    "unset": _unset,
    "append": _append,
    "merge": _merge,
    "increment": _increment,
    "insert": _insert,
    "remove": _remove,
}


def _check_index(where: _Where, index: int, length: int) -> None:
    if not 0 <= index < length:
        raise where.absent()


def _holder_of(step: str | int) -> str:
    return "an object" if isinstance(step, str) else "a list"


def _is_number(value: Json) -> bool:
    return type(value) is int or type(value) is float


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return f"a list of {len(value)}"
        case _:
            return "an object"
