"""Schemas: what a function takes, read from its signature and type hints.

`Form.of` reads a function once, when the tool is declared, and refuses there what could not
be called by name.  A form gives the JSON schema that a model is told, and makes Python values
of the hinted types from JSON.  msgspec does both; types that know how to do it themselves, as
pydantic's models do (`model_json_schema`, `model_validate`, `model_dump`), are asked to.

Shapes: what an object holds, for those that hold something that JSON can say.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from perdure.errors import Invalid
from perdure.model.canonical import Json
from perdure.runtime.tools.arguments import Arguments, integral, refusal, without_path
from perdure.runtime.tools.call import Call

__all__ = ["FunctionSignature", "opened"]


def opened(value: Any) -> Any:
    """The fields, by the names that JSON knows them by, of a struct, a dataclass or a pydantic model, else `value`.

    All of them: encoders leave out what a struct says it omits, and what a dataclass was never given.
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


_CONTAINERS = (list, dict, tuple, set, frozenset, Sequence, Mapping)
_Field = tuple[str, Any] | tuple[str, Any, Any]


class FunctionSignature:
    """What one function takes: its schema, and the way from JSON to its arguments."""

    __slots__ = ("_absent", "_name", "_struct", "call", "schema")

    def __init__(
        self, name: str, fields: Mapping[str, Any], defaults: Mapping[str, Any], call: str | None
    ) -> None:
        """Prepare a form from parameters by hint, and the defaults of those that have one."""
        self._name = name
        self.call = call  # the parameter that takes the `Call`; None: it wants none
        self._absent = _plain_defaults(defaults)
        self._struct = _struct(name, fields, defaults)
        self.schema = _schema(self._struct, self._absent)

    @classmethod
    def of(cls, name: str, function: Callable[..., object], names: Mapping[str, object]) -> FunctionSignature:
        """The form of `function`; `names` are what its hints may speak of besides its module's own.

        Raises `Invalid` for parameters that cannot be given by name, and for hints that have no schema.
        """
        parameters = _parameters(name, function)
        hints = _hints(name, function, parameters, names)
        calls = [each for each in parameters if _takes_call(hints.get(each))]
        if len(calls) > 1:
            raise _wrong(name, f"{' and '.join(calls)} both take a Call", "Keep one of them.")
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
        """`given` as the function takes it; raises `Invalid`, naming the field, if it does not fit."""
        try:
            made = self._made(given)
        except (msgspec.ValidationError, RecursionError) as error:
            raise refusal(self._name, without_path(error)) from error
        values = {each: getattr(made, each) for each in self.names}
        return Arguments(values, dict(self._normal(given, values)))

    def _made(self, given: dict[str, Json]) -> msgspec.Struct:
        try:
            return _converted(given, self._struct)
        except msgspec.ValidationError:
            return _converted(cast("dict[str, Json]", integral(given)), self._struct)

    def _normal(self, given: Mapping[str, Json], values: Mapping[str, Any]) -> list[tuple[str, Json]]:
        """The arguments as JSON again; a default that is no JSON is left out."""
        normal: list[tuple[str, Json]] = []
        for name, value in values.items():
            if name in given:
                normal.append((name, _plain(value, given[name])))
            elif name in self._absent:
                normal.append((name, self._absent[name]))
        return normal


def _parameters(name: str, function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError, NameError) as error:
        raise _wrong(name, f"its signature cannot be read: {error}", "Wrap it in a function.") from error
    for each in parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise _wrong(
                name, f"it takes {each}, and a model gives arguments by name", "Name its parameters."
            )
        if each.kind is each.POSITIONAL_ONLY:
            raise _wrong(name, f"{each.name} is positional-only", "Take the '/' out of its signature.")
    if next(iter(parameters), None) == "self":
        raise _wrong(name, "it is a method without its object", "Declare tool(object.method) instead.")
    return parameters


def _hints(
    name: str,
    function: Callable[..., object],
    parameters: Mapping[str, inspect.Parameter],
    names: Mapping[str, object],
) -> dict[str, Any]:
    """The hint of each parameter that has one, with strings read as the types that they name."""

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
            name, f"a type hint cannot be read: {error}", "Import what it names, not for type checkers alone."
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
            msgspec.json.Decoder(alone)
            msgspec.json.schema(alone, schema_hook=_own_schema({}))
        except (TypeError, NameError) as error:
            reason = str(error).partition("\n")[0].removesuffix(":")
            raise _wrong(
                name,
                f"{each} has the hint {hint!r}, which has no JSON schema ({reason})",
                "Hint another type.",
            ) from error


