"""A conversation at the terminal: what `holdfast chat` is made of."""

from __future__ import annotations
