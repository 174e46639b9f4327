"""Prints how the source is arranged beside the aims: sizes, imports, names and vocabulary.

    python -m tools.house            # the table
    python -m tools.house --list     # and what each figure counts

`tests/architecture/test_house.py` holds the limits that must not be crossed.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

__all__ = ["House"]

PACKAGE = "perdure"
SOURCE = Path(__file__).resolve().parent.parent / "src" / PACKAGE

# Pronouns without an actor, which plain technical English does not need.
PRONOUNS = re.compile(r"\b(?:whoever|whomever|somebody|nobody|anybody|whatever it is)\b", re.IGNORECASE)
LITERARY = re.compile(
    r"\b(?:anew|meanwhile|thereof|wherein|whereby|hitherto|came to nothing|comes to nothing|what became of|"
    r"becomes of|at hand|stands for good|in the making|of its own accord)\b",
    re.IGNORECASE,
)
# Folders whose modules are import paths that the documents give to authors of engines and adapters.
FLAT_ON_PURPOSE = frozenset({"model"})


class House:
    """The modules of one package, read from its source without importing it."""

    def __init__(self, root: Path = SOURCE) -> None:
        self.root = root
        self.files = {self._name(path): path for path in sorted(root.rglob("*.py"))}
        self.trees = {name: ast.parse(path.read_text()) for name, path in self.files.items()}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.root.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def is_package(self, name: str) -> bool:
        """True for a folder, whose own file is `__init__.py`."""
        return self.files[name].name == "__init__.py"

    @cached_property
    def lines(self) -> dict[str, int]:
        """Lines of each module that is not a folder's `__init__.py`."""
        return {
            name: len(path.read_text().splitlines())
            for name, path in self.files.items()
            if not self.is_package(name)
        }

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """For each module the modules that it imports when it is loaded, types apart."""
        return {name: set(self._targets(tree.body)) - {name} for name, tree in self.trees.items()}

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """For each module those that import it anywhere, in functions and for types too."""
        found: dict[str, set[str]] = defaultdict(set)
        for name, tree in self.trees.items():
            for node in ast.walk(tree):
                for target in self._defining_modules(node):
                    if target != name:
                        found[target].add(name)
        return found

    def _defining_modules(self, node: ast.AST) -> Iterable[str]:
        """The modules that define what an import gives: what a package re-exports comes from further down."""
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in self.files else self._exports.get(full, node.module)

    @cached_property
    def _exports(self) -> dict[str, str]:
        """For each name that a package re-exports the module that defines it."""
        return {
            f"{package}.{alias.asname or alias.name}": node.module
            for package, tree in self.trees.items()
            if self.is_package(package)
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module in self.files
            for alias in node.names
        }

    def _targets(self, nodes: Iterable[ast.AST]) -> Iterable[str]:
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    yield full if full in self.files else node.module
            elif isinstance(node, (ast.ClassDef, ast.Try)):
                yield from self._targets(node.body)

    @cached_property
    def longest_chain(self) -> list[str]:
        """The longest way from module to imported module."""
        known: dict[str, list[str]] = {}

        def chain(name: str, above: tuple[str, ...]) -> list[str]:
            if name not in known:
                below = [chain(x, (*above, name)) for x in sorted(self.imports[name]) if x not in above]
                known[name] = [name, *max(below, key=len, default=[])]
            return known[name]

        sys.setrecursionlimit(10_000)
        return max((chain(name, ()) for name in self.files), key=len)

    @cached_property
    def one_importer(self) -> list[str]:
        """Modules that exactly one other module imports."""
        return [name for name in self.lines if len(self.importers[name]) == 1]

    @cached_property
    def folders(self) -> dict[str, int]:
        """Modules directly in each folder."""
        found: dict[str, int] = defaultdict(int)
        for name in self.lines:
            found[name.rpartition(".")[0].removeprefix(f"{PACKAGE}.")] += 1
        return dict(found)

    @cached_property
    def repeated_classes(self) -> dict[str, list[str]]:
        """Class names that more than one module defines."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(name)
        return {name: places for name, places in found.items() if len(places) > 1}

    @cached_property
    def prose(self) -> str:
        """Docstrings, comments and messages: every string and comment that has a space in it."""
        words: list[str] = []
        for path in self.files.values():
            tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
            prose = (tokenize.STRING, tokenize.COMMENT)
            words += [token.string for token in tokens if token.type in prose and " " in token.string]
        return "\n".join(words)

    def per_thousand_words(self, pattern: re.Pattern[str]) -> float:
        """How often `pattern` occurs in a thousand words of prose."""
        return 1000 * len(pattern.findall(self.prose)) / len(re.findall(r"[A-Za-z']+", self.prose))


def table(house: House) -> list[tuple[str, str, str]]:
    """Each measure with its figure and its aim."""
    crowded = {name: n for name, n in house.folders.items() if name not in FLAT_ON_PURPOSE}
    return [
        ("modules", str(len(house.lines)), ""),
        ("lines of src", str(sum(len(p.read_text().splitlines()) for p in house.files.values())), "≤ 73000"),
        ("median file, lines", str(int(statistics.median(house.lines.values()))), "150 to 260"),
        ("largest file, lines", str(max(house.lines.values())), "≤ 700"),
        ("longest import chain", str(len(house.longest_chain)), "≤ 40"),
        ("modules with one importer", str(len(house.one_importer)), "≤ 40"),
        (
            "modules in the fullest folder",
            f"{max(crowded.values())} {max(crowded, key=lambda k: crowded[k])}",
            "≤ 13",
        ),
        ("class names in more than one module", str(len(house.repeated_classes)), "≤ 10"),
        ("whoever, somebody, nobody per 1000 words", f"{house.per_thousand_words(PRONOUNS):.2f}", "≤ 0.2"),
        ("literary markers per 1000 words", f"{house.per_thousand_words(LITERARY):.2f}", "≤ 0.7"),
    ]


def _listed(house: House) -> Mapping[str, Iterable[str]]:
    return {
        "longest import chain": house.longest_chain,
        "one importer": [
            f"{n}  {house.lines[n]} < {', '.join(house.importers[n])}" for n in house.one_importer
        ],
        "folders": [
            f"{n} {name}" for name, n in sorted(house.folders.items(), key=lambda x: -x[1]) if n > 13
        ],
        "repeated classes": [f"{n}: {', '.join(p)}" for n, p in sorted(house.repeated_classes.items())],
    }


def main() -> None:
    """Print the table, and with `--list` what it counts."""
    house = House()
    for measure, figure, aim in table(house):
        print(f"{measure:<44}{figure:<24}{aim}")
    if "--list" in sys.argv:
        for title, lines in _listed(house).items():
            print(f"\n{title}")
            for line in lines:
                print(f"  {line}")


if __name__ == "__main__":
    main()
