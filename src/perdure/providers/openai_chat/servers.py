"""Describes how the servers of Chat Completions differ, as data, and the capabilities of the format.

A name is the part of a backend before the colon; recorded messages have it as their endpoint.  A server that is
not in the table gets careful defaults, which nearly all servers accept.  Servers and models narrow or widen the
capabilities of the format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from perdure.providers.capabilities import Capability, Level, Levels
from perdure.providers.openai_chat.vendor_fields import BOUND

__all__ = [
    "DEFAULT",
    "SERVERS",
    "CallIdRule",
    "FilePart",
    "ModelRule",
    "Server",
    "server",
    "CAPABILITIES",
    "at",
]

FilePart: TypeAlias = Literal["file", "file_url", "document_url", ""]


class CallIdRule(msgspec.Struct, frozen=True):
    """The call ids that a server accepts, and how ids are derived for it."""

    legal: str = r"[\x21-\x7e]{1,40}"
    prefix: str = "call_"
    length: int = 24


class ModelRule(msgspec.Struct, frozen=True):
    """The options that some models of a server refuse."""

    models: str  # a pattern that their names match from the beginning
    refused: frozenset[str]  # canonical options


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The properties in which servers differ."""

    developer: bool = False  # knows the role `developer`
    late_system: bool = True  # takes a system message that is not the first
    alternates: bool = False  # wants user and assistant in turn
    prefix_last: bool = False  # an assistant turn may stand last only as a prefix of the answer
    empty_content: Literal["", "null"] = "null"  # beside calls, where there are no words
    reasoning: tuple[str, ...] = ()  # the fields in which it takes its own reasoning back
    back: tuple[str, ...] = ()  # further fields of its answers that it takes back
    strict_messages: bool = False  # refuses a message with a field that it does not know
    reasoning_demanded: bool = False  # wants it on turns with calls while thinking
    reasoning_option: Literal["reasoning_effort", "reasoning"] = "reasoning_effort"
    thinking_option: bool = False  # has `thinking: {"type": "enabled"}`
    web_images: bool = True  # fetches images by their address
    files: FilePart = "file"
    documents: frozenset[str] = frozenset()  # the only types of documents that it takes; empty: any
    web_files: bool = False  # fetches documents by their address
    audio: Literal["object", "text", "none"] = "object"  # sound: data and format, or data alone
    video: bool = False
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    names: Mapping[str, str] = {}  # options that go by another name here
    refused: frozenset[str] = frozenset()  # canonical options that it does not know
    models: tuple[ModelRule, ...] = ()
    efforts: frozenset[str] = frozenset()  # its words for effort; empty: any
    tiers: frozenset[str] = frozenset()  # its words for the tier of service; empty: it knows none
    top_k: bool = False  # has the option
    required: Literal["required", "any"] = "required"  # its word for a forced call
    strict: Literal["checked", "taken", "none"] = (
        "checked"  # `strict` on tools, and what it demands of schemas
    )
    cache_marks: bool = False  # takes marks for its prompt cache
    parses_arguments: bool = False  # reads the arguments of calls for its template
    call_ids: CallIdRule = CallIdRule()

    def takes(self, field: str) -> bool:
        """True if messages may have that field, beside their words, calls and reasoning."""
        is_bound = field in BOUND and not self.strict_messages
        is_prefix = field == "prefix" and self.prefix_last
        return field in _FIELDS or field in self.back or is_bound or is_prefix


_FIELDS = frozenset({"name", "annotations", "audio"})

_SAMPLING = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs"}
)
_REASONS = (
    ModelRule(r"(o1|o3|o4)\b", _SAMPLING),
    ModelRule(r"gpt-5(?!\.|-chat)", _SAMPLING),
    ModelRule(r"o3(?!-mini)|o4|gpt-5(?!-chat)", frozenset({"stop"})),
    ModelRule(r"gpt-3|gpt-4|chatgpt|gpt-5-chat", frozenset({"reasoning"})),
)

_OPENAI = Server(
    developer=True,
    strict_messages=True,
    documents=frozenset({"application/pdf"}),
    limit="max_completion_tokens",
    models=_REASONS,
    efforts=frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"}),
    tiers=frozenset({"auto", "default", "flex", "scale", "priority", "fast"}),
)
DEFAULT = Server()
_LOCAL = Server(
    late_system=False,
    alternates=True,
    parses_arguments=True,
    reasoning=("reasoning_content",),
    files="",
    top_k=True,
)
_OLLAMA = Server(reasoning=("reasoning",), web_images=False, parses_arguments=True, files="")
_THINKS_ALOUD = Server(reasoning=("reasoning_content",))
_DETAILED = Server(
    developer=True,
    reasoning=("reasoning",),
    back=("reasoning_details", "annotations"),
    reasoning_option="reasoning",
    web_files=True,
    video=True,
    strict="taken",
    cache_marks=True,
)

