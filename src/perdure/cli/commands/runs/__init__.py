"""Commands about runs: what an agent did on a thread, from input to finish."""

from __future__ import annotations
