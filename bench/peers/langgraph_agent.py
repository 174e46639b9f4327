"""LangGraph's ready-made agent without a checkpointer: a model that answers at once, and one tool.

It says and does what a run of ours does, and keeps nothing.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent

from bench.workload import Turn
from perdure.model.message import Message, Text

__all__ = ["Graph"]


class _Prompt(BaseChatModel):
    """A model that knows what comes next."""

    turn: Any = None

    @property
    def _llm_type(self) -> str:
        return "bench"

    def bind_tools(self, tools: Any, **_: Any) -> _Prompt:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        asked = messages[-1].type == "human"
        said = _answer(self.turn.steps[1 if asked else 3].message)
        return ChatResult(generations=[ChatGeneration(message=said)])


class Graph:
    """One agent, to which every turn is new."""

    name = "LangGraph without a checkpointer"

    def __init__(self) -> None:
        self._model = _Prompt()

        @tool
        def search_flights(to: str, max_price: int, origin: str = "OSL") -> str:
            """Search flights."""
            return _text(self._model.turn.steps[2].message.tool_results[0].content)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it moved to a package that is built on this one
            self._agent: Any = create_react_agent(self._model, [search_flights])

    def turn(self, turn: Turn) -> None:
        self._model.turn = turn
        words = _text(turn.steps[0].message.content)
        said = self._agent.invoke({"messages": [HumanMessage(words)]})["messages"]
        assert [each.type for each in said] == ["human", "ai", "tool", "ai"], said


def _answer(message: Message) -> AIMessage:
    calls = [
        {
            "id": call.id,
            "name": call.name,
            "args": json.loads(call.args.replace('"from"', '"origin"')),
            "type": "tool_call",
        }
        for call in message.tool_calls
    ]
    return AIMessage(content=_text(message.content), tool_calls=calls)


def _text(blocks: Any) -> str:
    return "".join(block.text for block in blocks if isinstance(block, Text))
