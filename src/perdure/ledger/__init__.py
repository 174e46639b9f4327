"""The ledger: the records and transitions of every tool call, over all timelines of a thread."""
