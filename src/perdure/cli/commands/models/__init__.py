"""Commands about models: what is known of them."""

from __future__ import annotations
