"""Processes that race for the same calls, inputs, questions and paths, and the checker of what they leave.

In each round every process does something to the same path at the same moment: it makes the same call by
hand, runs the same input, decides the same question, or puts a value of its own.  A tool says in what it
writes whose value it saw.  The checker reads the log alone: which commit wrote which value, in which order.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from threading import Barrier
from typing import Any

import msgspec

import perdure
from perdure import Agent, Call, Store, Thread, errors
from perdure.model.canonical import encode
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import ApprovalDecided, ConflictCovered, MessageAppended, ToolCallCompleted
from perdure.model.patch import Put
from perdure.runtime.tools.tool import Tool
from perdure.store.plumbing.revisions import LogEntry
from perdure.testing import Script, say, use
from tests.crash.processes import Pipe
from tests.runtime.runs.world import World

__all__ = ["Told", "faults", "race"]

PATHS = 4
KINDS = ("call", "call", "ask", "run")
WAIT_SECONDS = 120.0  # only turns a hang into a failure


class Told(msgspec.Struct):
    """What one process did, and what it was told."""

    values: dict[str, Any] = {}  # by writer: the value that was handed in, whether it was acknowledged or not
    acked: list[str] = []  # writers of acknowledged values
    results: list[tuple[str, str]] = []  # call or input, and the words that came back
    decided: list[tuple[str, str]] = []  # call and verdict, acknowledged
    refused: int = 0  # how often somebody else was first


def race(
    pipe: Pipe, path: str, world: str, barrier: Barrier, me: int, processes: int, rounds: int, seed: int
) -> None:
    """Take part in so many rounds, and send what came of them."""
    told = Told()
    with perdure.open(path, durability="process_crash") as store:
        racer = _Racer(store, World(world), told, me, processes)
        for number in range(rounds):
            barrier.wait(WAIT_SECONDS)
            racer.play(number, random.Random(f"{seed} {number}"))
            if number % 100 == 0:
                pipe.send(number)  # so that a long race is not taken for a hang
    pipe.send(told)


class _Racer:
    def __init__(self, store: Store, world: World, told: Told, me: int, processes: int) -> None:
        self._store, self._world, self._told = store, world, told
        self._me, self._processes = me, processes

    def play(self, number: int, dice: random.Random) -> None:
        """Do one thing; all processes throw the same dice."""
        kind, path = dice.choice(KINDS), f"/p{dice.randrange(PATHS)}.json"
        parts = [dice.random() < 0.3 for _ in range(self._processes)]
        if parts[self._me]:
            self._put(number, path)
        elif kind == "call":
            self._call(self._tool(), f"c{number}", path)
        elif kind == "ask":
            self._ask(number, path)
        else:
            self._run(number, path)

    def _tool(self, *, ask: bool = False) -> Tool:
        @perdure.tool(effect="external_write", ask=ask)
        def write(path: str, tag: str, call: Call) -> str:
            self._world.do(tag)
            before = call.get(path, default=None)
            value = {"by": tag, "saw": before["by"] if before else None}
            self._told.values[tag] = value
            call.put(path, value)
            return f"{tag} wrote"

        return write

    def _put(self, number: int, path: str) -> None:
        writer = f"put-{self._me}-{number}"
        self._told.values[writer] = {"by": writer}
        try:
            self._thread().put(path, {"by": writer})
            self._told.acked.append(writer)
        except errors.Conflict:
            self._told.refused += 1

    def _call(self, tool: Tool, id: str, path: str) -> str:
        """Make the call until it is settled or waits; the state."""
        result = self._until(lambda: self._thread().call(tool, {"path": path, "tag": id}, id=id))
        if result.ok:
            self._told.acked.append(id)
            self._told.results.append((id, result.text))
        return result.state

    def _ask(self, number: int, path: str) -> None:
        id, verdict = f"a{number}", "approve" if self._me % 2 else "deny"
        tool = self._tool(ask=True)
        if self._call(tool, id, path) == "awaiting_approval":
            try:
                self._thread().decide(id, verdict, by=f"p{self._me}")  # pyright: ignore[reportArgumentType]
                self._told.decided.append((id, verdict))
            except errors.Conflict:
                self._told.refused += 1
            self._call(tool, id, path)

    def _run(self, number: int, path: str) -> None:
        id = f"m{number}"
        script = Script(use("write", path=path, tag=id), say(f"{id} done"))
        agent = Agent("planner", backend=script, tools=[self._tool()])
        result = self._until(lambda: self._thread(agent).run("go", id=id))
        self._told.acked.append(id)
        self._told.results.append((id, result.text))

    def _thread(self, agent: Agent | str = "planner") -> Thread:
        return self._store.thread("trip", agent=agent)

    def _until(self, act: Callable[[], Any]) -> Any:
        """What comes of it in the end; being told that another is at it is no end."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return act()
            except (errors.Busy, errors.StaleHead):
                self._told.refused += 1
                if time.monotonic() > end:
                    raise
                time.sleep(0.002)


