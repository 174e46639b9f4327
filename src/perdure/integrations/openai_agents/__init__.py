"""The OpenAI Agents SDK on top of threads: its sessions, and a guard for its tools.

    session = Session(store.thread("trip-42", agent="travel"))
    agent = Agent(name="travel", tools=guard.wrap([pay]))  # guard = ToolGuard(session, {"pay": "financial"})
    await Runner.run(agent, "Book it", session=session)

Needs the extra `perdure[openai-agents]`.
"""

from __future__ import annotations

from perdure.integrations.openai_agents.session import Session
from perdure.integrations.openai_agents.tool_guard import ToolGuard

__all__ = ["Session", "ToolGuard"]
