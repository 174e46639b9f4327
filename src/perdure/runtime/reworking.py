"""Reworking: what changes with the arguments of a call that somebody edited.

They are validated by the tool, if it is at hand, before the decision is written; its fingerprint
and a templated key follow from them.
"""

from __future__ import annotations

import json

from perdure.ledger import keys
from perdure.ledger.calls import Changes
from perdure.ledger.decisions import Rework
from perdure.model.call import CallRecord
from perdure.model.canonical import Json
from perdure.runtime.desk import fingerprint_for
from perdure.runtime.ground import Ground

__all__ = ["rework_with"]


def rework_with(ground: Ground) -> Rework:
    """How the tools of this agent see new arguments; without the tool they are looked at when it runs."""
    toolbox = ground.agent.toolbox

    def rework(record: CallRecord, arguments: dict[str, Json]) -> Changes:
        tool = toolbox.get(record.tool)
        if tool is None:
            return {}
        taken = tool.validated(json.dumps(arguments))
        changes: Changes = {"fingerprint": fingerprint_for(tool, taken)}
        if tool.key is not None:
            changes["key"] = keys.templated_key(
                tool.key,
                dict(taken.normal),
                agent=ground.agent.name,
                thread=ground.space.label,
                scope=tool.key_scope,
            )
        return changes

    return rework
