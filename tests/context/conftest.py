"""What the tests of contexts share: a store, and settings of the vendors, by which backends know their addresses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Store
from tests.switching.conftest import settings_of_vendors

__all__ = ["settings_of_vendors"]


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with perdure.open("memory:") as opened:
        yield opened
