"""The Claude Agent SDK on top of threads: its session store, and a guard for its tools.

    sessions = Sessions(store)
    guard = ToolGuard(sessions, {"Bash": "external_write", "Read": "read_only"})
    ClaudeAgentOptions(session_store=sessions, hooks=guard.hooks())

Needs the extra `perdure[claude-agent]`.
"""

from __future__ import annotations

from perdure.integrations.claude_agent.lines import lines_of
from perdure.integrations.claude_agent.sessions import Sessions
from perdure.integrations.claude_agent.tool_guard import ToolGuard

__all__ = ["Sessions", "ToolGuard", "lines_of"]
