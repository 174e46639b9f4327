"""Commands about tool calls, as the ledger knows them."""

from __future__ import annotations
