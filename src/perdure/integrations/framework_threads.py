"""The threads of a store that a framework's records are in, by the ids that the framework has for them.

A framework's id may be of any length and have any characters (`foreign_ids`).  Handles are remembered, because opening one
reads the directory of the store; a thread that another process has removed is found out on its first use, and `forget`
makes the next look-up read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

from perdure.errors import Conflict, NotFound
from perdure.integrations import foreign_ids
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["FrameworkThreads"]

_OPEN_MAX = 10_000


class FrameworkThreads:
    """Finds, lists and begins the threads of a framework; those of other agents are neither read nor listed if one is named."""

    def __init__(self, store: Store, agent: str | None, *, framework: str) -> None:
        """Use a store; `agent` is whose threads they are, None: those of any agent, new ones of `framework`."""
        self.store, self._agent, self._framework = store, agent, framework
        self._open: dict[str, Thread] = {}
        self._lock = Lock()

    def find(self, id: str) -> Thread | None:
        """Return a thread; None if there is none.  Raises `Conflict` if it belongs to another agent."""
        known = self._open.get(id)
        if known is not None:
            return known
        try:
            return self._remember(id, self.open(foreign_ids.thread_id(id)))
        except NotFound:
            return None

    def open(self, id: str) -> Thread:
        """Return the thread that has this id in the store; it is read again.

        Raises `NotFound` if there is none, `Conflict` if it belongs to another agent.
        """
        found = self.store.thread(id)
        if self._agent is not None and found.agent != self._agent:
            raise Conflict(
                f"thread '{id}' belongs to agent '{found.agent}', not to '{self._agent}'; nothing was done.",
                code="thread_of_another_agent",
                thread=id,
                agent=found.agent,
            )
        return found

    def every(self, *, after: str | None = None) -> Iterator[Thread]:
        """Yield the threads sorted by their ids in the store, of any framework; with `after` only ids after that one."""
        return self.store.threads(agent=self._agent, after=after)

    def begin(self, id: str) -> Thread:
        """Return a thread, which is begun if there is none."""
        found = self.find(id)
        if found is not None:
            return found
        agent = self._agent or self._framework
        return self._remember(id, self.store.thread(foreign_ids.thread_id(id), agent=agent))

    def forget(self, id: str) -> None:
        """Forget the handle of a thread that was removed."""
        with self._lock:
            self._open.pop(id, None)

    def _remember(self, id: str, thread: Thread) -> Thread:
        with self._lock:
            if len(self._open) > _OPEN_MAX:
                self._open.clear()
            return self._open.setdefault(id, thread)
