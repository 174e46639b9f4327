"""The check of exports can fail: requests without their results, and reports without their losses, are found out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Thread, ToolCall, ToolResult
from perdure.model.message import File, Image, Message, ReasoningSummary, Text
from perdure.providers import registry
from perdure.providers.registry import APIS
from tests.integrations.exports import MODELS, export_faults, exports_faults

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
RESULTS = {"tool_result", "function_call_output", "custom_tool_call_output", "function_result"}


@pytest.fixture
def thread() -> Iterator[Thread]:
    """A conversation with what not every vendor takes: a thought, a sound, a picture in a result, a result without a call."""
    look, listen = ToolCall("c1", "look", '{"at": "the door"}'), ToolCall("c2", "listen", "{}")
    picture = Image(f"data:image/png;base64,{PNG}", "image/png")
    with perdure.open("memory:") as store:
        thread = store.thread("t", agent="a")
        with thread.change("said") as change:
            sound = File("data:audio/ogg;base64,T2dnUwAC", "audio/ogg")
            change.add(Message("user", (Text("What is there?"), sound)))
            change.add(Message("assistant", (ReasoningSummary("A door, perhaps."),), (look, listen)))
            change.add(
                Message("tool", (), (), (ToolResult("c1", "success", (Text("a door is shown"), picture)),))
            )
            change.add(Message("tool", (), (), (ToolResult("c9", "success", (Text("an orphan"),)),)))
            change.add(Message("assistant", (Text("A door."),)))
            change.add(Message("user", (Text("Thanks."),)))
        yield thread


def test_a_conversation_with_everything_is_exported_with_its_losses(thread: Thread) -> None:
    """Every vendor accepts it, and what it cannot take is in the report."""
    assert exports_faults(thread) == []


@pytest.mark.parametrize("api", APIS)
def test_a_report_without_its_losses_is_found_out(thread: Thread, api: str) -> None:
    """Control: the same request, of an export that says nothing of what it left out."""
    exported = thread.export(api, model=MODELS[api], sendable=True)

    silent = export_faults(thread, api, msgspec.structs.replace(exported, losses=()))

    assert any("lost in silence" in each for each in silent)


@pytest.mark.parametrize("api", APIS)
def test_a_loss_at_a_place_that_is_not_there_is_found_out(thread: Thread, api: str) -> None:
    """Control: a report that names any place at all would cover everything."""
    exported = thread.export(api, model=MODELS[api], sendable=True)
    elsewhere = msgspec.structs.replace(exported.losses[0], where="messages[99].content[0]")

    found = export_faults(thread, api, msgspec.structs.replace(exported, losses=(elsewhere,)))

    assert any("no such place" in each for each in found)


def unpaired(value: Any) -> Any:
    """A request without the results of calls, as a render gives that does not pair them."""
    if isinstance(value, list):
        return [unpaired(each) for each in value if not _is_result(each)]
    if isinstance(value, dict):
        return {name: unpaired(each) for name, each in value.items()}
    return value


def _is_result(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return (
        value.get("role") == "tool"
        or value.get("type") in RESULTS
        or bool({"toolResult", "functionResponse"} & value.keys())
    )


@pytest.mark.parametrize("api", APIS)
def test_calls_without_results_are_refused(thread: Thread, api: str) -> None:
    """Control: the rules of the format find the calls; Ollama accepts them, and there the missing words are found."""
    exported = thread.export(api, model=MODELS[api], sendable=True)

    found = export_faults(thread, api, msgspec.structs.replace(exported, body=unpaired(exported.body)))

    assert any("lost in silence" not in each for each in found) or (found and api == "ollama-chat"), found


NATIVE: dict[str, dict[str, Any]] = {
    "openai-responses": {
        "input": [
            {"role": "user", "content": "Go"},
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply[patch", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        ]
    },
    "gemini-generate": {
        "contents": [
            {"role": "user", "parts": [{"text": "Go"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "apply[patch", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "apply[patch", "response": {}}}]},
        ]
    },
    "gemini-interactions": {
        "input": [
            {"type": "user_input", "content": [{"type": "text", "text": "Go"}]},
            {"type": "function_call", "id": "c1", "name": "apply[patch", "arguments": {}, "signature": "c2ln"},
            {"type": "function_result", "call_id": "c1", "name": "apply[patch", "result": "done"},
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("api", NATIVE)
def test_a_name_that_is_another_one_here_is_reported(api: str) -> None:
    """Also where a vendor gets back what it has made, with a name that it does not accept."""
    adapter = registry.adapter(api)
    context = adapter.read_request(NATIVE[api], model=MODELS[api])

    rendered = adapter.render(context, model=MODELS[api])

    assert "apply[patch" not in str(rendered.body)
    assert [loss.where for loss in rendered.losses if loss.what == "tool name"] == [
        "messages[1].tool_calls[0]"
    ]