def faults(log: Iterable[LogEntry], told: Iterable[Told], world: World) -> list[str]:
    """What is wrong with a history, given oldest first, by what its writers were told; nothing if all is well."""
    found: list[str] = []
    everyone = list(told)
    values: dict[str, Any] = {}
    for each in everyone:
        values.update(each.values)
    history = _History(log, {_digest(value): writer for writer, value in values.items()})
    acked = {writer for each in everyone for writer in each.acked}
    found += [
        f"{writer} was acknowledged and is not in the history" for writer in acked - set(history.writes)
    ]
    found += [f"{writer} is in the history {n} times" for writer, n in history.writes.items() if n > 1]
    found += [f"{call} ended {n} times" for call, n in history.ended.items() if n > 1]
    found += [f"{id} was said {n} times" for id, n in history.said.items() if n > 1]
    found += [f"{what} was done again" for what in world.repeated()]
    found += _unnamed(history, values)
    found += _contradictions(everyone, history)
    return found


class _History:
    """What the log says: who wrote what, what ended, what was said and decided."""

    def __init__(self, log: Iterable[LogEntry], writers: dict[Digest, str]) -> None:
        self.writes: Counter[str] = Counter()
        self.order: dict[str, list[tuple[str, bool]]] = defaultdict(list)  # by path: writer, covers are named
        self.ended: Counter[str] = Counter()
        self.said: Counter[str] = Counter()
        self.decided: dict[str, list[str]] = defaultdict(list)
        for entry in log:
            covered = {event.path for event in entry.events if isinstance(event, ConflictCovered)}
            for op in entry.patch.ops:
                if isinstance(op, Put) and op.value in writers:
                    self.writes[writers[op.value]] += 1
                    self.order[op.path].append((writers[op.value], op.path in covered))
            for event in entry.events:
                if isinstance(event, ToolCallCompleted):
                    self.ended[event.call] += 1
                elif isinstance(event, MessageAppended) and event.role == "user":
                    self.said[event.id] += 1
                elif isinstance(event, ApprovalDecided):
                    self.decided[event.call].append(event.decision)


def _unnamed(history: _History, values: dict[str, Any]) -> list[str]:
    """Writes that covered a value which their author had not seen, in a commit that does not say so."""
    found: list[str] = []
    for path, order in history.order.items():
        before = None
        for writer, named in order:
            value = values[writer]
            if "saw" in value and value["saw"] != before and not named:
                found.append(f"{writer} covered {before} at {path}, saw {value['saw']}, and did not say so")
            before = writer
    return found


def _contradictions(told: list[Told], history: _History) -> list[str]:
    """Calls and inputs with two results, questions with two decisions."""
    results: dict[str, set[str]] = defaultdict(set)
    decided: dict[str, set[str]] = defaultdict(set)
    for each in told:
        for id, words in each.results:
            results[id].add(words)
        for call, verdict in each.decided:
            decided[call].add(verdict)
    found = [f"{id} has the results {sorted(words)}" for id, words in results.items() if len(words) > 1]
    for call, verdicts in decided.items():
        recorded = history.decided.get(call, list(verdicts))
        if len(verdicts) > 1 or len(recorded) > 1 or set(recorded) != verdicts:
            found.append(f"{call} was decided {sorted(verdicts)}, and the history says {recorded}")
    return found


def _digest(value: object) -> Digest:
    return Object.of(Kind.VALUE, encode(value)).digest  # pyright: ignore[reportArgumentType]
