"""A run that was killed anywhere, and resumed until it ended, equals one that was not killed.

The same conversation and the same state, ids and attempts aside, where tools may be repeated or can
find out what became of a call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.campaign import SEED, sized
from tests.runtime.runs.nursery import Died, Nursery, nursery
from tests.runtime.runs.opened import copy_of_empty
from tests.runtime.runs.random_lives import Life, live, look

SEEDS = sized(8, 200)
DEATHS_MAX = 2  # a call that dies three times has failed


def killed(nest: Nursery, path: Path, seed: int, *, forgetful: bool = False) -> tuple[dict[str, Any], int]:
    """What a run came to that was killed up to twice, and how often it was."""
    store, deaths = str(path / f"{seed}.db"), 0
    copy_of_empty(store)
    for number in range(DEATHS_MAX):
        death = seed * 1_000 + number
        came = nest.child(live, Life(path=store, seed=seed, killed=death, forgetful=forgetful))
        assert not isinstance(came, Died) or came.signal, came.words
        deaths += isinstance(came, Died)
    last = Life(path=store, seed=seed, forgetful=forgetful)
    nest.lives(live, last)
    return nest.lives(look, last), deaths


def unharmed(nest: Nursery, path: Path, seed: int) -> dict[str, Any]:
    """What the same run came to that was not killed."""
    life = Life(path=str(path / f"{seed}-unharmed.db"), seed=seed)
    copy_of_empty(life.path)
    nest.lives(live, life)
    return nest.lives(look, life)


@pytest.mark.parametrize("part", range(4))
def test_a_run_that_was_killed_equals_one_that_was_not(memory_path: Path, part: int) -> None:
    """Whatever it was doing, and however often it died."""
    seeds = range(SEED * 1_000 + part, SEED * 1_000 + SEEDS, 4)
    deaths = 0

    with nursery() as nest:
        for seed in seeds:
            after, died = killed(nest, memory_path, seed)
            deaths += died
            assert after == unharmed(nest, memory_path, seed), f"seed {seed}"

    assert deaths > len(seeds) / 3


def test_with_hooks_that_know_nothing_runs_differ(memory_path: Path) -> None:
    """Control: where a hook says that nothing was done whatever it sees, something is sent twice."""
    with nursery() as nest:
        lives = (killed(nest, memory_path, seed, forgetful=True)[0] for seed in range(1, 100))
        twice = any(often > 1 for life in lives for often in life["sent"].values())

    assert twice
