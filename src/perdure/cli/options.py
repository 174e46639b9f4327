"""What the words after a command mean: the options that many commands share, each said once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter

from perdure.cli.completion import in_store

__all__ = [
    "EVERYWHERE",
    "Format",
    "AgentName",
    "AnyThread",
    "AnyTimeline",
    "At",
    "By",
    "CallId",
    "Everywhere",
    "LastRun",
    "Limit",
    "NewOwner",
    "OnlyAgent",
    "OnlyTimeline",
    "OpId",
    "Prefix",
    "Reason",
    "Rebase",
    "PlaceInside",
    "StatePath",
    "SearchedBy",
    "ThisRun",
    "ThreadId",
    "ThreadOrPath",
    "Timeline",
    "Why",
]

_MOMENT = (
    "its digest (12 digits are enough), HEAD~n, turn:n, turn:n~1 (before it), version:n, a message or run id, a framework:id, "
    "a timeline's name"
)


SearchedBy: TypeAlias = Annotated[
    Literal["none", "auto", "minilm"],
    Parameter(
        name="--embed",
        help="The model to search memories with by meaning; auto: minilm if it is installed; none: words alone",
    ),
]
"""How a server searches memories."""


@Parameter(name="*", group=Group("Everywhere", sort_key=9))
@dataclass(frozen=True, kw_only=True)
class Everywhere:
    """The options that every command has."""

    store: Annotated[
        str,
        Parameter(
            env_var="PERDURE_STORE",
            metavar="PATH",
            help="The store: a file, or an address such as sqlite:///agents.db",
        ),
    ] = "./perdure.db"
    json: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Print JSON, errors too, for programs")
    ] = False
    verbose: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Print what happens to the error stream, as the log has it"
        ),
    ] = False


EVERYWHERE = Everywhere()

ThreadId: TypeAlias = Annotated[str, Parameter(name="THREAD", completer=in_store, help="The thread's id")]
ThreadOrPath: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="THREAD", completer=in_store, help="The thread's id; left out with --agent", show_default=False
    ),
]
AnyThread: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="THREAD", completer=in_store, help="The thread's id; all threads if left out", show_default=False
    ),
]
LastRun: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="RUN",
        completer=in_store,
        help="The run's id, before which THREAD can be left out; the last one if left out",
        show_default=False,
    ),
]
ThisRun: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="RUN",
        completer=in_store,
        help="The run's id, before which THREAD can be left out; the one on the timeline if left out",
        show_default=False,
    ),
]
CallId: TypeAlias = Annotated[
    str,
    Parameter(
        name="CALL",
        completer=in_store,
        help="The call's id, or a part of it as listings show it, before which THREAD can be left out",
    ),
]
By: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--by",
        metavar="WHO",
        help="The name to record; os:USER, the user of the system, if left out",
    ),
]
Why: TypeAlias = Annotated[str | None, Parameter(name="--why", metavar="TEXT", help="The reason to record")]
StatePath: TypeAlias = Annotated[
    str | None,
    Parameter(name="PATH", completer=in_store, help="The path, such as /todos.json", show_default=False),
]
PlaceInside: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--place",
        metavar="PLACE",
        help="A place inside the JSON document: a key, or a list of keys and indexes, such as '[\"jam\",0]'",
    ),
]
Prefix: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="PREFIX", completer=in_store, help="Only this path and those below it", show_default=False
    ),
]
Timeline: TypeAlias = Annotated[
    str, Parameter(name="--timeline", completer=in_store, metavar="NAME", help="The timeline")
]
AnyTimeline: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--timeline",
        completer=in_store,
        metavar="NAME",
        help="The timeline; the one it belongs to if left out",
    ),
]
OnlyTimeline: TypeAlias = Annotated[
    str | None,
    Parameter(name="--timeline", completer=in_store, metavar="NAME", help="Only what is on this timeline"),
]
At: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--at", metavar="REF", completer=in_store, help=f"At a commit: {_MOMENT}; now if left out"
    ),
]
AgentName: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--agent",
        metavar="NAME",
        completer=in_store,
        help="This agent's own map instead of a thread's state",
    ),
]
Format: TypeAlias = Annotated[
    str, Parameter(name="--format", metavar="API", help="The wire format, such as openai-chat")
]


def _check_limit(_: object, limit: int) -> None:
    if limit < 0:
        raise ValueError("Give a number from 0; 0 is for all.")


NewOwner: TypeAlias = Annotated[
    str | None,
    Parameter(name="--owner", metavar="NAME", completer=in_store, help="The owner: a user, a customer"),
]
OnlyAgent: TypeAlias = Annotated[
    str | None,
    Parameter(name="--agent", metavar="NAME", completer=in_store, help="Only threads of this agent"),
]
Limit: TypeAlias = Annotated[
    int,
    Parameter(name="--limit", metavar="N", help="At most this many; 0 for all", validator=_check_limit),
]
Reason: TypeAlias = Annotated[
    str | None, Parameter(name="--reason", metavar="TEXT", help="The reason that the commit records")
]
OpId: TypeAlias = Annotated[
    str | None,
    Parameter(name="--op-id", metavar="ID", help="Do it only once, even if it is repeated with this id"),
]
ToBackend: TypeAlias = Annotated[
    str,
    Parameter(name="--to", metavar="BACKEND", help="The backend, such as anthropic:claude-sonnet-5-5"),
]
BaseUrl: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--base-url",
        metavar="URL",
        help="The address of its server, such as http://localhost:8000/v1, for anthropic, google, mistral and ollama without /v1; the vendor's own if left out",
    ),
]
DryRun: TypeAlias = Annotated[
    bool,
    Parameter(name="--dry-run", negative=(), show_default=False, help="Check only; change nothing"),
]
ApprovedBy: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--approved-by",
        metavar="WHO",
        help="The name of the person who approves what the policy does not allow by itself",
    ),
]
Rebase: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--rebase",
        negative=(),
        show_default=False,
        help="Write on top of newer commits that changed other paths, instead of stopping with a conflict",
    ),
]
