"""The process that the demo kills: it writes without end, and says each commit that was acknowledged.

python -m perdure.cli.commands.demo.writer STORE THREAD
"""

from __future__ import annotations

import sys
from itertools import count

from perdure.store.open_store import open as open_store

__all__ = ["write_without_end"]


def write_without_end(place: str, id: str) -> None:
    """Commit one number after another to the thread, and print each commit once it is durable."""
    thread = open_store(place, create=False).thread(id)
    for number in count(1):
        head = thread.put("/steps.json", list(range(number)), reason=f"step {number}")
        sys.stdout.write(f"{head.commit}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    write_without_end(sys.argv[1], sys.argv[2])
