"""Expects a run that fails, by the type of the error that failed it."""

from __future__ import annotations

import pytest

from perdure.errors import RunFailed

__all__ = ["run_fails"]


def run_fails(kind: str) -> pytest.RaisesExc[RunFailed]:
    """Like `pytest.raises(RunFailed)`, for a run that failed with an error of the type `kind`."""

    def matches(error: RunFailed) -> bool:
        assert getattr(error.run, "kind", None) == kind, error
        return True

    return pytest.raises(RunFailed, check=matches)
