"""Durable, versioned, vendor-free state for AI agents.

    store = perdure.open("agents.db")
    thread = store.thread("trip-42", agent="planner")
    with thread.change("first step") as change:
        change.say("user", "Book the cheapest one")
        change.put("/todos.json", ["find flights"])

Names are loaded when they are first used, so that importing the package costs almost nothing.
"""

from __future__ import annotations

# Type checkers know the name; importing it from `typing` would cost more than this whole module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from perdure import aio, errors, testing
    from perdure.context.limits import ContextLimits
    from perdure.errors import NotDone
    from perdure.history.retention.policy import RetentionPolicy
    from perdure.model.checkpoint import Checkpoint
    from perdure.model.head import Head
    from perdure.model.limits import Limits
    from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
    from perdure.projections.state import CanonicalAgentState
    from perdure.providers.backend import Backend
    from perdure.runtime.agent.agent import Agent, RunLimits, Stop
    from perdure.runtime.agent.plugin import Guard, Plugin
    from perdure.runtime.agent.state import state
    from perdure.runtime.session.result import Result
    from perdure.runtime.tools.call import Call, Outcome
    from perdure.runtime.tools.mcp import mcp_tools
    from perdure.runtime.tools.tool import Retry, Tool, tool
    from perdure.store.change import Change
    from perdure.store.open_store import open, restore
    from perdure.store.store import Store
    from perdure.store.thread import Thread
    from perdure.store.view import View
    from perdure.switching.checkpoint.document import load_checkpoint
    from perdure.switching.policy import Policy
    from perdure.switching.report import Report
    from perdure.switching.route import Route
    from perdure.version import __version__ as __version__

__all__ = [
    "Agent",
    "Backend",
    "Call",
    "CanonicalAgentState",
    "Change",
    "ContextLimits",
    "Checkpoint",
    "File",
    "Guard",
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
    "RetentionPolicy",
    "Retry",
    "Route",
    "RunLimits",
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
    "restore",
    "state",
    "testing",
    "tool",
]

_MESSAGE = "perdure.model.message"
_HOMES = {
    "Agent": "perdure.runtime.agent.agent",
    "Backend": "perdure.providers.backend",
    "Call": "perdure.runtime.tools.call",
    "CanonicalAgentState": "perdure.projections.state",
    "Change": "perdure.store.change",
    "ContextLimits": "perdure.context.limits",
    "Checkpoint": "perdure.model.checkpoint",
    "File": _MESSAGE,
    "Guard": "perdure.runtime.agent.plugin",
    "Head": "perdure.model.head",
    "Image": _MESSAGE,
    "Limits": "perdure.model.limits",
    "Message": _MESSAGE,
    "NotDone": "perdure.errors",
    "Outcome": "perdure.runtime.tools.call",
    "Plugin": "perdure.runtime.agent.plugin",
    "Policy": "perdure.switching.policy",
    "ReasoningSummary": _MESSAGE,
    "Report": "perdure.switching.report",
    "Result": "perdure.runtime.session.result",
    "RetentionPolicy": "perdure.history.retention.policy",
    "Retry": "perdure.runtime.tools.tool",
    "Route": "perdure.switching.route",
    "RunLimits": "perdure.runtime.agent.agent",
    "Stop": "perdure.runtime.agent.agent",
    "Store": "perdure.store.store",
    "Text": _MESSAGE,
    "Thread": "perdure.store.thread",
    "Tool": "perdure.runtime.tools.tool",
    "ToolCall": _MESSAGE,
    "ToolResult": _MESSAGE,
    "View": "perdure.store.view",
    "__version__": "perdure.version",
    "load_checkpoint": "perdure.switching.checkpoint.document",
    "mcp_tools": "perdure.runtime.tools.mcp",
    "open": "perdure.store.open_store",
    "restore": "perdure.store.open_store",
    "state": "perdure.runtime.agent.state",
    "tool": "perdure.runtime.tools.tool",
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
    """List the public names, loaded or not."""
    return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})
