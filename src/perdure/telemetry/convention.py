"""Names of the GenAI semantic convention of OpenTelemetry, and the names that it leaves to us.

The convention is pinned by a test: each name here that is not our own must be in the released package
`opentelemetry-semantic-conventions`.  Our own names begin with `perdure.`, as OpenTelemetry asks of a product.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGENT_NAME",
    "AGENT_VERSION",
    "ALL_ATTRIBUTES",
    "CHAT",
    "CONVERSATION",
    "ERROR_TYPE",
    "EXECUTE_TOOL",
    "INPUT_MESSAGES",
    "INVOKE_AGENT",
    "OPERATION",
    "OPERATIONS",
    "OUTPUT_MESSAGES",
    "PROVIDER",
    "PROVIDERS",
    "REQUEST_MODEL",
    "SCHEMA_URL",
    "SERVER_ADDRESS",
    "SERVER_PORT",
    "STEP_DURATION",
    "STEP_DURATION_BUCKETS",
    "TOKEN_TYPE",
    "TOKEN_USAGE",
    "TOKEN_USAGE_BUCKETS",
    "TOOL_ARGUMENTS",
    "TOOL_CALL",
    "TOOL_NAME",
    "TOOL_RESULT",
    "TOOL_TYPE",
    "USAGE",
    "USER",
    "provider_name",
]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

# Attributes of the convention.
OPERATION: Final = "gen_ai.operation.name"
CONVERSATION: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_VERSION: Final = "gen_ai.agent.version"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
USER: Final = "user.id"

# Histograms of the convention, and the bounds that it asks for.
STEP_DURATION: Final = "gen_ai.client.operation.duration"  # seconds
STEP_DURATION_BUCKETS: Final = tuple(0.01 * 2**power for power in range(14))
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
TOKEN_USAGE_BUCKETS: Final = tuple(4**power for power in range(14))

# By the field of `Usage`.
USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}

# Values of `gen_ai.operation.name`.
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
OPERATIONS: Final = (INVOKE_AGENT, CHAT, EXECUTE_TOOL)

# Values of `gen_ai.provider.name`, by the provider in our backends' names; another provider keeps its name.
PROVIDERS: Final = {
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "google": "gcp.gemini",
    "gemini": "gcp.gemini",
    "gemini-interactions": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.inference",
    "foundry": "azure.ai.inference",
    "mistral": "mistral_ai",
    "deepseek": "deepseek",
    "groq": "groq",
    "perplexity": "perplexity",
    "xai": "x_ai",
}

ALL_ATTRIBUTES: Final = (
    OPERATION,
    CONVERSATION,
    AGENT_NAME,
    AGENT_VERSION,
    PROVIDER,
    REQUEST_MODEL,
    TOOL_NAME,
    TOOL_TYPE,
    TOOL_CALL,
    TOOL_ARGUMENTS,
    TOOL_RESULT,
    INPUT_MESSAGES,
    OUTPUT_MESSAGES,
    TOKEN_TYPE,
    ERROR_TYPE,
    SERVER_ADDRESS,
    SERVER_PORT,
    USER,
    *USAGE.values(),
)


def provider_name(provider: str) -> str:
    """Return the convention's word for a provider."""
    return PROVIDERS.get(provider, provider)
