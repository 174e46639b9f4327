"""From one vendor to another and back: what only the first can read returns to it alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import perdure
from perdure.model.context import Context
from perdure.model.message import Message, Text, ToolResult
from perdure.providers import adapter
from perdure.providers.registry import APIS
from tests.recorded.owned import opaque, opaque_of
from tests.recorded.pairs import MODELS, SOURCES, contexts, read_as, reply, sampled
from tests.recorded.wire import Record, Wire

TRANSCRIPT = "ac0c08045cfc-j"  # of speech: no answer of a chat
HELLO = Message("user", (Text("And then?"),))

# How many conversations of each format hold something that only its issuer can read.
OWNED = {
    "gemini-generate": 400,
    "openai-responses": 210,
    "anthropic-messages": 75,
    "openai-chat": 45,
    "bedrock-converse": 13,
    "gemini-interactions": 3,
}
# Conversations whose end changes as they go on, each with the reason.
JOINED = {
    "df4b146a6686-000": "it holds no turn of the user's, and one is made up until the model has answered",
    "eab139a4e12a-000": "it ends with the beginning of an answer, which the answer goes on with",
}
# Whose tokens another endpoint of the same format must not see.
ELSEWHERE = {
    "openai-responses": "azure-openai",
    "anthropic-messages": "google-vertex",
    "gemini-generate": "elsewhere",
    "openai-chat": "openai",
    "bedrock-converse": "elsewhere",
    "gemini-interactions": "elsewhere",
}


def answers(message: Message) -> list[Message]:
    """Results for the calls of a message."""
    results = tuple(ToolResult(call.id, "success", (Text("ok"),)) for call in message.tool_calls)
    return [Message("tool", (), (), results)] if results else []


def visits(
    wire: Wire, source: str, target: str, *, every: int = 1
) -> Iterator[tuple[Record, Context, set[str]]]:
    """Conversations that began in one format, went on in another, and are about to return; and what is owned in them.

    A deep run has all of them, any other each `every`-th.
    """
    accepted = [each for each in wire.answers(target) if each.status == 200 and each.id != TRANSCRIPT]
    abroad = [reply(each) for each in accepted[:40]]
    for at, (record, context) in enumerate(contexts(wire, source, every=every)):
        if not record.response or record.id == TRANSCRIPT:
            continue
        own, strange = reply(record).message, abroad[at % len(abroad)].message
        messages = [*context.messages, own, *answers(own), HELLO, strange, *answers(strange), HELLO]
        told = opaque_of(own) if record.is_stream else opaque(record.response)
        yield record, msgspec.structs.replace(context, messages=messages), told | opaque(record.request)


def stripped(context: Context) -> Context:
    """The context without anything that only its issuer can read."""
    bare = [msgspec.structs.replace(message, vendor_metadata=None) for message in context.messages]
    return msgspec.structs.replace(context, messages=bare)


@pytest.mark.parametrize("source", OWNED)
def test_what_only_the_first_can_read_is_back(wire: Wire, source: str) -> None:
    """Every signature and every encrypted token, byte for byte, after a visit to another vendor."""
    target = "mistral-chat" if source == "openai-chat" else "openai-chat"
    owned = [each for each in visits(wire, source, target) if each[2]]

    for record, context, tokens in owned:
        body = adapter(source).render(context, model=record.model or "", provider=record.provider).body
        assert (record.id, tokens - opaque(body)) == (record.id, set())

    assert len(owned) >= OWNED[source]


@pytest.mark.parametrize("source", SOURCES)
def test_what_stood_before_the_visit_is_sent_as_if_there_had_been_none(wire: Wire, source: str) -> None:
    """Items, blocks and ids of the whole conversation, in their places; every exception is in the list."""
    api = read_as(source)
    field = {"openai-responses": "input", "gemini-interactions": "input", "gemini-generate": "contents"}.get(
        api, "messages"
    )
    before = {record.id: context for record, context in contexts(wire, source, every=6)}
    changed: set[str] = set()

    for record, after, _ in visits(
        wire, source, "openai-chat" if api == "anthropic-messages" else "anthropic-messages", every=6
    ):
        alone, visited = (
            adapter(api)
            .render(unmarked(each), model=record.model or "", provider=record.provider)
            .body[field]
            for each in (before[record.id], after)
        )
        alone = as_steps(alone) if api == "gemini-interactions" else alone
        if visited[: len(alone)] != alone and not isinstance(alone, str):
            changed.add(record.id)

    assert changed == {id for id in JOINED if id in before}


def as_steps(given: Any) -> Any:
    """The input of an interaction as a list of steps: alone it may be a list of contents."""
    is_contents = isinstance(given, list) and given[0]["type"] != "user_input"
    return [{"type": "user_input", "content": given}] if is_contents else given


def unmarked(context: Context) -> Context:
    """The context without marks for the prompt cache, which move as a conversation grows."""
    return msgspec.structs.replace(context, options={**context.options, "cache": False})


@pytest.mark.parametrize("source", OWNED)
def test_no_other_vendor_is_shown_it(wire: Wire, source: str) -> None:
    """Nor another endpoint of the same format: none of these tokens stands in what it is sent."""
    every = 1 if source == "gemini-interactions" else 8  # of which there are few
    owned = [each for each in visits(wire, source, "mistral-chat", every=every) if each[2]]

    assert owned
    for record, context, tokens in owned:
        for api in APIS:
            provider = ELSEWHERE[source] if api == source else None
            if (api, provider) == (source, record.provider):
                continue
            body = adapter(api).render(context, model=MODELS[api][0], provider=provider).body
            seen = json.dumps(body)
            assert [record.id for token in tokens if token in seen and len(token) > 20] == []


@pytest.mark.parametrize("source", SOURCES)
def test_without_it_every_other_vendor_is_sent_the_same(wire: Wire, source: str) -> None:
    """No decision depends on vendorMetadata: stripped of it, the requests for others are unchanged."""
    visited = "anthropic-messages" if source != "anthropic-messages" else "openai-responses"
    targets = [api for api in APIS if api not in (read_as(source), visited)]

    for record, context, _ in visits(wire, source, visited, every=24):
        bare = stripped(context)
        for api in targets:
            rendered = adapter(api).render(context, model=MODELS[api][0]).body
            assert (record.id, api, rendered) == (
                record.id,
                api,
                adapter(api).render(bare, model=MODELS[api][0]).body,
            )


def test_without_it_the_owner_is_sent_less(wire: Wire) -> None:
    """Control: stripping does take something away."""
    owned = [each for each in visits(wire, "anthropic-messages", "openai-chat", every=4) if each[2]]

    bodies = [
        adapter("anthropic-messages").render(stripped(each[1]), model="claude-sonnet-5-5").body
        for each in owned
    ]

    assert bodies
    assert not any(opaque(body) for body in bodies)


@pytest.mark.parametrize("source", ["openai-responses", "anthropic-messages"])
def test_a_thread_keeps_it_too(wire: Wire, source: str) -> None:
    """Stored in a thread, visited by another vendor, and rendered for its owner, it is all there."""
    provider = source.partition("-")[0]
    owned = [each for each in wire.requests(source) if each.status == 200 and opaque(each.request)]

    with perdure.open("memory:") as store:
        for record in sampled([each for each in owned if each.provider == provider], every=3):
            thread = store.thread(record.id, agent="helper")
            thread.add(record.request, api=source)
            thread.add(
                [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}],
                api="openai-chat",
            )
            body = thread.render(f"{provider}:{record.model}").body
            assert (record.id, opaque(record.request) - opaque(body)) == (record.id, set())
