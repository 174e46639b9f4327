"""A conversation at the terminal: what `perdure chat` is made of."""

from __future__ import annotations
