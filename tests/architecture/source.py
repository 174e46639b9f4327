"""The project's files as the architecture tests look at them."""

from __future__ import annotations

import ast
import gc
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

__all__ = ["ROOT", "SOURCE", "Module", "modules", "texts", "walk"]

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "perdure"


@dataclass(frozen=True)
class Module:
    """One Python file under `src/perdure`."""

    path: Path

    @property
    def name(self) -> str:
        """The name it is imported by."""
        parts = self.path.relative_to(SOURCE.parent).with_suffix("").parts
        return ".".join(parts[:-1] if self.is_package else parts)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        return _parsed(self)


@cache
def modules() -> list[Module]:
    """Every module of the package, in the order of their paths."""
    return [Module(path) for path in sorted(SOURCE.rglob("*.py"))]


@cache
def _parsed(module: Module) -> ast.Module:
    """A module, parsed: all have two million objects, which no search for garbage has to look through, then or later."""
    gc.disable()
    try:
        return ast.parse(module.text, filename=str(module.path))
    finally:
        gc.freeze()
        gc.enable()


@cache
def walk(tree: ast.AST) -> list[ast.AST]:
    """Every node of a tree, as `ast.walk` yields them; several tests look through all of the source."""
    return list(ast.walk(tree))


def texts() -> list[Path]:
    """What people read: the Markdown files, and the files that set the project up."""
    markdown = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted([*markdown, ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".ci" / "run"])
