"""Suggests the names that a caller may have meant by one that does not exist.

A suggestion is printed and never acted on.  Names are read only after a lookup failed, and only a limited number.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from perdure.errors import Forgotten, Invalid, NotFound
from perdure.model.names import COMPARED_MAX, did_you_mean, near
from perdure.shapes.conversation import transcript_of
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["agent_names", "guessing", "moment_names", "no_agent", "owner_names", "paths_like"]

_LAST = 200
_NAMED_RIGHT = ("memory_item_expired",)  # what was named was there


@contextmanager
def guessing(name: str, known: Callable[[], Iterable[str]]) -> Generator[None]:
    """Let a `NotFound` of the block name those of the `known` names that are close to `name`."""
    try:
        yield
    except Forgotten:
        raise
    except NotFound as error:
        close = [] if "near" in error.facts or error.code in _NAMED_RIGHT else near(name, known())
        if not close:
            raise
        facts = error.facts | {"near": tuple(close)}
        message = f"{error.message} Did you mean {' or '.join(map(repr, close))}?"
        raise NotFound(message, code=error.code, advice=error.advice, **facts) from error


def agent_names(store: Store) -> Iterator[str]:
    """Return the names of the store's agents, with threads or with a definition."""
    return islice(store.agents(), COMPARED_MAX)


def no_agent(store: Store, name: str, undone: str) -> NotFound:
    """Return the error for an unknown agent."""
    hint = did_you_mean(name, agent_names(store))
    return NotFound(
        f"there is no agent '{name}'; {undone}. {hint}".rstrip(),
        code="agent_not_found",
        advice="See what there is with `perdure agents ls`.",
        agent=name,
    )


def owner_names(store: Store) -> Iterator[str]:
    """Yield the owners of the store: those with a memory, then those of its first threads."""
    yield from islice(store.owners(), COMPARED_MAX // 2)
    seen = (thread.owner for thread in islice(store.threads(), COMPARED_MAX // 4))
    yield from (owner for owner in seen if owner is not None)


def paths_like(view: View, path: str) -> Iterator[str]:
    """Yield paths near one without a value: those in its folder, then the first of all."""
    for prefix in (path.rpartition("/")[0] + "/", "/"):
        with suppress(Invalid):  # what is no path has none beside it
            yield from (entry.path for entry in islice(view.entries(prefix), COMPARED_MAX // 2))


def moment_names(thread: Thread, name: str) -> Iterator[str]:
    """Yield names for --at: timelines, HEAD~n, turn:n and version:n, then the last messages, runs and names."""
    yield from (hold.head.timeline for hold in islice(thread.timelines(), COMPARED_MAX // 2))
    number, newest = int("".join(filter(str.isdigit, name))[-6:] or 1), thread.log(limit=1)
    turns, version = newest[0].turn if newest else 0, thread.head.version
    known = {f"HEAD~{number}": version, f"turn:{number}": turns, f"version:{number}": version}
    yield "HEAD"
    yield from (each for each, last in known.items() if number <= last)
    yield from (entry.id for entry in transcript_of(thread, limit=_LAST))
    yield from (record.id for record in thread.runs(limit=_LAST))
    yield from (given for entry in thread.log(limit=_LAST) for given in entry.names)
