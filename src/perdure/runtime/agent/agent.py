"""Declares an agent: its instructions, tools, backend, state and limits.

Plain values without I/O.  An agent's name is its identity; agents share nothing.

A stop policy says how much one run may do, and which ends of an answer count as success.  The
counters are in run scope, so they survive a crash and never leak into the next run.
A run that a policy ends is `stopped`, which is no failure: its work stays.  So is a run whose last
answer was cut off, refused, or ended in another way that leaves the answer incomplete, unless the
policy accepts that.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, cast

import msgspec

from perdure.context.limits import ContextLimits
from perdure.errors import Invalid, PerdureWarning
from perdure.model import canonical, names
from perdure.model.canonical import Json, prepare
from perdure.model.context import ToolSpec
from perdure.model.names import KERNEL_PREFIXES
from perdure.model.run import Cost, ParentCall, StopKind, StopReason, Usage
from perdure.runtime.agent.plugin import Guard, Phase, Plugin
from perdure.runtime.agent.state import Scope, State, checked, state
from perdure.switching.policy import Policy

if TYPE_CHECKING:
    # An agent that is known by name alone has neither a backend nor tools nor a route: a function that needs one of
    # their modules imports it.
    from perdure.providers.backend import Backend
    from perdure.providers.contract import Model
    from perdure.runtime.tools.tool import Tool
    from perdure.switching.route import Route

__all__ = [
    "Agent",
    "Scope",
    "State",
    "encoded_defaults",
    "is_hooked",
    "model_of",
    "state",
    "taking_steps",
    "ACCEPTABLE",
    "COUNTERS",
    "Counters",
    "RunBudget",
    "RunLimits",
    "Stop",
    "in_words",
]


COUNTERS = "/__run/stop.json"

_ENDS: dict[StopKind, str] = {
    "truncated": "a limit of tokens cut the answer off",
    "refused": "the model refused to answer, or its backend withheld the answer",
    "malformed": "the model's answer could not be used",
    "cancelled": "the answer was cancelled at the backend",
    "unknown": "the backend ended the answer with a word that is not known, so it may not be complete",
    "pending": "the backend has not finished the answer, and named no id by which it can be fetched",
}
ACCEPTABLE: tuple[StopKind, ...] = ("truncated", "refused", "malformed", "cancelled", "unknown")


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has used up of its limits."""

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0
    is_cost_known: bool = True  # False: the price or the usage of a step is not known
    began_at: int = 0  # µs since 1970, UTC
    calls: dict[str, int] = {}  # how often the same call was made, by fingerprint

    def after(self, usage: Usage, cost: float | None, fingerprints: list[str]) -> Counters:
        """Return the counters after one more step; a cost of None is not known."""
        calls = dict(self.calls)
        for each in fingerprints:
            calls[each] = calls.get(each, 0) + 1
        return Counters(
            steps=self.steps + 1,
            tokens=self.tokens + usage.input_tokens + usage.output_tokens,
            cost=self.cost + (cost or 0.0),
            is_cost_known=self.is_cost_known and cost is not None,
            began_at=self.began_at,
            calls=calls,
        )

    def with_children(self, usage: Usage, cost: Cost) -> Counters:
        """Return the counters with what child runs have used of tokens and cost."""
        return msgspec.structs.replace(
            self,
            tokens=self.tokens + usage.input_tokens + usage.output_tokens,
            cost=self.cost + cost.usd,
            is_cost_known=self.is_cost_known and not cost.unpriced,
        )


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one run may do; None: no limit of that kind.

    What the child runs of a run use counts towards `tokens` and `cost`.
    """

    steps: int | None = 100  # times that the model is asked
    tokens: int | None = None  # read and written, together
    cost: float | None = None  # in US dollars
    price: Callable[[Usage], float] | None = None  # US dollars of one step; None: the catalog's price
    seconds: float | None = None  # since the run began, waiting included
    repeats: int | None = None  # of one call with the same arguments
    accept: Sequence[StopKind] = ()  # ends of an answer that count as success though it is not complete

    def __post_init__(self) -> None:
        """Raise `Invalid` for a limit that no run could keep."""
        for name in ("steps", "tokens", "cost", "seconds", "repeats"):
            most = getattr(self, name)
            if most is not None and not most > 0:
                raise Invalid(
                    f"a run is stopped after more than 0 {name}, not {most!r}; nothing was declared.",
                    code="stop_limit_invalid",
                    limit=name,
                )
        is_list = isinstance(self.accept, list | tuple | set | frozenset)
        if not is_list or any(kind not in ACCEPTABLE for kind in self.accept):
            raise Invalid(
                f"accept= is a list of {', '.join(ACCEPTABLE)}, not {self.accept!r}; nothing was declared.",
                code="accept_invalid",
            )

    @property
    def counts(self) -> bool:
        """True if anything but the number of steps has to be counted."""
        return not (self.tokens is self.cost is self.seconds is self.repeats is None)

    def accepts(self, kind: StopKind) -> bool:
        """True if a run whose last answer ended in this way has succeeded."""
        return kind == "completed" or kind in self.accept

    def reached(self, counters: Counters, now: int) -> tuple[StopReason, str] | None:
        """Return the limit that is reached, and the same as text; None if the run may go on."""
        if not self.counts and (self.steps is None or counters.steps < self.steps):
            return None
        checks: tuple[tuple[float | None, float, str, str], ...] = (
            (self.steps, counters.steps, "steps", "limit of {} step{}"),
            (self.tokens, counters.tokens, "tokens", "limit of {} token{}"),
            (self.cost, counters.cost, "cost", "cost limit of {}"),
            (self.seconds, (now - counters.began_at) / 1e6, "seconds", "limit of {} second{}"),
            (
                self.repeats,
                max(counters.calls.values(), default=0),
                "repeats",
                "limit of {} repeat{} of one call",
            ),
        )
        if self.cost is not None and not counters.is_cost_known:
            why = f"the cost of a step is not known, so the cost limit of {self.cost:,.10g} cannot be kept"
            return StopReason("limit", "cost"), why
        for most, have, what, text in checks:
            if most is not None and have >= most:
                limit = text.format(f"{most:,.10g}", "" if most == 1 else "s")
                return StopReason("limit", what), f"the run reached its {limit}"
        return None


class RunBudget:
    """The limits of one run on tokens and cost, which its children use up too, and what the runs above it have left.

    A child is given what is left when it begins; that is part of its record, so it also holds where another process
    carries the child on.  Children that run side by side are each given all that is left at that moment.
    """

    def __init__(
        self, stop: Stop, parent: ParentCall | None, spent_below: Callable[[], tuple[Cost, Usage]]
    ) -> None:
        """Keep these limits; `spent_below` reads what the child runs have used."""
        self._stop, self._parent, self._spent_below = stop, parent, spent_below
        self._below = Cost(), Usage()
        tokens_left, cost_left = (None, None) if parent is None else (parent.tokens_left, parent.cost_left)
        # The price of a step has to be known before it is taken.
        self.limits_cost = stop.cost is not None or cost_left is not None
        self._limits_children = self.limits_cost or stop.tokens is not None or tokens_left is not None
        # What the run uses has to be kept, for a process that carries it on.
        self.is_counted = self._limits_children or stop.counts

    def count_children(self) -> None:
        """Read what child runs have used, if anything limits it."""
        if self._limits_children:
            self._below = self._spent_below()

    def reached(self, own: Counters, now: int) -> tuple[StopReason, str] | None:
        """Return the limit that is reached, and the same as text; None if the run may go on."""
        if not self.is_counted and (self._stop.steps is None or own.steps < self._stop.steps):
            return None
        cost, usage = self._below
        counters = own.with_children(usage, cost) if cost.steps else own
        reached = self._stop.reached(counters, now)
        if reached is not None or self._parent is None:
            return reached
        tokens_left, cost_left = self._parent.tokens_left, self._parent.cost_left
        if tokens_left is not None and counters.tokens >= tokens_left:
            return StopReason("limit", "tokens"), "a run above it reached its limit of tokens"
        if cost_left is not None and not counters.is_cost_known:
            why = "the cost of a step is not known, so the cost limit of a run above it cannot be kept"
            return StopReason("limit", "cost"), why
        if cost_left is not None and counters.cost >= cost_left:
            return StopReason("limit", "cost"), "a run above it reached its cost limit"
        return None


def in_words(stop: StopReason) -> str:
    """Say why an answer is not complete, with the backend's own word."""
    text = _ENDS.get(stop.reason, stop.reason)
    return text if stop.word is None else f"{text} ({stop.word})"


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What all workers of a store may do together for one agent or one backend; None: no limit of that kind."""

    runs: int | None = None  # at once
    requests_per_minute: int | None = None  # steps of models
    tokens_per_minute: int | None = None  # read and written, together; known only after a step

    def __post_init__(self) -> None:
        """Raise `Invalid` for a limit that is no whole number above 0."""
        for name, most in msgspec.structs.asdict(self).items():
            if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
                raise Invalid(
                    f"{name} is a whole number above 0, not {most!r}; nothing was declared.",
                    code="run_limit_invalid",
                    limit=name,
                )


# What other libraries call the options of an agent.
_USUAL_OPTIONS = {
    "model": "'backend'", "llm": "'backend'", "provider": "'backend'", "client": "'backend', with Backend(…, client=…)",
    "prompt": "'instructions'", "system": "'instructions'", "system_prompt": "'instructions'",
    "functions": "'tools'", "max_steps": "'stop', with Stop(steps=…)", "max_turns": "'stop', with Stop(steps=…)",
    "output_type": "thread.run(…, output=…)", "response_format": "thread.run(…, output=…)",
    "temperature": "'options', with {'temperature': …}", "max_tokens": "'options', with {'max_tokens': …}",
    "memory": "store.thread(…, owner=…), which has a memory", "fallbacks": "'route', with Route([…])",
}  # fmt: skip

_OWN = ("perdure.", "dataclasses")  # modules between a program and the declaration of its agent

RUN_STATE = KERNEL_PREFIXES[0]  # always of run scope


@dataclass(frozen=True)
class Agent:
    """The program whose state is kept; a plain value that touches nothing."""

    name: str
    _: KW_ONLY
    backend: str | Backend | Model | None = None  # what takes its turns; None: it only keeps state
    instructions: str = ""  # the model's system words
    tools: Sequence[Tool | Callable[..., Any]] = ()  # a plain function is declared as one that writes
    state: Sequence[State] = ()  # made by `perdure.state`
    plugins: Sequence[Plugin] = ()  # in the order in which they are called
    stop: Stop = field(default_factory=Stop)  # the most that one run may do
    options: Mapping[str, Json] = field(default_factory=dict[str, Json], hash=False)  # handed to the backend
    version: str | None = None  # recorded with every run
    policy: Policy = field(default_factory=Policy)  # what may be lost when a backend changes
    route: Route | None = None  # the backends that may take over, and when; None: there is no failover
    context: ContextLimits = field(default_factory=ContextLimits)  # how much of a conversation is shown
    object_storage: str | None = None  # the store that its threads live in; None: any that it is opened in
    guards: Sequence[Guard] = ()  # what may be refused: inputs, answers, arguments of calls
    answer_retries: int = (
        0  # how often a run asks again for an answer that was refused, or does not fit its type
    )
    chain_writes: bool = False  # each write of a tool is a commit of its own, not one commit a round
    limits: RunLimits | None = None  # what all workers of a store may do together; None: no limit

    def __repr__(self) -> str:
        """Say what it is called, which backend it has and which tools, in one line."""
        from perdure.providers.profile import name_of
        from perdure.providers.transport.address import identity  # without what may be secret

        backend = "" if self.backend is None else f" on {name_of(self.backend)}"
        address = getattr(self.backend, "base_url", None)
        backend += f" at {identity(address)}" if isinstance(address, str) else ""
        tools = f", tools: {', '.join(self.toolbox)}" if self.tools else ""
        return f"<agent {self.name}{backend}{tools}>"

    def __post_init__(self) -> None:
        """Raise `Invalid` for a name that cannot be, state that was not declared with `state`, or anything twice."""
        names.check_name("agent", self.name)
        object.__setattr__(self, "state", checked(self.name, self.state))
        object.__setattr__(self, "tools", _tools(self.name, self.tools))
        object.__setattr__(self, "plugins", tuple(self.plugins))
        object.__setattr__(self, "guards", _guards(self.name, self.guards, self.answer_retries))
        _check(self)
        _check_switching(self)
        _check_storing(self)
        if self.backend is None and self.route is not None:
            object.__setattr__(self, "backend", self.route.primary)
        checked(self.name, [*self.state, *(each for plugin in self.plugins for each in plugin.state)])

    def on(self, backend: str | Backend | Model) -> Agent:
        """The same agent on another backend; a route goes on to its fallbacks from there."""
        route = self.route
        if route is not None and route.primary is not None:
            route = replace(route, primary=None)
        return replace(self, backend=backend, route=route)

    @property
    def toolbox(self) -> dict[str, Tool]:
        """Its tools by name."""
        return self._toolbox

    @cached_property
    def _toolbox(self) -> dict[str, Tool]:
        return {each.name: each for each in cast("Sequence[Tool]", self.tools)}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Its tools as a model is shown them, without the one that decides about a vendor's approvals."""
        tools = cast("Sequence[Tool]", self.tools)
        return tuple(each.spec for each in tools if each.serves != "openai.mcp_approval")

    @property
    def declared(self) -> tuple[State, ...]:
        """All state that is declared: its own, and that of its plug-ins."""
        return self._declared

    @cached_property
    def _declared(self) -> tuple[State, ...]:
        return (*self.state, *(each for plugin in self.plugins for each in plugin.state))

    @property
    def rules(self) -> dict[str, str]:
        """How its state merges: from path prefix to rule."""
        return {each.prefix: each.merge for each in self.declared if each.merge is not None}

    @property
    def defaults(self) -> dict[str, Json]:
        """What absent paths are read as; new objects each time."""
        return {path: canonical.decode(body) for path, body in encoded_defaults(self).items()}

    def run_scoped_paths(self) -> tuple[str, ...]:
        """The paths, with everything below them, that are cleared when the next run begins."""
        return (RUN_STATE, *(each.prefix for each in self.declared if each.scope == "run"))


