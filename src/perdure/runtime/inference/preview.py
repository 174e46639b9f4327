"""Previews what a backend would be shown of a timeline, and rebuilds what one was shown.

The backend that the timeline is on would be shown what its next step is shown.  Any other would be shown
what it is shown after a switch: a checkpoint, the last turns, and what is needed of the rest.  A preview is a
context, or the request in a vendor's format with what is lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice

import msgspec

from perdure.context import assemble
from perdure.context.assemble import RebuiltContext
from perdure.context.budget import budget_of
from perdure.context.plan import Plan
from perdure.context.render.conversation import Conversation
from perdure.context.render.media import lost, taken_out
from perdure.context.render.notes import SYSTEM
from perdure.errors import Invalid, NotFound, Unsupported
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.canonical import Json
from perdure.model.context import Context
from perdure.model.digest import Digest
from perdure.model.recipe import Frame, decode_frame, decode_recipe
from perdure.providers import registry
from perdure.providers.backend import Backend
from perdure.providers.contract import Loss, Rendered
from perdure.providers.profile import BackendProfile, BackendRef, backend_profile, name_of, same
from perdure.providers.structured_output import as_sent, request_options
from perdure.runtime.inference.backend import given_as, given_for
from perdure.runtime.inference.model_input import agent_view, open_call_words
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.tools.result import stands_for_none
from perdure.switching.current_backend import RecordedBackend, recorded_at
from perdure.switching.target_context import context_request, last_step, request_for

__all__ = [
    "Shown",
    "context_of",
    "last_step",
    "planned",
    "render",
    "render_as",
    "request",
    "shown",
    "shown_at",
]


_STEPS_MAX = 400  # commits that are searched for the last step


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a model was shown in a step, rebuilt byte for byte."""

    commit: Digest  # that holds the model's message
    plan: Plan  # with the context and its recipe
    request: Rendered | None = None  # None: the model took the context as it is


def render(env: RunEnvironment, backend: BackendRef, *, at: Digest | None) -> Rendered:
    """Return the request that a backend would be sent for the conversation at a commit."""
    profile = backend_profile(backend, env.models())
    target = profile.target
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
    made = adapter.render(
        _with_request_options(plan.context, own), model=target.model, provider=target.provider
    )
    before = (*lost(plan.history, profile.unseen), *plan.losses, *_unanswered(plan.context))
    return msgspec.structs.replace(made, losses=(*before, *made.losses)) if before else made


def planned(env: RunEnvironment, backend: BackendRef | None, *, at: Digest | None) -> Plan:
    """Return what a backend would be shown after a commit, and why; None: the one that the timeline is on.

    Raises `Invalid` or `NotFound` for a name that is neither a vendor's nor given on this handle.
    """
    space = env.space
    current = recorded_at(space, at)
    line = None if current is None else current.name
    if line is None and env.agent.backend is not None:
        line = name_of(env.agent.backend)
    to = _profile(env, backend if backend is not None else _own(env, current), line)
    is_new = line is not None and not (to.name == line or same(to.name, line, env.models()))
    request = request_for(agent_view(env), to, at, fresh=is_new)
    frame = _last_frame(env, at)
    if frame is not None:
        known = msgspec.structs.replace(frame, sent=request.frame.sent, unseen=request.frame.unseen)
        budget = budget_of(to.name, env.agent.context, frame=known, models=env.models, window=to.window)
        request = msgspec.structs.replace(request, frame=known, budget=budget)
    return assemble.plan(space, at, request, explain=partial(open_call_words, space))


def shown_at(space: Space, at: Digest | None) -> RebuiltContext:
    """Rebuild what the last model up to a commit was shown, byte for byte."""
    return assemble.rebuilt(space, last_step(space, at))


def shown(env: RunEnvironment, at: Digest | None) -> Shown:
    """Rebuild the same with its plan, its tokens counted again, and the request that was sent."""
    commit = last_step(env.space, at)
    found = assemble.rebuilt(env.space, commit)
    models, limits = env.models, env.agent.context
    budget = budget_of(found.recipe.backend, limits, frame=found.frame, models=models)
    plan = assemble.explained(found, context_request(agent_view(env), budget, found.frame, None))
    return Shown(commit=commit, plan=plan, request=request(found.frame, found.context))


