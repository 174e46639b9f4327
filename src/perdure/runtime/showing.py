"""What a backend would be shown of a line that it has not taken over yet."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.context import assemble
from perdure.context.plan import Plan
from perdure.context.tiers import Ask
from perdure.errors import Invalid, NotFound
from perdure.history.space import Space
from perdure.migration.compatibility import Shown
from perdure.migration.facing import Facing
from perdure.model.checkpoint import Checkpoint
from perdure.model.digest import Digest
from perdure.model.recipe import Frame, decode_frame, decode_recipe
from perdure.providers import registry
from perdure.runtime import framing
from perdure.runtime.agent import Agent
from perdure.runtime.ground import Ground
from perdure.runtime.rendering import last_step

__all__ = ["is_bare", "last_frame", "shown_to"]


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
    ask = framing.ask_for(ground, to, at, fresh=True, shape=output, checkpoint=checkpoint)
    if is_bare(ground.agent):
        ask = _as_before(ask, last_frame(ground.space, at))
    plan = assemble.plan(ground.space, at, ask)
    return Shown(
        context=plan.context,
        history=plan.history,
        omitted=plan.omitted,
        tokens=plan.tokens,
        budget=plan.budget,
        fits=plan.fits,
        turns=_crowded(plan, ask),
        from_api=_api(before),
        mcp=frozenset(tool.name for tool in ground.agent.toolbox.values() if tool.origin == "mcp"),
        cuts=plan.cuts,
        lost=plan.losses,
        calls_in_words=_summarised(plan, checkpoint),
        calls_native=len(plan.calls_native),
    )


def is_bare(agent: Agent) -> bool:
    """Whether nothing is known of an agent but its name: its code is not at hand."""
    return agent.backend is None and not agent.tools and not agent.instructions


def last_frame(space: Space, at: Digest | None) -> Frame | None:
    """What stood around the messages when a model spoke last; None if that is not recorded."""
    try:
        spoke = assemble.spoke(space.step(last_step(space, at)))
        assert spoke is not None, "a step that was found has spoken"
        assert spoke.context is not None, "and says what it was shown"
        return decode_frame(space.body(decode_recipe(space.body(spoke.context)).frame))
    except NotFound:  # nobody has spoken, or it was forgotten
        return None


def _as_before(ask: Ask, frame: Frame | None) -> Ask:
    """The same with the tools and options that were shown last."""
    if frame is None:
        return ask
    known = msgspec.structs.replace(frame, sent=ask.frame.sent, unseen=ask.frame.unseen)
    return msgspec.structs.replace(ask, frame=known)


def _summarised(plan: Plan, checkpoint: Checkpoint) -> int:
    """How many earlier calls of the line are told in words: in sentences, or only by the checkpoint."""
    listed = {each.call for each in checkpoint.calls if not each.elsewhere}
    counted = (
        checkpoint.calls_before + checkpoint.earlier_others + sum(each.count for each in checkpoint.earlier)
    )
    here = len(listed | set(plan.calls_in_words)) + counted
    return max(len(plan.calls_in_words), here - len(plan.calls_native))


def _crowded(plan: Plan, ask: Ask) -> int | None:
    """How many turns are shown, if it would be more had there been room; None: room is not what limits them."""
    shown = len([item for item in plan.of(4) if item.included])
    left = any(not item.included for item in plan.of(7))
    return shown if left and shown < ask.limits.turns else None


def _api(backend: str | None) -> str | None:
    try:
        return None if backend is None else registry.target(backend).api
    except (NotFound, Invalid):
        return None
