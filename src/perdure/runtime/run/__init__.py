"""The life of a run: start, loop, finish."""
