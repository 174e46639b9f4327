"""Approvals that a vendor's server asks for before it calls a tool of its own.

OpenAI asks before it calls an MCP server that it reaches itself.  The question is a call like any other:
it waits for a person's decision, and the decision goes back to OpenAI, which then makes the call or not.
An agent that declares a tool with `serves="openai.mcp_approval"` decides in code instead.
"""

from __future__ import annotations

from typing import Any

from holdfast.runtime.call import Call
from holdfast.runtime.tool import Tool, tool

__all__ = ["VENDOR_APPROVALS"]


# Approving has no effect here, so it may be repeated; what follows from it at the vendor's may have any.
@tool(
    name="openai.mcp_approval",
    description="Lets OpenAI call a tool of an MCP server.",
    effect="external_write",
    idempotent=True,
    ask=True,
    repeat_guard="allow",
)
def _approve(
    approval_request_id: str, server_label: str, name: str, call: Call, arguments: Any = None
) -> bool | str:
    if call.decision is not None and call.decision.verdict == "edit":
        return "Not approved: the arguments were edited, and OpenAI makes the call with its own alone."
    return True


VENDOR_APPROVALS: dict[str, Tool] = {_approve.name: _approve}
