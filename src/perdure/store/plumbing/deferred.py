"""Defers the import of a module until one of its names is used.

A handle on a thread has methods that read, write, run and switch.  A program that only reads loads none of the modules
that a run or a switch needs, so a command such as `perdure threads log` starts faster.  Type checkers see the import:

    if TYPE_CHECKING:
        from perdure.runtime.run import control
    else:
        control = deferred("perdure.runtime.run.control")
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["deferred"]


class _DeferredModule(ModuleType):
    """Imports the module of its name when an attribute is read, and reads the attribute there."""

    def __getattr__(self, name: str) -> object:
        # Nothing is copied from the module: a test may replace a name in it.
        return getattr(import_module(self.__name__), name)


def deferred(name: str) -> ModuleType:
    """Return a stand-in for the module `name`, which imports it when one of its names is used."""
    return _DeferredModule(name)
