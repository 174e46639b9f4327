"""Whom one talks to: an agent from code, from a file that is kept, or simply a backend under a name."""

from __future__ import annotations

from holdfast.cli.coding import Found, found_in
from holdfast.errors import Invalid, NotFound
from holdfast.runtime.agent import Agent
from holdfast.threads.store import Store

__all__ = ["partner"]


def partner(store: Store, name: str, *, code: str | None, backend: str | None) -> Agent:
    """The agent of that name, on `backend` if one is given.

    The code's own comes first, then the definition that the store keeps, with the code's tools.
    Raises `NotFound` if neither knows it and no backend is given.
    """
    found = found_in(code) if code is not None else Found()
    agent = found.agents.get(name) or _kept(store, name, found)
    if agent is None:
        if backend is None:
            raise NotFound(
                f"there is no agent '{name}' to talk to; nothing was begun. Keep one with `holdfast agents apply`, "
                "name its --code, or give a backend with --to."
            )
        return Agent(name, backend=backend, tools=list(found.tools.values()))
    if backend is not None:
        return agent.on(backend)
    if agent.backend is None:
        raise Invalid(f"agent '{name}' has no backend; nothing was begun. Give one with --to.")
    return agent


def _kept(store: Store, name: str, found: Found) -> Agent | None:
    kept = store.definitions.find(name)
    if kept is None:
        return None
    missing = [each for each in kept.definition.tools if each not in found.tools]
    if missing:
        raise Invalid(
            f"agent '{name}' needs the tool {', '.join(missing)}, and no code was named that has it; nothing was begun. "
            "Name it with --code module."
        )
    return kept.agent(found.tools.values())
