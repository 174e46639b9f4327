"""What ships for testing engines, stores and agents.

`EngineSuite` is the conformance suite that every engine passes; it needs pytest, which is
imported only when the suite is asked for.  `holdfast.testing.disk` is a disk that fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.engines import EngineSuite

__all__ = ["EngineSuite"]


def __getattr__(name: str) -> object:
    """Import what is asked for; the suite so that pytest explains its failing asserts."""
    if name != "EngineSuite":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    pytest.register_assert_rewrite("holdfast.testing.engines")
    from holdfast.testing.engines import EngineSuite

    return EngineSuite
