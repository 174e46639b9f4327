"""Folds commits and ledger entries into layers of state: transcript, calls, working memory, runtime.

These are pure functions: nothing here reads or writes a store.
"""

from __future__ import annotations