def request(frame: Frame, context: Context) -> Rendered | None:
    """Return the request that a step was sent; None where the model took the context as it is."""
    sent = frame.sent
    if sent is None:
        return None
    options = request_options({**context.options, **sent.options})
    made = msgspec.structs.replace(context, options=options)
    rendered = registry.adapter(sent.api).render(made, model=sent.model, provider=sent.provider)
    body = as_sent(sent.api, rendered.body, stream=options["stream"] is True)
    return msgspec.structs.replace(rendered, body=body)


def render_as(
    env: RunEnvironment, api: str, *, at: Digest | None, model: str = "", is_sent: bool = False
) -> Rendered:
    """Return the whole conversation in a wire format; without a model it names none and is for no certain backend.

    With `is_sent` it also has what only a request that is sent needs, such as a user's turn at its end.
    """
    context = context_of(env, at, is_sent=is_sent)
    rendered = registry.adapter(api).render(context, model=model)
    body = rendered.body if model else {name: each for name, each in rendered.body.items() if name != "model"}
    return Rendered(body=body, losses=(*_empty(env, at), *_unanswered(context), *rendered.losses))


def _empty(env: RunEnvironment, at: Digest | None) -> Iterator[Loss]:
    """Yield a loss for each message of the transcript that says nothing, which no format has."""
    for entry in reader.transcript(env.space, at):
        words = entry.words
        if words is not None and not (words.content or words.tool_calls or words.tool_results):
            why = "it says nothing"
            yield Loss(kind="dropped", where=f"message {entry.id}", what="empty message", why=why)


def _unanswered(context: Context) -> Iterator[Loss]:
    """Yield a loss for each call without a result, which a sentence of ours has the place of."""
    for at, message in enumerate(context.messages):
        for nth, result in enumerate(message.tool_results):
            if stands_for_none(result):
                why = "the call has no result; a sentence in its place says so"
                where = f"messages[{at}].tool_results[{nth}]"
                yield Loss(kind="repaired", where=where, what="tool result", why=why)


def context_of(env: RunEnvironment, at: Digest | None, *, is_sent: bool = True) -> Context:
    """Return the whole conversation up to a commit, with the agent's instructions and tools.

    If it is not sent, it has no notes of ours about calls that ended later.
    """
    conversation = Conversation(announced=None if is_sent else ())
    words = [entry.words for entry in reader.transcript(env.space, at) if entry.words]
    conversation.extend(taken_out(env.space, message) for message in words)
    for call in conversation.open():
        conversation.explain(call.id, open_call_words(env.space, call.id))
    agent = env.agent
    return Context(
        system=agent.instructions,
        messages=conversation.messages(),
        tools=agent.specs,
        options=agent.options,
        is_sent=is_sent,
    )


def _with_request_options(context: Context, own: Mapping[str, Json]) -> Context:
    """Return the context with the options of a request; the sender decides whether the answer is streamed."""
    given: dict[str, Json] = {**context.options, **own}
    stream = {"stream": given["stream"]} if "stream" in given else {}
    options = {name: value for name, value in request_options(given).items() if name != "stream"}
    return msgspec.structs.replace(context, options={**options, **stream})


def _last_frame(env: RunEnvironment, at: Digest | None) -> Frame | None:
    """Return the frame of the last step if only the agent's name is known; None if its code is."""
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
    """Return the backend of the timeline: the object that was given for it, else its name."""
    if current is not None:
        return given_for(env, current)
    if env.agent.backend is None:
        raise Invalid(
            f"'{env.space.label}' was never run and its agent has no backend; nothing was planned.",
            code="target_backend_missing",
            advice="Name one.",
            thread=env.space.label,
        )
    return env.agent.backend


def _profile(env: RunEnvironment, backend: BackendRef, line: str | None) -> BackendProfile:
    """Return what is known of a backend; only its name if it is the timeline's own and no object of it is given."""
    backend = given_as(env, backend)
    try:
        return backend_profile(backend, env.models())
    except (NotFound, Invalid):
        if not isinstance(backend, str) or backend != line:
            raise
        return BackendProfile(name=backend)
