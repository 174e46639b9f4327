"""What a render was given and does not hold is in its losses, field by field, and nothing else is.

Every recorded request, and every answer put behind its request, is rendered for every other format.  The ordinary
run takes conversations until every kind of leaf has been seen; `PERDURE_DEEP` takes all of them, for two models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import msgspec
import pytest

from perdure.model.context import Context
from perdure.model.message import Message, Text, ToolResult
from perdure.providers import adapter
from perdure.providers.contract import Loss, Rendered
from perdure.providers.registry import APIS
from tests.crash.campaign import sized
from tests.recorded.audit import audited, false, silent
from tests.recorded.leaves import Leaf, given
from tests.recorded.pairs import DEEP, MODELS, SOURCES, contexts, read_as, reply
from tests.recorded.wire import Record, Wire

TRANSCRIPT = "ac0c08045cfc-j"  # of speech: no answer of a chat
ELSEWHERE = {
    "openai-responses": "azure-openai",
    "anthropic-messages": "google-vertex",
    "openai-chat": "openai",
}
EVERY = 100  # of the conversations whose kinds of leaves have all been seen


def answered(record: Record, context: Context) -> Context:
    """The conversation with the recorded answer, results for its calls and another question."""
    said = reply(record).message
    results = [ToolResult(call.id, "success", (Text("ok"),)) for call in said.tool_calls]
    tools = [Message("tool", (), (), tuple(results))] if results else []
    messages = [*context.messages, said, *tools, Message("user", (Text("And then?"),))]
    return msgspec.structs.replace(context, messages=messages)


@cache
def conversations(wire: Wire, source: str) -> Sequence[tuple[str, Context, Sequence[Leaf]]]:
    """The recorded conversations of a format and their leaves; in an ordinary run those that hold something new, and some others."""
    return tuple(_conversations(wire, source))


def _conversations(wire: Wire, source: str) -> Iterator[tuple[str, Context, Sequence[Leaf]]]:
    seen: set[tuple[str, ...]] = set()
    for at, (record, asked) in enumerate(contexts(wire, source)):
        has_answer = bool(record.response) and record.id != TRANSCRIPT
        for context in (asked, answered(record, asked)) if has_answer else (asked,):
            leaves = list(given(context))
            kinds = {
                (leaf.kind, *(each for each in leaf.path[:6] if not each.isdigit()))
                for leaf in leaves
                if leaf.kind != "schema"
            }
            kinds = {kind for kind in kinds if "parameters" not in kind}
            if DEEP or not kinds <= seen or at % EVERY == 0:
                seen |= kinds
                yield record.id, context, leaves


@pytest.mark.parametrize("source", SOURCES)
def test_the_losses_are_what_is_missing(wire: Wire, source: str) -> None:
    """For every target: nothing is absent that no loss names, and no loss names what is there unchanged."""
    wrong: list[object] = []

    for id, context, leaves in conversations(wire, source):
        for target in APIS:
            for model in MODELS[target][: sized(1, 2)] if target != read_as(source) else ():
                made = adapter(target).render(context, model=model)
                found = audited(context, made, leaves)
                wrong += [(id, target, model, *found)] if found != ([], []) else []

    assert wrong == []


@pytest.mark.parametrize("source", SOURCES)
def test_so_they_are_for_other_models_and_servers_of_the_same_format(wire: Wire, source: str) -> None:
    """What a model signed, and what a server keeps, is lost to others of its format too."""
    api, wrong = read_as(source), list[object]()

    for id, context, leaves in conversations(wire, source):
        for model in MODELS[api]:
            for provider in (None, ELSEWHERE.get(api, "elsewhere")):
                made = adapter(api).render(context, model=model, provider=provider)
                found = audited(context, made, leaves, own=provider is None)
                wrong += [(id, model, provider, *found)] if found != ([], []) else []

    assert wrong == []


@pytest.mark.parametrize("source", SOURCES)
def test_an_adapter_that_drops_something_silently_is_caught(wire: Wire, source: str) -> None:
    """Control: with any one loss taken out of its report, or all messages out of the request, a render is wrong."""
    id, context, _ = next(each for each in conversations(wire, source) if len(each[1].messages) > 1)
    target = "openai-chat" if read_as(source) != "openai-chat" else "gemini-generate"

    made = adapter(target).render(context, model=MODELS[target][0])
    empty = Rendered(body={**made.body, "messages": [], "contents": []}, losses=made.losses)

    assert (id, silent(context, made)) == (id, [])
    assert silent(context, empty) != []


def test_every_dropped_field_that_is_not_reported_is_caught(wire: Wire) -> None:
    """Control: each report of a signature, a name, a citation or a setting is needed."""
    whats = {"thought signature", "file name", "citations", "phase", "encrypted reasoning", "guard content"}
    caught: set[str] = set()

    for source in ("gemini-generate", "openai-responses", "bedrock-converse"):
        for _, context, _ in conversations(wire, source):
            made = adapter("mistral-chat").render(context, model="mistral-large-latest")
            for what in whats & {loss.what for loss in made.losses} - caught:
                rest = tuple(loss for loss in made.losses if loss.what != what)
                caught |= {what} if silent(context, msgspec.structs.replace(made, losses=rest)) else set()

    assert caught == whats


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("messages[0].content[0]", "text"),
        ("messages[0].name", "speaker name"),
        ("options.temperature", "temperature"),
        ("options.vendor.openai-chat.endpoint", "endpoint"),
        ("tools[0].name", "tool name"),
        ("messages", "turn"),
    ],
)
def test_a_loss_that_did_not_happen_is_caught(where: str, what: str) -> None:
    """Control: a report of what the request holds, or of a note of the reader's, is wrong."""
    body = {
        "model": "gpt-5.4",
        "messages": [{"role": "user", "content": "What is the weather?"}],
        "temperature": 0.5,
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
        "logit_bias": {"1": 2},
    }
    context = adapter("openai-chat").read_request(body)
    made = adapter("openai-chat").render(context, model="gpt-5.4")

    loss = Loss(kind="dropped", where=where, what=what, why="a control")

    assert false(context, made) == []
    assert false(context, msgspec.structs.replace(made, losses=(loss,))) != []
