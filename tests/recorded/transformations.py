"""Legal transformations: the same thing in another spelling, and repairs with what has to be so for each to be true."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from perdure.model.context import Context
from perdure.model.message import Message
from tests.recorded.leaves import Said

__all__ = ["EQUAL", "REPAIRS", "SPELLED", "WHOLE"]


def _thinks(value: object, said: Said) -> bool:
    """A request that says how much a model is to think says that it is to."""
    return value is True and bool(_THINKING & said.keys)


def _thinks_not(value: object, said: Said) -> bool:
    """A request that does not ask for thinking asks for none."""
    return value == "none" and (
        "disabled" in said.whole or said.pair("think", False) or not _THINKING & said.keys
    )


_THINKING = frozenset(
    {
        *("thinking", "think", "reasoning", "reasoning_config", "reasoningConfig"),
        *("reasoning_effort", "thinkingConfig"),
    }
)
# Options that another setting says as well.
EQUAL: dict[tuple[str, ...], Callable[[object, Said], bool]] = {
    ("logprobs",): lambda value, said: "logprobs" in said.all,
    ("output", "strict"): lambda value, said: said.pair("type", "json_schema"),
    ("reasoning", "enabled"): _thinks,
    ("reasoning", "summary"): lambda value, said: (
        value == "auto" and bool({"thinking", "includeThoughts"} & said.keys)
    ),
    ("reasoning", "effort"): _thinks_not,
}


# ---- repairs, and what has to be so for each to be true


def _was_put_there(context: Context, said: Said) -> bool:
    """Words of ours stand in the request, or the roles stood in an order that was changed."""
    ours = {"Continue.", "Begin."} & said.whole - {message.text for message in context.messages}
    roles = [message.role for message in context.messages if message.content or message.tool_calls]
    return bool(ours) or roles[-1:] == ["assistant"] or any(a == b for a, b in pairwise(roles))


def _is_signed_by_us(context: Context, said: Said) -> bool:
    del context
    return "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=" in said.whole


REPAIRS: dict[str, Callable[[Context, Said], bool]] = {
    "conversation": _was_put_there,
    "order of roles": _was_put_there,
    "turn": _was_put_there,
    "signature": _is_signed_by_us,
    "empty history": _was_put_there,
    "white space": lambda context, said: any(
        message.text != message.text.rstrip() for message in context.messages[-1:]
    ),
}
WHOLE: dict[str, Callable[[Message, Said], bool]] = {
    "system message": lambda message, _: message.role == "system",
    "message": lambda message, _: message.role != "tool",
    "document": lambda _, said: "See the document." in said.whole,
    "reasoning": lambda message, said: bool(message.tool_calls) and said.pair("reasoning_content", ""),
    "empty message": lambda message, _: not message.text and not message.tool_calls,
}
SPELLED = {
    "effort": ("effort", "reasoning_effort", "thinkingLevel"),
    "budget_tokens": ("budget_tokens", "thinkingBudget", "max_tokens"),
    "max_tokens": (
        "max_tokens",
        "maxTokens",
        "maxOutputTokens",
        "max_completion_tokens",
        "max_output_tokens",
    ),
    "top_p": ("top_p", "topP"),
    "top_k": ("top_k", "topK"),
    "service_tier": ("service_tier", "type"),
}
