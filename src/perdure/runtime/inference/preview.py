"""Rendering a line for a backend: what it would be shown, the request that it would be sent, and what is lost on the way.

The backend that the line is on would be shown what its next step is shown.  Any other would be shown
what it is shown after a switch: a checkpoint, the last turns, and what is needed of the rest.

What a backend would be shown of a line that it has not taken over yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from perdure.context import assemble
from perdure.context.assemble import RebuiltContext
from perdure.context.budget import budget_of
from perdure.context.builder import ContextRequest
from perdure.context.plan import Plan
from perdure.context.render.conversation import Conversation
from perdure.context.render.media import lost, taken_out
from perdure.context.render.notes import SYSTEM
from perdure.errors import Invalid, NotFound, Unsupported
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.canonical import Json
from perdure.model.checkpoint import Checkpoint
from perdure.model.context import Context
from perdure.model.digest import Digest
from perdure.model.recipe import Frame, decode_frame, decode_recipe
from perdure.projections.transcript import TranscriptEntry
from perdure.providers import registry
from perdure.providers.backend import Backend
from perdure.providers.contract import Loss, Rendered, decode_losses
from perdure.providers.profile import BackendProfile, BackendRef, backend_profile, check_model, name_of, same
from perdure.providers.structured_output import as_sent, request_options
from perdure.runtime.agent.agent import Agent
from perdure.runtime.inference import model_input
from perdure.runtime.inference.backend import given_as, given_for
from perdure.runtime.session.environment import RunEnvironment
from perdure.switching.compatibility import ShownToTarget
from perdure.switching.current_backend import RecordedBackend, recorded_at

__all__ = [
    "Shown",
    "context_of",
    "last_step",
    "planned",
    "recorded",
    "render",
    "render_as",
    "request",
    "shown",
    "shown_at",
    "is_bare",
    "last_frame",
    "shown_to",
]


_STEPS_MAX = 400  # commits that are looked at for the last step


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a step was shown."""

    commit: Digest  # that holds what the model said
    plan: Plan  # with the context, byte for byte, and its recipe
    request: Rendered | None = None  # None: the model took the context as it is


def render(env: RunEnvironment, backend: BackendRef, *, at: Digest | None) -> Rendered:
    """The request that a backend would be sent for the line as it is at a commit."""
    seen = backend_profile(backend, env.models())
    target = seen.target
    if target is None:
        raise Unsupported(
            f"{name_of(backend)} takes steps itself and is sent no request; nothing was rendered.",
            code="backend_without_requests",
            advice="See plan(…) instead.",
            backend=name_of(backend),
        )
    plan = planned(env, backend, at=at)
    own: Mapping[str, Json] = backend.options if isinstance(backend, Backend) else {}
    adapter = registry.adapter(target.api)
    made = adapter.render(_asked(plan.context, own), model=target.model, provider=target.provider)
    before = (*lost(plan.history, seen.unseen), *plan.losses)
    return msgspec.structs.replace(made, losses=(*before, *made.losses)) if before else made


def planned(env: RunEnvironment, backend: BackendRef | None, *, at: Digest | None) -> Plan:
    """What a backend would be shown after a commit, and why; None: the one that the line is on.

    Raises `Invalid` or `NotFound` for a name that nobody goes by: no vendor, nor who is on the line or at hand.
    """
    space = env.space
    current = recorded_at(space, at)
    line = None if current is None else current.name
    if line is None and env.agent.backend is not None:
        line = name_of(env.agent.backend)
    wanted = backend if backend is not None else _own(env, current)
    to = _seen(env, wanted, line)
    is_new = line is not None and not (to.name == line or same(to.name, line, env.models()))
    ask = model_input.ask_for(env, to, at, fresh=is_new)
    frame = _last_frame(env, at)
    if frame is not None:
        known = msgspec.structs.replace(frame, sent=ask.frame.sent, unseen=ask.frame.unseen)
        budget = budget_of(to.name, env.agent.context, frame=known, models=env.models, window=to.window)
        ask = msgspec.structs.replace(ask, frame=known, budget=budget)
    return assemble.plan(space, at, ask)


def last_step(space: Space, at: Digest | None) -> Digest:
    """The commit of the last message up to `at` that a model said in a run; raises `NotFound` if there is none."""
    for step in reader.recent(space, at):
        if assemble.spoke(step) is not None:
            return step.digest
    raise NotFound(
        f"no model has spoken on '{space.label}' up to there, or it was not recorded what it was shown; "
        "nothing was made again.",
        code="no_recorded_step",
        advice="See what the next step would be shown with plan().",
        thread=space.label,
    )


def shown_at(space: Space, at: Digest | None) -> RebuiltContext:
    """What the model was shown that spoke last, at a commit or before it, byte for byte."""
    return assemble.rebuilt(space, last_step(space, at))


def shown(env: RunEnvironment, at: Digest | None) -> Shown:
    """The same with its plan, its tokens counted anew, and with the request that was sent."""
    commit = last_step(env.space, at)
    found = assemble.rebuilt(env.space, commit)
    models, limits = env.models, env.agent.context
    budget = budget_of(found.recipe.backend, limits, frame=found.frame, models=models)
    plan = assemble.explained(found, model_input.ask(env, budget, found.frame, None))
    return Shown(commit=commit, plan=plan, request=request(found.frame, found.context))


