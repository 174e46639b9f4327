"""What a backend would be shown of a line that it has not taken over yet."""

from __future__ import annotations

from typing import Any

from holdfast.context import assemble
from holdfast.errors import Invalid, NotFound
from holdfast.migration.compatibility import Shown
from holdfast.migration.facing import Facing
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.digest import Digest
from holdfast.providers import registry
from holdfast.runtime import framing
from holdfast.runtime.ground import Ground

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
    asked = framing.ask_for(ground, to, at, fresh=True, shape=output, checkpoint=checkpoint)
    planned = assemble.plan(ground.space, at, asked)
    return Shown(
        context=planned.context,
        history=planned.history,
        tokens=planned.tokens,
        budget=planned.budget,
        left_out=planned.left_out,
        from_api=_api(before),
        mcp=frozenset(tool.name for tool in ground.agent.toolbox.values() if tool.origin == "mcp"),
    )


def _api(backend: str | None) -> str | None:
    try:
        return None if backend is None else registry.target(backend).api
    except (NotFound, Invalid):
        return None
