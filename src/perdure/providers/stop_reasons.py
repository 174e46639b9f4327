"""Maps a backend's own word for the end of an answer to its meaning.

The words of the formats do not contradict each other, so one table serves them all, and also servers
that speak a format with words of their own.  Where a word is ambiguous (a refusal that ends
with `stop`), the adapter sets `stop_kind`.  A word that is not in the table counts as `unknown`:
the answer is kept, but it is not known to be complete.
"""

from __future__ import annotations

from perdure.model.run import StopKind, StopReason

__all__ = ["STOP_WORDS", "stop_reason"]

_WORDS: dict[StopKind, str] = {
    "completed": "end_turn stop stop_sequence completed complete end eos eos_token stop_token",
    "tool_calls": "tool_use tool_calls tool_call function_call requires_action unexpected_tool_call",
    "paused": "pause_turn compaction requires_continuation",
    "pending": "queued in_progress",
    "truncated": (
        "max_tokens max_output_tokens length max_length model_length incomplete token_limit error_limit "
        "model_context_window_exceeded context_length_exceeded budget_exceeded"
    ),
    "refused": (
        "refusal content_filter content_filtered safety recitation language blocklist prohibited_content spii "
        "image_safety image_prohibited_content image_recitation model_armor jailbreak guardrail_intervened "
        "sensitive error_toxic"
    ),
    "malformed": (
        "malformed_function_call malformed_tool_use malformed_model_output malformed_response "
        "too_many_tool_calls missing_thought_signature no_image"
    ),
    "failed": "error failed network_error insufficient_system_resource abort aborted timeout",
    "cancelled": "cancelled canceled",
}
STOP_WORDS: dict[str, StopKind] = {word: kind for kind, words in _WORDS.items() for word in words.split()}


def stop_reason(word: str | None, kind: StopKind | None = None, *, has_calls: bool) -> StopReason:
    """Return the meaning of an answer's end; `kind` is what its adapter knows beyond the word.

    An answer without a word is complete, or its transport would have raised.
    An end for tool calls without any call counts as malformed: there is nothing to run.
    """
    if kind is None:
        kind = STOP_WORDS.get(word.casefold().replace("-", "_"), "unknown") if word else "completed"
    if kind == "tool_calls" and not has_calls:
        kind = "malformed"
    elif has_calls and kind in ("completed", "paused"):
        kind = "tool_calls"
    return StopReason(kind, word or None)
