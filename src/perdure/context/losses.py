"""Losses of a context: what a backend is not shown as it was said, before any adapter renders it.

Calls that another backend made are told in words, and what only that backend can read stood beside them.  What the
window has no room for is cut.  Both are reported here, because the adapter is handed a context without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.context.cuts import Cuts, cut_texts, loss_of
from perdure.model.message import File, Image, Message, ReasoningSummary
from perdure.providers.contract import Loss, Rendered
from perdure.providers.wire.unsent import unsent

__all__ = ["context_losses", "omission_loss"]


def context_losses(
    messages: Sequence[tuple[str, Message]], cuts: Cuts, calls_in_words: Sequence[str]
) -> tuple[Loss, ...]:
    """What of these messages, each given with its id, is told in words or cut."""
    told = frozenset(calls_in_words)
    return tuple(_losses(messages, cuts, told))


def omission_loss(message: Message) -> Loss:
    """A message of the last turn that is not shown, with what it holds."""
    blocks = [*message.content, *(block for each in message.tool_results for block in each.content)]
    counts = {
        "image": sum(isinstance(block, Image) for block in blocks),
        "file": sum(isinstance(block, File) for block in blocks),
        "tool call": len(message.tool_calls),
        "tool result": len(message.tool_results),
    }
    held = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    what = f"{message.role} message{' with ' if held else ''}{', '.join(held)}"
    why = "the window has no room for all of the last turn; it stays in the history"
    return Loss(kind="dropped", where="messages", what=what, why=why)


def _losses(messages: Sequence[tuple[str, Message]], cuts: Cuts, told: frozenset[str]) -> Iterator[Loss]:
    bare: list[Message] = []
    for at, (id, message) in enumerate(messages):
        count = sum(call.id in told for call in message.tool_calls)
        if count:
            yield Loss(
                kind="converted",
                where=f"messages[{at}].toolCalls",
                what=f"{count} tool call{'s' if count > 1 else ''}",
                why="another backend made it; it is told in words with what came of it",
            )
        if id in cuts.texts and any(isinstance(block, ReasoningSummary) for block in message.content):
            why = "the message is cut, and reasoning goes back only with the whole of it"
            yield Loss(kind="dropped", where=f"messages[{at}].content", what="reasoning", why=why)
        is_bare = message.vendor_metadata is not None and (count or id in cuts.texts)
        bare.append(message if is_bare else Message(message.role))
    yield from unsent(bare, Rendered(body={}), vendor="", endpoint=None)
    yield from map(loss_of, cut_texts(messages, cuts))
