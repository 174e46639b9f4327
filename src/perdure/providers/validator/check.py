"""Lists the rules of each format, and checks a request by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.errors import NotFound
from perdure.providers.validator import (
    anthropic,
    bedrock,
    gemini,
    openai_chat,
    openai_responses,
)
from perdure.providers.validator.rule import BrokenRule, CheckedRequest, Rule

__all__ = ["RULES", "check"]

RULES: Mapping[str, tuple[Rule, ...]] = {
    "openai-chat": openai_chat.RULES,
    "openai-responses": openai_responses.RULES,
    "anthropic-messages": anthropic.RULES,
    "gemini-generate": gemini.RULES,
    "bedrock-converse": bedrock.RULES,
    "mistral-chat": (*openai_chat.SHARED, *openai_chat.MISTRAL_RULES),
    "azure-inference-chat": openai_chat.SHARED,
    "ollama-chat": openai_chat.OLLAMA_RULES,
    "gemini-interactions": gemini.INTERACTIONS_RULES,
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
) -> list[BrokenRule]:
    """Return the rules of `api` that a request breaks, in the order of their codes; raises `NotFound` if it has none.

    `provider` names the server's provider (None: the format's vendor), `model` the model (None: that of the body).
    """
    if api not in RULES:
        raise NotFound(
            f"there are no rules for '{api}'; nothing was checked.",
            advice=f"There are: {', '.join(RULES)}.",
            code="rules_not_found",
            api=api,
            known=list(RULES),
        )
    named = model or body.get("model") or ""
    request = CheckedRequest(body=body, provider=provider or _OWNERS[api], model=str(named))
    return [
        BrokenRule(code=rule.code, level=rule.level, where=where, why=why)
        for rule in RULES[api]
        for where, why in rule.broken(request)
    ]
