"""What ships for testing engines, stores and agents.

`Script` is a model whose steps are written down before, for testing an agent without a network.
`EngineSuite` is the conformance suite that every engine passes, `AdapterSuite` that of every adapter;
they need pytest, which is imported only when a suite is asked for.  `perdure.testing.disk` is a disk that fails.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.testing.adapters.suite import AdapterSuite
    from perdure.testing.engines import EngineSuite
    from perdure.testing.script import Script, crash, fail, say, step, think, use

_SUITES = {"AdapterSuite": "adapters.suite", "EngineSuite": "engines"}

__all__ = ["AdapterSuite", "EngineSuite", "Script", "crash", "fail", "say", "step", "think", "use"]


def __getattr__(name: str) -> object:
    """Import what is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_SUITES.get(name, 'script')}"), name)
