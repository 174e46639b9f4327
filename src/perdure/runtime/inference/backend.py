"""Resolving: from the backend that a line's history names to something that takes steps.

The history counts, not the code: editing `backend=` moves no thread that has begun.  A name is
resolved to an object that was given under it (by the agent, its route, or a switch on the same
handle), else to the backend that the name itself means.  Among objects of one name the one at the
recorded server counts; if none leads there, nothing is sent: `ServerChanged` names both servers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perdure.errors import Invalid, NotFound, PerdureWarning, ServerChanged, Unsupported
from perdure.history import reader
from perdure.model.digest import Digest
from perdure.providers.contract import Model, sent_by, server_of
from perdure.providers.profile import BackendRef, name_of, same
from perdure.providers.transport.address import UNRESOLVED
from perdure.runtime.agent.agent import Agent, model_of, taking_steps
from perdure.switching.current_backend import RecordedBackend, server_on_record

if TYPE_CHECKING:
    from perdure.runtime.session.environment import RunEnvironment

__all__ = [
    "check_server",
    "check_server_on_record",
    "given_as",
    "given_for",
    "is_on",
    "is_same_server",
    "line_backend",
    "model_for",
    "warn_of_end",
    "current_model",
]


def warn_of_end(env: RunEnvironment, model: Model) -> None:
    """Warn once that the vendor stops, or has stopped, serving the model that a run begins on."""
    sent = sent_by(model)
    if sent is None or not env.lines.is_first_run(model.backend):
        return
    ends = env.models().card(sent.provider, sent.model).ends
    if ends is None:
        return
    today = datetime.fromtimestamp(env.space.clock() / 1_000_000, UTC).date().isoformat()
    when = f"is served until {ends}" if today <= ends else f"was served until {ends}"
    warnings.warn(
        PerdureWarning(
            f"{model.backend} {when}, as its vendor announced.",
            code="model_ends",
            advice="Move its threads to another model; `perdure models ls` lists those that stay.",
            backend=model.backend,
            ends=ends,
        ),
        stacklevel=2,
    )


def line_backend(env: RunEnvironment, *, line: str | None = None) -> RecordedBackend | None:
    """The backend of the line as it stands now; None: its history names none, and the agent's counts."""
    timeline = line or env.timeline
    head = reader.head_of(env.space, timeline)
    return env.lines.backend(env.space, timeline, head.commit)


def current_model(env: RunEnvironment, *, line: str | None = None, sure: bool = False) -> Model:
    """The model whose turn it is on the line; unless it has to be `sure`, what was found last will do.

    Raises `Invalid` if the agent has no backend, or nothing takes steps for the line's, and
    `ServerChanged` if what does would send to another server than the recorded one.
    """
    if env.agent.backend is None and not env.handed:
        return model_of(env.agent)  # which says so
    known = None if sure else env.lines.last(env.space, env.timeline)
    found = known[1] if known is not None else None
    if found is None or found.name != _own(env):  # one that is not the agent's may have been undone
        found = line_backend(env, line=line)
        known = None
    try:
        return model_of(env.agent) if found is None else model_for(env, found)
    except ServerChanged:
        if known is None:
            raise
        return current_model(env, line=line, sure=True)  # the run that named that server may have been undone


def model_for(env: RunEnvironment, recorded: RecordedBackend) -> Model:
    """What takes the steps of the line's backend; warns if the agent is declared on another.

    Raises `ServerChanged` if nothing here that goes by its name leads to its server.
    """
    models = [taking_steps(each) for each in _known(env) if is_on(env, name_of(each), recorded.name)]
    for model in models:
        if is_same_server(recorded.server, server_of(model)):
            return model
    if models:
        raise _changed(env, recorded, models[0])
    try:
        found = taking_steps(recorded.name)
    except (Invalid, NotFound, Unsupported) as error:
        raise Invalid(
            f"'{env.space.label}' is on {recorded.name}, and nothing takes steps for that here; nothing was run: "
            f"{error.message}",
            code="backend_not_given",
            advice="Give the agent that backend, or move the thread to another with switch(…); a run that was cut off "
            "has to be ended first, with cancel().",
            thread=env.space.label,
            backend=recorded.name,
        ) from error
    _warn(env.agent, env.space.label, recorded.name)
    check_server(env, recorded, found)
    return found


def given_as(env: RunEnvironment, given: BackendRef) -> BackendRef:
    """What a name stands for on this handle: the object that was given under it, else the name."""
    if not isinstance(given, str):
        return given
    return next((each for each in _known(env) if is_on(env, name_of(each), given)), given)


def given_for(env: RunEnvironment, recorded: RecordedBackend) -> BackendRef:
    """What was given for the line's backend: at its server if there is one, else under its name, else the name."""
    found = [each for each in _known(env) if is_on(env, name_of(each), recorded.name)]
    there = (each for each in found if server_of(taking_steps(each)) == recorded.server)
    return next(there, found[0] if found else recorded.name)


def check_server(env: RunEnvironment, recorded: RecordedBackend, model: Model) -> None:
    """Raise `ServerChanged` if the model would send to another server than the recorded one."""
    if not is_same_server(recorded.server, server_of(model)):
        raise _changed(env, recorded, model)


def check_server_on_record(env: RunEnvironment, at: Digest | None, model: Model) -> None:
    """Raise `ServerChanged` if the line had this backend before, at another server than the model leads to."""
    recorded = server_on_record(env.space, at, lambda name: is_on(env, name, model.backend))
    if recorded is not None:
        check_server(env, recorded, model)


def is_same_server(recorded: str | None, resolved: str | None) -> bool:
    """Whether a step may go to `resolved`; before an address was found nothing can have been sent."""
    return recorded in (resolved, UNRESOLVED)


def _changed(env: RunEnvironment, recorded: RecordedBackend, model: Model) -> ServerChanged:
    return ServerChanged(
        recorded.name, recorded=recorded.server, resolved=server_of(model), thread=env.space.label
    )


def is_on(env: RunEnvironment, one: str, other: str) -> bool:
    """Whether two names mean the same backend."""
    return one == other or same(one, other, env.models())


def _own(env: RunEnvironment) -> str | None:
    return None if env.agent.backend is None else name_of(env.agent.backend)


def _known(env: RunEnvironment) -> Iterator[BackendRef]:
    """Everything that was given by an object or a name, what was handed over last first."""
    yield from reversed(tuple(env.handed.values()))
    if env.agent.backend is not None:
        yield env.agent.backend
    if env.agent.route is not None:
        yield from env.agent.route.order(None)


def _warn(agent: Agent, label: str, name: str) -> None:
    if agent.backend is not None:
        declared = name_of(agent.backend)
        warnings.warn(
            PerdureWarning(
                f"agent '{agent.name}' is declared on {declared}, but '{label}' is on {name}, which counts.",
                code="backend_differs",
                advice=f"A thread that has begun is moved by thread.switch('{declared}'), after a check.",
                agent=agent.name,
                thread=label,
                backend=name,
                declared=declared,
            ),
            stacklevel=2,
        )
