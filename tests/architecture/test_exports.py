"""`__all__` is what a package exports: no less, no more, and all of it importable."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Collection, Iterator, Sequence
from types import ModuleType

from tests.architecture.source import modules

IMPORTABLE = [module for module in modules() if not module.name.endswith("__main__")]


def bound_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names that `body` defines or takes from Perdure, also for type checkers alone."""
    for node in body:
        match node:
            case ast.ImportFrom(module=str(origin)) if origin.split(".")[0] == "perdure":
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


def promises(imported: ModuleType) -> list[str]:
    """What the `__all__` of a module says."""
    return getattr(imported, "__all__", [])


def wrong_promises(name: str, promised: Sequence[str], present: Collection[str]) -> list[str]:
    """What is wrong with the `__all__` of the module of that name: names twice, and names that it has not."""
    twice = [f"{name}: {each} is there twice" for each in promised if promised.count(each) > 1]
    return twice + [f"{name}: {each} cannot be imported" for each in promised if each not in present]


def test_every_name_in_all_is_importable() -> None:
    """A name that is promised exists, once."""
    imported = [importlib.import_module(module.name) for module in IMPORTABLE]

    found = [
        wrong_promises(
            each.__name__, promises(each), [name for name in promises(each) if hasattr(each, name)]
        )
        for each in imported
    ]

    assert [wrong for each in found for wrong in each] == []


def test_a_package_exports_what_all_says() -> None:
    """Whatever a package takes from its modules for others to use is in `__all__`."""
    packages = [module for module in IMPORTABLE if module.is_package]

    missing = {
        module.name: public_names(module.tree) - set(promises(importlib.import_module(module.name)))
        for module in packages
    }

    assert {name: names for name, names in missing.items() if names} == {}


def test_a_wrong_promise_would_be_found() -> None:
    """Control: a name that is there twice, and one that is not there."""
    assert wrong_promises("m", ["a", "b", "b", "c"], {"a", "b"}) == [
        "m: b is there twice",
        "m: b is there twice",
        "m: c cannot be imported",
    ]


def test_an_export_missing_from_all_would_be_found() -> None:
    """Control: names are seen in imports, definitions and blocks for type checkers; private ones are not."""
    tree = ast.parse(
        "from perdure.model import Head as Head, _x\n"
        "from typing import Any\n"
        "if TYPE_CHECKING:\n    from perdure.store import Store\n"
        "def open(): ...\n"
        "version = '1'\n"
        "_private = 2\n"
    )

    assert public_names(tree) == {"Head", "Store", "open", "version"}
