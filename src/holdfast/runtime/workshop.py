"""The workshop of an open store: what its runs share, made when it is first needed.

Closing waits for the runs that go on in the background, and for tools that still run: a process
whose mark is taken away counts as gone, and must not be doing anything then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from holdfast.runtime.feed import Feeds
from holdfast.runtime.ownership import Owners
from holdfast.runtime.resolving import Lines
from holdfast.runtime.talks import Talks

__all__ = ["Workshop"]

_TOOLS_MAX = 64  # that run side by side


class Workshop:
    """What the runs of one open store share."""

    def __init__(self, owners: Owners | None = None) -> None:
        """Begin with no run; `owners` renews leases, None as often as usual."""
        self.owners = owners or Owners()
        self.feeds, self.talks, self.lines = Feeds(), Talks(), Lines()
        self._lock = threading.Lock()
        self._crew: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._going_on: set[threading.Thread] = set()

    @property
    def crew(self) -> ThreadPoolExecutor:
        """The threads on which plain tools run."""
        with self._lock:
            if self._crew is None or self._pid != os.getpid():
                self._crew = ThreadPoolExecutor(_TOOLS_MAX, thread_name_prefix="holdfast-tool")
                self._pid = os.getpid()
            return self._crew

    def begin(self, work: Callable[[], None]) -> None:
        """Do `work` in the background; it is finished even if the program ends meanwhile."""

        def done() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._going_on.discard(threading.current_thread())

        thread = threading.Thread(target=done, name="holdfast-run")
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
        if crew is not None and self._pid == os.getpid():
            crew.shutdown(wait=True)
