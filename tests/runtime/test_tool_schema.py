"""Schemas from type hints: what a model is told, and what its JSON becomes."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypedDict, cast

import msgspec
import pydantic
import pytest

from perdure.errors import Invalid
from perdure.runtime.tools.call import Call
from perdure.runtime.tools.tool import Tool, tool
from tests.coded import raises

if TYPE_CHECKING:
    from decimal import Decimal as Unseen


class Cabin(enum.Enum):
    """Where one sits."""

    FRONT = "front"
    BACK = "back"


@dataclasses.dataclass
class Seat:
    """One seat."""

    row: int
    letter: str = "A"


class Point(msgspec.Struct):
    """A place."""

    x: float
    y: float


class Options(TypedDict, total=False):
    """What else."""

    meal: str


class Street(pydantic.BaseModel):
    """Part of an address."""

    name: str


class Address(pydantic.BaseModel):
    """Where to send it."""

    street: Street
    number: int = 1


def properties(declared: Tool) -> dict[str, Any]:
    """What a model is told of each parameter."""
    return cast("dict[str, Any]", declared.parameters["properties"])


def taken(hint: Any, given: str) -> Any:
    """What a parameter of that hint becomes."""

    def take(value: Any) -> None: ...

    take.__annotations__ = {"value": hint}
    return tool(take).validated(f'{{"value": {given}}}').values["value"]


def told(hint: Any) -> dict[str, Any]:
    """The schema of a parameter of that hint, and what it refers to."""

    def take(value: Any) -> None: ...

    take.__annotations__ = {"value": hint}
    parameters: dict[str, Any] = dict(tool(take).parameters)
    shown = parameters["properties"]["value"]
    return parameters["$defs"][shown["$ref"].rpartition("/")[2]] if "$ref" in shown else shown


@pytest.mark.parametrize(
    ("hint", "given", "value"),
    [
        (str, '"a"', "a"),
        (float, "1", 1.0),
        (bool, "true", True),
        (Any, '{"a": [1]}', {"a": [1]}),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (dict[int, str], '{"1": "a"}', {1: "a"}),
        (Optional[int], "null", None),  # noqa: UP045
        (int | None, "3", 3),
        (Literal["a", "b"], '"b"', "b"),
        (Cabin, '"back"', Cabin.BACK),
        (Seat, '{"row": 3}', Seat(3)),
        (list[Seat], '[{"row": 3, "letter": "C"}]', [Seat(3, "C")]),
        (Point, '{"x": 1, "y": 2.5}', Point(1.0, 2.5)),
        (Options, '{"meal": "soup"}', {"meal": "soup"}),
        (datetime.date, '"2026-02-03"', datetime.date(2026, 2, 3)),
        (set[int], "[2, 1]", {1, 2}),
        (Annotated[int, msgspec.Meta(ge=0)], "0", 0),
        (Address, '{"street": {"name": "Elm"}}', Address(street=Street(name="Elm"))),
        (Address | None, "null", None),
    ],
)
def test_json_becomes_the_hinted_type(hint: Any, given: str, value: object) -> None:
    """A tool gets what its signature promises."""
    assert taken(hint, given) == value
    assert type(taken(hint, given)) is type(value)


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (Any, {}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Annotated[str, "a city"], {"type": "string", "description": "a city"}),
        (Annotated[str, pydantic.Field(description="a city")], {"type": "string", "description": "a city"}),
        (
            list[Annotated[str, "a city"]],
            {"type": "array", "items": {"type": "string", "description": "a city"}},
        ),
        (
            Annotated[int, msgspec.Meta(ge=1, description="n")],
            {"type": "integer", "minimum": 1, "description": "n"},
        ),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    ],
)
def test_a_hint_becomes_a_schema(hint: Any, schema: dict[str, Any]) -> None:
    """Descriptions may be plain words."""
    assert told(hint) == schema


def test_a_schema_is_whole() -> None:
    """What it refers to is inside it, also what a model of another library refers to."""

    def send(to: Address, seats: list[Seat], cabin: Cabin = Cabin.BACK) -> None: ...

    parameters: dict[str, Any] = dict(tool(send).parameters)

    assert parameters["type"] == "object"
    assert parameters["required"] == ["to", "seats"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["to"]["properties"]["street"] == {"$ref": "#/$defs/Address-Street"}
    assert set(parameters["$defs"]) == {"Address-Street", "Seat", "Cabin"}


def test_defaults_are_told_and_filled() -> None:
    """Also those that can be changed, and those of sloppy hints."""

    def find(city: str = "Oslo", days: list[int] = [1, 2], limit: int = None) -> None: ...  # pyright: ignore[reportArgumentType]  # noqa: B006, RUF013

    declared = tool(find)

    assert [each["default"] for each in properties(declared).values()] == ["Oslo", [1, 2], None]
    arguments = declared.validated('{"city": "Rome"}')
    assert arguments.values == arguments.normal == {"city": "Rome", "days": [1, 2], "limit": None}


def test_a_default_that_is_not_json_is_the_tools_own_business() -> None:
    """It is filled in, and neither a model nor a fingerprint hears of it."""
    nothing = object()

    def find(city: str, how: Any = nothing) -> None: ...

    declared = tool(find)
    arguments = declared.validated('{"city": "Rome"}')

    assert arguments.values == {"city": "Rome", "how": nothing}
    assert arguments.normal == {"city": "Rome"}
    assert "default" not in properties(declared)["how"]


def test_normal_arguments_are_json_whatever_the_types() -> None:
    """Two ways to write the same moment are the same call."""

    def go(at: datetime.datetime, seat: Seat, cabin: Cabin, to: Address, tags: set[str]) -> None: ...

    declared = tool(go)
    rest = '"seat": {"row": 1}, "cabin": "front", "to": {"street": {"name": "Elm"}}, "tags": ["b", "a"]'
    one = declared.validated(f'{{"at": "2026-01-01T00:00:00+00:00", {rest}}}')
    other = declared.validated(f'{{"at": "2026-01-01T00:00:00Z", {rest}}}')

    assert one.normal == other.normal
    assert one.normal == {
        "at": "2026-01-01T00:00:00Z",
        "seat": {"row": 1, "letter": "A"},
        "cabin": "front",
        "to": {"street": {"name": "Elm"}, "number": 1},
        "tags": ["a", "b"],
    }


def test_a_parameter_without_a_hint_takes_any_json() -> None:
    """Nothing is guessed."""

    def keep(value): ...  # pyright: ignore[reportMissingParameterType]

    assert tool(keep).validated('{"value": [1, null]}').values == {"value": [1, None]}  # pyright: ignore[reportUnknownArgumentType]


def _plain(n: int, call: Call) -> None: ...


def _maybe(n: int, call: Call | None = None) -> None: ...


def _noted(n: int, handle: Annotated[Call, "x"]) -> None: ...


def _text(n: int, handle: "Call") -> None: ...  # noqa: UP037


@pytest.mark.parametrize("function", [_plain, _maybe, _noted, _text])
def test_a_call_is_found_by_its_type_and_is_not_in_the_schema(function: Callable[..., Any]) -> None:
    """Whatever the parameter is called, and however the type is written."""
    declared = tool(function)

    assert list(properties(declared)) == ["n"]


def test_a_call_imported_for_type_checkers_alone_is_still_found() -> None:
    """Its name is enough."""
    names: dict[str, Any] = {}
    exec(
        "from __future__ import annotations\nimport perdure\ndef act(n: int, call: Call) -> Missing: ...\n",
        names,
    )
    declared: Tool = tool(names["act"])

    assert list(properties(declared)) == ["n"]


def test_hints_may_speak_of_names_around_the_declaration() -> None:
    """A type that is made inside a function can be used there."""

    @dataclasses.dataclass
    class Order:
        n: int

    @tool(effect="none")
    def place(order: Order) -> int:
        return order.n

    assert place.validated('{"order": {"n": 3}}').values == {"order": Order(3)}


def _unseen(n: Unseen) -> None: ...


def _many(*cities: str) -> None: ...


def _keywords(**cities: str) -> None: ...


def _positional(city: str, /) -> None: ...


def _twice(a: Call, b: Call) -> None: ...


def _machine(city: threading_lock) -> None: ...  # pyright: ignore[reportUndefinedVariable]  # noqa: F821


def _object(city: enum.EnumMeta) -> None: ...


def _self(self: Any, city: str) -> None: ...


def _two(what: Seat | Point) -> None: ...


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (_unseen, "hint_unreadable"),
        (_many, "parameters_unnamed"),
        (_keywords, "parameters_unnamed"),
        (_positional, "parameters_unnamed"),
        (_twice, "tool_has_two_calls"),
        (_machine, "hint_unreadable"),
        (_object, "hint_has_no_schema"),
        (_self, "tool_is_unbound_method"),
        (_two, "hint_has_no_schema"),
    ],
)
def test_what_cannot_be_given_by_name_and_as_json_is_refused(function: Callable[..., Any], code: str) -> None:
    """At the declaration, naming the tool."""
    with raises(Invalid, code, tool=function.__name__):
        tool(function)


def test_a_method_of_an_object_can_be_declared() -> None:
    """With its object, there is nothing left to give."""

    class Desk:
        def ask(self, what: str) -> str:
            return what

    assert tool(Desk().ask).validated('{"what": "time"}').values == {"what": "time"}
