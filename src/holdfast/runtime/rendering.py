"""Rendering a line for a backend: the request that it would be sent, and what could not be carried over."""

from __future__ import annotations

from holdfast.context.conversation import Conversation
from holdfast.history import reader
from holdfast.model.context import Context
from holdfast.model.digest import Digest
from holdfast.providers import registry
from holdfast.providers.contract import Rendered
from holdfast.runtime.ground import Ground
from holdfast.runtime.media import taken_out

__all__ = ["context_of", "render", "render_as"]


def render(ground: Ground, backend: str, *, at: Digest | None) -> Rendered:
    """The request that `provider:model` would be sent for the line as it is at a commit."""
    target = registry.target(backend)
    adapter = registry.adapter(target.api)
    return adapter.render(context_of(ground, at), model=target.model, provider=target.provider)


def render_as(ground: Ground, api: str, *, at: Digest | None, model: str = "") -> Rendered:
    """The same in a wire format; without a model it names none, and is for no backend in particular."""
    rendered = registry.adapter(api).render(context_of(ground, at), model=model)
    if model:
        return rendered
    return Rendered(
        body={name: value for name, value in rendered.body.items() if name != "model"}, losses=rendered.losses
    )


def context_of(ground: Ground, at: Digest | None) -> Context:
    """The whole conversation up to a commit, with the agent's instructions and tools."""
    conversation = Conversation()
    words = [entry.words for entry in reader.transcript(ground.space, at) if entry.words]
    conversation.extend(taken_out(ground.space, message) for message in words)
    agent = ground.agent
    return Context(
        system=agent.instructions,
        messages=conversation.messages(),
        tools=tuple(tool.spec for tool in agent.toolbox.values()),
        options=agent.options,
    )
