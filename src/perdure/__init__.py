"""Durable, versioned, vendor-free state for AI agents.

    store = perdure.open("agents.db")
    thread = store.thread("trip-42", agent="planner")
    with thread.change("first step") as change:
        change.say("user", "Book the cheapest one")
        change.put("/todos.json", ["find flights"])

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # type checkers know the name; importing it from `typing` would cost more than all of this
)

if TYPE_CHECKING:
    from perdure import aio, errors, testing
    from perdure.context.limits import ContextLimits
    from perdure.errors import NotDone
    from perdure.migration.envelope import load_checkpoint
    from perdure.migration.policy import Policy
    from perdure.migration.report import Report
    from perdure.migration.route import Route
    from perdure.model.checkpoint import Checkpoint
    from perdure.model.head import Head
    from perdure.model.limits import Limits
    from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
    from perdure.projections.state import CanonicalAgentState
    from perdure.providers.backend import Backend
    from perdure.runtime.agent import Agent
    from perdure.runtime.call import Call, Outcome
    from perdure.runtime.declared import state
    from perdure.runtime.ended import Result
    from perdure.runtime.mcp import mcp_tools
    from perdure.runtime.plugin import Plugin
    from perdure.runtime.stop import Stop
    from perdure.runtime.tool import Retry, Tool, tool
    from perdure.threads.change import Change
    from perdure.threads.opening import open
    from perdure.threads.store import Store
    from perdure.threads.thread import Thread
    from perdure.threads.view import View

__all__ = [
    "Agent",
    "Backend",
    "Call",
    "CanonicalAgentState",
    "Change",
    "ContextLimits",
    "Checkpoint",
    "File",
    "Head",
    "Image",
    "Limits",
    "Message",
    "NotDone",
    "Outcome",
    "Plugin",
    "Policy",
    "ReasoningSummary",
    "Report",
    "Result",
    "Retry",
    "Route",
    "Stop",
    "Store",
    "Text",
    "Thread",
    "Tool",
    "ToolCall",
    "ToolResult",
    "View",
    "aio",
    "errors",
    "load_checkpoint",
    "mcp_tools",
    "open",
    "state",
    "testing",
    "tool",
]

_MESSAGE = "perdure.model.message"
_HOMES = {
    "Agent": "perdure.runtime.agent",
    "Backend": "perdure.providers.backend",
    "Call": "perdure.runtime.call",
    "CanonicalAgentState": "perdure.projections.state",
    "Change": "perdure.threads.change",
    "ContextLimits": "perdure.context.limits",
    "Checkpoint": "perdure.model.checkpoint",
    "File": _MESSAGE,
    "Head": "perdure.model.head",
    "Image": _MESSAGE,
    "Limits": "perdure.model.limits",
    "Message": _MESSAGE,
    "NotDone": "perdure.errors",
    "Outcome": "perdure.runtime.call",
    "Plugin": "perdure.runtime.plugin",
    "Policy": "perdure.migration.policy",
    "ReasoningSummary": _MESSAGE,
    "Report": "perdure.migration.report",
    "Result": "perdure.runtime.ended",
    "Retry": "perdure.runtime.tool",
    "Route": "perdure.migration.route",
    "Stop": "perdure.runtime.stop",
    "Store": "perdure.threads.store",
    "Text": _MESSAGE,
    "Thread": "perdure.threads.thread",
    "Tool": "perdure.runtime.tool",
    "ToolCall": _MESSAGE,
    "ToolResult": _MESSAGE,
    "View": "perdure.threads.view",
    "load_checkpoint": "perdure.migration.envelope",
    "mcp_tools": "perdure.runtime.mcp",
    "open": "perdure.threads.opening",
    "state": "perdure.runtime.declared",
    "tool": "perdure.runtime.tool",
}
_MODULES = ("aio", "errors", "testing")


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    from importlib import import_module  # not needed by a program that only names the package

    if name in _MODULES:
        return import_module(f"perdure.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
