"""Built-in tools, which every run has beside the tools that its agent declares.

`read_artifact` lets a model read, page by page, results that were cut for want of room.  It is offered where a result is
shown in part, and reads only text artifacts in the history of the call's timeline.

`openai.mcp_approval` is never offered to a model.  OpenAI asks for an approval before it calls an MCP server that
it reaches itself.  The question becomes a call of this tool, which waits for a person's decision; the decision
goes back to OpenAI, which then makes the call or not.  An agent that declares a tool with
`serves="openai.mcp_approval"` decides in code instead.

Calls to both go through the ledger like any other.  A tool of the same name that the agent declares replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.errors import Invalid, NotDone, NotFound
from perdure.model.context import ToolSpec
from perdure.runtime.agent.agent import Agent
from perdure.runtime.tools.call import Call
from perdure.runtime.tools.result import PREVIEW_BYTES
from perdure.runtime.tools.tool import Tool, tool

__all__ = ["BUILT_IN", "PAGE_CHARACTERS", "reader_spec"]

_READER = "read_artifact"
PAGE_CHARACTERS = 12_000  # that one call gives at the most
_PAGE_BYTES = PREVIEW_BYTES - 512  # a page is shown whole


@tool(name=_READER, effect="read_only")
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
    """Return the spec of `read_artifact` for a model; None if the agent declares a tool of that name."""
    return None if _READER in agent.toolbox else _read_artifact.spec


# Approving has no effect here, so it may be repeated; what follows from it at the vendor's may have any.
@tool(
    name="openai.mcp_approval",
    description="Lets OpenAI call a tool of an MCP server.",
    effect="external_write",
    idempotent=True,
    ask=True,
    repeat_guard="allow",
)
def _approve_mcp_call(
    approval_request_id: str, server_label: str, name: str, call: Call, arguments: Any = None
) -> bool | str:
    if call.decision is not None and call.decision.verdict == "edit":
        return "Not approved: the arguments were edited, and OpenAI makes the call with its own alone."
    return True


BUILT_IN: Mapping[str, Tool] = {each.name: each for each in (_read_artifact, _approve_mcp_call)}
