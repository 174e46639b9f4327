"""Commands about the server and the keys that its clients present."""

from __future__ import annotations
