"""Where bytes live.  `contract` says what an engine must do; only `registry` knows which exist."""

from __future__ import annotations
