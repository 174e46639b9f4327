"""LangGraph on top of a store: a checkpointer, a memory store, and the guard of its tools.

    store = perdure.open("agents.db")
    graph = builder.compile(checkpointer=Saver(store), store=Memory(store))
    tools = ToolNode([pay], wrap_tool_call=guard.wrap_tool_call)  # guard = ToolGuard(store, {"pay": "financial"})

Needs the extra `perdure[langgraph]`.
"""

from __future__ import annotations

from perdure.integrations.langgraph.memory_store import Memory
from perdure.integrations.langgraph.saver import Saver
from perdure.integrations.langgraph.tool_guard import ToolGuard

__all__ = ["Memory", "Saver", "ToolGuard"]
