"""The ledger: what became of every tool call, over all timelines of a thread."""
