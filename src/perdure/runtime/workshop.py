"""The workshop of an open store: what its runs share, made when it is first needed.

Closing waits for the runs that go on in the background, and for tools that still run: a process
whose mark is taken away counts as gone, and must not be doing anything then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from perdure.model.forks import renew_in_child
from perdure.runtime.backend_cache import Lines
from perdure.runtime.feed import Feeds
from perdure.runtime.ownership import Owners
from perdure.runtime.talks import Talks

__all__ = ["WorkerPool", "Workshop"]

_TOOLS_MAX = 64  # that run side by side


class WorkerPool(ThreadPoolExecutor):
    """A pool of threads that is empty in a forked child: neither threads nor queued work come along."""

    def __init__(self, workers_max: int, name: str) -> None:
        """Start up to `workers_max` threads, whose names begin with `name`, as they are needed."""
        super().__init__(workers_max, thread_name_prefix=name)
        self._options = workers_max, name
        renew_in_child(self)

    def after_fork_in_child(self) -> None:
        """Begin anew; a pool that was shut down stays so."""
        was_shut_down = self._shutdown
        super().__init__(self._options[0], thread_name_prefix=self._options[1])
        self._shutdown = was_shut_down


class Workshop:
    """What the runs of one open store share.  In a forked child it has no run, no watcher and no thread."""

    def __init__(self, owners: Owners | None = None) -> None:
        """Begin with no run; `owners` renews leases, None as often as usual."""
        self.owners = owners or Owners()
        self._crew: WorkerPool | None = None
        self._begin()
        renew_in_child(self)

    def _begin(self) -> None:
        self.feeds, self.talks, self.lines = Feeds(), Talks(), Lines()
        self._lock = threading.Lock()
        self._going_on: set[threading.Thread] = set()

    def after_fork_in_child(self) -> None:
        """Leave runs, watchers and threads to the parent."""
        self._begin()

    @property
    def crew(self) -> ThreadPoolExecutor:
        """The threads on which plain tools run."""
        with self._lock:
            if self._crew is None:
                self._crew = WorkerPool(_TOOLS_MAX, "perdure-tool")
            return self._crew

    def begin(self, work: Callable[[], None]) -> None:
        """Do `work` in the background; it is finished even if the program ends meanwhile."""

        def done() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._going_on.discard(threading.current_thread())

        thread = threading.Thread(target=done, name="perdure-run")
        with self._lock:
            self._going_on.add(thread)
        thread.start()

    def close(self) -> None:
        """Wait for what goes on in the background."""
        with self._lock:
            going_on, crew = tuple(self._going_on), self._crew
            self._crew = None
        for thread in going_on:
            if thread is not threading.current_thread():
                thread.join()
        if crew is not None:
            crew.shutdown(wait=True)
