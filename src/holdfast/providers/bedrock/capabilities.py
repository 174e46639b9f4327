"""What models on Bedrock take, as data.  Claude on Bedrock is Claude; others are known by their family."""

from __future__ import annotations

import re
from typing import Literal

from holdfast.providers.anthropic.capabilities import Traits, same_model, traits_of

__all__ = ["SUPPORT", "claude", "family", "same", "supports"]

Level = Literal["full", "lossy", "none"]

SUPPORT: dict[str, Level] = {
    "text": "full",
    "images": "full",
    "image_urls": "none",
    "documents": "full",
    "audio": "full",
    "video": "full",
    "tools": "full",
    "parallel_tools": "full",
    "strict_tools": "full",
    "tool_choice": "lossy",
    "tool_result_media": "full",
    "tool_errors": "full",
    "structured_output": "full",
    "json_mode": "lossy",
    "reasoning": "full",
    "reasoning_history": "full",
    "citations": "full",
    "server_tools": "full",
    "prompt_cache": "full",
    "system": "full",
    "mid_system": "lossy",
    "streaming": "full",
    "refusals": "full",
    "logprobs": "none",
    "seed": "none",
    "n": "none",
}

# By family: only Claude and a few others keep to a schema, think on demand, take a forced choice.
_NOT_IN = {
    "titan": frozenset({"tools", "images", "documents", "system", "reasoning", "tool_choice"}),
    "llama": frozenset({"reasoning", "tool_choice", "video"}),
    "mistral": frozenset({"reasoning", "video"}),
}


def family(model: str) -> str:
    """Whose model it is: `claude`, `nova`, `titan`, `llama`, …; by the name, also within an ARN."""
    name = model.lower()
    known = (
        "claude",
        "nova",
        "titan",
        "llama",
        "mistral",
        "pixtral",
        "qwen",
        "gpt-oss",
        "deepseek",
        "palmyra",
    )
    return next((each for each in known if each in name), "other")


def claude(model: str) -> Traits | None:
    """What a Claude model takes; None for others."""
    return traits_of(model) if family(model) == "claude" else None


def same(one: object, other: object) -> bool:
    """Whether two names are of the same model: the region before it does not matter."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    if family(one) == family(other) == "claude":
        return same_model(one, other)
    return _bare(one) == _bare(other)


def supports(capability: str, *, model: str | None = None) -> Level:
    """How well the format, or that model, does one thing."""
    level = SUPPORT.get(capability, "none")
    if model is not None and capability in _NOT_IN.get(family(model), ()):
        return "none"
    return level


def _bare(model: str) -> str:
    return re.sub(r"^(?:arn:.*/)?(?:(?:us|eu|apac|global|jp|au|us-gov)\.)?", "", model.lower())
