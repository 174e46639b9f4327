"""Verifies a store: hashes every byte again and checks every rule again.

It trusts nothing that can be computed, and holds only one page in memory, so a large store needs
no more memory than a small one.  It does not raise for damaged bytes: the report names each
fault.  It writes nothing.
"""

from __future__ import annotations

from perdure.history.verify.report import Fault, Progress, VerifiedPoint, VerifyReport
from perdure.history.verify.store import verify

__all__ = ["Fault", "Progress", "VerifiedPoint", "VerifyReport", "verify"]
