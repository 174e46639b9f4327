"""Sessions as the newest releases of Claude Code and the Codex CLI write them, by hand, with what is odd but happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.integrations.importers import import_sessions
from tests.crash.campaign import sized
from tests.integrations.importers.counts import Counts, import_faults, in_store, sound

SESSION = "3f0e8a52-7c1d-4f5e-9a0b-6d2c1e4f7a90"
ROLLOUT = "019a6c3e-52b1-7d40-8a11-0c9d2e6f1b37"
SIGNATURE = "EqQBCkYICBgCKkDx1mZ9h0Qv3p7vT8yq2mUqC0rS5dPbW4n6kLxYzAbCdEf0123456789abcdefghijk=="
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOKEN = "gAAAAABo" + "x" * 92

Line = dict[str, Any]


def claude(uuid: str, parent: str | None, kind: str, **fields: Any) -> Line:
    """A line of Claude Code."""
    common = {"sessionId": SESSION, "version": "2.1.90", "cwd": "/home/ann/shop", "gitBranch": "main"}
    where = {"isSidechain": False, "userType": "external", "timestamp": "2026-11-02T08:00:00.000Z"}
    return {"parentUuid": parent, **where, **common, "type": kind, "uuid": uuid, **fields}


def user(uuid: str, parent: str | None, content: Any, **fields: Any) -> Line:
    """A line in the role of the user."""
    return claude(uuid, parent, "user", message={"role": "user", "content": content}, **fields)


def reply(uuid: str, parent: str, id: str, *blocks: Any, **fields: Any) -> Line:
    """One line of a reply."""
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 9000,
        "output_tokens": 7,
        "service_tier": "standard",
    }
    message = {"id": id, "type": "message", "role": "assistant", "model": "claude-opus-4-5-20251101"}
    more = {"content": list(blocks), "stop_reason": None, "stop_sequence": None, "usage": usage}
    return claude(uuid, parent, "assistant", requestId="req_011", message={**message, **more}, **fields)


def use(id: str, name: str, **input: Any) -> Line:
    """A call."""
    return {"type": "tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"}}


def result(id: str, content: Any, **fields: Any) -> Line:
    """A result."""
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}


def claude_with_images_and_hooks() -> list[Line]:
    """Queued commands, hooks, thoughts with signatures, parallel calls, and results that are lists with images."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    reference = [{"type": "tool_reference", "tool_name": "WebFetch"}]
    thought = {"type": "thinking", "thinking": "The page first.", "signature": SIGNATURE}
    hidden = {"type": "redacted_thinking", "data": SIGNATURE}
    return [
        {
            "type": "queue-operation",
            "operation": "enqueue",
            "sessionId": SESSION,
            "content": "look",
            "timestamp": "",
        },
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"trackedFileBackups": {}}},
        claude("h0", None, "attachment", attachment={"type": "hook_success", "hookName": "SessionStart"}),
        user("u1", "h0", [{"type": "text", "text": "What is on this page?"}, image], permissionMode="plan"),
        reply("a1", "u1", "msg_01", thought),
        reply("a2", "a1", "msg_01", hidden),
        reply("a3", "a2", "msg_01", {"type": "text", "text": "I look."}),
        reply("a4", "a3", "msg_01", use("toolu_01", "Read", file_path="/tmp/page.png")),
        claude("p1", "a4", "progress", data={"type": "hook_progress"}, toolUseID="toolu_01"),
        reply("a5", "p1", "msg_01", use("toolu_02", "ToolSearch", query="fetch")),
        user(
            "r1",
            "a4",
            [result("toolu_01", [{"type": "text", "text": "1 image"}, image])],
            toolUseResult={"type": "image"},
        ),
        user("r2", "a5", [result("toolu_02", reference)], sourceToolAssistantUUID="a5"),
        {"type": "queue-operation", "operation": "dequeue", "sessionId": SESSION, "timestamp": ""},
        claude("q1", "r2", "attachment", attachment={"type": "queued_command", "prompt": "And the price?"}),
        claude(
            "s1", "q1", "system", subtype="stop_hook_summary", hookCount=1, level="suggestion", content="ok"
        ),
        reply("a6", "s1", "msg_02", {"type": "text", "text": "A ticket for 5 euro."}),
        claude("s2", "a6", "system", subtype="turn_duration", durationMs=5100, isMeta=False),
    ]


