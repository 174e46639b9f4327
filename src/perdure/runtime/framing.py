"""Framing: what stands around the messages of a step, and what there is room for.

Only the agent's own words and constant words of ours are among the system words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.context.budget import Budget, budget_of
from perdure.context.notes import Recalled
from perdure.context.task import task_state
from perdure.context.tiers import Ask
from perdure.history.space import Space
from perdure.ledger import calls
from perdure.memory import relevant
from perdure.migration import book
from perdure.migration.extract import derive
from perdure.migration.facing import Described, Facing, facing, same
from perdure.model.checkpoint import Checkpoint
from perdure.model.commit import LedgerRead
from perdure.model.context import ToolSpec
from perdure.model.digest import Digest
from perdure.model.effect import Effect
from perdure.model.recipe import Frame, Sent
from perdure.providers.capabilities import Capability
from perdure.providers.contract import Model, sent_by
from perdure.runtime.agent import Agent
from perdure.runtime.builtin_tools import reader_spec
from perdure.runtime.ground import Ground

__all__ = [
    "artifact_reader",
    "ask",
    "ask_for",
    "budget_for",
    "frame",
    "recalled",
    "takes_calls",
    "unseen_by",
    "window_of",
]

_QUERY_MAX = 2_000  # characters of an input by which memory is searched


def frame(
    agent: Agent,
    *,
    effect_max: Effect | None = None,
    shape: Any = None,
    sent: Sent | None = None,
    unseen: tuple[str, ...] = (),
) -> Frame:
    """The frame of an agent's steps; `shape` is the type that the last words are to have."""
    system = agent.instructions
    if effect_max is not None:
        system = f"{system}\n\nOn this line no call beyond {effect_max} is made; do not ask for any.".strip()
    options = dict(agent.options)
    if shape is not None:
        options["output_schema"] = msgspec.json.schema(shape)
    return Frame(system=system, tools=agent.specs, options=options, sent=sent, unseen=unseen)


def unseen_by(ground: Ground, model: Model) -> tuple[str, ...]:
    """The kinds of media that a model takes none of, as far as that is known."""
    known = sent_by(model) is not None or isinstance(model, Described)
    return facing(model, ground.models()).unseen if known else ()


def takes_calls(ground: Ground, model: Model) -> bool:
    """True if a model's format carries calls and their results, or nothing is known of it."""
    known = sent_by(model) is not None or isinstance(model, Described)
    return not known or facing(model, ground.models()).does(Capability.TOOLS) != "none"


def artifact_reader(ground: Ground, model: Model) -> ToolSpec | None:
    """The tool that reads artifacts as a model is told of it; None: the model takes no tools, or the agent has its own."""
    return reader_spec(ground.agent) if takes_calls(ground, model) else None


def window_of(model: object) -> int | None:
    """How many tokens a model takes, if it says so with `window`; None: it does not say."""
    found: object = getattr(model, "window", None)
    return found if isinstance(found, int) and found > 1 else None


def budget_for(ground: Ground, model: Model, frame: Frame) -> Budget:
    """What there is room for with a model."""
    return budget_of(
        model.backend, ground.agent.context, frame=frame, models=ground.models, window=window_of(model)
    )


def ask(
    ground: Ground,
    budget: Budget,
    frame: Frame,
    at: Digest | None,
    *,
    fresh: bool = False,
    live: bool = False,
    takes_calls: bool = True,
) -> Ask:
    """What is wanted for the next step after `at`, without what belongs to a turn.

    `live`: the log of calls is read as far as it goes by now, and not only as far as the commit had read it.
    `takes_calls`: the backend's format carries calls and their results.
    """
    space = ground.space
    is_policy_native = ground.agent.policy.earlier_calls == "native" and takes_calls

    def is_native(maker: str | None) -> bool:
        return is_policy_native or (maker is not None and same(maker, budget.backend, ground.models()))

    upto: Callable[[], LedgerRead | None] = lambda: book.now(space) if live else None  # noqa: E731
    return Ask(
        frame=frame,
        budget=budget,
        limits=ground.agent.context,
        derive=lambda: derive(space, at, to_backend=budget.backend, ledger=upto(), timeline=ground.timeline),
        where=lambda call: _asked_at(space, call),
        reference=lambda call: _result_of(space, call),
        fresh=fresh,
        is_native=is_native,
        harmless=frozenset(tool.name for tool in ground.agent.toolbox.values() if not tool.reach.guarded),
    )


def ask_for(
    ground: Ground,
    to: Facing,
    at: Digest | None,
    *,
    fresh: bool,
    shape: Any = None,
    checkpoint: Checkpoint | None = None,
) -> Ask:
    """What a backend would be asked with at a commit; `checkpoint` is the one it would begin with."""
    sent = None
    if to.target is not None:
        sent = Sent(api=to.target.api, provider=to.target.provider, model=to.target.model)
    made = frame(ground.agent, effect_max=ground.effect_max, shape=shape, sent=sent, unseen=to.unseen)
    budget = budget_of(to.name, ground.agent.context, frame=made, models=ground.models, window=to.window)
    takes_calls = to.does(Capability.TOOLS) != "none"
    plain = ask(ground, budget, made, at, fresh=fresh, takes_calls=takes_calls)
    derive: Callable[[], Checkpoint] = plain.derive if checkpoint is None else lambda: checkpoint
    return msgspec.structs.replace(
        plain,
        derive=derive,
        task=task_state(ground.space, ground.space.root_at(at)),
        reader=reader_spec(ground.agent) if takes_calls else None,
    )


def recalled(ground: Ground, query: str, at: Digest | None) -> tuple[Sequence[Recalled], Digest | None]:
    """What the owner's memory says about an input, and its root; nothing if there is none, or nothing to look for."""
    memory, limit = ground.memory, ground.agent.context.memory
    if memory is None or limit < 1 or not query.strip() or memory.commit is None:
        return (), None
    found = relevant(memory, query[:_QUERY_MAX], limit=limit, line=(ground.space.name, at))
    told = tuple(Recalled(each.reference, each.text, each.kind, each.trust) for each in found)
    return told, found.sight.root


def _asked_at(space: Space, call: str) -> str | None:
    held = calls.find(space, call)
    return held.record.label if held is not None else None


def _result_of(space: Space, call: str) -> str | None:
    held = calls.find(space, call)
    return held.record.result or held.record.evidence if held is not None else None
