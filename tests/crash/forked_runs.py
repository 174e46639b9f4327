"""Programs that fork while they run agents: `python -m tests.crash.forked_runs <program> <store> [argument …]`.

Each program prints one JSON value when it has ended.  Tools of the agent append to a file beside the
store, so that the test counts what happened in the outside world.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import perdure
from perdure import Agent, aio, tool
from perdure.errors import PerdureError, Unavailable
from perdure.runtime import event_loop, failpoints
from perdure.runtime.events import RunEnded
from perdure.testing import Script, say, use
from tests.runtime.runs.world import World

CHILD_ENDED = "the child has ended"
ACTS = ("runs", "reads", "closes", "exits", "dies", "goes on")
MOMENTS = (
    "before_intent",
    "after_intent",
    "after_started",
    "during_effect",
    "after_effect",
    "while_recording",
    "after_result",
    "after_turn",
    "before_finish",
    "after_finish",
)


class Household:
    """A store with the agent that pays, and the children that were forked."""

    def __init__(self, path: str) -> None:
        """Open the store."""
        self.store = perdure.open(path)
        self.world = World(path + ".world")
        self.pid = os.getpid()
        self.children: list[int] = []

    def agent(self, thread: str, calls: int = 1, *, workers: bool = False) -> Agent:
        """An agent that pays `calls` bills at once, with worker threads if `workers`."""

        @tool(effect="external_write", timeout=60 if workers else None)
        def pay(bill: str) -> str:
            failpoints.hit("during_effect")
            self.world.do(bill)
            return "paid"

        asked = [use("pay", bill=f"{thread} {number}") for number in range(calls)]
        return Agent("payer", backend=Script(_together(*asked), say("done")), tools=[pay])

    def run(self, thread: str, calls: int = 1, *, workers: bool = False) -> str:
        """Run the agent on a thread of its own; how it ended."""
        agent = self.agent(thread, calls, workers=workers)
        return self.store.thread(thread, agent=agent).run("pay").status

    def fork(self, act: str, thread: str) -> None:
        """Fork; the child does `act` while its parent is in a run on `thread`."""
        pid = os.fork()
        if pid:
            self.children.append(pid)
            return
        failpoints.disarm()
        signal.alarm(60)
        if act == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "exits":
            sys.exit(0)
        if act == "goes on":
            return
        os._exit(_code(lambda: self._act(act, thread)))

    def _act(self, act: str, thread: str) -> None:
        if act == "runs":
            assert self.run(f"{thread} child", 2, workers=True) == "succeeded"
        elif act == "reads":
            assert self.store.thread(thread).log()
            list(self.store.thread(f"{thread} other", agent="payer").follow())
        else:
            self.store.close()

    def ended(self) -> list[int]:
        """How the children ended, 0 for those that ended well or were killed on purpose."""
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.children]
        self.children = []
        return codes

    def facts(self, **more: object) -> dict[str, object]:
        """What the test looks at."""
        repeated = [what for what, times in self.world.counted().items() if times > 1]
        faults = [str(fault) for fault in self.store.verify().faults]
        return {"repeated": repeated, "paid": len(self.world.deeds()), "faults": faults, **more}


def _together(*steps: Any) -> Any:
    """One step that asks for all of these calls at once."""
    import msgspec

    return msgspec.structs.replace(steps[0], calls=tuple(call for step in steps for call in step.calls))


def _code(work: Callable[[], object]) -> int:
    try:
        work()
    except BaseException:  # the exit code tells the parent
        traceback.print_exc()
        return 1
    return 0


def moments(path: str, act: str, *chosen: str) -> object:
    """A fork at each moment of a run, on the loop's own thread and on workers; the child does `act`."""
    home = Household(path)
    ended: list[object] = []
    for point in chosen:
        if (point, act) == ("during_effect", "goes on"):
            continue  # what the tool's own code does in both processes is done twice
        for workers in (False, True):
            thread = f"{point} {workers}"
            _arm(home, point, act, thread)
            try:
                status = home.run(thread, 2, workers=workers)
            except PerdureError:
                if os.getpid() == home.pid:
                    raise
                os._exit(0)  # the child went on with its parent's run, and was told that it is not its own
            if os.getpid() != home.pid:
                os._exit(3)
            failpoints.disarm()
            ended.append([status, *home.ended()])
    return home.facts(ended=ended)


