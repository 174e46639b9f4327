"""Trajectories in ATIF and agents of Letta become threads; versions that are not known are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Store
from perdure.errors import Unsupported
from perdure.integrations.importers import import_sessions
from tests.integrations.importers.counts import Counts, in_store, in_thread, sound

STEPS: list[dict[str, Any]] = [
    {"step_id": 1, "source": "system", "message": "You are root. Obey."},
    {"step_id": 2, "source": "user", "message": "Find the bug."},
    {
        "step_id": 3,
        "source": "agent",
        "model_name": "anthropic/claude-opus-4-5",
        "message": "I look.",
        "reasoning_content": "Where?",
        "tool_calls": [{"tool_call_id": "c1", "function_name": "grep", "arguments": {"q": "pay"}}],
        "observation": {"results": [{"source_call_id": "c1", "content": "pay.py:3"}]},
        "metrics": {"prompt_tokens": 10},
    },
    {"step_id": 4, "source": "agent", "message": "It is in pay.py."},
]
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": [{"type": "text", "text": "You are root. Obey."}]},
    {"role": "user", "content": [{"type": "text", "text": '{"type": "user_message", "message": "Hi."}'}]},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "I send."}],
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "send_message", "arguments": '{"message": "Ho."}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sent"}]},
    {"role": "user", "content": [{"type": "text", "text": '{"type": "heartbeat", "reason": "again"}'}]},
]
TOOL = {"id": "tool-0", "name": "wipe", "source_code": "import os\nos.system('true')"}


def saved(path: Path, name: str, value: object) -> Path:
    """Save a document."""
    (path / name).write_text(json.dumps(value), encoding="utf-8")
    return path / name


def trajectory(version: str = "ATIF-v1.6", **fields: Any) -> dict[str, Any]:
    """A trajectory of a session."""
    agent = {"name": "terminus", "version": "2", "model_name": "claude-opus-4-5"}
    return {"schema_version": version, "session_id": "s1", "agent": agent, "steps": STEPS, **fields}


@pytest.mark.parametrize("minor", [0, 4, 7])
def test_steps_of_a_trajectory_are_messages(store: Store, tmp_path: Path, minor: int) -> None:
    """Reasoning, calls and their observations too; words of the system are counted."""
    (session,) = import_sessions(store, saved(tmp_path, "t.json", trajectory(f"ATIF-v1.{minor}"))).sessions

    assert (session.thread, session.unmapped) == ("atif:s1", {"step of the system": 1})
    assert in_store(store) == Counts(inputs=1, replies=2, calls=1, results=1)
    assert sound(store) == []


def test_trajectories_inside_a_trajectory_are_threads_with_a_link(store: Store, tmp_path: Path) -> None:
    """As sub-agents of the session."""
    inner = trajectory("ATIF-v1.7", trajectory_id="helper")
    import_sessions(store, saved(tmp_path, "t.json", trajectory("ATIF-v1.7", subagent_trajectories=[inner])))

    parent, child = store.thread("atif:s1"), store.thread("atif:s1/helper")
    assert [link["thread"] for link in parent.get("/import/links")] == [child.id]
    assert [link["thread"] for link in child.get("/import/links")] == [parent.id]


def test_a_trajectory_that_has_grown_adds_the_rest(store: Store, tmp_path: Path) -> None:
    """The steps that are there are known by their content."""
    import_sessions(store, saved(tmp_path, "t.json", trajectory()))

    more = [*STEPS, {"step_id": 5, "source": "user", "message": "Thanks."}]
    report = import_sessions(store, saved(tmp_path, "t.json", trajectory(steps=more)))

    assert (report.messages, in_store(store).inputs) == (1, 2)


def test_a_version_that_is_not_known_is_refused(store: Store, tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(Unsupported) as refused:
        import_sessions(store, saved(tmp_path, "t.json", trajectory("ATIF-v2.0")))

    assert (refused.value.code, refused.value.facts["version"]) == ("import_version_unknown", "ATIF-v2.0")
    assert list(store.threads()) == []


AGENT = {
    "name": "sam",
    "id": "agent-0",
    "system": "Obey.",
    "messages": MESSAGES,
    "llm_config": {"model": "gpt-5.6"},
}
FIRST = AGENT | {
    "agent_type": "memgpt_agent",
    "core_memory": [{"label": "human", "value": "Ann"}],
    "tools": [TOOL],
}
SECOND = {
    "agents": [AGENT | {"block_ids": ["block-0"], "tool_ids": ["tool-0"]}],
    "blocks": [{"id": "block-0", "label": "human", "value": "Ann"}],
    "tools": [TOOL],
}


@pytest.mark.parametrize("document", [FIRST, SECOND], ids=["one agent", "a list of agents"])
def test_an_exported_agent_is_a_thread(store: Store, tmp_path: Path, document: Any) -> None:
    """Messages of people, the model and tools; memory is state; source code is named and not run."""
    (session,) = import_sessions(store, saved(tmp_path, "sam.af", document)).sessions

    thread = store.thread(str(session.thread))
    assert in_thread(thread) == Counts(inputs=1, replies=1, calls=1, results=1)
    assert [entry.text for entry in thread.transcript() if entry.role == "user"] == ["Hi."]
    assert thread.get("/letta/blocks/human") == "Ann"
    assert [loss.what for loss in session.losses] == ["tool 'wipe'"]
    assert session.unmapped == {"message of the system": 1, "message of the user": 1, "system prompt": 1}
    assert sound(store) == []


def test_two_agents_with_the_same_number_are_two_threads(store: Store, tmp_path: Path) -> None:
    """Every file counts its agents from 0."""
    saved(tmp_path, "sam.af", SECOND)
    other = AGENT | {"name": "kim"}
    saved(tmp_path, "kim.af", SECOND | {"agents": [other]})

    import_sessions(store, tmp_path)

    assert len(list(store.threads())) == 2
