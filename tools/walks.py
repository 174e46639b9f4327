"""Counts the modules of the package that an operation enters: a run with one tool, a put and a switch.

    python -m tools.walks            # the modules that each operation enters, as JSON

Each operation runs once before it is traced, so that modules that are only being loaded do not count.
`tools.house` runs this program in a process of its own, because a profile function slows every thread down.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import perdure
from perdure import Agent, Store, Thread, tool
from perdure.testing import Script, say, use

__all__ = ["EnteredModules", "walk"]

SOURCE = Path(__file__).resolve().parent.parent / "src"


class EnteredModules:
    """Records the modules of `root` whose functions are called, on every thread that starts after it is installed.

    Daemon threads are left out: they renew leases and wait for news, and what they do meanwhile depends on the time.
    """

    def __init__(self, root: Path) -> None:
        self._prefix = f"{root}{os.sep}"
        self._files: set[str] = set()

    def install(self) -> None:
        """Start to record on this thread and on the threads that it starts."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def remove(self) -> None:
        """Record no more: at the end of the interpreter nothing can be asked about threads."""
        threading.setprofile(None)
        sys.setprofile(None)

    def during(self, operation: Callable[[], object]) -> list[str]:
        """Run `operation` and return the modules that it enters."""
        self._files.clear()
        operation()
        return sorted(self._module(name) for name in list(self._files) if name.startswith(self._prefix))

    def _record(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and not threading.current_thread().daemon:
            self._files.add(frame.f_code.co_filename)

    def _module(self, file: str) -> str:
        parts = Path(file.removeprefix(self._prefix)).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@tool(effect="external_write")
def pay(to: str, amount: int) -> str:
    """Pay `amount` to `to`."""
    return f"paid {amount} to {to}"


def walk(store: Store, entered: EnteredModules) -> dict[str, list[str]]:
    """Return the modules that each operation enters on every thread of three, after all have run on another thread.

    What only one of them enters depends on the time: a lock that another thread held just then.
    """
    script = Script(use("pay", to="ann", amount=700), say("Paid."), backend="script:first")
    clerk = Agent("clerk", backend=script, tools=[pay])
    operations: dict[str, Callable[[Thread], object]] = {
        "run": lambda thread: thread.run("Pay Ann 700"),
        "put": lambda thread: thread.put("/title", "Rent"),
        "switch": lambda thread: thread.switch(Script(say("Goodbye."), backend="script:second")),
    }
    warm, *traced = (store.thread(name, agent=clerk) for name in ("warm", "first", "second", "third"))
    for operation in operations.values():
        operation(warm)
    return {
        name: sorted(
            set[str].intersection(*(set(entered.during(partial(operation, thread))) for thread in traced))
        )
        for name, operation in operations.items()
    }


def main() -> None:
    """Print the modules that each operation enters as one JSON object."""
    entered = EnteredModules(SOURCE)
    entered.install()
    with TemporaryDirectory() as directory, perdure.open(Path(directory) / "agents.db") as store:
        print(json.dumps(walk(store, entered)))
    entered.remove()


if __name__ == "__main__":
    main()
