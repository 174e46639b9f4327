"""What a function takes: its JSON schema, and the way from a model's JSON text to its arguments.

`FunctionSignature.of` reads a function once, when the tool is declared, and refuses parameters that could not
be given by name.  The signature has the JSON schema that a model is shown, and converts JSON to the hinted
types.  msgspec does both; types that can do it themselves, like pydantic models (`model_json_schema`,
`model_validate`, `model_dump`), are asked to.

`read` parses the text that a model wrote.  Integers of any size stay exact.  A key that appears twice, NaN and
infinite numbers are refused, because two readers of the same text could then run two different calls.  Lone
surrogates become U+FFFD here; the raw text is stored unchanged elsewhere.  An empty text is an empty object.

Refused arguments raise `Invalid` with words that help a model to correct its call.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import inspect
import json
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, NoReturn, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from perdure.errors import Invalid
from perdure.model.canonical import DEPTH_MAX, Json, prepared
from perdure.model.text import shortened, well_formed
from perdure.runtime.tools.call import Call

__all__ = [
    "FunctionSignature",
    "Arguments",
    "integral",
    "json_name",
    "opened",
    "read",
    "refusal",
    "why_refused",
]

_CONTAINERS = (list, dict, tuple, set, frozenset, Sequence, Mapping)
_Field = tuple[str, Any] | tuple[str, Any, Any]

_FLOAT_EXACT_MAX = 2.0**53
_SCALARS = frozenset((str, int, bool, float, type(None)))
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`)?\Z", re.DOTALL)
_ZEROS_MAX = 30  # that end a decimal number; more are written as an exponent
_QUOTED_MAX = 200  # characters of the model's text that an error repeats


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of one call, validated and with defaults filled."""

    values: Mapping[str, Any]  # by parameter, of the types that the tool asks for
    normal: Mapping[str, Json]  # the same as JSON, for fingerprints and keys


class FunctionSignature:
    """What one function takes: its schema, and the conversion of JSON to its arguments."""

    __slots__ = ("_absent", "_name", "_struct", "call", "schema")

    def __init__(
        self, name: str, fields: Mapping[str, Any], defaults: Mapping[str, Any], call: str | None
    ) -> None:
        """Prepare the schema and the conversion; `fields` has the hint of each parameter."""
        self._name = name
        self.call = call  # the parameter that takes the `Call`; None: none does
        self._absent = _plain_defaults(defaults)
        self._struct = _struct(name, fields, defaults)
        self.schema = _schema(self._struct, self._absent)

    @classmethod
    def of(cls, name: str, function: Callable[..., object], names: Mapping[str, object]) -> FunctionSignature:
        """Return the signature of `function`; its hints may use `names` besides the globals of its module.

        Raises `Invalid` for parameters that cannot be given by name, and for hints that have no schema.
        """
        parameters = _parameters(name, function)
        hints = _hints(name, function, parameters, names)
        calls = [each for each in parameters if _takes_call(hints.get(each))]
        if len(calls) > 1:
            raise _wrong(
                name, "tool_has_two_calls", f"{' and '.join(calls)} both take a Call", "Keep one of them."
            )
        fields = {each: hints.get(each, Any) for each in parameters if each not in calls}
        defaults = {
            each: parameters[each].default
            for each in fields
            if parameters[each].default is not inspect.Parameter.empty
        }
        _check_hints(name, fields)
        return cls(name, fields, defaults, calls[0] if calls else None)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that a model gives."""
        return self._struct.__struct_fields__

    def take(self, given: dict[str, Json]) -> Arguments:
        """Convert `given` for the function; raises `Invalid`, naming the field, if it does not fit."""
        try:
            struct = self._convert(given)
        except (msgspec.ValidationError, RecursionError) as error:
            raise refusal(self._name, _field_first(error)) from error
        values = msgspec.structs.asdict(struct)
        return Arguments(values, self._normal(given, values))

    def _convert(self, given: dict[str, Json]) -> msgspec.Struct:
        try:
            return _converted(given, self._struct)
        except msgspec.ValidationError:
            return _converted(cast("dict[str, Json]", integral(given)), self._struct)

    def _normal(self, given: Mapping[str, Json], values: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as JSON again, without defaults that are not JSON."""
        normal: dict[str, Json] = {}
        for name, value in values.items():
            if name in given:
                # Most arguments are scalars.
                normal[name] = value if type(value) in _SCALARS else _plain(value, given[name])
            elif name in self._absent:
                normal[name] = self._absent[name]
        return normal


