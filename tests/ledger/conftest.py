"""What the tests of the ledger share: a keeper of calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ledger.books import ENGINES, Keeper, engine_of


@pytest.fixture(params=ENGINES)
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Keeper:
    """A keeper on each engine."""
    return Keeper(engine_of(request.param, tmp_path))
