"""Settings that every test shares.

`HOLDFAST_DEEP=1` (see `make deep`) asks for the long campaigns; without it each test stays short enough for
every change.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("short", deadline=None, print_blob=True)
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile("deep" if os.environ.get("HOLDFAST_DEEP") else "short")
