"""Durable, versioned, vendor-free state for AI agents.

    store = holdfast.open("agents.db")
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
    from holdfast import aio, errors, testing
    from holdfast.context.limits import ContextLimits
    from holdfast.errors import NotDone
    from holdfast.migration.envelope import load_checkpoint
    from holdfast.migration.policy import Policy
    from holdfast.migration.report import Report
    from holdfast.migration.route import Route
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.head import Head
    from holdfast.model.limits import Limits
    from holdfast.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
    from holdfast.projections.state import CanonicalAgentState
    from holdfast.providers.backend import Backend
    from holdfast.runtime.agent import Agent
    from holdfast.runtime.call import Call, Outcome
    from holdfast.runtime.declared import state
    from holdfast.runtime.ended import Result
    from holdfast.runtime.mcp import mcp_tools
    from holdfast.runtime.plugin import Plugin
    from holdfast.runtime.stop import Stop
    from holdfast.runtime.tool import Retry, Tool, tool
    from holdfast.threads.change import Change
    from holdfast.threads.opening import open
    from holdfast.threads.store import Store
    from holdfast.threads.thread import Thread
    from holdfast.threads.view import View

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

_MESSAGE = "holdfast.model.message"
_HOMES = {
    "Agent": "holdfast.runtime.agent",
    "Backend": "holdfast.providers.backend",
    "Call": "holdfast.runtime.call",
    "CanonicalAgentState": "holdfast.projections.state",
    "Change": "holdfast.threads.change",
    "ContextLimits": "holdfast.context.limits",
    "Checkpoint": "holdfast.model.checkpoint",
    "File": _MESSAGE,
    "Head": "holdfast.model.head",
    "Image": _MESSAGE,
    "Limits": "holdfast.model.limits",
    "Message": _MESSAGE,
    "NotDone": "holdfast.errors",
    "Outcome": "holdfast.runtime.call",
    "Plugin": "holdfast.runtime.plugin",
    "Policy": "holdfast.migration.policy",
    "ReasoningSummary": _MESSAGE,
    "Report": "holdfast.migration.report",
    "Result": "holdfast.runtime.ended",
    "Retry": "holdfast.runtime.tool",
    "Route": "holdfast.migration.route",
    "Stop": "holdfast.runtime.stop",
    "Store": "holdfast.threads.store",
    "Text": _MESSAGE,
    "Thread": "holdfast.threads.thread",
    "Tool": "holdfast.runtime.tool",
    "ToolCall": _MESSAGE,
    "ToolResult": _MESSAGE,
    "View": "holdfast.threads.view",
    "load_checkpoint": "holdfast.migration.envelope",
    "mcp_tools": "holdfast.runtime.mcp",
    "open": "holdfast.threads.opening",
    "state": "holdfast.runtime.declared",
    "tool": "holdfast.runtime.tool",
}
_MODULES = ("aio", "errors", "testing")


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    from importlib import import_module  # not needed by a program that only names the package

    if name in _MODULES:
        return import_module(f"holdfast.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