SERVERS: dict[str, Server] = {
    "openai": _OPENAI,
    "azure-openai": _OPENAI,
    "groq": Server(
        strict_messages=True,
        files="",
        audio="none",
        tiers=frozenset({"auto", "on_demand", "flex", "performance"}),
    ),
    "deepseek": Server(
        reasoning=("reasoning_content",),
        reasoning_demanded=True,
        thinking_option=True,
        parses_arguments=True,
        files="",
        audio="none",
    ),
    "openrouter": msgspec.structs.replace(_DETAILED, top_k=True),
    "vercel-gateway": _DETAILED,
    "avian": _THINKS_ALOUD,
    "pydantic-gateway": DEFAULT,
    "ollama": _OLLAMA,
    "ollama-cloud": _OLLAMA,
    "llama.cpp": _LOCAL,
    "vllm": msgspec.structs.replace(_LOCAL, video=True),
    "lmstudio": _LOCAL,
    "gpustack": _LOCAL,
    "local": _LOCAL,
    "xai": Server(developer=True, reasoning=("reasoning_content",), files=""),
    "together": Server(reasoning=("reasoning",), top_k=True),
    "cerebras": Server(developer=True, reasoning=("reasoning",), files="", audio="none"),
    "zai": Server(reasoning=("reasoning_content",), thinking_option=True, parses_arguments=True, video=True),
    "moonshotai": _THINKS_ALOUD,
    "alibaba": Server(reasoning=("reasoning_content",), video=True, top_k=True),
    "huggingface": DEFAULT,
    "perplexity": Server(files="file_url", web_files=True, alternates=True, top_k=True),
    "databricks": Server(top_k=True),
    "snowflake": DEFAULT,
    "cloudflare": DEFAULT,
    "crusoe": Server(reasoning=("reasoning",)),
    "fireworks": msgspec.structs.replace(_THINKS_ALOUD, top_k=True),
    "nvidia": _THINKS_ALOUD,
    "google-gemini": Server(back=("extra_content", "thought_signature")),
    "bedrock-mantle": Server(reasoning=("reasoning",)),
}


def server(provider: str | None, servers: Mapping[str, Server], default: str) -> Server:
    """Return the properties of a server; None means the format's own vendor."""
    return servers.get(provider or default, servers.get("", DEFAULT))


def refused(place: Server, model: str) -> frozenset[str]:
    """Return the canonical options that this model of the server refuses."""
    name = model.rpartition("/")[2]
    rules = [rule.refused for rule in place.models if re.match(rule.models, name)]
    unknown = {name for name, has in (("top_k", place.top_k), ("service_tier", place.tiers)) if not has}
    return place.refused.union(unknown, *rules)


CAPABILITIES: Levels = {
    Capability.TEXT: "full",
    Capability.IMAGES: "full",
    Capability.IMAGE_URLS: "full",
    Capability.DOCUMENTS: "full",
    Capability.DOCUMENT_URLS: "none",
    Capability.AUDIO: "full",
    Capability.VIDEO: "none",
    Capability.TOOLS: "full",
    Capability.PARALLEL_TOOLS: "full",
    Capability.TOOL_CHOICE: "full",
    Capability.STRICT_TOOLS: "full",
    Capability.TOOL_RESULT_MEDIA: "lossy",  # it follows in a user's message
    Capability.TOOL_ERRORS: "lossy",  # the words say it
    Capability.STRUCTURED_OUTPUT: "full",
    Capability.JSON_MODE: "full",
    Capability.REASONING: "lossy",  # by server; OpenAI itself gives none here
    Capability.REASONING_HISTORY: "lossy",  # by server; OpenAI itself takes none here
    Capability.SERVER_TOOLS: "none",
    Capability.COMPUTER_USE: "none",
    Capability.CITATIONS: "lossy",
    Capability.REFUSALS: "full",
    Capability.SYSTEM: "full",
    Capability.MID_SYSTEM: "full",
    Capability.CHOICES: "full",
    Capability.STREAMING: "full",
    Capability.PROMPT_CACHE: "lossy",
    Capability.LOGPROBS: "full",
    Capability.SEED: "full",
    Capability.STOP: "full",
    Capability.TOP_K: "lossy",  # by server; OpenAI has none
}

_OPTIONS = {
    Capability.CHOICES: "n",
    Capability.LOGPROBS: "logprobs",
    Capability.SEED: "seed",
    Capability.STOP: "stop",
    Capability.TOP_K: "top_k",
    Capability.REASONING: "reasoning",
}


def at(place: Server, model: str | None, levels: Levels) -> dict[str, Level]:
    """Return the levels of one server, or of one model of it; `levels` are those of the format."""
    found = dict(levels)
    _media(place, found)
    found[Capability.REASONING] = "full" if place.reasoning else levels[Capability.REASONING]
    found[Capability.REASONING_HISTORY] = "full" if place.reasoning else "none"
    found[Capability.STRICT_TOOLS] = "none" if place.strict == "none" else levels[Capability.STRICT_TOOLS]
    found[Capability.MID_SYSTEM] = levels[Capability.MID_SYSTEM] if place.late_system else "lossy"
    no = refused(place, model or "")
    for capability, option in _OPTIONS.items():
        if option in no:
            found[capability] = "none"
    if levels[Capability.TOP_K] == "lossy" and "top_k" not in no:
        found[Capability.TOP_K] = "full"
    return found


def _media(place: Server, found: dict[str, Level]) -> None:
    found[Capability.IMAGE_URLS] = "full" if place.web_images else "none"
    found[Capability.DOCUMENTS] = "full" if place.files else "none"
    found[Capability.DOCUMENT_URLS] = "full" if place.files and place.web_files else "none"
    found[Capability.AUDIO] = "none" if place.audio == "none" else "full"
    found[Capability.VIDEO] = "full" if place.video else "none"
