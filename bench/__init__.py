"""The yardstick: what Perdure costs, as ratios to a bare SQLite table in the same run.

Run it with `python -m bench`, or `make bench`.  docs/explanation/benchmarks.md explains the table.
"""

from __future__ import annotations