def request(frame: Frame, context: Context) -> Rendered | None:
    """The request that a step was sent; None where the model took the context as it is."""
    sent = frame.sent
    if sent is None:
        return None
    options = request_options({**context.options, **sent.options})
    made = msgspec.structs.replace(context, options=options)
    rendered = registry.adapter(sent.api).render(made, model=sent.model, provider=sent.provider)
    body = as_sent(sent.api, rendered.body, stream=options["stream"] is True)
    return msgspec.structs.replace(rendered, body=body)


def render_as(env: RunEnvironment, api: str, *, at: Digest | None, model: str = "") -> Rendered:
    """The whole conversation in a wire format; without a model it names none, and is for no backend in particular."""
    rendered = registry.adapter(api).render(context_of(env, at), model=model)
    if model:
        return rendered
    return Rendered(
        body={name: value for name, value in rendered.body.items() if name != "model"}, losses=rendered.losses
    )


def recorded(space: Space, entry: TranscriptEntry) -> tuple[Loss, ...]:
    """What the step that said a message could not carry over unchanged; nothing where no model spoke in a run."""
    return decode_losses(space.body(entry.losses)) if entry.losses is not None else ()


def context_of(env: RunEnvironment, at: Digest | None) -> Context:
    """The whole conversation up to a commit, with the agent's instructions and tools."""
    conversation = Conversation()
    words = [entry.words for entry in reader.transcript(env.space, at) if entry.words]
    conversation.extend(taken_out(env.space, message) for message in words)
    agent = env.agent
    return Context(
        system=agent.instructions,
        messages=conversation.messages(),
        tools=agent.specs,
        options=agent.options,
    )


def _asked(context: Context, own: Mapping[str, Json]) -> Context:
    """The context with the options of a request; whether its answer is streamed is for whoever sends it."""
    given: dict[str, Json] = {**context.options, **own}
    stream = {"stream": given["stream"]} if "stream" in given else {}
    options = {name: value for name, value in request_options(given).items() if name != "stream"}
    return msgspec.structs.replace(context, options={**options, **stream})


def _last_frame(env: RunEnvironment, at: Digest | None) -> Frame | None:
    """What stood around the last step, where the agent is only known by its name; None where it is declared."""
    agent = env.agent
    if agent.backend is not None or agent.instructions or agent.tools or agent.options:
        return None
    for step in islice(reader.recent(env.space, at), _STEPS_MAX):
        spoke = assemble.spoke(step)
        if spoke is not None and spoke.context is not None:
            recipe = decode_recipe(env.space.body(spoke.context))
            frame = decode_frame(env.space.body(recipe.frame))
            return msgspec.structs.replace(frame, system=frame.system.removesuffix(SYSTEM).rstrip())
    return None


def _own(env: RunEnvironment, current: RecordedBackend | None) -> BackendRef:
    """Whoever takes the turns of the line: what was given for its backend, else the name."""
    if current is not None:
        return given_for(env, current)
    if env.agent.backend is None:
        raise Invalid(
            f"'{env.space.label}' was never run and its agent has no backend; nothing was planned.",
            code="no_backend_to_plan_for",
            advice="Name one.",
            thread=env.space.label,
        )
    return env.agent.backend


def _seen(env: RunEnvironment, backend: BackendRef, line: str | None) -> BackendProfile:
    """What is known of a backend; of the line's own, if it takes steps itself and is not at hand, its name."""
    backend = given_as(env, backend)
    try:
        seen = backend_profile(backend, env.models())
    except (NotFound, Invalid):
        if not isinstance(backend, str) or backend != line:
            raise
        return BackendProfile(name=backend)
    if backend != line:
        check_model(backend, seen, env.models())
    return seen


def shown_to(
    env: RunEnvironment,
    to: BackendProfile,
    at: Digest | None,
    checkpoint: Checkpoint,
    *,
    before: str | None,
    output: Any = None,
) -> ShownToTarget:
    """The conversation at a commit as `to` would be shown it once it has taken over with that checkpoint."""
    ask = model_input.ask_for(env, to, at, fresh=True, shape=output, checkpoint=checkpoint)
    if is_bare(env.agent):
        ask = _as_before(ask, last_frame(env.space, at))
    plan = assemble.plan(env.space, at, ask)
    return ShownToTarget(
        context=plan.context,
        history=plan.history,
        omitted=plan.omitted,
        tokens=plan.tokens,
        budget=plan.budget,
        fits=plan.fits,
        turns=_crowded(plan, ask),
        from_api=_api(before),
        mcp=frozenset(tool.name for tool in env.agent.toolbox.values() if tool.origin == "mcp"),
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


def _as_before(ask: ContextRequest, frame: Frame | None) -> ContextRequest:
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


def _crowded(plan: Plan, ask: ContextRequest) -> int | None:
    """How many turns are shown, if it would be more had there been room; None: room is not what limits them."""
    shown = len([item for item in plan.of(4) if item.included])
    left = any(not item.included for item in plan.of(7))
    return shown if left and shown < ask.limits.turns else None


def _api(backend: str | None) -> str | None:
    try:
        return None if backend is None else registry.target(backend).api
    except (NotFound, Invalid):
        return None
