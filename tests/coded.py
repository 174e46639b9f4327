"""Expects an error by its type, its code and its facts, so that no test depends on the wording of a message."""

from __future__ import annotations

from typing import TypeVar

import pytest

from perdure.errors import PerdureError

__all__ = ["raises"]

E = TypeVar("E", bound=PerdureError)


def raises(kind: type[E], code: str, /, **facts: object) -> pytest.RaisesExc[E]:
    """Like `pytest.raises`, for an error that has this `code` and at least these `facts`."""

    def matches(error: E) -> bool:
        assert (error.code, {name: error.facts.get(name) for name in facts}) == (code, facts), error
        return True

    return pytest.raises(kind, check=matches)