def _naming_options(init: Callable[..., None]) -> Callable[..., None]:
    """Return `init` with another `TypeError` for an option that there is not: it names the one that may be meant."""
    known = tuple(each.name for each in fields(Agent))

    @wraps(init)  # so that tools show the signature of `init`
    def checked_init(self: Agent, *args: Any, **options: Any) -> None:
        wrong = next((option for option in options if option not in known), None)
        if wrong is not None:
            raise TypeError(names.no_such_name("Agent", wrong, known, _USUAL_OPTIONS, what="option"))
        init(self, *args, **options)

    return checked_init


Agent.__init__ = _naming_options(Agent.__init__)


def is_hooked(agent: Agent, phase: Phase) -> bool:
    """True if a plug-in of the agent takes part in the phase."""
    return bool(agent.plugins) and any(getattr(plugin, phase) is not None for plugin in agent.plugins)


def encoded_defaults(agent: Agent) -> dict[str, bytes]:
    """Return the values of absent paths, as canonical JSON."""
    return {each.prefix: each.default for each in agent.declared if each.default is not None}


def model_of(agent: Agent) -> Model:
    """Return the model that takes the agent's steps; raise `Invalid`, `NotFound` or `Unsupported` if there is none."""
    backend = agent.backend
    if backend is None:
        raise Invalid(
            f"agent '{agent.name}' has no backend; nothing was run.",
            code="backend_missing",
            advice="Give it one with backend=, or use on(…).",
            agent=agent.name,
        )
    return taking_steps(backend)


