"""Open calls in words: what a model is told of a call whose result is not in its conversation.

The ledger knows more than the line: the call may wait, be under way, or have been carried out on
another line.  Only the first may still be decided; none of them is to be repeated unasked.
"""

from __future__ import annotations

from perdure.context.conversation import WAITING
from perdure.history.space import Space
from perdure.ledger import calls
from perdure.model.call import SETTLED, UNCLEAR, CallRecord

__all__ = ["standing_in_words"]


def standing_in_words(space: Space, call: str) -> str:
    """What is known of an open call, for a model."""
    held = calls.find(space, call)
    if held is None:
        return "What became of this call was never recorded. It may have happened. Do not simply repeat it."
    return _words(held.record)


def _words(record: CallRecord) -> str:
    if record.state == "started" or record.state in UNCLEAR:
        return "The outcome of this call is unknown. It may have happened. Do not simply repeat it."
    if record.state == "succeeded" or record.outcome == "done":
        return (
            "This call was carried out, on another line of this conversation; its result is not shown here. "
            "Do not repeat it."
        )
    if record.state in SETTLED:
        return f"This call was not carried out: it is {record.state}."
    return WAITING
