"""How long a campaign is, and the seed that it starts from.

Every campaign is the same each time it runs.  `PERDURE_DEEP=1` asks for the long form,
`PERDURE_SEED=7` for another course; a failure names the seed that it was met with.
"""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["DEEP", "SEED", "sized"]

_T = TypeVar("_T")

DEEP = bool(os.environ.get("PERDURE_DEEP"))
SEED = int(os.environ.get("PERDURE_SEED", "1"))


def sized(ci: _T, deep: _T) -> _T:
    """`ci` for every change, `deep` for `make deep`."""
    return deep if DEEP else ci
