"""pydantic-ai on top of a store: its conversation store, and the guard of its tools.

    store = perdure.open("agents.db")
    conversations = Conversations(store)
    agent = Agent(model, tools=[pay], capabilities=[ToolGuard(store, {"pay": "financial"})])

Needs the extra `perdure[pydantic-ai]`.
"""

from __future__ import annotations

from perdure.integrations.pydantic_ai.conversations import Conversations
from perdure.integrations.pydantic_ai.tool_guard import ToolGuard

__all__ = ["Conversations", "ToolGuard"]
