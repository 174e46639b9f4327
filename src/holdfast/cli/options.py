"""What the words after a command mean: the options that many commands share, each said once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cyclopts import Group, Parameter

__all__ = [
    "EVERYWHERE",
    "AgentName",
    "At",
    "Everywhere",
    "Limit",
    "OpId",
    "Prefix",
    "Reason",
    "Rebase",
    "StatePath",
    "ThreadId",
    "ThreadOrPath",
    "Timeline",
]

_MOMENT = "a commit (12 digits do), HEAD~n, turn:n, version:n, a message or run id, a timeline's name"


@Parameter(name="*", group=Group("Everywhere", sort_key=9))
@dataclass(frozen=True, kw_only=True)
class Everywhere:
    """The options that every command has."""

    store: Annotated[
        str,
        Parameter(
            env_var="HOLDFAST_STORE",
            metavar="PATH",
            help="The store: a file, or an address such as sqlite:///agents.db",
        ),
    ] = "./holdfast.db"
    json: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print JSON, errors too, for programs")
    ] = False


EVERYWHERE = Everywhere()

ThreadId: TypeAlias = Annotated[str, Parameter(name="THREAD", help="The thread's id")]
ThreadOrPath: TypeAlias = Annotated[
    str | None, Parameter(name="THREAD", help="The thread's id; left out with --agent", show_default=False)
]
StatePath: TypeAlias = Annotated[
    str | None, Parameter(name="PATH", help="The path, such as /todos.json", show_default=False)
]
Prefix: TypeAlias = Annotated[
    str | None, Parameter(name="PREFIX", help="Only this path and what is below it", show_default=False)
]
Timeline: TypeAlias = Annotated[str, Parameter(name="--timeline", metavar="NAME", help="The timeline")]
At: TypeAlias = Annotated[
    str | None, Parameter(name="--at", metavar="REF", help=f"The moment: {_MOMENT}; now if left out")
]
AgentName: TypeAlias = Annotated[
    str | None,
    Parameter(name="--agent", metavar="NAME", help="This agent's own map instead of a thread's state"),
]
Limit: TypeAlias = Annotated[int, Parameter(name="--limit", metavar="N", help="At most so many; 0 for all")]
Reason: TypeAlias = Annotated[
    str | None, Parameter(name="--reason", metavar="TEXT", help="What the commit says it was made for")
]
OpId: TypeAlias = Annotated[
    str | None,
    Parameter(name="--op-id", metavar="ID", help="Do it once however often it is repeated with this id"),
]
Rebase: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--rebase",
        negative=(),
        show_default=False,
        help="Go on top of what others write meanwhile to other paths, instead of stopping with a conflict",
    ),
]
