"""Checks a request by the rules of a vendor's API, without sending it.

    check(body, "anthropic-messages")    [] if no known rule is broken

The rules are data, a table per format; each has a code, a level and a sentence.  The API
refuses a request that breaks a rule of level `error`; for `warn` only some models or servers do.
"""

from __future__ import annotations

from perdure.providers.validator.check import RULES, check
from perdure.providers.validator.rule import BrokenRule, Rule

__all__ = ["RULES", "BrokenRule", "Rule", "check"]
