"""A thread to which anything may happen, chosen by a seed: tools that break, writes that fail, interrupts, others."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random

import perdure
from perdure import Agent, Call, Message, Plugin, Stop, Text, Thread, ToolCall, errors
from perdure.engines.contract import Receipt, Write
from perdure.model.context import Context
from perdure.model.run import ENDED
from perdure.providers.contract import Finished, ModelEvent
from perdure.runtime.agent.plugin import Moment
from tests.runtime.runs.injecting import Action, Injecting, Wire, in_doubt, unavailable

__all__ = ["Adversity"]

TOOLS = ["send", "send", "ask", "read", "write", "put_aside", "made_up"]
ACTS = ["run", "run", "run", "stream", "resume", "start_up", "decide", "cancel", "undo", "by_hand"]


def _cut(wire: Wire, write: Write) -> Receipt:
    raise KeyboardInterrupt


def _cut_after(wire: Wire, write: Write) -> Receipt:
    wire.inner.apply(write)
    raise KeyboardInterrupt


FAULTS: list[Action] = [
    unavailable,
    in_doubt(applied=False),
    in_doubt(applied=False, blind=True),
    in_doubt(applied=True),
    in_doubt(applied=True, blind=True),
    _cut,
    _cut_after,
]


def check_well_formed(context: Context) -> None:
    """Every call has one result, right behind it, and no result stands alone."""
    asked: list[str] = []
    for message in context.messages:
        assert [result.call_id for result in message.tool_results] == asked
        asked = [call.id for call in message.tool_calls]
    assert asked == []


class Adversity:
    """One thread, its agent, and chance."""

    backend = "script:chance"

    def __init__(self, url: str, seed: int) -> None:
        """Everything that happens follows from the seed."""
        self.chance = Random(seed)
        self.injecting = Injecting(url)
        self.store = self.injecting.store
        self.sent: Counter[str] = Counter()  # effects by call
        self.agent = self._declared()

    @property
    def thread(self) -> Thread:
        """The thread, opened anew."""
        return self.store.thread("trip", agent=self.agent)

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Say something, ask for tools, or fail."""
        check_well_formed(context)
        kind = self.chance.random()
        if kind < 0.03:
            raise ConnectionError("the model cannot be reached")
        names = self.chance.choices(TOOLS, k=self.chance.randint(1, 3)) if kind > 0.3 else []
        calls = tuple(ToolCall("call", name, f'{{"k": {self.chance.randint(1, 20)}}}') for name in names)
        yield Finished(message=Message("assistant", () if calls else (Text("words"),), calls))

    def act(self, turn: int) -> None:
        """Do one thing to the thread; what it refuses, or fails at, is no fault of ours."""
        self.injecting.wire.disarm()
        if self.chance.random() < 0.7:
            times = self.chance.choice([1, 1, 2, 1_000_000])
            self.injecting.wire.arm(self.chance.choice(FAULTS), nth=self.chance.randint(1, 12), times=times)
        with suppress(errors.PerdureError, KeyboardInterrupt):
            self._acted(self.chance.choice(ACTS), turn)

    def settle(self) -> None:
        """Let everything come to its end, with a store that works."""
        self.injecting.wire.disarm()
        for _ in range(40):
            for ticket in self.thread.approvals():
                with suppress(errors.Conflict):
                    self.thread.decide(ticket.call, "deny")
            for run in self.thread.runs():
                if run.state not in ENDED:
                    self._ended(run.id)

    def _ended(self, run: str) -> None:
        try:
            self.thread.resume(run)
        except errors.NotFound:  # it was undone
            self.thread.cancel(run)
        except (errors.PerdureError, KeyboardInterrupt):
            return

    def _acted(self, what: str, turn: int) -> None:
        policy = self.chance.choice(["each_step", "on_success"])
        match what:
            case "run":
                id = self.chance.choice([None, f"m{turn}", "m0"])
                self.thread.run(f"input {turn}", id=id, head_policy=policy)  # pyright: ignore[reportArgumentType]
            case "stream":
                for _ in self.thread.stream(f"input {turn}", head_policy=policy):  # pyright: ignore[reportArgumentType]
                    pass
            case "resume":
                self.thread.resume()
            case "start_up":
                self.store.resume(self.agent)
            case "decide":
                for ticket in self.thread.approvals():
                    self.thread.decide(ticket.call, self.chance.choice(["approve", "approve", "deny"]))
                self.thread.resume()
            case "cancel":
                self.thread.cancel()
            case "undo":
                self.thread.undo()
            case _:
                tool = self.chance.choice([*self.agent.toolbox.values()])
                self.thread.call(tool, {"k": self.chance.randint(1, 9)}, id=f"h{self.chance.randint(1, 5)}")

    def _declared(self) -> Agent:
        @perdure.tool(effect="external_write")
        def send(k: int, call: Call) -> str:
            self.sent[call.id] += 1
            call.put("/sent.json", k)
            call.agent.put("/count.json", call.agent.get("/count.json", default=0) + 1)
            return self._happened("sent")

        @perdure.tool(effect="external_write", ask=True)
        def ask(k: int, call: Call) -> str:
            self.sent[call.id] += 1
            call.put(f"/asked/{k % 4}.json", k)
            return self._happened("asked")

        @perdure.tool(effect="read_only")
        def read(k: int, call: Call) -> str:
            return self._happened(str(call.paths("/")))

        @perdure.tool(effect="local_write", idempotent=True)
        def write(k: int, call: Call) -> str:
            call.put("/written.json", k)
            return self._happened("written")

        @perdure.tool(effect="read_only")
        def put_aside(k: int, call: Call) -> str:
            if call.decision is None:
                call.scratch.put("/aside.json", k)
                call.suspend("Go on?")
            return "went on"

        hooks = Plugin(
            "chance",
            before_inference=self._hook,
            after_inference=self._hook,
            step_end=self._hook,
            run_end=self._hook,
        )
        tools = [send, ask, read, write, put_aside]
        return Agent("planner", backend=self, tools=tools, plugins=[hooks], stop=Stop(steps=12))

    def _happened(self, result: str) -> str:
        """What else may happen while a tool runs."""
        if self.chance.random() < 0.15:
            self.store.thread("trip").put(f"/web/{self.chance.randint(0, 2)}.json", "web")
        if self.chance.random() < 0.05:
            raise RuntimeError("the tool broke")
        if self.chance.random() < 0.03:
            raise KeyboardInterrupt
        return result

    def _hook(self, moment: Moment) -> None:
        if self.chance.random() < 0.1:
            moment.put("/hook.json", moment.phase)
        if self.chance.random() < 0.03:
            raise ValueError("the hook broke")
        if self.chance.random() < 0.03:
            raise KeyboardInterrupt
        if self.chance.random() < 0.05:
            with suppress(errors.PerdureError):
                self.store.thread("trip").steer("psst")
