"""Every name of the documents that Perdure implements is kept or mapped, and what is mapped exists."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from perdure.model.event import CATALOGUE
from perdure.model.names import KERNEL_PREFIXES
from perdure.model.run import REASONS
from perdure.runtime.agent.agent import Scope
from tests.docs.schema import columns_of_new_store
from tests.docs.tables import codes, page

PAGE = "reference/seeds.md"

# Read from the three documents, in their order: types and fields, events, tables and columns, commands.
STATE_PORTABILITY = """
    Message history; Tool-call history; Working memory; Long-term memory; Runtime state;
    AgentMessage; AgentMessage.role; AgentMessage.content; AgentMessage.toolCalls; AgentMessage.toolResults;
    AgentMessage.vendorMetadata; ContentBlock; text; image; file; reasoning_summary;
    ToolCall; ToolCall.id; ToolCall.name; ToolCall.args; ToolResult; ToolResult.callId; ToolResult.status;
    ToolResult.content; vendorMetadata.openai.response_id; vendorMetadata.openai.model;
    vendorMetadata.anthropic.message_id; tool.call.requested; tool; args; tool.call.completed; result_ref; status;
    side_effects; artifact://tool-results/abc123; mem://project/joch/state-model; toolCall.id; toolCall.idempotencyKey;
    toolCall.sideEffects.level; toolCall.sideEffects.idempotent; StateCheckpoint; apiVersion; kind; metadata.name;
    spec.conversationRef; spec.fromBackend; spec.toBackend; spec.summary.userGoal; spec.summary.currentTask;
    spec.summary.decisions; spec.summary.openQuestions; spec.activeArtifacts; spec.relevantMemoryRefs;
    Tiered context reconstruction; Capability validation; joch agents switch researcher --to claude-sonnet --dry-run;
    ConversationEvents; StateCheckpoints; MemoryReferences; ArtifactReferences; ProviderMetadata; conversations; id;
    agent_id; current_backend; created_at; conversation_events; conversation_id; sequence_number; event_type;
    payload_json; provider; model; state_checkpoints; summary; active_goals_json; memory_refs_json;
    artifact_refs_json; tool_events; tool_name; call_id; args_json; idempotency_key; side_effect_level;
    AgentBackendAdapter.renderPrompt; AgentBackendAdapter.parseResponse; AgentBackendAdapter.supports;
    CanonicalAgentState; ProviderRequest; ProviderResponse; CanonicalAgentEvent; Capability
"""
PERSISTENCE = """
    Thread; ThreadChangeSet; VersionPrecondition::Exact(version); RunContext::take_delta(); RunDelta;
    RunDelta.messages; RunDelta.patches; RunDelta.state_actions; ThreadChangeSet.run_id;
    ThreadChangeSet.parent_run_id; ThreadChangeSet.run_meta; ThreadChangeSet.reason; ThreadChangeSet.messages;
    ThreadChangeSet.patches; ThreadChangeSet.state_actions; ThreadChangeSet.snapshot; StateCommitter; AgentOs;
    UserMessage; ToolResultsCommitted; AssistantTurnCommitted; RunFinished; run_loop; run_loop_stream;
    AgentOs::run_stream; RunStart; AfterInference; StepEnd; StateSpec; StateScope; StateScope::Thread;
    StateScope::Run; StateScope::ToolCall; __tool_call_scope.<call_id>; prepare_run;
    StateScopeRegistry::run_scoped_paths(); Op::delete; __run; __kernel.stop_policy_runtime
"""
STATE_STORE = """
    Value; Snapshot; State commit; State pointer; HEAD; kv_put; kv_get; CompleteMessage.agent;
    CompleteMessage.session; CompleteMessage.submission; CompleteMessage.state; state_commits; hash; snapshot_hash;
    parent_hash; state_snapshots; entries; state_values; content; Crash safety; Isolation; Undo; Time travel; Fork;
    Audit; object_storage; Timelines; Conversations Repository; Time-Travel Debugging
"""
DOCUMENTS = {
    "State Portability": STATE_PORTABILITY,
    "Persistence and Versioning": PERSISTENCE,
    "State Store": STATE_STORE,
}

# Code in the second column that is no name of ours that could be looked up.
IN_JSON = {"toolCalls", "toolResults", "mimeType", "callId", "artifact://sha256/<digest>", "HEAD", "perdure"}
OPTIONS = {'head_policy="on_success"', "succeeded", "success"}


def rows(document: str | None = None) -> list[list[str]]:
    """The rows of the tables of one document, or of all: there, here, when."""
    found: list[list[str]] = []
    inside = ""
    for section in page(PAGE):
        inside = section.title if section.level == 2 else inside
        if inside and document in (None, inside):
            found += [row for table in section.tables for row in table.rows]
    return found


def wanted(names: str) -> list[str]:
    """The names of a list."""
    return [" ".join(name.split()) for name in names.split(";")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_name_of_the_document_is_mapped(document: str) -> None:
    """No type, field, table, column, event or command is left out."""
    documented: set[str] = set()
    for there, _, _ in rows(document):
        documented |= {there.split(",")[0], *codes(there)}

    assert [name for name in wanted(DOCUMENTS[document]) if name not in documented] == []


def test_each_row_says_when() -> None:
    """All of it is there."""
    assert {when for _, _, when in rows()} == {"now"}


def test_what_is_mapped_now_exists(tmp_path: Path) -> None:
    """Types, fields and methods can be imported; views have their columns; events, reasons and paths are known."""
    known = (
        IN_JSON
        | OPTIONS
        | set(CATALOGUE)
        | set(REASONS)
        | set(get_args(Scope))
        | set(KERNEL_PREFIXES)
        | columns(tmp_path)
    )

    absent = [
        name for _, here, _ in rows() for name in codes(here) if name not in known and not importable(name)
    ]

    assert absent == []


def test_a_name_that_does_not_exist_is_found_out() -> None:
    """Control: a wrong module, class, field or method is not taken for an existing one."""
    assert importable("perdure.model.message.Message.role")
    for name in (
        "perdure.model.nothing",
        "perdure.model.message.Massage",
        "perdure.model.message.Message.rolle",
    ):
        assert not importable(name)


def importable(name: str) -> bool:
    """Whether a dotted name leads from a module of the package to something that it has."""
    parts = name.split(".")
    if parts[0] != "perdure" or not re.fullmatch(r"[\w.]+", name):
        return False
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return all((found := _member(found, part)) is not None for part in parts[length:])
    return False


def _member(found: object, name: str) -> object | None:
    """A member of a module, a class or, where a class only declares it, of its instances."""
    member: object = getattr(found, name, None)
    if member is not None:
        return member
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        return name if name in found.__struct_fields__ else None
    if isinstance(found, type) and dataclasses.is_dataclass(found):
        return name if name in {each.name for each in dataclasses.fields(found)} else None
    return _set_in_init(found, name) if isinstance(found, type) else None


def _set_in_init(kind: type, name: str) -> str | None:
    """`name`, if the class or one that it extends sets it on its instances."""
    sources = [Path(str(importlib.import_module(each.__module__).__file__)) for each in kind.__mro__[:-1]]
    return name if any(f"self.{name}" in path.read_text(encoding="utf-8") for path in sources) else None


def columns(directory: Path) -> set[str]:
    """The views of a new store, and their columns as `view.column`."""
    found = columns_of_new_store(directory)
    return {*found, *(f"{view}.{column}" for view, names in found.items() for column in names)}
