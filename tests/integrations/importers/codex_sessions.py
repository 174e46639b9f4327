"""Makes sessions of the Codex CLI in the shapes of several releases, and counts what is in such files.

`counted` reads the lines by other rules than the importer: it keeps a list of turns, each with its counts.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.integrations.importers.counts import Counts

__all__ = ["RELEASES", "CodexWriter", "counted", "write_rollout"]

RELEASES = ("0.2.0", "0.46.0", "0.98.0")
SESSION = "019a2d7a-41c4-78b1-b7cc-a45d62a89cd5"
BEARER = "gAAAAABo" + "c2VhbGVkIHJlYXNvbmluZw" * 8


class CodexWriter:
    """Writes the lines of one session, as a release of the tool would."""

    def __init__(self, release: str, seed: int, session: str = SESSION) -> None:
        """Begin a session with its description and the messages that the tool writes itself."""
        self.release = release
        self.random = random.Random(f"{release} {seed}")
        self.lines: list[dict[str, Any]] = []
        meta: dict[str, Any] = {
            "id": session,
            "timestamp": "2026-01-01T00:00:00Z",
            "instructions": "Be an agent.",
        }
        if release == "0.2.0":
            self.lines.append(meta | {"git": {"branch": "main"}})
        else:
            meta |= {
                "cwd": "/home/ada/shop",
                "originator": "codex_cli_rs",
                "cli_version": release,
                "source": "cli",
            }
            self.put(
                "session_meta", meta | ({"base_instructions": {"text": "Be."}} if release == "0.98.0" else {})
            )
        if release == "0.98.0":
            self.message("developer", "<permissions instructions>ask</permissions instructions>")
            self.message("user", "# AGENTS.md instructions for /home/ada\n\n<INSTRUCTIONS>x</INSTRUCTIONS>")
        else:
            self.message("user", "<user_instructions>Use tabs.</user_instructions>")
        self.message("user", "<environment_context>\n  <cwd>/home/ada/shop</cwd>\n</environment_context>")

    def put(self, kind: str, payload: dict[str, Any]) -> None:
        """Write a line."""
        at = f"2026-01-01T00:{len(self.lines) // 60:02}:{len(self.lines) % 60:02}Z"
        if self.release == "0.2.0":
            self.lines.append(payload if kind == "response_item" else {"record_type": "state"})
        else:
            self.lines.append({"timestamp": at, "type": kind, "payload": payload})

    def item(self, kind: str, **fields: Any) -> None:
        """Write an item of the conversation."""
        self.put("response_item", {"type": kind, **fields})

    def event(self, kind: str, **fields: Any) -> None:
        """Write an event."""
        self.put("event_msg", {"type": kind, **fields})

    def message(self, role: str, text: str) -> None:
        """Write a message."""
        kind = "output_text" if role == "assistant" else "input_text"
        self.item("message", role=role, content=[{"type": kind, "text": text}])

    def ask(self, text: str) -> None:
        """Write a message of the user, and the event that says the same."""
        self.put("turn_context", {"cwd": "/home/ada/shop", "model": "gpt-5.6", "effort": "high"})
        self.message("user", text)
        self.event("user_message", message=text)

    def think(self) -> None:
        """Write sealed reasoning, and the event that says its summary."""
        self.event("agent_reasoning", text="Looking")
        self.item(
            "reasoning", summary=[{"type": "summary_text", "text": "Looking"}], encrypted_content=BEARER
        )

    def say(self, text: str) -> None:
        """Write the answer of the model."""
        self.think()
        self.event("agent_message", message=text)
        self.message("assistant", text)
        self.event("token_count", info={"total_token_usage": {"total_tokens": 9}})

    def work(self, calls: int, *, answered: bool = True) -> None:
        """Write calls of every kind, then their outputs."""
        self.think()
        made: list[tuple[str, str]] = []
        for at in range(calls):
            id = f"call_{self.random.getrandbits(60):x}"
            kind = self.random.choice(("function_call", "custom_tool_call", "local_shell_call"))
            if kind == "function_call":
                self.item(kind, name="shell", arguments=json.dumps({"command": ["ls", str(at)]}), call_id=id)
            elif kind == "custom_tool_call":
                self.item(kind, name="apply_patch", input="*** Begin Patch", call_id=id, status="completed")
            else:
                action = {"type": "exec", "command": ["ls", str(at)]}
                self.item(kind, call_id=id, status="completed", action=action)
            made.append((kind, id))
        for kind, id in made if answered else ():
            output: Any = json.dumps({"output": "a\nb", "metadata": {"exit_code": 0}})
            if self.release == "0.2.0" and self.random.random() < 0.3:
                output = {"content": "no such file", "success": False}
            is_custom = kind == "custom_tool_call"
            self.item(
                "custom_tool_call_output" if is_custom else "function_call_output", call_id=id, output=output
            )

    def roll_back(self, turns: int) -> None:
        """Take the last turns back."""
        self.event("thread_rolled_back", num_turns=turns)

    def compact(self) -> None:
        """Write a compaction, whose replacement repeats words of the user."""
        replacement = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Question 0?"}]}
        ]
        self.put("compacted", {"message": "A summary.", "replacement_history": replacement})
        self.event("context_compacted")

    def bytes(self) -> bytes:
        """The file."""
        return "".join(json.dumps(line) + "\n" for line in self.lines).encode()


def write_rollout(folder: Path, release: str, seed: int, turns: int = 4) -> Path:
    """Write a session with turns of every kind."""
    writer = CodexWriter(release, seed)
    for turn in range(turns):
        writer.ask(f"Question {turn}?")
        writer.work(1 + turn % 3)
        writer.say(f"Answer {turn}.")
        if release != "0.2.0" and turn == turns // 2:
            writer.compact()
            writer.item("ghost_snapshot", ghost_commit={"id": "abc"})
        if release == "0.98.0" and turn % 3 == 1:
            writer.roll_back(1 + turn % 2)
    if release != "0.2.0":
        writer.item("web_search_call", status="completed", action={"type": "search", "query": "tabs"})
    writer.ask("And now?")
    writer.work(2, answered=False)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"rollout-2026-01-01T00-00-00-{SESSION}.jsonl"
    file.write_bytes(writer.bytes())
    return file


_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_REPLIES = ("reasoning", "web_search_call", *_CALLS)


def counted(content: bytes) -> Counts:
    """Count what stands at the end of a file: turns that were taken back do not count."""
    turns: list[Counts] = [Counts()]
    before = ""
    for row in content.split(b"\n"):
        try:
            line = json.loads(row)
        except ValueError:
            continue
        item = line.get("payload", line)
        kind = item.get("type")
        if kind == "thread_rolled_back" and line.get("type") == "event_msg":
            del turns[max(1, len(turns) - item.get("num_turns", 0)) :]
            before = ""
            continue
        if line.get("type") == "turn_context":
            before = ""
            continue
        if "payload" in line and line.get("type") != "response_item":
            continue
        role = item.get("role") if kind == "message" else None
        text = str((item.get("content") or [{}])[0].get("text")) if role else ""
        if role == "user" and not text.startswith(("<user_inst", "<environment", "# AGENTS")):
            turns.append(Counts(inputs=1))
            before = "user"
        elif role == "assistant" or kind in _REPLIES:
            turns[-1].replies += before != "assistant"
            turns[-1].calls += kind in _CALLS
            before = "assistant"
        elif kind in _OUTPUTS:
            turns[-1].results += 1
            before = "tool"
    return sum(turns, Counts())