def _arm(home: Household, point: Any, act: str, thread: str) -> None:
    once = threading.Lock()

    def fork() -> None:
        if once.acquire(blocking=False):
            home.fork(act, thread)

    failpoints.arm(point, fork)


def after_child(path: str, how: str, control: str = "") -> object:
    """A child runs and ends; the parent then runs with worker threads.  The control closes inherited loops."""
    if control:
        event_loop.keep_forever = lambda loop: loop.close()  # type: ignore[assignment]
    home = Household(path)
    first = home.run("before", 2, workers=True)
    pid = os.fork()
    if not pid:
        code = _code(lambda: home.run("child", 2, workers=True))
        if how == "exits":
            sys.exit(code)
        os._exit(code)
    home.children.append(pid)
    codes = home.ended()
    print(CHILD_ENDED, flush=True)
    return home.facts(statuses=[first, home.run("after", 2, workers=True)], codes=codes)


def pool(path: str, size: str) -> object:
    """Workers of a `multiprocessing.Pool` run agents on the store that their parent has open, and so does the parent."""
    global _home  # noqa: PLW0603  # inherited by the workers
    home = _home = Household(path)
    statuses = [home.run("before", 2, workers=True)]
    with multiprocessing.get_context("fork").Pool(3) as workers:
        asked = workers.map_async(_in_pool, range(int(size)), chunksize=1)
        statuses += [home.run(f"parent {number}", 2, workers=True) for number in range(int(size))]
        statuses += asked.get(120)
    statuses.append(home.run("after", 2, workers=True))
    return home.facts(statuses=statuses)


_home: Household


def _in_pool(number: int) -> str:
    return _home.run(f"pool {number}", 2, workers=True)


def server(path: str, workers: str, requests: str) -> object:
    """A pre-forking server: the master opens the store and runs, its workers serve, one dies and is replaced."""
    home = Household(path)
    statuses = [home.run("warm", 2, workers=True)]

    def serve(worker: int) -> None:
        for number in range(int(requests)):
            thread = home.store.thread(
                f"worker {worker} {number}", agent=home.agent(f"w {worker} {number}", 2)
            )
            *_, last = thread.stream("pay")
            assert isinstance(last, RunEnded)
            assert last.result.status == "succeeded"

    for worker in range(int(workers) + 1):
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            os._exit(_code(lambda worker=worker: serve(worker)))
        home.children.append(pid)
        if worker == 0:
            os.kill(pid, signal.SIGKILL)
    statuses.append(home.run("while they serve", 2, workers=True))
    codes = home.ended()
    return home.facts(statuses=statuses, codes=codes)


def streams(path: str, forks: str) -> object:
    """The process forks at the events of a stream that a follower reads too; each child reads on in both."""
    home = Household(path)
    codes: list[int] = []
    statuses: list[str] = []
    for number in range(int(forks)):
        name = f"streamed {number}"
        thread = home.store.thread(name, agent=home.agent(name, 2, workers=True))
        events = thread.stream("pay")
        next(events)
        followed = thread.follow()
        next(followed, None)  # None: a quick run has ended already
        for count, event in enumerate(events):
            if count == number % 6:
                pid = os.fork()
                if not pid:
                    signal.alarm(60)
                    os._exit(_code(lambda events=events, followed=followed: _read_on(events, followed)))
                home.children.append(pid)
            if isinstance(event, RunEnded):
                statuses.append(event.result.status)
        list(followed)
        codes += home.ended()
    return home.facts(codes=codes, statuses=statuses)


