"""What the documents that Perdure implements show, run on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Store
from tests.selection import engines


@pytest.fixture(params=engines("agents.db", "memory:"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A new store."""
    url = str(request.param)
    with perdure.open(url if url == "memory:" else tmp_path / url) as opened:
        yield opened
