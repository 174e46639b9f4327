"""A program that lets the real command line of Claude pay, with a model that is scripted here.

    python -m tests.integrations.claude_program <folder> guarded|unguarded <session> begin|resume

The command line talks to a server of this program instead of Anthropic's.  The scripted model asks for a command that notes
a payment and, the first time, kills this program; then it says what it was told.  It prints the result that the
model was shown, the transcript and the states of the calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, query

import perdure
from perdure.integrations.claude_agent import Sessions, ToolGuard

FOLDER = Path(sys.argv[1])
COMMAND = (
    f"cd {FOLDER} && echo paid >> effects && if [ $(wc -l < effects) -eq 1 ]; then kill -9 $(cat pid); fi"
)


class ScriptedModel(BaseHTTPRequestHandler):
    """Answers as Anthropic's API does: with a call, and after its result with words."""

    protocol_version = "HTTP/1.1"
    results: list[str] = []  # noqa: RUF012

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = request.get("messages", [{}])[-1].get("content", "")
        blocks = [each for each in last if isinstance(each, dict)] if isinstance(last, list) else []
        told = [str(each["content"]) for each in blocks if each.get("type") == "tool_result"]
        self.results.extend(told)
        if request.get("tools") and not told:
            self._send(request, self._call(), "tool_use")
        else:
            text = {"type": "text_delta", "text": "Done."}
            self._send(request, ({"type": "text", "text": ""}, text), "end_turn")

    def _call(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arguments = json.dumps({"command": COMMAND, "description": "pay"})
        call = {"type": "tool_use", "id": f"toolu_{os.getpid()}", "name": "Bash", "input": {}}
        return call, {"type": "input_json_delta", "partial_json": arguments}

    def _send(self, request: dict[str, Any], block: tuple[dict[str, Any], dict[str, Any]], stop: str) -> None:
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"msg_{os.urandom(4).hex()}", "type": "message", "role": "assistant", "content": []}
        message |= {"model": request["model"], "stop_reason": None, "stop_sequence": None, "usage": usage}
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block[0]},
            {"type": "content_block_delta", "index": 0, "delta": block[1]},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        body = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


async def pay(sessions: Sessions, server: str, how: str, session: str, act: str) -> None:
    """Ask Claude to pay."""
    options = ClaudeAgentOptions(
        cwd=FOLDER,
        session_store=sessions,
        session_store_flush="eager",
        hooks=ToolGuard(sessions).hooks() if how == "guarded" else None,
        allowed_tools=["Bash"],
        setting_sources=[],
        env={"ANTHROPIC_BASE_URL": server, "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1"}
        | {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        session_id=session if act == "begin" else None,
        resume=session if act == "resume" else None,
    )
    async for _ in query(prompt="Pay, please", options=options):
        pass


def main() -> None:
    """Run the program."""
    how, session, act = sys.argv[2:5]
    (FOLDER / "pid").write_text(str(os.getpid()))
    server = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel)
    Thread(target=server.serve_forever, daemon=True).start()
    with perdure.open(FOLDER / "agents.db") as store:
        sessions = Sessions(store)
        asyncio.run(pay(sessions, f"http://127.0.0.1:{server.server_port}", how, session, act))
        (thread,) = store.threads()
        print(
            json.dumps(
                {
                    "results": ScriptedModel.results,
                    "transcript": [[entry.role, entry.text] for entry in thread.transcript()],
                    "states": sorted(call.state for call in thread.calls()),
                    "verifies": store.verify().ok,
                }
            )
        )


if __name__ == "__main__":
    main()
