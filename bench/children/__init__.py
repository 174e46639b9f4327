"""Programs that measures run in processes of their own."""

from __future__ import annotations
