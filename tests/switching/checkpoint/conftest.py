"""Fixtures of the tests of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure import Store
from tests.switching.checkpoint.works import Work, opened


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with opened() as store:
        yield store


@pytest.fixture
def work(store: Store) -> Work:
    """A desk with one thread in it."""
    return Work(store)
