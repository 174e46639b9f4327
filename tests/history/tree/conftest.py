"""What the tests of the versioned map share: a store of its nodes."""

from __future__ import annotations

import pytest

from tests.history.tree.maps import Shelf


@pytest.fixture
def resources() -> Shelf:
    """A store of nodes."""
    return Shelf()
