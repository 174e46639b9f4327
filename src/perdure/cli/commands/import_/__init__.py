"""What `perdure import` is made of: the command, and what it answers."""

from __future__ import annotations
