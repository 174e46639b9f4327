"""Typed dictionaries as a judge: whether a JSON value is what a TypedDict of an SDK declares, strictly.

No key that is not declared, every required key, every value of its type; an iterable is a JSON list.
Type checkers would say the same of a literal in code; at run time no library looks into iterables.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions

__all__ = ["Fault", "faults"]

Fault = tuple[str, str]
Judge = Callable[[Any, str], Iterator[Fault]]

_PLAIN: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (int, float),
    bool: (bool,),
    type(None): (type(None),),
    bytes: (str,),
}
_MARKS = (
    typing.Required,
    typing.NotRequired,
    typing_extensions.Required,
    typing_extensions.NotRequired,
    Annotated,
)
_LISTS = (list, tuple, collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection)


def faults(value: Any, hint: Any, where: str = "") -> list[Fault]:
    """Where a value is not of a type, and why."""
    return list(_judge(hint)(value, where))


@cache
def _judge(hint: Any) -> Judge:
    """The judge of a type, made when it is first asked, since types refer to themselves."""
    made: list[Judge] = []

    def judged(value: Any, where: str) -> Iterator[Fault]:
        if not made:
            made.append(_made(hint))
        return made[0](value, where)

    return judged


def _made(hint: Any) -> Judge:
    origin = get_origin(hint)
    if hint is Any:
        return lambda value, where: iter(())
    if hasattr(origin, "__value__"):  # `type X[T] = …`, of some T
        return _judge(origin.__value__[get_args(hint)])
    if hasattr(hint, "__value__"):  # `type X = …`
        return _judge(hint.__value__)
    if origin in _MARKS:
        return _judge(get_args(hint)[0])
    if is_typeddict(hint) or typing_extensions.is_typeddict(hint):
        return _dictionary(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(get_args(hint))
    if origin is Literal:
        return _literal(get_args(hint))
    if origin in (dict, collections.abc.Mapping):
        return _mapping(get_args(hint)[1])
    if origin in _LISTS or getattr(origin, "__name__", "") == "SequenceNotStr":
        return _list(get_args(hint)[0])
    if hint in _PLAIN:
        return _plain(hint)
    if isinstance(hint, type) and hint not in (object, dict, list):
        return _enum(hint)
    return lambda value, where: iter(())


def _plain(hint: Any) -> Judge:
    wanted = _PLAIN[hint]

    def judged(value: Any, where: str) -> Iterator[Fault]:
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            yield where, f"{type(value).__name__} is no {hint.__name__}"

    return judged


def _enum(hint: type) -> Judge:
    members = {getattr(each, "value", each) for each in getattr(hint, "__members__", {}).values()}

    def judged(value: Any, where: str) -> Iterator[Fault]:
        if value not in members if isinstance(value, str | int) else True:
            yield where, f"{type(value).__name__} is no {hint.__name__}"

    return judged


def _literal(allowed: tuple[Any, ...]) -> Judge:
    def judged(value: Any, where: str) -> Iterator[Fault]:
        if not any(value == each and type(value) is type(each) for each in allowed):
            yield where, f"{value!r:.60} is none of {allowed!r:.100}"

    return judged


def _list(inner: Any) -> Judge:
    judge = _judge(inner)

    def judged(value: Any, where: str) -> Iterator[Fault]:
        if not isinstance(value, list):
            yield where, f"{type(value).__name__} is no list"
            return
        for at, each in enumerate(value):
            yield from judge(each, f"{where}[{at}]")

    return judged


def _mapping(inner: Any) -> Judge:
    judge = _judge(inner)

    def judged(value: Any, where: str) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield where, f"{type(value).__name__} is no object"
            return
        for name, each in value.items():
            yield from judge(each, f"{where}.{name}")

    return judged


def _distance(told: list[Fault], where: str) -> tuple[int, int]:
    """How far a value is from an alternative: of another type, another kind of object, or only faulty."""
    place, why = told[0]
    if place == where and " is no " in why:
        return 2, len(told)
    return int(place in (f"{where}.type", f"{where}.role")), len(told)


def _union(parts: tuple[Any, ...]) -> Judge:
    judges = [_judge(part) for part in parts]

    def judged(value: Any, where: str) -> Iterator[Fault]:
        told: list[list[Fault]] = []
        for judge in judges:
            first = next(found := judge(value, where), None)
            if first is None:
                return
            told.append([first, *found])
        yield from min(told, key=lambda each: _distance(each, where))

    return judged


def _is_required(hint: Any, name: str, declared: Any) -> bool:
    # Where annotations are text, __required_keys__ knows only whether the class is total.
    if get_origin(declared) in (typing.NotRequired, typing_extensions.NotRequired):
        return False
    if get_origin(declared) in (typing.Required, typing_extensions.Required):
        return True
    return name in hint.__required_keys__


def _dictionary(hint: Any) -> Judge:
    hints = get_type_hints(hint, include_extras=True)
    judges = {name: _judge(each) for name, each in hints.items()}
    required = {name for name, each in hints.items() if _is_required(hint, name, each)}
    # Which kind of object it is, is asked first: of many alternatives all but one fail there.
    kinds = [name for name in ("type", "role") if name in judges]

    def judged(value: Any, where: str) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield where, f"{type(value).__name__} is no {hint.__name__}"
            return
        for name in (*kinds, *(each for each in value if each not in kinds)):
            if name not in value:
                continue
            if name in judges:
                yield from judges[name](value[name], f"{where}.{name}")
            else:
                yield f"{where}.{name}", f"{hint.__name__} has no such field"
        for name in required - value.keys():
            yield where, f"{hint.__name__} has no {name}"

    return judged
