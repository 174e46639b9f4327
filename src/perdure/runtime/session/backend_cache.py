"""Caches which backend each timeline is on, so that a step reads only what was committed since the last."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from perdure.history import reader
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.switching.current_backend import RecordedBackend, recorded_in

__all__ = ["BackendCache"]

_KEPT_MAX = 1_024


class BackendCache:
    """The backends of the lines that were looked at last, each with the commit it was found at."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = Lock()
        self._checked: set[str] = set()  # backends whose end was looked up
        self._kept: OrderedDict[tuple[str, str], tuple[Digest | None, RecordedBackend | None]] = OrderedDict()

    def is_first_run(self, backend: str) -> bool:
        """Whether no run of this store on that backend has asked before."""
        with self._lock:
            is_first = backend not in self._checked
            self._checked.add(backend)
            return is_first

    def backend(self, space: Space, timeline: str, at: Digest | None) -> RecordedBackend | None:
        """The backend of a line that stands at `at`; only what was committed since is read."""
        known = self.last(space, timeline)
        if known is not None and known[0] == at:
            return known[1]
        found: RecordedBackend | None = None
        for step in reader.recent(space, at):
            if known is not None and step.digest == known[0]:
                found = known[1]
                break
            found = recorded_in(step)
            if found is not None:
                break
        self.note(space, timeline, at, found)
        return found

    def last(self, space: Space, timeline: str) -> tuple[Digest | None, RecordedBackend | None] | None:
        """What was found last: the commit, and the backend; None: nobody has looked."""
        with self._lock:
            return self._kept.get((space.name, timeline))

    def note(self, space: Space, timeline: str, at: Digest | None, backend: RecordedBackend | None) -> None:
        """Remember it."""
        with self._lock:
            self._kept[space.name, timeline] = at, backend
            self._kept.move_to_end((space.name, timeline))
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
