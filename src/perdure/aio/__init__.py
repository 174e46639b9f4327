"""The same names, awaitable: for programs that run an event loop.

    async with aio.open("agents.db") as store:
        thread = await store.thread("trip-42", agent="planner")
        async with thread.change("title") as change:
            await change.put("/title.json", "Oslo")
        head = await thread.head

There is one implementation.  Each method here runs its namesake on a worker thread that the
store owns, so the loop never waits for a disk.  What was handed to a worker is finished
there: cancelling the task that waits for a commit does not cancel the commit.  A function
that is handed in (the predicate of `bisect`) is called there too, with a blocking view.
"""

from __future__ import annotations

from perdure.aio.change import AgentChange, Change
from perdure.aio.handles import AgentMap, Artifacts, Definitions, Memory, Store, Thread, View, open, restore

__all__ = [
    "AgentChange",
    "AgentMap",
    "Artifacts",
    "Change",
    "Definitions",
    "Memory",
    "Store",
    "Thread",
    "View",
    "open",
    "restore",
]
