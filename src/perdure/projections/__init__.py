"""Pure folds of a history: what a stretch of commits says about one layer of state.

Nothing here reads or writes a store; what is needed is passed in.
"""

from __future__ import annotations
