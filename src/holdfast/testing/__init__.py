"""What ships for testing engines, stores and agents.

`EngineSuite` is the conformance suite that every engine passes; it needs pytest, which is
imported only when the suite is asked for.  `holdfast.testing.disk` is a disk that fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.engines.suite import EngineSuite

__all__ = ["EngineSuite"]


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    if name != "EngineSuite":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.testing.engines.suite import EngineSuite

    return EngineSuite
