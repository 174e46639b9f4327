"""What the tests of contexts share: settings of the vendors, by which backends know their addresses."""

from __future__ import annotations

from tests.switching.conftest import settings_of_vendors

__all__ = ["settings_of_vendors"]
