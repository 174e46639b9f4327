"""Where an agent is declared: what to write after `--code`, found by reading the files here, never by running them.

What an agent's tools do is known only to the program that declares it.  Somebody who left `--code` out,
or wrote a file's name, is told what to type.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from perdure.model.nearness import did_you_mean

__all__ = ["Declared", "as_module", "declared_here", "what_to_type"]

_FILES_MAX = 50
_BYTES_MAX = 256 * 1024
_SHOWN = 3


class Declared(NamedTuple):
    """An agent that a file here declares."""

    code: str  # as --code takes it
    agent: str


def what_to_type(agent: str | None = None) -> str:
    """A sentence that says what to write after `--code` for that agent; None: for whichever is meant."""
    found = list(islice(declared_here(), _FILES_MAX))
    fits = [each.code for each in found if agent in (None, each.agent)]
    if fits:
        return f"Write --code {' or --code '.join(fits[:_SHOWN])}."
    hint = did_you_mean(agent or "", (each.agent for each in found))
    return f"{hint}Write --code MODULE:NAME; for an agent that app.py keeps as planner, --code app:planner."


def as_module(code: str) -> str | None:
    """`code` with a module where it names a file: app.py:planner is app:planner; None if it names none."""
    file, colon, name = code.partition(":")
    parts = Path(file).parts
    if not file.endswith(".py") or not all(part.removesuffix(".py").isidentifier() for part in parts):
        return None
    module = ".".join(parts).removesuffix(".py")
    if name:
        return f"{module}{colon}{name}"
    within = [each.code for each in _declared_in(Path(file), module)]
    return within[0] if len(within) == 1 else module


def declared_here() -> Iterator[Declared]:
    """The agents that the Python files of this directory keep under a name of their own."""
    names = sorted(each.name for each in islice(os.scandir(), 1_000) if each.name.endswith(".py"))
    for name in names[:_FILES_MAX]:
        module = name.removesuffix(".py")
        if module.isidentifier():
            yield from _declared_in(Path(name), module)


def _declared_in(file: Path, module: str) -> Iterator[Declared]:
    try:
        if file.stat().st_size > _BYTES_MAX:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in _statements(tree.body):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, agent = statement.targets[0], _agent(statement.value)
            if isinstance(target, ast.Name) and agent is not None:
                yield Declared(f"{module}:{target.id}", agent)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module whose names are the module's own: those inside `with`, `if` and `try` too."""
    for statement in body:
        yield statement
        for inside in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.With | ast.If | ast.Try):
                yield from _statements(getattr(statement, inside, ()))


def _agent(value: ast.expr) -> str | None:
    """The name in Agent("name", …); None for anything else."""
    if not isinstance(value, ast.Call):
        return None
    called = value.func
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", None)
    given = value.args[0] if value.args else next((k.value for k in value.keywords if k.arg == "name"), None)
    if name == "Agent" and isinstance(given, ast.Constant) and isinstance(given.value, str):
        return given.value
    return None
