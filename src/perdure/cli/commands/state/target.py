"""Whose state a command is about: a thread's, or with `--agent` an agent's own map."""

from __future__ import annotations

from perdure.cli.input.suggestions import no_agent
from perdure.errors import Invalid
from perdure.model.head import MAIN
from perdure.store.agents import AgentMap
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["line_of", "words"]

_NAMES = ("THREAD", "PATH", "VALUE")


def words(verb: str, agent: str | None, *given: str | None, needed: int) -> tuple[str | None, ...]:
    """Return the words after the thread of `perdure state` with that verb.

    With an agent there is no thread, so each word is one place earlier.  Raises `Invalid` unless the first `needed` words are there and none is left over.
    """
    if agent is not None and given[-1] is not None:
        raise Invalid(
            f"with --agent there is no thread, so {given[0]!r} is one word too many; nothing was done.",
            code="words_left_over",
            advice="Leave it out.",
            word=given[0],
        )
    meant = (None, *given[:-1]) if agent is not None else given
    missing = [
        _NAMES[at] for at, word in enumerate(meant[: needed + 1]) if word is None and (at or agent is None)
    ]
    if missing:
        raise Invalid(
            f"'perdure state {verb}' needs {' and '.join(missing)}; nothing was done.",
            code="words_missing",
            advice="`perdure threads ls` lists the threads; --agent NAME is for an agent's own map."
            if missing[0] == "THREAD"
            else "See --help.",
            words=tuple(missing),
        )
    return meant


def line_of(store: Store, agent: str | None, thread: str | None, timeline: str) -> Thread | AgentMap:
    """Return the thread's timeline, or the agent's map; raises `NotFound` for one that was never begun."""
    if agent is None:
        assert thread is not None
        return store.thread(thread, timeline=timeline)
    if timeline != MAIN:
        raise Invalid(
            "an agent's map has no other timelines; nothing was done.",
            code="timeline_not_taken",
            advice="Leave --timeline out.",
        )
    found = store.agent(agent)
    if agent not in store.agents():
        raise no_agent(store, agent, "nothing was done")
    return found
