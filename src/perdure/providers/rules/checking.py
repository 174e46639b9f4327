"""Checking a request: which rules hold for a format, and which of them it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.errors import NotFound
from perdure.providers.rules import (
    anthropic,
    bedrock,
    chat,
    gemini,
    interactions,
    mistral,
    ollama,
    responses,
)
from perdure.providers.rules.rule import Broken, Request, Rule

__all__ = ["RULES", "check"]

RULES: Mapping[str, tuple[Rule, ...]] = {
    "openai-chat": chat.RULES,
    "openai-responses": responses.RULES,
    "anthropic-messages": anthropic.RULES,
    "gemini-generate": gemini.RULES,
    "bedrock-converse": bedrock.RULES,
    "mistral-chat": (*chat.SHARED, *mistral.RULES),
    "azure-inference-chat": chat.SHARED,
    "ollama-chat": ollama.RULES,
    "gemini-interactions": interactions.RULES,
}

_OWNERS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic-messages": "anthropic",
    "gemini-generate": "google",
    "bedrock-converse": "bedrock",
    "mistral-chat": "mistral",
    "azure-inference-chat": "azure",
    "ollama-chat": "ollama",
    "gemini-interactions": "google",
}


def check(
    body: Mapping[str, Any], api: str, *, provider: str | None = None, model: str | None = None
) -> list[Broken]:
    """The rules of `api` that a request breaks, in the order of their codes; raises `NotFound` if it has none.

    `provider` is whose server it goes to, the vendor's own if None; `model` the one in the body if None.
    """
    if api not in RULES:
        raise NotFound(f"there are no rules for '{api}'; nothing was checked. There are: {', '.join(RULES)}.")
    named = model or body.get("model") or ""
    request = Request(body=body, provider=provider or _OWNERS[api], model=str(named))
    return [
        Broken(code=rule.code, level=rule.level, where=where, why=why)
        for rule in RULES[api]
        for where, why in rule.broken(request)
    ]