def claude_with_errors() -> list[Line]:
    """Errors of the API as messages, an interruption, commands of the tool, a result that is an error, a call without one."""
    overloaded = {"type": "text", "text": "API Error: 529 Overloaded"}
    interrupted = [{"type": "text", "text": "[Request interrupted by user for tool use]"}]
    rejected = "The user doesn't want to proceed with this tool use."
    error = reply(
        "e1", "u1", "0b1e6a", overloaded, isApiErrorMessage=True, error="overloaded", apiErrorStatus=529
    )
    error["message"] |= {"model": "<synthetic>", "stop_reason": "stop_sequence", "container": None}
    return [
        user("c1", None, "<local-command-caveat>Caveat</local-command-caveat>", isMeta=True),
        user("c2", "c1", "<command-name>/model</command-name>"),
        claude(
            "c3",
            "c2",
            "system",
            subtype="local_command",
            content="<local-command-stdout>Set</local-command-stdout>",
        ),
        user("u1", "c3", "Delete the branch"),
        claude("s1", "u1", "system", subtype="api_error", retryAttempt=1, error={"status": 529}),
        error,
        user("u2", "e1", "Try again"),
        reply("a1", "u2", "msg_03", use("toolu_11", "Bash", command="git branch -D x")),
        user(
            "r1", "a1", [result("toolu_11", rejected, is_error=True)], toolUseResult="User rejected tool use"
        ),
        user("u3", "r1", interrupted),
        user("u4", "u3", "Only list them"),
        reply("a2", "u4", "msg_04", use("toolu_12", "Bash", command="git branch")),
    ]


def claude_resumed() -> list[Line]:
    """A session that was resumed: the lines are there again, once with another version, and the conversation goes on after a compaction."""
    first = [
        user("u1", None, "Begin"),
        reply("a1", "u1", "msg_05", {"type": "text", "text": "Begun."}),
        user("u2", "a1", "And on"),
        reply("a2", "u2", "msg_06", {"type": "text", "text": "On it."}),
    ]
    again = [{**line, "version": "2.1.91"} for line in first]
    summary = [{"type": "text", "text": "This session is being continued from a previous conversation."}]
    return [
        *first,
        {"type": "last-prompt", "lastPrompt": "And on", "sessionId": SESSION},
        *again,
        {"type": "custom-title", "customTitle": "Shop", "sessionId": SESSION},
        claude(
            "b1",
            None,
            "system",
            subtype="compact_boundary",
            logicalParentUuid="a2",
            content="Conversation compacted",
        ),
        user("k1", "b1", summary, isCompactSummary=True, isVisibleInTranscriptOnly=True),
        user("u3", "k1", "What was it about?"),
        reply("a3", "u3", "msg_07", {"type": "text", "text": "The shop."}),
        {
            "type": "pr-link",
            "prNumber": 7,
            "prUrl": "https://example.com/7",
            "sessionId": SESSION,
            "timestamp": "",
        },
    ]


CLAUDE: dict[str, tuple[Callable[[], list[Line]], Counts]] = {
    "images and hooks": (claude_with_images_and_hooks, Counts(inputs=1, replies=2, calls=2, results=2)),
    "errors": (claude_with_errors, Counts(inputs=3, replies=2, calls=2, results=1)),
    "resumed": (claude_resumed, Counts(inputs=3, replies=3, calls=0, results=0)),
}


def codex(kind: str, payload: Line) -> Line:
    """A line of the Codex CLI."""
    return {"timestamp": "2026-11-02T08:00:00.000Z", "type": kind, "payload": payload}


def item(kind: str, **fields: Any) -> Line:
    """An item of the conversation."""
    return codex("response_item", {"type": kind, **fields})


