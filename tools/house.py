"""Prints how the source is arranged beside the aims: sizes, imports, names and vocabulary.

    python -m tools.house            # the table
    python -m tools.house --list     # and what each figure counts

`tests/architecture/test_house.py` holds the limits that must not be crossed.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import cast

__all__ = ["FLAT_ON_PURPOSE", "House", "Measure", "measures", "traced_modules", "walk_measures"]

PACKAGE = "perdure"
SOURCE = Path(__file__).resolve().parent.parent / "src" / PACKAGE

# Pronouns without an actor, which plain technical English does not need.
PRONOUNS = re.compile(r"\b(?:whoever|whomever|somebody|nobody|anybody|whatever it is)\b", re.IGNORECASE)
LITERARY = re.compile(
    r"\b(?:anew|meanwhile|thereof|wherein|whereby|hitherto|came to nothing|comes to nothing|what became of|"
    r"becomes of|at hand|stands for good|in the making|of its own accord)\b",
    re.IGNORECASE,
)
# Strings and comments as the tokenizer finds them, in a tenth of its time.
STRING_OR_COMMENT = re.compile(
    r"""\#[^\n]*|(?i:[bfru]{0,2})(?:
        \"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3} | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
    )""",
    re.DOTALL | re.VERBOSE,
)
# Folders whose modules are import paths that the documents give to authors of engines and adapters.
FLAT_ON_PURPOSE = frozenset({"model"})


class House:
    """The modules of one package, read from its source without importing it."""

    def __init__(self, root: Path = SOURCE, *, trees: Mapping[str, ast.Module] | None = None) -> None:
        """Read the source below `root`; `trees`: its modules, if they are parsed already."""
        self.root = root
        self.files = {self._name(path): path for path in sorted(root.rglob("*.py"))}
        self.trees = self._parsed() if trees is None else trees

    def _parsed(self) -> dict[str, ast.Module]:
        gc.disable()  # nothing that is made here is garbage, and the search for it would take most of the time
        try:
            return {name: ast.parse(path.read_text()) for name, path in self.files.items()}
        finally:
            gc.enable()

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

    @property
    def lines_in_all(self) -> int:
        """Lines of every file, those of `__init__.py` included."""
        return sum(len(path.read_text().splitlines()) for path in self.files.values())

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """For each module the modules that it imports when it is loaded, types apart."""
        return {name: set(self._targets(tree.body)) - {name} for name, tree in self.trees.items()}

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """For each module those that import it anywhere, in functions and for types too."""
        found: dict[str, set[str]] = defaultdict(set)
        for name, tree in self.trees.items():
            for node in _statements(tree.body):
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
                known[name] = [name, *max(below, key=len, default=())]
            return known[name]

        sys.setrecursionlimit(10_000)
        return max((chain(name, ()) for name in self.files), key=len)

    @cached_property
    def cycles(self) -> list[list[str]]:
        """The first cycle of modules that import each other when they are loaded, if there is one."""
        try:
            TopologicalSorter(self.imports).prepare()
        except CycleError as error:
            return [error.args[1]]
        return []

    @cached_property
    def one_importer(self) -> list[str]:
        """Modules that exactly one other module imports; what a package re-exports itself is meant for programs."""
        return [
            name
            for name in self.lines
            if len(self.importers[name]) == 1 and name.rpartition(".")[0] not in self.importers[name]
        ]

    @cached_property
    def folders(self) -> dict[str, int]:
        """Modules directly in each folder."""
        found: dict[str, int] = defaultdict(int)
        for name in self.lines:
            found[name.rpartition(".")[0].removeprefix(f"{PACKAGE}.")] += 1
        return dict(found)

    @property
    def fullest_folder(self) -> tuple[str, int]:
        """The folder with the most modules and their number, apart from folders that are flat on purpose."""
        crowded = {name: n for name, n in self.folders.items() if name not in FLAT_ON_PURPOSE}
        return max(crowded.items(), key=lambda item: item[1])

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
        texts = (path.read_text() for path in self.files.values())
        return "\n".join(found for text in texts for found in STRING_OR_COMMENT.findall(text) if " " in found)

    def per_thousand_words(self, pattern: re.Pattern[str]) -> float:
        """How often `pattern` occurs in a thousand words of prose."""
        return 1000 * len(pattern.findall(self.prose)) / len(re.findall(r"[A-Za-z']+", self.prose))


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One figure beside its aim; `note` says where the figure comes from."""

    name: str
    figure: float
    aim: str = ""
    note: str = ""

    def __str__(self) -> str:
        figure = f"{self.figure:.2f}" if isinstance(self.figure, float) else str(self.figure)
        return f"{self.name:<44}{f'{figure} {self.note}':<32}{self.aim}".rstrip()


def measures(house: House) -> list[Measure]:
    """Measure `house` without running it."""
    fullest, modules = house.fullest_folder
    largest = max(house.lines, key=house.lines.__getitem__)
    return [
        Measure(name="modules", figure=len(house.lines)),
        Measure(name="lines of src", figure=house.lines_in_all, aim="≤ 73000"),
        Measure(
            name="median file, lines", figure=int(statistics.median(house.lines.values())), aim="150 to 260"
        ),
        Measure(name="largest file, lines", figure=house.lines[largest], aim="≤ 700"),
        Measure(name="import cycles", figure=len(house.cycles), aim="0"),
        Measure(name="longest import chain", figure=len(house.longest_chain), aim="≤ 40"),
        Measure(name="modules with one importer", figure=len(house.one_importer), aim="≤ 40"),
        Measure(name="modules in the fullest folder", figure=modules, aim="≤ 13", note=fullest),
        Measure(name="class names in more than one module", figure=len(house.repeated_classes), aim="≤ 10"),
        Measure(
            name="whoever, somebody, nobody per 1000 words",
            figure=house.per_thousand_words(PRONOUNS),
            aim="≤ 0.2",
        ),
        Measure(
            name="literary markers per 1000 words", figure=house.per_thousand_words(LITERARY), aim="≤ 0.7"
        ),
    ]


def _statements(nodes: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """The statements and those within them; `ast.walk` visits every expression too, of which there are ten times as many."""
    for node in nodes:
        yield node
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from _statements(getattr(node, part, ()))


def traced_modules() -> dict[str, list[str]]:
    """Return the modules that a run with one tool, a put and a switch enter, traced in a process of its own."""
    root = SOURCE.parent.parent
    path = os.pathsep.join([str(SOURCE.parent), str(root)])
    ended = subprocess.run(
        [sys.executable, "-m", "tools.walks"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return cast("dict[str, list[str]]", json.loads(ended.stdout))


def walk_measures(walks: Mapping[str, Sequence[str]]) -> list[Measure]:
    """Count the modules that each operation of `tools.walks` enters."""
    aims = {"run": "≤ 75", "put": "≤ 25"}
    return [
        Measure(name=f"modules that one {name} enters", figure=len(entered), aim=aims.get(name, ""))
        for name, entered in walks.items()
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
    house, walks = House(), traced_modules()
    for measure in [*measures(house), *walk_measures(walks)]:
        print(measure)
    if "--list" in sys.argv:
        for title, lines in {**_listed(house), **walks}.items():
            print(f"\n{title}")
            for line in lines:
                print(f"  {line}")


if __name__ == "__main__":
    main()
