"""Commands about threads and their timelines."""

from __future__ import annotations
