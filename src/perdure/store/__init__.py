"""What a program holds: the store, its threads and agents, views of the past, and changes.

Thin on purpose: each method calls the package that owns the rule.
"""

from __future__ import annotations
