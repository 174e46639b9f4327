"""Verifying a store, space by space."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perdure.engines.contract import Engine
from perdure.history.scan import spaces as every
from perdure.history.space import STORE, Space, label_of
from perdure.history.tree import Cache
from perdure.history.verify.directory import check_directory
from perdure.history.verify.lines import check_lines
from perdure.history.verify.objects import check_objects
from perdure.history.verify.records import check_cells, check_ledger
from perdure.history.verify.report import Findings, Report

__all__ = ["verify"]

_CACHE_BYTES = 16 * 1024 * 1024


def verify(
    engine: Engine,
    *,
    spaces: Iterable[str] | None = None,
    progress: Callable[[str, int], None] | None = None,
    books: Callable[[Space], Iterable[tuple[str, str]]] | None = None,
) -> Report:
    """Check everything that `spaces` hold, all of them if None.

    `books` says, for a space, which cells or entries are not what its ledger says, and how; None: nobody asks.
    `progress` is told the space and how many things were checked in all, now and then.
    Raises `Unavailable` if the store cannot be read at all.
    """
    findings = Findings(progress)
    with findings.watching("store"):
        for name in every(engine) if spaces is None else spaces:
            findings.space = name
            space = _reading(engine, name, findings)
            _verify_space(space, findings)
            if books is not None:
                _check_books(space, books, findings)
            findings.space = STORE
    return findings.report()


def _verify_space(space: Space, findings: Findings) -> None:
    findings.count("space")
    commits = check_objects(space, findings)
    check_lines(space, commits, findings)
    check_ledger(space, findings)
    check_cells(space, findings)
    with findings.watching("space", name=space.name):
        space.engine.check(space.name, again=True)
    check_directory(space, findings)
    findings.tell()


def _check_books(
    space: Space, books: Callable[[Space], Iterable[tuple[str, str]]], findings: Findings
) -> None:
    with findings.watching("ledger"):
        for name, what in books(space):
            findings.add("ledger", what, name=name)


def _reading(engine: Engine, name: str, findings: Findings) -> Space:
    """The space for reading: it has no clock and no ids, because nothing is written."""
    label = name
    with findings.watching("space", name=name):
        label = label_of(engine, name)
    return Space(engine=engine, name=name, label=label, clock=lambda: 0, ids=str, cache=Cache(_CACHE_BYTES))
