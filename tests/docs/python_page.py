"""The Python reference: the parts of the page that are made from the code, between marks in the page.

    <!-- generated: perdure.store.thread.Thread as thread -->
    …
    <!-- end -->

A class becomes one section a member, in the order of the code, with its signature and docstring; a record
becomes a list of its fields with their comments, and of its properties and methods.  People write what is outside the marks.

`python -m tests.docs.python_page` writes the page again.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from tests.docs.blocks import ROOT

__all__ = ["MARK", "PAGE", "generated", "members", "rendered"]

PAGE = ROOT / "docs" / "reference" / "python.md"
MARK = re.compile(r"(<!-- generated: ([\w.]+)(?: as (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)

# Names that are private to a module, as a reader should see them.
_SPELLED = {
    "End": "datetime | timedelta | None",
    "_OpId": "str | None",
    "_Place": "Sequence[str | int]",
    "Wanted": "Moment",
}


def rendered(page: str) -> str:
    """`page` with everything between marks made again."""
    return MARK.sub(lambda mark: f"{mark[1]}\n{generated(mark[2], mark[3])}\n{mark[4]}", page)


def generated(name: str, called: str | None) -> str:
    """The part of the page about one class or function; `called` is what its objects are called there."""
    found = _find(name)
    if not isinstance(found, type):
        return _member(name.rpartition(".")[2], cast("Callable[..., Any]", found), called)
    if issubclass(found, msgspec.Struct) or dataclasses.is_dataclass(found):
        return "\n".join([*_sentences(found), "", *_fields(found), *_record_members(found)]) + "\n"
    parts = [_member(member, thing, called) for member, thing in members(found)]
    return "\n".join(parts)


def members(kind: type) -> list[tuple[str, Any]]:
    """The public methods and properties that the class itself defines, in the order of the code."""
    return [
        (name, thing)
        for name, thing in vars(kind).items()
        if not name.startswith("_") and (callable(thing) or isinstance(thing, property))
    ]


def _find(name: str) -> object:
    module, _, last = name.rpartition(".")
    return cast("object", getattr(importlib.import_module(module), last))


def _member(name: str, thing: Callable[..., Any] | property, called: str | None) -> str:
    title = f"{called}.{name}" if called else name
    lines = [f"### `{title}`", ""]
    if isinstance(thing, property):
        assert thing.fget is not None
        returned = inspect.signature(thing.fget).return_annotation
        lines += [f"`{title}: {_spelled(returned)}`", ""]
    else:
        awaited = "await " if inspect.iscoroutinefunction(thing) else ""
        lines += [f"`{awaited}{title}{_signature(thing)}`", ""]
    return "\n".join([*lines, *_sentences(thing)]) + "\n"


def _signature(thing: Callable[..., Any]) -> str:
    signature = inspect.signature(thing)
    shown: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        starred = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in shown):
            shown.append("*")
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        shown.append(f"{starred}{parameter.name}: {_spelled(parameter.annotation)}{default}")
    return f"({', '.join(shown)}) -> {_spelled(signature.return_annotation)}"


def _default(value: object) -> str:
    return "unset" if value is msgspec.UNSET else repr(value)


def _spelled(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return re.sub(r"\w+", lambda word: _SPELLED.get(word[0], word[0]), text.replace(" | UnsetType", ""))


def _sentences(thing: object) -> list[str]:
    """The docstring, one sentence a line, paragraphs apart."""
    lines: list[str] = []
    for paragraph in (inspect.getdoc(thing) or "").split("\n\n"):
        joined = re.sub(r"\s*\n\s*", "\n", paragraph).replace(".\n", ".  ").replace("\n", " ")
        lines += [*re.split(r"(?<=[.:])\s{2,}", joined), ""]
    return lines[:-1]


def _fields(kind: type) -> Iterator[str]:
    """The fields of a record in the order of the code, each with its type and comment."""
    source = inspect.getsource(importlib.import_module(kind.__module__))
    lines = source.splitlines()
    body = next(
        each
        for each in ast.parse(source).body
        if isinstance(each, ast.ClassDef) and each.name == kind.__name__
    )
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id != "_":
            is_above = lines[node.lineno - 2].lstrip().startswith("#")
            written = lines[node.lineno - 1 - is_above : node.end_lineno]
            comment = next((found for line in written if (found := line.partition("#")[2].strip())), "")
            more = f": {comment}" if comment else ""
            yield f"- `{node.target.id}: {_spelled(ast.unparse(node.annotation))}`{more}"


def _record_members(kind: type) -> Iterator[str]:
    """The properties that a record computes, and its methods."""
    for name, thing in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(thing, property):
            assert thing.fget is not None
            returned = inspect.signature(thing.fget).return_annotation
            yield f"- `{name}: {_spelled(returned)}`: {' '.join(_sentences(thing))}"
        elif inspect.isfunction(thing):
            yield f"- `{name}{_signature(thing)}`: {' '.join(each for each in _sentences(thing) if each)}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
