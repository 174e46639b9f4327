"""What a backend would be shown of a line that it has not taken over yet."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import Invalid, NotFound
from holdfast.migration.compatibility import Shown
from holdfast.migration.facing import Facing
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.context import Context
from holdfast.model.digest import Digest
from holdfast.providers import registry, tokens
from holdfast.runtime.ground import Ground
from holdfast.runtime.rendering import context_of

__all__ = ["shown_to"]


def shown_to(
    ground: Ground,
    to: Facing,
    at: Digest | None,
    checkpoint: Checkpoint,
    *,
    before: str | None,
    output: Any = None,
) -> Shown:
    """The conversation at a commit as `to` would be shown it once it has taken over with that checkpoint."""
    context = context_of(ground, at)
    if output is not None:
        options = {**context.options, "output_schema": msgspec.json.schema(output)}
        context = msgspec.structs.replace(context, options=options)
    return Shown(
        context=context,
        history=context.messages,
        tokens=_tokens(context, to),
        budget=None if to.window is None else to.window,
        from_api=_api(before),
        mcp=frozenset(tool.name for tool in ground.agent.toolbox.values() if tool.origin == "mcp"),
    )


def _tokens(context: Context, to: Facing) -> int:
    return tokens.count(context, model=to.name).count


def _api(backend: str | None) -> str | None:
    try:
        return None if backend is None else registry.target(backend).api
    except (NotFound, Invalid):
        return None