def taking_steps(backend: str | Backend | Model) -> Model:
    """Return what takes the steps of a backend; raise `Invalid`, `NotFound` or `Unsupported` if nothing can."""
    from perdure.providers.backend import Backend

    if isinstance(backend, str):
        backend = Backend(backend)
    if not isinstance(backend, Backend):
        return backend
    # A program whose models take steps themselves needs no vendor's transport.
    from perdure.providers.client import Speaker

    return Speaker(backend)


def _guards(agent: str, guards: Sequence[Guard], retries: int) -> tuple[Guard, ...]:
    """Return the guards; raise `Invalid` for anything else, two of one name, or a number of retries that cannot be."""
    found = tuple(guards)
    if not all(isinstance(each, Guard) for each in found) or len({each.name for each in found}) < len(found):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"guards of agent '{agent}' are perdure.Guard, each with another name, not {guards!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent,
            field="guards",
        )
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"answer_retries of agent '{agent}' is a number from 0, not {retries!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent,
            field="answer_retries",
        )
    return found


def _check_switching(agent: Agent) -> None:
    if not isinstance(agent.policy, Policy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"policy of agent '{agent.name}' is a perdure.Policy, not {agent.policy!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent.name,
            field="policy",
        )
    route = agent.route
    if route is None:
        return
    from perdure.providers.profile import name_of
    from perdure.switching.route import Route

    if not isinstance(route, Route):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"route of agent '{agent.name}' is a perdure.Route, not {route!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent.name,
            field="route",
        )
    if agent.backend is not None and route.primary is not None and agent.backend != route.primary:
        raise Invalid(
            f"agent '{agent.name}' contradicts itself: its backend is {agent.backend!r}, and its route begins with "
            f"{route.primary!r}; nothing was declared.",
            code="backend_and_route_differ",
            advice="Give one of them.",
            agent=agent.name,
        )
    if agent.backend is not None and name_of(agent.backend) in map(name_of, route.fallbacks):
        raise Invalid(
            f"the route of agent '{agent.name}' falls back to its own backend; nothing was declared.",
            code="route_falls_back_to_itself",
            advice="Name another.",
            agent=agent.name,
        )


