"""A process that reads, or verifies, a whole store, and prints the most memory that it ever held."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import perdure
from perdure.store.thread import Thread

_PAGE = 500


def main(doing: str, path: str) -> None:
    with perdure.open(path, read_only=True) as store:
        if doing == "read":
            _read(store)
        else:
            report = store.verify()
            assert report.ok, f"the store does not verify: {report.faults}"
    print(_peak_bytes())


def _peak_bytes() -> int:
    """From /proc where there is one: `getrusage` counts what the process was before it became this program."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _read(store: perdure.Store) -> None:
    """Every message of every thread, a page at a time, and the state at each page's end."""
    for thread in store.threads():
        moment = thread.head.commit
        while moment is not None:
            moment = _read_page(thread, moment)


def _read_page(thread: Thread, moment: str) -> str | None:
    view = thread.at(moment)
    for path in view.paths():
        view.get(path)
    page = view.transcript(limit=_PAGE)
    if not page:
        return None
    parents = thread.at(page[0].commit).log(limit=1)[0].parents
    return parents[0] if parents else None


if __name__ == "__main__":
    main(*sys.argv[1:])