def event(kind: str, **fields: Any) -> Line:
    """An event."""
    return codex("event_msg", {"type": kind, **fields})


def said(role: str, text: str, **fields: Any) -> Line:
    """A message."""
    part = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": part, "text": text}], **fields)


def begun(**fields: Any) -> list[Line]:
    """How a rollout begins."""
    meta = {
        "id": ROLLOUT,
        "timestamp": "2026-11-02T08:00:00.000Z",
        "cwd": "/home/ann/shop",
        "originator": "codex_cli_rs",
    }
    more = {
        "cli_version": "0.98.0",
        "source": "cli",
        "model_provider": "openai",
        "git": {"branch": "main"},
        **fields,
    }
    context = {
        "turn_id": "t1",
        "cwd": "/home/ann/shop",
        "model": "gpt-5.6-codex",
        "effort": "high",
        "summary": "auto",
    }
    return [
        codex("session_meta", {**meta, **more, "base_instructions": {"text": "You are Codex."}}),
        said("developer", "<permissions instructions>none</permissions instructions>"),
        said("user", "<environment_context>\n  <cwd>/home/ann/shop</cwd>\n</environment_context>"),
        codex("turn_context", context),
        event("task_started", model_context_window=258400),
    ]


def codex_aborted() -> list[Line]:
    """A turn that was aborted with a call open, ghost snapshots, and a search of the web."""
    search = {"type": "search", "query": "train to Bern", "queries": ["train to Bern", "SBB"]}
    return [
        *begun(),
        said("user", "Find a train"),
        event("user_message", message="Find a train", images=[], local_images=[], text_elements=[]),
        item("ghost_snapshot", ghost_commit={"id": "abc", "parent": None, "preexisting_untracked_files": []}),
        item(
            "reasoning",
            id="rs_" + "0" * 40,
            summary=[{"type": "summary_text", "text": "Search"}],
            content=None,
            encrypted_content=TOKEN,
        ),
        event("agent_reasoning", text="Search"),
        item("web_search_call", id="ws_" + "1" * 40, status="completed", action=search),
        event("web_search_end", call_id="ws_1", query="train to Bern", action=search),
        item(
            "function_call",
            name="exec_command",
            arguments='{"cmd":"curl sbb.ch","yield_time_ms":1000}',
            call_id="call_a1",
        ),
        event("turn_aborted", turn_id="t1", reason="interrupted"),
        said("user", "<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>"),
        event("task_started", model_context_window=258400),
        said("user", "Only the price"),
        event("user_message", message="Only the price", images=[]),
        said("assistant", "5 francs.", id="msg_" + "2" * 40, phase="final_answer"),
        event("agent_message", message="5 francs.", phase="final_answer"),
        event("token_count", info=None, rate_limits={"primary": {"used_percent": 4.0}}),
        event("task_complete", last_agent_message="5 francs."),
    ]


def codex_with_unified_exec() -> list[Line]:
    """A shell that stays open, a patch, an image in an output, and outputs as text and as lists."""
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "high"}
    shell = {"session_id": 7, "chars": "y\n", "yield_time_ms": 250}
    return [
        *begun(),
        item("message", role="user", content=[{"type": "input_text", "text": "Fix it"}, image]),
        event("user_message", message="Fix it", images=[f"data:image/png;base64,{PNG}"]),
        item("function_call", name="exec_command", arguments='{"cmd":"make","tty":true}', call_id="call_b1"),
        item("function_call", name="view_image", arguments='{"path":"a.png"}', call_id="call_b2"),
        event(
            "exec_command_begin",
            call_id="call_b1",
            process_id="7",
            command=["bash", "-lc", "make"],
            source="unified_exec_startup",
        ),
        item(
            "function_call_output",
            call_id="call_b1",
            output="Chunk ID: 1\nProcess running with session ID 7\nOutput:\n",
        ),
        item("function_call_output", call_id="call_b2", output=[image]),
        item("function_call", name="write_stdin", arguments=json.dumps(shell), call_id="call_b3"),
        event("terminal_interaction", call_id="call_b1", process_id="7", stdin="y\n"),
        item("function_call_output", call_id="call_b3", output="Process exited with code 0\nOutput:\nok"),
        item(
            "custom_tool_call",
            status="completed",
            call_id="call_b4",
            name="apply_patch",
            input="*** Begin Patch\n*** End Patch",
        ),
        event("patch_apply_end", call_id="call_b4", success=True, stdout="Success", stderr="", changes={}),
        item(
            "custom_tool_call_output",
            call_id="call_b4",
            output='{"output":"Success","metadata":{"exit_code":0}}',
        ),
        said("assistant", "Fixed.", phase="final_answer"),
        event("agent_message", message="Fixed."),
    ]