def _described(hint: Any) -> Any:
    """`hint` with plain words in `Annotated` as the description that they are, and a moment's format said."""
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
    said = (
        note
        if isinstance(note, str)
        else getattr(note, "description", None) or getattr(note, "documentation", None)
    )
    return (
        msgspec.Meta(description=said)
        if isinstance(said, str) and not isinstance(note, msgspec.Meta)
        else note
    )


def _struct(name: str, fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> type[msgspec.Struct]:
    made: list[_Field] = []
    for each, hint in fields.items():
        if each in defaults:
            made.append((each, _described(hint), msgspec.field(default_factory=_giving(defaults[each]))))
        else:
            made.append((each, _described(hint)))
    return msgspec.defstruct(f"Arguments of {name}", made, forbid_unknown_fields=True, kw_only=True)


def _giving(value: Any) -> Callable[[], Any]:
    return lambda: value


def _plain_defaults(defaults: Mapping[str, Any]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for each, value in defaults.items():
        try:
            found[each] = _as_json(value)
        except (TypeError, ValueError, RecursionError):
            continue  # it has no JSON form, so no model can be told of it
    return found


def _schema(struct: type[msgspec.Struct], defaults: Mapping[str, Json]) -> dict[str, Any]:
    """The JSON schema of an object, with the definitions that it refers to inside it."""
    hoisted: dict[str, Any] = {}
    (top,), definitions = msgspec.json.schema_components((struct,), schema_hook=_own_schema(hoisted))
    whole = definitions.pop(top["$ref"].rpartition("/")[2])
    whole.pop("title", None)
    for each, value in defaults.items():
        _with_default(whole["properties"], each, value)
    definitions |= hoisted
    return whole | ({"$defs": definitions} if definitions else {})


def _with_default(properties: dict[str, Any], name: str, value: Json) -> None:
    # Beside `$ref` some vendors allow nothing else; there the default goes unsaid.
    if "$ref" not in properties[name]:
        properties[name]["default"] = value


def _own_schema(hoisted: dict[str, Any]) -> Callable[[type], dict[str, Any]]:
    """A hook that asks a type for its own schema, and puts the definitions that this refers to into `hoisted`."""

    def asked(kind: type) -> dict[str, Any]:
        if not _describes_itself(kind):
            raise TypeError(f"type {kind.__qualname__} is not supported")
        prefix = kind.__qualname__.replace("<locals>.", "")
        schema = cast("Any", kind).model_json_schema(ref_template=f"#/$defs/{prefix}-{{model}}")
        hoisted.update({f"{prefix}-{each}": inner for each, inner in schema.pop("$defs", {}).items()})
        return schema

    return asked


def _describes_itself(kind: Any) -> bool:
    return hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _converted(given: Any, kind: type[msgspec.Struct]) -> msgspec.Struct:
    return msgspec.convert(given, kind, dec_hook=_validated, str_keys=True)


def _validated(kind: type, value: object) -> object:
    if not _describes_itself(kind):
        raise TypeError(f"type {kind.__qualname__} is not supported")
    try:
        return cast("Any", kind).model_validate(value)
    except ValueError as error:
        raise ValueError(_first_of(error)) from error


def _first_of(error: Any) -> str:
    """What a validator complains of first, in its own words and without its advertisements."""
    try:
        first = error.errors()[0]
        return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}" if first["loc"] else str(first["msg"])
    except (AttributeError, LookupError, TypeError):
        return str(error)


def _plain(value: Any, given: Json) -> Json:
    try:
        return _as_json(value)
    except (TypeError, ValueError, RecursionError):
        return given  # a type that cannot be turned back: what was given stands for it


def _as_json(value: Any) -> Json:
    return cast("Json", msgspec.to_builtins(_unfolded(value), str_keys=True, order="deterministic"))


def _unfolded(value: Any) -> Any:
    """`value` with every object in it as its fields."""
    held = opened(value)
    if isinstance(held, dict):
        return {key: _unfolded(item) for key, item in cast("dict[Any, Any]", held).items()}
    if isinstance(held, list | tuple):
        return [_unfolded(item) for item in cast("Sequence[Any]", held)]
    return held


def _wrong(name: str, what: str, advice: str) -> Invalid:
    return Invalid(f"the tool {name!r} cannot be declared: {what}; nothing was declared. {advice}")
