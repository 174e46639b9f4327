"""How the source is arranged stays within limits: sizes, imports, names and vocabulary.

Each limit is the figure that was reached when the limit was last lowered; `python -m tools.house` prints today's
figures beside the aims.  A limit may be lowered towards its aim, and is never raised.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.architecture.source import modules
from tools.house import House, Measure, measures, traced_modules, walk_measures

LIMITS: dict[str, float] = {
    "largest file, lines": 700,
    "modules in the fullest folder": 13,
    "import cycles": 0,
    "longest import chain": 40,
    # Aim: 40, each hiding a format, a lock or a rule that is tested alone.
    "modules with one importer": 47,
    "class names in more than one module": 10,
    "whoever, somebody, nobody per 1000 words": 0.2,
    "literary markers per 1000 words": 0.7,
    "modules that one run enters": 75,
    "modules that one put enters": 25,
    "modules that one switch enters": 87,
}

# Class names that two modules may define, with the reason.  Most are public, so that a new name would break programs.
TWINS = {
    **dict.fromkeys(
        [
            "AgentChange",
            "AgentMap",
            "Artifacts",
            "Change",
            "Definitions",
            "Memory",
            "Store",
            "Thread",
            "View",
        ],
        "`perdure.aio` has the names of the blocking classes, so that a program changes its import alone",
    ),
    "ToolGuard": "each framework's guard is `ToolGuard` in the package of its integration; a program imports one",
}


def write(root: Path, modules: dict[str, str]) -> House:
    """Make a package of `modules`, each a path with its text, and read it."""
    for name, text in {"__init__.py": "", **modules}.items():
        path = root / "perdure" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return House(root / "perdure")


def figure(found: list[Measure], name: str) -> float:
    """The figure of the measure called `name`."""
    return next(measure.figure for measure in found if measure.name == name)


@pytest.fixture(scope="module")
def walks() -> dict[str, list[str]]:
    """The modules that a run, a put and a switch enter."""
    return traced_modules()


@pytest.fixture(scope="module")
def house() -> House:
    """The source, as other tests have parsed it."""
    return House(trees={each.name: each.tree for each in modules()})


@pytest.fixture(scope="module")
def found(house: House, walks: dict[str, list[str]]) -> list[Measure]:
    """The measures of the source."""
    return [*measures(house), *walk_measures(walks)]


def test_the_source_stays_within_its_limits(found: list[Measure]) -> None:
    """Each measure that has a limit is at or below it."""
    figures = {name: figure(found, name) for name in LIMITS}

    assert {name: each for name, each in figures.items() if each > LIMITS[name]} == {}


def test_only_known_class_names_occur_in_two_modules(house: House) -> None:
    """A reader who searches for a class by its name finds one class, or a pair with a reason."""
    assert sorted(set(house.repeated_classes) - set(TWINS)) == []


CHAIN = {f"m{n}.py": f"from perdure.m{n + 1} import x\n" for n in range(99)} | {"m99.py": "x = 1\n"}


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("largest file, lines", {"long.py": "x = 1\n" * 701}),
        ("modules in the fullest folder", {f"wide/m{n}.py": "x = 1\n" for n in range(14)}),
        ("import cycles", {"a.py": "from perdure.b import x\n", "b.py": "from perdure.a import y\n"}),
        ("longest import chain", CHAIN),
        ("modules with one importer", CHAIN),
        (
            "class names in more than one module",
            {f"{module}.py": "".join(f"class C{n}: ...\n" for n in range(20)) for module in "ab"},
        ),
        ("whoever, somebody, nobody per 1000 words", {"a.py": '"""Whoever asks nobody is told."""\n'}),
        ("literary markers per 1000 words", {"a.py": "# Meanwhile the run is made anew.\n"}),
    ],
)
def test_a_limit_that_is_crossed_is_found(tmp_path: Path, name: str, modules: dict[str, str]) -> None:
    """Control: a package that crosses one limit has a figure above it."""
    house = write(tmp_path, {"small.py": '"""A small module."""\n', **modules})

    assert figure(measures(house), name) > LIMITS[name]


def test_importers_are_counted_through_packages_and_for_types(tmp_path: Path) -> None:
    """Control: a name that a package re-exports counts for its module, and an import for types counts."""
    house = write(
        tmp_path,
        {
            "pair/__init__.py": "from perdure.pair.inner import x\n",
            "pair/inner.py": "x = 1\n",
            "first.py": "from perdure.pair import x\n",
            "second.py": """\
                from typing import TYPE_CHECKING
                if TYPE_CHECKING:
                    from perdure.pair.inner import x
                """,
        },
    )

    assert house.importers["perdure.pair.inner"] == {"perdure.pair", "perdure.first", "perdure.second"}
    assert house.imports["perdure.second"] == set()


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("run", {"runtime.run.loop", "runtime.tools.execution", "history.writer"}),
        ("put", {"store.timeline", "history.writer", "engines.sqlite.engine"}),
        ("switch", {"switching.commit", "context.assemble", "history.writer"}),
    ],
)
def test_the_walks_enter_the_modules_that_do_the_work(
    walks: dict[str, list[str]], name: str, modules: set[str]
) -> None:
    """Control: a trace that misses the writer or a worker thread would stay below its limit for nothing."""
    assert {f"perdure.{module}" for module in modules} <= set(walks[name])
