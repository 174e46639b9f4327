"""A conversation of any thread as the lines of a session, so that the Claude Agent SDK can go on with it.

    lines, losses = lines_of(store.thread("trip-42"), key)
    await sessions.append(key, lines)  # then: ClaudeAgentOptions(session_store=sessions, resume=key["session_id"])

The session is a thread of its own, which begins with a copy of the conversation.  Each line's `uuid` follows from the thread,
the place and the words, so that lines which were taken before are not added again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid5

from claude_agent_sdk.types import SessionKey, SessionStoreEntry

from perdure.providers.contract import Loss
from perdure.store.thread import Thread

__all__ = ["lines_of"]

_API = "anthropic-messages"


def lines_of(
    thread: Thread, key: SessionKey, *, model: str | None = None
) -> tuple[list[SessionStoreEntry], tuple[Loss, ...]]:
    """Return the conversation of a thread as lines of a session, and what they could not hold.

    `model` is the one that goes on, for the rules of its messages; None: any.
    """
    rendered = thread.export(_API, model=model)
    body, losses = rendered.body, list(rendered.losses)
    if body.get("system"):
        losses.append(
            Loss(
                kind="dropped",
                where="system",
                what="system prompt",
                why="the lines of a session have none; give it to ClaudeAgentOptions(system_prompt=…)",
            )
        )
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    lines: list[SessionStoreEntry] = []
    parent: str | None = None
    for number, message in enumerate(cast("list[Mapping[str, Any]]", body["messages"])):
        words = json.dumps(message, sort_keys=True)
        uuid = str(uuid5(NAMESPACE_URL, f"perdure:{thread.id}/{thread.timeline}/{number}/{words}"))
        said = {"role": message["role"], "content": message["content"]}
        if message["role"] == "assistant":
            said |= {"id": f"msg_{uuid}", "type": "message", "model": str(body.get("model") or "unknown")}
        line = {
            "type": message["role"],
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": key["session_id"],
            "isSidechain": False,
            "timestamp": at,
            "message": said,
        }
        lines.append(cast("SessionStoreEntry", line))
        parent = uuid
    return lines, tuple(losses)
