"""Prints the public face as text: names of the package with their parameters, and commands with their options.

    python -m tools.public_face > after.txt
    python -m tools.public_face --types          # annotations too
    python tools/public_face.py --package old_name --page old/docs/reference/python.md > before.txt

Two revisions have the same face if their texts are equal.  The face is what `__all__` of the package names, what the
Python reference documents beyond that, the commands with their options, and the fields that `--json` prints.
Annotations are left out unless `--types` is given: they may name classes that are not public.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args, get_type_hints

import msgspec
from cyclopts import App

__all__ = ["commands", "documented_names", "public_names"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "python.md"
_MARK = re.compile(r"<!-- generated: ([\w.]+)")
_DUNDERS = ("__call__", "__enter__", "__aenter__", "__iter__", "__aiter__", "__len__", "__getitem__")


class Printer:
    """Writes members of the face as lines, with or without annotations."""

    def __init__(self, *, types: bool) -> None:
        self._types = types

    def lines(self, name: str, found: object) -> Iterator[str]:
        """Yield the lines of one name: a class with its members, a function, a module or a value."""
        if isinstance(found, ModuleType):
            for each in cast("list[str]", found.__all__):
                yield from self.lines(f"{name}.{each}", getattr(found, each))
        elif isinstance(found, type):
            yield from self._class(name, found)
        elif callable(found):
            yield f"{name}{self._signature(found)}"
        else:
            yield f"{name}: value"

    def _class(self, name: str, kind: type) -> Iterator[str]:
        public = [each.__name__ for each in kind.__mro__[1:-1] if issubclass(each, Exception)]
        yield f"class {name}{f' < {public[0]}' if public else ''}{self._construction(kind)}"
        for member in sorted(_members(kind)):
            found = inspect.getattr_static(kind, member, None)  # None: a field without a default
            if found is not None and not isinstance(found, property):
                found = cast("object", getattr(kind, member))  # descriptors give the function they stand for
            if inspect.isroutine(found) and callable(found):
                awaited = "await " if inspect.iscoroutinefunction(found) else ""
                yield f"  {awaited}{name}.{member}{self._signature(found)}"
            else:
                yield f"  {name}.{member}"

    def _construction(self, kind: type) -> str:
        """The parameters of the class where its author wrote them; "" where it takes any."""
        try:
            return self._signature(kind)
        except (TypeError, ValueError):
            return ""

    def _signature(self, found: Any) -> str:
        signature = inspect.signature(found)
        parameters = [
            each if self._types else each.replace(annotation=inspect.Parameter.empty)
            for each in signature.parameters.values()
        ]
        returned = signature.return_annotation if self._types else inspect.Signature.empty
        shown = str(signature.replace(parameters=parameters, return_annotation=returned))
        return re.sub(r" at 0x[0-9a-f]+|\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", shown)


def _members(kind: type) -> set[str]:
    """Public attributes and fields of a class; those of built-in bases are not ours."""
    foreign = {each for base in (object, Exception, msgspec.Struct, dict, tuple) for each in dir(base)}
    fields: tuple[str, ...] = (
        *getattr(kind, "__struct_fields__", ()),
        *getattr(kind, "__dataclass_fields__", ()),
    )
    ours = {name for name in (*dir(kind), *fields) if not name.startswith("_")} - foreign
    return ours | {name for name in _DUNDERS if any(name in vars(base) for base in kind.__mro__[:-1])}


def public_names(package: str, *, types: bool = False) -> list[str]:
    """Return the lines of what `__all__` of the package names, in its order."""
    root, printer = importlib.import_module(package), Printer(types=types)
    return [line for name in root.__all__ for line in printer.lines(name, getattr(root, name))]


def documented_names(package: str, page: Path, *, types: bool = False) -> list[str]:
    """Return the lines of what the Python reference documents and `__all__` does not name, by name."""
    root, printer = importlib.import_module(package), Printer(types=types)
    found: dict[str, object] = {}
    for place in _MARK.findall(page.read_text(encoding="utf-8")):
        module, _, name = place.rpartition(".")
        documented: object = getattr(importlib.import_module(module), name)
        if all(documented is not getattr(root, each) for each in root.__all__):
            qualifier = "aio." if ".aio." in place else ""
            found[qualifier + name] = documented
    return [line for name in sorted(found) for line in printer.lines(name, found[name])]


def commands(package: str) -> list[str]:
    """Return the lines of every command, with its options and the fields of its JSON."""
    build = importlib.import_module(f"{package}.cli.app").build
    return [line for line in _commands(cast("App", build()), ()) if line]


def _commands(app: App, words: tuple[str, ...]) -> Iterator[str]:
    for name in app:
        if name.startswith("-"):
            yield f"{' '.join((*words, name))}"
            continue
        found, spelled = app[name], (*words, name)
        if found.default_command is None:
            yield from _commands(found, spelled)
            continue
        yield " ".join(spelled)
        for argument in found.assemble_argument_collection():
            if argument.show:
                needed = "needed" if argument.required else "optional"
                yield f"  {' '.join(argument.names)} {needed}"
        answers = get_type_hints(found.default_command).get("return")
        yield from (f"  json {path}" for path in sorted(set(_fields(answers, ""))))


def _fields(kind: object, path: str, depth: int = 6) -> Iterator[str]:
    """The paths of the fields of a command's answer, or of each answer of a union or an iterator."""
    if depth and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            inner = f"{path}.{field.encode_name}".lstrip(".")
            yield inner
            yield from _fields(field.type, inner, depth - 1)
    for each in cast("tuple[object, ...]", get_args(kind)):
        yield from _fields(each, path, depth)


def main() -> None:
    """Print the face of the package that the words of the process name."""
    parser = argparse.ArgumentParser(description="Print the public face of the package")
    parser.add_argument("--package", default="perdure")
    parser.add_argument("--page", type=Path, default=PAGE, help="the Python reference of that revision")
    parser.add_argument("--types", action="store_true", help="print annotations too")
    asked = parser.parse_args()
    parts = {
        "names of the package": public_names(asked.package, types=asked.types),
        "names in the reference": documented_names(asked.package, asked.page, types=asked.types),
        "commands": commands(asked.package),
    }
    for title, lines in parts.items():
        print(f"# {title}", *lines, "", sep="\n")


if __name__ == "__main__":
    main()
