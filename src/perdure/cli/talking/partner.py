"""Whom one talks to: an agent from code, from a file that is kept, or simply a backend under a name."""

from __future__ import annotations

from perdure.cli.coding import Found, found_in
from perdure.cli.declared import declared_here, what_to_type
from perdure.cli.guessing import agent_names
from perdure.errors import Invalid, NotFound
from perdure.model.nearness import did_you_mean
from perdure.runtime.agent import Agent
from perdure.threads.store import Store

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
            raise _nobody(store, name, found)
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
            f"{_close_tools(missing, found)}Name the module that declares it: `perdure chat {name} --code MODULE`, "
            "which is app for app.py."
        )
    return kept.agent(found.tools.values())


def _nobody(store: Store, name: str, found: Found) -> NotFound:
    """The error for an agent that neither code nor a definition knows."""
    if name not in found.agents and name in store.agents():
        return NotFound(
            f"agent '{name}' is declared in code, which was not named; nothing was begun. {what_to_type(name)} To talk "
            f"to a model under that name, without its tools: `perdure chat {name} --to PROVIDER:MODEL`."
        )
    known = [*found.agents, *agent_names(store), *(each.agent for each in declared_here())]
    hint = did_you_mean(name, known) if name not in known else f"{what_to_type(name)} "
    return NotFound(
        f"there is no agent '{name}' to talk to; nothing was begun. {hint}To talk to a model under that name: "
        f"`perdure chat {name} --to PROVIDER:MODEL`. To keep an agent as a file: `perdure agents apply -f FILE`."
    )


def _close_tools(missing: list[str], found: Found) -> str:
    hints = [did_you_mean(each, found.tools) for each in missing] if found.tools else []
    return "".join(hints)
