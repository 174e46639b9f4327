"""Fixtures of the tests that hold the adapters against recorded traffic."""

from __future__ import annotations

import pytest

from tests.recorded.wire import FOLDER, Wire


@pytest.fixture(scope="session")
def wire() -> Wire:
    """The recorded traffic; skips where it is not."""
    if not (FOLDER / "facts.jsonl.gz").exists():
        pytest.skip(f"the recorded traffic is not there: {FOLDER}")
    return Wire()
