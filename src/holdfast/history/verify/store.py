"""Verifying a store, space by space."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.engines.contract import Engine
from holdfast.history.scan import spaces as every
from holdfast.history.space import STORE, Space, label_of
from holdfast.history.tree import Cache
from holdfast.history.verify.directory import check_directory
from holdfast.history.verify.lines import check_lines
from holdfast.history.verify.objects import check_objects
from holdfast.history.verify.records import check_cells, check_ledger
from holdfast.history.verify.report import Findings, Report

__all__ = ["verify"]

_CACHE_BYTES = 16 * 1024 * 1024


def verify(
    engine: Engine,
    *,
    spaces: Iterable[str] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Report:
    """Check everything that `spaces` hold, all of them if None.

    `progress` is told the space and how many things were checked in all, now and then.
    Raises `Unavailable` if the store cannot be read at all.
    """
    findings = Findings(progress)
    with findings.watching("store"):
        for name in every(engine) if spaces is None else spaces:
            findings.space = name
            _verify_space(_reading(engine, name, findings), findings)
            findings.space = STORE
    return findings.report()


def _verify_space(space: Space, findings: Findings) -> None:
    findings.count("space")
    commits = check_objects(space, findings)
    check_lines(space, commits, findings)
    check_ledger(space, findings)
    check_cells(space, findings)
    check_directory(space, findings)
    findings.tell()


def _reading(engine: Engine, name: str, findings: Findings) -> Space:
    """The space for reading: it has no clock and no ids, because nothing is written."""
    label = name
    with findings.watching("space", name=name):
        label = label_of(engine, name)
    return Space(engine=engine, name=name, label=label, clock=lambda: 0, ids=str, cache=Cache(_CACHE_BYTES))
