"""What a model is shown of a call: kept with the call, or in the message that tells it.

A result that is settled by the very write that tells the conversation is not kept twice: the call
names the message, by `result_label`, and its words are there.  Everything else has a body of its own.
"""

from __future__ import annotations

import msgspec

from perdure.errors import Forgotten
from perdure.history.space import Space
from perdure.ledger import calls
from perdure.model.call import CallRecord
from perdure.model.event import MessageAppended
from perdure.model.message import ToolResult, decode_message

__all__ = ["shown"]

_results = msgspec.json.Decoder(ToolResult)


def shown(space: Space, record: CallRecord) -> ToolResult | None:
    """What a model is shown of what the call came to; None: nothing was kept, or it was forgotten."""
    try:
        if record.preview is not None:
            return _results.decode(space.body(record.preview))
        return _told(space, record) if record.result_label else None
    except Forgotten:
        return None


def _told(space: Space, record: CallRecord) -> ToolResult | None:
    """The same from the message; a copy goes by the name of the call that it was made from."""
    named, label = {record.id}, record.result_label or ""
    while record.copied_from is not None:
        record = calls.read(space, record.copied_from).record
        named.add(record.id)
    for commit in space.engine.labelled(space.name, label):
        for event in space.step(commit).changeset.events:
            if isinstance(event, MessageAppended) and event.id == label:
                results = decode_message(space.body(event.body)).tool_results
                return next((each for each in results if each.call_id in named), None)
    return None