def _check(agent: Agent) -> None:
    if not isinstance(agent.instructions, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"instructions of agent '{agent.name}' are a text, not {agent.instructions!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent.name,
            field="instructions",
        )
    backend: object = agent.backend
    if not (backend is None or isinstance(backend, str) or _is_backend(backend)):
        raise Invalid(
            f"{backend!r} is no backend of agent '{agent.name}'; nothing was declared.",
            code="not_a_backend",
            advice="Give a name such as 'anthropic:…', a Backend, or an object that takes steps, such as "
            "testing.Script(…).",
            agent=agent.name,
        )
    if not isinstance(agent.stop, Stop):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"stop of agent '{agent.name}' is a perdure.Stop, not {agent.stop!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent.name,
            field="stop",
        )
    if not isinstance(agent.context, ContextLimits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"context of agent '{agent.name}' is a perdure.ContextLimits, not {agent.context!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent.name,
            field="context",
        )

    if not isinstance(agent.limits, RunLimits | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"limits of agent '{agent.name}' are perdure.RunLimits, not {agent.limits!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent.name,
            field="limits",
        )


def _is_backend(backend: object) -> bool:
    from perdure.providers.backend import Backend

    takes_steps = not isinstance(backend, type) and callable(getattr(backend, "step", None))
    return takes_steps or isinstance(backend, Backend)


