"""The measures: one module for each group of bars, each a function from the ground to results."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.ground import Ground
from bench.measures import (
    bytes_on_disk,
    forks,
    growth,
    imports,
    loading,
    memory,
    peers,
    providers,
    puts,
    recall,
    runs,
    switches,
    turns,
    verify,
    writers,
)
from bench.table import Result, Skipped

__all__ = ["MEASURES"]

MEASURES: dict[str, Callable[[Ground], Iterable[Result | Skipped]]] = {
    "turns": turns.measure,
    "growth": growth.measure,
    "bytes": bytes_on_disk.measure,
    "loading": loading.measure,
    "forks": forks.measure,
    "puts": puts.measure,
    "writers": writers.measure,
    "runs": runs.measure,
    "imports": imports.measure,
    "memory": memory.measure,
    "verify": verify.measure,
    "recall": recall.measure,
    "switches": switches.measure,
    "providers": providers.measure,
    "peers": peers.measure,
}