def _parameters(name: str, function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError, NameError) as error:
        raise _wrong(
            name,
            "signature_unreadable",
            f"its signature cannot be read: {error}",
            "Wrap it in a function.",
        ) from error
    for each in parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise _wrong(
                name,
                "parameters_unnamed",
                f"it takes {each}, and a model gives arguments by name",
                "Name its parameters.",
            )
        if each.kind is each.POSITIONAL_ONLY:
            raise _wrong(
                name,
                "parameters_unnamed",
                f"{each.name} is positional-only",
                "Take the '/' out of its signature.",
            )
    if next(iter(parameters), None) == "self":
        raise _wrong(
            name,
            "tool_is_unbound_method",
            "it is a method without its object",
            "Declare tool(object.method) instead.",
        )
    return parameters


def _hints(
    name: str,
    function: Callable[..., object],
    parameters: Mapping[str, inspect.Parameter],
    names: Mapping[str, object],
) -> dict[str, Any]:
    """Return the hint of each parameter that has one, with strings resolved to types."""

    def signed() -> None: ...

    empty = inspect.Parameter.empty
    signed.__annotations__ = {
        each.name: each.annotation for each in parameters.values() if each.annotation is not empty
    }
    known = {"Call": Call, **_globals(function), **names}
    try:
        return get_type_hints(signed, globalns=known, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise _wrong(
            name,
            "hint_unreadable",
            f"a type hint cannot be read: {error}",
            "Import what it names, not for type checkers alone.",
        ) from error


def _globals(function: Callable[..., object]) -> dict[str, Any]:
    inner: Any = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(cast("Any", inner).func)
    if not hasattr(inner, "__globals__"):  # an object that can be called
        inner = inner.__call__
    return dict(getattr(inner, "__globals__", {}))


def _takes_call(hint: Any) -> bool:
    if isinstance(hint, type):
        return issubclass(hint, Call)
    if get_origin(hint) in (Union, types.UnionType, Annotated):
        return any(_takes_call(each) for each in get_args(hint))
    return False


def _check_hints(name: str, fields: Mapping[str, Any]) -> None:
    """Raise `Invalid`, naming the parameter, for a hint that has no JSON form."""
    for each, hint in fields.items():
        try:
            alone = msgspec.defstruct("Alone", [(each, _described(hint))])
            msgspec.json.Decoder(prepared(alone))
            msgspec.json.schema(alone, schema_hook=_own_schema({}))
        except (TypeError, NameError) as error:
            reason = str(error).partition("\n")[0].removesuffix(":")
            raise _wrong(
                name,
                "hint_has_no_schema",
                f"{each} has the hint {hint!r}, which has no JSON schema ({reason})",
                "Hint another type.",
            ) from error


def _described(hint: Any) -> Any:
    """Return `hint` with plain text in `Annotated` as its description, and a date-time format for `datetime`."""
    if hint is datetime.datetime:
        return Annotated[hint, msgspec.Meta(extra_json_schema={"format": "date-time"})]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_described(inner[0]), *map(_note, inner[1:]))]  # pyright: ignore[reportReturnType]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_described, inner))]  # noqa: UP007
    if origin in _CONTAINERS:
        return cast("Any", origin)[tuple(map(_described, inner))]
    return hint


def _note(note: object) -> object:
    if isinstance(note, msgspec.Meta):
        return note
    text = note
    if not isinstance(note, str):
        text = getattr(note, "description", None) or getattr(note, "documentation", None)
    return msgspec.Meta(description=text) if isinstance(text, str) else note


