"""Commands about migration checkpoints: the state that a switch hands to the next backend."""

from __future__ import annotations
