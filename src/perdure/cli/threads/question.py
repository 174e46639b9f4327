"""A question about the value at one path, as bisect asks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from perdure.errors import Invalid, NotFound
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.threads.view import View

__all__ = ["Question"]

_Test: TypeAlias = Callable[[Json], bool]
_FLAG = Parameter(negative=(), show_default=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing that is true of a path, or not."""

    path: Annotated[str, Parameter(metavar="PATH", help="The path to ask about")]
    exists: Annotated[bool, _FLAG, Parameter(help="True where the path holds a value")] = False
    absent: Annotated[bool, _FLAG, Parameter(help="True where it holds none")] = False
    equals: Annotated[str | None, Parameter(metavar="JSON", help="True where its value is this")] = None
    contains: Annotated[
        str | None,
        Parameter(
            metavar="JSON",
            help="True where it is a list with this item, an object with this key, a text with this in it",
        ),
    ] = None
    below: Annotated[float | None, Parameter(metavar="N", help="True where it is a number below this")] = None
    above: Annotated[float | None, Parameter(metavar="N", help="True where it is a number above this")] = None

    @property
    def words(self) -> str:
        """What is asked; raises `Invalid` unless it is one thing."""
        given = [
            *(["existed"] if self.exists else []),
            *(["was absent"] if self.absent else []),
            *([f"was {self.equals}"] if self.equals is not None else []),
            *([f"contained {self.contains}"] if self.contains is not None else []),
            *([f"was below {self.below:g}"] if self.below is not None else []),
            *([f"was above {self.above:g}"] if self.above is not None else []),
        ]
        if len(given) != 1:
            raise Invalid(
                f"{len(given)} questions were asked about {self.path}, so nothing was searched. "
                "Ask one of --exists, --absent, --equals, --contains, --below, --above."
            )
        return given[0]

    def asked_of(self) -> Callable[[View], bool]:
        """The question as one that can be asked of a moment."""
        test = self._test()
        if self.absent:
            return lambda view: not _holds(view, self.path)
        return lambda view: _holds(view, self.path) and test(view.get(self.path))

    def _test(self) -> _Test:
        if self.equals is not None:
            wanted = canonical.encode(canonical.parse(self.equals))
            return lambda value: not isinstance(value, bytes) and canonical.encode(value) == wanted
        if self.contains is not None:
            part = canonical.parse(self.contains)
            return lambda value: _contains(value, part)
        below, above = self.below, self.above
        if below is not None:
            return lambda value: _number(value, default=below) < below
        if above is not None:
            return lambda value: _number(value, default=above) > above
        return lambda _value: True


def _holds(view: View, path: str) -> bool:
    try:
        view.entry(path)
    except NotFound:
        return False
    return True


def _contains(value: Json, part: Json) -> bool:
    match value:
        case list():
            wanted = canonical.encode(part)
            return any(canonical.encode(item) == wanted for item in value)
        case dict() | str():
            return isinstance(part, str) and part in value
        case _:
            return False


def _number(value: Json, *, default: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default
