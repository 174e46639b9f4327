"""A thread that is not there: the name that was meant is found among many without listing them."""

from __future__ import annotations

from typing import cast

import pytest

import perdure
from perdure import Store, errors
from perdure.model.names import COMPARED_MAX

THREADS = 2 * COMPARED_MAX + 100


@pytest.fixture(scope="module")
def crowd() -> Store:
    """A store with more threads than are ever compared."""
    store = perdure.open("memory:")
    for number in range(THREADS):
        store.thread(f"trip-{number:05}", agent="planner")
    return store


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (f"trip-{THREADS - 50:05}x", f"trip-{THREADS - 50:05}"),
        (f"trip-{THREADS - 10:05}"[:-1], f"trip-{THREADS - 1:05}"),
        ("trp-00001", "trip-00001"),
    ],
)
def test_a_mistyped_thread_is_found_among_many(crowd: Store, typed: str, meant: str) -> None:
    """Those that begin as it does are compared first, so it does not matter how many stand before them."""
    with pytest.raises(errors.NotFound) as missing:
        crowd.thread(typed)
    assert (missing.value.code, missing.value.facts["thread"]) == ("thread_not_found", typed)
    assert meant in cast("tuple[str, ...]", missing.value.facts["near"])


def test_only_so_many_threads_are_read(crowd: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing stops: fewer ids are read than there are threads."""
    engine, read = crowd._resources.engine, list[str]()
    cells = engine.cells

    def counted(*args: object, **options: object) -> object:
        found = cells(*args, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        read.extend(cell.name for cell in found)
        return found

    monkeypatch.setattr(engine, "cells", counted)

    with pytest.raises(errors.NotFound):
        crowd.thread("trip-zzzzz")

    assert 0 < len(read) <= COMPARED_MAX + 1_000
    assert len(read) < THREADS


def test_a_thread_that_was_removed_is_not_what_was_meant() -> None:
    """A name is told only if there is a thread behind it."""
    with perdure.open("memory:") as store:
        store.thread("shopping", agent="helper")
        store.thread("shopping", agent="helper").rm()

        with pytest.raises(errors.NotFound) as missing:
            store.thread("shoping")

    assert "Did you mean" not in str(missing.value)
