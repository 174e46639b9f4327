"""What the tests of the git export share: a store to export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Store
from tests.store.git_export.looking import opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file."""
    with opened(tmp_path / "store.db") as store:
        yield store
