"""`python -m perdure`: the command line, where its script is not on the path."""

from __future__ import annotations

from perdure.cli import main

main()
