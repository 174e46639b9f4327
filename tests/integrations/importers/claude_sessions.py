"""Makes sessions of Claude Code in the shapes of several releases, and counts what is in such files.

`counted` reads the lines by other rules than the importer: it builds no tree, and counts sets of ids.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.integrations.importers.counts import Counts

__all__ = ["RELEASES", "ClaudeWriter", "conversation", "counted", "write_project"]

RELEASES = ("1.0.30", "2.0.14", "2.1.90")
SESSION = "7c2d0a36-6d1c-4d54-a1f5-50f9a4f0c001"


class ClaudeWriter:
    """Writes the lines of one session, as a release of the tool would."""

    def __init__(self, release: str, seed: int, session: str = SESSION, agent: str | None = None) -> None:
        """Begin an empty session, perhaps that of a sub-agent."""
        self.release, self.session, self.agent = release, session, agent
        self.random = random.Random(f"{release} {seed} {agent}")
        self.lines: list[dict[str, Any]] = []
        self.tip: str | None = None
        self.turns: list[str | None] = []  # the line before each message of the user

    def uuid(self) -> str:
        """A new id."""
        made = f"{self.random.getrandbits(128):032x}"
        return f"{made[:8]}-{made[8:12]}-{made[12:16]}-{made[16:20]}-{made[20:]}"

    def line(self, kind: str, **fields: Any) -> str:
        """Write a line that is part of the tree, and return its id."""
        uuid = self.uuid()
        value: dict[str, Any] = {
            "parentUuid": self.tip,
            "isSidechain": self.agent is not None,
            "userType": "external",
            "cwd": "/home/ada/shop",
            "sessionId": self.session,
            "version": self.release,
            "gitBranch": "main",
            "type": kind,
            "uuid": uuid,
            "timestamp": f"2026-03-01T10:{len(self.lines) // 60:02}:{len(self.lines) % 60:02}.000Z",
        }
        if self.agent is not None and self.release != "1.0.30":
            value["agentId"] = self.agent
        self.lines.append(value | fields)
        self.tip = uuid
        return uuid

    def aside(self, kind: str, **fields: Any) -> None:
        """Write a line that is no part of the tree."""
        self.lines.append({"type": kind, "sessionId": self.session, **fields})

    def ask(self, text: str) -> None:
        """Write a message of the user, as text or as a block."""
        self.turns.append(self.tip)
        content: Any = text if self.random.random() < 0.5 else [{"type": "text", "text": text}]
        self.line("user", message={"role": "user", "content": content})

    def reply(self, *blocks: dict[str, Any]) -> list[str]:
        """Write a reply of the model, one line for each block, and return the ids of the lines."""
        id = f"msg_{self.random.getrandbits(60):x}"
        return [
            self.line(
                "assistant",
                requestId="req_1",
                message={
                    "id": id,
                    "type": "message",
                    "role": "assistant",
                    "model": "claude-opus-4-5",
                    "content": [block],
                    "stop_reason": None,
                    "usage": {"input_tokens": 10, "output_tokens": 5},
                },
            )
            for block in blocks
        ]

    def say(self, text: str) -> None:
        """Write a reply of reasoning and text."""
        thinking = {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmF0dXJl" * 8}
        self.reply(thinking, {"type": "text", "text": text})

    def work(self, *names: str, answered: bool = True, **extra: Any) -> None:
        """Write a reply with parallel calls; each result hangs on the line of its call, as in the tool."""
        calls = [
            {
                "type": "tool_use",
                "id": f"toolu_{self.random.getrandbits(60):x}",
                "name": name,
                "input": {"n": at},
            }
            for at, name in enumerate(names)
        ]
        lines = self.reply({"type": "text", "text": "I look."}, *calls)[1:]
        if not answered:
            return
        for call, at in zip(calls, lines, strict=True):
            self.tip = at
            if self.release == "2.1.90" and self.random.random() < 0.5:
                self.line("progress", data={"type": "hook_progress"}, toolUseID=call["id"])
            content: Any = f"result of {call['name']}"
            if self.random.random() < 0.3:
                content = [{"type": "text", "text": content}]
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
            if self.random.random() < 0.2:
                result["is_error"] = True
            self.line(
                "user",
                message={"role": "user", "content": [result]},
                toolUseResult={"stdout": "…", **extra},
                sourceToolAssistantUUID=at,
            )

    def compact(self) -> None:
        """Write a compaction: a boundary without a parent, and a summary in the user's role."""
        before, self.tip = self.tip, None
        self.line(
            "system", subtype="compact_boundary", logicalParentUuid=before, content="Conversation compacted"
        )
        summary = "This session is being continued from a previous conversation."
        self.line("user", isCompactSummary=True, message={"role": "user", "content": summary})

    def rewind(self) -> None:
        """Go back before a message of the user, so that the next line begins a branch."""
        self.tip = self.random.choice(self.turns)

    def bytes(self) -> bytes:
        """The file."""
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines).encode()


