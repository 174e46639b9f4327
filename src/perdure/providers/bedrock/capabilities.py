"""Describes the models on Bedrock, as data.  Claude has the traits of Claude; others are known by their family."""

from __future__ import annotations

import re

from perdure.providers.anthropic.capabilities import Traits, by_traits, same_model, traits_of
from perdure.providers.capabilities import Capability, Level, Levels, least

__all__ = [
    "CAPABILITIES",
    "claude",
    "family",
    "keeps_to_schema",
    "refuses",
    "refuses_media",
    "same",
    "supports",
    "takes_top_k",
]

CAPABILITIES: Levels = {
    Capability.TEXT: "full",
    Capability.IMAGES: "full",
    Capability.IMAGE_URLS: "none",
    Capability.DOCUMENTS: "full",
    Capability.DOCUMENT_URLS: "none",
    Capability.AUDIO: "full",
    Capability.VIDEO: "full",
    Capability.TOOLS: "full",
    Capability.PARALLEL_TOOLS: "full",
    Capability.TOOL_CHOICE: "lossy",
    Capability.STRICT_TOOLS: "full",
    Capability.TOOL_RESULT_MEDIA: "full",
    Capability.TOOL_ERRORS: "full",
    Capability.STRUCTURED_OUTPUT: "full",
    Capability.JSON_MODE: "lossy",
    Capability.REASONING: "full",
    Capability.REASONING_HISTORY: "full",
    Capability.SERVER_TOOLS: "full",
    Capability.COMPUTER_USE: "lossy",
    Capability.CITATIONS: "full",
    Capability.REFUSALS: "full",
    Capability.SYSTEM: "full",
    Capability.MID_SYSTEM: "lossy",
    Capability.CHOICES: "none",
    Capability.STREAMING: "full",
    Capability.PROMPT_CACHE: "full",
    Capability.LOGPROBS: "none",
    Capability.SEED: "none",
    Capability.STOP: "full",
    Capability.TOP_K: "lossy",
}

# What the models of a family refuse ("This model doesn't support the … that you provided"); others are not known.
_NO_FILMS = frozenset({Capability.AUDIO, Capability.VIDEO})
_NOT_IN: dict[str, frozenset[Capability]] = {
    "claude": _NO_FILMS,
    "titan": _NO_FILMS
    | {
        Capability.TOOLS,
        Capability.IMAGES,
        Capability.DOCUMENTS,
        Capability.SYSTEM,
        Capability.REASONING,
        Capability.TOOL_CHOICE,
    },
    "llama": _NO_FILMS | {Capability.REASONING, Capability.TOOL_CHOICE},
    "mistral": _NO_FILMS | {Capability.REASONING},
    "pixtral": _NO_FILMS | {Capability.REASONING},
    "qwen": _NO_FILMS,
    "gpt-oss": _NO_FILMS,
    "deepseek": _NO_FILMS,
    "palmyra": _NO_FILMS,
}
_MEDIA = {
    "image": Capability.IMAGES,
    "document": Capability.DOCUMENTS,
    "audio": Capability.AUDIO,
    "video": Capability.VIDEO,
}


def family(model: str) -> str:
    """Return the family of a model: `claude`, `nova`, `titan`, `llama`, …; by the name, also within an ARN."""
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


def refuses(capability: str, model: str) -> bool:
    """True if models of this one's family are known to refuse a thing that the format has."""
    return capability in _NOT_IN.get(family(model), ())


def refuses_media(kind: str, model: str) -> bool:
    """Return the same for a block of media: `image`, `document`, `audio` or `video`."""
    return refuses(_MEDIA[kind], model)


def claude(model: str) -> Traits | None:
    """Return the traits of a Claude model; None for others."""
    return traits_of(model) if family(model) == "claude" else None


def same(one: object, other: object) -> bool:
    """True if two names are of the same model: the region before it does not matter."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    if family(one) == family(other) == "claude":
        return same_model(one, other)
    return _bare(one) == _bare(other)


def keeps_to_schema(model: str) -> bool:
    """True if a model's answers can be held to a JSON schema."""
    known = claude(model)
    return known.output if known is not None else family(model) in ("qwen", "gpt-oss", "deepseek")


def takes_top_k(model: str) -> bool:
    """True if a model has a field for `top_k`, among its own."""
    known = claude(model)
    return known.sampling if known is not None else family(model) == "nova"


def supports(capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
    """Return the level of a capability for the format, or for that model; unknown ones are `none`."""
    level = CAPABILITIES.get(capability, "none")
    if model is None or level == "none":
        return level
    if refuses(capability, model):
        return "none"
    if capability == Capability.STRUCTURED_OUTPUT:
        return "full" if keeps_to_schema(model) else "lossy"
    if capability == Capability.TOP_K:
        return "full" if takes_top_k(model) else "none"
    known = claude(model)
    # Claude takes system words within the conversation from Anthropic alone: Converse has no role for them.
    return level if known is None else least(level, by_traits(capability, known, level))


def _bare(model: str) -> str:
    return re.sub(r"^(?:arn:.*/)?(?:(?:us|eu|apac|global|jp|au|us-gov)\.)?", "", model.lower())
