"""What the Chat format can do, as data."""

from __future__ import annotations

from typing import Literal

__all__ = ["CAPABILITIES"]

CAPABILITIES: dict[str, Literal["full", "lossy", "none"]] = {
    "text": "full",
    "images": "full",
    "image_urls": "full",
    "documents": "full",
    "document_urls": "none",
    "audio": "full",
    "video": "none",
    "tools": "full",
    "parallel_tool_calls": "full",
    "tool_choice": "full",
    "strict_tools": "full",
    "tool_result_media": "lossy",  # it follows in a user's message
    "tool_result_errors": "lossy",  # the words say it
    "structured_output": "full",
    "reasoning": "lossy",  # by server; OpenAI itself gives none here
    "reasoning_signatures": "none",
    "refusals": "full",
    "citations": "lossy",
    "server_tools": "none",
    "system": "full",
    "mid_system": "full",
    "prompt_cache": "lossy",
    "streaming": "full",
    "seed": "full",
    "logprobs": "full",
    "choices": "full",
    "computer_use": "none",
}
