"""Moments on the command line: what REF may be, and what a command reads from.

Calls and their approvals as one timeline sees them.

Threads, agents, timelines and paths that were named by a part, as listings show them (`whole_names`).

Runs and calls that were named without their thread (`with_its_thread`, `thread_with`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import guessing, moment_names
from perdure.cli.options import EVERYWHERE
from perdure.errors import Invalid, NotFound, PerdureError
from perdure.ledger.trace import Traced
from perdure.model.head import MAIN
from perdure.model.names import did_you_mean, id_meant
from perdure.model.ticket import Ticket
from perdure.shapes.lookup import held_from
from perdure.store.agents import AgentMap
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = [
    "call_on",
    "given",
    "is_held",
    "named",
    "open_on",
    "resolve",
    "thread_with",
    "view_at",
    "whole_names",
    "with_its_thread",
]


def view_at(line: Thread | AgentMap, at: str | None) -> View:
    """Return a view of `line` at a moment, now if None; later writes do not change the view."""
    return line.at() if at is None else line.at(resolve(line, at))


def resolve(line: Thread | AgentMap, name: str) -> str | None:
    """Return the commit that `name` means; the error for an unknown name has names that are close."""
    if not isinstance(line, Thread):
        return line.at(name).digest
    with guessing(name, lambda: moment_names(line, name)):
        return line.at(name).digest


def given(thread: Thread, name: str) -> str:
    """Return `name` if it means a moment, for a write that records it as it was given."""
    resolve(thread, name)
    return name


def call_on(thread: Thread, call: str, timeline: str | None, *, history: bool = False) -> Traced:
    """Read a call from the ledger; raises `NotFound` if a timeline is named and the call was made on another."""
    traced = thread.trace(call, history=history)
    call = traced.record.id
    where = traced.record.timeline
    if timeline not in (None, where):
        raise NotFound(
            f"call '{call}' was made on timeline '{where}', not on '{timeline}'; nothing was done.",
            code="call_elsewhere",
            advice="Leave --timeline out.",
            call=call,
            timeline=where,
        )
    return traced


def named(thread: Thread, call: str) -> str:
    """Return the id of the call that is named by its id, by its ticket's id, or by the beginning of either."""
    return thread.trace(call, history=False).record.id


def open_on(store: Store, id: str, timeline: str | None) -> Iterator[tuple[Thread, Ticket]]:
    """Return the open approvals of one timeline of a thread; None: of all timelines, each once."""
    thread = store.thread(id)
    lines = [hold.head.timeline for hold in thread.timelines()] if timeline is None else [timeline]
    found = {ticket.id: ticket for line in lines for ticket in thread.on(line).approvals()}
    return ((thread, ticket) for ticket in found.values())


# The codes of errors about a name that the store does not have, and the fact that is the name.
_NAMES = {
    "thread_not_found": "thread",
    "agent_missing": "thread",  # a thread that is not there cannot be made without an agent
    "agent_not_found": "agent",
    "timeline_not_found": "timeline",
    "name_invalid": "timeline",
    "path_not_found": "path",
    "path_invalid": "path",
}


def whole_names(error: PerdureError, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a command with the whole name in the place of a part that the error could not find.

    None if no name of the store fits.  Raises `Invalid` if several do.
    """
    kind = _NAMES.get(error.code or "")
    if kind is None:
        return None
    wanted = error.facts.get(kind)
    for name, value in arguments.items():
        if not isinstance(value, str) or (value != wanted if wanted is not None else "…" not in value):
            continue
        try:
            with reading(arguments.get("everywhere", EVERYWHERE)) as store:
                whole = id_meant(value, _known(store, kind, arguments), what=kind)
        except NotFound as missing:
            if missing.code == "store_not_found":  # the command would have made one
                return None
            raise
        if whole is not None and whole != value:
            return {**arguments, name: whole}
    return None


def _known(store: Store, kind: str, arguments: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of a kind that a command could mean."""
    match kind, arguments.get("thread"):
        case "thread", _:
            return (thread.id for thread in store.threads())
        case "agent", _:
            return {*store.agents(), *(thread.agent for thread in store.threads())}
        case "timeline", str(thread):
            return [hold.head.timeline for hold in store.thread(thread).timelines()]
        case "path", str(thread) if not arguments.get("agent"):
            return store.thread(thread, timeline=arguments.get("timeline") or MAIN).paths()
        case _:
            return ()


# The commands about one run or one call whose other words can all be left out.
_WITH_ONE_WORD = ("runs show", "runs wait", "runs resume", "runs cancel", "approvals show")


def with_its_thread(command: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a command with the thread of its run or call, where the id was given without one.

    The thread is then None, or the id is the only word and in its place.  A thread that was named beside the id is
    never replaced.  None if it is no id of a run or call.  Raises `Invalid` if several threads have it, and `NotFound` if
    the word may be an id of either and is none.
    """
    kind = "run" if command.startswith("runs ") else "call"
    word, id = arguments.get("thread"), arguments.get(kind)
    if word is not None:
        id = word if id is None and command in _WITH_ONE_WORD else None
    if id is None:
        return None
    with reading(arguments.get("everywhere", EVERYWHERE)) as store:
        found = thread_with(store, kind, id)
        if found is None and word is not None:
            hint = did_you_mean(id, (thread.id for thread in store.threads()))
            raise NotFound(
                f"neither a thread nor a {kind} is called '{id}'; nothing was done. {hint}".rstrip(),
                code="thread_or_run_not_found",
                advice=f"See `perdure threads ls`, or `perdure {'runs' if kind == 'run' else 'approvals'} ls`.",
                id=id,
            )
    return None if found is None else {**arguments, "thread": found[0], kind: found[1]}


def thread_with(store: Store, kind: Literal["run", "call"], id: str) -> tuple[str, str] | None:
    """Return the thread that has a run or a call, and its whole id; `id` may be a part of it.  None if no thread has it.

    Raises `Invalid`, naming all of them, if several do.
    """
    found = {thread.id: whole for thread in store.threads() if (whole := _whole_id(thread, kind, id))}
    found = {thread: whole for thread, whole in found.items() if whole == id} or found
    if len(found) > 1:
        places = tuple(f"{thread} {whole}" for thread, whole in found.items())
        raise Invalid(
            f"'{id}' fits more than one {kind}: {', '.join(places)}; nothing was done.",
            code="id_ambiguous",
            advice=f"Name the thread before the {kind}, as they stand here.",
            id=id,
            found=places,
        )
    return next(iter(found.items()), None)


def _whole_id(thread: Thread, kind: str, id: str) -> str | None:
    if kind == "run":
        return id_meant(id, (each.id for each in thread.runs()), what="run", beginnings=True)
    try:
        return thread.trace(id, history=False).record.id
    except NotFound:
        return None


def is_held(thread: Thread) -> bool:
    """Return whether a thread came from another store and was not released."""
    return held_from(thread) is not None
