"""Renders a context as a request of the Interactions API.

The whole conversation goes into `input`: nothing depends on what the server stores.  A request that names a
`previous_interaction_id` is sent unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from perdure.model.context import Context
from perdure.model.message import Message, ToolCall
from perdure.providers.contract import Loss, Rendered, losses_of
from perdure.providers.gemini.capabilities import same_model
from perdure.providers.gemini.options import is_asked_in_words
from perdure.providers.gemini_interactions.options import API, render_options, render_tools
from perdure.providers.gemini_interactions.parse import CALL, DEFAULT_ENDPOINT, VENDOR
from perdure.providers.gemini_interactions.portable_steps import Step, Writer
from perdure.providers.gemini_interactions.request import BARE, CONTENTS
from perdure.providers.wire.call_ids import CallIds
from perdure.providers.wire.call_pairs import CallAnswer, Exchange, exchanges, leading_system
from perdure.providers.wire.fields.vendor_items import Changed, fill, holes_of, items_of, object_of, size_of
from perdure.providers.wire.fields.vendor_metadata import kept, own_ids
from perdure.providers.wire.options import output_words
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = ["render"]

_NAMES = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"
_IDS = r"[\x21-\x7e]{1,128}"
_NOTHING: Step = {"type": "user_input", "content": [{"type": "text", "text": "Continue."}]}
_OF_USER = ("user_input", "function_result", None)  # None: an input that is no list of steps

Steps: TypeAlias = list[Step]


def render(context: Context, *, model: str, provider: str | None = None) -> Rendered:
    """Return a request that the API takes."""
    losses: list[Loss] = []
    vendor = object_of(object_of(context.options.get("vendor")).get(API))
    endpoint = provider or _issuer(context.messages) or DEFAULT_ENDPOINT
    names = ToolNames(names_in(context), _NAMES, strange=r"[^a-zA-Z0-9_.:-]")
    ids = CallIds(_IDS, own=own_ids(context.messages, VENDOR, endpoint=endpoint))
    body = render_options(context, model=model, names=names, losses=losses)
    tools = render_tools(context.tools, vendor, names, losses)
    writer = Writer(losses, id_of=ids.of, name_of=names.of)
    asked = str(body.get("agent") or model)
    continues = bool(body.get("previous_interaction_id"))
    history = _History(context.messages, writer, endpoint, asked, continues=continues)
    steps = history.steps()
    request: dict[str, Any] = {} if body.get("agent") else {"model": model}
    if steps or not continues:
        is_whole = continues or not context.is_sent
        request["input"] = _input(steps if is_whole else _in_order(steps, losses))
    _report_ids(context.messages, ids, losses)
    words = output_words(context.options.get("output")) if is_asked_in_words(context, model) else ""
    if system := "\n\n".join(part for part in (context.system, history.system, words) if part):
        request["system_instruction"] = system
    request |= {**body, **({"tools": tools} if tools else {})}
    return Rendered(body=request, losses=losses_of(losses), names=names.renamed)


def _issuer(messages: Sequence[Message]) -> str | None:
    """Return the provider of the server that wrote the last message; the request goes there if no provider is given."""
    for message in reversed(messages):
        facts = kept(message, VENDOR)
        if facts is not None and facts.get("endpoint"):
            return str(facts["endpoint"])
    return None


class _History:
    """Turns messages into steps."""

    def __init__(
        self, messages: Sequence[Message], writer: Writer, endpoint: str, asked: str, *, continues: bool
    ) -> None:
        self._messages, self._writer, self._endpoint, self._asked = messages, writer, endpoint, asked
        self._continues = continues  # whether the server has the beginning of the conversation
        self.system = ""  # the words of the system that the messages begin with, once they are written

    def steps(self) -> Steps:
        found, losses = exchanges(self._messages, continues=self._continues)
        orphans = self._orphans() if self._continues else {}
        self._writer.losses += losses
        self.system, found = leading_system(found, self._writer.losses)
        by_place = {exchange.where: exchange for exchange in found}
        steps: Steps = []
        for where in range(len(self._messages)):
            steps += [self._result(answer) for answer in orphans.get(where, [])]
            if where in by_place:
                steps += self._exchange(by_place[where])
        return steps

    def _orphans(self) -> dict[int, list[CallAnswer]]:
        """Return results whose calls the server has: the request continues what it stores."""
        calls = {call.id for message in self._messages for call in message.tool_calls}
        return {
            where: [
                CallAnswer(ToolCall(result.call_id, "", ""), result, where, at)
                for at, result in enumerate(message.tool_results)
                if result.call_id not in calls
            ]
            for where, message in enumerate(self._messages)
        }

    def _exchange(self, exchange: Exchange) -> Steps:
        message, where = exchange.message, f"messages[{exchange.where}]"
        if message.role == "system":
            why = "Gemini knows none within a conversation; the user says it"
            self._writer.lose("converted", where, "system message", why)
        steps = self._native(message, where)
        if steps is None:
            steps = self._writer.message(message, where)
        return [*steps, *(self._result(answer) for answer in exchange.answers)]

    def _result(self, answer: CallAnswer) -> Step:
        plain = self._writer.result
        facts = None if answer.where is None else self._facts(self._messages[answer.where])
        shells = items_of(facts["steps"]) if facts is not None else []
        if facts is None or len(shells) != 1 or facts.get("size") != size_of(answer.result.content):
            return plain(answer.call, answer.result, answer.place)
        try:
            filled: Step = fill(shells[0], answer.result.content)
        except Changed:
            self._changed(answer.place)
            return plain(answer.call, answer.result, answer.place)
        named = {"name": self._writer.name_of(answer.call.name)} if answer.call.name else {}
        status = {"is_error": True} if answer.result.status == "error" else {}
        return {"call_id": self._writer.id_of(answer.call.id), **named, **filled, **status}

    def _facts(self, message: Message) -> Mapping[str, Any] | None:
        facts = kept(message, VENDOR, endpoint=self._endpoint)
        return facts if facts is not None and "steps" in facts else None

    def _native(self, message: Message, where: str) -> Steps | None:
        """Return Google's own steps, if it wrote the message and the message is unchanged."""
        facts = self._facts(message)
        if facts is None:
            return None
        try:
            if facts.get("size") != size_of(message.content, message.tool_calls):
                raise Changed
            shells = [object_of(each) for each in items_of(facts["steps"])]
            steps = [self._filled(shell, message, where) for shell in shells]
        except Changed:
            self._changed(where)
            return None
        if same_model(facts.get("model"), self._asked):
            return steps
        thoughts = [shell for shell in shells if shell.get("type") == "thought"]
        for at in sorted({at for shell in thoughts for at in holes_of(shell)}):
            why = "it is good for the model that made it"
            self._writer.lose("dropped", f"{where}.content[{at}]", "reasoning", why)
        return _unsigned(steps)

    def _filled(self, shell: Step, message: Message, where: str) -> Step:
        step: Step = fill(shell, message.content)
        if not step:
            raise Changed  # it was never a step
        at = step.pop(CALL, None)
        if at is None:
            return step
        if not isinstance(at, int) or not 0 <= at < len(message.tool_calls):
            raise Changed
        call, where = message.tool_calls[at], f"{where}.tool_calls[{at}]"
        return {
            **step,
            "id": self._writer.id_of(call.id),
            "name": self._writer.tool_name(call, where),
            "arguments": self._writer.arguments(call.args, where),
        }

    def _changed(self, where: str) -> None:
        why = "the message was changed since Google made it"
        self._writer.lose("repaired", where, "native form", why)


