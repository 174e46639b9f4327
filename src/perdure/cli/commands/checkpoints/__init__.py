"""`perdure checkpoints`: see what a backend was, or would be, told when it takes over."""

from __future__ import annotations
