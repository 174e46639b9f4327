"""The examples of the document *State Portability*: canonical messages, vendorMetadata, events and tables."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import File, Image, Message, ReasoningSummary, Store, Text, ToolCall, ToolResult
from perdure.history import writer
from perdure.history.writer import Proposal
from perdure.model.digest import Kind, Object
from perdure.model.event import Event, MessageAppended, ToolCallCompleted, ToolCallRequested
from perdure.model.message import view

VENDOR = '{"openai": {"response_id": "resp_abc",  "model": "gpt-5.5-thinking"}, "anthropic": {"message_id": "msg_xyz"}}'
ARGS = '{ "repo": "org/joch", "query": "memory migration" }'

MESSAGES: dict[str, tuple[Message, dict[str, Any]]] = {
    "user": (
        Message(
            "user",
            (
                Text("Look at this."),
                Image("artifact://sha256/ab", "image/png"),
                File("file:///a.pdf", "application/pdf"),
            ),
        ),
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look at this."},
                {"type": "image", "uri": "artifact://sha256/ab", "mimeType": "image/png"},
                {"type": "file", "uri": "file:///a.pdf", "mimeType": "application/pdf"},
            ],
        },
    ),
    "assistant": (
        Message(
            "assistant",
            (ReasoningSummary("I should search."),),
            tool_calls=(ToolCall("call_123", "github.search_issues", ARGS),),
            vendor_metadata=VENDOR,
        ),
        {
            "role": "assistant",
            "content": [{"type": "reasoning_summary", "text": "I should search."}],
            "toolCalls": [
                {
                    "id": "call_123",
                    "name": "github.search_issues",
                    "args": {"repo": "org/joch", "query": "memory migration"},
                }
            ],
            "vendorMetadata": {
                "openai": {"response_id": "resp_abc", "model": "gpt-5.5-thinking"},
                "anthropic": {"message_id": "msg_xyz"},
            },
        },
    ),
    "tool": (
        Message("tool", tool_results=(ToolResult("call_123", "success", (Text("2 issues"),)),)),
        {
            "role": "tool",
            "content": [],
            "toolResults": [
                {"callId": "call_123", "status": "success", "content": [{"type": "text", "text": "2 issues"}]}
            ],
        },
    ),
}


@pytest.mark.parametrize("role", MESSAGES)
def test_a_message_comes_back_in_the_shape_of_the_document(store: Store, role: str) -> None:
    """AgentMessage, ContentBlock, ToolCall and ToolResult, with their JSON names."""
    message, shape = MESSAGES[role]
    thread = store.thread("conv-123", agent="researcher")

    with thread.change("imported") as change:
        change.add(message)

    (entry,) = thread.transcript()
    assert view(entry.message) == shape
    assert json.loads(json.dumps(view(entry.message))) == shape


def test_what_the_vendor_wrote_comes_back_byte_for_byte(store: Store) -> None:
    """vendorMetadata is preserved and never depended on; so are the arguments of a call."""
    thread = store.thread("conv-123", agent="researcher")
    message, _ = MESSAGES["assistant"]

    with thread.change("imported") as change:
        change.add(message, provider="openai", model="gpt-5.5-thinking")

    (entry,) = thread.transcript()
    assert entry.message.vendor_metadata == VENDOR
    assert entry.message.tool_calls[0].args == ARGS
    assert (entry.provider, entry.model) == ("openai", "gpt-5.5-thinking")


def test_without_vendor_metadata_the_message_is_the_same_object(store: Store) -> None:
    """Taking it away changes no digest of the message itself."""
    thread = store.thread("conv-123", agent="researcher")
    message, _ = MESSAGES["assistant"]

    with thread.change("imported") as change:
        change.add(message)
        change.add(msgspec.structs.replace(message, vendor_metadata=None))

    first, second = (event for event in thread.log()[0].events if isinstance(event, MessageAppended))
    assert (first.body, first.size) == (second.body, second.size)
    assert (first.vendor is None, second.vendor) == (False, None)


REQUESTED = ToolCallRequested(
    id="e-1",
    call="call_123",
    tool="github.search_issues",
    args=Object.of(Kind.BODY, ARGS.encode()).digest,
    size=len(ARGS),
    idempotency_key="zendesk-create-12345",
    side_effects="read_only",
)
COMPLETED = ToolCallCompleted(
    id="e-2",
    call="call_123",
    status="success",
    result_ref="artifact://tool-results/abc123",
    side_effects="read_only",
)


@pytest.mark.parametrize(
    ("event", "shape"),
    [
        (REQUESTED, {"type": "tool.call.requested", "tool": "github.search_issues"}),
        (
            COMPLETED,
            {
                "type": "tool.call.completed",
                "result_ref": "artifact://tool-results/abc123",
                "status": "success",
                "side_effects": "read_only",
            },
        ),
    ],
)
def test_tool_events_have_the_names_of_the_document(event: Event, shape: dict[str, str]) -> None:
    """tool, result_ref, status, side_effects; the arguments are named by digest."""
    assert shape.items() <= msgspec.to_builtins(event).items()


COLUMNS = {
    "conversations": "id agent_id current_backend created_at",
    "conversation_events": "id conversation_id sequence_number event_type payload_json provider model created_at",
    "state_checkpoints": "id conversation_id summary active_goals_json memory_refs_json artifact_refs_json created_at",
    "tool_events": "id conversation_id tool_name call_id args_json result_ref idempotency_key side_effect_level created_at",
}


def test_the_tables_have_the_columns_of_the_document(tmp_path: Path) -> None:
    """In the document's order, in stock SQLite; ours come after them."""
    perdure.open(tmp_path / "agents.db").close()

    with closing(sqlite3.connect(tmp_path / "agents.db")) as connection:
        found = {name: _columns(connection, name) for name in COLUMNS}

    assert all(found[name].startswith(columns) for name, columns in COLUMNS.items())


def test_a_conversation_can_be_audited_in_the_tables(tmp_path: Path) -> None:
    """Append-only message and tool events, who acted, and vendor data that is never the source of truth."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("conv-123", agent="researcher")
        with thread.change("imported") as change:
            change.add(MESSAGES["assistant"][0], provider="openai", model="gpt-5.5-thinking")
        args = Object.of(Kind.BODY, ARGS.encode())
        step = Proposal(reason="tools", root=thread.root, events=(REQUESTED, COMPLETED), objects=(args,))
        writer.commit(thread._space, thread.head, step, op_id="tools")

    with closing(sqlite3.connect(tmp_path / "agents.db")) as connection:
        events = list(
            connection.execute("SELECT sequence_number, event_type FROM conversation_events ORDER BY 1")
        )
        backend = list(connection.execute("SELECT id, agent_id, current_backend FROM conversations"))
        vendor = list(connection.execute("SELECT metadata_json FROM provider_metadata"))

    assert events == [(1, "message.appended"), (2, "tool.call.requested"), (3, "tool.call.completed")]
    assert backend == [("conv-123", "researcher", "openai:gpt-5.5-thinking")]
    assert vendor == [(VENDOR,)]


def _columns(connection: sqlite3.Connection, name: str) -> str:
    return " ".join(
        column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))
    )
