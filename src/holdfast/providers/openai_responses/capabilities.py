"""What the Responses API does: fully, with loss, or not at all."""

from __future__ import annotations

from typing import Literal

__all__ = ["supports"]

_CAPABILITIES: dict[str, Literal["full", "lossy", "none"]] = {
    "text": "full",
    "images": "full",
    "image_urls": "full",
    "files": "full",
    "audio": "none",
    "video": "none",
    "tools": "full",
    "parallel_tools": "full",
    "tool_choice": "full",
    "tool_result_media": "full",
    "tool_errors": "lossy",
    "strict_tools": "full",
    "structured_output": "full",
    "reasoning": "full",
    "server_tools": "full",
    "citations": "full",
    "logprobs": "full",
    "streaming": "full",
    "system": "full",
    "mid_system": "full",
    "prompt_cache": "full",
    "stop": "none",
    "seed": "none",
    "top_k": "none",
}


def supports(capability: str, *, model: str | None = None) -> Literal["full", "lossy", "none"]:
    """How well the format does one thing; what is not known is not done."""
    return _CAPABILITIES.get(capability, "none")
