"""The names that programs outside look for in `perdure.providers`."""

from __future__ import annotations

import pytest

import perdure
from perdure import providers
from perdure.model.context import Context


def test_what_is_told_of_adapters_is_found_beside_them() -> None:
    """Types that live elsewhere are the same ones; what there is not is said."""
    assert providers.CanonicalAgentState is perdure.CanonicalAgentState
    assert providers.Context is Context
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = providers.Nothing
