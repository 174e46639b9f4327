"""`__all__` is what a package exports: no less, no more, and all of it importable."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Sequence

import pytest

from tests.architecture.source import Module, modules

IMPORTABLE = [module for module in modules() if not module.name.endswith("__main__")]


def bound_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that `body` defines or takes from Holdfast, also for type checkers alone."""
    for node in body:
        match node:
            case ast.ImportFrom(module=str(origin)) if origin.split(".")[0] == "holdfast":
                yield from (alias.asname or alias.name for alias in node.names)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If():
                yield from bound_names([*node.body, *node.orelse])
            case _:
                pass


def public_names(tree: ast.Module) -> set[str]:
    """The names of `tree` that do not begin with an underscore; `TYPE_CHECKING` is the type checkers' own."""
    return {name for name in bound_names(tree.body) if not name.startswith("_") and name != "TYPE_CHECKING"}


@pytest.mark.parametrize("module", IMPORTABLE, ids=lambda module: module.name)
def test_every_name_in_all_is_importable(module: Module) -> None:
    """A name that is promised exists, once."""
    imported = importlib.import_module(module.name)
    promised: list[str] = getattr(imported, "__all__", [])

    assert sorted(set(promised)) == sorted(promised)
    assert [name for name in promised if not hasattr(imported, name)] == []


@pytest.mark.parametrize("module", [m for m in IMPORTABLE if m.is_package], ids=lambda module: module.name)
def test_a_package_exports_what_all_says(module: Module) -> None:
    """Whatever a package takes from its modules for others to use is in `__all__`."""
    promised: list[str] = getattr(importlib.import_module(module.name), "__all__", [])

    assert public_names(module.tree) - set(promised) == set()


def test_an_export_missing_from_all_would_be_found() -> None:
    """Control: names are seen in imports, definitions and blocks for type checkers; private ones are not."""
    tree = ast.parse(
        "from holdfast.model import Head as Head, _x\n"
        "from typing import Any\n"
        "if TYPE_CHECKING:\n    from holdfast.threads import Store\n"
        "def open(): ...\n"
        "version = '1'\n"
        "_private = 2\n"
    )

    assert public_names(tree) == {"Head", "Store", "open", "version"}
