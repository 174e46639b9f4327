"""What the Gemini API and its models do, as data."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["is_third", "same_model", "supports"]

_CAPABILITIES: dict[str, Literal["full", "lossy", "none"]] = {
    "text": "full",
    "images": "full",
    "image_urls": "lossy",
    "documents": "full",
    "files": "full",
    "audio": "full",
    "video": "full",
    "tools": "full",
    "parallel_tools": "full",
    "strict_tools": "none",
    "tool_choice": "full",
    "tool_result_media": "full",
    "tool_errors": "full",
    "structured_output": "full",
    "json_mode": "full",
    "reasoning": "full",
    "reasoning_history": "full",
    "citations": "full",
    "server_tools": "full",
    "prompt_cache": "full",
    "system": "full",
    "mid_system": "lossy",
    "streaming": "full",
    "refusals": "full",
    "logprobs": "full",
    "stop": "full",
    "seed": "full",
    "top_k": "full",
    "n": "full",
}
_MODEL = re.compile(r"gemini-(?P<generation>\d+)?(?:\.\d+)?-?(?P<size>pro|flash-lite|flash|ultra|nano)?")


def supports(capability: str, *, model: str | None = None) -> Literal["full", "lossy", "none"]:
    """How well the format, or that model, does one thing; what is not known is not done."""
    if capability == "tool_result_media" and model is not None and not is_third(model):
        return "lossy"
    return _CAPABILITIES.get(capability, "none")


def is_third(model: str) -> bool:
    """Whether it is of the third generation or later: calls are signed there, and results may hold media."""
    generation = re.search(r"gemini-(\d+)", model)
    return int(generation[1]) >= 3 if generation else "gemini" in model and "latest" in model


def same_model(made: object, asked: str) -> bool:
    """Whether the model that made a signature is the one that is asked; a name may stand for its newest version."""
    if not isinstance(made, str) or made == asked:
        return True
    one, other = _MODEL.search(made), _MODEL.search(asked)
    if one is None or other is None:
        return False
    return all(one[part] == other[part] or not (one[part] and other[part]) for part in ("generation", "size"))
