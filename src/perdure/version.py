"""The version of Perdure, alone in its module: `perdure --version` loads nothing else, and the build reads it here."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
