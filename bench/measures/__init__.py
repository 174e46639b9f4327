"""The measures: one module for each group of bars, each a function from the ground to results."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.ground import Ground
from bench.measures import (
    bytes_on_disk,
    first_run,
    forks,
    growth,
    http,
    imports,
    loading,
    memory,
    one_tool,
    peers,
    providers,
    puts,
    recall,
    runs,
    savers,
    server,
    switches,
    turns,
    verify,
    whole,
    writers,
)
from bench.table import Result, Skipped

__all__ = ["MEASURES"]

MEASURES: dict[str, Callable[[Ground], Iterable[Result | Skipped]]] = {
    "turns": turns.measure,
    "growth": growth.measure,
    "bytes": bytes_on_disk.measure,
    "loading": loading.measure,
    "whole": whole.measure,
    "forks": forks.measure,
    "puts": puts.measure,
    "writers": writers.measure,
    "runs": runs.measure,
    "server": server.measure,
    "http": http.measure,
    "one-tool": one_tool.measure,
    "first-run": first_run.measure,
    "imports": imports.measure,
    "memory": memory.measure,
    "verify": verify.measure,
    "recall": recall.measure,
    "switches": switches.measure,
    "providers": providers.measure,
    "peers": peers.measure,
    "savers": savers.measure,
}
