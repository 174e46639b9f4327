"""Verifying a store: every byte is hashed again and every rule is checked again.

Nothing is trusted that can be computed, and nothing is held in memory but the page that is
being looked at, so a large store needs no more than a small one.  Whatever the bytes are,
verifying does not raise: what is wrong is in the report, by name.  It writes nothing.
"""

from __future__ import annotations

from perdure.history.verify.report import Fault, Report
from perdure.history.verify.store import verify

__all__ = ["Fault", "Report", "verify"]
