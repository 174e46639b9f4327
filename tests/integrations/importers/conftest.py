"""What the tests of importers share: a store to import into."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Store


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with perdure.open("memory:") as opened:
        yield opened