def _struct(name: str, fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> type[msgspec.Struct]:
    listed: list[_Field] = []
    for each, hint in fields.items():
        if each in defaults:
            listed.append((each, _described(hint), msgspec.field(default_factory=_constant(defaults[each]))))
        else:
            listed.append((each, _described(hint)))
    return msgspec.defstruct(f"Arguments of {name}", listed, forbid_unknown_fields=True, kw_only=True)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _plain_defaults(defaults: Mapping[str, Any]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for each, value in defaults.items():
        try:
            found[each] = _as_json(value)
        except (TypeError, ValueError, RecursionError):
            continue  # it has no JSON form, so the schema cannot show it
    return found


def _schema(struct: type[msgspec.Struct], defaults: Mapping[str, Json]) -> dict[str, Any]:
    """Return the JSON schema of an object, with the definitions that it refers to."""
    hoisted: dict[str, Any] = {}
    (top,), definitions = msgspec.json.schema_components((struct,), schema_hook=_own_schema(hoisted))
    whole = definitions.pop(top["$ref"].rpartition("/")[2])
    whole.pop("title", None)
    for each, value in defaults.items():
        # Some vendors allow nothing beside `$ref`; there the default is not shown.
        if "$ref" not in whole["properties"][each]:
            whole["properties"][each]["default"] = value
    definitions |= hoisted
    return whole | ({"$defs": definitions} if definitions else {})


def _own_schema(hoisted: dict[str, Any]) -> Callable[[type], dict[str, Any]]:
    """Return a hook that asks a type for its own schema, and moves the definitions in it into `hoisted`."""

    def schema_of(kind: type) -> dict[str, Any]:
        if not _describes_itself(kind):
            raise TypeError(f"type {kind.__qualname__} is not supported")
        prefix = kind.__qualname__.replace("<locals>.", "")
        schema = cast("Any", kind).model_json_schema(ref_template=f"#/$defs/{prefix}-{{model}}")
        hoisted.update({f"{prefix}-{each}": inner for each, inner in schema.pop("$defs", {}).items()})
        return schema

    return schema_of


def _describes_itself(kind: Any) -> bool:
    return hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _converted(given: Any, kind: type[msgspec.Struct]) -> msgspec.Struct:
    return msgspec.convert(given, prepared(kind), dec_hook=_validated, str_keys=True)


def _validated(kind: type, value: object) -> object:
    if not _describes_itself(kind):
        raise TypeError(f"type {kind.__qualname__} is not supported")
    try:
        return cast("Any", kind).model_validate(value)
    except ValueError as error:
        raise ValueError(_first_of(error)) from error


def _first_of(error: Any) -> str:
    """Return the first complaint of a validator, without the links that it adds."""
    try:
        first = error.errors()[0]
        return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}" if first["loc"] else str(first["msg"])
    except (AttributeError, LookupError, TypeError):
        return str(error)


def _plain(value: Any, given: Json) -> Json:
    try:
        return _as_json(value)
    except (TypeError, ValueError, RecursionError):
        return given  # a type that cannot be converted back


def _as_json(value: Any) -> Json:
    return cast("Json", msgspec.to_builtins(_unfolded(value), str_keys=True, order="deterministic"))


def _unfolded(value: Any) -> Any:
    """Return `value` with every object in it replaced by its fields, and each number and moment written in one way."""
    if isinstance(value, Decimal):
        return _shortest(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    held: Any = opened(value)
    if held is not value and hasattr(cast("object", value), "model_dump"):
        return _as_typed(held, cast("Any", value).model_dump(mode="python", by_alias=True))
    if isinstance(held, dict):
        return {key: _unfolded(item) for key, item in cast("dict[Any, Any]", held).items()}
    if isinstance(held, list | tuple):
        return [_unfolded(item) for item in cast("Sequence[Any]", held)]
    if isinstance(held, set | frozenset):
        return _ordered(cast("Collection[Any]", held))
    return held


def _ordered(items: Collection[Any]) -> list[Any]:
    """Return the items of a set in an order that depends on them alone."""
    plain = [_as_json(item) for item in items]
    if all(isinstance(item, str) for item in plain) or all(isinstance(item, int) for item in plain):
        return sorted(cast("list[Any]", plain))
    return sorted(plain, key=lambda item: json.dumps(item, sort_keys=True))


def _as_typed(shown: Any, typed: Any) -> Any:
    """Return the JSON form of a model, in which numbers and moments that became text are written in one way.

    `shown` and `typed` are the same fields, as JSON and as Python values; a serializer of the model's own may differ.
    """
    if isinstance(shown, dict) and isinstance(typed, dict):
        fields = cast("dict[Any, Any]", typed)
        return {
            key: _as_typed(item, fields[key]) if key in fields else item
            for key, item in cast("dict[Any, Any]", shown).items()
        }
    if isinstance(shown, list) and isinstance(typed, list | tuple):
        pairs = cast("Sequence[Any]", shown), cast("Sequence[Any]", typed)
        return [_as_typed(*pair) for pair in zip(*pairs, strict=True)]
    if isinstance(shown, list) and isinstance(typed, set | frozenset):
        return _ordered(cast("Collection[Any]", typed))
    is_respelled = isinstance(shown, str) and isinstance(typed, Decimal | datetime.datetime)
    return _unfolded(typed) if is_respelled else cast("object", shown)


def _shortest(value: Decimal) -> str:
    """Return a decimal number without zeros that mean nothing: 10, 10.0, 1E1 and 10.00 are one amount."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)  # no number
    written = "".join(map(str, digits)).rstrip("0")
    if not written:
        return "0"
    exponent += len(digits) - len(written)
    if 0 <= exponent <= _ZEROS_MAX:
        return f"{'-' * sign}{written.lstrip('0')}{'0' * exponent}"
    return str(Decimal((sign, tuple(map(int, written)), exponent)))


def _wrong(name: str, code: str, what: str, advice: str) -> Invalid:
    return Invalid(
        f"the tool {name!r} cannot be declared: {what}; nothing was declared.",
        code=code,
        advice=advice,
        tool=name,
    )


def opened(value: Any) -> Any:
    """Return the fields of a struct, a dataclass or a pydantic model by their JSON names; else `value`.

    All of the fields: encoders leave out those that a struct omits by default and unset ones of a dataclass.
    """
    if isinstance(value, type):
        return value
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {} if config.tag is None else {str(config.tag_field): config.tag}
        return tag | {each.encode_name: getattr(value, each.name) for each in msgspec.structs.fields(value)}
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    return value


def read(tool: str, raw: str) -> dict[str, Json]:
    """Return the object that `raw` holds; raises `Invalid`."""
    if not raw.strip():
        return {}
    decoder = _decoder if "\\u" in raw else _unescaped_decoder
    try:
        text = well_formed(raw).strip()
        found, end = cast("tuple[Json, int]", decoder.raw_decode(text))
        if end != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except Invalid as error:
        raise refusal(tool, error.message) from None
    except RecursionError:
        raise refusal(tool, f"they are nested deeper than {DEPTH_MAX}") from None
    except ValueError as error:
        raise refusal(tool, f"they are not JSON ({error})") from None
    if not isinstance(found, dict):
        raise refusal(tool, f"they are {json_name(found)}, not an object")
    if raw.count("{") + raw.count("[") > DEPTH_MAX and _depth_over(found, DEPTH_MAX):
        raise refusal(tool, f"they are nested deeper than {DEPTH_MAX}")
    return found


def refusal(tool: str, why: str) -> Invalid:
    """Return the error that says what is wrong with the arguments of a call."""
    why = well_formed(shortened(why))
    return Invalid(
        f"the arguments of {tool} were refused, {why}; it was not run.",
        code="arguments_refused",
        advice="Call it again with arguments that its schema allows.",
        tool=tool,
        why=why,
    )


def why_refused(error: Invalid) -> str:
    """Return what is wrong with the arguments, without the advice, which the model is shown beside it."""
    if error.code == "arguments_refused":
        return f"its arguments were refused, {error.facts['why']}"
    return str(error)


def _field_first(error: Exception) -> str:
    """Return the complaint of a validator with the field first."""
    found = _PLACE.match(str(error))
    assert found is not None
    what, path = found["what"], (found["path"] or "").lstrip(".")
    what = what[:1].lower() + what[1:]
    if not path:
        return what.removeprefix("object ")
    return f"{'a key of ' if found['key'] else ''}`{path}`: {what}"


def integral(value: Json) -> Json:
    """Return `value` with 1.0 as 1: they are the same number in JSON, and some models write one for the other."""
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
    """Return what JSON calls a value of this kind."""
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
    return _unescaped_once([(well_formed(key), _text(item)) for key, item in pairs])


def _unescaped_once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return the object of these pairs, whose text is well formed; raises `Invalid` if a field appears twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Invalid(f"the field `{shortened(twice, _QUOTED_MAX)}` appears twice")
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
        raise Invalid(f"{shortened(text, _QUOTED_MAX)} is too large a number")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise Invalid(f"{text} is not JSON")


def _depth_over(value: Json, most: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_depth_over(item, most - 1) for item in items)


_decoder = json.JSONDecoder(object_pairs_hook=_once, parse_float=_finite, parse_constant=_refuse_constant)
# Only an escape can make half a character of text that has none.
_unescaped_decoder = json.JSONDecoder(
    object_pairs_hook=_unescaped_once, parse_float=_finite, parse_constant=_refuse_constant
)