def _check_storing(agent: Agent) -> None:
    names.check_flag(f"chain_writes of agent '{agent.name}'", agent.chain_writes)
    if agent.object_storage is not None:
        names.check_label(f"object_storage of agent '{agent.name}'", agent.object_storage)


def _tools(agent: str, given: object) -> tuple[Tool, ...]:
    if not isinstance(given, Iterable):
        raise Invalid(
            f"the tools of agent '{agent}' are a list, not {given!r}; nothing was declared.",
            code="agent_field_invalid",
            agent=agent,
            field="tools",
        )
    listed = tuple(cast("Iterable[Any]", given))
    if not listed:
        return ()
    from perdure.runtime.tools.tool import Tool, tool

    found: dict[str, Tool] = {}
    for each in listed:
        one = each if isinstance(each, Tool) else tool(each)
        if one.name in found:
            raise Invalid(
                f"agent '{agent}' has two tools named '{one.name}'; nothing was declared.",
                code="tool_declared_twice",
                advice="Rename one.",
                agent=agent,
                tool=one.name,
            )
        if one.serves is not None and one.serves in {each.serves for each in found.values()}:
            raise Invalid(
                f"agent '{agent}' has two tools that serve '{one.serves}'; nothing was declared.",
                code="tool_declared_twice",
                advice="Keep one.",
                agent=agent,
                tool=one.name,
            )
        found[one.name] = one
        _warn(agent, one)
    return tuple(found.values())


def _warn(agent: str, one: Tool) -> None:
    if not one.declared:
        level, frame = 1, sys._getframe()  # pyright: ignore[reportPrivateUsage]
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
            level, frame = level + 1, frame.f_back
        warnings.warn(
            PerdureWarning(
                f"tool '{one.name}' of agent '{agent}' declares no effect, so it counts as an external write: it is never "
                "repeated, and a cut-off call has to be settled.",
                code="effect_not_declared",
                advice="Declare it: @perdure.tool(effect=…).",
                agent=agent,
                tool=one.name,
            ),
            stacklevel=level,  # the line of the program
        )


prepare(Counters)
