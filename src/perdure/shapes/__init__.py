"""The shapes of answers: what `--json` prints and what the server sends, one class for each.

A shape is a frozen value with the facts of one answer, made by a class method from the public classes of a store.
The command line adds how people see it; the server sends it as it is.  No shape has a rule of its own.
"""

from __future__ import annotations
