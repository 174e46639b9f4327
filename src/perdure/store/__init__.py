"""The handles that a program uses: the store, its threads and agents, views of the past, and changes.

They are thin on purpose: each method calls the package that owns the rule.
"""

from __future__ import annotations