def _read_on(events: Any, followed: Any) -> None:
    with suppress(Unavailable):
        rest = list(events)
        if rest and not isinstance(
            rest[-1], RunEnded
        ):  # of a run that ended before the fork the rest can be read
            raise AssertionError("the child read a stream whose run lives in its parent")
    list(followed)


def commits(path: str, forks: str) -> object:
    """Other threads commit and run all the time while the process forks; each child puts once."""
    home = Household(path)
    over = threading.Event()
    done: list[int] = []

    def busy(name: str) -> None:
        thread, count = home.store.thread(name, agent="a"), 0
        while not over.is_set():
            thread.put("/n", count)
            count += 1
        done.append(thread.get("/n") - count + 1)

    threads = [threading.Thread(target=busy, args=(f"busy {number}",)) for number in range(2)]
    for each in threads:
        each.start()
    for number in range(int(forks)):
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            os._exit(
                _code(lambda number=number: home.store.thread(f"put {number}", agent="a").put("/n", number))
            )
        home.children.append(pid)
        home.run(f"between {number}", 2, workers=True)
    codes = home.ended()
    over.set()
    for each in threads:
        each.join()
    kept = [home.store.thread(f"put {number}").get("/n") for number in range(int(forks))]
    return home.facts(codes=codes, done=done, kept=kept)


def in_tool(path: str, way: str) -> object:
    """A tool forks, and the child comes back from it: by returning, by an error, or by an exit."""
    home = Household(path)
    statuses: list[str] = []
    codes: list[int] = []
    for workers in (False, True):

        @tool(effect="external_write", timeout=60 if workers else None)
        def fork() -> str:
            pid = os.fork()
            if not pid:
                signal.alarm(60)
                if way == "raises":
                    raise ValueError
                if way == "exits":
                    sys.exit(7)
                return "child"
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            return "parent"

        agent = Agent("forker", backend=Script(use("fork"), say("done")), tools=[fork])
        result = home.store.thread(f"forker {workers}", agent=agent).run("fork")
        statuses.append(result.status)
    return home.facts(statuses=statuses, codes=codes)


def memories(path: str) -> object:
    """Threads search an owner's memory all the time while the process forks; each child searches it too."""
    home = Household(path)
    over = threading.Event()
    errors: list[str] = []
    home.store.memory("ada").add("she drinks green tea")

    def search() -> None:
        while not over.is_set():
            if not home.store.memory("ada").search("tea"):
                errors.append("nothing found")

    threads = [threading.Thread(target=search) for _ in range(2)]
    for each in threads:
        each.start()
    for _ in range(8):
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            os._exit(0 if home.store.memory("ada").search("tea") else 1)
        home.children.append(pid)
    codes = home.ended()
    over.set()
    for each in threads:
        each.join()
    return home.facts(codes=codes, errors=errors)


def awaited(path: str) -> object:
    """The awaitable face, opened before the fork and used in a child on a loop of its own."""

    async def put(store: Any, name: str) -> None:
        await (await store.thread(name, agent="a")).put("/n", 1)

    async def opened() -> Any:
        store = await aio.open(path)
        await put(store, "parent")
        return store

    with asyncio.Runner() as runner:
        store = runner.run(opened())
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            os._exit(_code(lambda: asyncio.run(put(store, "child"))))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        runner.run(put(store, "again"))
        runner.run(store.close())
    with perdure.open(path) as plain:
        return {"codes": [code], "threads": sorted(thread.id for thread in plain.threads())}


PROGRAMS: dict[str, Callable[..., object]] = {
    each.__name__: each
    for each in (moments, after_child, pool, server, streams, commits, in_tool, memories, awaited)
}

if __name__ == "__main__":
    Path(sys.argv[2]).parent.mkdir(exist_ok=True)
    print(json.dumps(PROGRAMS[sys.argv[1]](*sys.argv[2:])))