def codex_forked() -> list[Line]:
    """A fork that repeats the description of its origin, a turn that was taken back, and a compaction with its own items."""
    return [
        *begun(forked_from_id="019a6c3e-0000-7d40-8a11-0c9d2e6f1b37"),
        codex("session_meta", {"id": "019a6c3e-0000-7d40-8a11-0c9d2e6f1b37", "timestamp": "", "cwd": "/"}),
        said("user", "One"),
        event("user_message", message="One"),
        said("assistant", "First."),
        said("user", "Two"),
        event("user_message", message="Two"),
        said("assistant", "Second."),
        event("thread_rolled_back", num_turns=1),
        said("user", "Three"),
        event("user_message", message="Three"),
        item("compaction", encrypted_content=TOKEN),
        codex(
            "compacted",
            {"message": "", "replacement_history": [{"type": "message", "role": "user", "content": []}]},
        ),
        event("context_compacted"),
        item(
            "local_shell_call",
            id=None,
            call_id="call_c1",
            status="completed",
            action={"type": "exec", "command": ["ls"], "timeout_ms": None},
        ),
        item("function_call_output", call_id="call_c1", output={"content": "a.txt", "success": True}),
        said("assistant", "Third."),
        event("some_event_of_tomorrow", value=1),
        codex("some_line_of_tomorrow", {"value": 1}),
    ]


CODEX: dict[str, tuple[Callable[[], list[Line]], Counts]] = {
    "aborted": (codex_aborted, Counts(inputs=2, replies=2, calls=1, results=0)),
    "unified exec": (codex_with_unified_exec, Counts(inputs=1, replies=4, calls=4, results=4)),
    "forked": (codex_forked, Counts(inputs=2, replies=3, calls=1, results=1)),
}


def saved(folder: Path, name: str, lines: list[Line]) -> Path:
    """Save a session."""
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return file


@pytest.mark.parametrize("kind", [*CLAUDE, *CODEX])
def test_odd_sessions_are_imported_whole(tmp_path: Path, kind: str) -> None:
    """The counts are those of a reader, every export is valid, and a second import adds nothing."""
    lines, counts = {**CLAUDE, **CODEX}[kind]
    name = SESSION if kind in CLAUDE else f"rollout-2026-11-02T08-00-00-{ROLLOUT}"

    assert import_faults(saved(tmp_path, name, lines()), counts) == []


@pytest.mark.parametrize("kind", [*CLAUDE, *CODEX])
def test_an_odd_session_may_grow_line_by_line(tmp_path: Path, kind: str) -> None:
    """Imported after each line it has the same words and calls; what is added to a reply later is a message of its own."""
    lines, counts = {**CLAUDE, **CODEX}[kind]
    name = SESSION if kind in CLAUDE else f"rollout-2026-11-02T08-00-00-{ROLLOUT}"
    every = lines()
    with perdure.open("memory:") as store:
        for end in (*range(3, len(every), sized(4, 1)), len(every)):
            report = import_sessions(store, saved(tmp_path, name, every[:end]))
            assert (end, [each.edited for each in report.sessions if each.edited]) == (end, [])
        found = in_store(store)

        assert (found.inputs, found.calls, found.results) == (counts.inputs, counts.calls, counts.results)
        assert found.replies >= counts.replies
        assert sound(store) == []
