"""An agent whose model answers at once: what is left is what a run costs beside the model and the tools.

Each run says and does what one turn of the workload holds: the user's message, an assistant's
turn with one tool call, a tool that writes the three state keys and gives back its result, and
the last words.  Four durable writes, as the baseline makes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import perdure
from bench.sync import without_syncs
from bench.workload import Turn
from perdure.context.limits import ContextLimits
from perdure.model.context import Context
from perdure.model.message import Message, Text, ToolCall
from perdure.providers.contract import Finished, ModelEvent
from perdure.store.store import Store

__all__ = ["Running"]


class _Prompt:
    """A model that knows what comes next."""

    backend = "bench:prompt"

    def __init__(self) -> None:
        self.turn: Turn | None = None

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        assert self.turn is not None
        asked = context.messages[-1].role == "user"
        yield Finished(message=_renamed(self.turn.steps[1].message) if asked else self.turn.steps[3].message)


def _renamed(message: Message) -> Message:
    """The message with arguments that a Python function can have: `from` is a keyword."""
    calls = tuple(
        ToolCall(call.id, call.name, call.args.replace('"from"', '"origin"')) for call in message.tool_calls
    )
    return Message(message.role, message.content, calls)


class Running:
    """One thread of a store, with an agent on it."""

    name = "Perdure, running an agent"

    def __init__(
        self,
        directory: Path,
        *,
        thread: str = "t",
        durable: bool = True,
        store: Store | None = None,
        with_state: bool = True,
        window: int | None = None,
        url: str | None = None,
    ) -> None:
        """Run on one thread; `window` is how many tokens the model takes, None: any number; `url` None: in a file."""
        self.path = directory / "perdure.db"
        self._owned = store is None
        with without_syncs(not durable):
            durability = "power_loss" if durable else "process_crash"
            self.store = store or perdure.open(url or self.path, durability=durability)
        self._model = _Prompt()
        tools, limits = [_tool(self._model, with_state=with_state)], ContextLimits(window=window)
        agent = perdure.Agent("bench", backend=self._model, tools=tools, context=limits)
        self.thread = self.store.thread(thread, agent=agent)

    def turn(self, turn: Turn) -> None:
        self._model.turn = turn
        result = self.thread.run(cast("Message", turn.steps[0].message))
        assert result.status == "succeeded", result

    def round_trips(self) -> int:
        return self.store.counters()["round_trips"]

    def close(self) -> None:
        if self._owned:
            self.store.close()


def _tool(model: _Prompt, *, with_state: bool) -> perdure.Tool:
    @perdure.tool(name="search_flights", effect="external_write")
    def search(to: str, max_price: int, origin: str = "OSL", *, call: perdure.Call) -> str:
        """Search flights."""
        assert model.turn is not None
        for step in model.turn.steps if with_state else ():
            if step.key is not None:
                call.put(step.key, cast("Any", step.value))
        block = model.turn.steps[2].message.tool_results[0].content[0]
        assert isinstance(block, Text)
        return block.text

    return search
