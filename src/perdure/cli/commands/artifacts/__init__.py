"""Commands about artifacts: bulky content beside a thread's state."""

from __future__ import annotations
