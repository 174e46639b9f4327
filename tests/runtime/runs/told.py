"""What can be told of a thread from outside: its conversation, its calls and its state, ids aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure import Store
from perdure.model.call import CallRecord
from perdure.model.context import Context
from perdure.model.message import Message
from perdure.store.thread import Thread

__all__ = ["Told", "misshapen", "state_of", "talk_of", "told_of"]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a thread came to."""

    status: str  # of its last run
    why: str | None
    calls: list[CallRecord]
    arguments: dict[str, Any]  # of each call, by its id
    talk: list[Any]
    state: dict[str, Any]
    faults: list[str]

    def states(self) -> dict[str, str]:
        """The state of each call by what it was asked to do: the value of its first argument."""
        return {self.what(call): call.state for call in self.calls}

    def what(self, call: CallRecord) -> str:
        """What a call was asked to do: the value of its first argument."""
        return str(next(iter(self.arguments[call.id].values()), call.tool))


def told_of(store: Store, thread: Thread) -> Told:
    """What there is to tell of a thread, and what is wrong with its store."""
    run = thread.runs()[-1]
    space = thread._space
    found = thread.calls()
    return Told(
        status=run.state,
        why=run.why,
        calls=found,
        arguments={call.id: json.loads(space.body(call.args)) for call in found},
        talk=talk_of(thread),
        state=state_of(thread),
        faults=[str(fault) for fault in store.verify().faults],
    )


def talk_of(thread: Thread) -> list[Any]:
    """The transcript: words, calls by tool and arguments, results by the place of their call."""
    names: dict[str, str] = {}
    told: list[Any] = []
    for entry in thread.transcript():
        message = entry.message
        asked: list[Any] = []
        for call in message.tool_calls:
            names[call.id] = f"call {len(names)}"
            asked.append((names[call.id], call.name, json.loads(call.args)))
        results = [(names[each.call_id], each.status, _words(each.content)) for each in message.tool_results]
        told.append((entry.role, message.text, asked, results))
    return told


def state_of(thread: Thread) -> dict[str, Any]:
    """The thread's state, path by path."""
    return {path: thread.get(path) for path in thread.paths("/")}


def misshapen(contexts: Sequence[Context]) -> list[str]:
    """What no model may be shown: a call without its one result right behind it, a result without its call."""
    found: list[str] = []
    for number, context in enumerate(contexts):
        found += [f"context {number}: {fault}" for fault in _misshapen(context.messages)]
    return found


def _misshapen(messages: Sequence[Message]) -> list[str]:
    found: list[str] = []
    for before, message in zip((None, *messages), (*messages, None), strict=True):
        asked = [call.id for call in before.tool_calls] if before else []
        given = [each.call_id for each in message.tool_results] if message else []
        if asked != given:
            found.append(f"{asked} asked for, {given} given")
    return found


def _words(content: Sequence[object]) -> str:
    return "".join(getattr(block, "text", "") for block in content)