def _unsigned(steps: Steps) -> Steps:
    """Return the parts for another model of Google's: without thoughts and signatures."""
    return [
        {name: value for name, value in step.items() if name != "signature"}
        for step in steps
        if step.get("type") != "thought"
    ]


def _in_order(steps: Steps, losses: list[Loss]) -> Steps:
    """Return the steps with one of the user's before the first call and at the end."""
    kinds = [step.get("type") for step in steps]
    begins = kinds[: next((at for at, kind in enumerate(kinds) if kind in _OF_USER), len(kinds))]
    if "function_call" in begins:
        steps = [_NOTHING, *steps]
        losses.append(_repaired("a call stands behind a step of the user's; one was put there"))
    if not kinds or kinds[-1] not in _OF_USER:
        steps = [*steps, _NOTHING]
        losses.append(_repaired("a step of the user's is the last; one was put there"))
    return steps


def _input(steps: Steps) -> Any:
    """Return the input; one that came as a text or as a list of contents, and is still alone, goes out as it came."""
    if len(steps) == 1:
        only = steps[0]
        return only.get(BARE, only.get(CONTENTS, steps))
    return [_as_step(step) for step in steps]


def _as_step(step: Step) -> Step:
    if BARE in step:
        return {"type": "user_input", "content": [{"type": "text", "text": step[BARE]}]}
    return {"type": "user_input", "content": step[CONTENTS]} if CONTENTS in step else step


def _report_ids(messages: Sequence[Message], ids: CallIds, losses: list[Loss]) -> None:
    for where, message in enumerate(messages):
        for at, call in enumerate(message.tool_calls):
            if ids.changed(call.id):
                place = f"messages[{where}].tool_calls[{at}].id"
                why = "it is not legal here, or taken"
                losses.append(Loss(kind="repaired", where=place, what="tool call id", why=why))


def _repaired(why: str) -> Loss:
    return Loss(kind="repaired", where="messages", what="turn", why=why)
