"""The tool `read_artifact`: a model reads what was cut for want of room, page by page.

It is offered beside the agent's own tools where a result is shown in part.  It reads text artifacts in the history
of the line that the call is on and nothing else.  A call to it goes through the ledger like any other that only reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import Invalid, NotDone, NotFound
from holdfast.model.context import ToolSpec
from holdfast.runtime.agent import Agent
from holdfast.runtime.call import Call
from holdfast.runtime.result import PREVIEW_BYTES
from holdfast.runtime.tool import Tool, tool

__all__ = ["BUILT_IN", "NAME", "PAGE_CHARACTERS", "reader_spec"]

NAME = "read_artifact"
PAGE_CHARACTERS = 12_000  # that one call gives at the most
_PAGE_BYTES = PREVIEW_BYTES - 512  # a page is shown whole


@tool(name=NAME, effect="read_only")
def _read_artifact(reference: str, call: Call, offset: int = 0, limit: int = 8_000) -> str:
    """Read a stored tool result, or another artifact of this conversation, that is shown only in part.

    `reference` is the artifact://… that stands beside what was left out; `offset` is the character to begin with
    and `limit` how many to read, up to 12,000.  The answer says where the next page begins.
    """
    try:
        body = call.read_artifact(reference)
    except (NotFound, Invalid) as error:
        raise NotDone(str(error)) from error
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"[{reference} is no text: {len(body):,} bytes]"
    begin = max(0, offset)
    end = min(len(text), begin + max(1, min(limit, PAGE_CHARACTERS)))
    while len(text[begin:end].encode()) > _PAGE_BYTES:
        end = begin + (end - begin) * 3 // 4
    more = f"the next page begins at offset {end}" if end < len(text) else "this is the end"
    return f"[characters {begin:,} to {end:,} of {len(text):,} of {reference}; {more}]\n{text[begin:end]}"


def reader_spec(agent: Agent) -> ToolSpec | None:
    """The tool as a model is told of it; None: the agent declares a tool of that name, which counts."""
    return None if NAME in agent.toolbox else _read_artifact.spec


BUILT_IN: Mapping[str, Tool] = {NAME: _read_artifact}  # that every run can carry out
