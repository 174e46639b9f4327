"""The validator: what each vendor's API demands of a request, checked without asking it.

    check(body, "anthropic-messages")    []: nothing known speaks against it

The rules are data, a table per format; each has a code, a level and a sentence.  An `error` is what
the API refuses; a `warn` is what only some models or servers do.
"""

from __future__ import annotations

from perdure.providers.validator.check import RULES, check
from perdure.providers.validator.rule import BrokenRule, Rule

__all__ = ["RULES", "BrokenRule", "Rule", "check"]
