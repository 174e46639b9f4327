"""Commands about providers: the vendors' formats, and what they refuse."""

from __future__ import annotations
