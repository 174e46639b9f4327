"""Defines the nouns of Perdure: frozen types, canonical bytes, digests and pure rules.

Nothing here does I/O, reads a clock or draws a random number.
"""

from __future__ import annotations
