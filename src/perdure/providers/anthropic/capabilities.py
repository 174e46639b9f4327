"""Describes the Claude models, as data.  An unknown model counts as a current one that accepts everything usual."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from perdure.providers.capabilities import Capability, Level, Levels
from perdure.providers.catalog import shipped

__all__ = [
    "CAPABILITIES",
    "EFFORT_BUDGETS",
    "IMAGE_TYPES",
    "Traits",
    "by_traits",
    "room_for",
    "same_model",
    "supports",
    "thinking_budget",
    "traits_of",
]

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

# What the format can carry; a model may take less.
CAPABILITIES: Levels = {
    Capability.TEXT: "full",
    Capability.IMAGES: "full",
    Capability.IMAGE_URLS: "full",
    Capability.DOCUMENTS: "full",
    Capability.DOCUMENT_URLS: "full",
    Capability.AUDIO: "none",
    Capability.VIDEO: "none",
    Capability.TOOLS: "full",
    Capability.PARALLEL_TOOLS: "full",
    Capability.TOOL_CHOICE: "full",
    Capability.STRICT_TOOLS: "full",
    Capability.TOOL_RESULT_MEDIA: "full",
    Capability.TOOL_ERRORS: "full",
    Capability.STRUCTURED_OUTPUT: "full",
    Capability.JSON_MODE: "lossy",
    Capability.REASONING: "full",
    Capability.REASONING_HISTORY: "full",
    Capability.SERVER_TOOLS: "full",
    Capability.COMPUTER_USE: "full",
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
    Capability.TOP_K: "full",
}

# Tokens of thinking for each effort, for models that take only a number.
EFFORT_BUDGETS = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 24_576,
    "max": 32_000,
}


_BUDGET_MIN = 1_024  # tokens of thinking that Claude takes at the least
_ANSWER_ROOM = 8_192  # tokens that a budget of ours leaves for the answer


class Traits(NamedTuple):
    """The features of one model."""

    max_tokens: int = 8_192  # asked for where the context does not say
    output_limit: int = 8_192  # the longest answer that can be asked for
    sampling: bool = True  # temperature, top_p, top_k
    both_samplings: bool = True  # temperature and top_p together
    thinking: bool = True
    budget: bool = True  # thinking with a number of tokens
    adaptive: bool = False  # thinking as much as the model likes
    efforts: tuple[str, ...] = ()
    output: bool = True  # an answer by a JSON schema
    prefill: bool = True  # a conversation may end with the assistant
    mid_system: bool = False  # system messages within the conversation


_NEW_NAME = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d+)(?:[-.](?P<minor>\d{1,2}))?")
_OLD_NAME = re.compile(r"claude-(?P<major>\d+)(?:[-.](?P<minor>\d{1,2}))?(?:-(?P<family>[a-z]+))?")
_PREFIX = re.compile(r"^.*?(?=claude)")
_SUFFIX = re.compile(r"(?:@.*|:.*|-v\d+.*|[-@]\d{8}.*|-latest)$")


@cache
def traits_of(model: str) -> Traits:
    """Return the features of a model, by its generation and the catalog."""
    found = _generation(model)
    if found is None:
        return Traits()
    family, generation = found
    efforts: tuple[str, ...] = ()
    if generation >= (4, 6) or (family, generation) == ("opus", (4, 5)):
        efforts = ("low", "medium", "high", *(["max"] if generation >= (4, 6) else []))
    if generation >= (4, 7):
        efforts = ("low", "medium", "high", "xhigh", "max")
    card = shipped().card("anthropic", _PREFIX.sub("", model))
    output_limit = card.output_limit or _ANSWER_ROOM
    return Traits(
        # A quarter of the window is what a context keeps free for the answer; more could exceed the window.
        max_tokens=min(output_limit, card.context_window // 4),
        output_limit=output_limit,
        sampling=generation < (4, 7),
        both_samplings=generation < (4, 1),
        thinking=generation >= (3, 7),
        budget=generation < (4, 7),
        adaptive=generation >= (4, 6),
        efforts=efforts,
        output=generation >= (4, 5) or (family, generation) == ("opus", (4, 1)),
        prefill=generation < (4, 6),
        mid_system=generation >= (4, 8),
    )


def thinking_budget(wanted: int, limit: int, *, is_exact: bool) -> int | None:
    """Return the tokens of thinking within `limit` tokens in all; None if thinking does not fit.

    The answer keeps some room, unless the user gave both numbers (`is_exact`) and they fit.
    """
    if limit <= _BUDGET_MIN:
        return None
    wanted = max(wanted, _BUDGET_MIN)
    if is_exact and wanted < limit:
        return wanted
    return min(wanted, max(_BUDGET_MIN, limit - min(_ANSWER_ROOM, limit // 2)))


def room_for(budget: int, traits: Traits) -> int:
    """Return the `max_tokens` that leaves an answer beside so much thinking, where the user set none."""
    return min(traits.output_limit, max(traits.max_tokens, budget + _ANSWER_ROOM))


def same_model(one: object, other: object) -> bool:
    """True if two names are of the same model: an alias and its dated form are."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    return one == other or _plain(one) == _plain(other)


def supports(capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
    """Return the level of a capability for the format, or for that model on that server; unknown ones are `none`."""
    level = CAPABILITIES.get(capability, "none")
    if provider == "google-vertex" and capability in (Capability.IMAGE_URLS, Capability.DOCUMENT_URLS):
        return "none"
    if model is None or level == "none":
        return level
    return by_traits(capability, traits_of(model), level)


def by_traits(capability: str, traits: Traits, level: Level) -> Level:
    """Return the level of a capability for a model of these traits, where `level` is that of the format."""
    match capability:
        case Capability.REASONING | Capability.REASONING_HISTORY if not traits.thinking:
            return "none"
        case Capability.STRUCTURED_OUTPUT if not traits.output:
            return "lossy"
        case Capability.TOP_K if not traits.sampling:
            return "none"
        case Capability.MID_SYSTEM if traits.mid_system:
            return "full"
        case _:
            return level


def _plain(model: str) -> str:
    name = _SUFFIX.sub("", _PREFIX.sub("", model.lower()))
    return re.sub(r"(?<=-\d)-0$", "", name)


def _generation(model: str) -> tuple[str, tuple[int, int]] | None:
    name = _plain(model)
    found = _NEW_NAME.match(name) or _OLD_NAME.match(name)
    if found is None:
        return None
    return found["family"] or "", (int(found["major"]), int(found["minor"] or 0))