def conversation(writer: ClaudeWriter, turns: int) -> None:
    """Write turns of every kind."""
    writer.aside(
        "summary" if writer.release == "1.0.30" else "ai-title", summary="Shop", leafUuid="x", aiTitle="Shop"
    )
    for turn in range(turns):
        if turn == turns // 2:
            writer.compact()
        writer.ask(f"Question {turn}?")
        if turn % 3 == 0:
            writer.line("user", isMeta=True, message={"role": "user", "content": "<local-command-caveat>x"})
            writer.line("attachment", attachment={"type": "hook_success"})
        writer.work("Read", "Grep")
        if turn % 2:
            writer.work("Bash")
        writer.say(f"Answer {turn}.")
        writer.aside("file-history-snapshot", messageId=writer.tip, snapshot={})
        if turn % 4 == 2:
            writer.rewind()
    writer.work("Edit", answered=False)


def write_project(folder: Path, release: str, seed: int, turns: int = 4) -> list[Path]:
    """Write a session with sub-agents where that release has them, and return its files."""
    writer = ClaudeWriter(release, seed)
    folder.mkdir(parents=True, exist_ok=True)
    child = ClaudeWriter(release, seed, agent="a1b2c3d4")
    child.ask("Find the bug.")
    child.work("Grep")
    child.say("It is in pay.py.")
    conversation(writer, turns)
    files = [folder / f"{SESSION}.jsonl"]
    if release == "1.0.30":  # inside the file of the session
        writer.lines[len(writer.lines) // 2 : len(writer.lines) // 2] = child.lines
    else:
        writer.ask("Ask a helper.")
        writer.work("Task", agentId="a1b2c3d4")
        beside = folder if release == "2.0.14" else folder / SESSION / "subagents"
        beside.mkdir(parents=True, exist_ok=True)
        files.append(beside / "agent-a1b2c3d4.jsonl")
        files[1].write_bytes(child.bytes())
    if release == "2.1.90":
        (folder / SESSION / "tool-results").mkdir(exist_ok=True)
        (folder / SESSION / "tool-results" / "toolu_1.txt").write_text("a long output")
    files[0].write_bytes(writer.bytes())
    return files


def counted(content: bytes) -> Counts:
    """Count what a file holds, line by line."""
    found = Counts()
    replies: set[str] = set()
    calls: set[str] = set()
    results: set[str] = set()
    for line in _objects(content):
        message = line.get("message")
        if line.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            continue
        if line.get("isMeta") is True or line.get("isCompactSummary") is True:
            continue
        blocks = message.get("content")
        if not blocks or not isinstance(blocks, str | list):
            continue
        parts = [] if isinstance(blocks, str) else [block for block in blocks if isinstance(block, dict)]
        if line["type"] == "assistant":
            replies.add(str(message.get("id")))
            calls |= {str(part.get("id")) for part in parts if part.get("type") == "tool_use"}
        answers = {str(part.get("tool_use_id")) for part in parts if part.get("type") == "tool_result"}
        results |= answers
        found.inputs += line["type"] == "user" and not answers
    found.replies, found.calls, found.results = len(replies), len(calls), len(results)
    return found


def _objects(content: bytes) -> Iterable[dict[str, Any]]:
    for row in content.split(b"\n"):
        try:
            value = json.loads(row)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
