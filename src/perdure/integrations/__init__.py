"""Other frameworks' interfaces on top of threads, one module each; a program imports the one that it uses.

What the modules share is here: `door` makes the calls of frameworks that are synchronous, awaitable or both, `foreign_ids`
turns ids of any length and any characters into names that Perdure accepts, and `guard` takes a framework's tool calls
through the ledger.
"""
