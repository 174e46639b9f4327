"""Arguments: from the JSON text that a model wrote to values that a tool can take.

The text is others' JSON.  Integers of any size stay exact; a key that stands twice, NaN and
numbers without end are refused, because two readers of the same text could then run two
different calls.  Lone surrogates become U+FFFD here and stay as they came in the raw text,
which is kept elsewhere.  No arguments at all, an empty text, is an empty object.

Whatever is refused raises `Invalid` in words that a model can mend its call by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, cast

import msgspec

from perdure.errors import Invalid
from perdure.model.canonical import DEPTH_MAX, Json
from perdure.model.text import shortened, well_formed

__all__ = ["Arguments", "integral", "json_name", "read", "refusal", "why_refused", "without_path"]

_FLOAT_EXACT_MAX = 2.0**53
# msgspec names the place of a fault in the text of its error alone.
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`)?\Z", re.DOTALL)
_LIMIT = 200  # characters of a text that is shown back


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of one call, validated and with defaults filled."""

    values: Mapping[str, Any]  # by parameter, of the types that the tool asks for
    normal: Mapping[str, Json]  # the same as JSON: what fingerprints and keys are made of


def read(tool: str, raw: str) -> dict[str, Json]:
    """The object that `raw` holds; raises `Invalid`."""
    if not raw.strip():
        return {}
    try:
        found = cast("Json", _decoder.decode(well_formed(raw).strip()))
    except Invalid as error:
        raise refusal(tool, str(error)) from None
    except RecursionError:
        raise refusal(tool, f"they are nested deeper than {DEPTH_MAX}") from None
    except ValueError as error:
        raise refusal(tool, f"they are not JSON ({error})") from None
    if not isinstance(found, dict):
        raise refusal(tool, f"they are {json_name(found)}, not an object")
    if _depth_over(found, DEPTH_MAX):
        raise refusal(tool, f"they are nested deeper than {DEPTH_MAX}")
    return found


class _Refused(Invalid):
    """Arguments that a tool does not take."""

    def __init__(self, tool: str, why: str) -> None:
        self.why = f"its arguments were refused, {why}"
        super().__init__(
            f"the arguments of {tool} were refused, {why}; it was not run. "
            "Call it again with arguments that its schema allows."
        )


def refusal(tool: str, why: str) -> Invalid:
    """The error that tells whoever called a tool what is wrong with its arguments."""
    return _Refused(tool, well_formed(shortened(why)))


def why_refused(error: Invalid) -> str:
    """What is wrong, without what follows from it, which is told beside it."""
    return error.why if isinstance(error, _Refused) else str(error)


def without_path(error: Exception) -> str:
    """What a validator complains of, the field first."""
    found = _PLACE.match(str(error))
    assert found is not None
    what, path = found["what"], (found["path"] or "").lstrip(".")
    what = what[:1].lower() + what[1:]
    if not path:
        return what.removeprefix("object ")
    return f"{'a key of ' if found['key'] else ''}`{path}`: {what}"


def integral(value: Json) -> Json:
    """`value` with 1.0 as 1: JSON does not tell them apart, and some models write one for the other."""
    match value:
        case float() if value.is_integer() and abs(value) <= _FLOAT_EXACT_MAX:
            return int(value)
        case list():
            return [integral(item) for item in value]
        case dict():
            return {key: integral(item) for key, item in value.items()}
        case _:
            return value


def json_name(value: Json) -> str:
    """What JSON calls a value of this kind."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = {well_formed(key): _text(item) for key, item in pairs}
    if len(found) != len(pairs):
        keys = [well_formed(key) for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Invalid(f"the field `{shortened(twice, _LIMIT)}` appears twice")
    return found


def _text(item: Json) -> Json:
    match item:
        case str():
            return well_formed(item)
        case list():
            return [_text(each) for each in item]
        case _:
            return item


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise Invalid(f"{shortened(text, _LIMIT)} is too large a number")
    return number


def _constant(text: str) -> NoReturn:
    raise Invalid(f"{text} is not JSON")


def _depth_over(value: Json, most: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_depth_over(item, most - 1) for item in items)


_decoder = json.JSONDecoder(object_pairs_hook=_once, parse_float=_finite, parse_constant=_constant)
