"""What must hold at the face, whichever engine is below: a second opening, and a thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Store, Thread


@pytest.fixture
def other(store: Store, store_url: str) -> Iterator[Store]:
    """The same store, opened by somebody else."""
    with perdure.open(store_url) as opened:
        yield opened


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread of that store, with nothing committed."""
    return store.thread("trip-42", agent="planner")
